"""Traces for arguments of many sizes: extents and Python ints that change from call to call become inputs of the tree.

The third call that differs from earlier ones only in extents (of at least 2: 0 and 1 mean broadcasting) or in ints is
traced with symbols for what changed. The trace serves all further sizes without being made anew; a size that comes
back often gets a trace of its own, which compiled kernels can run. Networks in single precision get one for every
size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.keys import Key, leaf_key
from futurex.frontend.number_lists import numbers_enter, numbers_of, values_of
from futurex.frontend.variants import Variant
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Symbol, new_symbol
from futurex.tree.graph import Graph
from futurex.tree.pytree import Structure

_BY_SIZE = frozenset((
    "conv", "conv_input_grad", "conv_weight_grad", "max_pool", "max_pool_grad", "max_pool_pick", "avg_pool",
    "avg_pool_grad", "batch_norm", "batch_norm_grad", "layer_norm", "layer_norm_grad", "matmul", "dot", "einsum",
))  # fmt: skip
"""Operations of networks: compiled for known sizes they are many times faster in float32, and round otherwise."""
OFTEN = 3  # calls of one size that make a trace of its own worth while
A_CALLS_NODES = 20  # of a trace for which it must come once more, where numbers alone differ
_KEPT = 8  # families, and traces of one
_COUNTED = 1024  # sizes of which it is known how often they came: a step's number is another one in every call
_INT = np.dtype(np.int64)
Sizes = tuple[Any, ...]
_ANY = object()  # the ints of a list, whatever they are


def is_open(leaf: Any) -> bool:
    """May the extents or the value of a leaf be symbols?"""
    if type(leaf) is np.ndarray:
        return bool(leaf.flags.c_contiguous) and leaf.ndim > 0
    if type(leaf) is list:
        return numbers_enter(leaf)
    return _is_open_int(leaf) or (isinstance(leaf, Array) and leaf.ndim > 0)


def _is_open_int(leaf: Any) -> bool:
    """Is it an int as wide as a traced one, and so far from the widest that counting does not reach these?"""
    return type(leaf) is int and -(1 << 61) <= leaf < 1 << 61


def _sizes(leaf: Any) -> Sizes:
    """What may be symbols of a leaf: an int, or extents. Of a list of ints also these, all together."""
    if type(leaf) is list:
        kind, shape = cast(tuple[type, tuple[int, ...]], numbers_of(leaf))
        return (*shape, values_of(leaf)) if kind is int else shape
    return (leaf,) if type(leaf) is int else tuple(leaf.shape)


def _open_key(leaf: Any) -> Any:
    if not is_open(leaf):
        return leaf_key(leaf)
    if type(leaf) is list:
        kind, shape = cast(tuple[type, tuple[int, ...]], numbers_of(leaf))
        return list, kind, len(shape)
    return (int,) if type(leaf) is int else (type(leaf) is np.ndarray, leaf.dtype, leaf.ndim)


@dataclass
class Symbolic:
    """A trace with symbols: which leaves they stand in, and what of their sizes is fixed.

    ``refused``: there is no such trace; calls of such sizes are traced one by one.
    """

    sizes: list[Sizes | None]
    avals: dict[int, Aval]
    variant: Variant | None = None
    refused: bool = False
    calls: OrderedDict[Key, int] = field(default_factory=OrderedDict)

    def bind(self, leaves: Sequence[Any]) -> dict[Symbol, int] | None:
        """What the symbols are in a call; None if its sizes do not fit."""
        known: dict[Symbol, int] = {}
        for leaf, wanted in zip(leaves, self.sizes, strict=True):
            for extent, mine in zip(_sizes(leaf), wanted, strict=True) if wanted is not None else ():
                if mine is _ANY:
                    if not numbers_enter(extent):
                        return None
                    continue
                symbol = mine.symbol if isinstance(mine, Dim) else None
                if symbol is None:
                    if extent != mine:
                        return None
                elif known.setdefault(symbol, extent) != extent or not _may_be(symbol, extent):
                    return None
        return known

    def comes_often(self, key: Key) -> bool:
        """Count a call of a size; have there been several lately?"""
        count = self.calls.pop(key, 0) + 1
        self.calls[key] = count
        if len(self.calls) > _COUNTED:
            self.calls.popitem(last=False)
        return count >= self._often()

    def _often(self) -> int:
        """Extents that are known are worth compiled kernels. Numbers are worth less than a long trace of them costs: a
        list of words that is to be gone on with, a thousand nodes, comes a few times for each text that is tried."""
        graph = self.variant.graph if self.variant is not None else None
        if graph is None or any(aval.shape for aval in self.avals.values()):
            return OFTEN
        return max(OFTEN, len(graph.nodes) // A_CALLS_NODES)


def _may_be(symbol: Symbol, extent: int) -> bool:
    return extent >= symbol.low if symbol.low is not None else _is_open_int(extent)


def needs_sizes(graph: Graph) -> bool:
    """Does a trace hold work that should not be left to NumPy's kernels, which know no sizes?"""
    for node in graph.nodes:
        if node.op in _BY_SIZE and node.inputs[0].dtype == np.float32:
            if not all(each.is_static for each in (node, *node.inputs)):
                return True
        elif any(needs_sizes(value) for value in node.attrs.values() if isinstance(value, Graph)):
            return True
    return False


@dataclass
class _Family:
    """Calls that differ in sizes alone."""

    seen: list[list[Sizes | None]] = field(default_factory=list)
    traces: list[Symbolic] = field(default_factory=list)

    def variants(self) -> Iterator[Variant]:
        yield from (trace.variant for trace in self.traces if trace.variant is not None)


class Families:
    """What is known of the sizes that a function was called with."""

    def __init__(self, given_up: Callable[[Iterable[Variant]], None]) -> None:
        """``given_up`` is told of traces that are."""
        self._families: dict[Any, _Family] = {}
        self._given_up = given_up

    def find(self, structure: Structure, leaves: Sequence[Any], key: Key) -> Symbolic | None:
        """The symbolic trace for a call that has none of its own: one that is there, or one to be made (its variant is
        None). None for a call that should be traced as it is."""
        family = self._family(structure, leaves)
        if family is None:
            return None
        for trace in family.traces:
            if trace.bind(leaves) is not None:
                return None if trace.comes_often(key) or trace.refused else trace
        sizes = [_sizes(leaf) if is_open(leaf) else None for leaf in leaves]
        if sizes not in family.seen:
            family.seen = [*family.seen[-_KEPT:], sizes]
        if len(family.seen) < 3 or len(family.traces) >= _KEPT:
            return None
        made = _generalised(family.seen, leaves)
        if made is not None:
            family.traces.append(made)
        return made

    @property
    def traced(self) -> bool:
        """Is there a symbolic trace?"""
        return next(self.variants(), None) is not None

    def variants(self) -> Iterator[Variant]:
        """The symbolic traces that there are."""
        for family in self._families.values():
            yield from family.variants()

    def _family(self, structure: Structure, leaves: Sequence[Any]) -> _Family | None:
        if not any(map(is_open, leaves)):
            return None
        arrays = [id(leaf) for leaf in leaves if isinstance(leaf, np.ndarray)]
        key = structure, tuple(map(_open_key, leaves)), tuple(map(arrays.index, arrays))
        if key not in self._families and len(self._families) >= _KEPT:
            self._given_up(self._families.pop(next(iter(self._families))).variants())
        return self._families.setdefault(key, _Family())


def _generalised(seen: list[list[Sizes | None]], leaves: Sequence[Any]) -> Symbolic | None:
    """Symbols for what differs among the calls seen; extents that were equal in all of them have one symbol."""
    columns: dict[tuple[Any, ...], Dim] = {}
    sizes: list[Sizes | None] = []
    avals: dict[int, Aval] = {}
    for place, leaf in enumerate(leaves):
        mine = seen[-1][place]
        if mine is None:
            sizes.append(None)
            continue
        rows = [call[place] for call in seen]
        wanted: list[Any] = []
        for axis, extent in enumerate(mine):
            column = tuple(row[axis] for row in rows if row is not None)
            if len(set(column)) == 1:
                wanted.append(extent)
            elif type(extent) is tuple:
                wanted.append(_ANY)
            elif type(leaf) is int:
                wanted.append(Dim.of(new_symbol(low=None)))
            elif min(column) < 2:
                return None
            else:
                wanted.append(columns.setdefault(column, Dim.of(new_symbol(low=2))))
        sizes.append(tuple(wanted))
        if type(leaf) is list:
            if any(each is _ANY or isinstance(each, Dim) for each in wanted):
                kind, shape = cast(tuple[type, tuple[int, ...]], numbers_of(leaf))
                avals[place] = Aval(tuple(wanted[: len(shape)]), np.dtype(kind))
        elif any(isinstance(extent, Dim) for extent in wanted):
            avals[place] = Aval((), _INT, weak=True) if type(leaf) is int else Aval(tuple(wanted), leaf.dtype)
    return Symbolic(sizes, avals) if avals else None
