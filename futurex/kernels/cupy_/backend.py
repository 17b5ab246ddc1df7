"""Claims nodes for the GPU: a kernel on the device where there is one, else NumPy on a copy on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.exact import OnHost
from futurex.kernels.cupy_.rebind import Rebinder
from futurex.kernels.cupy_.rules import FACTORISING, NAMES, WRITTEN, refusal
from futurex.kernels.registry import Kernel
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Call = Callable[..., Any]


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
        if node.op == "fused":
            return Kernel(self._region(node), self.name)
        return Kernel(Placed(self.device, node, *self._placed(node)), self.name)

    def _placed(self, node: Node) -> tuple[Call | None, str | None]:
        """The kernel on the device, or the reason why there is none."""
        reason = refusal(node)
        if reason is not None:
            return None, reason
        try:
            return self._on_device(node), None
        except AttributeError as error:
            return None, str(error)

    def _region(self, node: Node) -> Call:
        """A fused region as the kernels of its nodes, one after the other."""
        graph = node.attrs["graph"]
        steps = {each: Placed(self.device, each, *self._placed(each)) for each in graph.nodes if each.inputs}
        several = isinstance(node.aval, tuple)

        def call(out: None, *inputs: Any) -> Any:
            values = dict(zip(graph.params, inputs, strict=True))
            for each in graph.nodes:
                if each.op == "const":
                    values[each] = self.device.to_device(each.value)
                elif each in steps:
                    values[each] = steps[each](None, *(values[source] for source in each.inputs))
            results = tuple(values[each] for each in graph.outs)
            return results if several else results[0]

        return call

    def _on_device(self, node: Node) -> Call:
        """The node's kernel on arrays of the device. Raises AttributeError for functions that CuPy lacks."""
        attrs, written = node.attrs, WRITTEN.get(node.op)
        if written is not None:
            xp = self.device.xp
            return lambda *inputs: written(xp, *inputs, **attrs)
        kernel = self._rebinder.function(node.record.kernel)
        if node.op not in FACTORISING:
            return lambda *inputs: kernel(*inputs, **attrs)

        def factorise(*inputs: Any) -> Any:
            with self.device.linalg_errors():
                return kernel(*inputs, **attrs)

        return factorise


class Placed:
    """A node's kernel and where it runs: on the device until that fails, from then on on the host.

    ``reason`` says why on the host; ``trips`` counts calls that went there with arrays of the device.
    """

    def __init__(self, device: Device, node: Node, call: Call | None, reason: str | None) -> None:
        self.device, self.node, self.reason = device, node, reason
        self.trips = 0
        self._call = call
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        self._scalar = all(aval.shape == () for aval in avals)
        self._expected = [(aval.shape if aval.static else None, aval.dtype) for aval in avals]

    def __call__(self, out: None, *inputs: Any) -> Any:
        there = any(map(self.device.holds, inputs))
        if not there and self._scalar:
            return self._host(inputs)
        if self._call is not None:
            try:
                return self._as_promised(self._call(*inputs))
            except OnHost:
                pass  # this time: the next call may have other values
            except Exception as error:
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
