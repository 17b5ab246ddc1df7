"""``if`` on traced values: both branches are traced, and what they leave behind becomes one ``cond``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import facts
from futurex.frontend.cells import Cell
from futurex.frontend.closing import close
from futurex.frontend.control.either import MOST, Sorts, settled
from futurex.frontend.control.moved import alike, columns, give_up, is_list, is_usable, taken_apart
from futurex.frontend.control.nests import all_nests, flag_in, may_be_one, nests_of, refuse_objects, refuse_unbound
from futurex.frontend.control.paths import IN_BRANCH, next_site
from futurex.frontend.control.values import (
    UNDEF,
    Get,
    Kind,
    Set,
    State,
    aliases_of,
    asked,
    bound_flag,
    check_exact,
    coerce,
    common_type,
    is_internal_name,
    is_loose,
    is_numeric,
    is_unknown,
    kind_of,
    merged_tracer,
    owned_cells,
    raw,
    same_value,
    same_view,
    truth,
    values_now,
    zeros,
)
from futurex.frontend.errors import Escape, Unfinished, is_own
from futurex.frontend.lists import TracedList
from futurex.frontend.made_lists import note_growth
from futurex.frontend.objects import Contents, describe, entries_of, fill, has_state
from futurex.frontend.placeholders import Alternatives, Either
from futurex.frontend.raised import failure_of, is_as_made
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import Conflict, Tracer, new_array
from futurex.frontend.which import UNKNOWN, Which, which
from futurex.ops.control import Failure
from futurex.tree.node import Node, const
from futurex.tree.pytree import Structure, containers, flatten, unflatten
from futurex.tree.source import Source, at, here, raised_at


@dataclass
class _Branch:
    """What one traced branch did."""

    state: State
    result: Any
    owned: dict[Cell, int]
    nodes: dict[int, Node]
    cells: dict[Cell, Node]
    objects: Contents
    effects: list[Node]
    start: int
    born: dict[int, Any]
    held: dict[int, int]  # how often each of Python's objects stands in what the branch leaves behind
    rows: dict[int, tuple[list[Any], Structure]]  # what the traced lists among these hold
    failure: tuple[Failure, list[Node], Source | None] | None = None  # an exception, the values in it, and its line


def if_(
    test: Any, then: Callable[[], Any], orelse: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...],
    learns: bool = True,
) -> Any:  # fmt: skip
    """An ``if`` statement; returns what the branch functions return (a ``return`` in tail position). ``learns``: the
    branches know from the beginning how the test came out; paths come to that where they meet it."""
    test = asked(test)
    if not is_unknown(test):
        return then() if test else orelse()
    pred = truth(test)
    then = _handling(then) if pred in current().attempted else then
    site, known = next_site(pred), facts.known(pred)
    if site is not None and site.outcome is not None:
        known = site.outcome
        facts.learn(pred, known)
    if known is not None:
        return then() if known else orelse()
    before = get()
    try:
        try:
            taken = _trace_branch(then, get, set_, before, (pred, True) if learns else None)
        except Unfinished:
            set_(before)
            return orelse()
        try:
            other = _trace_branch(orelse, get, set_, before, (pred, False) if learns else None)
        except Unfinished:
            set_(before)
            return then()
    except Escape as escape:
        set_(before)
        if site is not None and escape.site is IN_BRANCH:
            site.fork(escape)
        raise
    if taken.failure or other.failure:
        if current().protected or current().protects_linear or _is_caught(taken) or _is_caught(other):
            inside = Escape("a test on data in front of an exception in a try statement", "its handlers are Python's")
            inside.site = IN_BRANCH
            if site is not None:
                site.fork(inside)
            raise inside
        return _raising_branch(pred, taken, other, then, orelse)
    try:
        merged = _merge(site or IN_BRANCH, pred, taken, other, [*names, RESULT])
    except Escape as escape:
        escape.site = IN_BRANCH
        if site is not None and not (site.path.is_round and isinstance(escape, _Growth)):
            site.fork(escape)
        raise
    set_(tuple(merged[:-1]))
    return merged[-1]


def _handling(run: Callable[[], Any]) -> Callable[[], Any]:
    """A branch that is the handler of a LinAlgError."""

    def handle() -> Any:
        trace = current()
        trace.handles += 1
        try:
            return run()
        finally:
            trace.handles -= 1

    return handle


def _is_caught(branch: _Branch) -> bool:
    """Does it raise what a handler around it is for, although operations raise none of that?"""
    return branch.failure is not None and issubclass(branch.failure[0].kind, tuple(current().caught))


def _trace_branch(
    run: Callable[[], Any], get: Get, set_: Set, before: State, fact: tuple[Node, bool] | None
) -> _Branch:
    failure, result = None, None
    before_it = current().before()
    with current().scope() as scope:
        scope.effects.extend(before_it)
        if fact is not None:
            facts.learn(*fact)
        try:
            result = settled(run())
        except Escape:
            raise
        except Exception as error:
            if not is_own(error):
                raise Escape(
                    f"{type(error).__name__} in a branch: {error}", "it may belong to the trace, not to the run"
                ) from error
            failure = *failure_of(error), raised_at(error) or here()
            if current().handles or not is_as_made(error):
                current().waits = True  # run again as plain NumPy it is the program's own
        state = tuple(now if now is then else settled(now) for now, then in zip(get(), before, strict=True))
        _read_names(result)
        own = {id(cell) for cell in get.__closure__ or ()}  # the names of the statement itself
        objects = {key: (value, entries_of(value)) for key, (value, _) in scope.state.items() if key not in own}
        nests = [nest for value in (*state, result) for nest in all_nests(value)]
        values = (*nests, *(entry for _, entries in objects.values() for entry in entries.values()))
        owned = owned_cells(values, scope.start)
        nodes = values_now(values)
        cells = {cell: cell.value for cell in scope.journal}
        current().settle_failing([*nodes.values(), *cells.values()])
        effects = scope.effects[len(before_it) :]
        found = [each for value in values if value is not UNDEF for each in _objects(value)]
        held = Counter(map(id, found))
        rows = {id(each): taken_apart(each) for each in found if isinstance(each, TracedList) and is_usable(each)}
    set_(before)
    return _Branch(state, result, owned, nodes, cells, objects, effects, scope.start, scope.born, held, rows, failure)


def _read_names(result: Any) -> None:
    """What a branch returns has been read there: names that may be unbound are checked."""
    for leaf in flatten(result)[0]:
        if bound_flag(leaf) is not None:
            current().check_bound(*leaf._guard)


def _objects(value: Any) -> list[Any]:
    """All of Python's objects in a nest that somebody could change."""
    leaves, _ = flatten(value)
    return [*containers(value), *(leaf for leaf in leaves if isinstance(leaf, TracedList) or has_state(leaf))]


def _raising_branch(
    pred: Node, taken: _Branch, other: _Branch, then: Callable[[], Any], orelse: Callable[[], Any]
) -> Any:
    """One branch only raises: check the test, then go on with the other. What a raising branch wrote is lost with it,

    but for the caller's arrays: a call that writes them and fails is run again as plain NumPy.
    """
    branch = taken if taken.failure else other
    assert branch.failure is not None
    if any(cell.origin is not None for cell in branch.cells):
        raise Escape("a branch that writes an argument and then raises", "the write would be lost")
    failure, values, source = branch.failure
    # What stands before the exception, or is computed for its message, belongs to the branch.
    if branch.effects or not all(_stands_outside(value, branch.start) for value in values):
        before = current().before()
        with current().scope() as scope:
            scope.effects.extend(branch.effects or before)
            with at(source):
                current().effect("check", const(False), *values, failure=failure)
        first, second = [scope.effects[-1]], before or [const(np.True_)]
        outs = _cond(pred, *((first, second) if taken.failure else (second, first)), branch.start)
        current().keep(outs[0])
    else:
        with at(source):
            current().effect("check", emit("logical_not", pred) if taken.failure else pred, *values, failure=failure)
    return orelse() if taken.failure else then()


def _stands_outside(value: Node, start: int) -> bool:
    """Is it computed before a branch? Constants and extents are no work."""
    if value.id < start or value.op == "const":
        return True
    return value.op == "dim" and all(source.id < start for source in value.inputs)


def _merge(site: Any, pred: Node, taken: _Branch, other: _Branch, names: Sequence[str]) -> list[Any]:
    """Names, result, cells and objects of two branches as outputs of one ``cond``."""
    builder = _Outputs(taken, other, site, {name for name in names if name == RESULT or not is_internal_name(name)})
    plans = []
    for name, a, b in zip(names, (*taken.state, taken.result), (*other.state, other.result), strict=True):
        plans.append(_plan_name(builder, name, a, b))
    objects = {key: value for branch in (taken, other) for key, (value, _) in branch.objects.items()}
    for key, value in objects.items():
        builder.note_growth(key, value)
    contents = [_plan_object(builder, key, value) for key, value in objects.items()]
    cells = list(dict.fromkeys([*taken.cells, *other.cells]))
    slots = [
        builder.add(taken.cells.get(cell, cell.value), other.cells.get(cell, cell.value), "an array") for cell in cells
    ]
    effects = _plan_effects(builder, taken.effects, other.effects)
    outs = _cond(pred, builder.first, builder.second, taken.start)
    for cell, slot in zip(cells, slots, strict=True):
        cell.settle(outs[slot])
    if effects:
        current().keep(outs[effects[-1]])
    for value, entries in zip(objects.values(), contents, strict=True):
        fill(value, {key: plan(outs, pred) for key, plan in entries.items()})
    return [plan(outs, pred) for plan in plans]


class _Growth(Escape):
    """A list that is longer behind one branch: so it is at the end of the round."""


def _plan_effects(builder: _Outputs, taken: list[Node], other: list[Node]) -> list[int]:
    """The slots of what each branch checks or prints; of branches that follow one another in order, of the last."""
    before = current().before()
    if before and (taken or other):
        return [builder.add((taken or before)[-1], (other or before)[-1], "a check")]
    slots = [builder.add(node, const(np.True_), "a check") for node in taken]
    return slots + [builder.add(const(np.True_), node, "a check") for node in other]


def _plan_object(builder: _Outputs, key: int, value: Any) -> dict[Any, Plan]:
    """How to rebuild the entries of a Python object that a branch changed."""
    first, second = builder.held(key, value)
    if list(first) != list(second):
        raise _Growth(f"{describe(value)} grows or shrinks in one branch only", "how long it is depends on data")
    return {k: _plan_name(builder, f"an entry of {describe(value)}", first[k], second[k]) for k in first}


class _Outputs:
    """Pairs of nodes that must agree in type, and Python's objects of which each branch leaves another one."""

    def __init__(self, taken: _Branch, other: _Branch, site: Any, names: set[str]) -> None:
        self.branches = taken, other
        self.site = site
        self.names = names  # of which each branch may leave a nest of its own
        self.first: list[Node] = []
        self.second: list[Node] = []

    def held(self, key: int, value: Any) -> list[dict[Any, Any]]:
        """What a Python object held at the end of each branch."""
        now = value, entries_of(value)
        return [branch.objects.get(key, now)[1] for branch in self.branches]

    def note_growth(self, key: int, value: Any) -> None:
        """Of each list that grows in one branch only, so that one more trace is enough for all of them."""
        first, second = self.held(key, value)
        if list(first) != list(second):
            note_growth(value, first, second)

    def part(self, objects: Iterable[Any], branch: int) -> bool:
        """Objects that are merged with others. True if the branch made them for one name; else nobody may change them.

        One from before the branches that was changed in them is put back by now, and would be merged twice.
        """
        found, own, alone = list(objects), self.branches[branch], True
        if any(id(each) in one.objects for each in found for one in self.branches):
            raise Escape("an object that a branch changes and gives another name", "it is another one elsewhere")
        for each in found:
            if id(each) not in own.born or own.held[id(each)] > 1 or id(each) in current().frozen:
                current().freeze([each], self.site)
                alone = False
        return alone

    def rows(self, value: TracedList, branch: int) -> tuple[list[Any], Structure]:
        """What a traced list held at the end of a branch."""
        if id(value) not in self.branches[branch].rows:
            raise Escape("a list that nobody may use", "which list it is depends on data", site=self.site)
        return self.branches[branch].rows[id(value)]

    def merged(self, value: Any, alone: bool, *nests: Any) -> Any:
        """A nest of merged leaves, whose objects may be those of these and of other names unless they stood ``alone``.
        """
        if not alone:
            current().freeze_merged(value, nests, self.site)
        return current().remember_all(value)

    def node(self, value: Any, branch: int) -> Node:
        """What a value was at the end of a branch. An entry of an object that only the other branch changed may be an
        array that this one wrote into."""
        own = self.branches[branch]
        found = own.nodes.get(id(value))
        if found is None and isinstance(value, Tracer) and value._cell in own.cells:
            written, chain = own.cells[value._cell], value._chain
            return emit("load", written, *value._dynamic, chain=chain) if chain else written
        return raw(value) if found is None else found

    def bound_to(self, kind: Kind, a: Any, b: Any) -> Callable[[list[Node]], Which]:
        """Which array a name is bound to that one branch binds to ``a`` and the other to ``b``, from the outputs."""
        if current().numbering is None or not kind.is_array:
            return lambda outs: UNKNOWN
        pair = zip((a, b), self.branches, strict=True)
        first, second = (which(value, branch.owned, branch.start) for value, branch in pair)
        if first.number is None or second.number is None:
            return lambda outs: UNKNOWN
        slot = self.add(first.number, second.number, "an array")
        return lambda outs: first.joined(second, outs[slot])

    def add(self, a: Node, b: Node, what: str) -> int:
        target = common_type(a.aval, b.aval, what)
        self.first.append(coerce(a, target))
        self.second.append(coerce(b, target))
        return len(self.first) - 1


def _cond(pred: Node, first: list[Node], second: list[Node], start: int) -> list[Node]:
    if not first:
        return []
    (then, orelse), free = close([first, second], [[], []], start, ["then", "else"])
    return emit_many("cond", pred, *free, then=then, orelse=orelse)


Plan = Callable[[list[Node], Node], Any]
RESULT = "the result"
ALONE = "__fx_loop_result"
"""A name of the rewriter: only who knows that it is bound reads it."""


def _plan_name(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    """How to rebuild one merged name from the outputs; what cannot be one thing becomes a conflict."""
    try:
        return _plan_value(builder, name, a, b)
    except Escape as escape:
        what, why = escape.what, escape.why
    try:
        return _plan_alternatives(builder, name, a, b, what, why)
    except Escape:
        return lambda outs, pred: Conflict(what, why, builder.site)


def _plan_alternatives(builder: _Outputs, name: str, a: Any, b: Any, what: str, why: str) -> Plan:
    """How to rebuild what is one nest in one branch and another one in the other, with flags that say which it is."""
    if name not in builder.names:
        raise Escape(what, why)
    ways: list[tuple[Any, Any]] = [(nest, _ABSENT) for nest in nests_of(a)]
    for nest in nests_of(b):
        alike = (k for k, (one, other) in enumerate(ways) if other is _ABSENT and may_be_one(one, nest))
        if (place := next(alike, None)) is None:
            ways.append((_ABSENT, nest))
        else:
            ways[place] = ways[place][0], nest
    if len(ways) > MOST:
        raise Escape("a name that may be too many things", "each is a branch of its own")
    ways.sort(key=lambda way: not any(each is None for each in way))  # of which is asked most: it has its own flag
    parts = [_plan_way(builder, name, one, other) for one, other in ways]
    slots = [builder.add(_flag_in(a, one), _flag_in(b, other), "a flag") for one, other in ways[:-1]]
    merged = (each.alternatives for each in (a, b) if type(each) is Conflict)
    choices = 1 + sum(each.choices for each in merged if each is not None)

    def made(outs: list[Node], pred: Node) -> Conflict:
        nests, flags = tuple(part(outs, pred) for part in parts), tuple(outs[slot] for slot in slots)
        return Conflict(what, why, builder.site, None, Alternatives(nests, flags, choices))

    return made


_ABSENT = object()  # in the place of a nest that a branch does not leave


def _flag_in(value: Any, nest: Any) -> Node:
    return const(False) if nest is _ABSENT else flag_in(value, nest)


def _plan_way(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    """How to rebuild one of the nests that a name may be, which both branches may leave, or one of them."""
    for nest in (a, b):
        if nest is not _ABSENT:
            refuse_objects(nest)
            if name != RESULT:  # which has been read
                refuse_unbound(nest)
    if a is _ABSENT or b is _ABSENT:
        return _plan_half_bound(builder, ALONE, *(UNDEF if each is _ABSENT else each for each in (a, b)))
    return _plan_value(builder, ALONE, a, b)


def _plan_value(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    if a is b or (a is UNDEF and b is UNDEF) or same_view(a, b):
        return lambda outs, pred: a
    for value in (a, b):
        if type(value) is Conflict:
            raise Escape(value.what, value.why)
    if a is UNDEF or b is UNDEF:
        return _plan_half_bound(builder, name, a, b)
    if is_list(a) and is_list(b) and alike(a, b):
        return _plan_list(builder, name, a, b)
    leaves_a, tree_a = flatten(a)
    leaves_b, tree_b = flatten(b)
    if tree_a != tree_b:
        raise Escape(f"{name} has another structure in each branch", f"{tree_a} and {tree_b}")
    alone = builder.part(containers(a), 0) & builder.part(containers(b), 1)
    parts = [_plan_leaf(builder, name, x, y) for x, y in zip(leaves_a, leaves_b, strict=True)]
    if tree_a.kind is None:
        return parts[0]
    return lambda outs, pred: builder.merged(unflatten(tree_a, [part(outs, pred) for part in parts]), alone, a, b)


def _plan_list(builder: _Outputs, name: str, a: TracedList, b: TracedList) -> Plan:
    """Two traced lists become a new one, and nobody's from then on."""
    (rows, made), (others, _) = builder.rows(a, 0), builder.rows(b, 1)
    slots = [builder.add(raw(one), raw(other), name) for one, other in zip(rows, others, strict=True)]
    alone = all(branch.held[id(each)] == 1 for branch, each in zip(builder.branches, (a, b), strict=True))

    def merged(outs: list[Node], pred: Node) -> Any:
        value = unflatten(made, [new_array(outs[slot]) for slot in slots])
        if not alone:
            current().freeze(columns(value), builder.site)
        for each in (a, b):
            give_up(each, builder.site)
        return value

    return merged


def _plan_leaf(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    """How to rebuild a leaf; numbers of several types, None and texts are told apart by flags."""
    try:
        return _plan_one(builder, name, a, b)
    except Escape as escape:
        what, why = escape.what, escape.why
        try:
            sorts = Sorts(a, b)
        except Escape:
            try:
                return _plan_alternatives(builder, name, a, b, what, why)
            except Escape:
                raise escape from None
    first, second = (sorts.nodes(each, functools.partial(builder.node, branch=k)) for k, each in enumerate((a, b)))
    slots = [builder.add(one, other, name) for one, other in zip(first, second, strict=True)]
    return lambda outs, pred: sorts.made([outs[slot] for slot in slots], what, why)


def _plan_one(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    for value in (a, b):
        if type(value) is Either and a is not b:
            raise Escape(value.what, value.why)
    if (
        a is b
        or same_view(a, b)
        or (type(a) is type(b) and not isinstance(a, Tracer | np.ndarray) and same_value(a, b))
    ):
        if a is not b and has_state(a):
            builder.part([a], 0)
            builder.part([b], 1)
        return lambda outs, pred: a
    if not (is_numeric(a) and is_numeric(b)):
        raise Escape(
            f"{name} is {kind_of(a)} in one branch and {kind_of(b)} in the other",
            "only arrays and numbers can depend on data",
        )
    kind, loose = Kind.of_both(a, b, name), is_loose(a, b)
    check_exact(raw(a).aval, raw(b).aval, name)
    slot = builder.add(builder.node(a, 0), builder.node(b, 1), name)
    flags = bound_flag(a), bound_flag(b)
    guarded = builder.add(_known_flag(flags[0]), _known_flag(flags[1]), name) if flags != (None, None) else None
    if name == RESULT and guarded is not None:  # the error is about the name that was returned
        name = next(each._guard[1] for each, flag in zip((a, b), flags, strict=True) if flag is not None)
    first, second = builder.branches
    aliases = (*aliases_of(a, first.owned), *aliases_of(b, second.owned))
    which_of = builder.bound_to(kind, a, b)
    return lambda outs, pred: merged_tracer(
        outs[slot], kind, aliases, None if guarded is None else outs[guarded], name, loose, builder.site, which_of(outs)
    )


def _plan_half_bound(builder: _Outputs, name: str, a: Any, b: Any) -> Plan:
    """Bound in one branch only: usable if that branch ran, else an UnboundLocalError when it is used."""
    in_then = b is UNDEF
    there = a if in_then else b
    leaves, structure = flatten(there)
    if not all(is_numeric(leaf) for leaf in leaves) and not is_internal_name(name):
        raise Escape(f"{name} is bound in one branch only", "it is neither an array nor a number")
    owned = builder.branches[0 if in_then else 1].owned
    alone = builder.part(containers(there), 0 if in_then else 1)
    parts = [_plan_half_leaf(builder, name, leaf, in_then, owned) for leaf in leaves]
    if structure.kind is None:
        return parts[0]
    return lambda outs, pred: builder.merged(unflatten(structure, [part(outs, pred) for part in parts]), alone, there)


def _known_flag(flag: Node | None) -> Node:
    """The flag of a name that is surely bound is the constant True."""
    return const(True) if flag is None else flag


def _plan_half_leaf(builder: _Outputs, name: str, leaf: Any, in_then: bool, owned: dict[Cell, int]) -> Plan:
    if type(leaf) is Either:
        return _plan_half_either(builder, name, leaf, in_then)
    if not is_numeric(leaf):
        return lambda outs, pred: leaf
    node = builder.node(leaf, 0 if in_then else 1)
    pair = [node, zeros(node.aval)]
    first, second = pair if in_then else pair[::-1]
    slot = builder.add(first, second, name)
    aliases = aliases_of(leaf, owned)
    kind, loose = Kind.of(leaf), is_loose(leaf)
    which_of = builder.bound_to(kind, *((leaf, None) if in_then else (None, leaf)))
    if is_internal_name(name):
        return lambda outs, pred: merged_tracer(
            outs[slot], kind, aliases, loose=loose, site=builder.site, which=which_of(outs)
        )
    flag = bound_flag(leaf)
    flags = [_known_flag(flag), const(False)]
    first, second = flags if in_then else flags[::-1]
    bound = builder.add(first, second, name)
    return lambda outs, pred: merged_tracer(
        outs[slot], kind, aliases, outs[bound], name, loose, builder.site, which_of(outs)
    )


def _plan_half_either(builder: _Outputs, name: str, leaf: Either, in_then: bool) -> Plan:
    """One of several things, which one the flags of that branch say."""
    sorts = Sorts(leaf)
    nodes = sorts.nodes(leaf, functools.partial(builder.node, branch=0 if in_then else 1))
    pairs = [(node, zeros(node.aval)) for node in nodes]
    slots = [builder.add(*(pair if in_then else pair[::-1]), name) for pair in pairs]
    return lambda outs, pred: sorts.made([outs[slot] for slot in slots], leaf.what, leaf.why)
