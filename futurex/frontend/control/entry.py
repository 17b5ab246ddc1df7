"""One name of what a staged loop carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from futurex.frontend.cells import Cell
from futurex.frontend.control.either import Sorts
from futurex.frontend.control.moved import taken_apart
from futurex.frontend.control.nests import Nests
from futurex.frontend.control.values import (
    UNDEF,
    Kind,
    bound_flag,
    is_internal_name,
    is_loose,
    is_numeric,
    raw,
)
from futurex.frontend.errors import Escape
from futurex.frontend.placeholders import Either, Placeholder
from futurex.frontend.trace import current
from futurex.frontend.tracer import Conflict, Tracer
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, containers, flatten


@dataclass
class Carried:
    """One name of the loop's state: its initial leaves, and what the loop carries of them.

    A name that is not bound before the loop becomes carried once the body has shown its type; ``flags`` says for each
    leaf the node that tells whether it is bound at the start (None: it surely is).
    """

    name: str
    structure: Structure
    leaves: list[Any]
    avals: list[Aval | None]  # None: not carried, stays as it is
    flags: list[Node | None]
    arrays: list[bool]
    loose: list[bool]
    readonly: set[int] = field(default_factory=set)  # arrays that NumPy lets nobody write into
    conflict: Conflict | None = None  # rounds leave behind what cannot be one thing: nobody may use it
    grows: bool = False  # an array that is meant to have other extents in every round
    whole: bool = False  # a list, dict or tuple that stays the one that it is
    steady: bool = False  # a number that stays known until a round shows otherwise
    moves: bool = False  # a traced list, of which rounds leave another one: its rows are carried
    behind: Conflict | None = None  # what the name is bound to behind the loop, where that is known to be another one
    stand_ins: dict[int, Cell] = field(default_factory=dict)  # of leaves whose numbers are carried, in a round
    alone: dict[int, Cell] = field(default_factory=dict)  # arrays of its own alone, and their storage before the loop
    sorts: dict[int, Sorts] = field(default_factory=dict)  # leaves that are one of several things, as the run tells
    nests: Nests | None = None  # what it is one of, as the run tells, instead of one nest
    turns: bool = False  # a round left surely another one of them than it found
    reason: tuple[str, str] = "", ""  # why they are no one thing

    @property
    def unbound(self) -> bool:
        """Not bound before the loop, and not (yet) carried."""
        return len(self.leaves) == 1 and self.leaves[0] is UNDEF

    @property
    def untouched(self) -> bool:
        return self.conflict is not None or not (self.sorts or self.nests or self.places())

    def is_counted(self, k: int) -> bool:
        """Is it carried which array a leaf is?"""
        return self.arrays[k] and not self.moves and current().numbering is not None

    def kind(self, k: int) -> Kind:
        return Kind(self.arrays[k], readonly=k in self.readonly)

    def places(self) -> list[int]:
        return [k for k, aval in enumerate(self.avals) if aval is not None]

    def avals_of_sorts(self) -> list[tuple[int, list[Aval]]]:
        """What is carried of leaves that are one of several things."""
        return [(k, sorts.avals()) for k, sorts in self.sorts.items()]

    def widen(self, k: int, leaf: Any) -> bool:
        """A leaf may be what a round leaves of it, too. True if that is new. Raises Escape."""
        if k in self.sorts:
            return self.sorts[k].admit(leaf)
        if self.flags[k] is not None:
            raise Escape(*self.reason)
        self.sorts[k] = Sorts(self.leaves[k])
        self.sorts[k].admit(leaf, but=self.leaves[k])  # what the round was given for that is not what others are given
        self.turns |= type(leaf) is not Either and type(self.leaves[k]) is not Either
        self.avals[k], self.loose[k] = None, False
        self.alone.pop(k, None)
        return True

    def admit(self, initial: Any, value: Any) -> bool:
        """The name may be what a round leaves, too, of which it is one of several. True if that is new. Raises Escape.
        """
        if self.nests is None:
            is_one = not (self.unbound or self.whole or self.moves or self.grows or is_internal_name(self.name))
            if not is_one or any(flag is not None for flag in self.flags):
                raise Escape(*self.reason)
            nests = Nests(initial)
            nests.admit(value)
            self.nests = nests
            self.turns |= type(value) is not Conflict and type(initial) is not Conflict
            self.avals, self.sorts = [None for _ in self.avals], {}
            self.alone.clear()
            return True
        return self.nests.admit(value)

    def parts(self, value: Any) -> tuple[list[Any], Structure]:
        """The leaves of what a round leaves behind."""
        return taken_apart(value) if self.moves else flatten(value)


def at_start(name: str, value: Any, moves: bool, dead: bool, steady: bool, whole: bool, unknown: bool) -> Carried:
    if whole:
        return Carried(name, Structure(None), [value], [None], [None], [False], [False], whole=True)
    if dead:
        conflict = Conflict(f"{name}, which rounds bind to the list of another name", "it is read before", None)
        return Carried(name, Structure(None), [value], [None], [None], [False], [False], conflict=conflict)
    if moves:
        rows, structure = taken_apart(value)
        avals, every = [raw(leaf).aval for leaf in rows], [False] * len(rows)
        arrays, flags = [True] * len(rows), [None] * len(rows)
        return Carried(name, structure, rows, [*avals], [*flags], arrays, every, grows=True, moves=True)
    if value is UNDEF:
        return Carried(name, Structure(None), [UNDEF], [None], [None], [False], [False])
    leaves, structure = flatten(value)
    steady &= len(leaves) == 1 and is_numeric(leaves[0]) and bound_flag(leaves[0]) is None
    steady |= is_internal_name(name) and isinstance(value, bool) and not unknown
    avals = [raw(leaf).aval if is_numeric(leaf) and not stays(leaf) and not steady else None for leaf in leaves]
    arrays = [is_numeric(leaf) and Kind.of(leaf).is_array for leaf in leaves]
    loose = [is_numeric(leaf) and is_loose(leaf) for leaf in leaves]
    bound, readonly = [bound_flag(leaf) for leaf in leaves], are_readonly(leaves)
    return Carried(name, structure, leaves, [*avals], bound, arrays, loose, readonly, steady=steady)


def are_readonly(leaves: list[Any]) -> set[int]:
    return {k for k, leaf in enumerate(leaves) if is_numeric(leaf) and Kind.of(leaf).readonly}


def rebound(name: str, value: Any, read_behind: tuple[str, str]) -> Carried:
    """A name that each round binds anew: nobody may use what an earlier round has left."""
    known = current().loops
    behind = Conflict(f"{name}, as a loop leaves it", "", None, lambda: known.add(read_behind))
    conflict = Conflict(f"{name}, as an earlier round left it", "what it shares its elements with is not known", None)
    return Carried(name, Structure(None), [value], [None], [None], [False], [False], conflict=conflict, behind=behind)


def stays(leaf: Any) -> bool:
    """Arrays are thought to stay the same ones, with changing contents, until the body shows otherwise."""
    return isinstance(leaf, Tracer) and not leaf.is_scalar and bound_flag(leaf) is None


def known_after_loop(entry: Carried, final: Any, runs_once: bool, born: dict[int, Any]) -> Any:
    """A name first bound in the body, to what is no array and no number: the same in every round."""
    leaves, _ = flatten(final)
    traced = any(
        isinstance(leaf, Tracer | Placeholder) or hasattr(type(leaf), "__fx_traced__") or id(leaf) in born
        for leaf in leaves
    )  # an object that a round made may hold what is traced
    if not traced and (runs_once or is_internal_name(entry.name)):
        current().freeze(containers(final))
        return final
    return Conflict(f"{entry.name}, which a loop binds", "it may be unbound, or changes from round to round", None)
