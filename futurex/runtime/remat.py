"""Rematerialisation: values that a plan would keep for long are computed again, so that its peak stays within a limit.

Reverse mode keeps what the forward pass computed. Given the order of a plan's instructions, a value that nobody reads
for long can be dropped in its longest gap, and computed again in front of the next reader, from values that are still
there or are computed again themselves. Which ones is searched for in three ways: one after the other, of those that
wait while the peak passes; those that give most bytes for a second of computing; and of these all but one every so many
bytes, which stay as checkpoints (Chen et al., *Training Deep Nets with Sublinear Memory Cost*, 2016). Every choice is
judged by a walk through the order (Jain et al., *Checkmate*, 2020, call it a schedule); the one that fits and computes
least is taken.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from futurex.ops.comm import COMMUNICATION
from futurex.passes.checkpoints import keep_states
from futurex.passes.dear_tapes import tape_dear_values
from futurex.passes.pipeline import PASSES, optimise
from futurex.passes.rewrite import Maker, is_effect, rewrite
from futurex.passes.stack_tapes import has_tapes, stack_tapes
from futurex.runtime.lower import JOINED, Draft, Kind, seconds
from futurex.runtime.plan import Plan, compile_plan
from futurex.runtime.prediction import beside, slot_bytes
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, build, item

ATTEMPTS = 5
"""Plans that are made: each tells how far the estimate was off."""
_PREFIXES, _SPACINGS = 10, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_LEVELS = (0.8, 0.6, 0.4, 0.2, 0.0)
"""Parts of the peak that are tried as limits where the lowest schedule of all is wanted."""
_TRIED = 12  # values that wait while the peak passes
_REFINED = 40  # values that are tried to be kept after all

Value = tuple[int, int]
"""An instruction and the number of its result."""
Cuts = Mapping[Value, int]
"""The values that are dropped, and behind which place in the order; those of the last place stay to the end."""


def within(graph: Graph, limit: int, *, threads: int, donate: Mapping[int, int], background: bool) -> Plan:
    """A plan of the graph whose predicted peak is at most ``limit`` bytes; its results are the same, bit for bit.

    Loops keep all of their rounds where that fits, else every k-th state. Raises MemoryError, which tells how few bytes
    would do, where none is found.
    """
    compiled = functools.partial(
        compile_plan, threads=threads, donate=donate, optimised=True, background=background, frugal=True
    )
    whole, least = 0, math.inf
    for form in _forms(graph):
        first = compiled(form)
        plan = _fitted(first, limit, compiled)
        if plan.memory.peak <= limit:
            return plan
        whole, least = whole or first.memory.peak, min(least, plan.memory.peak)
    raise MemoryError(
        f"memory_limit={limit}: {graph.name} takes {whole} bytes, and {least} where values are computed again; "
        "arguments are not counted"
    )


def _forms(graph: Graph) -> Iterator[Graph]:
    """The graph, with less and less of its loops on tape: those that compute less come first."""
    yield optimise(graph)
    if not has_tapes(graph):
        return
    yield optimise(graph, passes=[each for each in PASSES if each is not tape_dear_values])
    taped = optimise(graph, passes=[each for each in PASSES if each not in (stack_tapes, tape_dear_values)])
    yield taped
    if (fewer := keep_states(taped)) is not taped:
        yield fewer


def _taken_apart(plan: Plan) -> Graph:
    """The graph of what a plan runs: what was joined for kernels that are not there is in the parts that it lowered."""
    run = {draft.node for draft in plan.low.drafts}
    joined = {node for node in plan.graph.nodes if node.op in JOINED and node not in run}
    parts: dict[Node, tuple[Node, ...]] = {}

    def part(node: Node, number: int, new: Mapping[Node, Node]) -> Node:
        if node not in parts:
            assert node.record.decompose is not None
            made = node.record.decompose(*(new[source] for source in node.inputs), **node.attrs)
            parts[node] = made if isinstance(made, tuple) else (made,)
        return parts[node][number]

    makers: dict[Node, Maker] = {}
    for node in plan.graph.nodes:
        if node in joined and not isinstance(node.aval, tuple):
            makers[node] = functools.partial(part, node, 0)
        elif node.op == "item" and node.inputs[0] in joined:
            makers[node] = functools.partial(part, node.inputs[0], node.attrs["index"])
    return rewrite(plan.graph, lambda node: None, makers) if makers else plan.graph


def _fitted(plan: Plan, limit: int, compiled: Callable[[Graph], Plan]) -> Plan:
    """A plan within the limit, where computing single operations again is enough, else the one that takes least."""
    if plan.memory.peak <= limit:
        return plan
    if (apart := _taken_apart(plan)) is not plan.graph:
        plan = compiled(apart)
    schedule = Schedule(plan)
    rest = plan.memory.peak - schedule.walk({}).peak  # what the walk does not see, or sees twice
    target = limit - rest
    for _ in range(ATTEMPTS):
        cuts = search(schedule, target)
        if cuts is None:
            break
        other = compiled(schedule.rewritten(cuts))
        if other.memory.peak <= limit:
            return other
        target -= max(other.memory.peak - limit, limit // 100)
    least = plan
    for cuts in lowest(schedule):  # the same whatever the limit: what the error says would do will do
        other = compiled(schedule.rewritten(cuts))
        if other.memory.peak <= limit:
            return other
        least = min(least, other, key=lambda each: each.memory.peak)
    return least


@dataclass
class Walk:
    """What a schedule takes: bytes at most, and in which place, and seconds of computing again."""

    peak: int = 0
    place: int = 0
    again: float = 0.0
    alive: list[int] = field(default_factory=list)  # bytes, step by step

    def height(self, limit: int) -> tuple[int, int]:
        """The peak, and how long a run is above the limit: lower is better."""
        return self.peak, sum(count > limit for count in self.alive)


@dataclass
class _Step:
    """One instruction of a walk: versions of values that it reads and makes."""

    place: int
    draft: int
    reads: list[tuple[int, int, int]]
    version: int


class Schedule:
    """The instructions of a plan in their order. A view is no instruction here: it is made again where it is read."""

    def __init__(self, plan: Plan) -> None:
        self.graph, self.low = plan.graph, plan.low
        low = plan.low
        self._by_node = {draft.node: k for k, draft in enumerate(low.drafts) if draft.kernel.view is None}
        self.order = [k for k in plan.order if low.drafts[k].kernel.view is None]
        self.place = {k: place for place, k in enumerate(self.order)}
        self._sources: dict[Node, frozenset[Value]] = {}
        for node in plan.graph.nodes:
            self._sources[node] = self._origin(node)
        self.reads = {k: self._read(low.drafts[k].node) for k in self.order}
        self.returned = frozenset().union(*(self._sources[out] for out in plan.graph.outs))
        self.uses: dict[Value, list[int]] = {}
        for place, k in enumerate(self.order):
            self.uses.update({(k, number): [place] for number in range(len(low.drafts[k].outs))})
            for value in self.reads[k]:
                self.uses[value].append(place)
        self.sizes = {
            (k, number): slot_bytes(low.slots[out])
            for k in self.order for number, out in enumerate(low.drafts[k].outs)
            if low.slots[out].kind in (Kind.BUFFER, Kind.OWN) and out not in plan.layout.donated
        }  # fmt: skip
        never = len(self.order)
        self.ends = {value: max(places) if self._again(value) else never for value, places in self.uses.items()}
        """The last place that reads a value as it was made first; whoever needs it later computes it again."""
        self.seconds = {k: seconds(low.drafts[k].node) for k in self.order}
        self._beside = {k: beside(low, low.drafts[k]) for k in self.order}

    def _origin(self, node: Node) -> frozenset[Value]:
        """The instructions in whose results a value lies, and which of their results."""
        if node in self._by_node:
            return frozenset({(self._by_node[node], 0)})
        if node.op == "item" and node.inputs[0] in self._by_node:
            return frozenset({(self._by_node[node.inputs[0]], node.attrs["index"])})
        return self._read(node)

    def _read(self, node: Node) -> frozenset[Value]:
        return frozenset().union(*(self._sources[source] for source in node.inputs))

    def _again(self, value: Value) -> bool:
        """May a value be computed a second time?"""
        draft = self.low.drafts[value[0]]
        depends = bool(self.reads[value[0]]) or _has_argument(draft)
        return depends and value not in self.returned and _is_pure(draft.node)

    def first(self, value: Value, place: int, cuts: Cuts) -> bool:
        """Is a value read at a place as it was made first?"""
        return place <= cuts.get(value, self.ends[value])

    def handed_on(self, k: int, cuts: Cuts) -> Value | None:
        """A result of an instruction that others read before it would be dropped."""
        values = ((k, number) for number in range(len(self.low.drafts[k].outs)))
        return next((v for v in values if self.sizes.get(v) and cuts.get(v, self.ends[v]) > self.place[k]), None)

    def droppable(self, limit: int, alive: Sequence[int]) -> dict[Value, int]:
        """The values that may be computed again, and the place behind which: where they wait longest, and more than
        ``limit`` bytes are alive."""
        over = list(itertools.accumulate((count > limit for count in alive), initial=0))
        found = {}
        for value, size in self.sizes.items():
            if not size or self.ends[value] == len(self.order):
                continue
            gaps = [(b - a, a) for a, b in itertools.pairwise(self.uses[value]) if over[b] > over[a + 1]]
            if gaps:
                found[value] = max(gaps)[1]
        return found

    def waiting(self, place: int, cuts: Cuts) -> list[tuple[Value, int]]:
        """The values that wait for a reader while ``place`` is passed, and behind which place to drop them: first those
        that give most bytes for a second of computing."""
        found = []
        for value, size in self.sizes.items():
            if not size or self.ends[value] == len(self.order):
                continue
            for before, after in itertools.pairwise(self.uses[value]):
                if before < place <= after and self.first(value, after, cuts):
                    found.append((-size / self.seconds[value[0]], value, before))
        return [(value, before) for _, value, before in sorted(found)]

    def walk(self, cuts: Cuts) -> Walk:
        """Bytes that are alive, place by place, and seconds of computing again."""
        steps = list(self._steps(cuts))
        last: dict[tuple[int, int, int], int] = {}
        for at, step in enumerate(steps):
            for value in step.reads:
                last[value] = at
        change = [0] * (len(steps) + 2)
        found = Walk()
        for at, step in enumerate(steps):
            draft = self.low.drafts[step.draft]
            found.again += self.seconds[step.draft] if step.version else 0.0
            ends = {self.sizes.get(value[:2], 0) for value in step.reads if last[value] == at}
            for number in range(len(draft.outs)):
                value = (step.draft, number, step.version)
                size = self.sizes.get((step.draft, number), 0)
                kept = (step.draft, number) in self.returned
                in_place = draft.kernel.inplace and size in ends and not kept
                change[0 if kept else at + bool(in_place)] += size
                change[len(steps) if kept else max(last.get(value, at), at) + 1] -= size
        count = 0
        for at, step in enumerate(steps):
            count += change[at]
            now = count + self._beside[step.draft]
            found.alive.append(now)
            if now > found.peak:
                found.peak, found.place = now, step.place
        return found

    def _steps(self, cuts: Cuts) -> Iterator[_Step]:
        """The instructions of a run that drops values behind ``cuts``."""
        made: set[int] = set()
        for place, k in enumerate(self.order):
            for missing in self.missing(k, place, cuts, made):
                made.add(missing)
                yield _Step(place, missing, self._versions(missing, place, cuts), 1)
            yield _Step(place, k, self._versions(k, place, cuts), 0)

    def _versions(self, k: int, place: int, cuts: Cuts) -> list[tuple[int, int, int]]:
        return [(*value, int(not self.first(value, place, cuts))) for value in self.reads[k]]

    def missing(self, k: int, place: int, cuts: Cuts, made: set[int]) -> list[int]:
        """What has to be computed again before instruction ``k`` can run at ``place``, in order."""
        found: set[int] = set()
        stack = [k]
        while stack:
            for value in self.reads[stack.pop()]:
                if value[0] not in made and value[0] not in found and not self.first(value, place, cuts):
                    found.add(value[0])
                    stack.append(value[0])
        return sorted(found, key=self.place.__getitem__)

    def rewritten(self, cuts: Cuts) -> Graph:
        """The graph in which values are computed again; each begins after the instruction before its reader."""
        new: dict[tuple[int, int], Node] = {}
        made: set[int] = set()
        before: Node | None = None
        for place, k in enumerate(self.order):
            view = _View(self, cuts, new, place)
            for missing in self.missing(k, place, cuts, made):
                made.add(missing)
                node = self.low.drafts[missing].node
                inputs = [view.of(source) for source in node.inputs]
                new[missing, 1] = rebuilt(node, inputs if before is None else _delayed(inputs, before))
            node = self.low.drafts[k].node
            inputs = [view.of(source) for source in node.inputs]
            if is_effect(node):  # made anew, they stay in order
                new[k, 0] = build(node.record, tuple(inputs), node.attrs, node.aval, node.src)
            else:
                new[k, 0] = rebuilt(node, inputs)
            array = _array(new[k, 0]) if node.op not in COMMUNICATION else None
            before = before if array is None else array
        end = _View(self, {}, new, len(self.order))
        return Graph(self.graph.params, [end.of(out) for out in self.graph.outs], self.graph.name)

    def instruction(self, node: Node) -> int | None:
        """The instruction of a node that is one."""
        return self._by_node.get(node)


class _View:
    """The values of the old graph in the new one, as they are read at a place."""

    def __init__(self, schedule: Schedule, cuts: Cuts, new: Mapping[tuple[int, int], Node], place: int) -> None:
        self._schedule, self._cuts, self._new, self._place = schedule, cuts, new, place

    def of(self, node: Node) -> Node:
        if node.op in ("param", "const"):
            return node
        if (k := self._schedule.instruction(node)) is not None:
            return self._now((k, 0))
        if node.op == "item" and (k := self._schedule.instruction(node.inputs[0])) is not None:
            number = node.attrs["index"]
            return item(self._now((k, number)), number)
        return rebuilt(node, [self.of(source) for source in node.inputs])

    def _now(self, value: Value) -> Node:
        return self._new[value[0], int(not self._schedule.first(value, self._place, self._cuts))]


def _delayed(inputs: list[Node], before: Node) -> list[Node]:
    """Inputs of which one waits for another value: what is computed from them is not what was computed before."""
    place = next(k for k, node in enumerate(inputs) if node.op != "const" and isinstance(node.aval, Aval))
    return [apply("after", node, before) if k == place else node for k, node in enumerate(inputs)]


def _array(node: Node) -> Node | None:
    """A result of an instruction that others can wait for."""
    several = isinstance(node.aval, tuple)
    for number, aval in enumerate(node.aval if several else (node.aval,)):
        if isinstance(aval, Aval) and aval.static and not aval.dtype.hasobject:
            return item(node, number) if several else node
    return None


def _is_pure(node: Node) -> bool:
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    if is_effect(node) or node.op in COMMUNICATION:
        return False
    return not any(not _is_pure(each) for graph in inner for each in graph.nodes)


def _has_argument(draft: Draft) -> bool:
    return any(node.op == "param" and not node.aval.weak for node in draft.node.inputs)


def search(schedule: Schedule, limit: int) -> Cuts | None:
    """The cuts that bring a schedule within ``limit`` bytes with the least computing; None where none is found."""
    fitting: list[tuple[float, int, Cuts]] = []
    for family in [iter((descend(schedule, limit),)), *_families(schedule, limit)]:
        for chosen in family:
            walk = schedule.walk(chosen)
            if walk.peak <= limit:
                fitting.append((walk.again, walk.peak, chosen))
                break
    if not fitting:
        return None
    return _refined(schedule, min(fitting, key=lambda each: each[:2])[2], limit)


def lowest(schedule: Schedule) -> Iterator[Cuts]:
    """Cuts that bring a schedule low, the same whatever the limit: compiling tells which plan takes least memory."""
    for level in _LEVELS:
        yield descend(schedule, int(level * schedule.walk({}).peak))
    yield min(itertools.chain(*_families(schedule, 0)), key=lambda cuts: schedule.walk(cuts).peak, default={})


def descend(schedule: Schedule, limit: int) -> Cuts:
    """Cuts of values that wait while the peak passes, one after the other, until it is within the limit or stays."""
    cuts: dict[Value, int] = {}
    walk = schedule.walk(cuts)
    while walk.peak > limit:
        for value, place in schedule.waiting(walk.place, cuts)[:_TRIED]:
            more = {**cuts, value: place}
            lower = schedule.walk(more)
            if lower.height(limit) < walk.height(limit):
                cuts, walk = more, lower
                break
        else:
            break
    return cuts


def _families(schedule: Schedule, limit: int) -> Iterator[Iterator[Cuts]]:
    """Cuts of values that wait where more than ``limit`` bytes are alive: more and more of them, for each spacing."""
    cuts = schedule.droppable(limit, schedule.walk({}).alive)
    ranked = sorted(cuts, key=lambda value: (-schedule.sizes[value] / schedule.seconds[value[0]], value))
    lengths = sorted({len(ranked) * n // _PREFIXES for n in range(1, _PREFIXES + 1)} - {0})
    prefixes = [{value: cuts[value] for value in ranked[:length]} for length in lengths]
    for spacing in _SPACINGS:
        yield map(functools.partial(_spaced, schedule, spacing), prefixes)


def _spaced(schedule: Schedule, spacing: int, cuts: Cuts) -> Cuts:
    """The cuts with checkpoints between them: behind every ``1 / spacing`` of the bytes a value stays that others are
    computed from before the gap."""
    if spacing == 1:
        return cuts
    most, passed, chosen = sum(schedule.sizes[value] for value in cuts) / spacing, 0, dict(cuts)
    for value in sorted(cuts, key=lambda value: (schedule.place[value[0]], value[1])):
        passed += schedule.sizes[value]
        if passed >= most and (kept := schedule.handed_on(value[0], cuts)) is not None:
            chosen[kept] = len(schedule.order)
            passed = 0
    return chosen


def _refined(schedule: Schedule, cuts: Cuts, limit: int) -> Cuts:
    """Keep the values after all that cost most to compute again, as far as the limit allows."""
    cuts, walk = dict(cuts), schedule.walk(cuts)
    for value in sorted(cuts, key=lambda value: (-schedule.seconds[value[0]], value))[:_REFINED]:
        fewer = {other: place for other, place in cuts.items() if other != value}
        again = schedule.walk(fewer)
        if again.peak <= limit and again.again <= walk.again:
            cuts, walk = fewer, again
    return cuts
