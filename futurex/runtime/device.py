"""Plans for a GPU: the same graphs, values that live on the device, results that stay there until somebody looks.

A plan for the device is a list of kernels that are launched in order on the stream of the thread that runs it. Memory
comes from CuPy's pool; an array is given back to it after its last reader was launched, which the stream's order makes
safe. Arguments that are results of earlier runs are there already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.kernels.cupy_ import CupyBackend, device
from futurex.kernels.cupy_.capture import Replays
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.streams import lane
from futurex.kernels.loops import LoopBackend
from futurex.kernels.registry import Kernel
from futurex.ops.comm import COMMUNICATION, communications
from futurex.passes.pipeline import DEVICE_PASSES, optimise
from futurex.runtime.counters import Grain, Row
from futurex.runtime.futures import Resident
from futurex.runtime.inline import note
from futurex.runtime.memory import Memory
from futurex.runtime.structured import STRUCTURED, structured_kernel
from futurex.tree.aval import Aval, aval_of
from futurex.tree.dims import fits
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node

_LAUNCH = 6e-6  # seconds to launch a kernel from Python
_TIMED = 4  # runs whose kernels are waited for one by one
Values = list[Any]


class Step:
    """One kernel of a plan, as :class:`futurex.runtime.plan.Instruction` is one of a plan for the host."""

    __slots__ = ("drops", "ins", "kernel", "node", "ns", "outs")

    def __init__(self, node: Node, kernel: Kernel, ins: tuple[int, ...], outs: tuple[int, ...]) -> None:
        self.node, self.kernel, self.ins, self.outs = node, kernel, ins, outs
        self.drops: tuple[int, ...] = ()
        self.ns = 0


class DevicePlan:
    """A graph compiled for the device; it is run like a :class:`futurex.runtime.plan.Plan`.

    ``resident``: results stay on the device as :class:`Resident`. ``inner``: a sub-graph's plan, which takes and gives
    bare arrays of the device. Raises MissingExtra where there is no device, TypeError for sub-graphs that communicate.
    """

    collectives: tuple[int, ...] = ()
    threads = 1

    def __init__(self, graph: Graph, *, resident: bool = True, inner: bool = False) -> None:
        self.device = device()
        self.graph = graph if inner else optimise(graph, passes=DEVICE_PASSES)
        self.resident, self.inner = resident, inner
        self._backend = CupyBackend(self.device)
        self._lock = threading.Lock()
        self._runs = self._timed = 0
        self._slots: dict[Node, int] = {}
        self._template: Values = []
        self.instructions: list[Step] = []
        self._lower()
        self.cost = self.critical = _LAUNCH * len(self.instructions)
        self.grain = Grain([*[_LAUNCH] * len(self.instructions), self.cost])
        self.memory = self._memory()
        self.replays: Replays | None = None
        self._communicates = any(step.node.op in COMMUNICATION for step in self.instructions)
        if not inner and not self._communicates and not any(node.aval.dtype.hasobject for node in self.graph.params):
            self.replays = Replays(self.device, lambda args: self._launch(args, timed=False), self.cost)

    # -- compiling ---------------------------------------------------------------------------------------------------

    def _slot(self, node: Node, value: Any = None) -> int:
        self._slots[node] = len(self._template)
        self._template.append(value)
        return self._slots[node]

    def _lower(self) -> None:
        several: dict[Node, tuple[int, ...]] = {}
        for node in self.graph.params:
            self._slot(node)
        for node in _ordered(self.graph):
            if node in self._slots:
                continue
            if node.op == "const":
                self._slot(node, self.device.to_device(node.value))
            elif node.op == "item":
                self._slots[node] = several[node.inputs[0]][node.attrs["index"]]
            else:
                ins = tuple(self._slots[source] for source in node.inputs)
                kernel = self._kernel(node)
                if isinstance(node.aval, tuple):
                    several[node] = tuple(range(len(self._template), len(self._template) + len(node.aval)))
                    self._template += [None] * len(node.aval)
                    outs = several[node]
                else:
                    outs = (self._slot(node),)
                self.instructions.append(Step(node, kernel, ins, outs))
        self._outs = [self._slots[node] for node in self.graph.outs]
        self._place_drops()

    def _kernel(self, node: Node) -> Kernel:
        if node.op in COMMUNICATION:
            if self.inner:
                raise TypeError(f"{self.graph.name} communicates ({node.op}) inside a loop or a branch on a GPU")
            return Kernel(_nothing, "exchange")
        if node.op not in STRUCTURED:
            kernel = self._backend.claim(node, 1)
            assert kernel is not None  # it claims all ops but structured ones
            return kernel
        compiled = LoopBackend().claim(node, 1)
        if compiled is not None and compiled.late is not None:
            compiled.late.prepare((), wait=True)
            return Kernel(_on_host(compiled.call, self._planned(node), self.device), "host loops")
        return self._planned(node)

    def _planned(self, node: Node) -> Kernel:
        if node.op == "scan":
            return Kernel(_scan(self._compile_sub(node.attrs["body"]), self.device, node), "structured")
        return structured_kernel(node, self._compile_sub, (), 1)

    def _compile_sub(self, graph: Graph, donate: Mapping[int, int] | None = None) -> DevicePlan:
        return DevicePlan(graph, inner=True)

    def _place_drops(self) -> None:
        """After which step each value can go: its last reader, or its maker if nobody reads it."""
        kept = {*self._outs, *range(len(self.graph.params))}
        last = {slot: k for k, step in enumerate(self.instructions) for slot in (*step.outs, *step.ins)}
        for slot, k in last.items():
            if slot not in kept and self._template[slot] is None:
                self.instructions[k].drops += (slot,)

    def _memory(self) -> Memory:
        """Peak bytes of what is made and not yet dropped."""
        sizes: dict[int, int] = {}
        peak = 0
        for step in self.instructions:
            avals = step.node.aval if isinstance(step.node.aval, tuple) else (step.node.aval,)
            sizes |= {
                slot: aval.nbytes if isinstance(aval, Aval) and aval.static and not aval.dtype.hasobject else 0
                for slot, aval in zip(step.outs, avals, strict=True)
            }
            peak = max(peak, sum(sizes.values()))
            for slot in step.drops:
                sizes.pop(slot, None)
        constants = sum(getattr(value, "nbytes", 0) for value in self._template)
        return Memory(arena=0, outputs=0, constants=constants, unplanned=peak)

    def prepare(self, *, wait: bool) -> None:
        """Nothing to do: CuPy compiles a kernel when it is launched first, and keeps it on disk."""

    @property
    def ready(self) -> bool:
        """True: no kernel is replaced by another one later."""
        return True

    @property
    def interpreted(self) -> int:
        """0: NumPy stands in for no kernel that is still to come."""
        return 0

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, args: Sequence[Any], communicator: Any = None, *, outs: Sequence[Any] | None = None) -> list[Any]:
        """Launch every kernel in the calling thread and return the outputs; those on the device may not be there yet.

        Where the graph communicates they are, and a ``communicator`` is needed. Raises TypeError for arguments that do
        not fit, and what a kernel raises with a note that names the line.
        """
        if self.inner:
            return self._launch(list(args), timed=False)
        self._check(args)
        with self._lock:
            self._runs += 1
            timed = self._runs <= _TIMED
            self._timed += timed
        start = time.perf_counter()
        with lane(self.device, [arg.ready for arg in args if isinstance(arg, Resident)]) as ready:
            taken = [arg.array if isinstance(arg, Resident) else self.device.to_device(arg) for arg in args]
            if self._communicates:
                results = self._launch(taken, False, communicator)
                communicator.on_device(self.device).settle(communicator)
            else:
                results = self._launch(taken, timed) if timed or self.replays is None else self.replays.run(taken)
            if not self.resident:
                results = [self._scalar(self.device.to_host(value)) for value in results]
        self.grain.measured(-1, time.perf_counter() - start)
        return [Resident(v, ready[0], self._fetch) if self.device.holds(v) else v for v in results]

    def _fetch(self, result: Resident) -> Any:
        with lane(self.device, [result.ready]):
            return self.device.to_host(result.array)

    @staticmethod
    def _scalar(value: Any) -> Any:
        return value[()] if isinstance(value, np.ndarray) and not value.ndim else value

    def _check(self, args: Sequence[Any]) -> None:
        params = self.graph.params
        if len(args) != len(params):
            raise TypeError(f"{self.graph.name} takes {len(params)} arguments, got {len(args)}")
        for place, (arg, node) in enumerate(zip(args, params, strict=True)):
            if node.aval.dtype.hasobject:
                continue
            found = Aval(arg.array.shape, arg.array.dtype) if isinstance(arg, Resident) else aval_of(arg)
            if (found.dtype, found.weak) != (node.aval.dtype, node.aval.weak) or not fits(found.shape, node.aval.shape):
                raise TypeError(f"{self.graph.name}: argument {place} must be {node.aval!r}, got {found!r}")

    def _launch(self, args: list[Any], timed: bool, communicator: Any = None) -> list[Any]:
        values = args + self._template[len(args) :]
        coming: dict[int, Any] = {}  # events of results that other ranks have a part in
        for step in self.instructions:
            start = time.perf_counter_ns()
            try:
                self._wait_for(step.ins, coming)
                inputs = [values[index] for index in step.ins]
                if step.kernel.backend == "exchange":
                    result, event = communicator.on_device(self.device).start(communicator, step.node, inputs)
                    coming.update(dict.fromkeys(step.outs, event) if event is not None else {})
                    values[step.outs[0] : step.outs[-1] + 1] = result
                    continue
                given = (None, None, *inputs) if step.kernel.backend == "structured" else (None, *inputs)
                result = step.kernel.call(*given)
            except Exception as error:
                note(error, step, values)
                raise
            if isinstance(step.node.aval, tuple):
                for slot, value in zip(step.outs, result, strict=True):
                    values[slot] = value
            else:
                values[step.outs[0]] = result
            if timed:
                self.device.synchronize()
                step.ns += time.perf_counter_ns() - start
            del inputs, given, result
            for slot in step.drops:
                values[slot] = None
        self._wait_for(self._outs, coming)
        return [values[slot] for slot in self._outs]

    def _wait_for(self, slots: Sequence[int], coming: dict[int, Any]) -> None:
        """Let what follows on this thread's stream begin when these values are there."""
        for slot in slots:
            if (event := coming.pop(slot, None)) is not None:
                self.device.xp.cuda.get_current_stream().wait_event(event)

    def profile(self) -> list[Row]:
        """One row for each kernel; where it says ``host``, arrays travelled to NumPy and back."""
        rows = []
        for step in self.instructions:
            node = step.node
            moved = node.record.work(tuple(s.aval for s in node.inputs), node.aval, node.attrs).bytes
            trips = getattr(step.kernel.call, "trips", 0)
            backend = f"host ({trips} trips)" if trips else getattr(step.kernel.call, "backend", step.kernel.backend)
            ns = round(step.ns * self._runs / max(1, self._timed))
            rows.append(Row(node.op, str(node.src or ""), self._runs, ns, int(moved), backend, self._runs))
        return rows


def _ordered(graph: Graph) -> Sequence[Node]:
    """Inputs before users, exchanges in the order of their tags, each as early as what it sends is there.

    Effects are in program order, which is the order in which their nodes were made.
    """
    exchanges = communications(graph)
    if exchanges:
        return topological([*exchanges, *graph.outs])
    effects = sum(node.record.effect for node in graph.nodes)
    return graph.nodes if effects < 2 else sorted(graph.nodes, key=lambda node: node.id)


def _nothing(*_: Any) -> None:
    """The kernel of an exchange, which the communicator carries out."""


def _on_host(whole: Callable[..., Any], planned: Kernel, place: Device) -> Callable[..., Any]:
    """A loop over scalars and small arrays as the host's compiled function; by plans on the device if it gives up."""

    def call(out: None, *inputs: Any) -> Any:
        results = whole(None, *(_dense(place.to_host(value)) for value in inputs))
        if results is None:
            return planned.call(None, None, *inputs)
        return tuple(map(place.to_device, results))

    return call


def _dense(value: Any) -> Any:
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim else value


def _scan(body: DevicePlan, place: Device, node: Node) -> Callable[..., Any]:
    """Like the kernel of :mod:`futurex.runtime.structured`, with sequences stacked on the device at the end."""
    attrs = node.attrs
    n_carry, n_xs, length, tape = attrs["n_carry"], attrs["n_xs"], attrs["length"], attrs["tape"]
    made = [each.aval for each in (*body.graph.outs[n_carry:], *(body.graph.params[k] for k in tape))]

    def call(out: None, communicator: None, *inputs: Any) -> tuple[Any, ...]:
        carry, xs, consts = list(inputs[:n_carry]), inputs[n_carry : n_carry + n_xs], inputs[n_carry + n_xs :]
        rounds = range(len(xs[0]) if length is None else length)
        sequences: list[list[Any]] = [[None] * len(rounds) for _ in made]
        for i in reversed(rounds) if attrs["reverse"] else rounds:
            results = body.run((*carry, *(x[i] for x in xs), *consts))
            before, carry = carry, results[:n_carry]
            for steps, value in zip(sequences, [*results[n_carry:], *(before[k] for k in tape)], strict=True):
                steps[i] = value
        if length is None:
            return (*carry, *sequences)
        return (*carry, *(_stacked(place, steps, aval) for steps, aval in zip(sequences, made, strict=True)))

    return call


def _stacked(place: Device, steps: list[Any], aval: Any) -> Any:
    xp = place.xp
    if not steps:
        return xp.zeros((0, *aval.shape), aval.dtype)
    return xp.stack([xp.asarray(value) for value in steps]).astype(aval.dtype, copy=False)
