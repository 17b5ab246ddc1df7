"""What the rounds of a way back add to a derivative is added to it where it stands.

The derivative of a branch with respect to an array of which it reads an element is an array of zeros with one that is
not, and so is that of an inner loop: what is around it added arrays where it has to add numbers. A branch is given
what its result would be added to, and adds its part; a loop begins with it where it began with zeros.

Only what scans in reverse add up is looked at, which derivatives alone are made of: sums are rounded in another order.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from futurex.passes.rewrite import Maker, map_subgraphs, rewrite, users_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, build, item, param

Users = Mapping[Node, Sequence[Node]]
First = Node | tuple[Node, int]
"""What a sum begins with: a value, or a result of a branch or loop that is made anew."""


def gather_sums(graph: Graph) -> Graph:
    """The graph with such sums, those inside of it included."""
    return rewrite(graph, _rule) if _has_scans(graph) else graph


def _has_scans(graph: Graph) -> bool:
    inner = (value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph))
    return any(node.op == "scan" for node in graph.nodes) or any(map(_has_scans, inner))


def _rule(node: Node) -> Node | None:
    changed = node
    if node.op == "scan" and node.attrs["reverse"]:
        body = _gathered(node.attrs["body"], range(node.attrs["n_carry"]))
        if body is not node.attrs["body"]:
            changed = build(node.record, node.inputs, node.attrs | {"body": body}, node.aval, node.src)
    inside = map_subgraphs(gather_sums)(changed)
    if inside is not None:
        return inside
    return changed if changed is not node else None


class _Terms(NamedTuple):
    """What a value is the sum of."""

    terms: list[Node]
    parts: list[Node]  # stores that add something to a part of it
    additions: int  # of whole arrays


def _terms(root: Node, users: Users, returned: Counter[Node]) -> _Terms:
    found = _Terms([], [], 0)
    waiting, additions = [root], 0
    while waiting:
        node = waiting.pop()
        own = node is root or (len(users[node]) == 1 and not returned[node])
        if own and node.op == "add" and all(source.aval == root.aval for source in node.inputs):
            waiting += node.inputs
            additions += 1
        elif own and _is_part(node) and node.inputs[0].aval == root.aval:
            found.parts.append(node)
            waiting.append(node.inputs[0])
        elif not _is_zero(node):
            found.terms.append(node)
    return found._replace(additions=additions)


def _is_part(node: Node) -> bool:
    return node.op == "store" and node.attrs["mode"] == "add" and "dims" not in node.attrs


def _is_zero(node: Node) -> bool:
    value = node.inputs[0] if node.op == "full" and "dims" not in node.attrs else node
    return value.op == "const" and value.dtype.kind in "fc" and not np.any(value.value)


def _gathered(graph: Graph, numbers: Iterable[int]) -> Graph:
    """The graph whose results of these numbers are sums of that kind."""
    users, returned = users_of(graph), Counter(graph.outs)
    firsts: dict[Node, dict[int, First]] = {}
    makers: dict[Node, Maker] = {}
    for root in dict.fromkeys(graph.outs[k] for k in numbers):
        terms, parts, additions = _terms(root, users, returned)
        begins = {each for each in terms if _may_begin(each, users, returned)}
        first = min((each for each in terms if each not in begins), key=lambda each: each.id, default=None)
        if first is None:
            continue
        # Sources come in the order of their making, so that none begins with what depends on it.
        chain: dict[Node, Node] = {}
        for each in sorted(begins, key=lambda each: each.inputs[0].id):
            if each.inputs[0].id > first.id:
                chain.setdefault(each.inputs[0], each)
        rest = [each for each in terms if each not in chain.values()]
        rest.remove(first)
        if additions <= len(rest):
            continue
        last: First = first
        for source, each in chain.items():
            firsts.setdefault(source, {})[each.attrs["index"]] = last
            last = source, each.attrs["index"]
        makers[root] = functools.partial(_total, last, rest, parts)
    for source, begun in firsts.items():
        makers[source] = functools.partial(_begun, source, begun)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _may_begin(term: Node, users: Users, returned: Counter[Node]) -> bool:
    """Is it a result of a branch or loop that may begin with something that it is added to, and worth it?"""
    if term.op != "item" or len(users[term]) != 1 or returned[term]:
        return False
    source, k = term.inputs[0], term.attrs["index"]
    if [each.attrs["index"] for each in users[source]].count(k) > 1:
        return False
    if source.op == "cond":
        ends = [source.attrs[name].outs[k] for name in ("then", "orelse")]
        return any(_is_zero(out) or _is_part(out) for out in ends)
    if source.op != "scan" or not source.attrs["reverse"] or k >= source.attrs["n_carry"] or k in source.attrs["tape"]:
        return False
    return _is_zero(source.inputs[k]) and source.inputs[k].aval == term.aval and _adds(source.attrs["body"], k)


def _adds(body: Graph, k: int) -> bool:
    """Does a round do nothing with what it carries but add to it?"""
    own, users, returned = body.params[k], users_of(body), Counter(body.outs)
    terms = _terms(body.outs[k], users, returned).terms
    return terms.count(own) == 1 and len(users[own]) + returned[own] == 1


def _value(first: First, new: Mapping[Node, Node]) -> Node:
    return new[first] if isinstance(first, Node) else item(new[first[0]], first[1])


def _total(last: First, rest: Sequence[Node], parts: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """A sum, of what is made anew, other terms and parts."""
    total = _value(last, new)
    for each in rest:
        total = total + new[each]
    for each in reversed(parts):
        inputs = (total, *(new[source] for source in each.inputs[1:]))
        total = build(each.record, inputs, each.attrs, each.aval, each.src)
    return total


def _begun(source: Node, firsts: Mapping[int, First], new: Mapping[Node, Node]) -> Node:
    """A loop or branch that begins with what its results were added to."""
    inputs = [new[each] for each in source.inputs]
    begun = {k: _value(first, new) for k, first in firsts.items()}
    if source.op == "scan":
        inputs = [begun.get(k, each) for k, each in enumerate(inputs)]
        return build(source.record, tuple(inputs), source.attrs, source.aval, source.src)
    branches = {name: _branch(source.attrs[name], begun) for name in ("then", "orelse")}
    return build(source.record, (*inputs, *begun.values()), source.attrs | branches, source.aval, source.src)


def _branch(graph: Graph, begun: Mapping[int, Node]) -> Graph:
    own = {k: param(each.aval, "sum") for k, each in begun.items()}
    outs = [own[k] + out if k in own else out for k, out in enumerate(graph.outs)]
    return _gathered(Graph([*graph.params, *own.values()], outs, graph.name), own)
