"""Attention in a narrow format as one ``attention`` node, and its derivative as one ``attention_grad`` node.

Between the products stands a softmax of scores, which take memory that grows with the square of the length; a library's
kernel keeps none of them. The pass stands for graphs that ``fx.autocast`` made: scores stay in single precision where
they were rounded to the format before, which changes values by no more than that. A mask must be known before the run
and leave every query a key: only then no row is all -inf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.ops.heads import FORMATS, seen
from futurex.passes.rewrite import rewrite, users_of
from futurex.passes.simplify import simplify
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item

Users = Mapping[Node, list[Node]]
New = Mapping[Node, Node]


def join_attention(graph: Graph, serves: Callable[[Node], bool]) -> Graph:
    """The graph with the two nodes in the place of what they mean, where a kernel ``serves`` them."""
    if not any(node.op == "softmax" and _single(node) for node in graph.nodes) or not any(map(_format, graph.nodes)):
        return graph
    graph = simplify(graph)
    users, outs = users_of(graph), set(graph.outs)
    makers: dict[Node, Callable[[New], Node]] = {}
    for node in graph.nodes:
        match = _match(node, users, outs) if node.op == "softmax" else None
        if match is not None and match.served(serves):
            makers |= match.makers()
    return rewrite(graph, lambda node: None, makers) if makers else graph


class _Same(dict[Node, Node]):
    """Every node stands for itself."""

    def __missing__(self, node: Node) -> Node:
        return node


@dataclass
class _Match:
    """What a softmax is the middle of. ``gradients`` says which operand's each product is, and whether it is turned."""

    to: str
    scale: float
    causal: bool
    q: Node
    keys: Node
    """As the first product takes them, turned."""
    v: Node
    g: Node | None = None
    out: Node | None = None
    gradients: dict[Node, tuple[int, bool]] = field(default_factory=dict)

    def forward(self, new: New) -> Node:
        """The node on the ``new`` forms of what it reads."""
        return apply("attention", *self._operands(new), to=self.to, scale=self.scale, causal=self.causal)

    def backward(self, new: New) -> Node:
        """That of the derivative."""
        assert self.g is not None
        made = self.forward(new)
        return apply(
            "attention_grad", new[self.g], *self._operands(new), item(made, 0), item(made, 1), to=self.to,
            scale=self.scale, causal=self.causal,
        )  # fmt: skip

    def _operands(self, new: New) -> tuple[Node, Node, Node]:
        return new[self.q], _turned(new[self.keys]), new[self.v]

    def served(self, serves: Callable[[Node], bool]) -> bool:
        """Has each node a kernel?"""
        same = _Same()
        return serves(self.forward(same)) and (self.g is None or serves(self.backward(same)))

    def makers(self) -> dict[Node, Callable[[New], Node]]:
        """How to make what takes the place of each product."""
        assert self.out is not None
        found: dict[Node, Callable[[New], Node]] = {self.out: lambda new: item(self.forward(new), 0)}
        for node, (number, turned) in self.gradients.items():

            def make(new: New, number: int = number, turned: bool = turned) -> Node:
                gradient = item(self.backward(new), number)
                return _turned(gradient) if turned else gradient

            found[node] = make
        return found


def _match(likely: Node, users: Users, outs: set[Node]) -> _Match | None:
    """What a softmax is the middle of, if nobody else reads what lies between the products."""
    if not likely.is_static or not _single(likely) or likely.attrs["axis"] != likely.ndim - 1 or likely.ndim < 2:
        return None
    above = _above(likely)
    if above is None:
        return None
    between, match = above
    inside = {likely, *between}
    readers = _readers(likely, users, inside)
    slopes = [node for node in readers if node.op == "softmax_grad"]
    if len(slopes) > 1:
        return None
    for node in readers:
        if node not in slopes and not _takes_weights(node, likely, match):
            return None
    if slopes and not _takes_slope(slopes[0], likely, between, match, users, inside):
        return None
    products = {*match.gradients, *([match.out] if match.out is not None else [])}
    if match.out is None or inside & outs or (match.g is not None) != bool(match.gradients):
        return None
    if any(user not in inside and user not in products for node in inside for user in users[node]):
        return None
    read = [match.q, match.keys, match.v, *([match.g] if match.g is not None else [])]
    before = max(node.id for node in read)  # a rewrite comes to nodes in the order of their making
    return match if all(before < node.id for node in match.gradients) else None


def _above(likely: Node) -> tuple[list[Node], _Match] | None:
    """The nodes from the first product to the softmax, that product first, and what they say."""
    node, scale, causal = likely.inputs[0], 1.0, False
    between = []
    masked = _masked(node)
    if masked is not None:
        between.append(node)
        node, causal = masked, True
    scaled = _scaled(node)
    if scaled is not None:
        between.append(node)
        node, scale = scaled
    product = node.inputs[0] if node.op == "widen" else None
    to = _format(product) if product is not None else None
    if product is None or to is None or not 0 < scale < np.inf:
        return None
    q, keys = product.inputs
    if q.ndim < 2 or q.shape[:-2] != keys.shape[:-2] or likely.shape != product.shape:
        return None
    between += [node, product]
    return between[::-1], _Match(to, scale, causal, q, keys, q)


def _takes_weights(node: Node, likely: Node, match: _Match) -> bool:
    """Is it the product of the weights and the values, or that of the turned weights and the result's gradient?"""
    if _format(node) != match.to:
        return False
    left, right = node.inputs
    if right.ndim != likely.ndim or right.shape[:-2] != likely.shape[:-2]:
        return False
    if match.out is None and _place(left) == (match.to, *_place(likely)[1:]):
        match.out, match.v = node, right
        return True
    if _place(left) == (match.to, *_place(_turned(likely))[1:]) and match.g in (None, right):
        match.g = right
        match.gradients[node] = 2, False
        return True
    return False


def _takes_slope(
    slope: Node, likely: Node, between: list[Node], match: _Match, users: Users, inside: set[Node]
) -> bool:  # fmt: skip
    """Is all that the softmax's derivative reads and makes the derivative of attention? Adds to what is ``inside``."""
    back, made = slope.inputs
    product = back.inputs[0] if back.op == "widen" else back
    if made is not likely or _format(product) != match.to or slope.attrs["axis"] != likely.attrs["axis"]:
        return False
    g, values = product.inputs
    if match.g not in (None, g) or _place(values) != _place(_turned(match.v)):
        return False
    match.g = g
    inside |= {slope, back, product}
    moved = slope
    for node in reversed(between):
        found = _backwards(node, moved, users[moved])
        if found is None:
            return False
        moved = found
        inside.add(moved)
    for node in _readers(moved, users, inside):
        if _format(node) != match.to:
            return False
        number = _gradient(node, moved, match)
        if number is None:
            return False
        match.gradients[node] = number
    return True


def _backwards(node: Node, moved: Node, users: list[Node]) -> Node | None:
    """What the derivative of ``node``, which lies between product and softmax, makes of ``moved``."""
    if node.op in ("widen", "narrow_product", "add"):
        return moved
    for user in users:
        if user.op != node.op or len(user.inputs) != len(node.inputs):
            continue
        if node.op == "where":
            condition, x, y = user.inputs
            zero, kept = (y, x) if _is_low(node.inputs[2]) else (x, y)
            if condition is node.inputs[0] and kept is moved and _constant(zero) is not None and not zero.value:
                return user
        elif _scaled(user) is not None and _scaled(user) == (moved, _scaled(node)[1]):  # type: ignore[index]
            return user
    return None


def _gradient(node: Node, moved: Node, match: _Match) -> tuple[int, bool] | None:
    """Of which operand a product is the gradient, 0 or 1, and whether it is turned."""
    left, right = node.inputs
    straight, turned = ((match.to, *_place(each)[1:]) for each in (moved, _turned(moved)))
    if _place(left) == straight and _place(right) == _place(_turned(match.keys)):
        return 0, False
    if _place(left) == turned and _place(right) == _place(match.q):
        return 1, False
    if _place(right) == straight and _place(left) == _place(_turned(match.q)):
        return 1, True
    return None


def _readers(node: Node, users: Users, inside: set[Node]) -> list[Node]:
    """Who reads it, behind transposes and roundings, which are ``inside``."""
    found: dict[Node, None] = {}
    todo = [node]
    while todo:
        for user in users[todo.pop()]:
            if user.op in ("transpose", "narrow"):
                inside.add(user)
                todo.append(user)
            else:
                found[user] = None
    return list(found)


def _place(node: Node) -> tuple[str | None, Any, tuple[int, ...]]:
    """To what it is rounded here, what is read, and which axis of that each axis is: equal for equal values."""
    axes, to = tuple(range(node.ndim)), None
    while node.op in ("transpose", "narrow") or _undoes(node, to):
        if node.op == "transpose":
            axes = tuple(node.attrs["axes"][axis] for axis in axes)
        else:
            to = node.attrs["to"] if node.op == "narrow" else None
        node = node.inputs[0]
    if node.op != "load" or "dims" in node.attrs:
        return to, node, axes
    chain = list(node.attrs["chain"])
    while chain and chain[-1][0] == "transpose":
        _, turn = chain.pop()
        axes = tuple(turn[axis] for axis in axes)
    return to, (node.inputs, tuple(chain)), axes


def _undoes(node: Node, to: str | None) -> bool:
    """Was it rounded to the same format before?"""
    return node.op == "widen" and node.attrs["to"] == to


def _turned(node: Node) -> Node:
    """With its last two axes exchanged; a rounding stays behind the transpose, so that it writes what is read."""
    if node.op == "narrow":
        wide = _turned(node.inputs[0])
        return wide.inputs[0] if _undoes(wide, node.attrs["to"]) else apply("narrow", wide, **node.attrs)
    axes = (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)
    if node.op == "transpose" and tuple(node.attrs["axes"]) == axes:
        return node.inputs[0]
    return apply("transpose", node, axes=axes)


def _single(node: Node) -> bool:
    return isinstance(node.aval, Aval) and node.dtype == np.float32


def _format(node: Node) -> str | None:
    """The format of a product of matrices that attention may be in."""
    if node.op != "narrow_product" or node.attrs["product"] != "matmul" or not node.is_static:
        return None
    return node.attrs["to"] if node.attrs["to"] in FORMATS else None


def _constant(node: Node) -> float | None:
    """A number that is known, with or without a dtype."""
    return float(node.value) if node.op == "const" and node.shape == () and node.dtype.kind in "fiu" else None


def _is_low(node: Node) -> bool:
    return _constant(node) == -np.inf


def _scaled(node: Node) -> tuple[Node, float] | None:
    """What is multiplied by a known number, and the number."""
    if node.op == "multiply":
        for x, y in (node.inputs, node.inputs[::-1]):
            number = _constant(y)
            if number is not None and _single(x):
                return x, number
    if node.op == "divide":
        number = _constant(node.inputs[1])
        if number:
            return node.inputs[0], 1.0 / number
    return None


def _masked(node: Node) -> Node | None:
    """What of the scores is seen where no query sees a later key."""
    if node.op == "where":
        condition, x, y = node.inputs
        kept, low = (x, y) if _is_low(y) else (y, x)
        if _is_low(low) and condition.op == "const" and kept.shape == node.shape:
            mask = np.asarray(condition.value) if low is y else np.logical_not(condition.value)
            return kept if _is_causal(mask, node) else None
    if node.op == "add":
        for x, y in (node.inputs, node.inputs[::-1]):
            if y.op == "const" and x.shape == node.shape and y.dtype.kind == "f":
                value = np.asarray(y.value)
                if np.isin(value, (0, -np.inf)).all() and _is_causal(value == 0, node):
                    return x
    return None


def _is_causal(mask: Any, node: Node) -> bool:
    if mask.ndim < 2 or mask.dtype != bool:
        return False
    queries, keys = node.shape[-2:]
    return mask.shape[-2:] == (queries, keys) and bool((mask == seen(queries, keys)).all())
