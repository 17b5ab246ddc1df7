"""Reductions that read the same arrays over the same space, and not each other, become one region: one trip through
memory instead of two, as for the maximum and the sum of an array's rows, or the two vectors that layer normalisation
learns."""

from __future__ import annotations

import itertools

from futurex.ops.sweeps import Space, holds_reduction
from futurex.passes.fuse import MOST_ARRAYS, MOST_NODES, Regions, program_order, rebuild, region_of
from futurex.passes.recompute import LEAST_BYTES
from futurex.passes.rewrite import users_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, item, param
from futurex.tree.source import at


def join_siblings(graph: Graph) -> Graph:
    """The graph with such reductions as one ``fused_reduction``."""
    order, users = program_order(graph), users_of(graph)
    regions = Regions(order, _fit)
    for source in order:
        readers = [user for user in dict.fromkeys(users[source]) if _space(user) is not None]
        for first, second in itertools.pairwise(readers):
            if source in _large(first):
                regions.merge(first, second)
    joined = [group for group in regions.groups(lambda node: _space(node) is not None) if len(group) > 1]
    place = {node: k for k, node in enumerate(order)}
    groups = []
    for group in joined:
        items = [user for node in group for user in dict.fromkeys(users[node]) if user.op == "item"]
        groups.append(sorted([*group, *items], key=place.__getitem__))
    return rebuild(graph, order, groups, _make) if groups else graph


def _space(node: Node) -> Space | None:
    """What a region reduces whose results are all reduced ones."""
    if node.op != "fused_reduction":
        return None
    region = node.attrs["graph"]
    space = holds_reduction(region.nodes)
    return space if space is not None and all(out.shape != space.shape for out in region.outs) else None


def _large(node: Node) -> set[Node]:
    return {source for source in node.inputs if source.aval.nbytes >= LEAST_BYTES}


def _fit(nodes: list[Node]) -> bool:
    """May these be one region? What one reads must not live longer because another one comes later."""
    if len({_space(node) for node in nodes}) > 1 or any(source in nodes for node in nodes for source in node.inputs):
        return False
    read = [_large(node) for node in nodes]
    most = max(read, key=len)
    sources = {source for node in nodes for source in node.inputs}
    size = sum(len(node.attrs["graph"].nodes) for node in nodes)
    return all(each <= most for each in read) and len(sources) <= MOST_ARRAYS and size <= MOST_NODES


def _make(group: list[Node], graph: Graph, users: dict[Node, list[Node]], new: dict[Node, Node]) -> None:
    inner: dict[Node, Node] = {}
    values: dict[Node, Node] = {}
    for node in group:
        if node.op == "item":
            continue
        region = node.attrs["graph"]
        sources = [new[source] for source in node.inputs]
        own = [inner.setdefault(source, param(source.aval, f"a{len(inner)}")) for source in sources]
        results = region.inline(own)
        items = {each.attrs["index"]: each for each in group if each.op == "item" and each.inputs[0] is node}
        values |= {items[k]: out for k, out in enumerate(results) if k in items} or {node: results[0]}
    outs = list(dict.fromkeys(values.values()))
    with at(group[0].src):
        made = region_of(list(inner.values()), outs, list(inner))
    where = {out: item(made, k) if len(outs) > 1 else made for k, out in enumerate(outs)}
    new.update({value: where[out] for value, out in values.items()})
