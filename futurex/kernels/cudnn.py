"""Convolutions on a GPU by cuDNN, through its Python frontend (graph API of cuDNN 9).

The tree's arrays are channels-last, which is the layout cuDNN's matrix units read; weights are turned once a call, from
``(*kernel, C_in, C_out)`` to ``(C_out, *kernel, C_in)``. A convolution over one axis is one over two, the other of
extent one. In single precision plans that round their operands first are left out.
"""

from __future__ import annotations

import functools
import importlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import EMULATED, Device
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


ALIGNED = 16
"""Bytes: the frontend tells cuDNN that every tensor begins at a multiple of them, and kernels rely on it."""


@dataclass
class _Shared:
    """The process's handle of cuDNN, and who uses it now.

    Neither handles nor plans may be used by two threads at once, and a plan takes long to make. So all threads have the
    same ones and launch in turn, as XLA does (``CudnnAccess`` in its ``cuda_dnn.cc``).
    """

    handle: Any
    turn: threading.RLock


_shared = _Shared(None, threading.RLock())


class Planned:
    """A graph of cuDNN, planned once.

    ``make`` gives the graph for cuDNN and a handle, and its tensors. Plans with a numerical note of ``without`` are
    left out, and those that do not give the same bits every time. Raises what cuDNN raises where no plan is left.
    """

    def __init__(
        self, device: Device, make: Callable[[Any, Any], tuple[Any, list[Any]]], without: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        self._device, self._cudnn = device, library(device)
        self._make, self._without = make, ("NONDETERMINISTIC", *without)
        self._plan: tuple[Any, list[Any], int] | None = None

    def plan(self) -> tuple[Any, list[Any], int]:
        """The graph, its tensors, and bytes that it works in."""
        with _shared.turn:
            if self._plan is None:
                modes, notes = self._cudnn.heur_mode, self._cudnn.numerical_note
                graph, tensors = self._make(self._cudnn, self._handle())
                graph.validate()
                graph.build_operation_graph()
                graph.create_execution_plans([modes.A, modes.FALLBACK])
                graph.deselect_numeric_notes([getattr(notes, name) for name in self._without])
                graph.check_support()
                graph.build_plans()
                self._plan = graph, tensors, graph.get_workspace_size()
            return self._plan

    def _handle(self) -> Any:
        """The handle, on the stream that the thread works on."""
        if _shared.handle is None:
            _shared.handle = self._cudnn.create_handle()
        self._cudnn.set_stream(handle=_shared.handle, stream=self._device.xp.cuda.get_current_stream().ptr)
        return _shared.handle

    def __call__(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Launch it on arrays of its tensors: operands are laid dense for it, results are."""
        with _shared.turn:
            graph, tensors, size = self.plan()
            space = self._device.xp.empty(max(1, size), np.uint8)
            arrays = [*(self._laid(each) for each in operands), *results]
            # Addresses: an array handed over by DLPack would have the default stream wait, which ends a capture.
            places = {tensor: each.data.ptr for tensor, each in zip(tensors, arrays, strict=True)}
            graph.execute(places, space.data.ptr, handle=self._handle())

    def _laid(self, array: Any) -> Any:
        """An operand dense, and copied where it begins elsewhere than cuDNN was told: a row of a batch may."""
        dense = self._device.xp.ascontiguousarray(array)
        return dense.copy() if dense.data.ptr % ALIGNED else dense


def library(device: Device) -> Any:
    """cuDNN's frontend. Raises ImportError or OSError where it cannot be loaded, or for an emulated device."""
    if device.kind == EMULATED:
        raise ImportError("cuDNN works on a GPU only")
    return importlib.import_module("cudnn")


class Convolution:
    """A task's kernel on arrays of the device, planned at its first call."""

    def __init__(self, device: Device, task: Task) -> None:
        self.device, self.task = device, task
        # Singles are not rounded before they are multiplied.
        without = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS") if task.kind == "float32" else ()
        self._run = Planned(device, lambda cudnn, handle: graph_of(cudnn, handle, task.widened), without)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        xp, task = self.device.xp, self.task
        weights = (task.w[-1], *task.w[:-1])
        if task.op == "conv_weight_grad":
            operands, out = inputs, xp.empty(weights, task.dtype)
        else:
            operands = inputs[0], xp.moveaxis(inputs[1], -1, 0)
            out = xp.empty(task.y if task.op == "conv" else task.x, task.dtype)
        self._run(operands, [out])
        out = convert(self.device, "narrow", task.kind, out) if task.kind == "tfloat32" else out
        return (xp.ascontiguousarray(xp.moveaxis(out, 0, -1)) if task.op == "conv_weight_grad" else out,)


@functools.cache
def _kernel(device: Device, task: Task) -> Convolution:
    """One for all nodes of a task: layers of a network are alike."""
    return Convolution(device, task)


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """cuDNN's kernel for a node, or None where the op, the device or the library is another."""
    task = node_task(node)
    if task is None:
        return None
    try:
        return _kernel(device, task)
    except (ImportError, OSError, RuntimeError):
        return None
