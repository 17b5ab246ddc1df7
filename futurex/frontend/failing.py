"""Which nodes may raise when they run, as far as a trace knows."""

from __future__ import annotations

from typing import Any

from futurex.tree.dims import same
from futurex.tree.node import Node

_OF_ANY = frozenset(
    ("sum", "prod", "any", "all", "cumsum", "cumprod", "sort", "argsort", "unique", "nonzero", "transpose", "flip")
)
_OF_SOME = frozenset(("max", "min", "argmax", "argmin"))  # of one element at least


def may_fail(node: Node) -> bool:
    """May it raise for some values, among them extents that only the run knows?"""
    if node.op in ("load", "store") and _is_dynamic(node.attrs["chain"]):
        return True
    return node.record.may_fail(node) or not (node.is_static or _surely_fits(node))


def _surely_fits(node: Node) -> bool:
    """Do operands go together, whatever the run finds their extents to be?"""
    kinds = {step[0] for step in node.attrs.get("chain", ())}
    if node.op == "reshape" or kinds == {"reshape"}:
        return same(node.size, node.inputs[0].size)
    if kinds & {"reshape", "broadcast_to", "windows", "field"}:
        return False
    if node.op in ("load", *_OF_SOME):
        extents = [extent if isinstance(extent, int) else extent.low or 0 for extent in node.inputs[0].shape]
        least = min(extents, default=1)
        picked = [entry[1] for entry in _entries(node.attrs.get("chain", ())) if entry[0] == "i"]
        return all(-least <= index < least for index in picked) if node.op == "load" else least > 0
    shapes = {source.shape for source in node.inputs} - {()}
    return node.op in _OF_ANY or (node.record.elementwise and len(shapes) == 1)


def is_looked_up(node: Node, reached: set[Node]) -> bool:
    """Is a view of the loaded view read or written? Then its own index is looked at there."""
    chain, dynamic = node.attrs["chain"], node.inputs[1:]
    for other in reached:
        if other.op in ("load", "store"):
            base, indices = other.inputs[0], other.inputs[1 if other.op == "load" else 2 :]
            same_place = other.attrs["chain"][: len(chain)] == chain and indices[: len(dynamic)] == dynamic
            if same_place and base.aval == node.inputs[0].aval:
                return True
    return False


def converts(node: Node) -> bool:
    """Is it a Python number that every value can be made? NaN is no integer, and a complex number no float."""
    return node.op == "python_scalar" and node.inputs[0].dtype.kind in "biu" + "f" * (node.attrs["kind"] != "i")


def _is_dynamic(chain: tuple[Any, ...]) -> bool:
    return any(entry[0] == "d" or any(isinstance(part, tuple) for part in entry) for entry in _entries(chain))


def _entries(chain: tuple[Any, ...]) -> list[Any]:
    return [entry for step in chain if step[0] == "index" for entry in step[1]]
