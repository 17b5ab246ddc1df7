"""One node of a region for one element: operands converted as NumPy's loop converts them, then the operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from futurex.kernels.numba_ import complexes
from futurex.kernels.numba_.formats import narrowed, widened
from futurex.kernels.numba_.functions import FUNCTIONS, GUARDED, function, out_of_bounds
from futurex.kernels.numba_.scalar import Body, operate
from futurex.ops.fusion import FORMATS, function_of, loop_of
from futurex.ops.sweeps import REDUCTIONS, VIEWS
from futurex.tree.node import Node

Dtype = np.dtype[Any]


def held_as(source: Node, dtype: Dtype) -> Dtype:
    """The dtype in which an operand of a loop of ``dtype`` is held: a Python number takes the loop's, but for loops of
    truths, which tell by themselves what is none."""
    return dtype if source.aval.weak and dtype.kind != "b" else source.dtype


def helds_of(node: Node) -> tuple[Dtype, ...]:
    """The dtypes in which a node's operands are held. Raises ValueError if the node cannot be compiled exactly."""
    if node.op in REDUCTIONS or node.op in VIEWS:
        return (node.inputs[0].dtype,)
    loop = loop_of(node)
    if loop is None:
        raise ValueError(f"{node!r} cannot be part of a compiled region")
    return tuple(held_as(source, dtype) for source, dtype in zip(node.inputs, loop[0], strict=True))


def computed(body: Body, node: Node, values: Mapping[tuple[Node, Dtype], str]) -> str:
    """The register of a node's element, from those of its operands by the dtype they are held in."""
    if node.op in VIEWS:
        return values[node.inputs[0], node.inputs[0].dtype]
    loop = loop_of(node)
    assert loop is not None  # analyse() refused such regions
    operands = []
    for source, dtype in zip(node.inputs, loop[0], strict=True):
        held = held_as(source, dtype)
        operands.append(body.cast(values[source, held], held, dtype))
    if node.op == "cast":
        return body.cast(operands[0], loop[0][0], loop[1])
    if node.op in FORMATS:
        return (narrowed if node.op == "narrow" else widened)(body, operands[0], node.attrs["to"])
    name = function_of(node)
    if name in FUNCTIONS:
        if name in GUARDED and not body.by_library:
            _flag(body, out_of_bounds(body, loop[0][0], operands[0]))
        return body.cast(function(body, node, loop[0][0], operands), loop[0][0], loop[1])
    dtype = loop[0][-1]
    return (complexes.operate if dtype.kind == "c" else operate)(body, name, dtype, operands)


def _flag(body: Body, condition: str) -> None:
    """Remember that the condition held for some element."""
    old = body.emit("load i32, ptr %flag, align 4")
    new = body.emit(f"or i32 {old}, {body.emit(f'zext i1 {condition} to i32')}")
    body.lines.append(f"store i32 {new}, ptr %flag, align 4")
