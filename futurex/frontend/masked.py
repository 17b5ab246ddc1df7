"""A masked array while a function is traced: the traced array of its data, that of its mask, and its fill value.

What ``np.ma`` makes of these two arrays is written down in NumPy's own words (numpy/ma/core.py, NumPy 2.4), on traced
arrays; the tree holds ordinary operations. Two things of ``np.ma`` depend on data where the tree has one type:

- a mask of which no element is set may be no mask at all (``nomask``). ``present`` says whether there is one, and is
  itself traced where only the run knows;
- an element, or a reduction to one, may be ``np.ma.masked`` instead of a number. The tree holds the number and a check;
  a run that finds it masked is made again as plain NumPy.

Where NumPy lets two masks share their memory, or may, neither can be written from then on: what would happen to the
other is not known, and the call runs as plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.outside import own_container
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import STAND_INS, Tracer, array_node, as_number, entered, fresh, new_array
from futurex.ops.control import Failure
from futurex.tree.node import const

Handler = Callable[..., Any]
Present = Any
"""Whether there is a mask: True, False, or a traced boolean."""
FUNCTIONS: dict[Any, Handler] = {}
"""What functions of NumPy mean that are given masked arrays; under ``np.ufunc`` what every ufunc means."""
METHODS: dict[str, Handler] = {}
_SHARED = "may share its memory with another mask, or with what was filled"
_ABSENT = Failure(np.ma.MaskError, ("no element is masked, and NumPy gives another type then",))
_MASKED = Failure(np.ma.MaskError, ("the result is np.ma.masked, which is no number",))


class Masked:
    """Stands for a ``np.ma.MaskedArray`` of at least one dimension and a soft mask.

    ``values`` and ``hidden`` are its data and its mask (None: ``nomask``); where ``present`` is False in a run,
    ``hidden`` holds False alone. ``filling`` is its fill value, None where it has none of its own; ``unsure``: it may
    have none either, and then NumPy takes the same one for this dtype.
    """

    __slots__ = ("filling", "hidden", "present", "unsure", "values")
    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Any, hidden: Any, present: Present, filling: Any, unsure: bool) -> None:
        self.values, self.hidden, self.present = values, hidden, present
        self.filling, self.unsure = filling, unsure

    # -- attributes --------------------------------------------------------------------------------------------------

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    itemsize = property(lambda self: self.values.itemsize)
    nbytes = property(lambda self: self.values.nbytes)
    data = property(lambda self: self.values._extended())
    T = property(lambda self: METHODS["transpose"](self))
    hardmask = property(lambda self: False)

    @property
    def mask(self) -> Any:
        if self.hidden is None:
            return np.ma.nomask
        surely(self.present, _ABSENT)
        return self.hidden._extended()

    @mask.setter
    def mask(self, value: Any) -> None:
        change(self)
        if value is np.ma.nomask and self.hidden is None:
            return
        given = entered(value)
        if isinstance(given, Masked):
            raise Escape("a masked array as a mask", "it is not traced")
        node = array_node(True if given is MASKED else given)
        if node.ndim and node.shape != self.shape:
            raise Escape("a mask of another shape than its array", "NumPy repeats or cuts it")
        if value is np.ma.nomask:
            assert self.hidden is not None
            self.hidden[...] = False
            return
        if self.hidden is None:
            self.hidden = no_element(self.shape)
        self.present = True
        self.hidden[...] = new_array(node).astype(bool)

    @property
    def fill_value(self) -> Any:
        self.filling = self._filled_by()
        return self.filling

    @fill_value.setter
    def fill_value(self, value: Any) -> None:
        change(self)
        if self.filling is not None:
            raise Escape("another fill value of a masked array", "arrays that were made of it may share the old one")
        self.filling, self.unsure = checked_fill(value, self.dtype), False

    def _filled_by(self) -> Any:
        """The fill value; reading it makes it the array's own."""
        if self.filling is None or self.unsure:
            change(self)
            self.filling, self.unsure = checked_fill(None, self.dtype), False
        return self.filling

    # -- elements ----------------------------------------------------------------------------------------------------

    def __len__(self) -> Any:
        return as_number(self.values.shape[0])

    def __getitem__(self, index: Any) -> Any:
        index = unmasked_index(index)
        values = self.values[index]
        if isinstance(values, Tracer) and values.is_scalar:
            if self.hidden is not None:
                surely(~self.hidden[index], _MASKED)
            return values
        if self.hidden is None:
            return like(self, values)
        hidden = self.hidden[index]
        return like(self, values, hidden, self.present)

    def __setitem__(self, index: Any, value: Any) -> None:
        value, place = entered(value), unmasked_index(index)
        if value is MASKED:
            self._own_mask(True)
            assert self.hidden is not None
            self.hidden[place] = True
            return
        change(self)
        self.values[place] = value.values if isinstance(value, Masked) else value
        if isinstance(index, Masked) and not isinstance(value, Masked):
            return  # as NumPy has it: the mask stays
        hidden, present = mask_of(value)
        if hidden is not None and self.hidden is None:
            self._own_mask(present)
        if self.hidden is not None:
            self.hidden[place] = False if hidden is None else hidden
            self.present = either(self.present, present)

    def _own_mask(self, present: Present) -> None:
        change(self)
        if self.hidden is None:
            self.hidden = no_element(self.shape)
        self.present = either(self.present, present)

    # -- what Python asks --------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise Escape("the truth of a masked array", "Python needs the value here")

    def __fx_items__(self) -> Any:
        raise Escape("iterating over a masked array", "its rows may be masked or not")

    __iter__ = __fx_items__

    def __contains__(self, value: Any) -> bool:
        raise Escape("`in` on a masked array", "it is not traced")

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            method = METHODS[name]
            return lambda *args, **kwargs: method(self, *args, **kwargs)
        if name == "__dict__":
            raise AttributeError(name)
        raise Escape(f"{name} of a masked array", "it is not traced")


class _Singleton:
    """Stands for ``np.ma.masked``."""

    __fx_traced__ = True
    __slots__ = ()

    def __bool__(self) -> bool:
        raise Escape("the truth of np.ma.masked", "it is not traced")

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"{name} of np.ma.masked", "it is not traced")


MASKED = _Singleton()
STAND_INS[type(np.ma.masked)] = lambda value: MASKED


def made(values: Any, hidden: Any = None, present: Present = True, filling: Any = None, unsure: bool = False) -> Masked:
    """A masked array that the traced function made."""
    if not isinstance(values, Tracer) or values.is_scalar or not values.ndim or not values.aval.static:
        raise Escape("a masked array without dimensions, or of a shape that depends on data", "it is not traced")
    if hidden is not None and hidden.shape != values.shape:
        hidden = np.broadcast_to(hidden, values.shape).copy()
    if isinstance(present, Tracer) and present._node.op == "const":
        present = bool(present._node.value)
    if hidden is None or present is False:
        hidden, present = None, False
    return current().remember(Masked(values, hidden, present, filling, unsure))


def like(source: Any, values: Any, hidden: Any = None, present: Present = True) -> Masked:
    """A masked array that takes over the fill value of the one that it is made of (``_update_from``)."""
    if not isinstance(source, Masked):
        return made(values, hidden, present)
    if source.unsure and source.filling is not None and source.dtype != values.dtype:
        raise Escape("the fill value of an array that was perhaps filled", "which one it is depends on data")
    return made(values, hidden, present, _inherited(source, values.dtype), source.unsure)


def _inherited(source: Masked, dtype: np.dtype[Any]) -> Any:
    """What an array takes over as its fill value; since NumPy 2.5 it fits the array's type, or is none."""
    if source.filling is None or source.dtype == dtype or not hasattr(np.ma.core, "_check_fill_value_or_default"):
        return source.filling
    try:
        with np.errstate(invalid="raise"):
            return checked_fill(source.filling, dtype)
    except (TypeError, ValueError, OverflowError, FloatingPointError):
        return None


def cast_fill(source: Any, dtype: np.dtype[Any]) -> tuple[Any, bool]:
    """The fill value of a copy or view (``__array_finalize__``), which takes its dtype; whether it may be missing."""
    if not isinstance(source, Masked) or source.filling is None:
        return None, False
    filling = _inherited(source, dtype)
    cast = None if filling is None else checked_fill(filling, dtype)
    if source.unsure and cast is not None and cast.dtype != source.filling.dtype:
        raise Escape("the fill value of an array that was perhaps filled", "which one it is depends on data")
    return cast, source.unsure


def change(array: Masked) -> None:
    """Prepare to change what a masked array is made of."""
    own_container(array, "a masked array")


def surely(flag: Any, failure: Failure) -> None:
    """Let the run go on only where ``flag`` holds; it is made again as plain NumPy elsewhere."""
    if flag is True:
        return
    node = flag._node if isinstance(flag, Tracer) else array_node(flag)
    if node.op == "const":
        if not node.value:
            raise Escape("a masked value where a number is needed", "the tree holds numbers")
        return
    current().waits = True
    current().effect("check", node, failure=failure)


def number(value: Any, hidden: Any) -> Any:
    """A reduction to one number, which is ``np.ma.masked`` where ``hidden`` holds."""
    if hidden is not None:
        surely(~hidden, _MASKED)
    return value


def needs_mask(array: Masked) -> None:
    """NumPy does something else for arrays without a mask; a run that finds none is made again."""
    surely(array.present, _ABSENT)


# -- data and masks ----------------------------------------------------------------------------------------------------


def data_of(value: Any) -> Any:
    """``np.ma.getdata``: numbers become arrays of no dimensions, which are not weak."""
    value = entered(value)
    if isinstance(value, Masked):
        return value.values
    if value is MASKED:
        raise Escape("np.ma.masked in an expression", "the result's type would depend on it")
    return value if isinstance(value, Tracer) and not value.is_scalar else new_array(array_node(value))


def mask_of(value: Any) -> tuple[Any, Present]:
    """``np.ma.getmask``, and whether there is one."""
    return (value.hidden, value.present) if isinstance(value, Masked) else (None, False)


def full_mask(value: Any) -> Any:
    """The mask of something as an array of its shape, for looking only."""
    if value is MASKED:
        return new_array(const(np.array(True)))
    hidden, _ = mask_of(value)
    return no_element(data_of(value).shape) if hidden is None else hidden


def no_element(shape: Any) -> Any:
    """A new mask of which nothing is set."""
    return new_array(emit("full", np.False_, shape=tuple(shape), dtype=np.dtype(bool)))


def either(first: Present, second: Present) -> Present:
    if first is True or second is True:
        return True
    if first is False or second is False:
        return second if first is False else first
    return np.logical_or(first, second)


def joined(a: Any, b: Any) -> tuple[Any, Present]:
    """The mask of what is computed of two operands, which :func:`made` repeats for the result's shape."""
    (first, p), (second, q) = mask_of(a), mask_of(b)
    if first is None or second is None:
        only = second if first is None else first
        return None if only is None else new_array(only._node), either(p, q)
    return first | second, either(p, q)


def shared(hidden: Any) -> Any:
    """The same mask for another array: nobody may write into either from now on."""
    if hidden is None:
        return None
    other = new_array(hidden._node)
    for cell in (hidden._cell, other._cell):
        cell.entangle(_SHARED)
    return other


def entangled(values: Any, source: Any) -> Any:
    """What may be the array that it was made of, or a copy: nobody may write into either from now on."""
    for cell in (values._cell, source._cell):
        cell.entangle(_SHARED)
    return values


def put_back(result: Any, before: Any, hidden: Any) -> Any:
    """The result with the elements of ``before`` where it is masked, cast as NumPy casts them."""
    return np.where(hidden, before if before.dtype == result.dtype else before.astype(result.dtype), result)


def unmasked_index(index: Any) -> Any:
    """An index whose masked arrays are their data."""
    if isinstance(index, tuple):
        return tuple(map(unmasked_index, index))
    return index.values if isinstance(index, Masked) else index


# -- fill values -------------------------------------------------------------------------------------------------------


def checked_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value for arrays of a type: a NumPy scalar, traced where it is not known."""
    value = entered(value)
    if isinstance(value, Tracer):
        if value._node.op == "const" and value.is_scalar:
            value = value._node.value
        elif value.ndim or not (value.dtype == dtype or (value.dtype.kind == dtype.kind == "f")):
            raise Escape("a fill value of another type that depends on data", "NumPy looks whether it fits")
        else:
            return fresh(emit("cast", value._node, dtype=dtype))
    if isinstance(value, Masked | list | tuple):
        raise Escape("an array as a fill value", "it is not traced")
    core: Any = np.ma.core
    found = core._check_fill_value(value, dtype)
    if found.ndim:
        raise Escape("an array as a fill value", "it is not traced")
    return found[()]


def filled(array: Any, fill_value: Any = None) -> Any:
    """``array.filled(fill_value)`` as a new array, for looking only."""
    if not isinstance(array, Masked):
        return data_of(array)
    if array.hidden is None:
        return array.values
    if fill_value is not None:
        fill = checked_fill(fill_value, array.dtype)
    elif array.present is True:
        fill = array.fill_value
    else:
        change(array)
        if array.filling is None:
            array.filling, array.unsure = checked_fill(None, array.dtype), True
        fill = array.filling
    if not np.can_cast(fill.dtype, array.dtype, "same_kind"):
        raise Escape("a fill value of another kind than its array", "NumPy makes objects of the elements")
    if fill.dtype != array.dtype:
        with np.errstate(all="ignore"):
            fill = fill.astype(array.dtype)
    return np.where(array.hidden, fill, array.values)


def call_masked(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy that is given masked arrays."""
    if isinstance(function, np.ufunc):
        return FUNCTIONS[np.ufunc](function, args, kwargs)
    handler = FUNCTIONS.get(function)
    if handler is None:
        raise Escape(f"numpy.{getattr(function, '__name__', function)} of masked arrays", "it is not traced")
    return handler(*args, **kwargs)
