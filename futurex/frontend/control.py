"""Control flow on traced values: ``if``, ``while``, ``for`` and the expressions that choose.

A statement's state is the names it assigns (read and written by generated closures) and the cells it writes. Where a test is
known, Python runs as Python. Where staging cannot work it raises Escape; a loop over known values is unrolled instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import Cell, Scope, close, current, emit, emit_many
from futurex.frontend.tracer import SCALARS, Tracer, fresh, node_of
from futurex.ops.control import Failure
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const, param
from futurex.tree.pytree import Structure, flatten, unflatten

UNROLL = 16  # ranges up to this length are unrolled
UNROLL_CAP = 20_000  # iterations of a loop that cannot be staged
FIXPOINT_ROUNDS = 6


class _Undefined:
    """A name that is not bound."""

    def __repr__(self) -> str:
        return "UNDEF"


UNDEF = _Undefined()
State = tuple[Any, ...]
Get = Callable[[], State]
Set = Callable[[State], None]


@dataclass(frozen=True)
class TracedRange:
    """``range`` with a bound that is not known before the run."""

    start: Any
    stop: Any
    step: int


def raw(value: Any) -> Node:
    """The node of a value that is merged or carried: no check that its name is bound."""
    return value._raw if isinstance(value, Tracer) else node_of(value)


def bound_flag(value: Any) -> Node | None:
    """The node that says whether a value's name is bound; None if it surely is."""
    return value._guard[0] if isinstance(value, Tracer) and value._guard is not None else None


def is_internal_name(name: str) -> bool:
    """Variables of the rewriter: read only where a flag says that they are bound."""
    return name.startswith("__loop_")


def is_unknown(value: Any) -> bool:
    """A traced value that is not a constant."""
    return isinstance(value, Tracer) and value._node.op != "const"


def truth(value: Any) -> Node:
    """A boolean node for a test."""
    node = node_of(value)
    if node.size != 1 or node.ndim > 0:
        if node.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
        node = emit("reshape", node, shape=())
    return node if node.dtype.kind == "b" else emit("not_equal", node, 0)


# -- if --------------------------------------------------------------------------------------------------------------


@dataclass
class _Branch:
    """What one traced branch did."""

    state: State
    result: Any
    owned: dict[Cell, int]
    cells: dict[Cell, Node]
    effects: list[Node]
    start: int
    failure: tuple[BaseException, Failure] | None = None


def if_(test: Any, then: Callable[[], Any], orelse: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...]) -> Any:
    """An ``if`` statement; returns what the branch functions return (a ``return`` in tail position)."""
    if not is_unknown(test):
        return then() if test else orelse()
    pred = truth(test)
    before = get()
    taken = _trace_branch(then, get, set_, before)
    other = _trace_branch(orelse, get, set_, before)
    if taken.failure or other.failure:
        return _raising_branch(pred, taken, other, then, orelse)
    merged = _merge(pred, taken, other, [*names, "the result"])
    set_(merged[:-1])
    return merged[-1]


def _trace_branch(run: Callable[[], Any], get: Get, set_: Set, before: State) -> _Branch:
    failure, result = None, None
    with current().scope() as scope:
        try:
            result = run()
        except Escape:
            raise
        except Exception as error:
            if not hasattr(error, "__staged__"):
                raise Escape(f"{type(error).__name__} in a branch: {error}", "it may belong to the trace, not to the run") from error
            failure = _failure(error)
        state = get()
        owned = _owned((*state, result), scope.start)
        cells = {cell: cell.value for cell in scope.journal}
        effects = scope.effects
    set_(before)
    return _Branch(state, result, owned, cells, effects, scope.start, failure)


def _owned(values: Sequence[Any], start: int) -> dict[Cell, int]:
    """Cells made since ``start``, and how many of the values refer to each."""
    counts: dict[Cell, int] = {}
    for value in values:
        for leaf in flatten(value)[0] if value is not UNDEF else ():
            if isinstance(leaf, Tracer) and leaf._cell.born >= start:
                counts[leaf._cell] = counts.get(leaf._cell, 0) + 1
    return counts


def _shared(value: Any, owned: dict[Cell, int]) -> bool:
    """Could another name see a write into this value?"""
    if isinstance(value, Tracer):
        return value.ndim > 0 and owned.get(value._cell, 0) != 1
    return isinstance(value, np.ndarray)


def _failure(error: Exception) -> tuple[BaseException, Failure]:
    if not all(isinstance(arg, str | int | float | bool | type(None)) for arg in error.args):
        raise Escape("an exception with traced or complex arguments", "it cannot be kept for the run") from error
    return error, Failure(type(error), error.args)


def _raising_branch(pred: Node, taken: _Branch, other: _Branch, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """One branch only raises: check the test, then go on with the other."""
    if taken.failure and other.failure:
        raise Escape("both branches raise", "which exception it is depends on data")
    branch = taken if taken.failure else other
    if branch.cells or branch.effects or branch.failure is None:
        raise Escape("a branch that writes and then raises", "its writes would be lost")
    ok = emit("logical_not", pred) if taken.failure else pred
    current().effect("check", ok, failure=branch.failure[1])
    return orelse() if taken.failure else then()


def _merge(pred: Node, taken: _Branch, other: _Branch, names: Sequence[str]) -> list[Any]:
    """Names, result and cells of two branches as outputs of one ``cond``."""
    builder = _Outputs()
    plans = []
    for name, a, b in zip(names, (*taken.state, taken.result), (*other.state, other.result), strict=True):
        plans.append(_plan_name(builder, name, a, b, (taken.owned, other.owned)))
    cells = list(dict.fromkeys([*taken.cells, *other.cells]))
    slots = [builder.add(taken.cells.get(cell, cell.value), other.cells.get(cell, cell.value), "an array") for cell in cells]
    effects = [builder.add(node, const(np.True_), "a check") for node in taken.effects]
    effects += [builder.add(const(np.True_), node, "a check") for node in other.effects]
    outs = _cond(pred, builder.first, builder.second, taken.start)
    for cell, slot in zip(cells, slots, strict=True):
        cell.write(outs[slot])
    if effects:
        current().keep(outs[effects[-1]])
    return [plan(outs, pred) for plan in plans]


class _Outputs:
    """Pairs of nodes that must agree in type."""

    def __init__(self) -> None:
        self.first: list[Node] = []
        self.second: list[Node] = []

    def add(self, a: Node, b: Node, what: str) -> int:
        target = common_type(a.aval, b.aval, what)
        self.first.append(coerce(a, target))
        self.second.append(coerce(b, target))
        return len(self.first) - 1


def common_type(a: Aval, b: Aval, what: str) -> Aval:
    """The type of a value that is ``a`` or ``b``. Python scalars give way to arrays; anything else must be equal."""
    if a == b:
        return a
    if a.shape == b.shape:
        if a.weak and b.weak and "b" not in (a.dtype.kind, b.dtype.kind):
            return Aval(a.shape, np.result_type(a.dtype, b.dtype), weak=True)
        if a.weak != b.weak:
            strong, weak = (b, a) if a.weak else (a, b)
            if "biufc".index(strong.dtype.kind) >= "biufc".index("i" if weak.dtype.kind == "b" else weak.dtype.kind):
                return strong
    raise Escape(
        f"{what} is {a!r} in one branch and {b!r} in the other", "one node has one type", "make both the same shape and dtype"
    )


def coerce(node: Node, target: Aval) -> Node:
    if node.aval == target:
        return node
    if target.weak:
        return emit("python_scalar", node, kind=target.dtype.kind)
    return emit("cast", node, dtype=target.dtype)


def _cond(pred: Node, first: list[Node], second: list[Node], start: int) -> list[Node]:
    if not first:
        return []
    (then, orelse), free = close([first, second], [[], []], start, ["then", "else"])
    return emit_many("cond", pred, *free, then=then, orelse=orelse)


Plan = Callable[[list[Node], Node], Any]


Owned = tuple[dict[Cell, int], dict[Cell, int]]


def _plan_name(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    """How to rebuild one merged name from the outputs."""
    if a is b or (a is UNDEF and b is UNDEF) or _same_view(a, b):
        return lambda outs, pred: a
    if a is UNDEF or b is UNDEF:
        return _plan_half_bound(builder, name, a, b, owned)
    leaves_a, tree_a = flatten(a)
    leaves_b, tree_b = flatten(b)
    if tree_a != tree_b:
        raise Escape(f"{name} has another structure in each branch", f"{tree_a} and {tree_b}")
    parts = [_plan_leaf(builder, name, x, y, owned) for x, y in zip(leaves_a, leaves_b, strict=True)]
    if tree_a.kind is None:
        return parts[0]
    return lambda outs, pred: current().remember(unflatten(tree_a, [part(outs, pred) for part in parts]))


def _same_view(a: Any, b: Any) -> bool:
    return isinstance(a, Tracer) and isinstance(b, Tracer) and a._cell is b._cell and a._chain == b._chain and a._dynamic == b._dynamic


def _plan_leaf(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    if a is b or _same_view(a, b) or (type(a) is type(b) and not isinstance(a, Tracer | np.ndarray) and _equal(a, b)):
        return lambda outs, pred: a
    if not (_numeric(a) and _numeric(b)):
        raise Escape(f"{name} is {_kind(a)} in one branch and {_kind(b)} in the other", "only arrays and numbers can depend on data")
    slot = builder.add(raw(a), raw(b), name)
    flags = bound_flag(a), bound_flag(b)
    guarded = builder.add(*(const(True) if flag is None else flag for flag in flags), name) if flags != (None, None) else None
    shared = _shared(a, owned[0]) or _shared(b, owned[1])
    return lambda outs, pred: _merged(outs[slot], shared, outs[guarded] if guarded is not None else None, name)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def _numeric(value: Any) -> bool:
    return isinstance(value, Tracer | np.ndarray | np.generic) or type(value) in SCALARS


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, str | type(None)) else f"a {type(value).__name__}"


def _merged(node: Node, shared: bool, bound: Node | None = None, name: str = "") -> Tracer:
    tracer = fresh(node)
    tracer._cell.entangled = shared
    if bound is not None and not (bound.op == "const" and bound.value):
        tracer._guard = (bound, name)
    return tracer


def _plan_half_bound(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    """Bound in one branch only: usable if that branch ran, else an UnboundLocalError when it is used."""
    in_then = b is UNDEF
    leaves, structure = flatten(a if in_then else b)
    if not all(_numeric(leaf) for leaf in leaves) and not is_internal_name(name):
        return lambda outs, pred: UNDEF
    parts = [_plan_half_leaf(builder, name, leaf, in_then, owned[0] if in_then else owned[1]) for leaf in leaves]
    if structure.kind is None:
        return parts[0]
    return lambda outs, pred: current().remember(unflatten(structure, [part(outs, pred) for part in parts]))


def _plan_half_leaf(builder: _Outputs, name: str, leaf: Any, in_then: bool, owned: dict[Cell, int]) -> Plan:
    if not _numeric(leaf):
        return lambda outs, pred: leaf
    pair = [raw(leaf), zeros(raw(leaf).aval)]
    slot = builder.add(*(pair if in_then else pair[::-1]), name)
    shared = _shared(leaf, owned)
    if is_internal_name(name):
        return lambda outs, pred: _merged(outs[slot], shared)
    flags = [bound_flag(leaf) or const(True), const(False)]
    bound = builder.add(*(flags if in_then else flags[::-1]), name)
    return lambda outs, pred: _merged(outs[slot], shared, outs[bound], name)


def zeros(aval: Aval) -> Node:
    if aval.weak:
        return const(aval.dtype.type(0).item())
    return emit("full", const(np.zeros((), aval.dtype)[()]), shape=aval.shape, dtype=aval.dtype)


# -- expressions -----------------------------------------------------------------------------------------------------


def if_expression(test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """``then if test else orelse``."""
    return if_(test, then, orelse, lambda: (), lambda state: None, ())


def and_(first: Any, *others: Callable[[], Any]) -> Any:
    """``first and others...``: the first false one, evaluated no further."""
    for position, other in enumerate(others):
        if is_unknown(first):
            rest = others[position:]
            return if_expression(first, lambda: and_(rest[0](), *rest[1:]), lambda: first)
        if not first:
            return first
        first = other()
    return first


def or_(first: Any, *others: Callable[[], Any]) -> Any:
    """``first or others...``: the first true one, evaluated no further."""
    for position, other in enumerate(others):
        if is_unknown(first):
            rest = others[position:]
            return if_expression(first, lambda: first, lambda: or_(rest[0](), *rest[1:]))
        if first:
            return first
        first = other()
    return first


def not_(value: Any) -> Any:
    return fresh(emit("python_scalar", emit("logical_not", truth(value)), kind="b")) if is_unknown(value) else not value


def assert_(test: Any, message: Callable[[], Any] | None) -> None:
    """``assert test, message``: checked at run time when the test is traced."""
    if not is_unknown(test):
        if not test:
            raise AssertionError(*(() if message is None else (message(),)))
        return
    text = () if message is None else (message(),)
    if not all(isinstance(part, str | int | float) for part in text):
        raise Escape("an assertion message that depends on data", "it cannot be made before the run")
    current().effect("check", truth(test), failure=Failure(AssertionError, text))


# -- loops -----------------------------------------------------------------------------------------------------------


def while_(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...], left: Callable[[], Any] | None) -> None:
    """A ``while`` statement. Runs as Python as long as its test is known; from then on it is staged."""

    def goes_on() -> Any:
        return test() if left is None else and_(not_(left()), test)

    rounds = 0
    while True:
        with current().scope():
            before = get()
            value = goes_on()
            unknown = is_unknown(value)
            set_(before)
        if unknown:
            stage_loop(goes_on, body, get, set_, names)
            return
        if not goes_on():
            return
        body()
        rounds += 1
        if rounds > UNROLL_CAP:
            raise Escape(f"a while loop of more than {UNROLL_CAP} rounds on known values", "unrolling it makes too large a tree")


def for_(iterable: Any, body: Callable[[Any], Any], get: Get, set_: Set, names: tuple[str, ...], left: Callable[[], Any] | None) -> None:
    """A ``for`` statement over a range, an array, or any known iterable."""
    if isinstance(iterable, TracedRange):
        _staged_range(iterable, lambda i: i, body, get, set_, names, left)
        return
    if isinstance(iterable, Tracer):
        if iterable.ndim == 0:
            raise TypeError("'numpy.float64' object is not iterable")
        n = iterable.shape[0]
        if n > UNROLL and _attempt(TracedRange(0, n, 1), lambda i: iterable[i], body, get, set_, names, left):
            return
        iterable = (iterable[k] for k in range(n))
    elif isinstance(iterable, range) and len(iterable) > UNROLL:
        staged = TracedRange(iterable.start, iterable.stop, iterable.step)
        if _attempt(staged, lambda i: i, body, get, set_, names, left):
            return
    _unroll(iterable, body, get, set_, names, left)


def _attempt(bounds: TracedRange, item: Callable[[Tracer], Any], body: Any, get: Get, set_: Set, names: Any, left: Any) -> bool:
    """Stage a loop over known values; on failure leave everything as it was, to unroll it."""
    trace = current()
    before = get()
    n_effects = len(trace.scopes[-1].effects if trace.scopes else trace.effects)
    try:
        _staged_range(bounds, item, body, get, set_, names, left)
    except Escape as escape:
        why = f"{escape.what}: {escape.why}"
    except Exception as error:  # what a traced index cannot do, a known one often can
        why = f"{type(error).__name__}: {error}"
    else:
        return True
    set_(before)
    del (trace.scopes[-1].effects if trace.scopes else trace.effects)[n_effects:]
    trace.notes.append(f"a loop is unrolled ({why})")
    return False


def _unroll(iterable: Any, body: Any, get: Get, set_: Set, names: Any, left: Any) -> None:
    for count, value in enumerate(iterable):
        if count > UNROLL_CAP:
            raise Escape(f"a loop of more than {UNROLL_CAP} rounds that cannot be staged", "unrolling it makes too large a tree")
        if left is None:
            body(value)
            continue
        gone = left()
        if not is_unknown(gone):
            if gone:
                return
            body(value)
        else:
            if_(not_(gone), lambda value=value: body(value), lambda: None, get, set_, names)


def _staged_range(bounds: TracedRange, item: Callable[[Tracer], Any], body: Any, get: Get, set_: Set, names: Any, left: Any) -> None:
    """A range loop is a while loop with a counter."""
    counter = [fresh(emit("python_scalar", node_of(bounds.start), kind="i"))]
    stop = node_of(bounds.stop)

    def test() -> Any:
        inside = fresh(emit("less" if bounds.step > 0 else "greater", counter[0]._node, stop))
        return inside if left is None else and_(inside, lambda: not_(left()))

    def step() -> None:
        body(item(counter[0]))
        counter[0] = fresh(emit("add", counter[0]._node, bounds.step))

    def get_all() -> State:
        return (*get(), counter[0])

    def set_all(state: State) -> None:
        set_(state[:-1])
        counter[0] = state[-1]

    known = isinstance(bounds.start, int) and isinstance(bounds.stop, int)
    runs = known and len(range(bounds.start, bounds.stop, bounds.step)) > 0
    stage_loop(test, step, get_all, set_all, (*names, "the counter"), runs_once=runs)


@dataclass
class _Carried:
    """One name of the loop's state: its initial leaves, and what the loop carries of them.

    A name that is not bound before the loop becomes carried once the body has shown its type; ``flags`` says for each leaf
    the node that tells whether it is bound at the start (None: it surely is).
    """

    name: str
    structure: Structure
    leaves: list[Any]
    avals: list[Aval | None]  # None: not carried, stays as it is
    flags: list[Node | None]

    @property
    def unbound(self) -> bool:
        """Not bound before the loop, and not (yet) carried."""
        return len(self.leaves) == 1 and self.leaves[0] is UNDEF

    @property
    def untouched(self) -> bool:
        return all(aval is None for aval in self.avals)

    def places(self) -> list[int]:
        return [k for k, aval in enumerate(self.avals) if aval is not None]


def stage_loop(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Sequence[str], *, runs_once: bool = False) -> None:
    """Trace test and body on stand-ins until the types of what they carry no longer change, then build one ``loop``."""
    before = get()
    carried = [_initial(name, value) for name, value in zip(names, before, strict=True)]
    cells: dict[Cell, Aval] = {}
    try:
        for _ in range(FIXPOINT_ROUNDS):
            round_ = _trace_round(test, body, get, set_, before, carried, cells)
            if _settled(carried, cells, round_):
                set_(_build_loop(round_, carried, cells, before, runs_once))
                return
    except Escape:
        set_(before)
        raise
    set_(before)
    raise Escape("a loop whose variables keep changing type", "it has no fixed point", "give them their final dtype before the loop")


def _initial(name: str, value: Any) -> _Carried:
    if value is UNDEF:
        return _Carried(name, Structure(None), [UNDEF], [None], [None])
    leaves, structure = flatten(value)
    avals = [raw(leaf).aval if _numeric(leaf) else None for leaf in leaves]
    return _Carried(name, structure, leaves, avals, [bound_flag(leaf) for leaf in leaves])


@dataclass
class _Round:
    """One tracing of test and body."""

    scope: Scope
    params: list[Node]
    test: Node
    state: State
    cells: dict[Cell, Node]
    owned: dict[Cell, int]


def _trace_round(test: Any, body: Any, get: Get, set_: Set, before: State, carried: list[_Carried], cells: dict[Cell, Aval]) -> _Round:
    with current().scope() as scope:
        params: list[Node] = []
        set_(tuple(_stand_in(entry, original, params) for entry, original in zip(carried, before, strict=True)))
        for cell, aval in cells.items():
            params.append(param(aval, "array"))
            scope.journal[cell] = cell.value
            cell.restore(params[-1])
        tested = truth(test())
        body()
        if scope.effects:
            raise Escape("a check or print inside a staged loop", "effects inside loops are not staged yet")
        after = get()
        written = {cell: cell.value for cell in scope.journal}
        owned = _owned(after, scope.start)
    set_(before)
    return _Round(scope, params, tested, after, written, owned)


def _stand_in(entry: _Carried, original: Any, params: list[Node]) -> Any:
    """What a name is bound to while the body is traced; its inputs are appended to ``params``."""
    if entry.untouched:
        return original
    leaves = list(entry.leaves)
    for k in entry.places():
        aval = entry.avals[k]
        assert aval is not None
        params.append(param(aval, entry.name))
        value, bound = params[-1], None
        if entry.flags[k] is not None:
            params.append(param(Aval((), np.dtype(bool), weak=True), "bound"))
            bound = params[-1]
        leaves[k] = _merged(value, _shared(entry.leaves[k], {}), bound, entry.name)
    return unflatten(entry.structure, leaves)


def _settled(carried: list[_Carried], cells: dict[Cell, Aval], round_: _Round) -> bool:
    """Compare what came out of the body with what went in; widen what is carried where they differ."""
    settled = True
    for cell, value in round_.cells.items():
        if cell not in cells:
            cells[cell] = value.aval
            settled = False
    for entry, value in zip(carried, round_.state, strict=True):
        settled &= _settled_name(entry, value)
    return settled


def _settled_name(entry: _Carried, value: Any) -> bool:
    if entry.unbound:
        return not _becomes_carried(entry, value)
    if value is UNDEF:
        raise Escape(f"{entry.name} is deleted in a staged loop", "whether it exists would depend on data")
    leaves, structure = flatten(value)
    if structure != entry.structure:
        raise Escape(f"{entry.name} changes its structure in a staged loop", f"{entry.structure} becomes {structure}")
    settled = True
    for position, (leaf, aval) in enumerate(zip(leaves, entry.avals, strict=True)):
        if aval is None:
            if leaf is not entry.leaves[position] and not _equal(leaf, entry.leaves[position]):
                raise Escape(f"{entry.name} changes in a staged loop and is not an array or a number", _kind(leaf))
            continue
        wide = common_type(aval, raw(leaf).aval, entry.name)
        if wide != aval:
            entry.avals[position] = wide
            settled = False
    return settled


def _becomes_carried(entry: _Carried, value: Any) -> bool:
    """A name first bound in the body: carry it from now on, with flags that say whether it is bound."""
    if value is UNDEF:
        return False
    leaves, structure = flatten(value)
    if not any(_numeric(leaf) for leaf in leaves) or not (all(_numeric(leaf) for leaf in leaves) or is_internal_name(entry.name)):
        return False
    entry.structure = structure
    entry.leaves = [zeros(raw(leaf).aval) if _numeric(leaf) else leaf for leaf in leaves]
    entry.avals = [raw(leaf).aval if _numeric(leaf) else None for leaf in leaves]
    entry.flags = [None if is_internal_name(entry.name) else const(False) for _ in leaves]
    return True


def _build_loop(round_: _Round, carried: list[_Carried], cells: dict[Cell, Aval], before: State, runs_once: bool) -> State:
    """The loop node; returns the state after it."""
    starts: list[Node] = []
    outs: list[Node] = []
    for entry, final in zip(carried, round_.state, strict=True):
        if entry.untouched:
            continue
        leaves, _ = flatten(final)
        for k in entry.places():
            aval, flag = entry.avals[k], entry.flags[k]
            assert aval is not None
            starts.append(coerce(_start(entry.leaves[k]), aval))
            outs.append(coerce(raw(leaves[k]), aval))
            end = bound_flag(leaves[k])
            if flag is not None:
                starts.append(flag)
                outs.append(const(True) if end is None else end)
            elif end is not None and not is_internal_name(entry.name):
                raise Escape(f"{entry.name} may be unbound at the end of a loop that it enters bound", "it is deleted in some branch")
    for cell in cells:
        starts.append(cell.value)
        outs.append(round_.cells[cell])
    (test, body), free = close([[round_.test], outs], [round_.params, round_.params], round_.scope.start, ["test", "body"])
    results = iter(emit_many("loop", *starts, *free, test=test, body=body, tape=False) if starts else [])
    state = tuple(
        _after_loop(entry, original, final, results, round_.owned, runs_once)
        for entry, original, final in zip(carried, before, round_.state, strict=True)
    )
    for cell in cells:
        cell.write(next(results))
    return state


def _start(leaf: Any) -> Node:
    return leaf if isinstance(leaf, Node) else raw(leaf)


def _after_loop(entry: _Carried, original: Any, final: Any, results: Any, owned: dict[Cell, int], runs_once: bool) -> Any:
    if entry.untouched:
        return original
    finals, _ = flatten(final)
    leaves = list(entry.leaves)
    for k in entry.places():
        node = next(results)
        bound = next(results) if entry.flags[k] is not None else None
        if runs_once and bound_flag(finals[k]) is None:
            bound = None  # the body binds it whenever it runs, and it runs
        shared = _shared(finals[k], owned) or (not runs_once and _shared(entry.leaves[k], {}))
        leaves[k] = _merged(node, shared, bound, entry.name)
    value = unflatten(entry.structure, leaves)
    return value if entry.structure.kind is None else current().remember(value)
