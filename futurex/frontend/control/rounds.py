"""One tracing of a loop's test and body, on what stands for the names that the loop carries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import facts
from futurex.frontend.cells import Cell
from futurex.frontend.control import alone
from futurex.frontend.control.changing import Objects
from futurex.frontend.control.either import settled
from futurex.frontend.control.entry import Carried
from futurex.frontend.control.nests import nests_of
from futurex.frontend.control.values import (
    UNDEF,
    State,
    aliases_of,
    is_numeric,
    merged_tracer,
    owned_cells,
    raw,
    truth,
    values_now,
)
from futurex.frontend.errors import Escape
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, Scope, current
from futurex.frontend.tracer import Conflict, new_array
from futurex.frontend.which import Which, stand_in, which
from futurex.frontend.wide import note_wide
from futurex.tree.aval import Aval
from futurex.tree.node import Node, param
from futurex.tree.pytree import containers, flatten, unflatten

FIRST_ROUND = object()  # the site of an Escape that would not happen if the first round stood before the loop
IN_TEST = object()  # the same, if the test stood before the loop and at the end of each round


@dataclass
class Round:
    """One tracing of test and body."""

    scope: Scope
    params: list[Node]
    test: Node
    start: State
    state: State
    cells: dict[Cell, Node]
    nodes: dict[int, Node]
    which: dict[int, Which]
    owned: dict[Cell, int]
    token: Node
    effects: list[Node]
    stand_ins: set[Cell]  # the storage that names stand for at the start of a round
    changed: set[int]  # Python's objects that it changes in place

    def node(self, leaf: Any) -> Node:
        """What a leaf is at its end."""
        found = self.nodes.get(id(leaf))
        return raw(leaf) if found is None else found

    def number(self, leaf: Any) -> Which:
        """Which array a leaf is at its end."""
        return self.which[id(leaf)]


def trace_round(
    test: Any, body: Any, objects: Objects, before: State, carried: list[Carried], cells: dict[Cell, Aval]
) -> Round | None:
    """One round on stand-ins. None if it changed objects that are not carried yet."""
    with current().scope() as scope, ExitStack() as around:
        params: list[Node] = []
        given = {id(before[k]) for k in objects.moved | objects.dead}
        objects.give_up(before)
        scope.lent = objects.held()
        held = [each for value in before if value is not UNDEF for each in containers(value)]
        stand_ins = (_stand_in(entry, value, params, held) for entry, value in zip(carried, before, strict=True))
        objects.put(tuple(stand_ins))
        start = objects.get()
        storage = set(owned_cells([nest for value in start for nest in nests_of(value)], scope.start))
        for cell, aval in cells.items():
            params.append(param(aval, "array"))
            scope.journal[cell] = cell.value
            cell.restore(params[-1])
        around.enter_context(alone.unread(carried))
        numbering = current().numbering
        scope.clock = None if numbering is None else numbering.round()
        token = param(Aval((), np.dtype(bool)), "done")
        tested = truth(test())
        facts.learn(tested, True)
        if scope.effects:
            raise Escape(
                "a check or print in the test of a staged loop", "it would not run after the last round", site=IN_TEST
            )
        scope.effects.append(token)  # what a round checks or prints comes after the rounds before
        try:
            body()
        except Escape:
            raise
        except Exception as error:
            what = f"{type(error).__name__} in a staged loop: {error}"
            raise Escape(what, "it may belong to the trace, not to the run") from error
        new = objects.found(scope.state, given)
        after = tuple(map(settled, objects.get()))
        again = objects.moves(before, after) or objects.binds(before, after)
        again = again or objects.dies(carried, before, start, after)
        written = {cell: cell.value for cell in scope.journal}
        if new and not again:
            objects.learn(scope.state, new, written)
        left = [nest for value in after for nest in nests_of(value)]
        nodes = values_now(left)
        owned = owned_cells(left, scope.start)
        numbers = _numbers(left, owned, scope.start)
        current().settle_failing([*nodes.values(), *written.values(), tested])
    objects.put(before)
    if new or again:
        objects.add({key: value for key, value in new.items() if not again})
        return None
    effects, changed = scope.effects[1:], set(scope.state)
    return Round(scope, params, tested, start, after, written, nodes, numbers, owned, token, effects, storage, changed)


def _numbers(state: Sequence[Any], owned: dict[Cell, int], start: int) -> dict[int, Which]:
    """Which arrays a round leaves behind, by the identity of the leaves."""
    leaves = [leaf for value in state if value is not UNDEF for leaf in flatten(value)[0] if is_numeric(leaf)]
    return {} if current().numbering is None else {id(leaf): which(leaf, owned, start) for leaf in leaves}


def _stand_in(entry: Carried, original: Any, params: list[Node], held: list[Any]) -> Any:
    """What a name is bound to while the body is traced; its inputs are appended to ``params``. ``held``: the lists,
    dicts and dataclasses of all names before the loop."""
    if entry.untouched:
        return original if entry.conflict is None else entry.conflict
    if entry.nests is not None:
        return Conflict(*entry.reason, FIRST_ROUND, None, entry.nests.stand_in(entry.name, params, held))
    leaves = list(entry.leaves)
    for k in entry.places():
        aval = entry.avals[k]
        assert aval is not None
        params.append(param(aval, entry.name))
        value, bound = params[-1], None
        note_wide(value, raw(entry.leaves[k]))
        if entry.moves:
            leaves[k] = new_array(value)
            continue
        if entry.flags[k] is not None:
            params.append(param(Aval((), np.dtype(bool), weak=True), "bound"))
            bound = params[-1]
        leaf, kind = entry.leaves[k], entry.kind(k)
        aliases = () if isinstance(leaf, Node) or k in entry.alone else aliases_of(leaf, {})
        leaves[k] = merged_tracer(value, kind, aliases, bound, entry.name, entry.loose[k])
        if kind.is_array and k not in entry.alone:
            leaves[k]._cell.entangle(SAME_IN_SOME_BRANCHES)  # what an earlier round bound the name to may be anything
        if entry.is_counted(k):
            stand_in(leaves[k], params)
            entry.stand_ins[k] = leaves[k]._cell
    for k, avals in entry.avals_of_sorts():
        params += (param(aval, entry.name) for aval in avals)
        leaves[k] = entry.sorts[k].made(params[len(params) - len(avals) :], *entry.reason)
    made = unflatten(entry.structure, leaves)
    current().freeze(containers(made), among=held)
    return made
