"""What every round of a loop would compute anew, of arrays from outside alone, is computed once before it.

``for _ in range(50): r = 0.85 * A @ r`` multiplies the matrix once. Views stay inside, arrays made of numbers alone,
which rounds may write into, and what may fail or be warned of where the loop might have no rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from futurex.passes.counters import counter
from futurex.passes.rewrite import Maker, is_effect, rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, substitute
from futurex.tree.node import Node, build, param

LEAST_ELEMENTS = 256
"""Of the largest array of an operation, below which it takes no longer than to give a loop its result."""
_VIEWS = frozenset(("load", "transpose", "reshape", "broadcast_to", "flip", "contiguous"))
_WRITTEN = frozenset(("store", "scatter", "masked_store"))
"""Ops whose first operand rounds write over that make it themselves."""
_QUIET = frozenset((
    "add", "subtract", "multiply", "negative", "absolute", "square", "maximum", "minimum", "where", "cast", "matmul",
    "conjugate", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
    "logical_not", *_VIEWS,
))  # fmt: skip
"""Ops that warn of nothing but of what overflows."""


def hoist(graph: Graph) -> Graph:
    """The graph with such operations before its loops, those of loops inside of others too."""
    makers: dict[Node, Maker] = {}
    for loop in graph.nodes:
        if loop.op in ("loop", "scan"):
            body = hoist(loop.attrs["body"])
            roots = _roots(loop, body)
            if roots or body is not loop.attrs["body"]:
                makers[loop] = functools.partial(_relieved, loop, body, roots)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _relieved(loop: Node, body: Graph, roots: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """A loop, with what its rounds share computed before it."""
    attrs, inputs = dict(loop.attrs), [new[source] for source in loop.inputs]
    before = substitute(Graph(body.params, roots, body.name), dict(zip(body.params, inputs, strict=True)))
    params = [param(root.aval, f"before {k}") for k, root in enumerate(roots)]
    outs = substitute(body, dict(zip([*body.params, *roots], [*body.params, *params], strict=True)))
    attrs["body"] = Graph([*body.params, *params], outs, body.name)
    if "test" in attrs:
        attrs["test"] = Graph([*attrs["test"].params, *params], attrs["test"].outs, attrs["test"].name)
    return build(loop.record, (*inputs, *before), attrs, loop.aval, loop.src)


def _roots(loop: Node, body: Graph) -> list[Node]:
    """Results of operations on arrays from outside, as rounds read them."""
    first = len(body.outs) if loop.op == "loop" else loop.attrs["n_carry"] + loop.attrs["n_xs"]
    counted = counter(loop) if loop.op == "loop" else None
    sure = bool(loop.attrs["length"]) if loop.op == "scan" else counted is not None and len(counted[1]) > 0
    users, outs = users_of(body), set(body.outs)

    def is_kept(node: Node) -> bool:
        """Is it, or what writes over it, given to the next round? That would have to be a copy."""
        written = any(user.op in _WRITTEN and node is user.inputs[0] for user in users[node])
        return node in outs or written or any(user.op in _VIEWS and is_kept(user) for user in users[node])

    found: set[Node] = set()
    alike = set(body.params[first:])
    for node in body.nodes:
        others = [each for each in node.inputs if each.op != "const"]
        if others and alike.issuperset(others) and _may_stand_before(node, sure) and not is_kept(node):
            alike.add(node)
            found.add(node)

    def is_read(node: Node) -> bool:
        """Do rounds read it, as it is or through views?"""
        return any(user not in found or (user.op in _VIEWS and is_read(user)) for user in users[node])

    computed = [node for node in body.nodes if node in found and node.op not in _VIEWS]
    return [node for node in computed if is_read(node) and _is_worth_it(node, found)]


def _may_stand_before(node: Node, sure: bool) -> bool:
    record = node.record
    if is_effect(node) or node.acts or record.structured or not node.is_static or not isinstance(node.aval, Aval):
        return False
    return not node.aval.weak and not record.may_fail(node) and (sure or node.op in _QUIET)


def _is_worth_it(node: Node, found: set[Node]) -> bool:
    """Is a large array read or made?"""
    sizes = [each.size for each in (node, *node.inputs) if isinstance(each.aval, Aval) and each.is_static]
    return max(sizes) >= LEAST_ELEMENTS or any(_is_worth_it(each, found) for each in node.inputs if each in found)
