"""The inline executor: instructions one after the other in the calling thread, collectives beside them."""

from __future__ import annotations

import heapq
import queue
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from futurex.errors import FuturexError
from futurex.runtime import config, trace
from futurex.runtime.instance import Home, Instance, Values, operands
from futurex.runtime.lower import COMMUNICATOR
from futurex.runtime.scheduler import Scheduler, Turns
from futurex.runtime.stall import Stall
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.runtime.plan import Plan


class RunTimeout(FuturexError, TimeoutError):
    """A run waited for other localities longer than the deadline."""


class Pending(Protocol):
    """A collective in flight; ``started`` and ``finished`` are ``time.perf_counter()`` seconds.

    ``key`` is what names it on all localities.
    """

    @property
    def key(self) -> tuple[int, ...]: ...

    @property
    def started(self) -> float: ...

    @property
    def finished(self) -> float | None: ...

    def late(self) -> Sequence[int]:
        """The ranks that have not done their part."""
        ...

    def awaiting(self) -> str:
        """What is missing, in words."""
        ...

    def add_done_callback(self, fn: Any) -> None: ...

    def result(self) -> Any: ...


class Communicator(Protocol):
    """The collectives of one locality; ``memory`` is where the arenas of plans that exchange arrays lie."""

    @property
    def memory(self) -> Home | None: ...

    def drive(self, done: Callable[[], bool]) -> None:
        """Work on what is in flight, on this thread, until ``done()`` or for a moment."""
        ...

    def start(
        self, op: str, attrs: dict[str, Any], arrays: Sequence[Any], outs: Sequence[Any], urgency: float = 0.0
    ) -> Pending:
        """Begin a collective and return at once; what it sends goes before what is less urgent and still waits.

        ``arrays`` and ``outs`` are C-contiguous; ``outs[k]`` may be the very array ``arrays[k]`` and shares no memory
        with any other. Both stay untouched until the operation is done.
        """
        ...

    def waited(self, seconds: float) -> None:
        """The run had nothing to do for this long but wait for collectives."""
        ...

    def stalled(self, seconds: float, waiting: Iterable[tuple[Node, Pending]]) -> Stall:
        """The run has waited this long for the collectives of these nodes."""
        ...


class Located(Protocol):
    """What one step of a run does, and on which slots."""

    @property
    def node(self) -> Node: ...

    @property
    def ins(self) -> tuple[int, ...]: ...


_NOTED = re.compile(r"in \w+\(.*\)\n  at ", re.DOTALL)


def note(error: BaseException, instruction: Located, values: Values | Mapping[int, Any]) -> None:
    """Add to an exception the user's line, the op and the operands it was given."""
    node = instruction.node
    shapes = ", ".join(_describe(values[index]) for index in instruction.ins if index != COMMUNICATOR)
    where = node.src.shown() if node.src else "a line that is not known"
    error.add_note(f"in {node.op}({shapes})\n  at {where}")
    if node.src is not None and not hasattr(error, "__source__"):
        error.__source__ = node.src  # type: ignore[attr-defined]


def forget_checks(error: BaseException) -> None:
    """Take back what was noted of a check, and of the loops and branches around it: what the program raises itself says
    no more than it says in plain Python. Where it was raised the traceback tells."""
    notes = getattr(error, "__notes__", [])
    noted = [text for text in notes if _NOTED.match(text)]
    if noted and noted[0].startswith("in check("):
        error.__notes__ = [text for text in notes if text not in noted]
        if not error.__notes__:
            del error.__notes__


def _describe(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return repr(value) if isinstance(value, bool | int | float | complex) else type(value).__name__
    return f"{value.dtype.name}[{','.join(map(str, value.shape))}]"


def replay(plan: Plan, instance: Instance, values: Values) -> None:
    """Run every instruction in the order of the plan."""
    if instance.counters.due() or trace.active() is not None:
        _replay_timed(plan, instance, values)
        return
    place = -1
    calls, drops = instance.calls, plan.drops
    try:
        for place in plan.order:
            calls[place](values)
            if place in drops:
                for slot in drops[place]:
                    values[slot] = None
    except Exception as error:
        note(error, plan.instructions[place], values)
        raise


def _replay_timed(plan: Plan, instance: Instance, values: Values) -> None:
    counters, recorder, lane = instance.counters, trace.active(), trace.lane()
    counters.timed += 1
    place = -1
    try:
        for place in plan.order:
            start = time.perf_counter_ns()
            instance.calls[place](values)
            end = time.perf_counter_ns()
            counters.ns[place] += end - start
            if recorder is not None:
                node = plan.instructions[place].node
                recorder.add(node.op, lane, start * 1e-9, end * 1e-9, trace.about(node))
            for slot in plan.drops.get(place, ()):
                values[slot] = None
    except Exception as error:
        note(error, plan.instructions[place], values)
        raise


class Readers:
    """Lets go of arrays that kernels made once their last reader has run, in whatever order the readers run."""

    __slots__ = ("_left", "_reads", "_values")

    def __init__(self, plan: Plan, values: Values) -> None:
        self._left = dict(plan.readers)
        self._reads = plan.reads
        self._values = values

    def read(self, index: int) -> None:
        """Instruction ``index`` has run."""
        for slot in self._reads[index]:
            self._left[slot] -= 1
            if not self._left[slot]:
                self._values[slot] = None


class Conversation:
    """One run of a plan that communicates.

    A collective starts as soon as its inputs exist, in the order of the tags, which is the same on every locality.
    Other ready instructions run meanwhile, and only when there are none does the thread wait.
    """

    def __init__(self, plan: Plan, instance: Instance, values: Values) -> None:
        self.plan, self.instance, self.values = plan, instance, values
        self._scheduler = Scheduler([each.after for each in plan.instructions], plan.rank, plan.dependents)
        self._readers = Readers(plan, values)
        self._ready: list[tuple[int, int]] = []
        self._turns = Turns(plan.collectives)
        self._in_flight: dict[int, Pending] = {}
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._timed = instance.counters.due() or trace.active() is not None
        instance.counters.timed += self._timed

    def run(self) -> None:
        """Run to the end. Raises what an instruction raised, or RunTimeout."""
        self._admit(self._scheduler.start())
        while not self._scheduler.done:
            while self._in_flight and not self._arrived.empty():
                self._land(self._arrived.get())
            if self._ready:
                self._execute(heapq.heappop(self._ready)[1])
            elif not self._scheduler.done:
                self._land(self._wait())

    def _admit(self, ready: list[int]) -> None:
        for index in ready:
            if self.plan.instructions[index].communicates:
                for each in self._turns.arrive(index):
                    self._start(each)
            else:
                heapq.heappush(self._ready, (self.plan.rank[index], index))

    def _start(self, index: int) -> None:
        instruction = self.plan.instructions[index]
        arrays = operands(instruction.ins, instruction.kernel, range(len(instruction.ins)))(self.values)
        outs = [self.values[out] for out in instruction.outs]
        try:
            node, communicator = instruction.node, self.values[COMMUNICATOR]
            pending = communicator.start(node.op, node.attrs, arrays, outs, instruction.priority)
        except Exception as error:
            note(error, instruction, self.values)
            raise
        self._in_flight[index] = pending
        pending.add_done_callback(lambda *_: self._arrived.put(index))

    def _wait(self) -> int:
        start = time.perf_counter()
        self.values[COMMUNICATOR].drive(lambda: not self._arrived.empty())
        index = self._next()
        end = time.perf_counter()
        self.values[COMMUNICATOR].waited(end - start)
        if (recorder := trace.active()) is not None:
            recorder.add(self.plan.instructions[index].node.op, "waiting", start, end)
        return index

    def _next(self) -> int:
        """The next collective that ends. Where none does for long, that is told, at ever longer intervals."""
        limit, told, waited = config.deadline(), config.patience(), 0.0
        while waited < limit:
            pause = min(told, limit) - waited
            try:
                return self._arrived.get(timeout=pause)
            except queue.Empty:
                waited += pause
            if waited < limit:
                self.values[COMMUNICATOR].stalled(waited, self._waiting())
                told *= 2
        late = [self.plan.instructions[index] for index in self._in_flight]
        stall = self.values[COMMUNICATOR].stalled(limit, self._waiting())
        error = RunTimeout(
            f"{', '.join(each.node.op for each in late)} did not finish within {limit:g} s: another locality is "
            f"lost, hangs, or runs another plan; look at its log, or allow more time with FUTUREX_DEADLINE. {stall}"
        )
        for each in late:
            note(error, each, self.values)
        raise error

    def _waiting(self) -> list[tuple[Node, Pending]]:
        return [(self.plan.instructions[index].node, pending) for index, pending in self._in_flight.items()]

    def _land(self, index: int) -> None:
        instruction, pending = self.plan.instructions[index], self._in_flight.pop(index)
        try:
            pending.result()
        except Exception as error:
            note(error, instruction, self.values)
            if isinstance(error, TimeoutError):
                waiting = [(instruction.node, pending), *self._waiting()]
                error.add_note(str(self.values[COMMUNICATOR].stalled(config.deadline(), waiting)))
            raise
        if self._timed and pending.finished is not None:
            self._time(index, "communication", pending.started, pending.finished, pending.key)
        self._after(index)

    def _execute(self, index: int) -> None:
        start = time.perf_counter()
        try:
            self.instance.calls[index](self.values)
        except Exception as error:
            note(error, self.plan.instructions[index], self.values)
            raise
        if self._timed:
            self._time(index, trace.lane(), start, time.perf_counter())
        self._after(index)

    def _after(self, index: int) -> None:
        self._readers.read(index)
        self._admit(self._scheduler.finished(index))

    def _time(self, index: int, lane: str, start: float, end: float, key: tuple[int, ...] | None = None) -> None:
        self.instance.counters.ns[index] += round((end - start) * 1e9)
        recorder = trace.active()
        if recorder is not None:
            node = self.plan.instructions[index].node
            recorder.add(node.op, lane, start, end, trace.about(node, key))
