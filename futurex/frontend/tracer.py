"""The traced array: a storage cell and a chain of views into it.

Reading a view loads it from the cell's current value and writing stores into it, so aliasing is exact by construction.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from futurex.frontend.axes import integer_axes_of, known_extent
from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.failing import may_fail
from futurex.frontend.indexing import Index, encode, is_element, takes_copy, under_flag
from futurex.frontend.layout import (
    Strides,
    c_strides,
    is_c_sorted,
    is_contiguous,
    open_strides,
    order_of,
    reshapes_as_view,
    same_but_ones,
    view_strides,
)
from futurex.frontend.masks import mask_of, masked
from futurex.frontend.placeholders import Conflict, Either, Placeholder
from futurex.frontend.trace import current, emit, read, tracing
from futurex.ops.streams import GENERATORS
from futurex.ops.views import Chain
from futurex.tree.aval import Aval, aval_of
from futurex.tree.dims import Dim, Fresh, is_static, reshaped, same
from futurex.tree.node import Node, const, dim_of, size_node

SCALARS = (bool, int, float, complex)
STAND_INS: dict[type, Any] = {}
"""What stands for the objects of some subclasses of ndarray: a function of the object for each class."""


class Tracer:
    """Stands for an ndarray (or a NumPy or Python scalar) while a function is traced."""

    __slots__ = ("_aval", "_cell", "_chain", "_dynamic", "_guard", "_loose", "_readonly")
    _aval: Aval | None
    _cell: Cell
    _chain: Chain
    _dynamic: tuple[Node, ...]
    _guard: tuple[Node, str] | None  # is the name bound, and which name
    _loose: Any  # a Python number in some branch, a NumPy scalar of the same type in another: its site
    _readonly: bool
    __array_priority__ = 1e6

    def __init__(self, cell: Cell, chain: Chain = (), dynamic: tuple[Node, ...] = ()) -> None:
        set_ = object.__setattr__  # not our own, which is asked for every assignment of the traced function
        set_(self, "_cell", cell)
        set_(self, "_chain", chain)
        set_(self, "_dynamic", dynamic)
        set_(self, "_guard", None)
        set_(self, "_loose", False)
        set_(self, "_readonly", False)
        set_(self, "_aval", None if chain else cell.value.aval)

    def __hash__(self) -> int:
        raise Escape("a key of a dict or set that is not known before the run", "which keys it has depends on data")

    # -- reading and writing -----------------------------------------------------------------------------------------

    @property
    def _node(self) -> Node:
        """The value now; reading a name that may be unbound is checked at run time."""
        if self._guard is not None:
            current().check_bound(*self._guard)
        return self._raw

    @property
    def _raw(self) -> Node:
        """The value now, unchecked (to be merged or carried, not used)."""
        self._cell.looked = True
        if not self._chain:
            return self._cell.value
        if len(self._chain) == 1 and self._chain[0][0] == "reshape":
            return read("reshape", self._cell.value, shape=self._chain[0][1])
        return read("load", self._cell.value, *self._dynamic, chain=self._chain)

    @property
    def aval(self) -> Aval:
        self._cell.looked = True
        if self._aval is None:
            self._aval = self._raw.aval
        return self._aval

    def _write(self, value: Any) -> None:
        """Replace all elements: ``view[...] = value``."""
        if self._readonly:
            raise ValueError("assignment destination is read-only")
        node = node_of(value)
        scalar = isinstance(value, np.generic) or (isinstance(value, Tracer) and value.is_scalar)
        if scalar and node.dtype.kind in "fc" and self.dtype.kind in "iu" and self.ndim == 0:
            raise Escape("a floating scalar written into an integer", "NumPy raises where it is infinite or too large")
        if self._chain:
            self._cell.write(emit("store", self._cell.value, node, *self._dynamic, chain=self._chain, mode="set"))
            return
        target = self._cell.value.aval
        if node.aval != target:
            blank = emit("full", const(np.zeros((), target.dtype)[()]), shape=target.shape, dtype=target.dtype)
            node = emit("store", blank, node, chain=(), mode="set")
        self._cell.write(node)

    def _extended(self, *steps: Any, dynamic: tuple[Node, ...] = ()) -> Tracer:
        # A scalar is nobody's storage: what NumPy makes of it is an array of its own.
        cell = Cell(self._raw, strides=c_strides(self.aval)) if steps and self.is_scalar else self._cell
        extended = Tracer(cell, (*self._chain, *steps), (*self._dynamic, *dynamic))
        extended._readonly, extended._guard, extended._loose = self._readonly, self._guard, self._loose
        if any(step[0] != "index" for step in steps):
            extended.aval  # noqa: B018 - an impossible shape is refused at the line that asks for it
            extended._remember_failing()
        return extended

    def _remember_failing(self) -> None:
        """A view that the run may refuse: nobody need read it."""
        is_known = not self._dynamic and self._cell.value.aval.static and is_static(self.shape)
        if not is_known and may_fail(node := self._raw):
            current().remember_failing(node)

    def readonly(self) -> Tracer:
        """A view that NumPy does not let anybody write through."""
        frozen = self._extended()
        frozen._readonly = True
        return frozen

    @property
    def is_scalar(self) -> bool:
        """Is it a NumPy or Python scalar? Those never change; 0-dimensional arrays do."""
        return not self._chain and not self._cell.is_array

    @property
    def strides_in_memory(self) -> Strides:
        """How NumPy lays this view out; None where that is not known."""
        if self._cell.strides is None or not self._chain:
            return self._cell.strides
        base = self._cell.value.aval
        if not (base.static and is_static(self.shape)):
            return open_strides(self._cell.strides, self._chain)
        return view_strides(base.shape, self._cell.strides, base.dtype, self._chain, len(self._dynamic))

    # -- attributes --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> Any:
        return self.aval.size

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.aval.nbytes

    @property
    def T(self) -> Tracer:
        return self.transpose()

    @property
    def mT(self) -> Tracer:
        return self.transpose((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def real(self) -> Tracer:
        return self._extended(("real",)) if self.dtype.kind == "c" and not self.is_scalar else self._part("real")

    @property
    def imag(self) -> Tracer:
        if self.dtype.kind == "c":
            return self._extended(("imag",)) if not self.is_scalar else self._part("imag")
        zeros = emit("full", const(np.zeros((), self.dtype)[()]), shape=self.shape, dtype=self.dtype)
        return (fresh(zeros) if self.is_scalar else new_array(zeros)).readonly()

    def _part(self, name: str) -> Tracer:
        return fresh(emit(name, self._node)) if self.dtype.kind == "c" else self

    # -- views -------------------------------------------------------------------------------------------------------

    def transpose(self, *axes: Any) -> Tracer:
        wanted = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], _SEQUENCES)) else axes or None
        order = integer_axes_of(range(self.ndim)[::-1] if wanted is None else wanted, self.ndim)
        if len(order) != self.ndim:
            raise ValueError("axes don't match array")
        return self if self.is_scalar else self._extended(("transpose", order))  # another object, if nothing moves, too

    def swapaxes(self, first: int, second: int) -> Tracer:
        order = list(range(self.ndim))
        first, second = (normalize_axis_index(axis, self.ndim) for axis in (first, second))
        order[first], order[second] = order[second], order[first]
        return self.transpose(*order)

    def reshape(self, *shape: Any, order: str = "C") -> Tracer:
        """A view where NumPy gives one, a copy where NumPy copies."""
        target = self._resolved(as_shape(shape[0] if len(shape) == 1 else shape))
        if self._order(order) == "F" and not self.is_scalar:
            return self.transpose().reshape(target[::-1]).transpose()
        if self.is_scalar:
            is_array = target or self.aval.weak  # NumPy's own scalars stay such
            return new_array(emit("reshape", self._node, shape=target)) if is_array else fresh(self._node)
        strides = self.strides_in_memory
        if not (is_static(self.shape) and is_static(target)):
            return self._reshaped_open(target)
        if strides is None and same_but_ones(self.shape, target):
            return self._extended(("reshape", target))
        if strides is None:
            return self._entangled_copy(emit("reshape", self._node, shape=target))
        if not reshapes_as_view(self.shape, strides, target):
            return new_array(emit("reshape", self._node, shape=target))
        if not reshapes_as_view(self.shape, self._strides_at_run_time, target):
            return self._entangled_copy(emit("reshape", self._node, shape=target), self._extended(("reshape", target)))
        return self._extended(("reshape", target))

    def _reshaped_open(self, target: tuple[Any, ...]) -> Tracer:
        """A reshape where extents are not known: a view if the array surely lies in C order."""
        strides = self.strides_in_memory
        if strides is not None and same(strides, c_strides(self.aval)):
            return self._extended(("reshape", target))
        return self._entangled_copy(emit("reshape", self._node, shape=target))

    @property
    def _strides_at_run_time(self) -> tuple[int, ...]:
        """How this view is laid out in a plan, which keeps its arrays in C order."""
        base = self._cell.value.aval
        return view_strides(base.shape, c_strides(base), base.dtype, self._chain, len(self._dynamic)) or ()

    def _entangled_copy(self, node: Node, seen: Tracer | None = None) -> Tracer:
        """A view or a copy, which view is ``seen`` if that is known: nobody may write into either from now on."""
        result = fresh(node)
        result._cell.is_array, result._cell.seen = True, seen
        for cell in (result._cell, self._cell):
            cell.entangle("was reshaped where NumPy's memory order is not known")
        return result

    def _resolved(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        if is_static(self.shape) and is_static(shape):
            return np.reshape(np.broadcast_to(np.zeros(()), self.shape), shape).shape
        if sum(same(extent, -1) for extent in shape) > 1:
            raise ValueError("can only specify one unknown dimension")
        settled = reshaped(self.shape, shape)
        return tuple(a if isinstance(b, Fresh) else b for a, b in zip(shape, settled, strict=True))

    def _order(self, order: str) -> str:
        """The memory order that C, F, A or K stands for: C or F."""
        if order not in ("C", "F", "A", "K"):
            raise Escape(f"order={order!r}", "NumPy refuses it, or takes it for another")
        if (known := order_of(self.aval, self.strides_in_memory, order)) is None:
            raise Escape(f"order={order!r} of this array", "which it is depends on a memory order that is not known")
        return known

    def ravel(self, order: str = "C") -> Tracer:
        """A view of contiguous arrays, a copy of all others."""
        if self._order(order) == "F" and self.ndim > 1:
            return self.transpose().ravel()
        strides = self.strides_in_memory
        if strides is None and self._chain and self.aval.static:  # one of gaps is copied, although it might be reshaped
            return self._entangled_copy(emit("reshape", self._node, shape=(self.aval.size,)))
        if strides is None or self.is_scalar or not self.aval.static or is_contiguous(self.aval, strides):
            return self.reshape(-1)
        return new_array(emit("reshape", self._node, shape=(self.aval.size,)))

    def flatten(self, order: str = "C") -> Tracer:
        node = (self.transpose() if self._order(order) == "F" else self)._node
        return new_array(emit("reshape", node, shape=(self.aval.size,)))

    def squeeze(self, axis: Any = None) -> Tracer:
        places = axis if isinstance(axis, tuple) else () if axis is None else (axis,)
        axes = integer_axes_of(places, self.ndim)
        axes = tuple(k for k, extent in enumerate(self.shape) if extent == 1) if axis is None else axes
        if any(self.shape[k] != 1 for k in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        entries = tuple(("i", 0) if k in axes else ("s", None, None, None) for k in range(self.ndim))
        return self._extended(("index", entries)) if axes else self

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
        return self._extended(("diagonal", *map(operator.index, (offset, axis1, axis2)))).readonly()

    def __copy__(self) -> Tracer:
        return self if self.is_scalar else new_array(self._node)

    # -- indexing ----------------------------------------------------------------------------------------------------

    def _encode(self, index: Any) -> Index:
        if self.aval.weak:
            raise TypeError(f"'{self.dtype.type(0).item().__class__.__name__}' object is not subscriptable")
        return encode(index, self.shape, index_node)

    def __getitem__(self, index: Any) -> Any:
        if flagged := under_flag(self, index):
            return flagged[0][flagged[1]]
        if (picked := self._under_mask(index)) is not None:
            return picked
        encoded = self._encode(index)
        if encoded.advanced:
            node = emit("gather", self._node, *encoded.dynamic, pattern=encoded.entries)
            return new_array(node) if self._gathers_rows(encoded) else fresh(node)
        (view_ := self._subview(encoded))._remember_failing()  # an index may be out of bounds
        if is_element(index, view_.ndim):
            return fresh(view_._node)  # a scalar, not a view
        return view_.copy("K") if takes_copy(index) else view_

    def _under_mask(self, index: Any) -> Tracer | None:
        """What a mask over several axes picks: one list of places among all their elements, not one for each axis."""
        mask = index_node(index) if isinstance(index, Tracer | np.ndarray) else None
        if mask is None or mask.dtype.kind != "b" or mask.ndim < 2 or not is_static((*mask.shape, *self.shape)):
            return None
        if mask.shape != self.shape[: mask.ndim] or not is_c_sorted(self.shape, self.strides_in_memory):
            return None
        rows = new_array(emit("reshape", self._node, shape=(mask.size, *self.shape[mask.ndim :])))
        return rows[new_array(emit("reshape", mask, shape=(mask.size,)))]

    def _gathers_rows(self, index: Index) -> bool:
        """Index arrays first, then whole axes: NumPy lays such a result out in C order if the array itself is."""
        kinds = "".join("d" if entry[0] == "d" else "s" for entry in index.entries)
        whole = all(entry in (("d", k), ("s", None, None, None)) for k, entry in enumerate(index.entries))
        flat = all(node.ndim == 1 for node in index.dynamic)
        return whole and flat and "sd" not in kinds and is_c_sorted(self.shape, self.strides_in_memory)

    def _subview(self, encoded: Index) -> Tracer:
        self._check_bounds(encoded)
        return self._extended(*encoded.steps(len(self._dynamic)), dynamic=tuple(encoded.dynamic))

    def _check_bounds(self, index: Index) -> None:
        for axis, entry in enumerate(entry for entry in index.entries if entry[0] != "n"):
            extent = self.shape[axis]
            if entry[0] == "i" and is_static((extent,)) and not -extent <= entry[1] < extent:
                raise IndexError(f"index {entry[1]} is out of bounds for axis {axis} with size {extent}")

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.is_scalar:
            raise TypeError(f"'{type(self.dtype.type(0)).__name__}' object does not support item assignment")
        if flagged := under_flag(self, index):
            flagged[0][flagged[1]] = value
            return
        from futurex.frontend.elements import element, fit_for, through_mask

        mask = mask_of(self.shape, index, index_node)
        if mask is not None:
            value = through_mask(value, self) if mask.ndim == self.ndim else value
            many = isinstance(value, list | tuple) or hasattr(type(value), "__fx_node__")
            self._write(masked(self._node, mask, node_of(element(value, self.dtype) if many else value)))
            return
        encoded = self._encode(index)
        written = element(value, self.dtype, encoded.advanced)
        if encoded.advanced:
            node = emit("scatter", self._node, node_of(written), *encoded.dynamic, pattern=encoded.entries, mode="set")
            self._write(node)
            return
        place = self._subview(encoded)
        fit_for(place.ndim, is_element(index, place.ndim), value, node_of(written))
        place._write(written)

    def __iter__(self) -> Any:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(self.shape[0]))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # -- conversions: answered for constants, loud for everything else -----------------------------------------------

    def _known(self, what: str) -> Any:
        node = self._node
        if node.op == "const":
            return node.value[()] if self.is_scalar and isinstance(node.value, np.ndarray) else node.value
        raise Escape(
            f"{what} of a value that is not known before the run", "plain Python needs it here", "keep it an array"
        )

    def __bool__(self) -> bool:
        if self.aval.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self._known("the truth"))

    def __int__(self) -> int:
        return int(self._known("int()"))

    def __float__(self) -> float:
        return float(self._known("float()"))

    def __complex__(self) -> complex:
        return complex(self._known("complex()"))

    def __index__(self) -> int:
        return operator.index(self._known("the integer value"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._known("the elements"), dtype)

    def __contains__(self, value: Any) -> bool:
        raise Escape("`in` on a traced array", "the answer is not known before the run", "use (array == value).any()")

    def __format__(self, spec: str) -> str:
        return format(self._known("the text"), spec)

    def __str__(self) -> str:
        return str(self._known("the text"))

    def __repr__(self) -> str:
        return repr(self._known("the text")) if tracing() else f"<traced {self.aval!r}>"

    def tolist(self) -> Any:
        from futurex.frontend.numpy_api.methods import tolist

        return tolist(self)

    # -- NumPy's protocols -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from futurex.frontend.numpy_api import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from futurex.frontend.numpy_api import call_numpy

        return call_numpy(function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        from futurex.frontend.numpy_api.registry import ATTRIBUTES, METHODS, call_method, missing

        if name in METHODS and (not self.is_scalar or hasattr(np.generic, name)):
            return lambda *args, **kwargs: call_method(name, self, *args, **kwargs)
        if name in ATTRIBUTES:
            return ATTRIBUTES[name](self)
        if name.startswith("__array_") and name in dir(np.ndarray):
            why = "NumPy asks for it to make one array of a list or tuple of arrays"
            raise Escape(f"the array attribute {name!r}", why, "np.stack of them before the call")
        if name in dir(np.ndarray):  # not what a class has beside
            raise Escape(f"the array attribute {name!r}", "it is not traced")
        raise missing(self, lambda like: getattr(like, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Tracer.__slots__:
            object.__setattr__(self, name, value)
            return
        from futurex.frontend.numpy_api.registry import SETTERS, missing

        if self.is_scalar:  # nothing of them can be set
            raise missing(self, lambda like: setattr(like, name, value))
        if name in ("real", "imag"):
            getattr(self, name)._write(value)
        elif name in SETTERS:
            SETTERS[name](self, value)
        else:
            raise missing(self, lambda like: setattr(like, name, value))


_SEQUENCES = (tuple, list, range, np.ndarray, Tracer)


def fresh(node: Node) -> Tracer:
    """The result of an operation: a scalar if it has no dimensions, else a new array whose layout may not be known."""
    return Tracer(Cell(node, is_array=node.ndim > 0, strides=c_strides(node.aval) if node.ndim < 2 else None))


def new_array(node: Node) -> Tracer:
    """A new C-contiguous array, also where it has no dimensions."""
    node = strong(node)
    return Tracer(Cell(node, strides=c_strides(node.aval)))


def extent_of(value: Any) -> Any:
    """An extent that staged code asks for: an int, or a dimension that the run computes."""
    if isinstance(value, Tracer) and value._node.op != "const":
        if value.ndim or value.dtype.kind not in "iu":
            raise TypeError(f"'{value.dtype}' object cannot be interpreted as an integer")
        return dim_of(value._node)
    return value if isinstance(value, Dim) else known_extent(value)


def as_shape(shape: Any) -> tuple[Any, ...]:
    several = shape.ndim if isinstance(shape, Tracer | np.ndarray) else isinstance(shape, _SEQUENCES)
    return tuple(map(extent_of, shape)) if several else (extent_of(shape),)


def as_number(extent: Any) -> Any:
    """An extent as staged code sees it: an int, or a traced Python integer."""
    return fresh(size_node(extent)) if isinstance(extent, Dim) else extent


def lift(array: Any) -> Tracer:
    """The tracer of an array from outside the function."""
    if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
        if type(array) in STAND_INS:
            return STAND_INS[type(array)](array)
        raise Escape(f"a {type(array).__name__}", "only plain arrays are traced")
    return current().captured(array)


_AS_IT_IS = frozenset({bool, int, float, complex, str, type(None), slice})


def entered(value: Any) -> Any:
    """A value that staged code is about to use: arrays from outside become traced ones."""
    kind = type(value)
    if kind is Tracer or kind in _AS_IT_IS:
        return value
    if isinstance(value, np.ndarray) or hasattr(kind, "__fx_future__"):
        return lift(value)
    if kind in GENERATORS:
        return current().captured(value)
    return value.used() if kind is Conflict or kind is Either else value


def as_tracer(value: Any) -> Tracer:
    """A traced or concrete array as a tracer; arrays from outside share their storage with it."""
    value = entered(value)
    if isinstance(value, np.generic):  # functions that make views of arrays give scalars for scalars
        return fresh(const(value))
    return value if isinstance(value, Tracer) and not value.aval.weak else new_array(node_of(value))


def array_node(value: Any) -> Node:
    """The node of ``np.asarray(value)``."""
    return strong(node_of(value))


def strong(node: Node) -> Node:
    """A Python number in NumPy's default type for it, which is another one for integers from 2**63 on."""
    if not node.aval.weak or node.op != "const":
        return emit("cast", node, dtype=node.dtype) if node.aval.weak else node
    value = np.asarray(node.value)
    if value.dtype.kind == "O":
        raise Escape("an array of a Python int of more than 64 bits", "NumPy makes one of objects")
    return const(value)


def node_of(value: Any) -> Node:
    """The node of a traced or concrete value; lists of traced values are stacked."""
    if isinstance(value, Tracer):
        return value._node
    if isinstance(value, Node):
        return value
    if type(value) in SCALARS or isinstance(value, np.generic):
        return const(value)
    if isinstance(value, np.ndarray) or hasattr(type(value), "__fx_future__"):
        return lift(value)._node
    if isinstance(value, list | tuple | range | deque):
        from futurex.frontend.numpy_api import stack_nested

        return stack_nested(list(value))
    if isinstance(value, Placeholder):
        return node_of(value.used())
    if hasattr(type(value), "__fx_node__"):
        return value.__fx_node__()
    raise Escape(f"a {type(value).__name__} used as an array", "it cannot be traced")


def index_node(value: Any) -> Node | None:
    """The node of something used as an index, or None."""
    if isinstance(value, Tracer):
        return value._node
    if isinstance(value, range | tuple):  # inside an index, any sequence is an array
        value = list(value)
    if isinstance(value, np.ndarray | list):
        if isinstance(value, list) and any(isinstance(entry, Tracer) for entry in value):
            return node_of(value)
        array = np.asarray(value)
        if isinstance(value, list):
            return const(array.astype(np.intp) if array.size == 0 else array)
        return lift(array)._node
    return None


def abstract(value: Any) -> Aval:
    """Shape and dtype of a traced or concrete value."""
    return value.aval if isinstance(value, Tracer) else aval_of(value)
