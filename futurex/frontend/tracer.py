"""The traced array: a storage cell and a chain of views into it.

Reading a view loads it from the cell's current value and writing stores into it, so aliasing is exact by construction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.indexing import Index, encode
from futurex.frontend.trace import Cell, current, emit
from futurex.ops.control import Failure
from futurex.ops.views import Chain, view
from futurex.tree.aval import Aval, aval_of
from futurex.tree.node import Node, const

SCALARS = (bool, int, float, complex)


class Tracer:
    """Stands for an ndarray (or a NumPy or Python scalar) while a function is traced."""

    __slots__ = ("_aval", "_cell", "_chain", "_dynamic", "_guard")
    __array_priority__ = 1e6
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, cell: Cell, chain: Chain = (), dynamic: tuple[Node, ...] = ()) -> None:
        self._cell = cell
        self._chain = chain
        self._dynamic = dynamic
        self._guard: tuple[Node, str] | None = None  # is the name bound, and which name
        self._aval: Aval | None = None if chain else cell.value.aval

    # -- reading and writing -----------------------------------------------------------------------------------------

    @property
    def _node(self) -> Node:
        """The value now; reading a name that may be unbound is checked at run time."""
        if self._guard is not None:
            bound, name = self._guard
            message = f"cannot access local variable '{name}' where it is not associated with a value"
            current().effect("check", bound, failure=Failure(UnboundLocalError, (message,)))
            self._guard = None
        return self._raw

    @property
    def _raw(self) -> Node:
        """The value now, unchecked (to be merged or carried, not used)."""
        if not self._chain:
            return self._cell.value
        return emit("load", self._cell.value, *self._dynamic, chain=self._chain)

    @property
    def aval(self) -> Aval:
        if self._aval is None:
            self._aval = self._raw.aval
        return self._aval

    def _write(self, value: Any) -> None:
        """Replace all elements: ``view[...] = value``."""
        node = node_of(value)
        if self._chain:
            self._cell.write(emit("store", self._cell.value, node, *self._dynamic, chain=self._chain, mode="set"))
            return
        target = self._cell.value.aval
        if node.aval != target:
            blank = emit("full", const(np.zeros((), target.dtype)[()]), shape=target.shape, dtype=target.dtype)
            node = emit("store", blank, node, chain=(), mode="set")
        self._cell.write(node)

    def _extended(self, *steps: Any, dynamic: tuple[Node, ...] = ()) -> Tracer:
        return Tracer(self._cell, (*self._chain, *steps), (*self._dynamic, *dynamic))

    # -- attributes --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def T(self) -> Tracer:
        return self.transpose()

    @property
    def mT(self) -> Tracer:
        return self.transpose((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def real(self) -> Tracer:
        return self._extended(("real",)) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Tracer:
        if self.dtype.kind == "c":
            return self._extended(("imag",))
        return fresh(emit("full", const(np.zeros((), self.dtype)[()]), shape=self.shape, dtype=self.dtype))

    @property
    def flat(self) -> Any:
        raise Escape("the flat iterator of an array", "it has no form in the tree", "use ravel()")

    # -- views -------------------------------------------------------------------------------------------------------

    def transpose(self, *axes: Any) -> Tracer:
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)):
            axes = tuple(axes[0]) if axes[0] is not None else ()
        order = tuple(range(self.ndim))[::-1] if not axes else tuple(operator.index(a) % max(self.ndim, 1) for a in axes)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError("axes don't match array")
        return self if order == tuple(range(self.ndim)) else self._extended(("transpose", order))

    def swapaxes(self, first: int, second: int) -> Tracer:
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return self.transpose(*order)

    def reshape(self, *shape: Any, order: str = "C") -> Tracer:
        """A view where NumPy gives one, a copy where NumPy copies."""
        if len(shape) == 1 and isinstance(shape[0], tuple | list):
            shape = tuple(shape[0])
        target = self._resolved(shape, order)
        if target == self.shape:
            return self._extended() if self._chain else Tracer(self._cell)
        if self._reshapes_as_view(target):
            return self._extended(("reshape", target))
        return fresh(emit("reshape", self._node, shape=target))

    def _resolved(self, shape: tuple[Any, ...], order: str) -> tuple[int, ...]:
        if order not in ("C", "A"):
            raise Escape(f"reshape with order={order!r}", "only C order is traced")
        wanted = tuple(operator.index(extent) for extent in shape)
        dummy = np.broadcast_to(np.zeros(()), self.shape)
        return np.reshape(dummy, wanted).shape

    def _reshapes_as_view(self, target: tuple[int, ...]) -> bool:
        """Ask NumPy, on storage laid out as this view is (fresh cells are C-contiguous, so are most arguments)."""
        if self._cell.origin is not None:
            base = self._cell.origin
        else:
            base = np.empty(self._cell.value.shape, np.int8) if self._cell.value.size < 1 << 22 else None
        if base is None:
            return not self._chain
        mine = view(base, self._chain, [0] * len(self._dynamic)) if self._chain else np.asarray(base)
        probe = mine.view()
        try:
            probe.shape = target
        except AttributeError:
            return False
        return True

    def ravel(self, order: str = "C") -> Tracer:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Tracer:
        flat = self.reshape(-1, order=order)
        return fresh(flat._node)

    def squeeze(self, axis: Any = None) -> Tracer:
        axes = [k for k, extent in enumerate(self.shape) if extent == 1] if axis is None else _axes(axis, self.ndim)
        if any(self.shape[k] != 1 for k in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        entries = tuple(("i", 0) if k in axes else ("s", None, None, None) for k in range(self.ndim))
        return self._extended(("index", entries)) if axes else self

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
        return self._extended(("diagonal", offset, axis1, axis2))

    def view(self, *args: Any, **kwargs: Any) -> Tracer:
        if args or kwargs:
            raise Escape("a view with another dtype or type", "reinterpreting bytes has no form in the tree")
        return self._extended()

    # -- indexing ----------------------------------------------------------------------------------------------------

    def _encode(self, index: Any) -> Index:
        if self.aval.weak:
            raise TypeError(f"'{self.dtype.type(0).item().__class__.__name__}' object is not subscriptable")
        return encode(index, self.ndim, index_node)

    def __getitem__(self, index: Any) -> Any:
        encoded = self._encode(index)
        if encoded.advanced:
            node = emit("gather", self._node, *encoded.dynamic, pattern=encoded.entries)
            return fresh(node)
        view_ = self._subview(encoded)
        whole = any(part is ... for part in index) if isinstance(index, tuple) else index is ...
        return fresh(view_._node) if view_.ndim == 0 and not whole else view_  # full indexing gives a scalar, not a view

    def _subview(self, encoded: Index) -> Tracer:
        self._check_bounds(encoded)
        offset = len(self._dynamic)
        entries = tuple(_shifted(entry, offset) for entry in encoded.entries)
        return self._extended(("index", entries), dynamic=tuple(encoded.dynamic))

    def _check_bounds(self, index: Index) -> None:
        axis = 0
        for entry in index.entries:
            if entry[0] == "n":
                continue
            if entry[0] == "i" and not -self.shape[axis] <= entry[1] < self.shape[axis]:
                raise IndexError(f"index {entry[1]} is out of bounds for axis {axis} with size {self.shape[axis]}")
            axis += 1

    def __setitem__(self, index: Any, value: Any) -> None:
        mask = self._mask(index)
        if mask is not None:
            self._write_masked(mask, value)
            return
        encoded = self._encode(index)
        if encoded.advanced:
            node = emit("scatter", self._node, node_of(value), *encoded.dynamic, pattern=encoded.entries, mode="set")
            self._write(node)
            return
        self._subview(encoded)._write(value)

    def _mask(self, index: Any) -> Node | None:
        node = index_node(index) if not isinstance(index, tuple | slice | int) and index is not None and index is not ... else None
        if node is None or node.dtype.kind != "b" or node.ndim == 0:
            return None
        if node.shape != self.shape[: node.ndim]:
            raise IndexError(f"boolean index of shape {node.shape} does not match the indexed array of shape {self.shape}")
        return node

    def _write_masked(self, mask: Node, value: Any) -> None:
        """``x[mask] = value``: a ``where``, if the value does not depend on how many elements are selected."""
        node = node_of(value)
        rest = self.ndim - mask.ndim
        if node.ndim > rest:
            if node.size != 1:
                raise Escape("a masked write of an array", "how many elements it takes depends on data", "use np.where or np.copyto")
            node = emit("reshape", node, shape=(1,) * rest)
        test = emit("reshape", mask, shape=(*mask.shape, *(1,) * rest)) if rest else mask
        cast = node if node.aval.weak or node.dtype == self.dtype else emit("cast", node, dtype=self.dtype)
        if node.aval.weak:
            cast = emit("cast", node, dtype=self.dtype)
        self._write(emit("where", test, cast, self._node))

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
            return node.value
        raise Escape(f"{what} of a value that is not known before the run", "plain Python needs it here", "keep it an array")

    def __bool__(self) -> bool:
        if self.aval.size > 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
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
        return f"<traced {self.aval!r}>"

    def item(self, *args: Any) -> Any:
        target = self
        for position in args:
            target = target.ravel()[position] if not isinstance(position, tuple) else target[position]
        if target.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return fresh(emit("python_scalar", emit("reshape", target._node, shape=()), kind=target.dtype.kind))

    def tolist(self) -> Any:
        return self._known("the list")

    # -- NumPy's protocols -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from futurex.frontend.numpy_api import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from futurex.frontend.numpy_api import call_numpy

        return call_numpy(function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        from futurex.frontend.numpy_api import METHODS

        if name in METHODS:
            function = METHODS[name]
            return lambda *args, **kwargs: function(self, *args, **kwargs)
        if hasattr(np.ndarray, name):
            raise Escape(f"the array attribute {name!r}", "it is not traced")
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Tracer.__slots__:
            object.__setattr__(self, name, value)
        elif name in ("real", "imag"):
            getattr(self, name)._write(value)
        else:
            raise Escape(f"assigning the attribute {name!r} of an array", "it has no form in the tree")


def _operator(ufunc: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not is_arraylike(other):
            return NotImplemented
        from futurex.frontend.numpy_api import call_ufunc

        return call_ufunc(ufunc, "__call__", (other, self) if reflected else (self, other), {})

    return method


def _in_place(ufunc: Any) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        from futurex.frontend.numpy_api import call_ufunc

        if self.aval.weak or is_scalar_result(self):
            return call_ufunc(ufunc, "__call__", (self, other), {})
        return call_ufunc(ufunc, "__call__", (self, other), {"out": (self,)})

    return method


def _power(self: Any, other: Any) -> Any:
    """``ndarray ** scalar`` takes NumPy's short cuts, which differ from np.power in the last bit."""
    from futurex.frontend.numpy_api import call_ufunc

    known = other if type(other) in (int, float) else None
    quick = {-1: np.reciprocal, 0.5: np.sqrt, 1: np.positive, 2: np.square}
    if known in quick and not self.aval.weak and self.dtype.kind in "fc":
        return call_ufunc(quick[known], "__call__", (self,), {})
    if known == 2 and not self.aval.weak and self.dtype.kind in "iu" and type(other) is int:
        return call_ufunc(np.square, "__call__", (self,), {})
    if not is_arraylike(other):
        return NotImplemented
    return call_ufunc(np.power, "__call__", (self, other), {})


_OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
for _name, _ufunc in _OPERATORS.items():
    setattr(Tracer, f"__{_name}__", _operator(_ufunc, reflected=False))
    setattr(Tracer, f"__r{_name}__", _operator(_ufunc, reflected=True))
    setattr(Tracer, f"__i{_name}__", _in_place(_ufunc))
Tracer.__pow__ = _power  # type: ignore[attr-defined]
for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    setattr(Tracer, f"__{_name}__", _operator(_ufunc, reflected=False))
for _name, _ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():

    def _unary(self: Any, _ufunc: Any = _ufunc) -> Any:
        from futurex.frontend.numpy_api import call_ufunc

        return call_ufunc(_ufunc, "__call__", (self,), {})

    setattr(Tracer, f"__{_name}__", _unary)


def is_scalar_result(tracer: Tracer) -> bool:
    """0-d results are immutable NumPy scalars unless they are views or were made as arrays."""
    return tracer.ndim == 0 and not tracer._chain and tracer._cell.origin is None


def fresh(node: Node) -> Tracer:
    """A new array that holds a value."""
    return Tracer(Cell(node))


def is_arraylike(value: Any) -> bool:
    return isinstance(value, Tracer | np.ndarray | np.generic | list | tuple | bool | int | float | complex) or hasattr(value, "__fx_future__")


def lift(array: np.ndarray, read: Callable[[], Any] | None = None) -> Tracer:
    """The tracer of an array from outside the function."""
    return Tracer(current().capture(array, read))


def as_tracer(value: Any) -> Tracer:
    """A traced or concrete array as a tracer; arrays from outside share their storage with it."""
    return value if isinstance(value, Tracer) else lift(value) if isinstance(value, np.ndarray) else fresh(node_of(value))


def node_of(value: Any) -> Node:
    """The node of a traced or concrete value; lists of traced values are stacked."""
    if isinstance(value, Tracer):
        return value._node
    if isinstance(value, Node):
        return value
    if type(value) in SCALARS or isinstance(value, np.generic):
        return const(value)
    if isinstance(value, np.ndarray):
        return lift(value)._node
    if hasattr(value, "__fx_future__"):
        return current().capture(value, None).value
    if isinstance(value, list | tuple | range):
        from futurex.frontend.numpy_api import stack_nested

        return stack_nested(list(value))
    raise Escape(f"a {type(value).__name__} used as an array", "it cannot be traced")


def index_node(value: Any) -> Node | None:
    """The node of something used as an index, or None."""
    if isinstance(value, Tracer):
        return value._node
    if isinstance(value, np.ndarray | list):
        array = np.asarray(value) if isinstance(value, np.ndarray) or not any(isinstance(v, Tracer) for v in value) else None
        if array is None:
            return node_of(value)
        if isinstance(value, list):
            return const(array.astype(np.intp) if array.size == 0 else array)
        return lift(array)._node
    return None


def _shifted(entry: tuple[Any, ...], offset: int) -> tuple[Any, ...]:
    return ("d", entry[1] + offset) if entry[0] == "d" else entry


def _axes(axis: Any, ndim: int) -> list[int]:
    axes = axis if isinstance(axis, tuple) else (axis,)
    return [operator.index(k) % ndim for k in axes]


def abstract(value: Any) -> Aval:
    """Shape and dtype of a traced or concrete value."""
    return value.aval if isinstance(value, Tracer) else aval_of(value)
