"""Plans: a graph compiled once into instructions over slots with planned memory, and run many times."""

from __future__ import annotations

import functools
import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from futurex.kernels.backends import default_backends
from futurex.kernels.compiling import behind
from futurex.kernels.contest import Contest
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Backend, Kernel, kernel_for, threads_of
from futurex.passes.dead import may_raise
from futurex.passes.pipeline import optimise
from futurex.runtime import trace
from futurex.runtime.counters import HOT, RARELY, Counters, Grain, Row, inside
from futurex.runtime.habit import LONGEST as LONGEST_WAIT
from futurex.runtime.habit import Habit
from futurex.runtime.inline import Communicator, Conversation, note, replay
from futurex.runtime.instance import Home, Instance, Values
from futurex.runtime.lower import COMMUNICATOR, Kind, Lowering, Slot
from futurex.runtime.memory import Layout, Memory, Planner
from futurex.runtime.prediction import predicted
from futurex.runtime.results import Delivery
from futurex.runtime.scheduler import Scheduler, Turns, invert
from futurex.runtime.straight import LONGEST, Straight
from futurex.runtime.tasks import same_bits, worth_sharing, worth_tasks
from futurex.runtime.whole import Whole, compiler_for, is_sure
from futurex.tree.aval import Aval
from futurex.tree.dims import nominal
from futurex.tree.graph import Graph
from futurex.tree.node import Node


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a plan.

    ``ins`` and ``outs`` are slots, ``after`` the instructions that must have finished, ``cost`` an estimate in seconds
    and ``priority`` the estimated seconds from its start to the end of the plan.
    """

    index: int
    node: Node
    kernel: Kernel
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    after: tuple[int, ...]
    cost: float
    priority: float
    communicates: bool


def compile_plan(
    graph: Graph,
    *,
    threads: int = 1,
    donate: Mapping[int, int] | None = None,
    backends: Sequence[Backend] | None = None,
    optimised: bool = False,
    background: bool = False,
    apart: bool = False,
    frugal: bool = False,
    intact: bool = False,
) -> Plan:
    """Compile a graph for this machine.

    ``threads`` is what each kernel may use. ``donate`` maps outputs to inputs of the same shape and dtype: such a
    result is written into the caller's array, which is the result. ``optimised`` says that the passes have run on
    ``graph`` already. ``background``: kernels whose code is not on disk are compiled behind the first runs, which NumPy
    computes; without it the plan is complete when this returns. ``apart``: no memory is used twice, so that independent
    instructions can run beside each other. ``frugal``: no run takes another form, which needs more memory than
    predicted. ``intact``: where an instruction raises, donated arguments are as they were. Raises TypeError for a graph
    that is not closed, ValueError for a donation that does not fit.

    >>> import numpy as np
    >>> from futurex.tree import Aval, Graph, param
    >>> x = param(Aval((2,), np.dtype("float64")), "x")
    >>> compile_plan(Graph([x], [x * 2 + 1])).run([np.array([1.0, 2.0])])
    [array([3., 5.])]
    """
    if backends is None:
        backends = default_backends()
    if not optimised:
        graph = optimise(graph)

    def compile_sub(inner: Graph, donate: Mapping[int, int] | None = None) -> Plan:
        return compile_plan(
            inner, threads=threads, donate=donate, backends=backends, optimised=True, background=background,
            frugal=frugal,
        )  # fmt: skip

    with behind(background):
        low = Lowering(graph, threads, backends, compile_sub)
    worth = not donate and not frugal and worth_tasks(low, threads)

    def for_tasks() -> Plan:
        return compile_plan(graph, backends=backends, optimised=True, background=background, apart=True)

    planner = Planner(low, donate or {}, apart=apart, intact=intact)
    planner.place_donated()
    order = _order(low)
    layout = planner.place(order)
    plan = Plan(low, layout, order, planner.donate, for_tasks if worth else None, background=background, frugal=frugal)
    plan.prepare(wait=not background)
    return plan


def as_numpy(graph: Graph, donate: Mapping[int, int] | None = None) -> Plan:
    """A plan whose every operation is NumPy's, here, in the order and from the lines of the graph: where NumPy's
    floating-point errors raise (``np.errstate``), each is raised by the operation that it happens in."""
    return compile_plan(graph, donate=donate, backends=(NumpyBackend(),), optimised=True, frugal=True)


class Plan:
    """A compiled graph. Any number of threads may run it at once; each run has its own memory."""

    def __init__(
        self, low: Lowering, layout: Layout, order: Sequence[int], donate: Mapping[int, int],
        for_tasks: Callable[[], Plan] | None = None, *, background: bool, frugal: bool = False,
    ) -> None:  # fmt: skip
        self.graph = low.graph
        self.order = tuple(order)
        self.rank = [0] * len(order)
        for place, index in enumerate(order):
            self.rank[index] = place
        self.dependents = invert([tuple(draft.after) for draft in low.drafts])
        self.instructions = _instructions(low, self.order, self.dependents)
        self.collectives = tuple(_collectives(low))
        self.cost = sum(each.cost for each in self.instructions)
        self.critical = max((each.priority for each in self.instructions), default=0.0)
        self.threads = max((threads_of(each.kernel, low.threads) for each in self.instructions), default=1)
        self._for_tasks = for_tasks
        self._tasks: Plan | None = None
        self.contest: Contest | None = None  # of this plan and its tasks, where both give the same bits
        costs = [each.cost for each in self.instructions]
        self._shared = self.threads == 1 and not self.collectives and worth_sharing(costs, self.critical)
        self.habit = Habit()
        self.grain = Grain([*(each.cost for each in self.instructions), self.cost])
        self.low, self.layout = low, layout
        self._own_memory()
        self.delivery = Delivery(low, layout, donate)
        self.undivided = for_tasks is None and not self._shared  # no workers ever share a run
        self._instances: deque[Instance] = deque()
        self._counters: list[Counters] = []
        self._orphans: deque[Counters] = deque()
        self._may_be_straight = not self.collectives and len(order) <= LONGEST
        self._straight: Straight | None = None
        self._coded = False  # has all code been there before a run?
        self.whole: Whole | None = None
        self.counted = 0  # of its runs, by who wants to know how many there were meanwhile
        whole = self._may_be_straight and not frugal
        if whole and (compiler := compiler_for(low.graph, self.instructions, low.backends)) is not None:
            several = self.threads > 1
            self.whole = Whole(
                low.graph, compiler, self._replayed, self.delivery, self.grain, behind=background, several=several,
                sure=is_sure(compiler, self.instructions),
            )  # fmt: skip

    def as_tasks(self) -> Plan | None:
        """The plan to run on several workers, if that is worth it: of the same graph, for kernels of one thread."""
        if self.whole is not None and self.whole.open:
            return None
        if self._for_tasks is not None:
            self._tasks, self._for_tasks = self._for_tasks(), None
        tasks = self._tasks or (self if self._shared else None)
        if tasks is not None and self.contest is None and (tasks is self or same_bits(self, tasks)):
            self.contest = Contest(1)
        return tasks

    @functools.cached_property
    def planned(self) -> Memory:
        """The memory of a run that replays instructions, planned before it happens."""
        return predicted(self.low, self.layout, self.order, [index for index, copied in self.delivery.outs if copied])

    @property
    def memory(self) -> Memory:
        """The memory of a run, with what a compiled function keeps that the plan may become, as far as it is made."""
        return replace(self.planned, kernels=self.planned.kernels + self.compiled)

    @property
    def compiled(self) -> int:
        """Bytes that a function keeps which the plan was compiled to, or those that plans inside were compiled to."""
        if self.whole is not None and self.whole.own:
            return self.whole.own
        return sum(plan.compiled for each in self.instructions for plan in each.kernel.plans)

    def complete(self) -> None:
        """Have everything compiled that a run may need when this returns."""
        self.prepare(wait=True)
        if self.whole is not None and self.whole.open:
            self.whole.make()
        if self.whole is None or not self.whole.own:
            for inner in (plan for each in self.instructions for plan in each.kernel.plans):
                inner.complete()

    def decide(self) -> None:
        """Have runs go one way from the first one on, so that no bit of them depends on what the clock says."""
        if self.whole is not None:
            self.whole.decide()
        for inner in (plan for each in self.instructions for plan in each.kernel.plans):
            inner.decide()

    @property
    def waited_for(self) -> bool:
        """Do its callers wait for its results anyway, and is a hand-over a share of its time that matters?"""
        return self.habit.waits and self.grain.seconds < LONGEST_WAIT

    def _own_memory(self) -> None:
        """Which instructions read arrays that kernels make, and after which one in order each can go."""
        self.reads: list[tuple[int, ...]] = [()] * len(self.order)
        self.readers: dict[int, int] = {}
        self.drops: dict[int, tuple[int, ...]] = {}
        for slot in self.low.slots:
            if slot.kind is not Kind.OWN or slot.index in self.low.outs or not slot.readers:
                continue
            readers = set(slot.readers)
            self.readers[slot.index] = len(readers)
            for reader in readers:
                self.reads[reader] += (slot.index,)
            last = max(readers, key=self.rank.__getitem__)
            self.drops[last] = (*self.drops.get(last, ()), slot.index)

    def prepare(self, *, wait: bool) -> None:
        """Begin to compile the kernels that need it; with ``wait``, be done when this returns."""
        for place in self.order:
            each = self.instructions[place]
            if each.kernel.late is not None:
                shift = len(each.ins) - len(each.node.inputs)
                written = [self._memory_of(out) for out in each.outs]
                read = [self._memory_of(source) for source in each.ins[shift:]]
                sharing = [written.index(memory) if memory in written else -1 for memory in read]
                each.kernel.late.prepare(sharing, wait=wait)

    def _memory_of(self, slot: int) -> int:
        root = self.low.slots[slot].root
        param = self.layout.donated.get(root)
        return root if param is None else self.low.params[param]

    @property
    def ready(self) -> bool:
        """Is no kernel left that NumPy computes until it is compiled?"""
        return (self.whole is not None and self.whole.leads) or self._has_code

    @property
    def _has_code(self) -> bool:
        return all(each.kernel.late is None or each.kernel.late.ready for each in self.instructions)

    @property
    def interpreted(self) -> int:
        """How often NumPy computed an instruction whose kernel was not compiled yet."""
        return sum(each.kernel.late.interpreted for each in self.instructions if each.kernel.late is not None)

    def run(
        self, args: Sequence[Any], communicator: Communicator | None = None, *, outs: Sequence[Any] | None = None,
        checked: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Run in the calling thread and return the outputs, in arrays that belong to the caller.

        An output that was donated is the argument itself. A result of shape () may be an array of shape () or a NumPy
        scalar. ``outs`` are arrays that may be overwritten with the results. ``checked`` arguments are known to have
        the types, shapes and dtypes of the graph's, and donated ones to lie in C order, apart from all others. Raises
        TypeError for arguments that do not fit, what a kernel raises with a note that names the user's line, and
        RunTimeout if other localities do not answer. After an error donated arguments hold no valid values.
        """
        if self.whole is not None:
            return self.whole.run(args, communicator, outs, checked)
        return self._replayed(args, communicator, outs, checked)

    def _replayed(
        self, args: Sequence[Any], communicator: Communicator | None, outs: Sequence[Any] | None, checked: bool
    ) -> list[Any]:
        """A run instruction by instruction."""
        if self._straight is not None:
            taken = args if checked else self.delivery.check(args)
            instance = self._pooled(None) or self._instance()
            counters = instance.counters
            if instance.program is not None and (counters.runs + 1) % RARELY and trace.active() is None:
                counters.runs += 1
                try:
                    results: list[Any] = instance.program(taken, communicator, outs, checked)
                except BaseException as error:
                    self._failed(self._straight, instance, error)
                    raise
                self._give(instance)
                in_place = checked and self.delivery.in_place
                return results if in_place else self.delivery.hand_back(results, args)
            self._give(instance)
        coded = self._coded = self._coded or self._has_code
        instance, values = self.begin(args, communicator, outs)
        start = time.perf_counter()
        try:
            if self.collectives:
                Conversation(self, instance, values).run()
            else:
                replay(self, instance, values)
        except BaseException:
            self.abandon(instance)
            raise
        if coded:  # what NumPy takes meanwhile says nothing of later runs
            self.grain.measured(-1, time.perf_counter() - start)
        if self._may_be_straight and instance.program is None and instance.counters.runs >= HOT:
            self._straight = self._straight or Straight(self)
            instance.program = self._straight.bind(instance)
        return self.end(instance, values, args)

    def _failed(self, code: Straight, instance: Instance, error: BaseException) -> None:
        self.abandon(instance)
        if isinstance(error, Exception) and (found := code.failed(error)) is not None:
            note(error, self.instructions[found[0]], found[1])

    def begin(
        self, args: Sequence[Any], communicator: Communicator | None, outs: Sequence[Any] | None = None
    ) -> tuple[Instance, Values]:
        """Memory and slots for one run, to be given back to :meth:`end` or :meth:`abandon`."""
        if self.collectives and communicator is None:
            op = self.instructions[self.collectives[0]].node.op
            raise RuntimeError(
                f"{self.graph.name} communicates ({op}) and must be run with a communicator, on a cluster"
            )
        taken = self.delivery.check(args)
        home = communicator.memory if self.collectives and communicator is not None else None
        instance = self._pooled(home) or self._instance(home)
        values = instance.template.copy()
        values[COMMUNICATOR] = communicator
        values[1 : len(taken) + 1] = taken
        self.delivery.prepare(values, taken, outs)
        for make in instance.prologue:
            make(values)
        return instance, values

    def end(self, instance: Instance, values: Values, args: Sequence[Any]) -> list[Any]:
        """The outputs of a run that went well; its memory may be used again."""
        results = self.delivery.deliver(values, args)
        self._give(instance)
        return results

    def abandon(self, instance: Instance) -> None:
        """Give up a run; its memory is not used again, because a collective may still write to it."""
        if not self.collectives:
            instance.give()
        self._orphans.append(instance.counters)

    def _give(self, instance: Instance) -> None:
        instance.give()
        self._instances.append(instance)

    def _pooled(self, home: Home | None) -> Instance | None:
        """Memory of an earlier run, if it lies where this one's must and nobody else works there."""
        elsewhere: list[Instance] = []
        try:
            while True:
                instance = self._instances.pop()
                if instance.home is not home or (instance.lent is not None and instance.lent.left):
                    self._orphans.append(instance.counters)
                elif instance.take():
                    return instance
                else:
                    elsewhere.append(instance)
        except IndexError:
            return None
        finally:
            self._instances.extend(elsewhere)

    def _instance(self, home: Home | None = None) -> Instance:
        kernels = [each.kernel for each in self.instructions]
        try:
            counters = self._orphans.pop()
        except IndexError:
            counters = Counters(len(kernels))
            self._counters.append(counters)
            if len(self._counters) > 1:
                kernels = [self._another(each) if each.kernel.exclusive else each.kernel for each in self.instructions]
        return Instance(self.low, self.layout, kernels, counters, home, alone=not self.collectives)

    def _another(self, instruction: Instruction) -> Kernel:
        return kernel_for(instruction.node, self.low.backends, self.low.threads)

    @property
    def runs(self) -> int:
        """How often the plan ran, one way or the other."""
        return sum(each.runs for each in self._counters) + (self.whole.runs if self.whole is not None else 0)

    def _measured(self, index: int) -> tuple[int, int]:
        """How often an instruction ran, and for how many nanoseconds, estimated from the runs that were timed."""
        runs = sum(each.runs for each in self._counters)
        timed = sum(each.timed for each in self._counters)
        return runs, round(sum(each.ns[index] for each in self._counters) * runs / max(1, timed))

    def csv(self) -> str:
        """The tree as it runs, with how often each node ran and for how long, for Traveler; ``graph.newick()`` of the
        plan is the tree with the same names."""
        measured: dict[Node, tuple[int, int]] = {}
        for plan in [self, *([self._tasks] if self._tasks is not None else [])]:
            for index, each in enumerate(plan.instructions):
                now, before = plan._measured(index), measured.get(each.node, (0, 0))
                measured[each.node] = before[0] + now[0], before[1] + now[1]
        return self.graph.csv(measured)

    def profile(self) -> list[Row]:
        """One row per instruction, in the order in which they run."""
        rows = []
        for index in self.order:
            each = self.instructions[index]
            runs, ns = self._measured(index)
            moved = each.node.record.work(
                tuple(s.aval for s in each.node.inputs), each.node.aval, each.node.attrs
            ).bytes
            spawned = sum(counters.spawned[index] for counters in self._counters)
            rows.append(
                Row(
                    each.node.op, str(each.node.src or ""), runs, ns, int(moved),
                    each.kernel.backend, runs - spawned, each.kernel.late.interpreted if each.kernel.late else 0,
                    inside(each.node),
                )
            )  # fmt: skip
        if self.whole is not None and self.whole.runs:
            count = self.whole.runs
            rows.append(Row("graph", "", count, round(self.whole.seconds[1] * 1e9 * count), 0, "loops", count))
        if self._tasks is not None:
            rows = [*(row for row in rows if row.count), *self._tasks.profile()]
        return rows


def _order(low: Lowering) -> list[int]:
    """The order of the inline executor, by the scheduler that every executor uses.

    What feeds a collective comes first; then what gives back at least as much memory as it takes; then the order of the
    graph. A collective ends when nothing else is left to do: whatever overlaps with it is put beside it.
    """
    drafts, rank = low.drafts, _rank(low)
    scheduler, turns = Scheduler([tuple(draft.after) for draft in drafts], rank), Turns(_collectives(low))
    ready: list[tuple[int, int]] = []
    in_flight: deque[int] = deque()
    order: list[int] = []

    def admit(indices: list[int]) -> None:
        for index in indices:
            for each in turns.arrive(index) if drafts[index].communicates else [index]:
                heapq.heappush(ready, (rank[each], each))

    admit(scheduler.start())
    while ready or in_flight:
        if ready:
            index = heapq.heappop(ready)[1]
            order.append(index)
            if drafts[index].communicates:
                in_flight.append(index)
                continue
        else:
            index = in_flight.popleft()
        admit(scheduler.finished(index))
    if len(order) != len(drafts):
        raise RuntimeError(f"{low.graph.name}: {len(drafts) - len(order)} instructions wait for each other")
    return order if any(draft.communicates for draft in drafts) else _late(low, order)


def _late(low: Lowering, order: Sequence[int]) -> list[int]:
    """The order with instructions right before whoever needs them first, where all that they read is there then anyway:
    memory filled with zeros at the start waits for those who write to it at the end."""
    dependents = invert([tuple(draft.after) for draft in low.drafts])
    always = {low.slots[index].root for index in low.outs}
    always |= {slot.index for slot in low.slots if slot.kind in (Kind.PARAM, Kind.CONST, Kind.SCALAR)}
    place = {index: (at, 1) for at, index in enumerate(order)}
    last: dict[int, tuple[int, int]] = {}  # where memory is read last, of the readers that have their places
    for count, index in enumerate(reversed(order)):
        draft = low.drafts[index]
        read = {low.slots[source].root for source in draft.ins} - always
        first = min((place[each] for each in dependents[index]), default=None)
        if first is not None and not draft.node.record.effect and not may_raise(draft.node):
            later = first[0], -count
            if all(last.get(root, (-1, 1)) > later for root in read):
                place[index] = later
        last.update({root: max(last.get(root, place[index]), place[index]) for root in read})
    return sorted(order, key=place.__getitem__)


def _collectives(low: Lowering) -> list[int]:
    """The instructions that communicate, in the order in which every locality starts them."""
    indices = [index for index, draft in enumerate(low.drafts) if draft.communicates]
    return sorted(indices, key=lambda index: int(low.drafts[index].node.attrs["tag"]))


def _rank(low: Lowering) -> list[int]:
    feeding = {source for draft in low.drafts if draft.communicates for source in draft.after}
    keys = [
        (0 if draft.communicates or k in feeding else 1 if _net_bytes(low, k) <= 0 else 2, k)
        for k, draft in enumerate(low.drafts)
    ]
    rank = [0] * len(keys)
    for place, (_, k) in enumerate(sorted(keys)):
        rank[k] = place
    return rank


def _net_bytes(low: Lowering, index: int) -> float:
    """Bytes an instruction makes less its share in those it reads last."""
    draft = low.drafts[index]
    made = sum(_bytes(low.slots[out]) for out in draft.outs)
    read = [low.slots[source] for source in dict.fromkeys(draft.ins)]
    return made - sum(_bytes(slot) / len(set(slot.readers)) for slot in read if slot.writer is not None)


def _bytes(slot: Slot) -> float:
    """Of an array of unknown size some nominal number."""
    return float(Aval(nominal(slot.aval.shape), slot.aval.dtype).nbytes)


def _instructions(low: Lowering, order: Sequence[int], dependents: Sequence[Sequence[int]]) -> list[Instruction]:
    priority = [0.0] * len(order)
    for index in reversed(order):
        rest = max((priority[each] for each in dependents[index]), default=0.0)
        priority[index] = low.drafts[index].cost + rest
    return [
        Instruction(
            k, draft.node, draft.kernel, draft.ins, draft.outs, tuple(sorted(draft.after)), draft.cost, priority[k],
            draft.communicates,
        )
        for k, draft in enumerate(low.drafts)
    ]  # fmt: skip
