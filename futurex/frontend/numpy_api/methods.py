"""Array methods, and functions that ask for shapes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import copy
from futurex.frontend.numpy_api.products import dot
from futurex.frontend.numpy_api.reductions import cumsum, mean, std, trace, var
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, handles
from futurex.frontend.numpy_api.selection import clip, take
from futurex.frontend.numpy_api.shapes import repeat
from futurex.frontend.numpy_api.ufuncs import call_ufunc
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, abstract, as_tracer, fresh

HANDLERS[np.shape] = lambda a: abstract(a).shape
HANDLERS[np.ndim] = lambda a: abstract(a).ndim
HANDLERS[np.size] = lambda a, axis=None: abstract(a).size if axis is None else abstract(a).shape[axis]
HANDLERS[np.result_type] = lambda *values: np.result_type(*(abstract(v).dtype if isinstance(v, Tracer) else v for v in values))
HANDLERS[np.iscomplexobj] = lambda x: abstract(x).dtype.kind == "c"
HANDLERS[np.isrealobj] = lambda x: abstract(x).dtype.kind != "c"
HANDLERS[np.real] = lambda val: as_tracer(val).real
HANDLERS[np.imag] = lambda val: as_tracer(val).imag


@handles(np.square)
def _square(x: Any, **options: Any) -> Any:
    return call_ufunc(np.square, "__call__", (x,), options)


def _astype(self: Tracer, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Tracer:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise Escape(f"astype({dtype})", "this dtype is not traced")
    if not copy and dtype == self.dtype:
        return self
    return fresh(self._node) if dtype == self.dtype and not self.aval.weak else fresh(emit("cast", self._node, dtype=dtype))


def _fill(self: Tracer, value: Any) -> None:
    self._write(value)


METHODS.update(
    astype=_astype, fill=_fill, mean=mean, var=var, std=std, argmax=HANDLERS[np.argmax], argmin=HANDLERS[np.argmin],
    cumsum=cumsum, dot=dot, trace=trace, copy=lambda self, order="C": copy(self), clip=clip, take=take, repeat=repeat,
    conj=lambda self: call_ufunc(np.conjugate, "__call__", (self,), {}),
    conjugate=lambda self: call_ufunc(np.conjugate, "__call__", (self,), {}),
)  # fmt: skip
