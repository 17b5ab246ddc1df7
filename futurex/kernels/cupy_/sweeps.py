"""Regions with reductions on arrays of the device: one generated kernel where rows are reduced, else one for each
reduction and one for what follows them.

What comes before a reduction is computed where it is read. Between kernels nothing is stored but the reduced values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from futurex.kernels.cuda_ import REDUCTIONS
from futurex.kernels.cuda_.rows import Does
from futurex.kernels.cuda_.scalar import HALF
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.reductions import Reduction, columns_of
from futurex.kernels.cupy_.regions import Region
from futurex.kernels.cupy_.rows import Rows, Task, worth
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, param

MOST_ARRAYS = 16  # that one kernel reads
LEAST_ROW = 32
"""Elements below which most threads of a block would have nothing to do."""


class Sweep:
    """The kernels of one ``fused_reduction``.

    Called with arrays of the device and host scalars, it gives new arrays. Raises ValueError for a region that holds
    what cannot be generated.
    """

    def __init__(self, device: Device, graph: Graph) -> None:
        self.device, self.graph = device, graph
        self._steps: list[tuple[list[Node], list[Node], Any]] = []
        self._there: set[Node] = set(graph.params)
        alike: dict[tuple[Any, ...], list[Node]] = {}
        for node in dict.fromkeys(graph.outs):
            if _is_leaf(node):
                self._make(node)
            else:
                alike.setdefault(node.shape, []).append(node)
        for nodes in alike.values():
            self._region(nodes)
        self._whole = _in_one(device, graph, self._steps)
        if self._whole is None:
            self._join_reductions()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self._whole is not None:
            results = dict(zip(self._whole.outs, self._whole(*inputs), strict=True))
            return tuple(results[node] for node in self.graph.outs)
        values = dict(zip(self.graph.params, inputs, strict=True))
        for targets, sources, kernel in self._steps:
            results = kernel(*(values[source] for source in sources))
            values.update(zip(targets, results if isinstance(results, tuple) else (results,), strict=True))
        return tuple(values[node] for node in self.graph.outs)

    def _make(self, node: Node) -> None:
        """Have a leaf computed: a reduction, or a reduced value in another shape."""
        if node in self._there:
            return
        if node.op == "reshape":
            source, shape = node.inputs[0], node.shape
            if _is_leaf(source):
                self._make(source)
            else:
                self._region([source])
            self._steps.append(([node], [source], Reshape(shape)))
        elif node.op in REDUCTIONS and not _is_generated(node):
            source = node.inputs[0]
            if _is_leaf(source):
                self._make(source)
            else:
                self._region([source])
            self._steps.append(([node], [source], functools.partial(_by_cupy, self.device.xp, node)))
        elif node.op in REDUCTIONS:
            leaves = self._leaves(node.inputs)
            self._steps.append(([node], leaves, Reduction(self.device, _segment(node.inputs, leaves), node)))
        else:
            raise ValueError(f"{node!r} is no part of a region with reductions")
        self._there.add(node)

    def _join_reductions(self) -> None:
        """Make reductions of one shape along the same axes one kernel, which reads what they share once; each as early
        as the first of them, where what it reads is there."""
        there, place = set(self.graph.params), 0
        while place < len(self._steps):
            made, _, kernel = self._steps[place]
            if isinstance(kernel, Reduction):
                alike = [
                    step for step in self._steps[place:]
                    if isinstance(step[2], Reduction) and there.issuperset(step[1])
                    and (step[2].shape, step[2].axes) == (kernel.shape, kernel.axes)
                ]  # fmt: skip
                nodes = [node for targets, _, _ in alike for node in targets]
                leaves = list(dict.fromkeys(leaf for _, sources, _ in alike for leaf in sources))
                if len(alike) > 1 and len(leaves) <= MOST_ARRAYS:
                    region = _segment([node.inputs[0] for node in nodes], leaves)
                    self._steps[place] = made, leaves, kernel = nodes, leaves, Reduction(self.device, region, *nodes)
                    self._steps = [step for step in self._steps if not any(step is each for each in alike)]
            there.update(made)
            place += 1

    def _region(self, nodes: list[Node]) -> None:
        wanted = [node for node in nodes if node not in self._there]
        if wanted:
            leaves = self._leaves(wanted)
            self._steps.append((wanted, leaves, Region(self.device, _segment(wanted, leaves))))
            self._there.update(wanted)

    def _leaves(self, nodes: Sequence[Node]) -> list[Node]:
        """What elementwise nodes are computed from, made before them."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node in seen or node.op == "const":
                continue
            seen.add(node)
            if _is_leaf(node):
                found[node] = None
            else:
                stack += node.inputs
        for node in found:
            self._make(node)
        return list(found)


@dataclass(frozen=True)
class Reshape:
    """A reduced value in another shape."""

    shape: tuple[int, ...]

    def __call__(self, value: Any) -> Any:
        return value.reshape(self.shape)


def _in_one(device: Device, graph: Graph, steps: Sequence[tuple[list[Node], list[Node], Any]]) -> Rows | None:
    """The kernel of all steps, if they are reductions of the same rows and what is made of those; None otherwise.

    A number of a row stands for that row wherever it is read: where NumPy would spread it along another axis, as in
    ``x - x.sum(axis=1)`` of a square ``x``, kernels of their own see to it.
    """
    found = [kernel for _, _, kernel in steps if isinstance(kernel, Reduction)]
    if not found or len(steps) < 2 or any(each in graph.params for each in graph.outs):
        return None
    shape, rows = found[0].shape, found[0].rows
    if not rows or rows == math.prod(shape) or not worth(device, math.prod(shape) // rows, rows):
        return None
    tasks: list[Task] = []
    same: dict[Node, Node] = {}
    for made, leaves, kernel in steps:
        numbers = [leaf.shape for leaf in leaves if leaf not in graph.params]
        if isinstance(kernel, Reduction):
            kept = kernel.result_shape
            if (kernel.shape, kernel.rows) != (shape, rows) or not (rows == 1 or all(each == kept for each in numbers)):
                return None
            tasks.append(Task(Does.REDUCE, kernel.region, tuple(leaves), tuple(made)))
        elif isinstance(kernel, Region):
            whole = kernel.shape == shape
            here = found[0].result_shape if whole else kernel.shape
            if not (rows == 1 or all(each == here for each in numbers)):
                return None
            if kernel.size != (math.prod(shape) if whole else rows) or (whole and not set(made) <= set(graph.outs)):
                return None
            tasks.append(Task(Does.WRITE if whole else Does.COMPUTE, kernel.graph, tuple(leaves), tuple(made)))
        elif isinstance(kernel, Reshape) and leaves[0] not in graph.params and leaves[0].size == rows:
            same[made[0]] = leaves[0]
        else:
            return None
    return Rows(device, graph.params, tasks, same, graph.outs, shape, rows)


def _is_generated(node: Node) -> bool:
    """Does it take enough neighbours together for the threads of a block? CuPy's own reductions do the others."""
    source, axis = node.inputs[0], node.attrs["axis"]
    if source.size < LEAST_ROW * node.size:
        return False
    return axis is None or source.ndim - 1 in axis or bool(columns_of(source.shape, axis))


def reduction_alone(node: Node) -> Graph | None:
    """A reduction with nothing around it as a region; None where there is none to generate.

    Over leading axes CuPy's reductions have a block for a few results, however many elements each is of.
    """
    if node.op not in REDUCTIONS or not node.is_static or not _is_generated(node):
        return None
    source = node.inputs[0]
    if HALF in (source.dtype, node.dtype) or "c" in source.dtype.kind + node.dtype.kind:
        return None
    x = param(source.aval)
    return Graph([x], [rebuilt(node, [x])], node.op)


def _by_cupy(xp: Any, node: Node, value: Any) -> Any:
    return getattr(xp, node.op)(value, **node.attrs).astype(node.dtype, copy=False)


def _is_leaf(node: Node) -> bool:
    return node.op in ("param", "reshape") or node.op in REDUCTIONS


def _segment(outs: Sequence[Node], leaves: Sequence[Node]) -> Graph:
    """The elementwise graph between leaves and some nodes."""
    params = [param(leaf.aval) for leaf in leaves]
    new: dict[Node, Node] = dict(zip(leaves, params, strict=True))

    def of(node: Node) -> Node:
        if node not in new:
            new[node] = node if node.op == "const" else rebuilt(node, [of(source) for source in node.inputs])
        return new[node]

    return Graph(params, [of(node) for node in outs], "segment")
