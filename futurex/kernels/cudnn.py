"""Convolutions on a GPU by cuDNN, through its Python frontend (graph API of cuDNN 9).

The tree's arrays are channels-last, which is the layout cuDNN's matrix units read; weights are turned once a call, from
``(*kernel, C_in, C_out)`` to ``(C_out, *kernel, C_in)``. A convolution over one axis is one over two, the other of
extent one. In single precision plans that round their operands first are left out.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.formats import convert
from futurex.ops.convolution import conv_shape
from futurex.ops.precision import STORAGE
from futurex.tree.node import Node

OPS = frozenset(("conv", "conv_input_grad", "conv_weight_grad"))
_TYPES = {"float32": "FLOAT", "tfloat32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """One of the three convolutions: ``x`` is (N, *spatial, C), ``w`` (*kernel, C // groups, K), ``y`` like ``x``.

    ``kind`` is ``"float32"`` or one of the formats of :mod:`futurex.ops.precision`.
    """

    op: str
    x: Shape
    w: Shape
    y: Shape
    kind: str
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """In which elements lie."""
        return STORAGE.get(self.kind, np.dtype(np.float32))

    @property
    def widened(self) -> Task:
        """With two spatial axes where there is one."""
        if len(self.x) != 3:
            return self
        return Task(
            self.op, (self.x[0], 1, *self.x[1:]), (1, *self.w), (self.y[0], 1, *self.y[1:]), self.kind,
            (1, *self.stride), ((0, 0), *self.padding), (1, *self.dilation),
        )  # fmt: skip


def task_of(name: str, shapes: Sequence[Shape], kind: str, attrs: Mapping[str, Any]) -> Task | None:
    """What cuDNN is to do for an op on operands of these shapes; None where it is not asked."""
    if name not in OPS or kind not in _TYPES or not 3 <= len(shapes[0]) <= 5 or 0 in (*shapes[0], *shapes[1]):
        return None
    options = {key: attrs[key] for key in ("stride", "padding", "dilation")}
    if name == "conv":
        x, w = shapes
        y = conv_shape(x, w, groups=attrs["groups"], **options)
    elif name == "conv_input_grad":
        (y, w), x = shapes, attrs["input_shape"]
    else:
        x, y = shapes
        w = (*attrs["kernel_shape"], x[-1] // attrs["groups"], y[-1])
    return Task(name, x, w, y, kind, **options)


def node_task(node: Node) -> Task | None:
    """The task of a node: a convolution, or one in a narrow format that ``fx.autocast`` made."""
    shapes = [source.shape for source in node.inputs]
    if node.op == "narrow_product":
        return task_of(node.attrs["product"], shapes, node.attrs["to"], node.attrs)
    return task_of(node.op, shapes, str(node.dtype), node.attrs) if node.op in OPS else None


def _outer(shape: Shape) -> tuple[list[int], list[int]]:
    """Extents and strides in cuDNN's order (N, C, *spatial) of an array that lies as (N, *spatial, C)."""
    steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
    return [shape[k] for k in order], [steps[k] for k in order]


def graph_of(cudnn: Any, handle: Any, task: Task) -> tuple[Any, list[Any]]:
    """cuDNN's graph for a task of at least two spatial axes, and its tensors: two operands and the result.

    Not built yet: that needs a GPU.
    """
    kind = getattr(cudnn.data_type, _TYPES[task.kind])
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=handle, io_data_type=kind, intermediate_data_type=single, compute_data_type=single
    )
    weights = (task.w[-1], *task.w[:-1])
    layouts = {"x": _outer(task.x), "w": _outer(weights), "y": _outer(task.y)}
    pads = zip(*task.padding, strict=True)
    options = {
        "pre_padding": list(next(pads)), "post_padding": list(next(pads)), "stride": list(task.stride),
        "dilation": list(task.dilation),
    }  # fmt: skip

    def tensor(name: str) -> Any:
        dim, stride = layouts[name]
        return graph.tensor(name=name, dim=dim, stride=stride, data_type=kind)

    if task.op == "conv":
        operands, result = [tensor("x"), tensor("w")], "y"
        made = graph.conv_fprop(image=operands[0], weight=operands[1], **options)
    elif task.op == "conv_input_grad":
        operands, result = [tensor("y"), tensor("w")], "x"
        made = graph.conv_dgrad(loss=operands[0], filter=operands[1], **options)
    else:
        operands, result = [tensor("x"), tensor("y")], "w"
        made = graph.conv_wgrad(image=operands[0], loss=operands[1], **options)
    dim, stride = layouts[result]
    made.set_output(True).set_dim(dim).set_stride(stride).set_data_type(kind)
    return graph, [*operands, made]


class _Handles(threading.local):
    handle: Any = None


_handles = _Handles()


class Convolution:
    """A task's kernel on arrays of the device, built at its first call. Raises what cuDNN raises if it has no plan."""

    def __init__(self, device: Device, task: Task) -> None:
        self.device, self.task = device, task
        self._cudnn = importlib.import_module("cudnn")
        self._plans = threading.local()  # a handle belongs to its thread, and a plan to its handle

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        xp, task = self.device.xp, self.task
        handle = self._handle()
        graph, tensors, size = self._plan(handle)
        weights = (task.w[-1], *task.w[:-1])
        if task.op == "conv_weight_grad":
            operands, out = [xp.ascontiguousarray(each) for each in inputs], xp.empty(weights, task.dtype)
        else:
            turned = xp.ascontiguousarray(xp.moveaxis(inputs[1], -1, 0))
            shape = task.y if task.op == "conv" else task.x
            operands, out = [xp.ascontiguousarray(inputs[0]), turned], xp.empty(shape, task.dtype)
        space = xp.empty(max(1, size), np.uint8)
        # Addresses: an array handed over by DLPack would have the default stream wait, which ends a capture.
        places = {tensor: each.data.ptr for tensor, each in zip(tensors, (*operands, out), strict=True)}
        graph.execute(places, space.data.ptr, handle=handle)
        out = convert(self.device, "narrow", task.kind, out) if task.kind == "tfloat32" else out
        return (xp.ascontiguousarray(xp.moveaxis(out, 0, -1)) if task.op == "conv_weight_grad" else out,)

    def _handle(self) -> Any:
        """The thread's handle, on the stream that the thread works on."""
        if _handles.handle is None:
            _handles.handle = self._cudnn.create_handle()
        self._cudnn.set_stream(handle=_handles.handle, stream=self.device.xp.cuda.get_current_stream().ptr)
        return _handles.handle

    def _plan(self, handle: Any) -> tuple[Any, list[Any], int]:
        if not hasattr(self._plans, "plan"):
            modes = self._cudnn.heur_mode
            graph, tensors = graph_of(self._cudnn, handle, self.task.widened)
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([modes.A, modes.FALLBACK])
            if self.task.kind == "float32":
                notes = self._cudnn.numerical_note
                graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
            graph.check_support()
            graph.build_plans()
            self._plans.plan = graph, tensors, graph.get_workspace_size()
        return self._plans.plan


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """cuDNN's kernel for a node, or None where the op, the device or the library is another."""
    task = node_task(node) if device.kind == "cuda" else None
    if task is None:
        return None
    try:
        return Convolution(device, task)
    except (ImportError, OSError, RuntimeError):
        return None
