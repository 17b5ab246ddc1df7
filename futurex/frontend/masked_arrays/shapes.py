"""Methods of masked arrays that move their elements, and functions that are methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.calls import SPECIAL
from futurex.frontend.errors import Escape
from futurex.frontend.masked import (
    FUNCTIONS,
    METHODS,
    Handler,
    Masked,
    cast_fill,
    entangled,
    like,
    made,
    shared,
)
from futurex.frontend.masked_arrays.making import as_masked, method_filled, shrink_mask, where
from futurex.frontend.numpy_api.registry import NO_VALUE
from futurex.frontend.tracer import as_number


def _moved(name: str) -> Handler:
    """A method that does the same with data and mask: views of both where NumPy has views."""

    def method(self: Masked, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("order", "C") != "C":
            raise Escape(f"{name}() of a masked array with order=", "it is not traced")
        values = getattr(self.values, name)(*args, **kwargs)
        if self.hidden is None:
            return like(self, values)
        hidden = getattr(self.hidden, name)(*args, **kwargs)
        if self.present is not True and name not in ("copy", "flatten"):
            entangled(hidden, self.hidden)
        return like(self, values, hidden, self.present)

    return method


def _astype(self: Masked, dtype: Any, **options: Any) -> Masked:
    if options:
        raise Escape("astype() of a masked array with options", "it is not traced")
    values = self.values.astype(dtype)
    hidden = None if self.hidden is None else self.hidden.copy()
    return made(values, hidden, self.present, *cast_fill(self, values.dtype))


def _compressed(self: Masked) -> Any:
    values = self.values.ravel()
    if self.hidden is None:
        return values
    found = values[~self.hidden.ravel()]
    return found if self.present is True else entangled(found, self.values)


def _round(self: Masked, decimals: Any = 0, out: Any = None) -> Masked:
    if out is not None:
        raise Escape("round() of a masked array with out=", "it is not traced")
    return like(self, self.values.round(decimals), shared(self.hidden), self.present)


METHODS.update(
    {name: _moved(name) for name in ("copy", "flatten", "ravel", "reshape", "squeeze", "swapaxes", "transpose")},
    astype=_astype, compressed=_compressed, filled=method_filled, round=_round, shrink_mask=shrink_mask,
)  # fmt: skip


def _of_method(name: str) -> Handler:
    def handler(a: Any, *args: Any, **kwargs: Any) -> Any:
        return METHODS[name](as_masked(a), *args, **kwargs)

    return handler


def _compared(ufunc: Any) -> Handler:
    """``np.ma.maximum`` and ``np.ma.minimum``."""
    compare = SPECIAL[ufunc]
    return lambda a, b: where(compare(a, b), a, b)


for _name in (
    "all", "anom", "any", "argmax", "argmin", "argsort", "compressed", "copy", "count", "cumprod", "cumsum", "max",
    "mean", "min", "prod", "ptp", "ravel", "reshape", "round", "squeeze", "std", "sum", "swapaxes", "transpose", "var",
):  # fmt: skip
    SPECIAL[getattr(np.ma, _name)] = _of_method(_name)
SPECIAL[np.ma.maximum], SPECIAL[np.ma.minimum] = _compared(np.ma.greater), _compared(np.ma.less)


def _through(name: str) -> Handler:
    """A function of NumPy that calls the method of its first argument."""

    def handler(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(a, Masked) or kwargs.get("where", NO_VALUE) is not NO_VALUE:
            raise Escape(f"numpy.{name} of masked arrays, with these options", "it is not traced")
        kwargs = {key: value for key, value in kwargs.items() if key != "where"}
        return METHODS[name](a, *args, **kwargs)

    return handler


FUNCTIONS.update(
    {
        getattr(np, name): _through(name)
        for name in (
            "all", "any", "argmax", "argmin", "cumprod", "cumsum", "max", "mean", "min", "prod", "ravel", "reshape",
            "round", "squeeze", "std", "sum", "swapaxes", "transpose", "var",
        )
    }
)  # fmt: skip
FUNCTIONS.update({np.shape: lambda a: tuple(map(as_number, a.shape)), np.ndim: lambda a: a.ndim})
