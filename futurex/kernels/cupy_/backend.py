"""Claims nodes for the GPU: a kernel on the device where there is one, else NumPy on a copy on the host."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels import attention, cublas, cudnn
from futurex.kernels.cupy_ import draws, formats, moments, sequences, triangular
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.exact import OnHost
from futurex.kernels.cupy_.rebind import Rebinder
from futurex.kernels.cupy_.regions import Region, element_alone
from futurex.kernels.cupy_.rules import FACTORISING, NAMES, TRANSFORMING, UNKNOWN, WRITTEN, refusal
from futurex.kernels.cupy_.sweeps import Sweep, reduction_alone
from futurex.kernels.registry import Kernel
from futurex.ops.heads import attention_grad_parts, attention_parts
from futurex.ops.precision import product_parts
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param

Call = Callable[..., Any]
GENERATED: dict[str, Callable[[Device, Graph], Call]] = {"fused": Region, "fused_reduction": Sweep}

PARTS: dict[str, Call] = {
    "narrow_product": product_parts, "attention": attention_parts, "attention_grad": attention_grad_parts,
}  # fmt: skip
"""In simpler terms, what is made after differentiation: a record that says so has a derivative."""

LIBRARIES: tuple[tuple[str, Callable[[Device, Node], Call | None]], ...] = (
    ("cudnn", cudnn.kernel_for), ("cudnn", attention.kernel_for), ("cublas", cublas.kernel_for),
    ("cuda", formats.kernel_for), ("cuda", draws.kernel_for), ("cuda", moments.kernel_for),
    ("cuda", sequences.kernel_for), ("cublas", triangular.kernel_for),
)  # fmt: skip


class CupyBackend:
    """Claims every op that has a reference kernel; its kernels take and give arrays of one device.

    Operands are arrays of the device and host scalars. A node of scalars alone runs on the host.
    """

    name = "cupy"

    def __init__(self, device: Device) -> None:
        self.device = device
        self._rebinder = Rebinder(device.xp, NAMES)

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for the node, or None for structured ops."""
        if node.record.structured:
            return None
        kernel = self._kernel(node)
        return Kernel(kernel, kernel.backend)

    def attends(self, node: Node) -> bool:
        """Has a library a kernel for this node of attention?"""
        return attention.kernel_for(self.device, node) is not None

    def _kernel(self, node: Node) -> Placed | Generated:
        plain = self._plain(node)

        def steps(*inputs: Any) -> tuple[Any, ...]:
            found = plain(None, *inputs)
            return found if isinstance(found, tuple) else (found,)

        for library, kernel_for in LIBRARIES:
            kernel = kernel_for(self.device, node)
            if kernel is not None:
                return Generated(self.device, node, kernel, "", lambda: steps, library)
        return plain

    def _plain(self, node: Node) -> Placed | Generated:
        """The kernel without a library."""
        if (alone := self._alone(node)) is not None:
            placed = Placed(self.device, node, *self._placed(node))
            return Generated(self.device, node, alone, "", lambda: lambda *x: (placed(None, *x),))
        parts = _parts(node)
        if parts is None:
            return Placed(self.device, node, *self._placed(node))
        generated: Call | None = None
        reason = ""
        if node.op in GENERATED:
            try:
                generated = GENERATED[node.op](self.device, parts)
            except ValueError as error:
                reason = str(error)
        return Generated(self.device, node, generated, reason, functools.partial(self._steps, parts))

    def _alone(self, node: Node) -> Sweep | Region | None:
        """The generated kernel of an operation with nothing around it: CuPy's have small numbers be zeros, wait for the
        device before floats become integers, and round twice to half precision."""
        if (reduction := reduction_alone(node)) is not None:
            return Sweep(self.device, reduction)
        try:
            return None if (one := element_alone(node)) is None else Region(self.device, one)
        except ValueError:
            return None

    def _placed(self, node: Node) -> tuple[Call | None, str | None]:
        """The kernel on the device, or the reason why there is none."""
        reason = refusal(node)
        if reason is not None:
            return None, reason
        try:
            return self._on_device(node), None
        except AttributeError as error:
            return None, str(error)

    def _steps(self, graph: Graph) -> Call:
        """The kernels of a graph's nodes, one after the other."""
        given = ("param", "const", "item")
        steps = {each: self._kernel(each) for each in graph.nodes if each.op not in given}

        def call(*inputs: Any) -> tuple[Any, ...]:
            values = dict(zip(graph.params, inputs, strict=True))
            for each in graph.nodes:
                if each.op == "const":
                    values[each] = self.device.to_device(each.value)
                elif each.op == "item":
                    values[each] = values[each.inputs[0]][each.attrs["index"]]
                elif each in steps:
                    values[each] = steps[each](None, *(values[source] for source in each.inputs))
            return tuple(values[each] for each in graph.outs)

        return call

    def _on_device(self, node: Node) -> Call:
        """The node's kernel on arrays of the device. Raises AttributeError for functions that CuPy lacks."""
        attrs, written = node.attrs, WRITTEN.get(node.op)
        kernel: Call
        if written is not None:
            kernel = functools.partial(written, self.device.xp)
        else:
            kernel = self._rebinder.function(node.record.kernel)
        within = (
            self.device.linalg_errors if node.op in FACTORISING
            else self.device.transforms if node.op in TRANSFORMING else contextlib.nullcontext
        )  # fmt: skip

        def call(*inputs: Any) -> Any:
            with within():
                return kernel(*inputs, **attrs)

        return call


def _parts(node: Node) -> Graph | None:
    """A fused region, and an op with no kernel of its own that is made of simpler ones, as the graph of those."""
    if node.op in GENERATED:
        return node.attrs["graph"]
    decompose = PARTS.get(node.op, node.record.decompose)
    if decompose is None or refusal(node) != UNKNOWN or not node.is_static:
        return None
    params = [param(source.aval) for source in node.inputs]
    made = decompose(*params, **node.attrs)
    if made is NotImplemented:
        return None
    graph = Graph(params, list(made) if isinstance(made, tuple) else [made], node.op)
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    nodes = [each for each in graph.nodes if each.inputs and each.op != "item"]
    same = tuple(out.aval for out in graph.outs) == avals
    return graph if same and all(refusal(each) is None for each in nodes) else None


class Generated:
    """A library's or generated kernel; plainer ones where that is not to be had, for the ``reason`` given."""

    def __init__(
        self, device: Device, node: Node, kernel: Call | None, reason: str, steps: Callable[[], Call],
        backend: str = "cuda",
    ) -> None:  # fmt: skip
        self.device, self.reason, self._kernel, self._make, self._backend = device, reason, kernel, steps, backend
        self._several = isinstance(node.aval, tuple)
        self._steps: Call | None = None

    def on_host(self, operands: Sequence[Node]) -> None:
        """It stays on the device."""

    @property
    def backend(self) -> str:
        """Who computes it now."""
        return "cupy" if self._kernel is None else self._backend

    @property
    def reads_numbers(self) -> bool:
        """Does it take Python's numbers from the device's memory as it takes them by value?"""
        return isinstance(self._kernel, Region | Sweep | draws.Draw)

    @property
    def overwrites(self) -> bool:
        """May its results be written over operands of the same shape?"""
        return isinstance(self._kernel, Region)

    def __call__(self, out: Sequence[Any] | None, *inputs: Any) -> Any:
        if self._kernel is not None:
            try:
                return self._whole(self._kernel(*inputs) if out is None else self._kernel(*inputs, out=out))
            except Exception as error:  # a compiler's: its types are the driver's affair
                if self.device.capturing or isinstance(error, MemoryError):
                    raise  # another run may do it
                self._kernel, self.reason = None, f"{type(error).__name__}: {error}"
        if self._steps is None:
            self._steps = self._make()
        return self._whole(self._steps(*inputs))

    def _whole(self, results: tuple[Any, ...]) -> Any:
        return results if self._several else results[0]


class Placed:
    """A node's kernel and where it runs: on the device until that fails, from then on on the host.

    ``reason`` says why on the host; ``trips`` counts calls that went there with arrays of the device.
    """

    backend = "cupy"
    reads_numbers = overwrites = False

    def __init__(self, device: Device, node: Node, call: Call | None, reason: str | None) -> None:
        self.device, self.node, self.reason = device, node, reason
        self.trips = 0
        self._call = call
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        self._scalar = all(aval.shape == () for aval in avals)
        self._expected = [(aval.shape if aval.static else None, aval.dtype) for aval in avals]

    def on_host(self, operands: Sequence[Node]) -> Call | None:
        """NumPy's kernel, if all operands are on the host and nothing is gained by taking them to the device."""
        numbers = self._scalar and all(source.shape == () for source in operands)
        return (lambda *inputs: self._host(inputs)) if numbers or self._call is None else None

    def __call__(self, out: None, *inputs: Any) -> Any:
        there = any(map(self.device.holds, inputs))
        if not there and self._scalar:
            return self._host(inputs)
        if self._call is not None:
            try:
                return self._returned(self._as_promised(self._call(*inputs)))
            except OnHost:
                pass  # this time: the next call may have other values
            except Exception as error:
                if self.device.capturing or isinstance(error, MemoryError):
                    raise
                return self._failed(error, inputs)
        self.trips += 1
        return self._returned(self._host([self.device.to_host(value) for value in inputs]))

    def _as_promised(self, result: Any) -> Any:
        """The result, if it has the shapes and dtypes of the tree. Raises TypeError where CuPy sees it otherwise."""
        results = result if isinstance(result, tuple) else (result,)
        for value, (shape, dtype) in zip(results, self._expected, strict=True):
            if value.dtype != dtype or (shape is not None and value.shape != shape):
                raise TypeError(f"CuPy gives {value.dtype}{value.shape} where NumPy gives {dtype}{shape}")
        return result

    def _failed(self, error: Exception, inputs: tuple[Any, ...]) -> Any:
        """What failed on the device either fails in NumPy too, with the right exception, or stays on the host."""
        result = self._host([self.device.to_host(value) for value in inputs])
        self._call, self.reason = None, f"{type(error).__name__}: {error}"
        self.trips += 1
        return self._returned(result)

    def _host(self, inputs: Any) -> Any:
        result = self.node.record.run(inputs, self.node.attrs)
        if isinstance(self.node.aval, Aval) and self.node.aval.weak and isinstance(result, np.ndarray | np.generic):
            return result.item()
        return result

    def _returned(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(map(self.device.to_device, result))
        return self.device.to_device(result)
