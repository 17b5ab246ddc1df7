"""A plan over small arrays as one function of machine code, made behind its runs and taken where it measures faster.

A plan replays instructions, which costs about a microsecond each; one compiled function costs some nanoseconds each,
and 50 to 500 ms to make. So a plan begins as it is. When it has used as much time as is worth it, its graph is compiled
by a thread of its own; then both ways run on the same arguments a few times, and the faster one stays. They are
compared again from time to time. A plan with fragments, the user's own calls, never makes them twice: its runs are
compared in turn, and so are those of a plan whose results are written over its arguments.

Where calls are plain NumPy until there is code, the function is made first, and leads: one function takes less time to
make than a kernel for each loop in it. The kernels are made, and both ways compared, when runs have taken so long that
this is worth it, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from futurex.kernels.compiling import Job, background
from futurex.kernels.registry import LIBRARIES, Backend, Compiler, Late
from futurex.ops.opaque import GaveUp, has_fragments
from futurex.passes import windows
from futurex.runtime import trace
from futurex.runtime.counters import Grain
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.runtime.inline import Communicator
    from futurex.runtime.plan import Instruction
    from futurex.runtime.results import Delivery

LARGEST = 1 << 15
"""Elements of an array from which NumPy's kernels, and threads, do as well."""
MOST_FLOPS, SURE_FLOPS = 8e6, 2e6
"""Operations of a product: more go to a plan, whose threads share them; and what is taken without having been measured
has no more than these in one."""
MOST_NODES, MANY_NODES = 12_000, 5000
"""Nodes of a graph that is compiled, regions inside counted, and from which on nobody waits for that."""
WORTH, FEWEST, PER_NODE = 20e-3, 8, 2e-4
"""Seconds and runs after which a plan is compiled whole; and of one of many nodes seconds more for each, about what it
takes to compile."""
LEADS = 100e-3
"""Seconds of runs after which a function that leads is compared with the plan, whose kernels are compiled for that."""
TRIALS, AGAIN = 5, 4096
"""Runs of both ways that are compared, and runs until they are compared again."""
_PRODUCTS = ("matmul", "matmul_epilogue")
_BETTER, _FAVOUR = 0.9, 1.25
"""Of the plan's time: a function that takes less is taken. So is one that is as good where the plan keeps several
processors busy, of which others may want one (its threads wait for each other then), or where it was taken before."""


class _Replay(Protocol):
    def __call__(
        self, args: Sequence[Any], communicator: Communicator | None, outs: Sequence[Any] | None, checked: bool
    ) -> list[Any]: ...


class _Program(Late, Protocol):
    own: int
    calls: Sequence[Any]

    def __call__(self, *inputs: Any, outs: Sequence[Any] | None = None) -> tuple[Any, ...] | None: ...

    def quickly(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None: ...

    def release(self) -> None: ...


class Whole:
    """How the runs of one plan go. Threads may run it at once: a measurement that is lost does no harm."""

    def __init__(
        self, graph: Graph, compiler: Compiler, replay: _Replay, delivery: Delivery, grain: Grain, *, behind: bool,
        several: bool, sure: bool = True,
    ) -> None:  # fmt: skip
        """``several``: runs of the plan keep several processors busy; ``sure``: may a function of small products be
        taken without having been measured?"""
        self._sure = sure
        self._graph, self._compiler, self._behind = graph, compiler, behind
        self._favoured = several  # is it enough if the function is as good as the plan?
        self._replay, self._delivery, self._check, self._grain = replay, delivery, delivery.check, grain
        self._program: _Program | None = None
        self._asked = self._off = False
        self._once = has_fragments(graph)  # does a run do what must not be done twice?
        nodes = _nodes(graph)
        self.many = nodes if nodes >= MANY_NODES else 0  # so many that it takes seconds to compile them
        self._in_turn = self._once or bool(delivery.donated)  # are runs compared that are not of the same arguments?
        self.taken = False  # do runs go to the compiled function?
        self._decided = False  # for good, without having been measured?
        self.leads = False  # without having been compared with the plan, which has no kernels yet?
        self._kernels: list[Job] = []  # what makes these
        self._ending = False  # is it known when it leads no longer?
        self.reason = ""  # why there is none
        self.runs = 0  # of the compiled function
        self._replays = 0
        self._spent = 0.0
        self._times: tuple[list[float], list[float]] = ([], [])  # of runs by the plan and by the function
        self._failures = 0
        self.seconds = (0.0, 0.0)  # of a run by the plan and by the function, as last compared

    @property
    def open(self) -> bool:
        """Do runs go to the compiled function, or may they yet?"""
        return not self._off

    @property
    def own(self) -> int:
        """Bytes that the function keeps between runs, if there is one that runs may go to."""
        return self._program.own if self._program is not None and self.open else 0

    @property
    def settled(self) -> bool:
        """Is it known how runs go?"""
        return (self.taken and not self.leads) or self._off or (self.many > 0 and not self._asked)

    def run(
        self, args: Sequence[Any], communicator: Communicator | None, outs: Sequence[Any] | None, checked: bool
    ) -> list[Any]:
        """The results of one run."""
        if self._off or trace.active() is not None:  # of which every operation is to be seen
            return self._replay(args, communicator, outs, checked)
        if self.taken:
            inputs = args if checked else self._check(args)
            assert self._program is not None
            start = time.perf_counter() if self.leads else 0.0
            results = self._called(inputs, args)
            if results is not None:
                self.runs += 1
                if self.leads:
                    self._led(time.perf_counter() - start)
                elif not (self.runs % AGAIN or self._decided):
                    self.taken, self._times = False, ([], [])
                return list(results)
            self._failed()
            if self._once:
                raise GaveUp("a compiled function gave up")
            return self._replay(args, communicator, outs, checked)
        start = time.perf_counter()
        if self._in_turn and self._program is not None and len(self._times[0]) > len(self._times[1]):
            results = self._called(args if checked else self._check(args), args)
            if results is not None:
                self._compared(1, time.perf_counter() - start)
                return list(results)
            self._failed()
            if self._once:
                raise GaveUp("a compiled function gave up")
            return self._replay(args, communicator, outs, checked)
        found = self._replay(args, communicator, outs, checked)
        self._replayed(time.perf_counter() - start, args, checked)
        return found

    def _called(self, inputs: Sequence[Any], args: Sequence[Any]) -> Sequence[Any] | None:
        """The results of the compiled function, those that were donated in the arguments that they belong to."""
        assert self._program is not None
        donated = self._delivery.donated
        if not donated:
            return self._program(*inputs)
        outs: list[Any] = [None] * len(self._graph.outs)
        for number, param in donated.items():
            if inputs[param].flags.carray:
                outs[number] = inputs[param]
        results = self._program(*inputs, outs=outs)
        return results and self._delivery.hand_back(list(results), args)

    def quickly(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The results of the compiled function for inputs that are known to fit, as they are without looking at them;
        None where another way has to be gone."""
        if trace.active() is not None or self.leads or self.runs % AGAIN == AGAIN - 1:
            return None
        assert self._program is not None
        results = self._program.quickly(inputs)
        if results is not None:
            self.runs += 1
        return results

    def _replayed(self, seconds: float, args: Sequence[Any], checked: bool) -> None:
        self._replays += 1
        self._spent += seconds
        if self._program is not None:
            self._compared(0, seconds)
            if not self._in_turn:
                self._compare(args if checked else self._check(args))
        elif not self._asked and self._spent > WORTH + PER_NODE * self.many and self._replays >= FEWEST:
            if self._behind:
                self._asked = True
                background.submit(self.make)
            else:
                self.make()

    def make(self) -> None:
        """Compile the function, unless it is there; the next runs compare it."""
        if self._program is not None:
            return
        self._asked = True
        try:
            self._program = self._compiler.whole(self._graph, self._delivery.donated)
        except self._compiler.refusals as error:
            self.reason, self._off = str(error), True

    def decide(self) -> None:
        """Let all runs go to the function, if there is one that does not call Python and is soon made, or none."""
        if self._sure and not self.many and _is_small(self._graph, SURE_FLOPS):
            self.make()
        self._decided = True
        self.taken = self._program is not None and not self._program.calls
        if not self.taken:
            self._leave()

    def lead(self, kernels: list[Job]) -> None:
        """Compile the function, and let runs go to it; the ``kernels`` of the plan come later."""
        self._kernels = kernels
        try:
            self.make()
        finally:
            self.leads = self.taken = self._program is not None and not self._off
            if not self.leads:
                self._follow()

    def _led(self, seconds: float) -> None:
        self._spent += seconds
        if self.runs <= TRIALS:
            self._grain.changed(seconds)
        if self._spent > LEADS and not self._ending:
            self._ending = True
            self._follow()
            background.submit(self._end_lead)

    def _follow(self) -> None:
        """Have the kernels of the plan compiled."""
        kernels, self._kernels = self._kernels, []
        for each in kernels:
            each()

    def _end_lead(self) -> None:
        """The kernels are there: the next runs compare both ways."""
        self.taken, self._times, self.leads = False, ([], []), False

    def _compare(self, inputs: Sequence[Any]) -> None:
        """Run the function on the arguments of a run of the plan, too."""
        assert self._program is not None
        start = time.perf_counter()
        if self._program(*inputs) is None:
            self._failed()
        else:
            self._compared(1, time.perf_counter() - start)

    def _compared(self, way: int, seconds: float) -> None:
        """One run by the plan (0) or by the function (1) is over; after some of both it is known which is faster."""
        self._times[way].append(seconds)
        if min(map(len, self._times)) < TRIALS:
            return
        plan, function = map(min, self._times)
        self.seconds, self._times = (plan, function), ([], [])
        self.taken = function < _BETTER * (_FAVOUR if self._favoured else 1) * plan
        if self.taken:
            self._favoured = True
            self._grain.changed(function)
        else:
            self._leave()

    def _failed(self) -> None:
        """The function gave up, and the plan had to run: a way that often does is left."""
        self._failures += 1
        self._times = ([], [])
        if 2 * self._failures > self.runs + 4:
            self.reason = "it gave up too often"
            self._leave()

    def _leave(self) -> None:
        """The plan runs from now on, and the function's memory goes."""
        self.taken, self.leads, self._off = False, False, True
        self._follow()
        if self._program is not None:
            self._program.release()

    def text(self) -> str | None:
        """What there is to say of the choice."""
        if self.reason:
            return f"runs instruction by instruction: {self.reason}"
        if self.leads:
            return "runs as one compiled function; its operations have no code of their own yet"
        if self.taken and self._decided:
            return "runs as one compiled function"
        plan, function = (f"{seconds * 1e6:.3g} µs" for seconds in self.seconds)
        if self.taken:
            return f"runs as one compiled function: {function} instead of {plan}"
        return f"runs instruction by instruction: {plan}, compiled {function}" if self.seconds[0] else None


def compiler_for(graph: Graph, instructions: Sequence[Instruction], backends: Sequence[Backend]) -> Compiler | None:
    """The backend that may compile a plan whole; None where replaying it is as good."""
    compiler = next((each for each in backends if isinstance(each, Compiler)), None)
    if compiler is None:
        return None
    loops = any(each.kernel.backend == compiler.name for each in instructions)
    if any(node.op not in (*windows.OPERATIONS, *_PRODUCTS) for node in _libraries(instructions)):
        return None
    if len(instructions) < 2 and not loops:
        return None  # one loop gains the short way in and out
    return compiler if _is_small(graph, MOST_FLOPS) else None


def is_sure(compiler: Compiler, instructions: Sequence[Instruction]) -> bool:
    """Is each product that a library would make one of tiles in the function? Others are NumPy's there, matrix by
    matrix, which of many or large ones may take longer."""
    products = (node for node in _libraries(instructions) if node.op in _PRODUCTS)
    return all(map(compiler.multiplies, products))


def _libraries(instructions: Sequence[Instruction]) -> list[Node]:
    return [each.node for each in instructions if each.kernel.backend in LIBRARIES]


def _nodes(graph: Graph) -> int:
    inner = (value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph))
    return len(graph.nodes) + sum(map(_nodes, inner))


def _is_small(graph: Graph, most: float) -> bool:
    graphs = [graph]
    if _nodes(graph) > MOST_NODES:
        return False
    while graphs:
        for node in graphs.pop().nodes:
            avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
            if any(not isinstance(aval, Aval) for aval in avals):
                return False
            if node.op == "param":
                continue
            if any(aval.static and aval.size > LARGEST for aval in avals):
                return False
            inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
            graphs += inner
            if not inner and node.op not in ("const", "item") and node.is_static:
                work = node.record.work(tuple(source.aval for source in node.inputs), node.aval, node.attrs)
                if work.flops > most:
                    return False
    return True
