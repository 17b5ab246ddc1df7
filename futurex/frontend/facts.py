"""What a branch, a round or a path knows of tests: how those came out that lead to it."""

from __future__ import annotations

from collections.abc import Iterator

from futurex.frontend.trace import current
from futurex.tree.node import Node

_SAME = frozenset({"python_scalar", "cast", "reshape"})


def learn(test: Node, outcome: bool) -> None:
    """From here on to the end of the region a test is known to have come out so, and what follows from that."""
    facts, todo = current().regions[-1].facts, [(test, outcome)]
    while todo:
        node, found = todo.pop()
        if node.op != "const" and node not in facts:
            facts[node] = found
            todo += _implied(node, found)


def known(test: Node) -> bool | None:
    """How a test came out; None if that is not known."""
    if test.op == "const":
        return bool(test.value)
    for region in current().regions:
        if test in region.facts:
            return region.facts[test]
    if test.op == "logical_not" and _is_test(test.inputs[0]):
        found = known(test.inputs[0])
        return None if found is None else not found
    return known(test.inputs[0]) if test.op in _SAME and _is_test(test.inputs[0]) else None


def _is_test(node: Node) -> bool:
    return node.dtype.kind == "b" and node.ndim == 0


def _implied(node: Node, outcome: bool) -> Iterator[tuple[Node, bool]]:
    if node.op == "logical_not" and _is_test(node.inputs[0]):
        yield node.inputs[0], not outcome
    elif node.op in _SAME and _is_test(node.inputs[0]):
        yield node.inputs[0], outcome
    elif node.op == "item" and node.inputs[0].op == "cond" and _is_test(node):
        yield from _of_choice(node.inputs[0], node.attrs["index"], outcome)


def _of_choice(node: Node, index: int, outcome: bool) -> Iterator[tuple[Node, bool]]:
    """``a and b`` is true where both are, ``a or b`` is false where both are."""
    test, *free = node.inputs
    for name, taken, other in (("then", True, "orelse"), ("orelse", False, "then")):
        graph = node.attrs[name]
        found = _outcome(graph.outs[index], dict(zip(graph.params, free, strict=True)), {test: taken})
        if found == (not outcome):
            yield test, not taken
            graph = node.attrs[other]
            inside, found = _source(graph.outs[index], outcome)
            outer = dict(zip(graph.params, free, strict=True)).get(inside)
            if outer is not None and _is_test(outer):
                yield outer, found


def _source(node: Node, outcome: bool) -> tuple[Node, bool]:
    """The node that a test is made of, and how that came out."""
    while node.op in (*_SAME, "logical_not") and _is_test(node.inputs[0]):
        outcome = outcome != (node.op == "logical_not")
        node = node.inputs[0]
    return node, outcome


def _outcome(node: Node, outer: dict[Node, Node], facts: dict[Node, bool]) -> bool | None:
    """How a test inside a branch comes out, where ``facts`` are known."""
    source, same = _source(node, True)
    if source.op == "const":
        return bool(source.value) == same
    found = facts.get(outer.get(source, source))
    return None if found is None else found == same
