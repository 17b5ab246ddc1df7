"""What the kernel of a region is given: arrays by position, and scalars in the dtype in which they enter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.numba_.element import helds_of
from futurex.kernels.numba_.functions import FUNCTIONS, GUARDED
from futurex.kernels.numba_.scalar import Body, part_of
from futurex.ops.fusion import function_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Dtype = np.dtype[Any]
_DIVISIONS = ("divide", "reciprocal", "sqrt")


@dataclass(frozen=True)
class Scalar:
    """A scalar operand in one dtype: input number ``position`` of the region, or a constant.

    ``part``: of a complex number, each of which takes a slot.
    """

    node: Node
    dtype: Dtype
    position: int | None
    part: str = ""

    @property
    def slot(self) -> Dtype:
        """What stands in the slot."""
        return part_of(self.dtype) if self.part else self.dtype

    @property
    def offset(self) -> int:
        """Where that stands in a number of ``dtype``, in bytes."""
        return self.slot.itemsize if self.part == "imag" else 0

    def read(self, number: int, body: Body, nodes: Sequence[Node]) -> str:
        """The register of scalar ``number`` of a region of ``nodes``. By what integers are divided, the text says:
        a division by a number that the compiler knows is a multiplication."""
        if self.dtype.kind == "b":
            return body.emit(f"icmp ne i8 %s{number}, 0")
        divides = any(node.op in ("floor_divide", "remainder") and node.inputs[1] is self.node for node in nodes)
        known = divides and self.position is None and self.dtype.kind in "iu"
        return str(int(self.number(self.node.value))) if known else f"%s{number}"

    def number(self, value: Any) -> Any:
        """What a value puts into the slot."""
        held = self.dtype.type(value)
        return getattr(held, self.part) if self.part else held


@dataclass(frozen=True)
class Region:
    """The operands of a fused sub-graph: arrays by position, scalars (inputs first) by the dtype they enter in."""

    graph: Graph
    arrays: tuple[int, ...]
    scalars: tuple[Scalar, ...]

    @property
    def approximate(self) -> bool:
        """Does it hold functions whose bits are not NumPy's?"""
        return any(function_of(node) in FUNCTIONS for node in self.graph.nodes)

    @property
    def chain(self) -> int:
        """How many operations wait for each other, at most."""
        depth: dict[Node, int] = {}
        for node in self.graph.nodes:
            depth[node] = max((depth[source] + 1 for source in node.inputs), default=0)
        return max(depth.values())

    @property
    def divides(self) -> bool:
        """Are there divisions or roots of floats, and no functions?"""
        return not self.approximate and any(
            node.dtype.kind == "f" and function_of(node) in _DIVISIONS for node in self.graph.nodes
        )

    @property
    def guarded(self) -> bool:
        """Does it hold functions whose formulas end at a bound?"""
        return any(function_of(node) in GUARDED for node in self.graph.nodes)


def analyse(graph: Graph) -> Region:
    """Sort the operands of a region: a single number is a scalar, but for arrays of one element in a region whose
    result is one. Raises ValueError if one of its nodes cannot be compiled exactly."""
    single = graph.outs[0].size == 1
    position = {node: k for k, node in enumerate(graph.params)}
    scalars: dict[tuple[Node, Dtype, str], Scalar] = {}
    for node in graph.nodes:
        if not node.inputs:
            continue
        for source, held in zip(node.inputs, helds_of(node), strict=True):
            if not source.inputs and source.size == 1 and not (single and source.shape):
                for part in ("real", "imag") if held.kind == "c" else ("",):
                    scalars[source, held, part] = Scalar(source, held, position.get(source), part)
    arrays = tuple(k for k, node in enumerate(graph.params) if node.size != 1 or (single and node.shape))
    return Region(graph, arrays, tuple(sorted(scalars.values(), key=lambda scalar: scalar.position is None)))


def slot_format(dtype: Dtype) -> str:
    """The ``struct`` code that packs a scalar of ``dtype`` into one 8-byte slot."""
    codes = {"f2": "e", "f4": "f", "f8": "d", "b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}
    codes |= {f"u{n}": codes[f"i{n}"].upper() for n in (1, 2, 4, 8)}
    return codes[f"{dtype.kind}{dtype.itemsize}"] + "x" * (8 - dtype.itemsize)
