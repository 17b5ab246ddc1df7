"""Reductions of masked arrays: of what is not masked."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.calls import SPECIAL
from futurex.frontend.control.values import SCALAR, merged_tracer
from futurex.frontend.errors import Escape
from futurex.frontend.masked import (
    METHODS,
    Handler,
    Masked,
    checked_fill,
    data_of,
    filled,
    full_mask,
    like,
    made,
    mask_of,
    needs_mask,
    number,
)
from futurex.frontend.masked_arrays.arithmetic import outside_of_division, quiet
from futurex.frontend.masked_arrays.making import as_masked
from futurex.frontend.numpy_api.registry import NO_VALUE
from futurex.frontend.numpy_api.ufuncs import normal_axes
from futurex.frontend.tracer import entered

_COUNT = np.dtype(np.intp)


def _options(keepdims: Any, out: Any = None, **others: Any) -> dict[str, Any]:
    if out is not None:
        raise Escape("a reduction of a masked array with out=", "it is not traced")
    given = {name: value for name, value in others.items() if value is not None}
    return given if keepdims is NO_VALUE else {**given, "keepdims": keepdims}


def _result(self: Masked, result: Any, axis: Any, options: dict[str, Any]) -> Any:
    """What a reduction of the filled data gives: masked where everything was."""
    hidden = None
    if self.hidden is not None:
        hidden = self.hidden.all(axis=axis, **{k: v for k, v in options.items() if k == "keepdims"})
    return made(result, hidden, self.present) if result.ndim else number(result, hidden)


def _reduction(name: str, neutral: Any) -> Handler:
    def method(self: Masked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NO_VALUE) -> Any:
        options = _options(keepdims, out)
        result = getattr(filled(self, neutral), name)(axis, **({} if dtype is None else {"dtype": dtype}), **options)
        return _result(self, result, axis, options)

    return method


def _test(name: str, neutral: Any) -> Handler:
    def method(self: Masked, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE) -> Any:
        options = _options(keepdims, out)
        return _result(self, getattr(filled(self, neutral), name)(axis=axis, **options), axis, options)

    return method


def _extreme(name: str, limit: Any) -> Handler:
    def method(
        self: Masked, axis: Any = None, out: Any = None, fill_value: Any = None, keepdims: Any = NO_VALUE
    ) -> Any:
        options = _options(keepdims, out)
        values = filled(self, limit(self.dtype) if fill_value is None else fill_value)
        found = _result(self, getattr(values, name)(axis=axis, **options), axis, options)
        if isinstance(found, Masked) and found.hidden is not None:
            fill = checked_fill(None, found.dtype)
            with np.errstate(all="ignore"):
                found.values = np.where(found.hidden, fill.astype(found.dtype), found.values)
            found.filling, found.unsure = fill, self.present is not True
        return found

    return method


def _place(name: str, limit: Any) -> Handler:
    def method(
        self: Masked, axis: Any = None, fill_value: Any = None, out: Any = None, *, keepdims: Any = NO_VALUE
    ) -> Any:
        options = _options(keepdims, out)
        return getattr(filled(self, limit(self.dtype) if fill_value is None else fill_value), name)(axis, **options)

    return method


def _running(name: str, neutral: Any) -> Handler:
    def method(self: Masked, axis: Any = None, dtype: Any = None, out: Any = None) -> Masked:
        _options(NO_VALUE, out)
        result = getattr(filled(self, neutral), name)(axis=axis, **({} if dtype is None else {"dtype": dtype}))
        hidden = None if self.hidden is None else self.hidden.copy().reshape(result.shape)
        return made(result, hidden, self.present)

    return method


def count(self: Masked, axis: Any = None, keepdims: Any = NO_VALUE) -> Any:
    options = _options(keepdims)
    hidden, present = mask_of(self)
    if hidden is not None:
        found = (~hidden).sum(axis=axis, dtype=_COUNT, **options)
        if present is True or found.ndim:
            return found
        return merged_tracer(found._node, SCALAR, (), loose=True)  # without a mask it is Python's number
    if axis is None and not options.get("keepdims"):
        return self.size
    return (~full_mask(self)).sum(axis=axis, dtype=_COUNT, **options)


def mean(self: Masked, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NO_VALUE) -> Any:
    options = _options(keepdims, out)
    kind = np.dtype(dtype) if dtype is not None else self.dtype
    if kind == np.float16 or not self.size:
        raise Escape("the mean of a masked array of this kind", "NumPy rounds it in another way, or warns")
    if self.hidden is None:
        found = self.values.mean(axis, **({} if dtype is None else {"dtype": dtype}), **options)
        return _mean_without_mask(self, found) if found.ndim else number(found, np.isinf(found))
    if dtype is None and kind.kind in "biu":
        dtype = kind = np.dtype(float)
    total = METHODS["sum"](self, axis, dtype, **options)
    if total.ndim or kind != np.float64:
        needs_mask(self)
    found = total * 1.0 / (~self.hidden).sum(axis=axis, dtype=_COUNT, **options)
    return found if found.ndim or self.present is True else number(found, np.isinf(found))


def _mean_without_mask(self: Masked, result: Any) -> Masked:
    """NumPy divides masked arrays in place, and looks for what is outside of the domain when that is done."""
    outside = outside_of_division(result, data_of(self.size // result.size))
    return like(self, np.where(outside, result.dtype.type(1), result), outside, outside.any())


def var(
    self: Masked, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NO_VALUE,
    mean: Any = NO_VALUE,
) -> Any:  # fmt: skip
    options = _options(keepdims, out)
    if self.dtype.kind == "c" or mean is not NO_VALUE or not self.size or type(ddof) not in (int, float):
        raise Escape("the variance of a masked array with these options", "it is not traced")
    if self.hidden is None:
        if axis is None and not options.get("keepdims"):
            found = self.values.var(dtype=dtype, ddof=ddof)
            return number(found, ~np.isfinite(found))
        raise Escape("the variances along an axis of an array without a mask", "they are not traced")
    needs_mask(self)
    degrees = (~self.hidden).sum(axis=axis, dtype=_COUNT, **options) - ddof
    centred = self - METHODS["mean"](self, axis, dtype, keepdims=True)
    centred *= centred
    total = METHODS["sum"](centred, axis, **options)
    if not isinstance(total, Masked):
        quiet()
        quotient = total / degrees
        outside = ~np.isfinite(quotient) | (np.absolute(total) * np.float64(np.finfo(float).tiny) >= abs(degrees))
        return number(quotient, outside)
    found = SPECIAL[np.ma.divide](total, degrees)
    hidden = self.hidden.all(axis, **options) | (degrees <= 0)
    return like(self, found.values, hidden, hidden.any())


def std(
    self: Masked, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NO_VALUE,
    mean: Any = NO_VALUE,
) -> Any:  # fmt: skip
    variance = var(self, axis, dtype, out, ddof, keepdims, mean)
    if isinstance(variance, Masked):
        return SPECIAL[np.ma.sqrt](variance)
    quiet()
    return number(np.sqrt(variance), ~(np.isfinite(variance) & (variance >= 0)))


def average(a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = NO_VALUE) -> Any:
    array = as_masked(a)
    options = _options(keepdims)
    if returned:
        raise Escape("np.ma.average with its weights", "they are not traced")
    if axis is not None:
        axis = normal_axes(axis, array.ndim)
    if weights is None:
        return mean(array, axis, **options)
    given = as_masked(weights)
    kinds = (array.dtype, given.dtype, *(["f8"] if array.dtype.kind in "biu" else []))
    dtype = np.result_type(*kinds)
    if given.shape != array.shape or (array.present is not given.present and array.hidden is None):
        raise Escape("np.ma.average with weights of another shape", "it is not traced")
    if array.hidden is not None:
        needs_mask(array)
        given = given * ~array.hidden
        given.mask = full_mask(given) | array.hidden
    scale = METHODS["sum"](given, axis, dtype, **options)
    product = np.multiply(array.values, given.values, dtype=dtype)
    hidden = None if array.hidden is None and given.hidden is None else full_mask(array) | full_mask(given)
    total = METHODS["sum"](like(array, product, hidden, hidden is not None and hidden.any()), axis, **options)
    return total / scale


def argsort(
    self: Masked, axis: Any = NO_VALUE, kind: Any = None, order: Any = None, endwith: Any = True,
    fill_value: Any = None, *, stable: Any = False,
) -> Any:  # fmt: skip
    if order is not None or stable or (axis is NO_VALUE and self.ndim > 1):
        raise Escape("argsort() of a masked array with these options", "NumPy warns, or refuses it")
    if fill_value is None:
        highest = np.nan if self.dtype.kind == "f" else np.ma.minimum_fill_value(self.dtype)
        fill_value = highest if endwith else np.ma.maximum_fill_value(self.dtype)
    return filled(self, fill_value).argsort(axis=-1 if axis is NO_VALUE else axis, kind=kind)


def _ptp(self: Masked, axis: Any = None, out: Any = None, fill_value: Any = None, keepdims: Any = False) -> Any:
    if out is not None or fill_value is not None:
        raise Escape("ptp() of a masked array with these options", "they are not traced")
    result = METHODS["max"](self, axis, keepdims=keepdims)
    result -= METHODS["min"](self, axis, keepdims=keepdims)
    return result


def _anom(self: Masked, axis: Any = None, dtype: Any = None) -> Any:
    found = mean(self, axis, dtype)
    if axis:
        raise Escape("anom() along an axis", "it is not traced")
    return self - found


METHODS.update(
    sum=_reduction("sum", 0), prod=_reduction("prod", 1), all=_test("all", True), any=_test("any", False),
    min=_extreme("min", np.ma.minimum_fill_value), max=_extreme("max", np.ma.maximum_fill_value),
    argmin=_place("argmin", np.ma.minimum_fill_value), argmax=_place("argmax", np.ma.maximum_fill_value),
    cumsum=_running("cumsum", 0), cumprod=_running("cumprod", 1), count=count, mean=mean, var=var, std=std,
    argsort=argsort, ptp=_ptp, anom=_anom, product=_reduction("prod", 1),
)  # fmt: skip
SPECIAL[np.ma.average] = average


def _count_masked(arr: Any, axis: Any = None) -> Any:
    return full_mask(entered(arr)).sum(axis)


SPECIAL[np.ma.count_masked] = _count_masked
