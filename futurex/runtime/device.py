"""Plans for a GPU: the same graphs, values that live on the device, results that stay there until somebody looks.

A plan for the device is a list of kernels that are launched in order on the stream of the thread that runs it, after
what the host does with numbers of its own (:mod:`futurex.runtime.phases`). Memory comes from CuPy's pool; an array is
given back to it after its last reader was launched, which the stream's order makes safe. Arguments that are results of
earlier runs are there already; those that are given away are overwritten by the results that replace them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from futurex.kernels.cupy_ import CupyBackend, device
from futurex.kernels.cupy_.capture import Entry, Replays
from futurex.kernels.cupy_.streams import Ready, lane, placing
from futurex.kernels.loops import LoopBackend
from futurex.kernels.registry import Kernel
from futurex.ops.comm import COMMUNICATION, communications
from futurex.passes.attention import join_attention
from futurex.passes.pipeline import DEVICE_PASSES, optimise
from futurex.runtime import device_loops
from futurex.runtime.counters import Grain, Row, inside
from futurex.runtime.futures import Resident
from futurex.runtime.inline import note
from futurex.runtime.memory import Memory
from futurex.runtime.phases import Phases, Step, write_over
from futurex.runtime.residence import Home
from futurex.runtime.structured import STRUCTURED, structured_kernel
from futurex.tree.aval import Aval, aval_of
from futurex.tree.dims import fits
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node

_LAUNCH = 6e-6  # seconds to launch a kernel from Python
_TIMED = 4  # runs whose kernels are waited for one by one
Values = list[Any]


class DevicePlan:
    """A graph compiled for the device; it is run like a :class:`futurex.runtime.plan.Plan`.

    ``donate`` maps outputs to inputs of the same shape and dtype: such an input is overwritten by that output.
    ``resident``: results stay on the device as :class:`Resident`. ``inner``: a sub-graph's plan, which takes and gives
    bare arrays of the device. Raises MissingExtra where there is no device, TypeError for sub-graphs that communicate.
    """

    collectives: tuple[int, ...] = ()
    threads = 1

    def __init__(
        self, graph: Graph, *, donate: Mapping[int, int] | None = None, resident: bool = True, inner: bool = False
    ) -> None:  # fmt: skip
        self.device = device()
        self.home = Home(self.device)
        self._backend = CupyBackend(self.device)
        attend = functools.partial(join_attention, serves=self._backend.attends)
        self.graph = graph if inner else optimise(graph, passes=[attend, *DEVICE_PASSES])
        self.resident, self.inner = resident, inner
        self._lock = threading.Lock()
        self.runs = self.counted = self._timed = 0
        self._donate = dict(donate or {})
        self._slots: dict[Node, int] = {}
        self._template: Values = []
        self._phases: dict[tuple[bool, ...], Phases] = {}
        self.instructions: list[Step] = []
        self._constants: list[Ready] = []
        if inner:
            self._lower()
        else:  # runs know nothing of the stream of who compiles: it could still bring what they read
            with lane(self.device, [], placing(self.device)) as brought:
                self._lower()
            if any(map(self.device.holds, self._template)) or any(s.node.op in STRUCTURED for s in self.instructions):
                self._constants = brought
        self.cost = self.critical = _LAUNCH * len(self.instructions)
        self.grain = Grain([*[_LAUNCH] * len(self.instructions), self.cost])
        self.memory = self._memory()
        self._communicates = any(step.node.op in COMMUNICATION for step in self.instructions)
        objects = any(node.aval.dtype.hasobject for node in self.graph.params)
        self.replays: dict[Phases, Replays] | None = None if inner or self._communicates or objects else {}

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
        if self._donate:
            kept = [slot for node, slot in self._slots.items() if node.op in ("param", "const")]
            self.instructions = write_over(self.instructions, self._outs, self._donate, kept)
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
            return Kernel(device_loops.on_host(compiled.call, self._planned(node), self.device), "host loops")
        return self._planned(node)

    def _planned(self, node: Node) -> Kernel:
        if node.op == "scan":
            return Kernel(device_loops.scan(self._compile_sub(node.attrs["body"]), self.device, node), "structured")
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
            values = [*args, *self._template[len(args) :]]
            self._run(self.instructions, values)
            return [values[slot] for slot in self._outs]
        self._check(args)
        with self._lock:
            self.runs += 1
            timed = self.runs <= _TIMED
            self._timed += timed
        start = time.perf_counter()
        given = set(self._donate.values())
        waited = self._constants + [
            arg.ready.read() if k in given else arg.ready for k, arg in enumerate(args) if isinstance(arg, Resident)
        ]
        with lane(self.device, waited) as ready:
            values = [self._taken(arg) for arg in args] + self._template[len(args) :]
            phases = self._prepared(values, timed)
            if self._communicates:
                self._run(phases.kernels, values, communicator=communicator)
                results = self._delivered(values)
                communicator.on_device(self.device).settle(communicator)
            elif timed or self.replays is None:
                self._run(phases.kernels, values, timed)
                results = self._delivered(values)
            else:
                results = self._replayed(phases, values)
            if not self.resident:
                results = [self._scalar(self.device.to_host(value)) for value in results]
        self.grain.measured(-1, time.perf_counter() - start)
        return [Resident(v, ready[0], self.home) if self.device.holds(v) else v for v in results]

    @staticmethod
    def _taken(arg: Any) -> Any:
        if isinstance(arg, Resident):
            return arg.array
        return arg[()] if isinstance(arg, np.ndarray) and not arg.ndim and not arg.dtype.hasobject else arg

    def _prepared(self, values: Values, timed: bool) -> Phases:
        """What of the plan is left for the device, after the host's part is done and its values are there."""
        where = tuple(map(self.device.holds, values[: len(self.graph.params)]))
        phases = self._phases.get(where)
        if phases is None:
            here = [slot for slot, value in enumerate(values) if value is not None and not self.device.holds(value)]
            phases = self._phases[where] = Phases(self.instructions, here, self._outs)
        for step, kernel in phases.before:
            start = time.perf_counter_ns()
            try:
                result = kernel(*(values[slot] for slot in step.ins))
            except Exception as error:
                note(error, step, values)
                raise
            self._keep(step, result, values)
            step.ns += (time.perf_counter_ns() - start) * timed
        for slot in phases.entering:
            values[slot] = self.device.to_device(values[slot])
        return phases

    def _replayed(self, phases: Phases, values: Values) -> list[Any]:
        """The results of a run whose kernels are launched as one graph, where that can be."""
        assert self.replays is not None
        if phases not in self.replays:

            def launch(inputs: list[Any]) -> list[Any]:
                held = self._template.copy()
                for slot, value in zip(phases.entering, inputs, strict=True):
                    held[slot] = value
                self._run(phases.kernels, held)
                return self._delivered(held)

            self.replays[phases] = Replays(self.device, launch, self.cost)
        given = set(self._donate.values())
        there = [values[slot] if slot in phases.read or self.device.holds(values[slot]) else None
                 for slot in phases.entering]  # fmt: skip
        entries = [
            self._entry(value, slot in given, slot in phases.numbers)
            for slot, value in zip(phases.entering, there, strict=True)
        ]
        results = self.replays[phases].run(there, entries)
        return [
            value if slot in phases.made or self.device.holds(values[slot]) else values[slot]
            for slot, value in zip(self._outs, results, strict=True)
        ]

    def _entry(self, value: Any, given: bool, number: bool) -> Entry:
        if given and self.device.holds(value):
            return Entry.GIVEN
        plain = type(value) is float or (isinstance(value, np.generic) and value.dtype.kind in "biuf")
        return Entry.NUMBER if number and plain else Entry.FIXED

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

    def _run(self, steps: Sequence[Step], values: Values, timed: bool = False, communicator: Any = None) -> None:
        coming: dict[int, Any] = {}  # events of results that other ranks have a part in
        for step in steps:
            start = time.perf_counter_ns()
            try:
                self._wait_for(step.ins, coming)
                inputs = [values[index] for index in step.ins]
                if step.kernel.backend == "exchange":
                    result, event = communicator.on_device(self.device).start(communicator, step.node, inputs)
                    coming.update(dict.fromkeys(step.outs, event) if event is not None else {})
                    values[step.outs[0] : step.outs[-1] + 1] = result
                    continue
                out = self._targets(step, values) if step.over else None
                given = (None, None, *inputs) if step.kernel.backend == "structured" else (out, *inputs)
                result = step.kernel.call(*given)
            except Exception as error:
                note(error, step, values)
                raise
            self._keep(step, result, values)
            if timed:
                self.device.synchronize()
                step.ns += time.perf_counter_ns() - start
            del inputs, given, result, out
            for slot in step.drops:
                values[slot] = None
        self._wait_for(self._outs, coming)

    @staticmethod
    def _keep(step: Step, result: Any, values: Values) -> None:
        if isinstance(step.node.aval, tuple):
            for slot, value in zip(step.outs, result, strict=True):
                values[slot] = value
        else:
            values[step.outs[0]] = result

    def _targets(self, step: Step, values: Values) -> tuple[Any, ...]:
        """The arguments that a step's results are written over."""
        found: list[Any] = [None if slot is None else values[slot] for slot in step.over]
        return tuple(each if self.device.holds(each) and each.flags.c_contiguous else None for each in found)

    def _delivered(self, values: Values) -> list[Any]:
        """The results, each in memory of its own: that of the argument that was given away for it, if one was."""
        xp, count = self.device.xp, len(self.graph.params)
        results = [values[slot] for slot in self._outs]
        targets = {k: values[p] for k, p in self._donate.items() if self.device.holds(values[p])}
        others = {id(value) for slot, value in enumerate(values) if slot < count or self._template[slot] is not None}
        for k, value in enumerate(results):
            if self.device.holds(value) and value is not targets.get(k):
                if value.base is not None or id(value) in others:
                    value = results[k] = value.copy()
                others.add(id(value))
        for k, target in targets.items():
            if results[k] is not target:
                xp.copyto(target, results[k])
                results[k] = target
        return results

    def _wait_for(self, slots: Sequence[int], coming: dict[int, Any]) -> None:
        """Let what follows on this thread's stream begin when these values are there."""
        for slot in slots:
            if (event := coming.pop(slot, None)) is not None:
                self.device.xp.cuda.get_current_stream().wait_event(event)

    def profile(self) -> list[Row]:
        """One row for each kernel; where it says ``host``, arrays travelled to NumPy and back."""
        rows = []
        before = {id(step) for phases in self._phases.values() for step, _ in phases.before}
        for step in self.instructions:
            node = step.node
            moved = node.record.work(tuple(s.aval for s in node.inputs), node.aval, node.attrs).bytes
            trips = getattr(step.kernel.call, "trips", 0)
            backend = f"host ({trips} trips)" if trips else getattr(step.kernel.call, "backend", step.kernel.backend)
            backend = "host" if id(step) in before and not trips else backend
            ns = round(step.ns * self.runs / max(1, self._timed))
            line = str(node.src or "")
            rows.append(Row(node.op, line, self.runs, ns, int(moved), backend, self.runs, inside=inside(node)))
        return rows

    def reasons(self) -> dict[str, str]:
        """Why operations have plainer kernels than are meant for them, or NumPy's, and why runs are no ``"graph"``."""
        before = {id(step) for phases in self._phases.values() for step, _ in phases.before}
        found = {
            step.node.op: why for step in self.instructions
            if id(step) not in before and (why := getattr(step.kernel.call, "reason", None))
        }  # fmt: skip
        graphs = [each.reason for each in (self.replays or {}).values() if each.reason is not None]
        return found | ({"graph": graphs[0]} if graphs else {})


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
