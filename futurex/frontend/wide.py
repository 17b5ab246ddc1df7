"""How many bits Python's integers may need that a trace knows as 64 of them."""

from __future__ import annotations

from typing import Any

from futurex.frontend.trace import current
from futurex.tree.node import Node

WIDE = 63  # bits of an integer from data
COUNTED = 62  # bits that counting by small steps does not reach
SMALL = 40


def bits_of_int(node: Node, depth: int = 0) -> int:
    """How many bits the absolute value of an integer may need."""
    if node.op == "const":
        return int(node.value).bit_length()
    if depth > 8:
        return COUNTED
    inner = [bits_of_int(source, depth + 1) for source in node.inputs if node.op in _RULES]
    if node.op == "python_scalar":
        source = node.inputs[0]
        if source.dtype.kind == "b":
            return 1
        if source.aval.weak and source.dtype.kind == "i":
            return bits_of_int(source, depth + 1)
        return 8 * source.dtype.itemsize if source.dtype.kind in "iu" and source.dtype.itemsize < 8 else WIDE
    if node.op == "dim":
        return SMALL
    if node.op == "param":
        if node in current().wide:
            return WIDE
        return SMALL if node.attrs["name"] == "the counter" else COUNTED
    if node.op == "item":
        return WIDE if any(bits_of_int(each, depth + 1) >= WIDE for each in _sources(node)) else COUNTED
    return _RULES[node.op](inner) if node.op in _RULES else COUNTED


def _sources(item: Node) -> list[Node]:
    """What a result of a branch may be, and with what one of a loop begins."""
    whole, k = item.inputs[0], item.attrs["index"]
    if whole.op == "loop":
        return [whole.inputs[k]]
    if whole.op != "cond":
        return []
    found = []
    for side in (whole.attrs["then"], whole.attrs["orelse"]):
        out = side.outs[k]
        found.append(whole.inputs[1 + side.params.index(out)] if out in side.params else out)
    return found


def _bits_of_sum(bits: list[int]) -> int:
    return WIDE if max(bits) >= WIDE else min(max(bits) + 1, COUNTED)


def note_wide(inside: Node, begin: Node) -> None:
    """Note that what stands ``inside`` a loop for a Python int begins so wide that counting may outgrow 64 bits."""
    if begin.aval.weak and begin.dtype.kind == "i" and not begin.ndim and bits_of_int(begin) >= WIDE:
        current().wide.add(inside)


_RULES: dict[str, Any] = {
    "add": _bits_of_sum,
    "subtract": _bits_of_sum,
    "multiply": lambda bits: min(sum(bits), COUNTED),
    "floor_divide": lambda bits: bits[0],
    "remainder": lambda bits: bits[1],
    "negative": max,
    "absolute": max,
    "where": lambda bits: max(bits[1:]),
}
