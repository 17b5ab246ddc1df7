"""Nodes: immutable, hash-consed where pure, with NumPy's operators for writing derivative rules and decompositions."""

from __future__ import annotations

import itertools
import operator
import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from futurex.tree.aval import PYTHON_SCALARS, Aval, Literal, aval_of
from futurex.tree.dims import (
    Dim,
    Fresh,
    Symbol,
    UnknownDimension,
    bounded,
    dims_in,
    new_symbol,
    replaced,
    value_symbol,
)
from futurex.tree.record import Avals, Op, Sample, op, record
from futurex.tree.source import Source, here


class _Key:
    """What tells a pure node from others. It is hashed once, not for the table of every scope: a graph among the
    attributes, or an abstract value, takes longer to hash than to be looked up."""

    __slots__ = ("hash", "parts")

    def __init__(self, *parts: Hashable) -> None:
        self.parts, self.hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.parts == other.parts


_STATIC = operator.attrgetter("static")
Table = weakref.WeakValueDictionary[_Key, "Node"]

_counter = itertools.count()
_interned: Table = weakref.WeakValueDictionary()
_lock = threading.RLock()
"""Held while a node is looked up and made. A collection of garbage meanwhile may run finalizers that make nodes."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.RLock()))  # its holder may not be there


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.hashes: set[int] = set()  # of all keys that these tables have, or had: most nodes are new ones
        self.made = 0


_scopes = _Scopes()


@contextmanager
def interning_scope(*, fresh: bool = False) -> Iterator[int]:
    """Nodes built inside are merged with equal ones inside and further out, and forgotten at the end.

    A branch that is not taken must not lend its nodes to code outside it. Yields the id from which new nodes count:
    what is older came from outside. ``fresh`` hides the scopes further out.
    """
    before = _scopes.tables, _scopes.hashes
    if fresh or not before[0]:
        _scopes.tables, _scopes.hashes = [weakref.WeakValueDictionary()], set()
    else:
        _scopes.tables = [*before[0], weakref.WeakValueDictionary()]
    try:
        yield next(_counter)
    finally:
        _scopes.tables, _scopes.hashes = before


def next_id() -> int:
    """A point in the order of creation."""
    return next(_counter)


def made_here() -> int:
    """How many nodes this thread has made: what others trace or optimise meanwhile is not counted."""
    return _scopes.made


def _find(key: _Key) -> Node | None:
    if not _scopes.tables:
        return _interned.get(key)
    if key.hash in _scopes.hashes:
        for table in reversed(_scopes.tables):
            found = table.get(key)
            if found is not None:
                return found
    return None


class Node:
    """One operation applied to nodes.

    ``id`` grows with creation, so it orders effects and tells what existed before a scope began. ``aval`` is an
    :class:`Aval`, or a tuple of them for an op with several results; those are taken apart with :func:`item`.
    """

    __slots__ = ("__weakref__", "_static", "attrs", "aval", "id", "inputs", "op", "src")
    __array_priority__ = 1000
    __array_ufunc__ = None  # ndarray <op> node must reach the node's reflected operator

    op: str
    inputs: tuple[Node, ...]
    attrs: dict[str, Any]
    aval: Any
    src: Source | None
    id: int
    _static: bool | None

    def __init__(self, op: str, inputs: tuple[Node, ...], attrs: dict[str, Any], aval: Avals, src: Source | None):
        set_ = object.__setattr__
        set_(self, "op", op)
        set_(self, "inputs", inputs)
        set_(self, "attrs", attrs)
        set_(self, "aval", aval)
        set_(self, "src", src)
        set_(self, "_static", None)
        set_(self, "id", next(_counter))
        _scopes.made += 1

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"nodes are immutable; cannot set {name!r}")

    @property
    def record(self) -> Op:
        return record(self.op)

    @property
    def acts(self) -> bool:
        """Does it do, itself or in a graph that it holds, what others see? Two such nodes are never one."""
        rec = self.record
        return rec.acts or (rec.structured and _holds_acts(self.attrs))

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
    def is_static(self) -> bool:
        """Are the shapes of the node, and of what it reads, known before the run?"""
        if self._static is None:
            avals = [aval for each in (self, *self.inputs) for aval in _each_aval(each.aval)]
            object.__setattr__(self, "_static", "dims" not in self.attrs and all(map(_STATIC, avals)))
        return bool(self._static)

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


def _each_aval(aval: Avals) -> tuple[Aval, ...]:
    return aval if isinstance(aval, tuple) else (aval,)


def apply(name: str, *inputs: Any, **attrs: Any) -> Node:
    """Build the node ``name(*inputs, **attrs)``; arrays and Python scalars among the inputs become constants.

    Dimensions among the attributes that are not known before the run become further inputs, one per entry of the
    attribute ``dims``.

    Raises what NumPy raises for shapes and dtypes that do not fit.
    """
    nodes = tuple([value if isinstance(value, Node) else const(value) for value in inputs])
    rec = record(name)
    if "dims" in attrs:  # printed text: the dimensions are those of the last inputs
        nodes, attrs = _respelled(nodes, attrs)
    held = [value for value in attrs.values() if isinstance(value, Dim | tuple)]
    sizes = tuple(dict.fromkeys(dim for value in held for dim in dims_in(value))) if held else ()
    if sizes:
        nodes = (*nodes, *map(size_node, sizes))
        attrs["dims"] = sizes
    try:
        aval = rec.infer(tuple([node.aval for node in nodes]), tuple([_known_scalar(node) for node in nodes]), attrs)
    except (IndexError, TypeError, ValueError) as error:
        error.add_note(f"in {name}({', '.join(str(node.aval) for node in nodes)})")  # NumPy does not say all shapes
        raise
    return build(rec, nodes, attrs, aval)


def build(rec: Op, nodes: tuple[Node, ...], attrs: dict[str, Any], aval: Avals, src: Source | None = None) -> Node:
    """The node with a given abstract value; an equal pure node is returned instead of a second one."""
    if rec.effect or (rec.structured and _holds_acts(attrs)):
        return _made(rec, nodes, attrs, aval, src)
    described = tuple([(name, type(attrs[name]), attrs[name]) for name in sorted(attrs)]) if attrs else ()
    key = _Key(rec.name, nodes, described, aval)
    with _lock:
        found = _find(key)
        if found is None:
            made = _made(rec, nodes, attrs, aval, src)
            if not _scopes.tables:
                return _interned.setdefault(key, made)
            _scopes.hashes.add(key.hash)
            found = _scopes.tables[-1].setdefault(key, made)
    return found


def _holds_acts(attrs: dict[str, Any]) -> bool:
    return any(getattr(value, "acts", False) for value in attrs.values())


def _made(rec: Op, nodes: tuple[Node, ...], attrs: dict[str, Any], aval: Avals, src: Source | None) -> Node:
    """A new node; extents that its rule says nothing of become symbols, and it defines those that have no definer."""
    avals = aval if isinstance(aval, tuple) else (aval,)
    if all(map(_STATIC, avals)):
        return Node(rec.name, nodes, attrs, aval, src or here())
    fresh: dict[Fresh, Dim] = {}

    def settled(extent: Any) -> Any:
        if not isinstance(extent, Fresh):
            return extent
        if extent not in fresh:
            fresh[extent] = Dim.of(new_symbol())
        return fresh[extent]

    avals = tuple(each.with_extents(settled) for each in avals)
    node = Node(rec.name, nodes, attrs, avals if isinstance(aval, tuple) else avals[0], src or here())
    for symbol, place in symbols_of(node):
        if symbol.definer is None:
            symbol.definer = place
        for table in _resolved.tables[-1:]:
            table.setdefault(symbol, place)
    return node


# -- dimensions as nodes -----------------------------------------------------------------------------------------------


class _Resolved(threading.local):
    def __init__(self) -> None:
        self.tables: list[dict[Any, Place]] = []  # by symbols, and by the terms of composed extents


_resolved = _Resolved()
Place = tuple[Any, int | None]


def symbols_of(node: Node) -> Iterator[tuple[Symbol, Place]]:
    """The symbols that a node shows, and where: an axis of its own, or an input that is the extent."""
    avals = enumerate(node.aval) if isinstance(node.aval, tuple) else [(None, node.aval)]
    for index, aval in avals:
        for axis, extent in enumerate(aval.shape):
            if isinstance(extent, Dim) and extent.symbol is not None:
                yield extent.symbol, (node if index is None else (node, index), axis)
    sizes = node.attrs.get("dims", ())
    for dim, source in zip(sizes, node.inputs[len(node.inputs) - len(sizes) :], strict=True):
        if dim.symbol is not None:
            yield dim.symbol, (source, None)


def _composed_in(node: Node) -> Iterator[tuple[Any, Place]]:
    """The terms of extents that are no symbol by themselves, as ``n + 1``, and where the node shows them."""
    if not isinstance(node.aval, tuple):
        for axis, extent in enumerate(node.aval.shape):
            if isinstance(extent, Dim) and extent.symbol is None:
                yield extent.terms, (node, axis)


@contextmanager
def dimensions_of(
    nodes: Iterable[Node], known: Mapping[Symbol, Place] = MappingProxyType({})
) -> Iterator[dict[Symbol, Place]]:
    """Inside, dimensions are read from these nodes: for a transformation of a graph that was made elsewhere.

    ``known`` are symbols that other nodes show. Gives the table of who shows which; more may be added.
    """
    table: dict[Any, Place] = dict(known)
    for node in nodes:
        for symbol, place in symbols_of(node):
            table.setdefault(symbol, place)
        for terms, place in _composed_in(node):
            table.setdefault(terms, place)
    _resolved.tables.append(table)
    try:
        yield table
    finally:
        _resolved.tables.pop()


def hidden_symbols(nodes: Iterable[Node]) -> list[Symbol]:
    """The symbols in extents of these nodes that none of them shows by itself, as that of an axis of ``n + 1``."""
    nodes = list(nodes)
    shown = {symbol for node in nodes for symbol, _ in symbols_of(node)}
    hidden: dict[Symbol, None] = {}

    def search(dim: Dim) -> None:
        for symbol in (symbol for key, _ in dim.terms for symbol in key if symbol not in shown):
            if symbol.bound:
                search(symbol.bound[1])
            else:
                hidden[symbol] = None

    for node in nodes:
        for dim in dims_in((*(aval.shape for aval in _each_aval(node.aval)), node.attrs.get("dims", ()))):
            search(dim)
    return list(hidden)


def size_node(dim: Dim | int) -> Node:
    """The weak integer node that a dimension is at run time. Raises UnknownDimension where no node shows it."""
    if not isinstance(dim, Dim):
        return const(dim)
    try:
        return _computed(dim)
    except UnknownDimension:
        place = _resolved.tables[-1].get(dim.terms) if _resolved.tables else None
        if place is None:
            raise
        return apply("dim", place[0], axis=place[1])


def _computed(dim: Dim) -> Node:
    """A dimension out of what its symbols are at run time."""
    total: Node | None = None
    for key, value in dim.terms:
        factors = [_symbol_node(symbol) for symbol in key]
        term: Any = factors[0] if factors else const(value)
        for factor in factors[1:]:
            term = apply("multiply", term, factor)
        if factors and value != 1:
            term = apply("multiply", term, value)
        total = term if total is None else apply("add", total, term)
    assert total is not None
    return total


def _symbol_node(symbol: Symbol) -> Node:
    tables = _resolved.tables
    place = tables[-1].get(symbol) if tables else None if symbol.bound else symbol.definer
    if place is None and symbol.bound:
        name, extent, limit = symbol.bound
        return apply(_BOUNDS[name], size_node(extent), limit)
    if place is None:
        raise UnknownDimension(f"nothing here shows how large {symbol!r} is")
    source, axis = place
    if axis is None:
        return source if source.aval.weak else apply("python_scalar", source, kind="i")
    if isinstance(source, tuple):
        source = item(*source)
    return apply("dim", source, axis=axis)


_BOUNDS = {"min": "minimum", "max": "maximum"}
_COMPOSED = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b}


def dim_of(node: Node) -> Any:
    """The dimension that an integer scalar is: what ``size_node`` was made from, else a symbol of its own."""
    if node.op == "const":
        return int(node.value)
    found = _composed(node)
    if found is not None:
        return found
    symbol = value_symbol(node.id)
    symbol.definer = (node, None)
    for table in _resolved.tables[-1:]:
        table.setdefault(symbol, (node, None))
    return Dim.of(symbol)


def _composed(node: Node) -> Any:
    if node.op == "const" and node.aval.weak and node.dtype.kind == "i":
        return node.value
    if node.op == "dim":
        return node.inputs[0].shape[node.attrs["axis"]]
    if node.op in _COMPOSED and node.aval.weak:
        parts = [_composed(source) for source in node.inputs]
        return None if any(part is None for part in parts) else _COMPOSED[node.op](*parts)
    if node.op in _BOUNDS.values() and node.aval.weak:
        extent, limit = map(_composed, node.inputs)
        if isinstance(extent, Dim) and type(limit) is int and limit >= 0:
            low = limit if node.op == "maximum" else extent.low
            return bounded(node.op[:3], extent, limit) if low is not None and low >= 0 else None
    return None


def _respelled(nodes: tuple[Node, ...], attrs: dict[str, Any]) -> tuple[tuple[Node, ...], dict[str, Any]]:
    sizes = attrs["dims"]
    count = len(nodes) - len(sizes)
    known = dict(zip(sizes, map(dim_of, nodes[count:]), strict=True))
    return nodes[:count], {
        name: replaced(value, known.__getitem__) for name, value in attrs.items() if name != "dims"
    }


def _known_scalar(node: Node) -> Any:
    return node.attrs["value"].value if node.op == "const" and node.aval.weak else None


def param(aval: Aval, name: str = "") -> Node:
    """A fresh input of a graph; never merged with another. Extents left open get symbols of their own."""
    return _made(record("param"), (), {"name": name}, aval, None)


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
op(
    "dim", lambda x, axis: np.shape(x)[axis], aval=lambda x, axis: Aval((), np.dtype(np.int64), weak=True),
    vjp=lambda g, out, x, axis: (None,),
    samples=lambda rng: [Sample((rng.normal(size=(2, 3)),), {"axis": 1}, order=0)],
)  # fmt: skip
op("item", lambda values, index: values[index], aval=lambda values, index: values[index], view=0)
