"""Dead code inside nodes: what is computed only beside something that is needed.

A node that nobody reads is not part of a graph, so only results and inputs of structured nodes are left to prune.
"""

from __future__ import annotations

from collections.abc import Callable

from futurex.ops.control import TAPE
from futurex.passes.rewrite import Rule, is_effect, rewrite, users_of
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, build, item
from futurex.tree.record import record


def prune(graph: Graph) -> Graph:
    """Merge loops with their taped twins and drop what no reader of a branch needs."""
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
    return node.inputs, node.attrs["test"], node.attrs["body"]


def _merge_loops(graph: Graph) -> Rule | None:
    """Results of a plain loop come from the taped run of the same loop, where its derivative needs one anyway."""
    taped = {_loop_key(node): node for node in graph.nodes if node.op == "loop" and node.attrs["tape"]}

    def rule(node: Node) -> Node | None:
        loop = node.inputs[0] if node.op == "item" else node
        if node is loop or loop.op != "loop" or loop.attrs["tape"] or _loop_key(loop) not in taped:
            return None
        twin = build(loop.record, loop.inputs, {**loop.attrs, "tape": True}, (*loop.aval, TAPE), loop.src)
        return item(twin, node.attrs["index"])

    return rule if taped else None


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
