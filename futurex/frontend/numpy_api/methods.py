"""Array methods, and functions that ask for shapes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import copy
from futurex.frontend.numpy_api.products import dot
from futurex.frontend.numpy_api.reductions import trace
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, handles
from futurex.frontend.numpy_api.selection import clip, take
from futurex.frontend.numpy_api.ufuncs import call_ufunc, layout_of
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, abstract, as_number, as_tracer, fresh, new_array

HANDLERS[np.shape] = lambda a: tuple(map(as_number, abstract(a).shape))
HANDLERS[np.ndim] = lambda a: abstract(a).ndim
HANDLERS[np.size] = lambda a, axis=None: as_number(abstract(a).size if axis is None else abstract(a).shape[axis])
HANDLERS[np.result_type] = lambda *values: np.result_type(*map(_type_of, values))
HANDLERS[np.iscomplexobj] = lambda x: abstract(x).dtype.kind == "c"
HANDLERS[np.isrealobj] = lambda x: abstract(x).dtype.kind != "c"
HANDLERS[np.real] = lambda val: as_tracer(val).real
HANDLERS[np.imag] = lambda val: as_tracer(val).imag


@handles(np.square)
def _square(x: Any, **options: Any) -> Any:
    return call_ufunc(np.square, "__call__", (x,), options)


def _type_of(value: Any) -> Any:
    if not isinstance(value, Tracer):
        return value
    return value.dtype.type(0).item() if value.aval.weak else value.dtype


def _astype(
    self: Tracer, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Tracer:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise Escape(f"astype({dtype})", "this dtype is not traced")
    if order not in ("K", "A", "C"):
        raise Escape(f"astype with order={order!r}", "only C order is traced")
    if not self.aval.weak and not np.can_cast(self.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {self.dtype!r} to {dtype!r} according to the rule {casting!r}")
    if dtype == self.dtype and not self.aval.weak and (not copy or self.is_scalar):
        return self
    node = self._node if dtype == self.dtype and not self.aval.weak else emit("cast", self._node, dtype=dtype)
    if self.is_scalar:
        return fresh(node)
    result = new_array(node)
    result._cell.strides = result._cell.strides if order == "C" else layout_of(result.aval, [self], [node])
    return result


def _copy(self: Tracer, order: str = "C") -> Tracer:
    return self if self.is_scalar else copy(self, order)


def _conjugate(self: Tracer) -> Tracer:
    return call_ufunc(np.conjugate, "__call__", (self,), {}) if self.dtype.kind == "c" else self


def _fill(self: Tracer, value: Any) -> None:
    if self.is_scalar:
        raise Escape("fill() of a scalar", "it changes nothing")
    if np.ndim(value) and not isinstance(value, Tracer):
        raise Escape("fill() with an array", "NumPy takes a scalar")
    self._write(value)


METHODS.update(
    astype=_astype, fill=_fill, dot=dot, trace=trace, copy=_copy, clip=clip, take=take,
    conj=_conjugate,
    conjugate=_conjugate,
)  # fmt: skip
