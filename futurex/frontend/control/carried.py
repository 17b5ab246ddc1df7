"""What a staged loop carries: names and cells whose types are widened until they no longer change."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.closing import close
from futurex.frontend.control import alone
from futurex.frontend.control.changing import Objects
from futurex.frontend.control.compact import SPREAD, is_compact
from futurex.frontend.control.either import settled
from futurex.frontend.control.entry import Carried, are_readonly, at_start, known_after_loop, rebound, stays
from futurex.frontend.control.nests import nests_of
from futurex.frontend.control.rounds import FIRST_ROUND, IN_TEST, Round, trace_round
from futurex.frontend.control.values import (
    UNDEF,
    Aliases,
    Get,
    Kind,
    Set,
    State,
    aliases_of,
    bound_flag,
    check_exact,
    coerce,
    common_type,
    is_internal_name,
    is_loose,
    is_numeric,
    kind_of,
    merged_tracer,
    opened,
    raw,
    same_value,
    same_view,
    zeros,
)
from futurex.frontend.errors import Escape, Unfinished
from futurex.frontend.objects import has_state
from futurex.frontend.placeholders import Either
from futurex.frontend.sites import may_be_collected
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, Scope, current, emit_many
from futurex.frontend.tracer import Conflict, Tracer, new_array
from futurex.frontend.which import UNKNOWN, behind_loop, which
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const, next_id
from futurex.tree.pytree import containers, flatten, unflatten

FIXPOINT_ROUNDS = 6
WRITES_SHARED = f"a write into an array that {SAME_IN_SOME_BRANCHES}"


def stage_loop(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get: Get,
    set_: Set,
    names: Sequence[str],
    own: Any,
    *,
    runs_once: bool = False,
    peels: bool = False,
    compact: int = 0,
) -> None:
    """Trace test and body on stand-ins until the types of what they carry no longer change, then build one ``loop``.

    Python objects that the body changes are carried entry by entry. ``own``: the body as it was written. ``peels``:
    where the first round has types of its own, raise an Escape that says so instead of merging types. ``compact``:
    refuse a body with larger arrays than that, or with sizes that only the run knows.
    """
    objects, notes = Objects(get, set_, tuple(names), own), len(current().notes)
    while True:
        try:
            with current().tentative():
                while not _staged(test, body, objects, runs_once, peels, compact):
                    pass
            return
        except Escape as escape:
            if escape.site in (FIRST_ROUND, IN_TEST):
                raise
            if not objects.forget() and (
                escape.what != WRITES_SHARED or not (objects.renew() or objects.part())
            ):
                raise
            del current().notes[notes:]  # of rounds that are traced anew


def _staged(test: Any, body: Any, objects: Objects, runs_once: bool, peels: bool, compact: int) -> bool:
    """Build the loop. False if it has to be tried again, with more objects to carry."""
    before = objects.get()
    carried = [
        rebound(name, value, objects.read_behind(k))
        if k in objects.rebound
        else at_start(name, value, k in objects.moved, k in objects.dead, steady, whole, name in objects.flags)
        for k, (name, value, steady, whole) in enumerate(
            zip(objects.names, before, objects.steady, objects.whole, strict=True)
        )
    ]
    for entry, grows, wide in zip(carried, objects.grow, objects.wider, strict=True):
        entry.grows = grows
        if wide is not None:
            entry.avals = [wide]
    if objects.parted:
        alone.begin(objects, before, carried)
    cells = dict(objects.written)
    try:
        for _ in range(FIXPOINT_ROUNDS + sum(entry.steady for entry in carried)):
            for cell in (cell for entry in carried for cell in alone.storage(entry)):
                cells.pop(cell, None)  # the name has its own in every round
            with _sharing_for_a_round(bool(objects.rebound)):
                round_ = trace_round(test, body, objects, before, carried, cells)
            if round_ is None:
                return False
            objects.views.update(k for k, entry in enumerate(carried) if _is_view(entry, round_.state[k], round_))
            types = {number: list(entry.avals) for number, entry in enumerate(carried) if not entry.unbound}
            settled, state = _settled(carried, cells, before, round_), round_.state
            if peels and any(
                entry.conflict is not None or entry.turns or (not entry.grows and _differ(types.get(k, []), entry))
                for k, entry in enumerate(carried)
                if k not in objects.dead | objects.rebound
            ):
                raise Escape("a variable changes its type", "its first round has types of its own", site=FIRST_ROUND)
            if settled:
                flags = _unknown_flags(carried, before, round_)
                if not objects.is_as_recalled(round_, flags):
                    raise Escape("rounds that change less than another time", "they carry less")
                objects.remember(carried, cells, flags)
                _narrow_stand_ins(carried, before, round_)
                after = _build_loop(round_, carried, cells, before, runs_once, compact)
                objects.note(before)
                objects.put(after)
                for k, entry in enumerate(carried):
                    for cell in alone.storage(entry):
                        alone.give_up(cell, objects.read_behind(k))
                return True
    except Unfinished:  # the loop need not run at all
        objects.put(before)
        return True
    except Escape:
        objects.put(before)
        raise
    objects.put(before)
    objects.note_kinds(before, state)
    raise Escape(
        "a loop whose variables keep changing type",
        "it has no fixed point",
        "give them their final dtype before the loop",
    )


@contextmanager
def _sharing_for_a_round(ends: bool) -> Iterator[None]:
    """What branches of a round make the storage of several names is that for this round alone, if it ``ends``: all
    names that the next one has of it are bound anew before they are read."""
    journals, journal = current().journals, Scope(next_id())
    journals.append(journal)
    try:
        yield
    finally:
        journals.remove(journal)
    for cell in journal.entangled if ends else ():
        if cell.born < journal.start:
            cell.entangled, cell.site = "", None


def _differ(before: list[Aval | None], entry: Carried) -> bool:
    pairs = () if entry.nests is not None else zip(before, entry.avals, strict=False)
    return any(a is not None and a != b and k not in entry.sorts for k, (a, b) in enumerate(pairs))


def _narrow_stand_ins(carried: list[Carried], before: State, round_: Round) -> None:
    """Of the lists, dicts and dataclasses that a name stands for at the start of a round it is known now which they may
    be: those that it had before the loop, and what a round leaves."""
    for entry, first, start, last in zip(carried, before, round_.start, round_.state, strict=True):
        if entry.nests is not None and entry.conflict is None:
            entry.nests.narrow(start.alternatives, last)
        elif start is not UNDEF:
            current().freeze_merged(start, [each for each in (first, last) if each is not UNDEF], anew=True)


def _unknown_flags(carried: list[Carried], before: State, round_: Round) -> list[str]:
    """The flags of the rewriter that are known before the loop, and unknown behind a round."""
    every = zip(carried, before, round_.state, strict=True)
    flags = [(each.name, raw(end)) for each, start, end in every if is_internal_name(each.name) and start is False]
    return [name for name, end in flags if end.op != "const" and end not in round_.params]


def _is_view(entry: Carried, value: Any, round_: Round) -> bool:
    """Does a round bind a name to storage that was there before it, or may be?"""
    if value is UNDEF or entry.moves or entry.conflict is not None:
        return False
    leaves = [leaf for nest in nests_of(value) for leaf in flatten(nest)[0] if isinstance(leaf, Tracer)]
    cells = (cell for leaf in leaves for cell in aliases_of(leaf, round_.owned))
    return any(cell.entangled or cell.born < round_.scope.start for cell in cells)


def _settled(carried: list[Carried], cells: dict[Cell, Aval], initial: State, round_: Round) -> bool:
    """Compare what came out of the body with what went in; widen what is carried where they differ."""
    settled = True
    for cell, value in round_.cells.items():
        if cell not in cells:
            cells[cell] = value.aval
            settled = False
    for entry, before, value in zip(carried, initial, round_.state, strict=True):
        if entry.conflict is None:
            settled &= _settled_or_conflict(entry, before, value, round_)
        if entry.conflict is None and value is not UNDEF and not entry.unbound:
            settled &= _settled_objects(entry, before, value, round_)
        if entry.conflict is None and value is not UNDEF and not entry.unbound:
            settled &= _settled_aliases(entry, value, round_)
    return settled


def _settled_or_conflict(entry: Carried, initial: Any, value: Any, round_: Round) -> bool:
    """Widen what a name carries; where its rounds have nothing in common, nobody may use what another round left."""
    try:
        if entry.nests is not None:
            return not entry.admit(initial, value)
        for each in () if value is initial else (value, initial):
            if type(each) is Conflict:
                raise Escape(each.what, each.why)
        return _settled_name(entry, value, round_)
    except Escape as escape:
        entry.reason = escape.what, escape.why
    try:
        if entry.nests is None:
            return not entry.admit(initial, value)
    except Escape:
        pass
    entry.conflict = Conflict(*entry.reason, FIRST_ROUND)
    return False


def _settled_objects(entry: Carried, before: Any, value: Any, round_: Round) -> bool:
    """Where rounds bind a name to other objects than it was bound to, what it is bound to is put together anew: neither
    that nor what it may be in some round may change in place."""
    first, last = _objects(before), _objects(value)
    if entry.untouched and len(first) == len(last) and all(a is b for a, b in zip(first, last, strict=True)):
        return True
    if any(id(each) in round_.changed for each in (*first, *last)):
        what = f"{entry.name} is bound in a staged loop to an object that the loop changes"
        entry.conflict = Conflict(what, "which one it is depends on data", None)
        return False
    return not current().freeze(each for each in (*first, *last) if id(each) not in round_.scope.born)


def _objects(value: Any) -> list[Any]:
    """Python's objects in what a name may be."""
    nests = () if value is UNDEF else nests_of(value)
    return [each for nest in nests for each in (*containers(nest), *filter(has_state, flatten(nest)[0]))]


def _settled_aliases(entry: Carried, value: Any, round_: Round) -> bool:
    """What a round binds a name to may be other names' storage: then the next round may not write there.

    Storage that the round made is new in every round; the next one has stand-ins for it.
    """
    if entry.moves:
        return True
    leaves = [leaf for nest in nests_of(value) for leaf in flatten(nest)[0]]
    apart = alone.settled(entry, leaves, round_.owned)
    left = leaves if entry.nests is not None else [leaves[k] for k in entry.places()]
    cells = [cell for leaf in left if is_numeric(leaf) for cell in aliases_of(leaf, round_.owned)]
    found = [cell for cell in cells if cell.entangle(SAME_IN_SOME_BRANCHES)]
    return apart and all(cell.born >= round_.scope.start for cell in found)


def _settled_name(entry: Carried, value: Any, round_: Round) -> bool:
    if entry.unbound:
        return not _becomes_carried(entry, value)
    if entry.whole:
        return True
    if value is UNDEF:
        raise Escape(f"{entry.name} is deleted in a staged loop", "whether it exists would depend on data")
    leaves, structure = entry.parts(value)
    if entry.moves and id(value) not in round_.scope.born:
        raise Escape(f"{entry.name} becomes another name's list in a staged loop", "which list it is depends on data")
    if structure != entry.structure:
        raise Escape(f"{entry.name} changes its structure in a staged loop", f"{entry.structure} becomes {structure}")
    found = [_settled_leaf(entry, position, leaf) for position, leaf in enumerate(leaves)]
    return all(found)


def _settled_leaf(entry: Carried, position: int, leaf: Any) -> bool:
    """Where rounds leave numbers of several types, None or texts, what it is is carried, too."""
    if position in entry.sorts:
        return not entry.widen(position, leaf)
    try:
        return _settled_one(entry, position, leaf)
    except Escape as escape:
        entry.reason = escape.what, escape.why
        try:
            return not entry.widen(position, leaf)
        except Escape:
            raise escape from None


def _settled_one(entry: Carried, position: int, leaf: Any) -> bool:
    aval, before = entry.avals[position], entry.leaves[position]
    if type(leaf) is Either or type(leaf) is Conflict:  # what it is nobody asks between two rounds, whose flags say it
        raise Escape(leaf.what, leaf.why)
    if aval is None and stays(before):
        if not same_view(leaf, before):
            entry.avals[position] = before.aval
            return False
        return True
    if aval is None:
        if leaf is before or (not isinstance(leaf, Tracer) and same_value(leaf, before)):
            return True
        if not (entry.steady and is_numeric(leaf)):
            raise Escape(f"{entry.name} changes in a staged loop and is not an array or a number", kind_of(leaf))
        check_exact(raw(before).aval, raw(leaf).aval, entry.name)
        entry.avals[position] = common_type(raw(before).aval, raw(leaf).aval, entry.name)
        entry.loose[position] = is_loose(before, leaf)
        return False
    kind = Kind.of(leaf)
    if kind.is_array != entry.arrays[position]:
        raise Escape(f"{entry.name} is an array in one round and a scalar in another", "one node has one type")
    if kind.readonly != (position in entry.readonly):
        raise Escape(f"{entry.name} is read-only in one round and not in another", "one node has one type")
    check_exact(aval, raw(leaf).aval, entry.name)
    wide = common_type(aval, raw(leaf).aval, entry.name)
    loose = entry.loose[position] or is_loose(leaf) or wide.weak != raw(leaf).aval.weak or wide.weak != aval.weak
    if wide != aval or loose != entry.loose[position]:
        wide = opened(wide) if entry.grows else wide  # its extents are others in every round
        entry.avals[position], entry.loose[position] = wide, loose
        return False
    return True


def _becomes_carried(entry: Carried, value: Any) -> bool:
    """A name first bound in the body: carry it from now on, with flags that say whether it is bound."""
    if value is UNDEF:
        return False
    leaves, structure = flatten(value)
    if not any(is_numeric(leaf) for leaf in leaves) or not (
        all(is_numeric(leaf) for leaf in leaves) or is_internal_name(entry.name)
    ):
        return False
    entry.structure = structure
    entry.leaves = [zeros(raw(leaf).aval) if is_numeric(leaf) else leaf for leaf in leaves]
    entry.avals = [opened(raw(leaf).aval) if is_numeric(leaf) else None for leaf in leaves]
    entry.flags = [None if is_internal_name(entry.name) else const(False) for _ in leaves]
    entry.arrays = [is_numeric(leaf) and Kind.of(leaf).is_array for leaf in leaves]
    entry.loose = [is_numeric(leaf) and is_loose(leaf) for leaf in leaves]
    entry.readonly = are_readonly(leaves)
    return True


def _build_loop(
    round_: Round, carried: list[Carried], cells: dict[Cell, Aval], before: State, runs_once: bool, compact: int
) -> State:
    """The loop node; returns the state after it."""
    starts: list[Node] = []
    outs: list[Node] = []
    inside: dict[Cell, frozenset[Any]] = {}  # what the stand-ins of rounds may be
    for entry, final in zip(carried, round_.state, strict=True):
        if entry.untouched:
            continue
        if entry.nests is not None:
            before_it = partial(which, owned={}, start=round_.scope.start)
            starts += entry.nests.nodes(entry.nests.initial, raw, before_it)
            outs += entry.nests.nodes(final, round_.node, round_.number)
            inside |= entry.nests.may_be((entry.nests.initial, before_it), (final, round_.number))
            continue
        leaves, _ = entry.parts(final)
        for k in entry.places():
            aval, flag = entry.avals[k], entry.flags[k]
            assert aval is not None
            starts.append(coerce(_start(entry.leaves[k]), aval))
            outs.append(coerce(round_.node(leaves[k]), aval))
            end = bound_flag(leaves[k])
            if flag is not None:
                starts.append(flag)
                outs.append(const(True) if end is None else end)
            elif end is not None and not is_internal_name(entry.name):
                raise Escape(
                    f"{entry.name} may be unbound at the end of a loop that it enters bound",
                    "it is deleted in some branch",
                )
            if entry.is_counted(k):
                first, last = which(entry.leaves[k], {}, round_.scope.start), round_.which[id(leaves[k])]
                if first.number is None or last.number is None:
                    raise Escape(f"{entry.name}, which rounds bind to several arrays", "how is not known")
                starts.append(first.number)
                outs.append(last.number)
                inside[entry.stand_ins[k]] = first.among | last.among
        for k, sorts in entry.sorts.items():
            starts += sorts.nodes(entry.leaves[k], raw)
            outs += sorts.nodes(leaves[k], raw)
    for each in inside:
        each.which = behind_loop(each.which.number, (each,), inside)
    params = round_.params
    for cell in cells:
        starts.append(cell.value)
        outs.append(round_.cells[cell])
    if round_.effects:
        starts.append(*(current().before() or [const(np.True_)]))
        outs.append(round_.effects[-1])
        params = [*params, round_.token]
    (test_graph, body_graph), free = close(
        [[round_.test], outs], [params, params], round_.scope.start, ["test", "body"]
    )
    if compact and not is_compact(body_graph, compact):
        raise Escape(SPREAD, "its rounds run better one by one")
    results = iter(emit_many("loop", *starts, *free, test=test_graph, body=body_graph, tape=()) if starts else [])
    state = tuple(
        _after_loop(entry, original, final, results, round_, carried, inside, runs_once)
        for entry, original, final in zip(carried, before, round_.state, strict=True)
    )
    for cell in cells:
        cell.settle(next(results))
    if round_.effects:
        current().keep(next(results))
    return state


def _start(leaf: Any) -> Node:
    return leaf if isinstance(leaf, Node) else raw(leaf)


def _after_loop(
    entry: Carried,
    original: Any,
    final: Any,
    results: Any,
    round_: Round,
    carried: list[Carried],
    inside: dict[Cell, frozenset[Any]],
    runs_once: bool,
) -> Any:
    if entry.unbound and final is not UNDEF and entry.conflict is None:
        return known_after_loop(entry, final, runs_once, round_.scope.born)
    if entry.untouched:
        behind = entry.conflict if entry.behind is None else entry.behind
        return _same_leaves(original, final) if behind is None else behind

    def others(last: Any) -> Aliases:
        """The storage of other names that may be what a round has left, or what the name was before the loop."""
        cell = last._cell if isinstance(last, Tracer) else None
        if cell is not None and (cell in round_.stand_ins or cell.entangled):  # it may be what an earlier round left
            initial = [cell for each in carried for cell in _initial_aliases(each)]  # names may have changed places
        else:
            initial = [] if runs_once else _initial_aliases(entry)
        return (*aliases_of(last, round_.owned), *initial)

    if entry.nests is not None:
        one_of = entry.nests.behind(final, results, others, inside, runs_once)
        return settled(Conflict(*entry.reason, FIRST_ROUND, None, one_of))
    finals, _ = entry.parts(final)
    leaves = list(entry.leaves)
    for k in entry.places():
        node = next(results)
        if entry.moves:
            leaves[k] = new_array(node)
            continue
        bound = next(results) if entry.flags[k] is not None else None
        if runs_once and bound_flag(finals[k]) is None:
            bound = None  # the body binds it whenever it runs, and it runs
        if k in entry.alone:
            leaves[k] = merged_tracer(node, entry.kind(k), (), name=entry.name)
            continue
        aliases, found = others(finals[k]), UNKNOWN
        if entry.is_counted(k):
            last_one = round_.which[id(finals[k])].among
            found = behind_loop(next(results), last_one if runs_once else (entry.stand_ins[k],), inside)
        site, kind = None if entry.loose[k] else may_be_collected(aliases), entry.kind(k)
        leaves[k] = merged_tracer(node, kind, aliases, bound, entry.name, entry.loose[k], site, found)
    for k, avals in entry.avals_of_sorts():
        only = (finals[k],) if runs_once else ()
        leaves[k] = entry.sorts[k].made([next(results) for _ in avals], *entry.reason, *only)
    value = unflatten(entry.structure, leaves)
    nests = [nest for state in round_.state if state is not UNDEF for nest in nests_of(state)]
    held = Counter(id(each) for nest in nests for each in containers(nest))
    shared = [id(each) not in round_.scope.born or held[id(each)] > 1 for each in containers(final)]
    if not runs_once or any(shared) or any(id(each) in current().frozen for each in containers(final)):
        current().freeze_merged(value, [final] if runs_once or original is UNDEF else [original, final])
    return value if entry.structure.kind is None else current().remember_all(value)


def _same_leaves(original: Any, final: Any) -> Any:
    """What a name is bound to of which rounds left the leaves alone; they may have put them into other objects."""
    if original is UNDEF or final is UNDEF or all(map(operator.is_, containers(original), containers(final))):
        return original
    leaves, structure = flatten(original)
    value = unflatten(structure, leaves)
    current().freeze_merged(value, [original, final])
    return current().remember_all(value)


def _initial_aliases(entry: Carried) -> list[Cell]:
    """The storage of what a name is bound to before the loop."""
    leaves = [entry.leaves[k] for k in entry.places()]
    if entry.nests is not None:
        leaves = [leaf for nest in nests_of(entry.nests.initial) for leaf in flatten(nest)[0] if is_numeric(leaf)]
    return [cell for leaf in leaves if not isinstance(leaf, Node) for cell in aliases_of(leaf, {})]
