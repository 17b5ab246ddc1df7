"""One trace of a function for one kind of arguments: what it computes, what it depends on, what it could not do."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.frontend import (  # noqa: F401
    builtin_calls,
    calls,
    heaps,
    iteration,
    library_calls,
    random_calls,
    tables,
    tuple_lists,
    vectorized,
)
from futurex.frontend.argument_lists import changed_lists, placed
from futurex.frontend.array import Array
from futurex.frontend.cells import Cell
from futurex.frontend.donation import belongs, matched
from futurex.frontend.entering import enter_arguments, is_traced_leaf
from futurex.frontend.errors import Escape, Retrace, unstaged
from futurex.frontend.fragments import Fragments
from futurex.frontend.gathered import gathered
from futurex.frontend.generators import ENTROPY
from futurex.frontend.held import Guard, Held, Holdings, can_be_input
from futurex.frontend.kept import kept_apart
from futurex.frontend.keys import Key, alike, argument_paths, foreign_argument, leaf_key
from futurex.frontend.lying import Lying
from futurex.frontend.masked_arrays import taken_apart
from futurex.frontend.nest_tests import nest_test
from futurex.frontend.objects import restore
from futurex.frontend.outputs import Output, Outputs, shared_cells, things
from futurex.frontend.outside import fingerprint
from futurex.frontend.patience import Deadline
from futurex.frontend.reads import NEVER, Alike, unchanged
from futurex.frontend.replay import Change, Refill, changed_leaves, changed_objects, changes_of
from futurex.frontend.sites import Collected
from futurex.frontend.texts import without_values
from futurex.frontend.trace import Capture, Trace, start
from futurex.frontend.tracer import Tracer
from futurex.frontend.which import Left, Numbering
from futurex.ops.plainly import plainly
from futurex.ops.streams import GENERATORS, STATE
from futurex.runtime.placement import AnyPlan, compiled
from futurex.runtime.plan import Plan, as_numpy
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Symbol, UnknownDimension, new_symbol, renamed
from futurex.tree.graph import Graph, same_lines
from futurex.tree.node import Node, made_here
from futurex.tree.pytree import Structure, flatten, placed_containers, unflatten
from futurex.tree.source import raised_at, without_frames

LONGEST_REST = 1000  # calls as plain NumPy, after runs that failed
LARGE = 12  # values in the test whether a nest holds what it held
_ENDS = frozenset({"finishes", "context", "GeneratorExit", "BaseException"})
"""Names in rewritten generators that do something when they are left: ``finally``, ``with``, and handlers of that."""
UNLEARNED = 8  # calls that were looked at and taught nothing, behind which none is looked at any more


@dataclass
class Variant:
    """One trace of a function: what it computes for arguments of one kind."""

    leaves: tuple[Key, ...] = ()  # what of each argument leaf the trace depends on
    graph: Graph | None = None
    escape: Escape | None = None
    error: BaseException | None = None
    outputs: list[Output] = field(default_factory=list)
    structure: Structure = field(default_factory=lambda: Structure(None))
    shared: list[tuple[list[Output], Structure]] = field(default_factory=list)  # nests in several places of the result
    guards: list[Guard] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)  # (leaf or ~capture, output of the plan)
    notes: list[str] = field(default_factory=list)
    generators: list[int] = field(default_factory=list)  # inputs that are random generators
    changes: list[Change | Refill] = field(default_factory=list)  # to the caller's Python objects
    numbers: set[Any] = field(default_factory=set)  # from outside that are inputs, as guards know them
    constant: dict[Any, Held] = field(default_factory=dict)  # numbers that are not
    fixed: bool = False  # only with constants could it be staged
    held: Holdings = field(default_factory=Holdings)  # what things from outside hold
    chooses: bool = False  # which array a result is, or how long a list, the run says
    apart: bool = False  # holds for arguments whose lists, dicts and dataclasses are in one place each
    waits: bool = False  # for its effects: prints come before what the caller prints next, errors are not lost
    prints: bool = False
    quiet: dict[str, Any] = field(default_factory=dict)  # floating-point errors that a run says nothing of
    opened: dict[int, Aval] = field(default_factory=dict)  # leaves whose extents or values are symbols
    donated: dict[int, int] = field(default_factory=dict)  # outputs of the plan that take over the memory of an input
    gives: dict[int, str] = field(default_factory=dict)  # those inputs, and what they are called
    lying: Lying = field(default_factory=Lying)  # how the plan takes large arguments
    plainly: Any = None  # the function as plain calls call it
    throughout: Any = None  # as those call it in which what is futurized is plain as well
    nests: bool = True  # it may call what is futurized itself
    has_log: bool = False  # it holds fragments, which write down in its last input what they did
    keepalive: list[Any] = field(default_factory=list)
    device: str = "cpu"
    limit: int | None = None  # bytes that a run may take
    served: bool = False  # another call than the one that it was made for
    age: int = 0  # of its function, in traces and calls, when it was made
    calls: int = 0  # that were found the long way
    lane: Any = None  # the short way, once there is one
    settled: bool = False  # calls of this kind are plain NumPy, whatever they depend on
    failed: int = 0  # runs that were made again as plain NumPy, one after the other
    rest: int = 0  # calls that go as plain NumPy before the next run
    unlearned: int = 0  # calls as plain NumPy that showed nothing new of opaque functions
    meanwhile: Any = None  # how calls go while another thread makes the plan
    cost: float = 0.0  # seconds that the trace and its plan took
    _plan: AnyPlan | None = None

    @property
    def plan(self) -> AnyPlan:
        meanwhile = self.meanwhile
        if self._plan is None and meanwhile is not None:
            meanwhile.wait()
        return self._plan if self._plan is not None else self.make()

    def make(self) -> AnyPlan:
        """Make the plan, here and now."""
        assert self.graph is not None
        graph, written = self.lying.graph(self.graph), self.lying.written
        how: dict[str, Any] = {"resident": not self.waits, "limit": self.limit, "intact": bool(written)}
        began = time.perf_counter()
        self._plan = compiled(graph, self.device, donate={**self.donated, **written}, **how)
        self.cost += (time.perf_counter() - began) * (self.meanwhile is None)  # others wait for it
        return self._plan

    def new_runs(self) -> int:
        """Runs of the plan since this was asked, of it or of another trace that shares the plan."""
        plan = self._plan
        if plan is None:
            return 0
        before, plan.counted = plan.counted, plan.runs
        return plan.counted - before

    @functools.cached_property
    def checked(self) -> Plan:
        """A plan for runs in which floating-point errors raise."""
        assert self.graph is not None
        return as_numpy(self.lying.graph(self.graph))

    @property
    def given_up(self) -> bool:
        """Do calls run as plain NumPy, whatever else might be learned of them?"""
        return self.escape is not None and (not self.escape.unseen or self.unlearned >= UNLEARNED)

    def error_of(self, results: Iterable[Any]) -> BaseException | None:
        """What a run that is waited for raised.

        After several that had to be made again as plain NumPy the next calls go that way at once, ever more of them.
        """
        error = next((error for result in results if (error := result.exception()) is not None), None)
        self.failed = self.failed + 1 if error is not None and not (self.prints or self.has_log) else 0
        self.rest = min(1 << self.failed, LONGEST_REST) if self.failed > 1 else 0
        return error

    def rests(self) -> bool:
        """Does a call go as plain NumPy because the last runs failed?"""
        self.rest -= self.rest > 0
        return self.rest > 0

    def share(self, others: Iterable[Variant]) -> None:
        """Take the plan, and with it the memory, of another trace of the function that computes the same."""
        for other in others:
            if (
                other._plan is not None
                and self.graph is not None
                and other.graph is not None
                and (self.device, self.donated, self.waits) == (other.device, other.donated, other.waits)
                and self.lying == other.lying
                and same_lines(self.graph, other.graph)
            ):
                self._plan = other._plan
                return

    def donate(self, paths: Sequence[str], parameters: Sequence[str]) -> None:
        """Let results take over the memory of arguments in these parameters; not where a call waits for its effects.

        It then may have to run again, as plain NumPy.
        """
        if self.graph is None or self.waits or not parameters:
            return
        given = [k for k, place in enumerate(self.inputs) if belongs(paths[place], parameters)]
        self.donated = matched(self.graph, given)
        self.gives = {k: paths[self.inputs[k]] for k in self.donated.values()}

    def quickly_valid(self) -> Callable[[], bool]:
        """:meth:`valid` for many calls: it asks whether everything is the same object, or an input of the same kind,
        where that is enough."""
        guards: list[tuple[Any, Any, Any]] = []
        for guard in self.guards:
            test = None if guard.fixed else _test(guard)
            guards.append((guard.read, guard.value if guard.fixed else NEVER, test))
        inputs = [
            (each.found(), NEVER if each.kind else each.array, alike(each.array, each.kind)) for each in self.captures
        ]
        return unchanged([*guards, *inputs], self.valid)

    def wrote(self, error: BaseException | None, inputs: Sequence[Any], leaves: Sequence[Any]) -> bool:
        """May a run that failed have written into the leaves of its call, from which it cannot be made again then? Of
        what may fail for what it is given, nothing does later; want of memory comes at any time."""
        if not isinstance(error, MemoryError):
            return False
        written = self.lying.written.values()
        return any(np.may_share_memory(inputs[k], leaves[self.inputs[k]]) for k in written)

    def valid(self) -> bool:
        """Is everything that the trace took from outside still as it was?"""
        if self.settled or not (self.guards or self.captures):
            return True
        try:
            for guard in self.guards:  # asked at every call: most guards hold by identity
                if not (guard.fixed and guard.read() is guard.value) and not guard.holds(fingerprint):
                    return False
            return all(map(self._same_capture, self.captures))
        except (Exception, Escape):
            return False

    def changed(self) -> list[str]:
        """What the trace took from outside that is no longer as it was."""
        found = []
        for guard in self.guards:
            try:
                holds = guard.holds(fingerprint)
            except (Exception, Escape):
                holds = False
            found += [] if holds else [guard.name]
        return list(dict.fromkeys(found))

    @staticmethod
    def _same_capture(capture: Capture) -> bool:
        now, array = capture.found()(), capture.array
        if type(now) is not type(array) or (now is array and capture.kind is None):
            return now is array
        return can_be_input(now) if type(array) is int else leaf_key(now) == (capture.kind or leaf_key(array))

    def captured(self) -> list[Any]:
        """The arrays from outside as they are now."""
        return [capture.read() if capture.read is not None else capture.array for capture in self.captures]


def _test(guard: Guard) -> Alike:
    """The test for many calls whether a value is what it was. Of large nests it asks first whether they hold the very
    same things: comparing values takes longer."""
    text = nest_test(guard.expected)
    if guard.entries is None and text is None:
        return "{0}({now})", (functools.partial(_allows, guard),)
    if text is not None and (guard.entries is None or len(text[1]) < LARGE):
        return text
    same = guard.holds_the_same
    return ("{0}({now})", (same,)) if text is None else (f"{{{len(text[1])}}}({{now}}) or {text[0]}", (*text[1], same))


def _allows(guard: Guard, now: Any) -> bool:
    try:
        return guard.allows(now, fingerprint)
    except Escape:
        return False


def trace_call(
    function: Any, leaves: list[Any], structure: Structure, fragments: Fragments | None = None,
    opened: Mapping[int, Aval] | None = None, before: Sequence[Variant] = (), deadline: Deadline | None = None,
) -> Variant:  # fmt: skip
    """Trace one call; what cannot be staged is kept as the variant's escape or error, not raised. Raises Late behind
    the ``deadline``.

    Calls that cannot be staged but can be ``fragments`` become that. ``opened``: abstract values with symbols for some
    of the leaves. ``before``: earlier traces of such calls.
    """
    numbers = changing_numbers(before)
    learned = Learned(numbers=numbers, deadline=deadline or Deadline())
    while True:
        variant, trace = _traced(function, leaves, structure, fragments, opened or {}, learned)
        variant.numbers = learned.numbers
        if variant.escape is not None:
            if learned.more(trace, variant.escape):
                continue
            if not opened and fragments is not None and fragments.admit(variant.escape):
                continue
            variant.escape.foreign = foreign_argument(function, leaves, structure)
        if numbers and variant.graph is None:
            variant = trace_call(function, leaves, structure, fragments, opened, deadline=learned.deadline)
            variant.fixed = True
        return variant


def changing_numbers(before: Sequence[Variant]) -> set[Any]:
    """The numbers from outside that are not what they were when calls of a kind were last traced: another trace takes
    them as inputs. Ints, which say how often and how much, only where they had changed before."""
    last = before[-1] if before else Variant(fixed=True)
    if last.fixed:
        return set()
    found = set(last.numbers)
    for key, held in last.constant.items():
        try:
            now = held.read()
        except Exception:
            continue
        changed = can_be_input(now) and type(now) is type(held.value) and repr(now) != repr(held.value)
        earlier = {each.constant[key].value for each in before if key in each.constant}
        if changed and (not isinstance(now, int | np.integer) or len(earlier) > 1):
            found.add(key)
    return found


@dataclass
class Learned:
    """What earlier traces of a call found out: lists that grow by data, None if they are not to be traced, functions
    that call themselves until data says that it is enough, things about loops, numbers in the caller's objects that
    change, that arrays are to be numbered, that names are to have arrays of their own, and that Python's numbers are to
    be told from NumPy's, None if that was in vain."""

    stacks: dict[Any, Any] | None = field(default_factory=dict)
    recursive: set[Any] = field(default_factory=set)
    loops: set[Any] = field(default_factory=set)
    rounds: dict[Any, Any] = field(default_factory=dict)
    numbers: set[Any] = field(default_factory=set)
    counts: bool = False
    apart: bool = False
    exact: bool | None = False
    begun: int = field(default_factory=made_here)
    deadline: Deadline = field(default_factory=Deadline)
    _known: int = 0

    def trace(self, function: Any, fragments: Fragments | None = None) -> Trace:
        """A new trace that knows it."""
        self._known = len(self.recursive) + len(self.loops)
        trace = Trace(getattr(function, "__name__", type(function).__name__), fragments, self.deadline)
        trace.stacks, trace.may_begin_again = self.stacks or {}, self.stacks is not None
        trace.recursive, trace.loops, trace.numbers = self.recursive, self.loops, self.numbers
        trace.rounds, trace.keeps_apart = self.rounds, self.apart
        trace.numbering = Numbering() if self.counts else None
        trace.begun = self.begun
        trace.exact, trace.may_tell = self.exact is True, self.exact is False
        trace.in_vain = self.exact is None
        return trace

    def more(self, trace: Trace, escape: Escape) -> bool:
        """Did a trace that ended early find out something, so that another one may get further?"""
        if escape.counts:
            self.counts = True
            return True
        if trace.may_tell and trace.inexact:
            self.exact = True
            return True
        if self._found(trace, escape):
            return True
        if trace.shares and not self.apart:
            self.apart = True
            return True
        self.exact, before = None if self.exact else self.exact, self.exact
        return before is not self.exact

    def _found(self, trace: Trace, escape: Escape) -> bool:
        if len(self.recursive) + len(self.loops) > self._known or escape.numbers - self.numbers:
            self.numbers = self.numbers | escape.numbers
            if self.stacks is not None and None not in trace.grown.values():
                self.stacks = {**self.stacks, **trace.grown}
            return True
        if self.stacks is None or not (trace.grown or self.stacks or trace.lends_long):
            return False
        found = {**self.stacks, **trace.grown}
        if escape.one_by_one and found == self.stacks:
            return False  # with a trace of each way out, which takes seconds, lists would differ in length at the end
        if None in found.values() or (found == self.stacks and not escape.candidates):
            self.stacks = None
            return True
        new, self.stacks = found != self.stacks, found
        return new


def begun_again() -> Escape:
    """What a trace ended with that found out something."""
    return Escape("a list or a recursion whose length depends on data", "it is staged as such")


def _traced(
    function: Any, leaves: list[Any], structure: Structure, fragments: Fragments | None, opened: Mapping[int, Aval],
    learned: Learned,
) -> tuple[Variant, Trace]:  # fmt: skip
    # Lists whose numbers are others at each call, but as many: these are found as those of other types are.
    ints = {place: aval for place, aval in opened.items() if type(leaves[place]) is list and aval.static}
    keys = (key[:3] if place in ints else key for place, key in enumerate(map(leaf_key, leaves)))
    variant = Variant(tuple(keys), keepalive=[leaf for leaf in leaves if not is_traced_leaf(leaf)])
    variant.opened = _with_own_symbols({place: aval for place, aval in opened.items() if place not in ints})
    trace = learned.trace(function, fragments)
    trace.many_sizes = bool(variant.opened)
    try:
        with start(trace):
            trace_into(variant, trace, function, leaves, structure, {**variant.opened, **ints})
    except Escape as escape:
        variant.escape = without_frames(escape)
    except Retrace:
        variant.escape = begun_again()
    except UnknownDimension as error:
        variant.escape = unstaged(error)
    except RecursionError as error:
        variant.error = without_frames(error)
    except Exception as error:
        variant.error = without_frames(without_values(_located(error)))
    finally:
        restore(trace.outside)
    variant.guards = list(trace.guards.values())
    variant.constant = {key: held for key, held in trace.held.numbers.items() if key not in trace.numbers}
    if variant.graph is None:
        variant.captures = []
    variant.nests = trace.nests or variant.graph is None  # what a trace did not come to may call some
    alone = variant.graph is None and not trace.deadline.arrays  # what it gives itself is known, too
    variant.plainly = plainly(function, itself=alone) if variant.nests else function
    variant.throughout = plainly(function, throughout=True) if variant.nests else function
    return variant, trace


def _with_own_symbols(opened: Mapping[int, Aval]) -> dict[int, Aval]:
    """The same abstract values with other symbols: those of an earlier trace are extents of that trace's inputs."""
    own: dict[Symbol, Dim] = {}

    def other(extent: Any) -> Any:
        if not isinstance(extent, Dim):
            return extent
        for symbol in extent.symbols:
            own.setdefault(symbol, Dim.of(new_symbol(symbol.low)))
        return renamed(extent, own)

    return {place: aval.with_extents(other) for place, aval in opened.items()}


def trace_into(
    variant: Variant, trace: Trace, function: Any, leaves: list[Any], structure: Structure, opened: Mapping[int, Aval]
) -> None:
    entered = enter_arguments(leaves, argument_paths(function, structure), share=True, opened=opened)
    variant.inputs = list(entered.positions.values())
    args, kwargs = unflatten(structure, entered.values)
    trace.arguments = {id(each): (place, each) for place, each in placed_containers((args, kwargs)) if len(place) > 1}
    placed(structure, entered.values, trace)
    trace.futures = {cell for cell, place in entered.positions.items() if isinstance(leaves[place], Array)}
    trace.given = entered.positions.keys()
    trace.replays = True
    result = calls.call(function, args, kwargs)
    _collect(variant, trace, entered.params, dict(entered.positions), leaves, result)


def _collect(
    variant: Variant, trace: Trace, params: list[Node], cells: dict[Cell, int], leaves: list[Any], result: Any
) -> None:
    """Outputs, write-backs, effects and captured arrays of a finished trace."""
    for generator in trace.generators:
        ends = _ENDS & set(generator.gi_code.co_names)
        if ends and generator.gi_frame is not None and generator.gi_frame.f_lasti > 0:
            raise Escape("a generator with a finally, with or except that is left early", "its end would not run")
    result, nests = kept_apart(result, trace)
    changed = changed_objects(trace)
    result_leaves, variant.structure = flatten(gathered(taken_apart(result)))
    parts = [flatten(taken_apart(nest)) for nest in nests]
    inner = [each for part, _ in parts for each in part]
    everywhere = [*result_leaves, *inner, *changed_leaves(changed)]
    everywhere = [each for leaf in everywhere for each in things(leaf)]
    everywhere = [trace.captured(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in everywhere]
    _keep_whole(trace, everywhere)
    left = Left(everywhere)
    everywhere += left.others.values()
    trace.forget_unread(everywhere, [cell.value for cell in cells if cell.written])
    for number, capture in enumerate(trace.captures.values()):
        if isinstance(capture.array, np.ndarray) or (type(capture.array) in GENERATORS and capture.key != ENTROPY):
            cells[capture.tracer._cell] = ~number
    outs: list[Node] = []
    outputs = Outputs(outs, cells, shared_cells(everywhere), left)
    variant.outputs = list(map(outputs.of_result, result_leaves))
    for part, structure in parts:
        variant.shared.append((list(map(outputs.of, part)), structure))
    variant.chooses = any(output.kind in ("one of", "either", "rows") for output in variant.outputs)
    variant.changes = [*changes_of(trace, changed, outputs.of), *changed_lists(trace, outs)]
    for cell, position in cells.items():
        if cell.written:
            target = leaves[position] if position >= 0 else None
            if target is not None and not isinstance(target, np.ndarray | np.random.Generator | np.random.RandomState):
                raise Escape("a write into a scalar argument", "NumPy scalars cannot be changed")
            variant.written.append((position, len(outs)))
            outs.append(cell.value)
    trace.settle_failing(outs)
    if trace.prints and trace.recurs:
        raise Escape("a print beside a recursion whose end depends on data", "where it is too deep, all is run again")
    variant.prints, variant.quiet = trace.prints, trace.quiet
    variant.held, variant.apart = trace.held, bool(variant.changes) or trace.compares
    made = any(output.kind == "generator" for output in variant.outputs)
    changes = made or bool(variant.changes) or bool(variant.written) or trace.log is not None
    variant.waits = trace.waits or changes or trace.prints or (bool(trace.effects) and not outs)
    outs += trace.effects
    variant.captures = list(trace.captures.values())
    for capture in variant.captures:  # an array's shape and dtype may be set in place, or it is resized
        capture.kind = leaf_key(capture.array) if type(capture.array) is np.ndarray else None
    variant.notes = list(dict.fromkeys(trace.notes))
    everything = [*params, *(capture.node for capture in trace.captures.values())]
    variant.generators = [k for k, node in enumerate(everything) if node.aval == STATE]
    if trace.log is not None:
        if variant.generators:
            raise Escape("a fragment beside a random generator from outside", "it may draw from the same generator")
        variant.has_log = True
        everything.append(trace.log)
    variant.graph = Graph(everything, outs, trace.name)


def _keep_whole(trace: Trace, leaves: list[Any]) -> None:
    """Arrays that a caller gets in a list are the very ones that rounds made, which others may have, too: then they are
    no rows. Where each round made its entries anew, others that have one are names that the loop has left."""
    cells = {leaf._cell for leaf in leaves if isinstance(leaf, Tracer) and not leaf.is_scalar}
    sites = {cell.site for cell in cells if isinstance(cell.site, Collected)}
    left = any(cell.entangled and cell.origin is None and not isinstance(cell.site, Collected) for cell in cells)
    if (sites if left else sites & trace.shared) - trace.loops:
        trace.loops |= sites
        raise Retrace


def _located(error: Exception) -> Exception:
    """Add the user's line to an exception from a trace."""
    place = raised_at(error)
    if place is not None and not hasattr(error, "__source__"):
        error.add_note(f"in {place.function}, {place.place()}: {place.text()}")
        error.__source__ = place  # type: ignore[attr-defined]
    return error
