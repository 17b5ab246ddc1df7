"""The expression tree: immutable nodes, graphs, op records, verifier and printer. Pure data; imports nothing below."""

from futurex.tree.aval import Aval, Literal
from futurex.tree.dims import Dim, UnknownDimension, dimension
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const, item, param
from futurex.tree.record import Cost, Op, Sample, op, record, records
from futurex.tree.source import Source

__all__ = [
    "Aval", "Cost", "Dim", "Graph", "Literal", "Node", "Op", "Sample", "Source", "UnknownDimension",
    "apply", "const", "dimension", "item", "op", "param", "record", "records",
]  # fmt: skip
