"""Names that are one of several nests, as the run tells: None or an array, None or a tuple, None or a dict.

``best = None``, then ``if loss < least: best = w.copy()`` in the rounds of a loop. Branches leave a
:class:`~futurex.frontend.placeholders.Conflict` with alternatives: the nests, and flags that say which it is. Rounds
carry the leaves of each, and the flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.control.either import FLAG, MOST, flag_of
from futurex.frontend.control.values import (
    UNDEF,
    Aliases,
    Kind,
    aliases_of,
    bound_flag,
    coerce,
    common_type,
    is_loose,
    is_numeric,
    merged_tracer,
    opened,
    raw,
    same_value,
    zeros,
)
from futurex.frontend.errors import Escape
from futurex.frontend.outside import PLAIN
from futurex.frontend.placeholders import Alternatives, Conflict, Either
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, current
from futurex.frontend.tracer import Tracer, fresh
from futurex.frontend.which import NOBODYS, UNKNOWN, Which, behind_loop, stand_in
from futurex.frontend.wide import note_wide
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const, param
from futurex.tree.pytree import Structure, containers, flatten, unflatten


def nests_of(value: Any) -> tuple[Any, ...]:
    """What a name or result may be."""
    return value.alternatives.values if type(value) is Conflict and value.alternatives is not None else (value,)


def all_nests(value: Any) -> Iterator[Any]:
    """What a name or result is, and what leaves of it may be."""
    yield value
    for leaf in () if value is UNDEF else flatten(value)[0]:
        yield from nests_of(leaf) if type(leaf) is Conflict else ()


def flag_in(value: Any, nest: Any) -> Node:
    """Says whether it is this one of them. A number of one type or another is one of them: its flags say which."""
    place = next(k for k, each in enumerate(nests_of(value)) if each is nest)
    return flag_of(value.alternatives, place) if type(value) is Conflict else const(True)


def refuse_objects(nest: Any) -> None:
    """A nest that is only there in some runs is put together anew of its leaves, among which are no objects of
    classes. Raises Escape."""
    leaves = () if nest is UNDEF else flatten(nest)[0]
    if nest is UNDEF or not all(isinstance(leaf, (Tracer, Either, np.ndarray, np.generic, *PLAIN)) for leaf in leaves):
        raise Escape("an object that a name is in some runs only", "it is somebody's")


def refuse_unbound(nest: Any) -> None:
    """Raises Escape where it is not known whether the name of an array or number in a nest is bound."""
    if any(bound_flag(leaf) is not None for leaf in flatten(nest)[0]):
        raise Escape("a name that may be unbound, and something else in some runs", "which is not known")


def _refuse(nest: Any) -> None:
    """Raises Escape where rounds cannot carry a nest."""
    refuse_objects(nest)
    refuse_unbound(nest)
    if any(type(leaf) is Either for leaf in flatten(nest)[0]):
        raise Escape("a number of one type or another in what a name is in some runs only", "which the run tells")


def may_be_one(a: Any, b: Any) -> bool:
    """Are two nests the same but for the elements of arrays and the values of numbers?"""
    (leaves_a, tree_a), (leaves_b, tree_b) = flatten(a), flatten(b)
    return tree_a == tree_b and all(map(_are_alike, leaves_a, leaves_b))


def _are_alike(a: Any, b: Any) -> bool:
    if is_numeric(a) and is_numeric(b):
        return _Leaf.of(a).fits(_Leaf.of(b))
    return not is_numeric(a) and not is_numeric(b) and same_value(a, b)


@dataclass
class _Leaf:
    """A leaf of a nest. ``aval``: None of what is the same in all rounds, ``value``."""

    aval: Aval | None
    value: Any
    kind: Kind
    loose: bool

    @classmethod
    def of(cls, value: Any) -> _Leaf:
        if not is_numeric(value):
            return cls(None, value, Kind.of(value), False)
        kind = Kind.of(value)
        return cls(raw(value).aval, None, Kind(kind.is_array, readonly=kind.readonly), is_loose(value))

    def fits(self, other: _Leaf) -> bool:
        """May one name stand for both?"""
        if self.aval is None or other.aval is None:
            return self.aval is other.aval and same_value(self.value, other.value)
        mine, theirs = self.aval, other.aval
        same = (mine.dtype, mine.ndim, mine.weak) == (theirs.dtype, theirs.ndim, theirs.weak)
        return same and self.kind == other.kind

    def widen(self, other: _Leaf) -> bool:
        """It is what the other one is, too. True if that is new."""
        if self.aval is None or other.aval is None:
            return False
        before = self.aval, self.loose
        self.aval, self.loose = common_type(self.aval, other.aval, "a name"), self.loose or other.loose
        return before != (self.aval, self.loose)


@dataclass
class _Nest:
    structure: Structure
    leaves: list[_Leaf]

    @classmethod
    def of(cls, value: Any) -> _Nest:
        leaves, structure = flatten(value)
        return cls(structure, list(map(_Leaf.of, leaves)))

    def fits(self, other: _Nest) -> bool:
        return self.structure == other.structure and all(
            one.fits(each) for one, each in zip(self.leaves, other.leaves, strict=True)
        )

    def numeric(self) -> Iterator[tuple[int, _Leaf, Aval]]:
        return ((k, leaf, leaf.aval) for k, leaf in enumerate(self.leaves) if leaf.aval is not None)


Place = tuple[int, int]  # of a nest, and of a leaf in it


class Nests:
    """All nests that a name of a loop may be, which is ``initial`` before it."""

    def __init__(self, initial: Any) -> None:
        """Raises Escape."""
        self.initial = initial
        self._nests: list[_Nest] = []
        self._stand_ins: dict[Place, Cell] = {}
        for nest in nests_of(initial):
            _refuse(nest)
            self._admit(_Nest.of(nest))

    def admit(self, value: Any) -> bool:
        """It may be what a round leaves, too. True if that is new. Raises Escape."""
        found = False
        for each in nests_of(value):
            _refuse(each)
            nest = _Nest.of(each)
            for leaf in nest.leaves:
                leaf.aval = None if leaf.aval is None else opened(leaf.aval)
            found |= self._admit(nest)
        return found

    def _admit(self, nest: _Nest) -> bool:
        known = next((each for each in self._nests if each.fits(nest)), None)
        if known is not None:
            return [one.widen(each) for one, each in zip(known.leaves, nest.leaves, strict=True)].count(True) > 0
        if len(self._nests) == MOST:
            raise Escape("a name that may be too many things", "each is a branch of its own")
        is_none = nest.structure.kind is None and nest.leaves[0].aval is None and nest.leaves[0].value is None
        self._nests.insert(0 if is_none else len(self._nests), nest)  # of which is asked most: it has its own flag
        return True

    def _among(self, value: Any) -> list[tuple[Any, list[Any] | None]]:
        """For each nest the one of a value's that is such a one, and its leaves."""
        found = [(each, _Nest.of(each)) for each in nests_of(value)]
        return [
            next(((each, flatten(each)[0]) for each, own in found if nest.fits(own)), (UNDEF, None))
            for nest in self._nests
        ]

    def stand_in(self, name: str, params: list[Node], held: Sequence[Any]) -> Alternatives:
        """What the name is in a round; its inputs are appended to ``params``. ``held``: the objects of all names before
        the loop, which those may be that an earlier round has left."""
        values, self._stand_ins = [], {}
        for number, (nest, (_, before)) in enumerate(zip(self._nests, self._among(self.initial), strict=True)):
            leaves = [leaf.value for leaf in nest.leaves]
            for k, leaf, aval in nest.numeric():
                params.append(param(aval, name))
                if before is not None:
                    note_wide(params[-1], raw(before[k]))
                aliases = () if before is None else aliases_of(before[k], {})
                leaves[k] = merged_tracer(params[-1], leaf.kind, aliases, loose=leaf.loose)
                if leaf.kind.is_array:
                    leaves[k]._cell.entangle(SAME_IN_SOME_BRANCHES)  # an earlier round may have bound it to anything
                if _is_counted(leaf):
                    stand_in(leaves[k], params)
                    self._stand_ins[number, k] = leaves[k]._cell
            values.append(unflatten(nest.structure, leaves))
            current().freeze(containers(values[-1]), among=held)
        flags = [param(FLAG, name) for _ in self._nests[1:]]
        params += flags
        return Alternatives(tuple(values), tuple(fresh(flag)._node for flag in flags))

    def narrow(self, start: Alternatives, final: Any) -> None:
        """Of the objects that stand in for those of earlier rounds it is known now which they may be: those before the
        loop, and what a round leaves."""
        for value, *ends in zip(start.values, self._among(self.initial), self._among(final), strict=True):
            current().freeze_merged(value, [each for each, leaves in ends if leaves is not None], anew=True)

    def nodes(self, value: Any, node_of: Callable[[Any], Node], which_of: Callable[[Any], Which]) -> list[Node]:
        """The same of what a name is before the loop, or what a round leaves."""
        among, nodes = self._among(value), []
        for nest, (_, leaves) in zip(self._nests, among, strict=True):
            for k, leaf, aval in nest.numeric():
                nodes.append(zeros(aval) if leaves is None else coerce(node_of(leaves[k]), aval))
                if _is_counted(leaf):
                    number = const(np.int64(NOBODYS)) if leaves is None else which_of(leaves[k]).number
                    if number is None:
                        raise Escape("a name that rounds bind to several arrays", "how is not known")
                    nodes.append(number)
        flags = [const(False) if nest is UNDEF else flag_in(value, nest) for nest, _ in among[:-1]]
        return [*nodes, *(coerce(flag, FLAG) for flag in flags)]

    def may_be(self, *ends: tuple[Any, Callable[[Any], Which]]) -> dict[Cell, frozenset[Any]]:
        """Of each array that stands in for one of earlier rounds, which ones these may be: those of ``ends``."""
        found: dict[Cell, frozenset[Any]] = dict.fromkeys(self._stand_ins.values(), frozenset())
        for value, which_of in ends:
            among = self._among(value)
            for (number, k), cell in self._stand_ins.items():
                leaves = among[number][1]
                found[cell] |= frozenset() if leaves is None else which_of(leaves[k]).among
        return found

    def behind(
        self, final: Any, results: Iterator[Node], aliases: Callable[[Any], Aliases],
        inside: Mapping[Cell, frozenset[Any]], runs_once: bool,
    ) -> Alternatives:  # fmt: skip
        """What the name is behind the loop: where a round surely runs, what one leaves."""
        values = []
        ends = zip(self._nests, self._among(self.initial), self._among(final), strict=True)
        for number, (nest, one, end) in enumerate(ends):
            leaves, last = [leaf.value for leaf in nest.leaves], end[1]
            for k, leaf, _ in nest.numeric():
                node = next(results)
                is_counted = _is_counted(leaf)
                found = behind_loop(next(results), (self._stand_ins[number, k],), inside) if is_counted else UNKNOWN
                others = aliases(None if last is None else last[k]) if leaf.kind.is_array else ()
                leaves[k] = merged_tracer(node, leaf.kind, others, loose=leaf.loose, which=found)
            values.append(current().remember_all(unflatten(nest.structure, leaves)))
            current().freeze_merged(values[-1], [each for each, found in (one, end) if found is not None])
        flags: list[Any] = [fresh(next(results))._node for _ in self._nests[1:]]
        for k, (_, left) in reversed([*enumerate(self._among(final))] if runs_once else []):
            if left is None:
                del values[k], flags[min(k, len(flags) - 1)]
        return Alternatives(tuple(values), tuple(flags))


def _is_counted(leaf: _Leaf) -> bool:
    """Is it carried which array a leaf is?"""
    return leaf.kind.is_array and current().numbering is not None
