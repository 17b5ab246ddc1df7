"""Dead code inside nodes: what is computed only beside something that is needed.

A node that nobody reads is not part of a graph, so only results and inputs of structured nodes are left to prune.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from futurex.passes.rewrite import Maker, Rule, is_effect, rewrite
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, build, item


def prune(graph: Graph) -> Graph:
    """Merge loops with their taped twins, and drop what no reader of a branch needs."""
    while (rule := _merge_loops(graph)) is not None:  # what reads a merged loop may be another one's twin now
        after = rewrite(graph, rule)
        if after is graph:
            break
        graph = after
    return _prune_branches(graph)


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


def _prune_branches(graph: Graph) -> Graph:
    """``cond`` without the results that nobody reads and without the inputs that then neither branch reads.

    One walk from the results backwards finds what is needed: what a branch does not read, earlier ones need not give.
    """
    needed = set(graph.outs)
    read: dict[Node, set[int]] = {}
    slim: dict[Node, _Slim] = {}
    for node in reversed(graph.nodes):
        if node not in needed:
            continue
        if node.op == "item":
            read.setdefault(node.inputs[0], set()).add(node.attrs["index"])
        if node.op == "cond" and node not in graph.outs:
            slim[node] = _slimmed(node, read[node])
            needed.update((node.inputs[0], *(node.inputs[k + 1] for k in slim[node].inputs)))
        else:
            needed.update(node.inputs)
    slim = {node: found for node, found in slim.items() if found.changes(node)}
    made: dict[Node, Node] = {}
    makers = {
        node: _maker(node, slim[node.inputs[0]], made)
        for node in graph.nodes
        if node.op == "item" and node in needed and node.inputs[0] in slim
    }
    return rewrite(graph, lambda node: None, makers) if makers else graph


@dataclass(frozen=True)
class _Slim:
    """Which results and inputs of a ``cond`` are needed."""

    results: list[int]
    inputs: list[int]

    def changes(self, node: Node) -> bool:
        return len(self.results) < len(node.aval) or len(self.inputs) < len(node.inputs) - 1


def _slimmed(node: Node, read: set[int]) -> _Slim:
    """Results that are read, or that an effect of either branch hangs on; inputs that they are computed from."""
    branches = node.attrs["then"], node.attrs["orelse"]
    results = [k for k in range(len(node.aval)) if k in read or any(_has_effect(b.outs[k]) for b in branches)]
    reached = [set(topological([branch.outs[k] for k in results])) for branch in branches]
    pairs = list(zip(branches, reached, strict=True))
    return _Slim(results, [k for k in range(len(node.inputs) - 1) if any(b.params[k] in nodes for b, nodes in pairs)])


def _has_effect(node: Node) -> bool:
    return any(is_effect(each) for each in topological((node,)))


def _maker(node: Node, slim: _Slim, made: dict[Node, Node]) -> Maker:
    """One result of a ``cond``, of its slim form, which the first of them makes."""
    cond = node.inputs[0]

    def make(new: Mapping[Node, Node]) -> Node:
        if cond not in made:
            attrs = {
                name: Graph([b.params[k] for k in slim.inputs], [b.outs[k] for k in slim.results], b.name)
                for name, b in cond.attrs.items()
            }
            sources = (new[cond.inputs[0]], *(new[cond.inputs[k + 1]] for k in slim.inputs))
            made[cond] = build(cond.record, sources, attrs, tuple(cond.aval[k] for k in slim.results), cond.src)
        return item(made[cond], slim.results.index(node.attrs["index"]))

    return make
