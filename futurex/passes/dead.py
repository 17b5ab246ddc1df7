"""Dead code inside nodes: what is computed only beside something that is needed.

A node that nobody reads is not part of a graph, so only results and inputs of structured nodes are left to prune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from futurex.passes.rewrite import Maker, is_effect, rewrite
from futurex.tree.dims import is_static
from futurex.tree.graph import Graph, rebuilt, topological
from futurex.tree.node import Node, build, item


def prune(graph: Graph) -> Graph:
    """Merge loops with their taped twins, and drop what no reader of a branch needs."""
    while makers := _merge_loops(graph):  # what reads a merged loop may be another one's twin now
        after = rewrite(graph, lambda node: None, makers)
        if after is graph:
            break
        graph = after
    return _prune_structured(graph)


def _loop_key(node: Node) -> tuple[object, ...]:
    return node.op, node.inputs, tuple((name, value) for name, value in sorted(node.attrs.items()) if name != "tape")


def _merge_loops(graph: Graph) -> dict[Node, Maker]:
    """Equal loops with different tapes, made for different derivatives, become one loop with all of them."""
    twins: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if node.op in ("loop", "scan"):  # loops that print are twins only where they are one of the user's
            twins.setdefault((*_loop_key(node), node.src if node.acts else None), []).append(node)
    groups = [group for group in twins.values() if len(group) > 1 and not _are_several(group)]
    merged = {node: whole for group in groups for whole in [_with_all_tapes(group)] for node in group}
    made: dict[Node, Node] = {}
    results = [node for node in graph.nodes if node.op == "item" and node.inputs[0] in merged]
    return {node: _result_of(node, merged[node.inputs[0]], made) for node in results}


def _result_of(node: Node, whole: Node, made: dict[Node, Node]) -> Maker:
    """A result of a loop as one of a loop with more tapes, which the first of its results makes anew."""
    index, tape = node.attrs["index"], node.inputs[0].attrs["tape"]
    first = len(node.inputs[0].aval) - len(tape)
    if index >= first:
        index = first + whole.attrs["tape"].index(tape[index - first])

    def make(new: Mapping[Node, Node]) -> Node:
        if whole not in made:
            made[whole] = rebuilt(whole, [new[source] for source in whole.inputs])
        return item(made[whole], index)

    return make


def _are_several(group: list[Node]) -> bool:
    """Are these rounds of a loop that is written out, in which each must print?"""
    return group[0].acts and sum(not node.attrs["tape"] for node in group) > 1


def _with_all_tapes(group: list[Node]) -> Node:
    """The first of them with the tapes of all. Its results keep their types: of an extent that the operation's rule
    leaves open, as that of a carried array of unknown length, what reads it has the name already."""
    node = group[0]
    first = len(node.aval) - len(node.attrs["tape"])
    tapes = {k: aval for each in group for k, aval in zip(each.attrs["tape"], each.aval[first:], strict=True)}
    numbers = tuple(sorted(tapes))
    avals = (*node.aval[:first], *(tapes[k] for k in numbers))
    return build(node.record, node.inputs, {**node.attrs, "tape": numbers}, avals, node.src)


def _prune_structured(graph: Graph) -> Graph:
    """``cond`` and ``loop`` without the results that nobody reads and without the inputs that then nothing reads.

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
        if node.op in _SLIMMED and node not in graph.outs:
            slim[node] = _SLIMMED[node.op][0](node, read.get(node, set()))
            needed.update(node.inputs[k] for k in slim[node].inputs)
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
    """Which results and inputs of a structured node are needed."""

    results: list[int]
    inputs: list[int]

    def changes(self, node: Node) -> bool:
        return len(self.results) < len(node.aval) or len(self.inputs) < len(node.inputs)


def _slimmed(node: Node, read: set[int]) -> _Slim:
    """Results that are read, or that an effect of either branch hangs on; inputs that they are computed from."""
    branches = node.attrs["then"], node.attrs["orelse"]
    results = [k for k in range(len(node.aval)) if k in read or any(_has_effect(b.outs[k]) for b in branches)]
    reached = [set(topological([branch.outs[k] for k in results])) for branch in branches]
    pairs = list(zip(branches, reached, strict=True))
    for k in sorted(set(range(len(node.aval))) - set(results)):
        rest = [set(topological((branch.outs[k],))) - nodes for branch, nodes in pairs]
        if any(map(may_raise, set().union(*rest))):  # its error would be missed
            results = sorted([*results, k])
            for nodes, more in zip(reached, rest, strict=True):
                nodes |= more
    inputs = [k for k in range(1, len(node.inputs)) if any(b.params[k - 1] in nodes for b, nodes in pairs)]
    return _Slim(results, [0, *inputs])


def _slimmed_loop(node: Node, read: set[int]) -> _Slim:
    """What is carried and read after the loop, or needed for that in a later round, by the test, or by a tape; what has
    an effect or may raise is needed, too."""
    test, body, tape = node.attrs["test"], node.attrs["body"], node.attrs["tape"]
    n = len(body.outs)
    live = {k for k in range(n) if k in read or k in tape or _has_effect(body.outs[k])}
    while True:
        reached = set(topological((*test.outs, *(body.outs[k] for k in live))))
        more = {k for k in range(n) if body.params[k] in reached or test.params[k] in reached} - live
        more = more or {k for k in range(n) if k not in live and any(
            may_raise(each) for each in topological((body.outs[k],)) if each not in reached)}  # fmt: skip
        if not more:
            break
        live |= more
    consts = [k for k in range(n, len(node.inputs)) if body.params[k] in reached or test.params[k] in reached]
    results = sorted(live)
    return _Slim([*results, *range(n, n + len(tape))], [*results, *consts])


def may_raise(node: Node) -> bool:
    """May it raise for some values, at an index out of bounds for instance?"""
    if node.op in ("param", "const", "item"):
        return False
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    if node.record.may_fail(node) or is_effect(node) or any(may_raise(each) for graph in inner for each in graph.nodes):
        return True
    steps = node.attrs["chain"] if node.op in ("load", "store") else ()
    if any(entry[0] == "d" for step in steps if step[0] == "index" for entry in step[1]):
        return True
    return not (node.is_static or node.op in ("cond", "loop") or _always_fit(node))


def may_not_end(node: Node) -> bool:
    """Is it a loop, or a branch with one in it? Data may keep it from its end."""
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    return node.op == "loop" or any(may_not_end(each) for graph in inner for each in graph.nodes)


def _always_fit(node: Node) -> bool:
    """Are arrays put one behind the other that differ along that axis alone? So a list grows that data ends."""
    if node.op != "concatenate":
        return False
    axis = node.attrs["axis"]
    across = [(*source.aval.shape[:axis], *source.aval.shape[axis + 1 :]) for source in node.inputs]
    return all(is_static(shape) and shape == across[0] for shape in across)


def _has_effect(node: Node) -> bool:
    return any(is_effect(each) for each in topological((node,)))


def _maker(node: Node, slim: _Slim, made: dict[Node, Node]) -> Maker:
    """One result of a structured node, of its slim form, which the first of them makes."""
    whole = node.inputs[0]

    def make(new: Mapping[Node, Node]) -> Node:
        if whole not in made:
            sources = tuple(new[whole.inputs[k]] for k in slim.inputs)
            attrs = _SLIMMED[whole.op][1](whole, slim)
            made[whole] = build(whole.record, sources, attrs, tuple(whole.aval[k] for k in slim.results), whole.src)
        return item(made[whole], slim.results.index(node.attrs["index"]))

    return make


def _slim_branches(node: Node, slim: _Slim) -> dict[str, Any]:
    return {
        name: Graph([b.params[k - 1] for k in slim.inputs[1:]], [b.outs[k] for k in slim.results], b.name)
        for name, b in node.attrs.items()
    }


def _slim_rounds(node: Node, slim: _Slim) -> dict[str, Any]:
    test, body, tape = node.attrs["test"], node.attrs["body"], node.attrs["tape"]
    carried = slim.results[: len(slim.results) - len(tape)]
    return {
        "test": Graph([test.params[k] for k in slim.inputs], test.outs, test.name),
        "body": Graph([body.params[k] for k in slim.inputs], [body.outs[k] for k in carried], body.name),
        "tape": tuple(carried.index(k) for k in tape),
    }


_SLIMMED: dict[str, tuple[Callable[[Node, set[int]], _Slim], Callable[[Node, _Slim], dict[str, Any]]]] = {
    "cond": (_slimmed, _slim_branches), "loop": (_slimmed_loop, _slim_rounds),
}  # fmt: skip
