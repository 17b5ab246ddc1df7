"""Nodes: immutable, hash-consed where pure, with NumPy's operators for writing derivative rules and decompositions."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from futurex.tree.aval import PYTHON_SCALARS, Aval, Literal, aval_of
from futurex.tree.record import Avals, Op, op, record
from futurex.tree.source import Source, here

Table = weakref.WeakValueDictionary[Hashable, "Node"]

_counter = itertools.count()
_interned: Table = weakref.WeakValueDictionary()
_lock = threading.Lock()


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.tables: list[Table] = []


_scopes = _Scopes()


@contextmanager
def interning_scope(*, fresh: bool = False) -> Iterator[int]:
    """Nodes built inside are merged with equal ones inside and further out, and forgotten at the end.

    A branch that is not taken must not lend its nodes to code outside it. Yields the id from which new nodes count:
    what is older came from outside. ``fresh`` hides the scopes further out.
    """
    before = _scopes.tables
    _scopes.tables = [*([] if fresh else before), weakref.WeakValueDictionary()]
    try:
        yield next(_counter)
    finally:
        _scopes.tables = before


def next_id() -> int:
    """A point in the order of creation."""
    return next(_counter)


def _find(key: Hashable) -> Node | None:
    for table in reversed(_scopes.tables or [_interned]):
        found = table.get(key)
        if found is not None:
            return found
    return None


class Node:
    """One operation applied to nodes.

    ``id`` grows with creation, so it orders effects and tells what existed before a scope began. ``aval`` is an
    :class:`Aval`, or a tuple of them for an op with several results; those are taken apart with :func:`item`.
    """

    __slots__ = ("__weakref__", "attrs", "aval", "id", "inputs", "op", "src")
    __array_priority__ = 1000
    __array_ufunc__ = None  # ndarray <op> node must reach the node's reflected operator

    op: str
    inputs: tuple[Node, ...]
    attrs: dict[str, Any]
    aval: Any
    src: Source | None
    id: int

    def __init__(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], aval: Avals, src: Source | None):
        set_ = object.__setattr__
        set_(self, "op", op)
        set_(self, "inputs", inputs)
        set_(self, "attrs", attrs)
        set_(self, "aval", aval)
        set_(self, "src", src)
        set_(self, "id", next(_counter))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"nodes are immutable; cannot set {name!r}")

    @property
    def record(self) -> Op:
        return record(self.op)

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
    def value(self) -> Any:
        """The value of a constant; None for any other node."""
        return self.attrs["value"].value if self.op == "const" else None

    def __repr__(self) -> str:
        inputs = ", ".join(f"%{node.id}" for node in self.inputs)
        attrs = "".join(f", {name}={value!r}" for name, value in self.attrs.items())
        return f"%{self.id} = {self.op}({inputs}{attrs}) : {self.aval!r}"

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of a node is not known before it runs: {self!r}")

    def __len__(self) -> int:
        return self.shape[0]

    # Rules and decompositions are written with NumPy's operators.
    def __add__(self, other: Any) -> Node:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Node:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Node:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Node:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Node:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Node:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Node:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return apply("divide", other, self)

    def __pow__(self, other: Any) -> Node:
        return apply("power", self, other)

    def __rpow__(self, other: Any) -> Node:
        return apply("power", other, self)

    def __matmul__(self, other: Any) -> Node:
        return apply("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Node:
        return apply("matmul", other, self)

    def __neg__(self) -> Node:
        return apply("negative", self)

    def __lt__(self, other: Any) -> Node:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Node:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Node:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Node:
        return apply("greater_equal", self, other)


def apply(name: str, *inputs: Any, **attrs: Any) -> Node:
    """Build the node ``name(*inputs, **attrs)``; arrays and Python scalars among the inputs become constants.

    Raises what NumPy raises for shapes and dtypes that do not fit.
    """
    nodes = tuple(value if isinstance(value, Node) else const(value) for value in inputs)
    rec = record(name)
    aval = rec.infer(tuple(node.aval for node in nodes), tuple(_known_scalar(node) for node in nodes), attrs)
    return build(rec, nodes, attrs, aval)


def build(rec: Op, nodes: tuple[Node, ...], attrs: dict[str, Any], aval: Avals, src: Source | None = None) -> Node:
    """The node with a given abstract value; an equal pure node is returned instead of a second one."""
    if rec.effect:
        return Node(rec.name, nodes, attrs, aval, src or here())
    key = (rec.name, nodes, tuple((name, type(attrs[name]), attrs[name]) for name in sorted(attrs)), aval)
    with _lock:
        found = _find(key)
        if found is None:
            found = Node(rec.name, nodes, attrs, aval, src or here())
            (_scopes.tables[-1] if _scopes.tables else _interned)[key] = found
    return found


def _known_scalar(node: Node) -> Any:
    return node.attrs["value"].value if node.op == "const" and node.aval.weak else None


def param(aval: Aval, name: str = "") -> Node:
    """A fresh input of a graph; never merged with another."""
    return Node("param", (), {"name": name}, aval, here())


def const(value: Any) -> Node:
    """A constant node; Python scalars stay weak."""
    if isinstance(value, Node):
        return value
    if type(value) not in PYTHON_SCALARS and not isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
    return build(record("const"), (), {"value": Literal(value)}, aval_of(value))


def item(node: Node, index: int) -> Node:
    """Result number ``index`` of a node with several results."""
    return build(record("item"), (node,), {"index": index}, node.aval[index], node.src)


def _not_executable(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a graph's inputs have no kernel; run the graph")


op("param", _not_executable, effect=True)
op("const", lambda value: value.value)
op("item", lambda values, index: values[index], aval=lambda values, index: values[index], view=0)
