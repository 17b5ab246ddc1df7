"""Where the leaves of a call's result come from."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.control.either import number_of
from futurex.frontend.control.rows import TracedRange
from futurex.frontend.entry_kinds import parts_of
from futurex.frontend.errors import Escape
from futurex.frontend.gathered import Gathered
from futurex.frontend.generators import TracedGenerator
from futurex.frontend.given import given
from futurex.frontend.kept import Kept
from futurex.frontend.lists import TracedList
from futurex.frontend.objects import is_container
from futurex.frontend.outside import PLAIN
from futurex.frontend.placeholders import Alternatives, Conflict, Either, Placeholder
from futurex.frontend.standing import METHODS
from futurex.frontend.tables import TracedRow, TracedTable
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, fresh
from futurex.frontend.which import Left
from futurex.ops.streams import GENERATORS
from futurex.ops.views import Chain
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, dims_in
from futurex.tree.node import Node, size_node
from futurex.tree.pytree import flatten


@dataclass(frozen=True)
class Output:
    """Where one leaf of the result comes from: an output of the plan, an argument, or the trace itself."""

    kind: str  # "out" | "generator" | "arg" | "static" | "set"; "given" | "outside" | "shared": an object, as Kept says
    # "one of": the array whose number is the output ``index`` of the plan; "row": a view that the number tells
    # "either": one of several things, whose number is that output; "nest": of other outputs, ``value`` says how
    # "rows": a list whose entries, which are what ``value`` says, are the rows of that output and those behind it
    # "entries": the same where the trace knows its ``length``
    index: int = 0
    chain: Chain = ()
    aval: Aval | None = None
    is_array: bool = False
    value: Any = None
    dims: tuple[Dim, ...] = ()  # in the chain of a view
    inner: tuple[int, int] = (0, 0)  # outputs that the chain refers to: the first and their number; the last are dims
    same: int | None = None  # the outputs of a call with this number are one array
    length: int | None = None
    frozen: bool = False  # a view that NumPy lets nobody write through
    among: dict[int, Output] = field(default_factory=dict)  # by number; any other is what ``value`` says


def shared_cells(leaves: list[Any]) -> set[Cell]:
    """Those of arrays that are left in several places, which are to share memory. Numbers share none."""
    seen: set[Cell] = set()
    twice: set[Cell] = set()
    for leaf in leaves:
        if isinstance(leaf, Tracer) and not leaf.is_scalar:
            (twice if leaf._cell in seen else seen).add(leaf._cell)
    return twice


def rows_of(leaf: TracedList, outs: list[Node]) -> Output:
    """What a traced list holds at the end; the arrays are added to ``outs``. Arrays in it would be copies of its own.
    """
    parts = parts_of(leaf.kind.kinds[0] if isinstance(leaf, TracedTable) else leaf.kind)
    if leaf.is_deque:
        raise Escape("a deque whose length depends on data as a result", "it is traced as an array")
    if any(part.aval.ndim or part.is_array for part in parts):
        raise Escape("a list of arrays whose length depends on data as a result", "they may be views of others")
    if any(part.loose for part in parts):
        current().tell()
        raise Escape("a list of Python's or NumPy's numbers as a result", "which they are is not known")
    first = len(outs)
    outs += leaf.columns()
    return Output("rows", first, value=leaf.kind)


class Outputs:
    """Where the leaves come from that a call leaves behind; what the plan is to give for them is added to ``outs``."""

    def __init__(self, outs: list[Node], cells: dict[Cell, int], shared: set[Cell], left: Left) -> None:
        self._outs, self._cells, self._shared, self._left = outs, cells, shared, left
        self._bases: dict[Cell, int] = {}
        self._lists: list[tuple[TracedList, Any]] = []
        self._sets: list[set[Any]] = []

    def of_result(self, leaf: Any) -> Output:
        """That of a leaf of the result itself, which nobody else holds."""
        if isinstance(leaf, Gathered):
            first = len(self._outs)
            self._outs += leaf.columns
            known = "rows" if leaf.length is None else "entries"
            return Output(known, first, value=leaf.kind, length=leaf.length)
        if type(leaf) is Conflict and leaf.alternatives is not None:
            return self._alternatives(leaf.alternatives)
        if isinstance(leaf, TracedList) and id(leaf) in current().arguments:
            return Output("given", value=Kept("given", current().arguments[id(leaf)][0]))
        if isinstance(leaf, TracedRow) and id(leaf.table) in current().arguments:
            return self._given(leaf)
        if isinstance(leaf, TracedRow):
            return self._rows(leaf.copy(), (leaf.table, leaf.place))
        return self._rows(leaf, (leaf, None)) if isinstance(leaf, TracedList) else self.of(leaf)

    def of(self, leaf: Any) -> Output:
        if isinstance(leaf, Tracer):
            if leaf._loose:
                current().tell()
                if current().in_vain or current().exact:
                    what = "a number that is Python's in some branch and NumPy's in another, as a result"
                    refused = Escape(what, "which of the two it is depends on data", "give it one type before")
                    refused.source, refused.reached = leaf._node.src or refused.source, None
                    raise refused
            return self._array(leaf)
        if type(leaf) is Either:
            return self._either(leaf)
        if isinstance(leaf, Placeholder):
            return self._nest(leaf.used())
        if type(leaf) is Kept:
            return Output(leaf.kind, leaf.number, value=leaf)
        if type(leaf) is TracedGenerator:
            return self._generator(leaf)
        if isinstance(leaf, np.ndarray) or type(leaf) in GENERATORS or hasattr(type(leaf), "__fx_future__"):
            return self.of(current().captured(leaf))
        if isinstance(leaf, TracedRange) or hasattr(type(leaf), "__fx_traced__") or _holds_traced(leaf):
            raise Escape("a range, slice or random object as a result", "what is in it is not known before the run")
        if type(leaf) is set:
            if not current().is_own(leaf) or any(each is leaf for each in self._sets):
                raise Escape("a set as a result that somebody else has, or that is in two places", "it is one set")
            self._sets.append(leaf)
            return Output("set", value=frozenset(leaf))
        if type(leaf) not in (*PLAIN, np.dtype) and not isinstance(leaf, np.generic) and current().is_own(leaf):
            raise Escape(f"a {type(leaf).__qualname__} as a result", "it would be the same object at every call")
        if isinstance(leaf, (*METHODS, types.BuiltinMethodType)) and _is_of_the_call(leaf.__self__):
            raise Escape("a method as a result", "it would be one of the same object at every call")
        if isinstance(leaf, types.FunctionType | types.MethodType) and leaf.__closure__:
            raise Escape("a function as a result", "it would be the same object at every call")
        return Output("static", value=leaf)

    def _rows(self, leaf: TracedList, what: tuple[TracedList, Any]) -> Output:
        """A list whose length only the run knows. ``what``: the list that it is, or the table and the place in it."""
        if any(each is what[0] and not _are_apart(place, what[1]) for each, place in self._lists):
            raise Escape("a list whose length depends on data twice in a result", "it is one list")
        self._lists.append(what)
        if isinstance(leaf, TracedTable):
            leaf.check_apart()
        return rows_of(leaf, self._outs)

    def _given(self, leaf: TracedRow) -> Output:
        """One of the lists in an argument."""
        if type(leaf.place) is not int or leaf.table.kind.moves:
            raise Escape("a list in an argument as a result", "which of them it is depends on data")
        return Output("given", value=Kept("given", (*current().arguments[id(leaf.table)][0], leaf.place)))

    def _array(self, leaf: Tracer) -> Output:
        """One that branches or rounds have merged may be another that the call leaves behind, or that it was given."""
        others = self._left.choice(leaf)
        if others is None:
            return self._own(leaf)
        among = {number: self._other(number, other) for number, other in others.items()}
        own = self._own(leaf)
        self._outs.append(leaf._cell.which.number)
        is_same = self._left.same(leaf) if leaf._chain else None
        return Output("one of", len(self._outs) - 1, leaf._chain, is_array=True, value=own, same=is_same, among=among)

    def _either(self, leaf: Either) -> Output:
        """One of several things. Of a run that failed the number is one."""
        among = {number: self.of(value) for number, value in enumerate(leaf.values)}
        self._outs.append(number_of(leaf))
        return Output("either", len(self._outs) - 1, aval=self._outs[-1].aval, among=among)

    def _alternatives(self, leaf: Alternatives) -> Output:
        """One of several nests. Of a run that failed the number is one."""
        among = {number: self._nest(value) for number, value in enumerate(leaf.values)}
        self._outs.append(number_of(leaf))
        return Output("either", len(self._outs) - 1, aval=self._outs[-1].aval, among=among)

    def _nest(self, value: Any) -> Output:
        leaves, structure = flatten(value)
        if structure.kind is None:
            return self.of(value)
        return Output("nest", value=structure, among=dict(enumerate(map(self.of, leaves))))

    def _other(self, number: int, other: Tracer) -> Output:
        chain = self._left.row(number)
        return self.of(other) if chain is None else Output("row", self._cells[other._cell], chain)

    def _own(self, leaf: Tracer) -> Output:
        same = None if leaf.is_scalar else self._left.same(leaf)
        leaf = self._as_seen(leaf)
        node, outs, cell = leaf._node, self._outs, leaf._cell
        if cell in self._cells and cell.origin is not None:
            dims, inner = self._inner(leaf)
            where, chain, frozen = self._cells[cell], leaf._chain, leaf._readonly
            return Output("arg", where, chain, node.aval, dims=dims, inner=inner, same=same, frozen=frozen)
        if cell in self._shared and not leaf.is_scalar:
            if cell not in self._bases:
                self._bases[cell] = len(outs)
                outs.append(given(cell.value, cell, cell.strides or cell.asked))
            dims, inner = self._inner(leaf)
            first, chain, frozen = self._bases[cell], leaf._chain, leaf._readonly
            return Output("out", first, chain, node.aval, True, dims=dims, inner=inner, same=same, frozen=frozen)
        is_array = not leaf.is_scalar
        outs.append(given(node, cell, leaf.strides_in_memory or cell.asked) if is_array else node)
        return Output("out", len(outs) - 1, (), node.aval, is_array, same=same, frozen=is_array and leaf._readonly)

    def _as_seen(self, leaf: Tracer) -> Tracer:
        """Of a copy that NumPy does not make of the caller's array the view that it is there."""
        seen = leaf._cell.seen
        if seen is None or seen._cell.origin is None or seen._cell not in self._cells:
            return leaf
        if seen._dynamic and leaf._dynamic:
            return leaf
        view = seen._extended(*leaf._chain, dynamic=leaf._dynamic)
        view._guard, view._readonly = leaf._guard, seen._readonly or leaf._readonly
        return view

    def _inner(self, leaf: Tracer) -> tuple[tuple[Dim, ...], tuple[int, int]]:
        """Has the plan give what a view's chain refers to."""
        dims = tuple(dict.fromkeys(dims_in(leaf._chain)))
        given_too = [*leaf._dynamic, *map(size_node, dims)]
        self._outs += given_too
        return dims, (len(self._outs) - len(given_too), len(given_too))

    def _generator(self, leaf: TracedGenerator) -> Output:
        if leaf._cell in self._cells:
            return Output("arg", self._cells[leaf._cell])
        self._outs.append(leaf._cell.value)
        return Output("generator", len(self._outs) - 1)


def _are_apart(place: Any, other: Any) -> bool:
    """Are these two places in a table where two lists are?"""
    return type(place) is int and type(other) is int and place != other


def _holds_traced(leaf: Any) -> bool:
    return type(leaf) is slice and any(isinstance(part, Tracer) for part in (leaf.start, leaf.stop, leaf.step))


def _is_of_the_call(owner: Any) -> bool:
    """Does every call have another such object, or does something else stand for it in the trace?"""
    stands = isinstance(owner, Tracer) or hasattr(type(owner), "__fx_traced__")
    return stands or is_container(owner) or current().is_own(owner)


def things(leaf: Any) -> Iterator[Any]:
    """What a leaf may be in a run."""
    if type(leaf) is Conflict and leaf.alternatives is not None:
        for value in leaf.alternatives.values:
            for each in flatten(value)[0]:
                yield from things(each)
    elif type(leaf) is Either:
        yield from leaf.values
    elif isinstance(leaf, TracedList | TracedRow):
        yield from map(fresh, leaf.columns())
    elif isinstance(leaf, Gathered):
        yield from map(fresh, leaf.columns)
    else:
        yield leaf
