"""Functions of ``np.ma`` that make masked arrays of arrays and conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.calls import SPECIAL, call, special
from futurex.frontend.errors import Escape
from futurex.frontend.masked import (
    MASKED,
    Handler,
    Masked,
    cast_fill,
    change,
    checked_fill,
    data_of,
    either,
    entangled,
    filled,
    full_mask,
    made,
    mask_of,
    no_element,
)
from futurex.frontend.masked_arrays import arithmetic  # noqa: F401  (it registers what is used here)
from futurex.frontend.tracer import Tracer, array_node, entered, new_array
from futurex.tree.node import const

_ORDERED = {"less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}


def as_masked(value: Any) -> Masked:
    """``np.ma.asanyarray``."""
    return value if isinstance(value, Masked) else made(data_of(value))


@special(np.ma.MaskedArray)
def array(
    data: Any = None, mask: Any = np.ma.nomask, dtype: Any = None, copy: Any = False, subok: Any = True,
    ndmin: Any = 0, fill_value: Any = None, keep_mask: Any = True, hard_mask: Any = None, shrink: Any = True,
    order: Any = None,
) -> Masked:  # fmt: skip
    if isinstance(dtype, Tracer | Masked) or ndmin or hard_mask or order is not None or not shrink or not subok:
        raise Escape("a masked array with these options", "they are not traced")
    data = entered(data)
    source, before = data_of(data), mask_of(data)
    dtype = source.dtype if dtype is None else np.dtype(dtype)
    values = source if dtype == source.dtype and not copy else source.astype(dtype)
    if isinstance(data, list | tuple) and any(isinstance(entry, Masked) for entry in data):
        raise Escape("a masked array of a list of masked arrays", "it is not traced")
    if values is source:
        values = source._extended()
    hidden, present = before
    new = copy or values.dtype != source.dtype
    if mask is np.ma.nomask:
        if not keep_mask:
            hidden = None
        elif hidden is not None:
            hidden = new_array(hidden._node) if new else _also_shared(hidden, present)
    else:
        given = _mask_for(mask, values.shape, copy)
        if hidden is None or not keep_mask:
            hidden, present = given, True
        elif present is True:
            hidden = given | hidden
        else:
            hidden, present = entangled(given | hidden, given), True
    if fill_value is not None:
        return made(values, hidden, present, checked_fill(fill_value, dtype))
    return made(values, hidden, present, *cast_fill(data, dtype))


@special(np.ma.array)
def _array(data: Any, dtype: Any = None, copy: Any = False, order: Any = None, mask: Any = np.ma.nomask, *rest: Any,
    **options: Any,
) -> Masked:  # fmt: skip
    if rest:
        raise Escape("np.ma.array with so many arguments without a name", "they are not traced")
    return array(data, mask, dtype, copy, order=order, **options)


def _also_shared(hidden: Any, present: Any) -> Any:
    """The mask itself, seen by another array."""
    return hidden._extended() if present is True else entangled(new_array(hidden._node), hidden)


def _mask_for(mask: Any, shape: Any, copy: Any) -> Any:
    """What ``mask=`` gives for data of this shape: it is repeated, or takes the shape."""
    if isinstance(mask, Masked) or mask is MASKED:
        raise Escape("a masked array as a mask", "it is not traced")
    if mask is None or mask is False:
        return no_element(shape)
    if mask is True:
        return ~no_element(shape)
    given, hidden = entered(mask), None
    if isinstance(given, Tracer) and not given.is_scalar:
        hidden = given._extended() if given.dtype.kind == "b" and not copy else given.astype(bool)
    else:
        hidden = new_array(array_node(given)).astype(bool)
    if hidden.shape == shape:
        return hidden
    if hidden.size == 1:
        return np.broadcast_to(hidden.reshape(()), shape).copy()
    if hidden.size != int(np.prod(shape)):
        raise np.ma.MaskError("Mask and data not compatible")
    return hidden.reshape(shape)


def _copied(a: Any, copy: Any) -> Any:
    """``np.array(a, copy=copy, subok=True)``."""
    if isinstance(a, Masked):
        if not copy:
            raise Escape("copy=False for a masked array", "its mask would be the result's")
        return a
    if not copy and not (isinstance(a, Tracer) and not a.is_scalar):
        raise Escape("copy=False for what is no array", "NumPy refuses it")
    values = data_of(a)
    return values.copy() if copy else values._extended()


@special(np.ma.masked_where)
def masked_where(condition: Any, a: Any, copy: Any = True) -> Masked:
    a = entered(a)
    base = _copied(a, copy)
    cond = filled(entered(condition), True)
    cond = cond if cond.dtype.kind == "b" else cond != 0
    shape = data_of(base).shape
    if cond.ndim and cond.shape != shape:
        raise IndexError(
            "Inconsistent shape between the condition and the input"
            f" (got {cond.shape} and {shape})"
        )  # fmt: skip
    before, present = mask_of(base)
    hidden = cond.copy() if before is None else cond | before
    hidden = np.broadcast_to(hidden, shape).copy() if hidden.shape != shape else hidden
    values = base.values.copy() if isinstance(base, Masked) else base
    return made(values, hidden, either(present, hidden.any()), *cast_fill(base, values.dtype))


def _compared(ufunc: Any) -> Handler:
    compare = SPECIAL[getattr(np.ma, ufunc)]

    def handler(x: Any, value: Any, copy: Any = True) -> Masked:
        return masked_where(compare(x, value), x, copy)

    return handler


for _name in (*_ORDERED, "not_equal"):
    SPECIAL[getattr(np.ma, f"masked_{_name}")] = _compared(_name)


@special(np.ma.masked_equal)
def masked_equal(x: Any, value: Any, copy: Any = True) -> Masked:
    found = _compared("equal")(x, value, copy)
    found.filling, found.unsure = checked_fill(value, found.dtype), False
    return found


def _between(inside: bool) -> Handler:
    def handler(x: Any, v1: Any, v2: Any, copy: Any = True) -> Masked:
        if v2 < v1:
            v1, v2 = v2, v1
        x = entered(x)
        values = filled(x)
        condition = (values >= v1) & (values <= v2) if inside else (values < v1) | (values > v2)
        return masked_where(condition, x, copy)

    return handler


SPECIAL[np.ma.masked_inside], SPECIAL[np.ma.masked_outside] = _between(True), _between(False)


@special(np.ma.masked_invalid)
def masked_invalid(a: Any, copy: Any = True) -> Masked:
    a = entered(a)
    a = a if isinstance(a, Masked | Tracer) else data_of(a)
    found = masked_where(~np.isfinite(data_of(a)), a, copy)
    if found.hidden is None:
        found.hidden = no_element(found.shape)
    found.present = True
    return found


@special(np.ma.masked_values)
def masked_values(
    x: Any, value: Any, rtol: Any = 1e-5, atol: Any = 1e-8, copy: Any = True, shrink: Any = True
) -> Masked:
    values = filled(entered(x), value)
    hidden = (
        call(np.isclose, (values, value), {"atol": atol, "rtol": rtol})
        if values.dtype.kind == "f"
        else np.equal(values, value)
    )
    found = array(values, hidden, copy=copy, fill_value=value)
    if shrink and found.hidden is not None:
        found.present = found.hidden.any()
    return found


@special(np.ma.fix_invalid)
def fix_invalid(a: Any, mask: Any = np.ma.nomask, copy: Any = True, fill_value: Any = None) -> Masked:
    if not copy:
        raise Escape("np.ma.fix_invalid without a copy", "it is not traced")
    found = array(a, mask, copy=True)
    if found.dtype.kind not in "fc":
        return found
    invalid = ~np.isfinite(found.values)
    fill = fill_value
    if fill is None:
        if found.filling is None:
            found.filling, found.unsure = checked_fill(None, found.dtype), True
        fill = found.filling
    elif isinstance(entered(fill), Tracer):
        raise Escape("a fill value that depends on data", "it is not traced")
    found.values[invalid] = fill
    found.present = either(found.present, invalid.any())
    found.hidden = invalid if found.hidden is None else found.hidden | invalid
    return found


@special(np.ma.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Masked:
    condition, x, y = entered(condition), entered(x), entered(y)
    if x is None or y is None or (x is MASKED and y is MASKED):
        raise Escape("np.ma.where of one array", "it is not traced")
    first = _zero(data_of(y)) if x is MASKED else data_of(x)
    second = _zero(data_of(x)) if y is MASKED else data_of(y)
    chosen = filled(condition, False)
    values = np.where(chosen, first, second)
    hidden = np.where(chosen, full_mask(x), full_mask(y)) | full_mask(condition)
    return made(values, hidden, hidden.any())


def _zero(other: Any) -> Any:
    """What NumPy takes for the data of ``np.ma.masked`` beside an array."""
    return new_array(const(np.zeros((), other.dtype)))


@special(np.ma.concatenate)
def concatenate(arrays: Any, axis: Any = 0) -> Masked:
    parts = [entered(part) for part in arrays]
    values = np.concatenate([data_of(part) for part in parts], axis)
    if all(mask_of(part)[0] is None for part in parts):
        return made(values)
    hidden = np.concatenate([full_mask(part) for part in parts], axis)
    return made(values, hidden, hidden.any())


def _of_numpy(function: Any) -> Handler:
    def handler(*args: Any, **kwargs: Any) -> Masked:
        return made(entered(call(function, args, kwargs)))

    return handler


for _name in ("arange", "ones", "zeros"):
    SPECIAL[getattr(np.ma, _name)] = _of_numpy(getattr(np, _name))


@special(np.ma.asarray, np.ma.asanyarray)
def asarray(a: Any, dtype: Any = None) -> Masked:
    a = entered(a)
    return a if isinstance(a, Masked) and dtype is None else array(a, dtype=dtype)


@special(np.ma.isMaskedArray, np.ma.isMA, np.ma.isarray)
def is_masked_array(x: Any) -> bool:
    return isinstance(x, Masked) or x is MASKED


@special(np.ma.is_masked)
def is_masked(x: Any) -> Any:
    hidden, _ = mask_of(x)
    if x is MASKED:
        return True
    return False if hidden is None else call(bool, (hidden.any(),), {})


@special(np.ma.getmask)
def getmask(a: Any) -> Any:
    return a.mask if isinstance(a, Masked) else np.ma.nomask


@special(np.ma.getmaskarray)
def getmaskarray(arr: Any) -> Any:
    arr = entered(arr)
    if isinstance(arr, Masked) and arr.hidden is not None:
        return _also_shared(arr.hidden, arr.present)
    return no_element(data_of(arr).shape)


@special(np.ma.getdata)
def getdata(a: Any, subok: Any = True) -> Any:
    a = entered(a)
    if isinstance(a, Masked):
        return a.data
    return a._extended() if isinstance(a, Tracer) and not a.is_scalar else data_of(a)


@special(np.ma.set_fill_value)
def set_fill_value(a: Any, fill_value: Any) -> None:
    if isinstance(a, Masked):
        a.fill_value = fill_value


@special(np.ma.filled)
def filled_(a: Any, fill_value: Any = None) -> Any:
    a = entered(a)
    if isinstance(a, Masked):
        return a.filled(fill_value)
    return a if isinstance(a, Tracer) and not a.is_scalar else data_of(a)


def method_filled(self: Masked, fill_value: Any = None) -> Any:
    """The data itself where nothing is masked, else a copy."""
    found = filled(self, fill_value)
    return self.data if self.hidden is None else entangled(found, self.values)


def shrink_mask(self: Masked) -> Masked:
    change(self)
    if self.hidden is not None:
        self.present = self.hidden.any()
    return self
