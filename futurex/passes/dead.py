"""Dead code inside nodes: what is computed only beside something that is needed.

A node that nobody reads is not part of a graph, so only results and inputs of structured nodes are left to prune.
"""

from __future__ import annotations

from collections.abc import Callable

from futurex.passes.rewrite import Rule, is_effect, rewrite, users_of
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, build, item
from futurex.tree.record import record


def prune(graph: Graph) -> Graph:
    """Merge loops with their taped twins, and drop what no reader of a branch needs."""
    for make_rule in (_merge_loops, _prune_branches):
        graph = _repeat(graph, make_rule)
    return graph


def _repeat(graph: Graph, make_rule: Callable[[Graph], Rule | None]) -> Graph:
    """Rewrite until stable: what depends on a changed node is another node, which the next round sees."""
    while (rule := make_rule(graph)) is not None:
        after = rewrite(graph, rule)
        if after is graph:
            break
        graph = after
    return graph


def _loop_key(node: Node) -> tuple[object, ...]:
    return node.op, node.inputs, tuple((name, value) for name, value in sorted(node.attrs.items()) if name != "tape")


def _merge_loops(graph: Graph) -> Rule | None:
    """Equal loops with different tapes, made for different derivatives, become one loop with all of them."""
    twins: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if node.op in ("loop", "scan"):
            twins.setdefault(_loop_key(node), []).append(node)
    merged = {node: _with_all_tapes(group) for group in twins.values() if len(group) > 1 for node in group}

    def rule(node: Node) -> Node | None:
        loop = node.inputs[0] if node.op == "item" else node
        if node is loop or merged.get(loop, loop) is loop:
            return None
        index, tape = node.attrs["index"], loop.attrs["tape"]
        first = len(loop.aval) - len(tape)
        if index >= first:
            index = first + merged[loop].attrs["tape"].index(tape[index - first])
        return item(merged[loop], index)

    return rule if merged else None


def _with_all_tapes(group: list[Node]) -> Node:
    node = group[0]
    attrs = {**node.attrs, "tape": tuple(sorted({k for each in group for k in each.attrs["tape"]}))}
    avals = node.record.infer(tuple(source.aval for source in node.inputs), (), attrs)
    return build(node.record, node.inputs, attrs, avals, node.src)


def _prune_branches(graph: Graph) -> Rule | None:
    """``cond`` without the results that nobody reads and without the inputs that then neither branch reads."""
    users = users_of(graph)
    kept = {
        node: _needed_results(node, users[node]) for node in graph.nodes if node.op == "cond" and node not in graph.outs
    }

    def rule(node: Node) -> Node | None:
        source = node.inputs[0] if node.op == "item" else None
        if source is None or source not in kept:
            return None
        slim = _slim_cond(source, kept[source])
        return None if slim is source else item(slim, kept[source].index(node.attrs["index"]))

    return rule if kept else None


def _needed_results(node: Node, users: list[Node]) -> list[int]:
    """Results that are read, or that an effect of either branch hangs on."""
    read = {user.attrs["index"] for user in users}
    branches = node.attrs["then"], node.attrs["orelse"]
    return [k for k in range(len(node.aval)) if k in read or any(_has_effect(branch.outs[k]) for branch in branches)]


def _has_effect(node: Node) -> bool:
    return any(is_effect(each) for each in topological((node,)))


def _slim_cond(node: Node, kept: list[int]) -> Node:
    branches = [node.attrs["then"], node.attrs["orelse"]]
    outs = [[branch.outs[k] for k in kept] for branch in branches]
    reached = [set(topological(each)) for each in outs]
    inputs = [
        k
        for k in range(len(node.inputs) - 1)
        if any(branch.params[k] in nodes for branch, nodes in zip(branches, reached, strict=True))
    ]
    if len(kept) == len(node.aval) and len(inputs) == len(node.inputs) - 1:
        return node
    slim = [
        Graph([branch.params[k] for k in inputs], each, branch.name)
        for branch, each in zip(branches, outs, strict=True)
    ]
    sources = (node.inputs[0], *(node.inputs[k + 1] for k in inputs))
    attrs = {"then": slim[0], "orelse": slim[1]}
    return build(record("cond"), sources, attrs, tuple(node.aval[k] for k in kept), node.src)
