"""Transforms of long convolutions with what is done before, between and behind them, as ``spectral_region`` nodes.

A transform reads each element once and writes each once, column by column, and bias, activation, pooling, their
derivatives and sums over positions need no other column: so what lies between two products is one trip through memory.
Sums over positions and batch are those over positions first. Behind a transform no order is NumPy's; all else is equal
bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from futurex.ops.fusion import CORRECTLY_ROUNDED, function_of, loop_of
from futurex.ops.spectra import work_of
from futurex.passes.fuse import MOST_ARRAYS, Regions, program_order, rebuild, taken_in
from futurex.passes.rewrite import users_of
from futurex.passes.simplify import scalar_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, item
from futurex.tree.source import at

LONGEST, MOST_WORK = 5000, 20000
"""Operations for each column of one map, and of those of a region, that straight code is made for."""
LEAST_COLUMNS, _MOST_NODES = 16, 64
_SINGLE, _TRUTH = np.dtype(np.float32), np.dtype(bool)
_ON_NUMBERS = CORRECTLY_ROUNDED - {
    "floor_divide", "remainder", "fmod", "left_shift", "right_shift", "copysign", "nextafter"
}  # fmt: skip
_POOLS = frozenset(("max_pool", "max_pool_places", "max_pool_spread"))
_MOST_PLACES = 255


def join_maps(graph: Graph) -> Graph:
    """The graph with ``spectral_region`` in the place of transforms and their neighbours."""
    maps = [node for node in graph.nodes if _is_map(node)]
    if not maps:
        return graph
    order, users = program_order(graph), users_of(graph)
    regions = Regions(order, _fit)
    for node in order:
        if node.op == "item" and _may_join(node):
            regions.merge(node.inputs[0], node)
    pending = maps[::-1]  # what comes first takes what it can
    while pending:
        node = pending.pop()
        for source, user in [*((each, node) for each in node.inputs), *((node, each) for each in users[node])]:
            other = user if source is node else source
            if _may_join(other) and not regions.together(source, user):
                regions.merge(source, user)
                if regions.together(source, user):
                    pending.append(other)
    groups = [group for group in regions.groups(lambda node: True) if _pays(group)]
    return rebuild(graph, order, groups, _make) if groups else graph


def _is_map(node: Node) -> bool:
    """Is it a transform of activations? Those of weights are small."""
    if node.op != "spectral_map" or node.attrs["which"] == "weights" or not node.is_static or node.ndim != 3:
        return False
    if node.dtype != _SINGLE or not node.size or min(node.shape[0], node.inputs[0].shape[0]) < 2:
        return False
    return _extents(node)[1] >= LEAST_COLUMNS and work_of(node.attrs["outputs"], node.attrs["taps"]) <= LONGEST


def _extents(node: Node) -> tuple[int, int]:
    """Positions, of which there are several, and columns; pooling has one example before the positions."""
    positions = node.shape[1] if node.shape[0] == 1 else node.shape[0]
    return positions, node.size // positions


def _may_join(node: Node) -> bool:
    if node.op == "item":
        return _may_join(node.inputs[0]) and node.inputs[0].op in _POOLS
    if not node.is_static or not node.inputs or not all(isinstance(each.aval, Aval) for each in node.inputs):
        return False
    x = node.inputs[0]
    if not x.size or x.ndim != 3:
        return node.record.elementwise and _is_elementwise(node)
    if node.op in _POOLS:
        (window, *others), padding = node.attrs["window"], node.attrs["padding"]
        return not others and padding == ((0, 0),) and window <= _MOST_PLACES and x.dtype == _SINGLE and x.shape[0] == 1
    if node.op == "sum":
        over = node.attrs["axis"] in ((0,), (0, 1)) and not node.attrs["keepdims"]
        return over and x.shape[0] > 1 and node.dtype == x.dtype == _SINGLE
    if node.op == "reshape":
        return node.ndim == 3 and _extents(node) == _extents(x)
    return _is_map(node) or _is_elementwise(node)


def _is_elementwise(node: Node) -> bool:
    """Is it an operation on single numbers, of all columns or of what is the same at all positions?"""
    loop = loop_of(node) if isinstance(node.aval, Aval) and node.ndim == 3 and node.size else None
    if loop is None or function_of(node) not in _ON_NUMBERS:
        return False
    return {*loop[0], loop[1]} <= {_SINGLE, _TRUTH} and all(_is_operand(source, node) for source in node.inputs)


def _is_operand(source: Node, node: Node) -> bool:
    if source.op == "const" and source.size == 1:
        return scalar_of(source) is not None
    if source.shape == node.shape:
        return source.dtype in (_SINGLE, _TRUTH)
    kept = next((k for k, extent in enumerate(source.shape) if extent != 1), source.ndim)
    row = source.shape[kept:]
    return source.dtype == _SINGLE and 0 < len(row) < node.ndim and row == node.shape[-len(row) :]


def _fit(nodes: list[Node]) -> bool:
    """May these be one region: of as many columns, and none reads a sum?"""
    inside = set(nodes)
    arrays = [node for node in nodes if node.op not in ("item", "sum")]
    columns = {_extents(node.inputs[0] if node.op == "max_pool_places" else node)[1] for node in arrays}
    read = {source for node in nodes for source in node.inputs}
    work = sum(work_of(node.attrs["outputs"], node.attrs["taps"]) for node in nodes if node.op == "spectral_map")
    work += 2.5 * sum(_extents(node)[0] for node in arrays if isinstance(node.aval, Aval))
    if len(nodes) > _MOST_NODES or any(node.op == "sum" and node in read for node in nodes):
        return False
    return len(columns) == 1 and len(read - inside) <= MOST_ARRAYS and work <= MOST_WORK


def _pays(group: Sequence[Node]) -> bool:
    maps = [node for node in group if _is_map(node)]
    return bool(maps) and any(node not in maps and node.op != "reshape" for node in group)


def _make(group: list[Node], graph: Graph, users: dict[Node, list[Node]], new: dict[Node, Node]) -> None:
    """One node for a group; what is read of it in another shape is a view beside it."""
    inside, results = set(group), set(graph.outs)
    read = [node for node in group if node in results or any(user not in inside for user in users[node])]
    views = [node for node in read if node.op == "reshape"]
    bases = {_base(node) for node in views}
    outs = [node for node in group if node in bases or (node in read and node not in views)]
    inner, inputs = taken_in(group, new, lambda constant: constant.size == 1)
    params = [each for each in inner.values() if each.op == "param"]
    for node in group:
        sources = [inner[source] for source in node.inputs]
        inner[node] = _sum(sources[0]) if node.op == "sum" else rebuilt(node, sources)
    name = "_".join(dict.fromkeys(node.op for node in group))
    given = list(dict.fromkeys(inner[node] for node in outs))  # two sums may be the same over positions
    with at(group[0].src):
        made = apply("spectral_region", *inputs, graph=Graph(params, given, name))
        for node in outs:
            found = made if len(given) == 1 else item(made, given.index(inner[node]))
            new[node] = found if found.shape == node.shape else _sum(found)
        for node in views:
            new[node] = apply("reshape", new[_base(node)], shape=node.shape)


def _base(node: Node) -> Node:
    while node.op == "reshape":
        node = node.inputs[0]
    return node


def _sum(x: Node) -> Node:
    return apply("sum", x, axis=(0,), keepdims=False, dtype=None)
