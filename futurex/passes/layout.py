"""One order of the axes for a whole net: exchanges of batch and position move to its edges, where they cancel.

A pass that wants positions first puts a transposition before and one behind what it makes. Here the ones behind move
through elementwise operations, pooling and sums until they meet the next one before, or the end of the net. Sums over
what was transposed add in another order, as they do behind a convolution in any case.
"""

from __future__ import annotations

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply

SWAP = (1, 0, 2)
"""(batch, position, channel) to (position, batch, channel), and back."""


def swap(x: Node) -> Node:
    """``x`` with its first two axes exchanged."""
    return apply("transpose", x, axes=SWAP)


def sink(node: Node) -> Node | None:
    """The node on operands before they were swapped, swapped; None where that is not the same or saves nothing."""
    if not isinstance(node.aval, Aval) or "dims" in node.attrs or not any(map(_swapped, node.inputs)):
        return None
    if node.record.elementwise:
        return _elementwise(node)
    rule = _RULES.get(node.op)
    return rule(node) if rule is not None else None


def _swapped(node: Node) -> bool:
    return node.op == "transpose" and node.attrs["axes"] == SWAP


def _elementwise(node: Node) -> Node | None:
    if node.ndim != len(SWAP):
        return None
    operands = [_before(source, node) for source in node.inputs]
    inner = [operand for operand in operands if operand is not None]
    return swap(apply(node.op, *inner, **node.attrs)) if len(inner) == len(operands) else None


def _before(source: Node, user: Node) -> Node | None:
    """An operand as it lies where the first two axes are exchanged, if that takes no copy of a whole array."""
    if _swapped(source):
        return source.inputs[0]
    if source.ndim < 2 or source.size < 2:
        return source if source.ndim < 2 else apply("reshape", source, shape=(1,) * source.ndim)
    batch, position, channel = (1,) * (len(SWAP) - source.ndim) + source.shape
    if source.aval.weak or source.size >= user.size:
        return None
    shape = (position, batch, channel)
    if 1 in (batch, position):
        return apply("reshape", source, shape=shape)
    return swap(source)


def _pool(node: Node) -> Node | None:
    """Positions first, batch and channels together are the channels of one example."""
    if node.ndim != len(SWAP) or not all(map(_swapped, node.inputs)):
        return None
    inner = [apply("reshape", each.inputs[0], shape=_one_example(each)) for each in node.inputs]
    attrs = dict(node.attrs)
    if "input_shape" in attrs:
        batch, length, channels = attrs["input_shape"]
        attrs["input_shape"] = (1, length, batch * channels)
    batch, length, channels = node.shape
    return swap(apply("reshape", apply(node.op, *inner, **attrs), shape=(length, batch, channels)))


def _one_example(node: Node) -> tuple[int, int, int]:
    batch, length, channels = node.shape
    return (1, length, batch * channels)


def _sum(node: Node) -> Node | None:
    """Over batch or positions or both or everything: what is left keeps its order."""
    source, axis = node.inputs[0], node.attrs["axis"]
    if node.attrs["keepdims"] or (axis is not None and not {0, 1} & set(axis)):
        return None
    inner = None if axis is None else tuple(sorted(SWAP[each] for each in axis))
    return apply(node.op, source.inputs[0], **{**node.attrs, "axis": inner})


def _reshape(node: Node) -> Node | None:
    """Into one row for each element of the batch, where there is one position: the exchange is a reshape, too."""
    source = node.inputs[0]
    return apply("reshape", source.inputs[0], shape=node.shape) if 1 in source.shape[:2] else None


_RULES = {
    "max_pool": _pool, "avg_pool": _pool, "max_pool_grad": _pool, "avg_pool_grad": _pool, "sum": _sum,
    "reshape": _reshape,
}  # fmt: skip
