"""Compiled ``fused_store``: the region's own kernel, whose result is a view of the array that is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.ops.views import around, keep, view
from futurex.tree.node import Node


def written_to(node: Node) -> np.ndarray[Any, Any]:
    """An array that lies as the view does into which the node writes."""
    return view(np.empty(node.shape, node.dtype), node.attrs["chain"], ())  # nobody touches its pages


def over_of(node: Node) -> tuple[int, ...]:
    """The inputs that are that view of the array as it was: each element is read before it is written."""
    base, chain = node.inputs[0], node.attrs["chain"]
    same = (each.op == "load" and each.inputs == (base,) and each.attrs["chain"] == chain for each in node.inputs)
    return tuple(k for k, found in enumerate(same) if found)


class Through:
    """The kernel of one node; ``region`` is that of its region."""

    def __init__(self, node: Node, region: Any, over: Sequence[int]) -> None:
        self.region, self.over = region, over
        self.chain, self.count = node.attrs["chain"], len(node.inputs)
        self.blocks = around(node.shape, self.chain)
        self.threads = region.threads

    @property
    def interpreted(self) -> int:
        return int(self.region.interpreted)

    @property
    def ready(self) -> bool:
        return bool(self.region.ready)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the region compiled; what lies at the view is shared with the result if the array is."""
        inside = range(1, self.count)
        self.region.prepare([0 if sharing[0] == 0 and k in self.over else -1 for k in inside], wait=wait)

    def __call__(self, out: Any, base: Any, *inputs: Any) -> Any:
        if address_of(out) != address_of(base):
            keep(out, base, self.blocks)
        self.region(view(out, self.chain, ()), *inputs)
        return out
