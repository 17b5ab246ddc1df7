"""The op records, one module per family. ``ops.<name>`` is the record, which builds nodes or computes arrays.

No module may have the name of an op: it would hide the record.
"""

from __future__ import annotations

from typing import Any

from futurex.ops import (  # noqa: F401  (registers the records)
    contract,
    control,
    convolution,
    elementwise,
    index,
    logits,
    normalize,
    pool,
    random,
    reduce,
    shape,
    views,
)
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item
from futurex.tree.record import Op, record

build = apply


def subgraph(function: Any, params: list[Node], name: str) -> Graph:
    """A graph from a printed function and fresh inputs (what printed text uses for attributes that are graphs)."""
    return Graph(params, function(*params), name)


def __getattr__(name: str) -> Op:
    try:
        return record(name)
    except KeyError:
        raise AttributeError(f"no op is named {name!r}") from None


__all__ = ["build", "item", "subgraph"]
