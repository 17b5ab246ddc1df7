"""Attention on a GPU by cuDNN, which keeps no scores: the graph API's ``sdpa`` and ``sdpa_backward``.

Operands lie as (batch, heads, length, size), dense. The derivative takes the algorithm that gives the same bits every
time: others add up in the order in which blocks happen to end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cudnn import Planned
from futurex.kernels.cupy_.devices import Device
from futurex.ops.precision import STORAGE
from futurex.tree.node import Node

OPS = frozenset(("attention", "attention_grad"))
_TYPES = {"float16": "HALF", "bfloat16": "BFLOAT16"}
_STEP, _LARGEST = 8, 256  # extents of a head: multiples of the one, up to the other, which is for newer GPUs

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """Attention, or its ``grad``, of queries, keys and values of these shapes, of two to four axes."""

    grad: bool
    q: Shape
    k: Shape
    v: Shape
    to: str
    scale: float
    causal: bool


def task_of(node: Node) -> Task | None:
    """What cuDNN is to do for a node; None where it is not asked."""
    if node.op not in OPS:
        return None
    grad = node.op == "attention_grad"
    q, k, v = (source.shape for source in node.inputs[grad : grad + 3])
    sizes = q[-1], v[-1]
    fits = len(q) <= 4 and 0 not in (*q, *k, *v) and all(size % _STEP == 0 and size <= _LARGEST for size in sizes)
    return Task(grad, q, k, v, **node.attrs) if fits else None


def graph_of(cudnn: Any, handle: Any, task: Task) -> tuple[Any, list[Any]]:
    """cuDNN's graph for a task, and its tensors: operands, then results. Not built yet: that needs a GPU."""
    kind, single = getattr(cudnn.data_type, _TYPES[task.to]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(handle=handle, io_data_type=kind, intermediate_data_type=single, compute_data_type=single)
    made, row = (*task.q[:-1], task.v[-1]), (*task.q[:-1], 1)

    def tensor(name: str, shape: Shape, dtype: Any) -> Any:
        dim, stride = _laid(shape)
        return graph.tensor(name=name, dim=dim, stride=stride, data_type=dtype)

    def result(tensor: Any, shape: Shape, dtype: Any) -> Any:
        dim, stride = _laid(shape)
        return tensor.set_output(True).set_dim(dim).set_stride(stride).set_data_type(dtype)

    q, k, v = (tensor(name, shape, kind) for name, shape in (("q", task.q), ("k", task.k), ("v", task.v)))
    options = {"attn_scale": task.scale, "use_causal_mask": task.causal}
    if not task.grad:
        # ``is_inference`` is the old name of what newer versions call ``generate_stats``, and take, too.
        out, logs = graph.sdpa(q=q, k=k, v=v, is_inference=False, **options)
        return graph, [q, k, v, result(out, made, kind), result(logs, row, single)]
    g, out, logs = tensor("g", made, kind), tensor("out", made, kind), tensor("logs", row, single)
    slopes = graph.sdpa_backward(
        q=q, k=k, v=v, o=out, dO=g, stats=logs, use_deterministic_algorithm=True, **options
    )  # fmt: skip
    results = [result(each, shape, kind) for each, shape in zip(slopes, (task.q, task.k, task.v), strict=True)]
    return graph, [g, q, k, v, out, logs, *results]


def _laid(shape: Shape) -> tuple[list[int], list[int]]:
    """Extents and strides, with four axes, of an array that lies dense."""
    dim = [1] * (4 - len(shape)) + list(shape)
    return dim, [math.prod(dim[axis + 1 :]) for axis in range(4)]


class Attention:
    """A task's kernel on arrays of the device. Raises what cuDNN raises if it has no plan."""

    def __init__(self, device: Device, task: Task) -> None:
        self.device, self.task = device, task
        self._run = Planned(device, lambda cudnn, handle: graph_of(cudnn, handle, task))
        self._run.plan()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        xp, task = self.device.xp, self.task
        if task.grad:
            results = [xp.empty(shape, STORAGE[task.to]) for shape in (task.q, task.k, task.v)]
        else:
            results = [xp.empty((*task.q[:-1], task.v[-1]), STORAGE[task.to]), xp.empty(task.q[:-1], np.float32)]
        self._run(inputs, results)
        return tuple(results)


@functools.cache
def _kernel(device: Device, task: Task) -> Attention | None:
    try:
        return Attention(device, task)
    except Exception:  # cuDNN's own, or a missing library: what it does not plan has other kernels
        return None


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """cuDNN's kernel for a node, or None where the op, the shapes, the device or the library are others."""
    task = task_of(node)
    return None if task is None else _kernel(device, task)
