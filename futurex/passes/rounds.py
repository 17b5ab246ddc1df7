"""How many rounds a loop makes, where constants decide it."""

from __future__ import annotations

from typing import Any

from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node

MOST_ROUNDS = 100_000


def rounds_of(loop: Node, most: int = MOST_ROUNDS) -> int | None:
    """How many rounds a ``loop`` will make; None where that depends on arguments, or they are too many to try."""
    test, body = loop.attrs["test"], loop.attrs["body"]
    needed, last = _read(Graph(test.params, test.outs[:1])), -1
    while len(needed) != last:
        last = len(needed)
        for k in [k for k in needed if k < len(body.outs)]:
            needed |= _read(Graph(body.params, [body.outs[k]]))
    if any(loop.inputs[k].op != "const" or loop.inputs[k].size != 1 for k in needed):
        return None
    values: list[Any] = [loop.inputs[k].value if k in needed else None for k in range(len(body.params))]
    carried = sorted(k for k in needed if k < len(body.outs))
    step = Graph(body.params, [body.outs[k] for k in carried])
    try:
        for count in range(most):
            if not bool(test(*values)[0]):
                return count
            for k, value in zip(carried, step(*values), strict=True):
                values[k] = value
    except Exception:  # the run will meet it again
        return None
    return None


def _read(graph: Graph) -> set[int]:
    """Which inputs the outputs depend on."""
    inside = set(topological(graph.outs))
    return {k for k, node in enumerate(graph.params) if node in inside}
