"""Generated kernels on arrays of the device: which form each operand has in a call, compiled once for each pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import OPTIONS, Operand, numbered, region_source
from futurex.kernels.cuda_.scalar import HALF
from futurex.kernels.cuda_.source import Body
from futurex.kernels.cupy_ import nvrtc
from futurex.kernels.cupy_.devices import Device
from futurex.ops.fusion import real_loop_of
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, param

THREADS = 256
_BLOCKS_EACH = 32  # blocks a multiprocessor: enough to hide latency, few enough that strides pay

Strides = tuple[int, ...]


def collapse(shape: Sequence[int], strides: Sequence[Strides]) -> tuple[list[int], list[list[int]]]:
    """Neighbouring dimensions joined where every operand walks through them as through one.

    >>> collapse((4, 5, 6), [(30, 6, 1), (0, 6, 1)])
    ([4, 30], [[30, 1], [0, 1]])
    """
    extents: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    for axis, extent in enumerate(shape):
        if extent == 1 and len(shape) > 1:
            continue
        if extents and all(walk[-1] == each[axis] * extent for walk, each in zip(walks, strides, strict=True)):
            extents[-1] *= extent
            for walk, each in zip(walks, strides, strict=True):
                walk[-1] = each[axis]
        else:
            extents.append(extent)
            for walk, each in zip(walks, strides, strict=True):
                walk.append(each[axis])
    return (extents, walks) if extents else ([1], [[0] for _ in strides])


def strides_of(array: Any, shape: Sequence[int]) -> Strides:
    """In elements, for an array broadcast to ``shape``."""
    walks = zip(array.shape, array.strides, strict=True)
    steps = [0 if extent == 1 else stride // array.itemsize for extent, stride in walks]
    return (0,) * (len(shape) - len(steps)) + tuple(steps)


class Region:
    """The kernel of one elementwise region.

    Called with arrays of the device and host scalars, it gives new arrays, or those of ``out`` that are not None: they
    may be operands of the region's shape, which are overwritten. Raises ValueError for a region that holds what cannot
    be generated, and whatever the compiler raises.
    """

    def __init__(self, device: Device, graph: Graph) -> None:
        self.device, self.graph = device, graph
        self.shape = graph.outs[0].shape
        self.size = math.prod(self.shape)
        self._bodies: dict[tuple[Any, ...], tuple[Body, Any]] = {}
        self._nowhere = (None,) * len(graph.outs)
        Body(graph, [Operand.DENSE] * len(graph.params), 1)

    def __call__(self, *inputs: Any, out: Sequence[Any] | None = None) -> tuple[Any, ...]:
        pairs = zip(out or self._nowhere, self.graph.outs, strict=True)
        outs = tuple(
            self.device.xp.empty(node.shape, node.dtype) if there is None else there for there, node in pairs
        )  # fmt: skip
        if not self.size:
            return outs
        forms = [self._form(value) for value in inputs]
        over = tuple((k, j) for k, there in enumerate(out or ()) for j, value in enumerate(inputs) if value is there)
        strided = [k for k, form in enumerate(forms) if form is Operand.STRIDED]
        extents, walks = collapse(self.shape, [strides_of(inputs[k], self.shape) for k in strided])
        body, kernel = self._kernel(tuple(forms), len(extents) if strided else 1, over)
        args = [
            np.int64(self.size),
            *(np.int64(extent) for extent in (extents[1:] if strided else ())),
            *outs,
            *(value for value, form in zip(inputs, forms, strict=True) if form is not Operand.VALUE),
            *(np.int64(step) for walk in walks for step in walk),
            *values_of(body, self.graph, inputs),
        ]
        kernel((blocks_for(self.device, self.size),), (THREADS,), tuple(args))
        return outs

    def _form(self, value: Any) -> Operand:
        if not self.device.holds(value):
            return Operand.VALUE
        if value.size == 1:
            return Operand.ELEMENT
        return Operand.DENSE if value.shape == self.shape and value.flags.c_contiguous else Operand.STRIDED

    def _kernel(
        self, forms: tuple[Operand, ...], loops: int, over: tuple[tuple[int, int], ...]
    ) -> tuple[Body, Any]:  # fmt: skip
        key = forms, loops, over
        if key not in self._bodies:
            text = numbered(region_source(self.graph, forms, loops, over), self.size)
            self._bodies[key] = Body(self.graph, forms, loops), compiled(self.device, text)
        return self._bodies[key]


def element_alone(node: Node) -> Graph | None:
    """An elementwise operation with nothing around it as a region; None where there is none to generate."""
    if isinstance(node.aval, tuple) or node.aval.weak or not node.is_static or not node.ndim:
        return None
    if node.op == "broadcast_to" or real_loop_of(node) is None:  # a view is none of a kernel's
        return None
    params = [param(source.aval) for source in node.inputs]
    return Graph(params, [rebuilt(node, params)], node.op)


def values_of(body: Body, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The scalars of a kernel, each in the dtype in which it enters; halves come in single precision."""
    def given(node: Node) -> Any:
        return node.value if node.op == "const" else inputs[graph.params.index(node)]

    values = (given(node) for node, _ in body.scalars)
    entering = [
        dtype.type(value.item() if isinstance(value, np.ndarray) else value)
        for value, (_, dtype) in zip(values, body.scalars, strict=True)
    ]
    return [np.float32(value) if value.dtype == HALF else value for value in entering]


def blocks_for(device: Device, elements: int) -> int:
    """Blocks for a kernel that goes through its elements in strides of the grid."""
    return max(1, min(-(-elements // THREADS), device.processors * _BLOCKS_EACH))


_kernels: dict[tuple[str, str], Any] = {}


def compiled(device: Device, text: str) -> Any:
    """The kernel ``region`` of a text, once for each text."""
    key = device.kind, text
    if key not in _kernels:
        _kernels[key] = nvrtc.kernel(device, text, "region", OPTIONS)
    return _kernels[key]
