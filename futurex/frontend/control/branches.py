"""``if`` on traced values: both branches are traced, and what they leave behind becomes one ``cond``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.control.values import (
    UNDEF,
    Get,
    Kind,
    Set,
    State,
    aliases_of,
    bound_flag,
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
from futurex.frontend.errors import Escape
from futurex.frontend.trace import Cell, close, current, emit, emit_many
from futurex.frontend.tracer import Tracer
from futurex.ops.control import Failure
from futurex.tree.node import Node, const
from futurex.tree.pytree import flatten, unflatten


@dataclass
class _Branch:
    """What one traced branch did."""

    state: State
    result: Any
    owned: dict[Cell, int]
    nodes: dict[int, Node]
    cells: dict[Cell, Node]
    effects: list[Node]
    start: int
    failure: tuple[BaseException, Failure] | None = None


def if_(
    test: Any, then: Callable[[], Any], orelse: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...]
) -> Any:
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
    set_(tuple(merged[:-1]))
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
                raise Escape(
                    f"{type(error).__name__} in a branch: {error}", "it may belong to the trace, not to the run"
                ) from error
            failure = _failure(error)
        state = get()
        owned = owned_cells((*state, result), scope.start)
        nodes = values_now((*state, result))
        cells = {cell: cell.value for cell in scope.journal}
        effects = scope.effects
    set_(before)
    return _Branch(state, result, owned, nodes, cells, effects, scope.start, failure)


def _failure(error: Exception) -> tuple[BaseException, Failure]:
    if not all(isinstance(arg, str | int | float | bool | type(None)) for arg in error.args):
        raise Escape("an exception with traced or complex arguments", "it cannot be kept for the run") from error
    return error, Failure(type(error), error.args)


def _raising_branch(
    pred: Node, taken: _Branch, other: _Branch, then: Callable[[], Any], orelse: Callable[[], Any]
) -> Any:
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
    builder = _Outputs(taken, other)
    plans = []
    for name, a, b in zip(names, (*taken.state, taken.result), (*other.state, other.result), strict=True):
        plans.append(_plan_name(builder, name, a, b, (taken.owned, other.owned)))
    cells = list(dict.fromkeys([*taken.cells, *other.cells]))
    slots = [
        builder.add(taken.cells.get(cell, cell.value), other.cells.get(cell, cell.value), "an array") for cell in cells
    ]
    effects = [builder.add(node, const(np.True_), "a check") for node in taken.effects]
    effects += [builder.add(const(np.True_), node, "a check") for node in other.effects]
    outs = _cond(pred, builder.first, builder.second, taken.start)
    for cell, slot in zip(cells, slots, strict=True):
        cell.settle(outs[slot])
    if effects:
        current().keep(outs[effects[-1]])
    return [plan(outs, pred) for plan in plans]


class _Outputs:
    """Pairs of nodes that must agree in type."""

    def __init__(self, taken: _Branch, other: _Branch) -> None:
        self.nodes = taken.nodes, other.nodes
        self.first: list[Node] = []
        self.second: list[Node] = []

    def node(self, value: Any, branch: int) -> Node:
        """What a value was at the end of a branch."""
        found = self.nodes[branch].get(id(value))
        return raw(value) if found is None else found

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


Owned = tuple[dict[Cell, int], dict[Cell, int]]


def _plan_name(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    """How to rebuild one merged name from the outputs."""
    if a is b or (a is UNDEF and b is UNDEF) or same_view(a, b):
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


def _plan_leaf(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    if (
        a is b
        or same_view(a, b)
        or (type(a) is type(b) and not isinstance(a, Tracer | np.ndarray) and same_value(a, b))
    ):
        return lambda outs, pred: a
    if not (is_numeric(a) and is_numeric(b)):
        raise Escape(
            f"{name} is {kind_of(a)} in one branch and {kind_of(b)} in the other",
            "only arrays and numbers can depend on data",
        )
    kind, loose = Kind.of_both(a, b, name), is_loose(a, b)
    slot = builder.add(builder.node(a, 0), builder.node(b, 1), name)
    flags = bound_flag(a), bound_flag(b)
    guarded = builder.add(_known_flag(flags[0]), _known_flag(flags[1]), name) if flags != (None, None) else None
    aliases = (*aliases_of(a, owned[0]), *aliases_of(b, owned[1]))
    return lambda outs, pred: merged_tracer(
        outs[slot], kind, aliases, outs[guarded] if guarded is not None else None, name, loose
    )


def _plan_half_bound(builder: _Outputs, name: str, a: Any, b: Any, owned: Owned) -> Plan:
    """Bound in one branch only: usable if that branch ran, else an UnboundLocalError when it is used."""
    in_then = b is UNDEF
    leaves, structure = flatten(a if in_then else b)
    if not all(is_numeric(leaf) for leaf in leaves) and not is_internal_name(name):
        return lambda outs, pred: UNDEF
    parts = [_plan_half_leaf(builder, name, leaf, in_then, owned[0] if in_then else owned[1]) for leaf in leaves]
    if structure.kind is None:
        return parts[0]
    return lambda outs, pred: current().remember(unflatten(structure, [part(outs, pred) for part in parts]))


def _known_flag(flag: Node | None) -> Node:
    """The flag of a name that is surely bound is the constant True."""
    return const(True) if flag is None else flag


def _plan_half_leaf(builder: _Outputs, name: str, leaf: Any, in_then: bool, owned: dict[Cell, int]) -> Plan:
    if not is_numeric(leaf):
        return lambda outs, pred: leaf
    node = builder.node(leaf, 0 if in_then else 1)
    pair = [node, zeros(node.aval)]
    first, second = pair if in_then else pair[::-1]
    slot = builder.add(first, second, name)
    aliases = aliases_of(leaf, owned)
    kind, loose = Kind.of(leaf), is_loose(leaf)
    if is_internal_name(name):
        return lambda outs, pred: merged_tracer(outs[slot], kind, aliases, loose=loose)
    flag = bound_flag(leaf)
    flags = [_known_flag(flag), const(False)]
    first, second = flags if in_then else flags[::-1]
    bound = builder.add(first, second, name)
    return lambda outs, pred: merged_tracer(outs[slot], kind, aliases, outs[bound], name, loose)
