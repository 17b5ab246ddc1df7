"""Loops and branches of many examples at once.

Where examples take different ways, all go every way and a mask says whose result counts. What may fail, or may not end,
for an example that is not meant to be there gets the values of one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from futurex.ops.batching import NotBatchable, lanes, spread, widened
from futurex.ops.elementwise import where, zeros_like
from futurex.ops.tapes import Batched, Tape
from futurex.tree.aval import Aval
from futurex.tree.dims import same
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item, param

Vmap = Callable[..., tuple[Graph, list[bool]]]
BOOL = np.dtype(bool)


def total(graph: Graph) -> bool:
    """Does a graph end without an error whatever its inputs hold?"""
    return not any(_may_fail(node) for node in graph.nodes)


def _may_fail(node: Node) -> bool:
    if node.op == "param":
        return False
    if node.record.may_fail(node) or node.record.effect or node.op == "loop":
        return True
    if node.op in ("load", "store") and len(node.inputs) > (1 if node.op == "load" else 2):
        return True
    return any(not total(value) for value in node.attrs.values() if isinstance(value, Graph))


def _any(mask: Node) -> Node:
    return apply("any", mask, axis=None, keepdims=False)


def _masked(mask: Node, x: Node, y: Node) -> Node:
    if not same(x.shape, y.shape):
        raise NotBatchable("the size of what a branch or a round leaves depends on the example")
    return where(widened(mask, x.ndim - 1), x, y)


def _stand_ins(mask: Node, values: Sequence[Node], batched: Sequence[bool]) -> list[Node]:
    """Values in which every example that the mask leaves out has those of the first that it does not."""
    size = mask.shape[0]
    chosen = where(mask, lanes(size), apply("argmax", mask, axis=0, keepdims=False))
    pattern = (("d", 0),)
    return [
        apply("gather", x, chosen, pattern=pattern) if has else x for x, has in zip(values, batched, strict=True)
    ]


def _guarded(mask: Node, graph: Graph, values: Sequence[Node], batched: Sequence[bool]) -> list[Node]:
    """The results of a graph that is meant for the masked examples only, some of which there are."""
    return graph.inline(values if total(graph) else _stand_ins(mask, values, batched))


# -- branches ---------------------------------------------------------------------------------------------------------


def batch_cond(size: int, inputs: Sequence[Batched], *, then: Graph, orelse: Graph, vmap: Vmap) -> list[Batched]:
    pred, values = inputs[0], inputs[1:]
    flags, nodes = [x.batched for x in values], [x.node for x in values]
    if not pred.batched:
        found = [vmap(branch, flags)[1] for branch in (then, orelse)]
        force = [k for k, pair in enumerate(zip(*found, strict=True)) if any(pair)]
        branches = [vmap(branch, flags, force)[0] for branch in (then, orelse)]
        result = apply("cond", pred.node, *nodes, then=branches[0], orelse=branches[1])
        return [Batched(item(result, k), k in force) for k in range(len(then.outs))]
    every = range(len(then.outs))
    masks = pred.node, apply("logical_not", pred.node)
    sides = [
        _side(mask, vmap(branch, flags, every)[0], nodes, flags)
        for mask, branch in zip(masks, (then, orelse), strict=True)
    ]
    return [Batched(_masked(pred.node, x, y), True) for x, y in zip(*sides, strict=True)]


def _side(mask: Node, branch: Graph, nodes: Sequence[Node], flags: Sequence[bool]) -> list[Node]:
    """One branch for all examples; skipped if it may fail and no example takes it."""
    if total(branch):
        return branch.inline(nodes)
    taken = param(mask.aval, "taken")
    own = [param(node.aval, "x") for node in nodes]
    run = Graph([taken, *own], _guarded(taken, branch, own, flags), branch.name)
    zeros = [zeros_like(node.aval) for node in branch.outs]
    result = apply("cond", _any(mask), mask, *nodes, then=run, orelse=Graph([taken, *own], zeros, "nobody"))
    return [item(result, k) for k in range(len(branch.outs))]


# -- loops ------------------------------------------------------------------------------------------------------------


def _carried(body: Graph, flags: list[bool], n_carry: int, vmap: Vmap) -> list[bool]:
    """Which inputs of a body have the axis, in every round."""
    flags = list(flags)
    while True:
        found = vmap(body, flags)[1][:n_carry]
        after = [a or b for a, b in zip(flags, found, strict=False)]
        if after == flags[:n_carry]:
            return flags
        flags[:n_carry] = after


def _ready(size: int, inputs: Sequence[Batched], flags: Sequence[bool]) -> list[Node]:
    return [
        spread(size, x.node) if has and not x.batched else x.node for x, has in zip(inputs, flags, strict=True)
    ]


def batch_loop(
    size: int, inputs: Sequence[Batched], *, test: Graph, body: Graph, tape: tuple[int, ...], vmap: Vmap
) -> list[Batched]:
    n = len(body.outs)
    flags = _carried(body, [x.batched for x in inputs], n, vmap)
    tests, (differs,) = vmap(test, flags)
    if differs:
        return _batch_masked_loop(size, inputs, test, body, tape, vmap)
    bodies, _ = vmap(body, flags, [k for k in range(n) if flags[k]])
    result = apply("loop", *_ready(size, inputs, flags), test=tests, body=bodies, tape=tape)
    kinds = [*flags[:n], *(flags[k] for k in tape)]
    return [Batched(item(result, k), has) for k, has in enumerate(kinds)]


def _batch_masked_loop(
    size: int, inputs: Sequence[Batched], test: Graph, body: Graph, tape: tuple[int, ...], vmap: Vmap
) -> list[Batched]:
    """Rounds go on until all examples are done; those that are keep what they carry."""
    n = len(body.outs)
    flags = [k < n or x.batched for k, x in enumerate(inputs)]
    tests, bodies = vmap(test, flags, [0])[0], vmap(body, flags, range(n))[0]
    nodes = _ready(size, inputs, flags)
    active = param(Aval((size,), BOOL), "active")
    own = [param(node.aval, "x") for node in nodes]
    new = _guarded(active, bodies, own, flags)
    carry = [_masked(active, after, before) for after, before in zip(new, own, strict=False)]
    goes_on = tests.inline([*carry, *own[n:]])[0]
    rounds = Graph([active, *own], [apply("logical_and", active, _truth(goes_on)), *carry], body.name)
    result = apply(
        "loop", _truth(tests.inline(nodes)[0]), *nodes, test=Graph([active, *own], [_any(active)], test.name),
        body=rounds, tape=(0, *(k + 1 for k in tape)) if tape else (),
    )  # fmt: skip
    mask = item(result, n + 1) if tape else None
    taped = [Batched(item(result, n + 2 + k), True, mask) for k in range(len(tape))]
    return [*(Batched(item(result, k + 1), True) for k in range(n)), *taped]


def _truth(node: Node) -> Node:
    return node if node.dtype == BOOL else apply("not_equal", node, 0)


def batch_scan(
    size: int, inputs: Sequence[Batched], *, body: Graph, n_carry: int, n_xs: int, length: int | None, reverse: bool,
    tape: tuple[int, ...], vmap: Vmap,
) -> list[Batched]:  # fmt: skip
    """Sequences that are arrays are cut along their second axis, behind the examples; tapes have examples inside."""
    first_const = n_carry + n_xs
    mask = next((x.mask for x in inputs[n_carry:first_const] if x.mask is not None), None)
    flags = [x.batched or (mask is not None and k < n_carry) for k, x in enumerate(inputs)]
    flags = _carried(body, flags, n_carry, vmap)
    force = range(len(body.outs)) if mask is not None else [k for k in range(n_carry) if flags[k]]
    bodies, found = vmap(body, flags, force)
    nodes = _ready(size, inputs, flags)
    for k in range(n_carry, first_const):
        if flags[k] and not isinstance(nodes[k].aval, Tape):
            nodes[k] = _exchanged(nodes[k])
    if mask is not None:
        bodies = _masked_body(size, bodies, flags, n_carry, n_xs)
        nodes.insert(first_const, mask)
    result = apply(
        "scan", *nodes, body=bodies, n_carry=n_carry, n_xs=n_xs + (mask is not None), length=length, reverse=reverse,
        tape=tape,
    )  # fmt: skip
    outs = []
    for k, has in enumerate([*found, *(flags[k] for k in tape)]):
        out = item(result, k)
        if k >= n_carry and has and not isinstance(out.aval, Tape):
            out = _exchanged(out)
        outs.append(Batched(out, has, mask if k >= n_carry and has else None))
    return outs


def _exchanged(x: Node) -> Node:
    return apply("transpose", x, axes=(1, 0, *range(2, x.ndim)))


def _masked_body(size: int, body: Graph, flags: Sequence[bool], n_carry: int, n_xs: int) -> Graph:
    mask = param(Aval((size,), BOOL), "active")
    own = [param(node.aval, "x") for node in body.params]
    outs = _guarded(mask, body, own, flags)
    carry = [_masked(mask, after, before) for after, before in zip(outs[:n_carry], own, strict=False)]
    last = n_carry + n_xs
    return Graph([*own[:last], mask, *own[last:]], [*carry, *outs[n_carry:]], body.name)


# -- tapes ------------------------------------------------------------------------------------------------------------


def batch_add_tapes(size: int, inputs: Sequence[Batched], *, vmap: Vmap) -> Batched:
    first, second = inputs if inputs[0].batched else inputs[::-1]
    return Batched(apply("add_tapes", first.node, second.node), True, first.mask or second.mask)


def batch_zero_tape(size: int, inputs: Sequence[Batched], *, vmap: Vmap) -> Batched:
    (x,) = inputs
    return Batched(apply("zero_tape", x.node), x.batched, x.mask)


