"""Operators, ``np.ma``'s ufuncs and NumPy's own ufuncs on masked arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.calls import SPECIAL
from futurex.frontend.errors import Escape
from futurex.frontend.masked import (
    FUNCTIONS,
    Handler,
    Masked,
    change,
    checked_fill,
    data_of,
    either,
    entangled,
    joined,
    like,
    made,
    mask_of,
    no_element,
    put_back,
    shared,
)
from futurex.frontend.numpy_api.ufuncs import UFUNCS
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, entered
from futurex.tree.dims import broadcast_shapes

_CORE: Any = np.ma.core  # what NumPy knows of each function: its domain, and what it fills with
_TINY = np.float64(np.finfo(float).tiny)
_IN_PLACE = {"add": 0, "sub": 0, "mul": 1, "truediv": 1, "floordiv": 1}
"""Operators in place, and what NumPy puts in the place of masked elements of their second operand."""


def quiet() -> None:
    """``np.ma`` says nothing of divisions by zero and invalid values."""
    current().quiet |= {"divide": "ignore", "invalid": "ignore"}


def _invalid(result: Any) -> Any:
    """What is not finite; None where nothing can be."""
    return ~np.isfinite(result) if result.dtype.kind in "fc" else None


def _any_of(*masks: Any) -> Any:
    found = None
    for mask in masks:
        found = mask if found is None else found if mask is None else found | mask
    return found


def _needs_extent(result: Any) -> None:
    if not result.ndim:
        raise Escape("masked arrays without dimensions", "the result may be np.ma.masked")


def _first_masked(a: Any, b: Any) -> Any:
    return a if isinstance(a, Masked) else b


# -- functions of one array --------------------------------------------------------------------------------------------


def unary(operation: Any) -> Handler:
    """``np.ma.sqrt`` and its kind: outside of its domain a function is masked."""

    def handler(a: Any, *args: Any, **kwargs: Any) -> Any:
        before = data_of(a)
        _needs_extent(before)
        quiet()
        result = operation.f(before, *args, **kwargs)
        hidden, present = mask_of(a)
        if operation.domain is not None:
            hidden, present = _any_of(_invalid(result), _within(operation.domain, before), hidden), True
        else:
            hidden = shared(hidden)
        if hidden is not None and np.can_cast(before.dtype, result.dtype, "same_kind"):
            result = put_back(result, before, hidden)
        return like(a, result, hidden, present)

    return handler


def _within(domain: Any, *values: Any) -> Any:
    """Where a function is outside of its domain (NumPy's objects for that compute it on arrays of any kind)."""
    if isinstance(domain, _CORE._DomainSafeDivide):
        return outside_of_division(*values)
    return domain(*values)


def outside_of_division(a: Any, b: Any) -> Any:
    return np.absolute(a) * _TINY >= np.absolute(b)


# -- functions of two arrays -------------------------------------------------------------------------------------------


def _computed(operation: Any, a: Any, b: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The data of both operands, and what the function of plain arrays makes of them."""
    before, other = data_of(a), data_of(b)
    quiet()
    result = operation.f(before, other, *args, **kwargs)
    _needs_extent(result)
    return before, other, result


def binary(operation: Any) -> Handler:
    """``np.ma.add`` and its kind: a masked element is that of the first operand."""

    def handler(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        before, _, result = _computed(operation, a, b, args, kwargs)
        hidden, present = joined(a, b)
        if hidden is not None:
            result = put_back(result, before, hidden)
        return like(_first_masked(a, b), result, hidden, present)

    return handler


def domained(operation: Any) -> Handler:
    """``np.ma.divide`` and its kind: what is not finite is masked, too."""

    def handler(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        before, other, result = _computed(operation, a, b, args, kwargs)
        masks = mask_of(a)[0], mask_of(b)[0]
        hidden = _any_of(outside_of_division(before, other), _invalid(result), *masks)
        result = np.where(hidden, result.dtype.type(0), result)
        kept = np.multiply(hidden, before)  # not the same as choosing: 0 * -1.0 is -0.0, and takes the sign of a zero
        if np.can_cast(kept.dtype, result.dtype, "safe"):
            result = result + kept
        return like(_first_masked(a, b), result, hidden, True)

    return handler


def power(a: Any, b: Any, third: Any = None) -> Any:
    if third is not None:
        raise Escape("np.ma.power of three", "NumPy refuses it")
    hidden, _ = joined(a, b)
    base, exponent = data_of(a), data_of(b)
    quiet()
    result = np.power(base, exponent)
    common = np.result_type(base.dtype, result.dtype)
    result = result if result.dtype == common else result.astype(common)
    _needs_extent(result)
    if hidden is not None:
        result = put_back(result, base, hidden)
    invalid = _invalid(result)
    if invalid is None:
        return like(a, result, hidden, hidden is not None and hidden.any())
    found = like(a, result, _any_of(hidden, invalid), _any_of(hidden, invalid).any())
    fill = found.filling if found.filling is not None else checked_fill(None, common)
    if not np.can_cast(fill.dtype, common, "same_kind"):
        raise Escape("a fill value of another kind than its array", "it is not traced")
    if found.filling is None:
        found.filling, found.unsure = fill, True
    found.values = np.where(invalid, fill.astype(common), result)
    return found


def comparison(ufunc: Any) -> Handler:
    """An operator that compares. What is masked compares by whether both operands are masked."""

    def method(self: Masked, other: Any) -> Any:
        if isinstance(entered(other), str | bytes | type(None)):
            raise Escape("comparing a masked array with a text or None", "it is not traced")
        result = ufunc(self.values, data_of(other))
        _needs_extent(result)
        hidden, _ = joined(self, other)
        if hidden is None:
            return _compared(self, result, None)
        hidden = np.broadcast_to(hidden, result.shape).copy() if hidden.shape != result.shape else hidden
        if ufunc in (np.equal, np.not_equal):
            masks = [no_element(()) if mask is None else mask for mask in (self.hidden, mask_of(other)[0])]
            result = np.where(hidden, ufunc(*masks), result)
        return _compared(self, result, hidden)

    return method


def _compared(self: Masked, result: Any, hidden: Any) -> Masked:
    present = False if hidden is None else hidden.any()
    if self.filling is None:
        return made(result, hidden, present)
    if self.unsure:
        raise Escape("the fill value of an array that was perhaps filled", "which one it is depends on data")
    return made(result, hidden, present, checked_fill(self.filling, np.dtype(bool)))


# -- in place ----------------------------------------------------------------------------------------------------------


def in_place(name: str) -> Handler:
    neutral = _IN_PLACE[name]
    operate = getattr(operator, f"i{name}")

    def method(self: Masked, other: Any) -> Masked:
        given, (hidden, present) = data_of(other), mask_of(other)
        if broadcast_shapes(self.shape, given.shape) != self.shape:
            raise Escape("an operator in place with a larger array", "NumPy refuses it, after it changed the mask")
        change(self)
        if name in ("truediv", "floordiv"):
            quiet()
            outside = outside_of_division(self.values, given)
            given = np.where(outside, given.dtype.type(1), given)
            hidden = _any_of(hidden, outside)
            present = hidden.any()
        elif hidden is not None:
            present = hidden.any()
        if hidden is not None:
            if self.hidden is None:
                self.hidden = no_element(self.shape)
            self.hidden |= hidden
            self.present = either(self.present, present)
        if self.hidden is not None:
            given = np.where(self.hidden, given.dtype.type(neutral), given)
        operate(self.values, given)
        return self

    return method


# -- NumPy's own ufuncs ------------------------------------------------------------------------------------------------


def wrapped(ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Masked:
    """A ufunc of NumPy that is given masked arrays (``MaskedArray.__array_wrap__``)."""
    if ufunc.nout > 1 or ufunc.signature is not None or set(kwargs) - {"dtype"} or len(args) != ufunc.nin:
        raise Escape(f"numpy.{ufunc.__name__} of masked arrays, with these options", "it is not traced")
    values = [value.values if isinstance(value, Masked) else value for value in map(entered, args)]
    result = ufunc(*values, **kwargs)
    _needs_extent(result)
    leader = next(value for value in args if isinstance(value, Masked))
    if ufunc.nin == 1:
        hidden, present = shared(leader.hidden), True
        hidden = no_element(leader.shape) if hidden is None else hidden
    else:
        hidden, present = joined(*args)
        present = hidden is not None and hidden.any()
    domain = _CORE.ufunc_domain.get(ufunc)
    if domain is None:
        return like(leader, result, hidden, present)
    quiet()
    outside = _outside(domain, args)
    fill = _CORE.ufunc_fills[ufunc]
    fill = result.dtype.type(fill[-1] if isinstance(fill, tuple) else fill)
    hidden = _any_of(hidden, outside)
    if ufunc.nin == 1 and leader.hidden is not None:
        entangled(hidden, leader.hidden)
    return like(leader, np.where(outside, fill, result), hidden, present is True or hidden.any())


def _outside(domain: Any, args: tuple[Any, ...]) -> Any:
    """Where a ufunc is outside of its domain, or masked, as NumPy's comparisons of masked arrays say."""
    if isinstance(domain, _CORE._DomainSafeDivide):
        return outside_of_division(*map(data_of, args))
    return _any_of(_within(domain, *map(data_of, args)), joined(args[0], args[0])[0])


# -- registering -------------------------------------------------------------------------------------------------------


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
}  # fmt: skip
_OF_NUMPY = {
    "mod": np.remainder, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip


def _operator(handler: Handler, reflected: bool, ufunc: Any) -> Handler:
    if not reflected:
        return lambda self, other: handler(self, other)
    return lambda self, other: wrapped(ufunc, (other, self), {}) if _is_scalar(other) else handler(other, self)


def _is_scalar(value: Any) -> bool:
    """Is it one of NumPy's scalars? Their operators do not ask whether another operand has operators of its own."""
    value = entered(value)
    return isinstance(value, np.generic) or (isinstance(value, Tracer) and value.is_scalar and not value.aval.weak)


def _of_ufunc(ufunc: Any) -> Handler:
    return lambda *args: wrapped(ufunc, args, {})


for _name, _value in vars(_CORE).items():
    _maker = {
        _CORE._MaskedUnaryOperation: unary,
        _CORE._MaskedBinaryOperation: binary,
        _CORE._DomainedBinaryOperation: domained,
    }.get(type(_value))
    if _maker is not None and isinstance(_value.f, np.ufunc) and _value.f in UFUNCS:
        SPECIAL[_value] = _maker(_value)
SPECIAL[np.ma.power] = power
for _name, _function in _OPERATORS.items():
    for _reflected in (False, True):
        _method = _operator(SPECIAL[getattr(np.ma, _function)], _reflected, getattr(np, _function))
        setattr(Masked, f"__{'r' * _reflected}{_name}__", _method)
    setattr(Masked, f"__i{_name}__", in_place(_name))
for _name, _ufunc in _OF_NUMPY.items():
    for _reflected in (False, True):
        setattr(Masked, f"__{'r' * _reflected}{_name}__", _operator(_of_ufunc(_ufunc), _reflected, _ufunc))
for _reflected in (False, True):
    setattr(Masked, f"__{'r' * _reflected}pow__", _operator(power, _reflected, np.power))
for _name, _compare in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    setattr(Masked, f"__{_name}__", comparison(_compare))
for _name, _sign in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(Masked, f"__{_name}__", _of_ufunc(_sign))
FUNCTIONS[np.ufunc] = wrapped
