"""Parts of a tree that derivatives treat in their own way, each a sub-graph until a pass puts it in line.

``checkpoint`` computes its graph, and its derivative computes it again instead of keeping what it went through.
``custom_vjp`` has a derivative of the user's. ``after`` is its first input, once the others exist: what reads it cannot
be merged with what was computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.batching import everywhere
from futurex.ops.elementwise import zeros_like
from futurex.ops.tapes import Batched, plain
from futurex.tree.activity import active_outs
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, substitute
from futurex.tree.node import Node, apply, item, param
from futurex.tree.record import NotDifferentiable, Sample, op

Vmap = Callable[..., tuple[Graph, list[bool]]]
REGIONS = frozenset({"checkpoint", "custom_vjp"})
"""Ops that a pass replaces by what their graph computes."""


def _run(*inputs: Any, graph: Graph, **_: Any) -> tuple[Any, ...]:
    return tuple(graph(*inputs))


def _aval(*inputs: Aval, graph: Graph, **_: Any) -> tuple[Aval, ...]:
    expected = tuple(node.aval for node in graph.params)
    if inputs != expected:
        raise TypeError(f"a region that takes {expected} was given {inputs}")
    return tuple(node.aval for node in graph.outs)


def _inline(*inputs: Node, graph: Graph, **_: Any) -> tuple[Node, ...]:
    return tuple(graph.inline(inputs))


# -- after ------------------------------------------------------------------------------------------------------------


def _batch_after(size: int, batched: Sequence[bool], x: Node, *others: Node) -> Node:
    (first,) = everywhere(size, batched[:1], [x])
    return apply("after", first, *others)


op(
    "after", lambda x, *others: x, aval=lambda x, *others: x, view=0, batch=_batch_after,
    vjp=lambda g, out, x, *others: (g, *(None for _ in others)),
    jvp=lambda tangents, out, x, *others: None if tangents[0] is None else apply("after", tangents[0], *others),
    samples=lambda rng: [Sample((rng.normal(size=(2, 3)), np.float64(1.0), np.arange(3)))],
)  # fmt: skip


# -- checkpoint -------------------------------------------------------------------------------------------------------


def _checkpoint_rule(
    g: Sequence[Node | None], out: Node, *inputs: Node, graph: Graph, pullback: Callable[..., Graph],
    needed: Sequence[bool],
) -> tuple[Node | None, ...]:  # fmt: skip
    wrt = [k for k, want in enumerate(needed) if want]
    active = active_outs(graph, wrt)
    seeded = [k for k, seed in enumerate(g) if seed is not None and active[k]]
    seeds = [seed for k in seeded if (seed := g[k]) is not None]
    if not seeds:
        return (None,) * len(inputs)
    again = [x if x.op == "const" else apply("after", x, *seeds) for x in inputs]
    found = dict(zip(wrt, pullback(graph, wrt, seeded).inline([*again, *seeds]), strict=True))
    return tuple(found.get(k) for k in range(len(inputs)))


def _checkpoint_push(
    tangents: Sequence[Node | None], out: Node, *inputs: Node, graph: Graph, jvp: Callable[..., Graph]
) -> tuple[list[Node], list[Node | None]]:
    wrt = [k for k, t in enumerate(tangents) if t is not None]
    moved = [k for k, is_active in enumerate(active_outs(graph, wrt)) if is_active]
    result = apply("checkpoint", *inputs, *(t for t in tangents if t is not None), graph=jvp(graph, wrt, moved))
    n = len(graph.outs)
    found = {k: item(result, n + place) for place, k in enumerate(moved)}
    return [item(result, k) for k in range(n)], [found.get(k) for k in range(n)]


def _batch_checkpoint(size: int, inputs: Sequence[Batched], *, graph: Graph, vmap: Vmap) -> list[Batched]:
    mapped, flags = vmap(graph, [x.batched for x in inputs])
    result = apply("checkpoint", *(x.node for x in inputs), graph=mapped)
    return [Batched(item(result, k), has) for k, has in enumerate(flags)]


def _checkpoint_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, w = param(Aval((3,), np.dtype(float)), "x"), param(Aval((3,), np.dtype(float)), "w")
    h = apply("tanh", x * w)
    yield Sample((rng.normal(size=3), rng.normal(size=3)), {"graph": Graph([x, w], [h * x, h], "block")})


op(
    "checkpoint", _run, aval=_aval, vjp=_checkpoint_rule, jvp=_checkpoint_push, batch=_batch_checkpoint,
    decompose=_inline, structured=True, samples=_checkpoint_samples,
)  # fmt: skip


# -- custom derivatives -----------------------------------------------------------------------------------------------


def _custom_rule(
    g: Sequence[Node | None], out: Node, *inputs: Node, graph: Graph, forward: Graph, backward: Graph,
    wrt: tuple[int, ...], pullback: Callable[..., Graph], needed: Sequence[bool],
) -> tuple[Node | None, ...]:  # fmt: skip
    """``forward``: inputs to outputs and residuals; ``backward``: residuals and cotangents to those of ``wrt``."""
    for k, want in enumerate(needed):
        if want and k not in wrt:
            raise NotDifferentiable(
                f"{graph.name} has a derivative of its own and reads a value from outside that is differentiated; "
                "pass it as an argument"
            )
    floats = [k for k, node in enumerate(forward.outs[: len(graph.outs)]) if node.aval.inexact]
    known = dict(zip(forward.params, inputs, strict=True))
    for k, node in enumerate(forward.outs[: len(graph.outs)]):
        known.setdefault(node, item(out, k))  # a residual made of a result depends on it by this rule too
    residuals = substitute(forward, known)[len(graph.outs) :]
    seeds = [zeros_like(plain(graph.outs[k].aval)) if (seed := g[k]) is None else seed for k in floats]
    found = dict(zip(wrt, backward.inline([*residuals, *seeds]), strict=True))
    return tuple(found.get(k) if want else None for k, want in enumerate(needed))


def _batch_custom(
    size: int, inputs: Sequence[Batched], *, graph: Graph, forward: Graph, backward: Graph, wrt: tuple[int, ...],
    vmap: Vmap,
) -> list[Batched]:  # fmt: skip
    """Cotangents of inputs that all examples share are summed over them."""
    flags, n = [x.batched for x in inputs], len(graph.outs)
    mapped, _ = vmap(graph, flags, range(n))
    forwards, kept = vmap(forward, flags, range(n))
    n_seeds = len(backward.params) - (len(forward.outs) - n)
    backwards, _ = vmap(backward, [*kept[n:], *(True for _ in range(n_seeds))], range(len(backward.outs)))
    cots = [
        cot if flags[k] else apply("sum", cot, axis=(0,), keepdims=False, dtype=None)
        for k, cot in zip(wrt, backwards.outs, strict=True)
    ]
    result = apply(
        "custom_vjp", *(x.node for x in inputs), graph=mapped, forward=forwards,
        backward=Graph(backwards.params, cots, backward.name), wrt=wrt,
    )  # fmt: skip
    return [Batched(item(result, k), True) for k in range(n)]


def _custom_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y, g = (param(Aval((3,), np.dtype(float)), name) for name in "xyg")
    slope, value = apply("cos", x) * y, apply("sin", x) * y
    rx, ry = param(Aval((3,), np.dtype(float)), "r"), param(Aval((3,), np.dtype(float)), "r")
    yield Sample(
        (rng.normal(size=3), rng.normal(size=3)),
        {
            "graph": Graph([x, y], [value], "f"),
            "forward": Graph([x, y], [value, slope, apply("sin", x)], "forward"),
            "backward": Graph([rx, ry, g], [g * rx, g * ry], "backward"),
            "wrt": (0, 1),
        },
        order=1,
    )


op(
    "custom_vjp", _run, aval=_aval, vjp=_custom_rule, batch=_batch_custom, decompose=_inline, structured=True,
    samples=_custom_samples,
)  # fmt: skip
