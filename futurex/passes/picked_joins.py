"""Joins of many short rows of one array are picked from it, by a table of places.

The windows of a picture whose channels lie side by side (``np.concatenate([x[:, i : i + 30, j : j + 30] for i in ...],
-1)``, or stacks of such slices) are put together of rows of three numbers, which NumPy copies one by one. Where each
comes from is known before the run: one table for all that stands in front of the axes that are cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from futurex.ops.views import view
from futurex.passes.rewrite import Maker, rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const

LEAST, MOST_PLACES = 1 << 15, 1 << 17
"""Elements of a join, from which a kernel picks them faster; and of a table."""
FEWEST, LONG = 4, 16
"""Parts of a join, and elements of a row from which on blocks of it are written one by one."""
_ALL = ("s", None, None, None)


def pick_joins(graph: Graph) -> Graph:
    """The graph with such joins, the outermost ones, as one operation each."""
    makers: dict[Node, Maker] = {}
    inside: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "concatenate" or node in inside or not _is_large(node):
            continue
        within = list(_within(node))
        bases = {each for each in within if not _is_put_together(each)}
        if len(bases) == 1 and sum(each.op == "load" for each in within) >= FEWEST:
            (base,) = bases
            found = next((each for lead in range(base.ndim - 1, -1, -1) if (each := _table(node, base, lead))), None)
            if found is not None:
                makers[node] = functools.partial(_picked, node, base, *found)
                inside |= {*within} - bases
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _is_large(node: Node) -> bool:
    return isinstance(node.aval, Aval) and node.is_static and node.size >= LEAST and node.dtype.kind in "biufc"


def _is_put_together(node: Node) -> bool:
    return node.op in ("concatenate", "reshape") or (node.op == "load" and len(node.inputs) == 1)


def _within(node: Node) -> Iterator[Node]:
    """What a join is put together of, through joins, views and reshapes, each once."""
    seen, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        yield each
        if _is_put_together(each):
            waiting += [source for source in dict.fromkeys(each.inputs) if source not in seen]
            seen.update(each.inputs)


def _table(node: Node, base: Node, lead: int) -> tuple[int, np.ndarray] | None:
    """Where each element comes from behind so many axes in front, which all parts take whole; None where that is not
    so, or rows are long."""
    if not isinstance(base.aval, Aval) or not base.is_static or base.aval.weak or base.dtype != node.dtype:
        return None
    inner = math.prod(base.shape[lead:])
    if node.shape[:lead] != base.shape[:lead] or math.prod(node.shape[lead:]) > MOST_PLACES or not inner:
        return None
    own = np.arange(inner, dtype=np.int32).reshape(base.shape[lead:])
    places = _places(node, {base: own}, lead, base.shape[:lead])
    if places is None or _row(places) >= LONG:
        return None
    return lead, places


def _row(places: np.ndarray) -> float:
    """How many neighbours follow each other in the mean."""
    flat = places.reshape(-1)
    return flat.size / (1 + np.count_nonzero(np.diff(flat) != 1))


def _places(node: Node, known: dict[Node, np.ndarray | None], lead: int, front: tuple[int, ...]) -> np.ndarray | None:
    """The places of a node's elements among those of the base, behind the axes in front; ``known``: of others."""
    if node not in known:
        known[node] = _of_sources(node, known, lead, front) if node.shape[:lead] == front else None
    return known[node]


def _of_sources(
    node: Node, known: dict[Node, np.ndarray | None], lead: int, front: tuple[int, ...]
) -> np.ndarray | None:
    sources = [_places(source, known, lead, front) for source in node.inputs]
    there = [source for source in sources if source is not None]
    if len(there) < len(sources):
        return None
    if node.op == "reshape":
        return there[0].reshape(node.shape[lead:])
    if node.op == "concatenate":
        axis = node.attrs["axis"] % node.ndim - lead
        return np.concatenate(there, axis) if axis >= 0 else None
    chain = node.attrs["chain"]
    if any(step[0] != "index" or any(entry != _ALL for entry in step[1][:lead]) for step in chain):
        return None
    return view(there[0], tuple(("index", step[1][lead:]) for step in chain), ())


def _picked(node: Node, base: Node, lead: int, places: np.ndarray, new: Mapping[Node, Node]) -> Node:
    flat = apply("reshape", new[base], shape=(math.prod(base.shape[:lead]), math.prod(base.shape[lead:])))
    made = apply("gather", flat, const(places.reshape(-1)), pattern=(_ALL, ("d", 0)))
    return apply("reshape", made, shape=node.shape)
