"""Array methods, and functions that ask for shapes only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.frontend.elements import element
from futurex.frontend.errors import Escape
from futurex.frontend.numbers import attribute, number_of
from futurex.frontend.numpy_api.memory import copied_out, lying, of_known_shape
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, Handler, handles
from futurex.frontend.numpy_api.ufuncs import call_ufunc
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, abstract, as_number, as_tracer, fresh, new_array, node_of
from futurex.ops.control import Failure
from futurex.ops.python import Text, Value
from futurex.tree.node import const

LISTED = 64
"""How many elements of an array may become numbers of a list: each is one of the trace."""
HANDLERS[np.shape] = lambda a: tuple(map(as_number, _described(a).shape))
HANDLERS[np.ndim] = lambda a: _described(a).ndim
HANDLERS[np.size] = lambda a, axis=None: as_number(abstract(a).size if axis is None else abstract(a).shape[axis])
HANDLERS[np.result_type] = lambda *values: np.result_type(*map(_type_of, values))
HANDLERS[np.iscomplexobj] = lambda x: abstract(x).dtype.kind == "c"
HANDLERS[np.isrealobj] = lambda x: abstract(x).dtype.kind != "c"
HANDLERS[np.real] = lambda val: _part(val, "real")
HANDLERS[np.imag] = lambda val: _part(val, "imag")


def _part(val: Any, name: str) -> Any:
    if isinstance(val, Tracer) and val.aval.weak:
        return attribute(val, name)
    return getattr(val if type(val) in SCALARS else as_tracer(val), name)


@handles(np.square)
def _square(x: Any, **options: Any) -> Any:
    return call_ufunc(np.square, "__call__", (x,), options)


def _described(a: Any) -> Any:
    return node_of(a) if isinstance(a, list | tuple) else abstract(a)


def _type_of(value: Any) -> Any:
    if not isinstance(value, Tracer):
        return value
    return value.dtype.type(0).item() if value.aval.weak else value.dtype


def _astype(
    self: Tracer, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Tracer:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise Escape(f"astype({dtype})", "this dtype is not traced")
    if not (isinstance(copy, bool) and isinstance(subok, bool)):
        raise Escape("astype with copy= or subok= that is not a bool", "NumPy refuses some of them")
    if not self.aval.weak and not np.can_cast(self.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {self.dtype!r} to {dtype!r} according to the rule {casting!r}")
    same = dtype == self.dtype and not self.aval.weak
    if same and (self.is_scalar or (not copy and order == "K")):
        return self
    node = self._node if same else emit("cast", self._node, dtype=dtype)
    if self.is_scalar:
        return fresh(node)
    return lying(self, self._order(order)) if same and not copy else copied_out(new_array(node), self, order)


def _copy(self: Tracer, order: str = "C") -> Tracer:
    return self if self.is_scalar else copied_out(new_array(self._node), self, order)


def _conjugate(self: Tracer, out: Any = None) -> Tracer:
    if self.dtype.kind == "c" or out is not None:
        return call_ufunc(np.conjugate, "__call__", (self,), {} if out is None else {"out": out})
    return self


def _only_arrays(self: Tracer, name: str) -> None:
    if self.is_scalar:
        raise Escape(f"{name}() of a scalar", "scalars do not change")


def _fill(self: Tracer, value: Any) -> None:
    _only_arrays(self, "fill")
    value = element(value, self.dtype)
    node = node_of(value)
    if node.ndim:
        raise Escape("fill() with an array", "NumPy takes a scalar")
    self[...] = value


def _of_function(function: Any) -> Handler:
    """A method that is the function of the same name."""

    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        from futurex.frontend.calls import call

        return call(function, (self, *args), kwargs)

    return method


def _in_place(name: str) -> Handler:
    """A method that puts the function's result in the place of its array."""

    def method(self: Tracer, *args: Any, **kwargs: Any) -> None:
        _only_arrays(self, name)
        sorted_ = _of_function(getattr(np, name))(self, *args, **kwargs)
        if kwargs.get("axis", 0) is None or sorted_.shape != self.shape:
            raise Escape(f"{name}() over all axes", "NumPy refuses it")
        self._write(sorted_)

    return method


def _choose(self: Tracer, *choices: Any, **options: Any) -> Any:
    from futurex.frontend.calls import call

    return call(np.choose, (self, choices[0] if len(choices) == 1 else choices), options)


def _clip(self: Tracer, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
    from futurex.frontend.calls import call

    return call(np.clip, (self,), {"min": min, "max": max, "out": out, **options})


def _compress(self: Tracer, condition: Any, axis: Any = None, out: Any = None) -> Any:
    from futurex.frontend.calls import call

    return call(np.compress, (condition, self, axis), {} if out is None else {"out": out})


def _names_a_place(value: Any) -> bool:
    """Is it one integer? As an index of an array it might be a list, a mask or a slice, too."""
    if isinstance(value, Tracer | np.ndarray):
        return not value.ndim and value.dtype.kind in "iu"
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_place(place: Any, size: int) -> None:
    """Raise for a place among all elements that is out of bounds: NumPy's error tells no axis."""
    node = node_of(place)
    inside = emit("logical_and", emit("greater_equal", node, const(-size)), emit("less", node, const(size)))
    parts = ("index ", Value("number"), f" is out of bounds for size {size}")
    if inside.op != "const":
        current().effect("check", inside, node, failure=Failure(IndexError, (Text(parts),)))
    elif not inside.value:
        raise IndexError(f"index {node.value} is out of bounds for size {size}")


def _item(self: Tracer, *args: Any) -> Any:
    """One element as a Python number."""
    if len(args) == 1 and isinstance(args[0], tuple):
        args = args[0]
    of_known_shape(self, "item()")
    if not all(map(_names_a_place, args)):
        raise Escape("item() at what is no number", "NumPy refuses it")
    if not args:
        if self.aval.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        node = self._node
    elif len(args) == 1:
        if self.ndim != 1:
            _check_place(args[0], self.aval.size)
        node = new_array(emit("reshape", self._node, shape=(self.aval.size,)))[args[0]]._node
    elif len(args) == self.ndim:
        node = self[args]._node
    else:
        raise ValueError("incorrect number of indices for array")
    return number_of(emit("reshape", node, shape=()) if node.ndim else node, node.dtype.kind)


def tolist(self: Tracer) -> Any:
    """The elements as Python's numbers, in lists. It is no method of futures: these wait, and give NumPy's own list."""
    if self._node.op == "const":
        return current().remember(self._node.value.tolist())
    if not self.aval.static:
        raise Escape("the list of an array of unknown shape", "how long it is depends on data", "keep it an array")
    if self.aval.size > LISTED:
        raise Escape("the list of an array", f"it has more than {LISTED} elements", "keep it an array")
    return _nested(new_array(emit("reshape", self._node, shape=(self.aval.size,))), self.shape)


def _nested(elements: Tracer, shape: tuple[int, ...]) -> Any:
    if not shape:
        return _item(elements)
    size = math.prod(shape[1:])
    return current().remember([_nested(elements[k * size : (k + 1) * size], shape[1:]) for k in range(shape[0])])


def _to_device(self: Tracer, device: Any, /, *, stream: Any = None) -> Tracer:
    if stream is not None or device != "cpu":
        raise ValueError(f"Unsupported device {device!r}, or a stream.")
    return self


METHODS.update(
    {
        name: _of_function(getattr(np, name))
        for name in (
            "argpartition", "argsort", "dot", "nonzero", "repeat", "round", "searchsorted", "take",
            "trace",
        )
    },
    sort=_in_place("sort"), partition=_in_place("partition"), choose=_choose, clip=_clip, compress=_compress,
    astype=_astype, fill=_fill, copy=_copy, conj=_conjugate, conjugate=_conjugate, item=_item, to_device=_to_device,
    __array_namespace__=lambda self, *, api_version=None: np,
    __deepcopy__=lambda self, memo: self if self.is_scalar else _copy(self, "K"),
)  # fmt: skip
