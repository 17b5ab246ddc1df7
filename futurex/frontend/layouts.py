"""How the arrays of a net lie in memory, in words: one order for the whole net, and where something is turned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from futurex.passes.layout import SWAP
from futurex.tree.graph import Graph

_WEIGHTS = {"conv": 2, "conv_epilogue": 2, "conv_input_grad": 2, "conv_weight_grad": 0}
"""Which array of a convolution's kernel, results first, are the weights."""
_PLAIN = ("conv", "conv_input_grad", "conv_weight_grad")


def text_of(traced: Graph, steps: Sequence[Any]) -> str | None:
    """The layout of the net that was ``traced`` in the steps of its plan; None where it has no convolution.

    ``steps`` have a ``node`` and the ``kernel`` that computes it.
    """
    asked = sum(node.op in _PLAIN for node in traced.nodes)
    if not asked:
        return None
    kept = [step for step in steps if step.node.op in _WEIGHTS]
    libraries = Counter(getattr(step.kernel.call, "backend", step.kernel.backend) for step in kept)
    by = " and ".join(f"{count} by {name}" for name, count in sorted(libraries.items()))
    parts = [f"layout: every array of the net lies channels last; {asked} convolutions and gradients of them" + (
        f", {by}" if by else ""
    )]  # fmt: skip
    if asked > len(kept):
        turned = sum(step.node.op == "transpose" and step.node.attrs["axes"] == SWAP for step in steps)
        edges = f"batch and position change places {_times(turned)}, at the edges of those" if turned else ""
        parts.append(f"{asked - len(kept)} became products of matrices" + (f": {edges}" if edges else ""))
    if "onednn" in libraries:
        weights = arrays = 0
        for step in kept:
            for position in getattr(step.kernel.call, "reordered", ()):
                weights += position == _WEIGHTS[step.node.op]
                arrays += position != _WEIGHTS[step.node.op]
        parts.append(f"oneDNN reorders weights {_times(weights)} and other arrays {_times(arrays)}, within its calls")
    if "cudnn" in libraries:
        parts.append("the weights of each are turned to (C_out, *kernel, C_in) and back around cuDNN")
    return "; ".join(parts)


def _times(count: int) -> str:
    return {0: "nowhere", 1: "once"}.get(count, f"{count} times")
