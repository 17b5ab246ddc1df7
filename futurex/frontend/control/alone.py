"""Arrays that rounds of a loop write, and bind to a new one: of which a name alone knows.

``u += f`` and then ``u = smoothed(u)``: in a round, ``u`` is what an earlier one has made, or what it was before the
loop. A write there would change another name's array where that is one of these. Each round leaves the name an array
that no other name has, which is seen when it is traced. That nobody else has what it was before the loop is only taken
to be so: who looks at that in the loop or behind it is refused, and another trace does without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from futurex.frontend.cells import Cell
from futurex.frontend.control.values import UNDEF, State, aliases_of, raw
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer
from futurex.tree.pytree import flatten

if TYPE_CHECKING:
    from futurex.frontend.control.changing import Objects
    from futurex.frontend.control.entry import Carried


def begin(objects: Objects, before: State, carried: Sequence[Carried]) -> None:
    """Carry such names from the first tracing on, in storage of their own, and an object's attributes from the one on
    that shows that rounds bind them."""
    leaves = [leaf for value in before if value is not UNDEF for leaf in flatten(value)[0]]
    held = Counter(leaf._cell for leaf in leaves if isinstance(leaf, Tracer))
    for number, entry in enumerate(carried):
        if entry.whole or entry.moves or entry.grows or entry.conflict is not None or entry.unbound:
            continue
        if objects.read_behind(number) in current().loops:
            continue
        for k, leaf in enumerate(entry.leaves):
            if entry.arrays[k] and entry.flags[k] is None and not entry.loose[k] and _is_own(leaf, held):
                entry.alone[k] = leaf._cell
                if entry.avals[k] is None and not entry.steady:
                    entry.avals[k] = raw(leaf).aval


def _is_own(leaf: Any, held: Counter[Cell]) -> bool:
    """Was it made in this round, branch or call, for nobody else as far as names tell?"""
    if type(leaf) is not Tracer or leaf.is_scalar or leaf._readonly:
        return False
    trace, cell = current(), leaf._cell
    start = trace.scopes[-1].start if trace.scopes else 0
    made_here = cell.origin is None and cell.born >= start and cell not in trace.futures
    return made_here and held[cell] == 1 and not (cell.frozen or cell.entangled or cell.unread)


def storage(entry: Carried) -> list[Cell]:
    """What such arrays were before the loop, of those that are carried."""
    return [] if entry.untouched else [cell for k, cell in entry.alone.items() if entry.avals[k] is not None]


@contextmanager
def unread(carried: Sequence[Carried]) -> Iterator[None]:
    """While a round is traced nobody may look at what such names were before the loop."""
    cells = [cell for entry in carried for cell in storage(entry)]
    for cell in cells:
        cell.unread = _refuse
    try:
        yield
    finally:
        for cell in cells:
            cell.unread = None


def _refuse() -> None:
    raise Escape("an array that rounds write and bind anew, and that another name has", "what it is depends on data")


def settled(entry: Carried, leaves: Sequence[Any], owned: dict[Cell, int]) -> bool:
    """Does a round leave such a name an array that no other name has? False if another round has to be traced."""
    lost = [k for k in entry.alone if entry.avals[k] is not None and not _is_left_alone(leaves[k], owned)]
    for k in lost:
        del entry.alone[k]
    return not lost


def _is_left_alone(leaf: Any, owned: dict[Cell, int]) -> bool:
    writable = type(leaf) is Tracer and not (leaf._readonly or leaf._cell.frozen)
    return writable and not aliases_of(leaf, owned)


def give_up(cell: Cell, read_behind: tuple[str, str]) -> None:
    """The loop is built: nobody may look behind it at what a name was before."""
    known = current().loops

    def told() -> None:
        known.add(read_behind)
        raise Retrace

    def undo(cell: Cell = cell, before: Callable[[], None] | None = cell.unread) -> None:
        cell.unread = before

    cell.unread = told
    current().regions[-1].undo.append(undo)
