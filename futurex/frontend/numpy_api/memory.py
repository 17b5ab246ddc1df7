"""What of an array is about its memory: bytes read as another type, flat positions, order, shape in place."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from futurex.frontend.elements import as_element, element, read_before
from futurex.frontend.errors import AS_NUMBERS, ONLY_NUMBERS, Escape
from futurex.frontend.layout import Strides, c_strides, copied_strides, f_strides, is_contiguous, order_of
from futurex.frontend.numpy_api.registry import ATTRIBUTES, METHODS, NO_VALUE, SETTERS
from futurex.frontend.numpy_api.ufuncs import layout_of
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, array_node, entered, new_array, node_of
from futurex.tree.node import Node, const


def of_known_shape(self: Tracer, what: str) -> None:
    """Escape where extents are known only when the function runs."""
    if not self.aval.static:
        raise Escape(f"{what} of an array of unknown shape", "its memory order is not known")


def _dtype(value: Any) -> np.dtype[Any]:
    dtype = np.dtype(value)
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise Escape(f"an array of dtype {dtype}", ONLY_NUMBERS, AS_NUMBERS)
    return dtype


# -- bytes as another type ---------------------------------------------------------------------------------------------


def view_as(self: Tracer, dtype: Any = NO_VALUE, type: Any = NO_VALUE) -> Tracer:
    """``x.view(dtype)``: the same memory, read as another type, of which None is the default one."""
    if dtype is np.ndarray or (dtype is NO_VALUE and type is NO_VALUE):
        return self.transpose(*range(self.ndim))
    if type is not NO_VALUE or (isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray)):
        raise Escape("a view of another type of array", "only plain arrays are traced")
    target = _dtype(dtype)
    if self.is_scalar:
        raise Escape("a view of a scalar", "NumPy copies it")
    _refuse_reading(self.dtype, target)
    if target == self.dtype:
        return self.transpose(*range(self.ndim))
    if target.itemsize == self.dtype.itemsize:
        return self._extended(("field", target.str, 0))
    of_known_shape(self, "a view with another type")
    step = ("bits", target.str)
    for strides in (self.strides_in_memory, self._strides_at_run_time):
        if strides is None:
            raise Escape("a view of another type of this array", "whether it is possible depends on the memory order")
        np.lib.stride_tricks.as_strided(np.empty((), self.dtype), self.shape, strides).view(target)
    return self._extended(step)


def _refuse_reading(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Bytes of one number as another: exact, but not every byte is a boolean, and only parts have derivatives."""
    if target.kind == "b" and source.kind != "b":
        raise Escape(f"{source} read as {target}", "not every byte is a boolean")
    parts = {source.kind, target.kind} == {"f", "c"} and source.itemsize * (1 if source.kind == "c" else 2) == (
        target.itemsize * (2 if source.kind == "c" else 1)
    )
    if source != target and source.kind in "fc" and target.kind in "fc" and not parts:
        raise Escape(f"{source} read as {target}", "it would have a derivative of no meaning")


def getfield(self: Tracer, dtype: Any, offset: int = 0) -> Tracer:
    """``x.getfield(dtype, offset)``: a part of every element, in place."""
    target = _dtype(dtype)
    if self.is_scalar:
        raise Escape("a field of a scalar", "NumPy copies it")
    np.empty(1, self.dtype).getfield(target, offset)  # raises what NumPy raises
    if target.kind in "fc" and self.dtype.kind in "fc" and target != self.dtype:
        part = self.dtype.kind == "c" and target.kind == "f" and 2 * target.itemsize == self.dtype.itemsize
        if not part or offset not in (0, target.itemsize):
            raise Escape(f"a field {target} of {self.dtype}", "it would have a derivative of no meaning")
    elif target != self.dtype:
        _refuse_reading(self.dtype, target)
    return self._extended(("field", target.str, operator.index(offset)))


def setfield(self: Tracer, val: Any, dtype: Any, offset: int = 0) -> None:
    """``x.setfield(value, dtype, offset)``."""
    getfield(self, dtype, offset)[...] = val


def byteswap(self: Tracer, inplace: bool = False) -> Tracer:
    """The bytes of every element the other way round."""
    if self.is_scalar or self.dtype.kind == "b":
        raise Escape("byteswap of this", "the result need not be a boolean")
    if self.dtype.kind in "fc":
        raise Escape(f"byteswap of {self.dtype}", "it would have a derivative of no meaning")
    swapped = emit("native", self._node, call="np.ndarray.byteswap(_0)")
    if not inplace:
        return new_array(swapped)
    self._write(swapped)
    return self


# -- flat positions ----------------------------------------------------------------------------------------------------


def _flattened(x: Tracer) -> Node:
    node = array_node(x)
    return node if node.ndim == 1 else emit("reshape", node, shape=(node.size,))


def _cycled(values: Node, count: int) -> Node:
    """The first ``count`` of the values over and over."""
    flat = emit("reshape", values, shape=(values.size,))
    if flat.size == count:
        return flat
    return emit("gather", flat, const(np.arange(count) % flat.size), pattern=(("d", 0),))


def _store_flat(target: Tracer, places: Node, values: Node) -> None:
    flat = emit("scatter", _flattened(target), values, places, pattern=(("d", 0),), mode="set")
    target._write(emit("reshape", flat, shape=target.shape))


class Flat:
    """``x.flat``: the elements in C order, whatever the memory order; reading copies, writing goes to the array."""

    def __init__(self, array: Tracer) -> None:
        of_known_shape(array, "the flat iterator")
        self.base = new_array(array._node) if array.is_scalar else array  # a scalar's is over an array of its own
        self.asked = False

    def __len__(self) -> int:
        return self.base.size

    def __fx_items__(self) -> Tracer:
        """What a loop over it goes through, once: the elements as they are when their turn comes."""
        if self.asked or id(self) not in current().regions[-1].born:
            raise Escape("a flat iterator that goes on", "where it was left is not known to the tracer")
        self.asked = True
        known = self.base.strides_in_memory
        if known is None or not is_contiguous(self.base.aval, known):
            raise Escape("a loop over the flat iterator of this array", "its memory order is not known to be C")
        return self.base.reshape(-1)

    def __getitem__(self, index: Any) -> Any:
        everything = new_array(_flattened(self.base))
        chosen = everything[_one_index(index)]
        return chosen if not chosen.ndim else new_array(chosen._node)

    def __setitem__(self, index: Any, value: Any) -> None:
        places = new_array(const(np.arange(self.base.size)))[_one_index(index)]._node
        value, written = entered(value), element(value, self.base.dtype, by_arrays=bool(places.ndim))
        if written is not value and not places.ndim:
            raise Escape("a number that may not fit, written through a flat iterator", "NumPy raises in its own way")
        values = as_element(node_of(read_before(written, self.base)), self.base.dtype)
        if not places.size:
            return
        if not values.size or (values.ndim and not places.ndim):
            raise Escape("writing no values, or an array into one element, through a flat iterator", "NumPy raises")
        _store_flat(self.base, emit("reshape", places, shape=(places.size,)), _cycled(values, places.size))

    def copy(self) -> Tracer:
        return new_array(_flattened(self.base))

    def _compared(name: str) -> Callable[[Flat, Any], Any]:  # type: ignore[misc]
        """It is compared as an array of the elements is."""
        compare = getattr(operator, name)
        return lambda self, other: compare(self.copy(), other.copy() if isinstance(other, Flat) else other)

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_compared, ("eq", "ne", "lt", "le", "gt", "ge"))
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name in ("index", "coords", "__next__", "__array__"):
            raise Escape(f"{name} of a flat iterator", "where it stands is not known to the tracer")
        raise AttributeError(f"'numpy.flatiter' object has no attribute {name!r}")


def _one_index(index: Any) -> Any:
    value = entered(index)
    is_array = isinstance(value, Tracer | np.generic)
    is_flag = isinstance(value, bool) or (is_array and not value.ndim and value.dtype.kind == "b")
    if isinstance(index, tuple) or index is None or is_flag:
        raise Escape("such an index of a flat iterator", "NumPy refuses most of them")
    return index


def _set_flat(self: Tracer, value: Any) -> None:
    Flat(self)[...] = value


# -- order and shape ---------------------------------------------------------------------------------------------------


def strides(self: Tracer) -> tuple[int, ...]:
    """The strides that NumPy would give; those of single elements are not known."""
    of_known_shape(self, "the strides")
    known = self.strides_in_memory
    if known is None or any(extent <= 1 for extent in self.shape):
        raise Escape("the strides of this array", "they are not known before the run")
    return known


class Flags:
    """``x.flags``, as far as the memory order decides them."""

    _NAMES: ClassVar = {
        "C_CONTIGUOUS": "c_contiguous", "C": "c_contiguous", "CONTIGUOUS": "c_contiguous",
        "F_CONTIGUOUS": "f_contiguous", "F": "f_contiguous", "FORTRAN": "f_contiguous", "FNC": "fnc", "FORC": "forc",
    }  # fmt: skip

    _array: Tracer

    def __init__(self, array: Tracer) -> None:
        object.__setattr__(self, "_array", array)

    def __getitem__(self, name: str) -> bool:
        return getattr(self, self._NAMES.get(name, name))

    def __setattr__(self, name: str, value: object) -> None:
        raise Escape(f"setting the flag {name} of an array", "whether an array may be written belongs to its memory")

    __setitem__ = __setattr__

    def __eq__(self, other: object) -> bool:
        raise Escape("comparing the flags of an array", "some of them are not known before the run")

    __ne__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> bool:
        if name.startswith("__"):
            raise AttributeError(name)
        array = self._array
        of_known_shape(array, "the flags")
        known = array.strides_in_memory
        if name not in ("c_contiguous", "contiguous", "f_contiguous", "fnc", "forc") or known is None:
            raise Escape(f"the flag {name} of an array", "it is not known before the run")
        return getattr(np.lib.stride_tricks.as_strided(np.empty((), array.dtype), array.shape, known).flags, name)


def _become(self: Tracer, other: Tracer) -> None:
    """The array object itself becomes another view of its memory, so nobody else may hold it."""
    if self.is_scalar or self._cell.born < current().regions[-1].start:
        raise Escape("assigning the shape or type of this array", "it was there before, and others may hold it")
    if other._cell is not self._cell or self.strides_in_memory is None:
        raise Escape("assigning the shape of this array", "it is only known to be a copy")
    self._chain, self._dynamic, self._aval = other._chain, other._dynamic, None


def laid_out(result: Tracer, like: Tracer, order: str) -> Tracer:
    """Let a new array lie in C or Fortran order, or (A, K) as the one lies that it is made of, if that is known."""
    if order == "K" or (order == "A" and like.strides_in_memory is None):
        result._cell.strides = layout_of(result.aval, [like], [like._node])
    else:
        result._cell.strides = (f_strides if like._order(order) == "F" else c_strides)(result.aval)
    return result


def copied_out(result: Tracer, like: Tracer, order: str) -> Tracer:
    """The same of a copy, or of what ``order=`` is given to: where it is a result, too. What is not known to lie
    otherwise lies as in a plan."""
    laid_out(result, like, order)
    of_same = order in ("A", "K") and result.shape == like.shape and result.aval.static and not like.is_scalar
    if order == "K" and of_same:
        result._cell.strides = _kept(result, like, order, like.strides_in_memory)
    result._cell.asked = result._cell.strides
    if of_same and result._cell.strides is None:
        result._cell.asked = _kept(result, like, order, like._strides_at_run_time)
    return result


def _kept(result: Tracer, like: Tracer, order: str, strides: Strides) -> Strides:
    """What order A or K makes of an array with these strides."""
    if order == "A":
        return (f_strides if order_of(like.aval, strides, order) == "F" else c_strides)(result.aval)
    known = copied_strides(like.aval, strides)
    return None if known is None else tuple(step // like.itemsize * result.itemsize for step in known)


def lying(x: Tracer, order: str) -> Tracer:
    """The array itself where it lies in C or in Fortran order, else a copy that does."""
    strides = x.strides_in_memory
    if strides is None:
        raise Escape(f"an array of which order {order!r} is asked", "whether it is copied depends on its memory order")
    lies = is_contiguous(x.T.aval, strides[::-1]) if order == "F" else is_contiguous(x.aval, strides)
    if not lies:
        return copied_out(new_array(x._node), x, order)
    x._cell.asked = x._cell.strides
    return x


METHODS.update(
    view=view_as, getfield=getfield, setfield=setfield, byteswap=byteswap,
    __dlpack_device__=lambda self: np.empty(0).__dlpack_device__(),
)  # fmt: skip
ATTRIBUTES.update(
    flat=lambda self: current().remember(Flat(self)), flags=lambda self: current().remember(Flags(self)),
    strides=strides, device=lambda self: "cpu",
)  # fmt: skip
SETTERS.update(
    flat=_set_flat, shape=lambda self, shape: _become(self, self.reshape(shape)),
    dtype=lambda self, dtype: _become(self, view_as(self, dtype)),
)  # fmt: skip
