"""Forward mode through loops: the same loop over values and their tangents; it keeps no tape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from futurex.ops.joins import named
from futurex.ops.loop_reverse import active_inputs
from futurex.ops.tapes import plain, zeros_for
from futurex.tree.activity import active_outs
from futurex.tree.graph import Graph
from futurex.tree.node import Node, item, param

Pushforward = Callable[..., Graph]
Indices = tuple[int, ...]


def push_loop(
    tangents: Sequence[Node | None], out: Node, *inputs: Node, test: Graph, body: Graph, tape: Indices, jvp: Pushforward
) -> tuple[list[Node], list[Node | None]]:
    """The loop over what it carries and its tangents: no tape."""
    n = len(body.outs)
    active = active_inputs(body, n, [t is not None for t in tangents])
    both = _doubled(jvp(body, active, [k for k in active if k < n]), len(body.params), active, [n])
    carried = [k for k in active if k < n]
    extra = [param(plain(body.params[k].aval), "t") for k in active]
    tests = _doubled(Graph([*test.params, *extra], test.outs, test.name), len(body.params), active, [n])
    arguments = _interleaved(inputs, tangents, active, [n])
    tapes = (*tape, *(n + carried.index(k) for k in tape if k in carried))
    results = (*out.aval[:n], *(plain(out.aval[k]) for k in carried))
    result = named("loop", arguments, {"test": tests, "body": both, "tape": tapes}, results)
    parts = [item(result, k) for k in range(len(result.aval))]
    primals = [*parts[:n], *parts[n + len(carried) :][: len(tape)]]
    moved = dict(zip(carried, parts[n : n + len(carried)], strict=True))
    moved_tapes = dict(
        zip([k for k in tape if k in carried], parts[n + len(carried) + len(tape) :], strict=True)
    )
    return primals, [*(moved.get(k) for k in range(n)), *(moved_tapes.get(k) for k in tape)]


def push_scan(
    tangents: Sequence[Node | None], out: Node, *inputs: Node, body: Graph, n_carry: int, n_xs: int, length: int | None,
    reverse: bool, tape: Indices, jvp: Pushforward,
) -> tuple[list[Node], list[Node | None]]:  # fmt: skip
    n_ys = len(body.outs) - n_carry
    active = active_inputs(body, n_carry, [t is not None for t in tangents])
    carried = [k for k in active if k < n_carry]
    outs = active_outs(body, active)
    made = [k for k in range(n_carry, len(outs)) if outs[k]]
    cuts = [n_carry, n_carry + n_xs]
    pushed = jvp(body, active, [*carried, *made])
    both = _doubled(pushed, len(body.params), active, cuts)
    end = n_carry + n_ys
    outs_carry, outs_ys, moved_outs = both.outs[:n_carry], both.outs[n_carry:end], both.outs[end:]
    both = Graph(
        both.params, [*outs_carry, *moved_outs[: len(carried)], *outs_ys, *moved_outs[len(carried) :]], both.name
    )
    arguments = _interleaved(inputs, tangents, active, cuts)
    tapes = (*tape, *(n_carry + carried.index(k) for k in tape if k in carried))
    results = (*out.aval[:n_carry], *(plain(out.aval[k]) for k in carried))
    moving = sum(n_carry <= k < n_carry + n_xs for k in active)
    attrs = {
        "body": both, "n_carry": n_carry + len(carried), "n_xs": n_xs + moving, "length": length,
        "reverse": reverse, "tape": tapes,
    }  # fmt: skip
    result = named("scan", arguments, attrs, results)
    parts = iter([item(result, k) for k in range(len(result.aval))])
    carry, d_carry = _take(parts, n_carry), dict(zip(carried, _take(parts, len(carried)), strict=True))
    ys, d_ys = _take(parts, n_ys), dict(zip(made, _take(parts, len(made)), strict=True))
    kept, d_kept = _take(parts, len(tape)), dict(zip([k for k in tape if k in carried], parts, strict=True))
    moved = [*(d_carry.get(k) for k in range(n_carry)), *(d_ys.get(k) for k in range(n_carry, len(outs)))]
    return [*carry, *ys, *kept], [*moved, *(d_kept.get(k) for k in tape)]


def _take(parts: Any, count: int) -> list[Node]:
    return [next(parts) for _ in range(count)]


def _doubled(pushed: Graph, n_params: int, active: Sequence[int], cuts: Sequence[int]) -> Graph:
    """The inputs of a pushed body in a loop's order: behind each group the tangents of its active members."""
    tangents = dict(zip(active, pushed.params[n_params:], strict=True))
    return Graph(_interleaved(pushed.params[:n_params], tangents, active, cuts), pushed.outs, pushed.name)


def _interleaved(values: Sequence[Node], tangents: Any, active: Sequence[int], cuts: Sequence[int]) -> list[Node]:
    order: list[Node] = []
    bounds = [0, *cuts, len(values)]
    for low, high in itertools.pairwise(bounds):
        order += values[low:high]
        order += [zeros_for(values[k]) if tangents[k] is None else tangents[k] for k in active if low <= k < high]
    return order
