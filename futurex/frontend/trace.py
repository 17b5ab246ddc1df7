"""The state of one trace: storage cells, scopes of staged control flow, effects, captured values and their guards."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.closing import reachable
from futurex.frontend.errors import AS_NUMBERS, ONLY_NUMBERS, Escape, Retrace
from futurex.frontend.failing import converts, is_looked_up, may_fail
from futurex.frontend.held import Guard, Holdings
from futurex.frontend.objects import Contents, describe, entries_of, restore
from futurex.frontend.patience import Deadline
from futurex.frontend.reads import IsArray, IsSame, attribute
from futurex.frontend.sites import Collected, ToldApart
from futurex.ops.control import Failure
from futurex.ops.loops import results_now
from futurex.ops.opaque import LOG
from futurex.ops.streams import GENERATORS
from futurex.passes.dead import may_raise
from futurex.runtime.floating import untold
from futurex.tree.aval import Aval, aval_of
from futurex.tree.node import Node, apply, const, interning_scope, item, made_here, next_id, param
from futurex.tree.pytree import containers
from futurex.tree.source import here

FOLD_LIMIT = 1 << 16
_FOLDED_NODES = 1 << 13
"""Operations of a loop's rounds that are computed while it is traced."""
STEPS = 10_000
"""Rounds and calls of functions that are traced one by one, in all: each takes a hundred times as long as in Python.
Where nothing but a trace will do there may be more."""
_LOST = "Casting complex values to real discards the imaginary part"
_SETS = frozenset(("store", "scatter"))
_NEVER = Failure(RuntimeError, ())  # of a check whose condition holds
SAME_IN_SOME_BRANCHES = "is the same as another one in some branches only"


@dataclass(eq=False)
class Scope:
    """A region of a trace: a branch or loop body, or an attempt that may be taken back.

    ``journal`` is what cells held before the region wrote them, ``state`` what Python's objects held, ``lent`` what
    those held that have stand-ins in it; ``born`` the objects made in it; ``bound`` the flags of names that were
    checked in it, ``facts`` how tests came out that lead to it; ``undo`` takes back what else it did. In a ``pure`` one
    nobody changes what was there before: it is of a function whose derivative or map is run in its place.
    """

    start: int
    journal: dict[Cell, Node] = field(default_factory=dict)
    state: Contents = field(default_factory=dict)
    lent: Contents = field(default_factory=dict)
    effects: list[Node] = field(default_factory=list)
    failing: list[Node] = field(default_factory=list)
    born: dict[int, Any] = field(default_factory=dict)
    entangled: list[Cell] = field(default_factory=list)
    bound: set[Node] = field(default_factory=set)
    facts: dict[Node, bool] = field(default_factory=dict)
    undo: list[Callable[[], None]] = field(default_factory=list)
    pure: bool = False
    clock: Node | None = None  # of a round, in a trace that numbers arrays


@dataclass
class Capture:
    """An array or number from outside: an input that is not an argument.

    ``read`` gives it anew at every call (None: it is fixed). ``kind``: what a finished trace knows of an array.
    """

    array: Any
    node: Node
    tracer: Any
    read: Callable[[], Any] | None
    key: Any = None
    guard: Guard | None = None
    kind: Any = None

    def found(self) -> Callable[[], Any]:
        """What gives it at a call."""
        return attribute(self, "array") if self.read is None else self.read


class Trace:
    """Everything recorded while one function is traced."""

    def __init__(self, name: str, fragments: Any = None, deadline: Deadline | None = None) -> None:
        self.name, self.deadline = name, deadline or Deadline()
        self.scopes: list[Scope] = []
        self.regions: list[Scope] = [Scope(0)]
        self.counters: dict[Node, range] = {}  # of loops whose rounds are known, and all their values
        self.wide: set[Node] = set()  # Python ints of loops that begin near the widest there are
        self.effects: list[Node] = []
        self.failing: list[Node] = []
        self.n_ordered = 0  # of those, how many come before a check
        self.guards: dict[Any, Guard] = {}
        self.captures: dict[Any, Capture] = {}  # by the array's identity; numbers by where they were found
        self.notes: list[str] = []
        self.protects_linear = 0  # is it in a try whose handlers catch LinAlgError alone?
        self.caught: list[tuple[Any, ...]] = []  # by handlers around it that catch nothing that operations raise
        self.attempted: set[Node] = set()  # whether a factorization in a try failed, behind which its handler stands
        self.handles = 0  # is it in such a handler?
        self.protected, self.walking = 0, False  # is it inside NumPy's own source
        self.attempt: Any = None  # in an expression whose failures are values: where it stands, and these
        self.many_sizes = False  # does it serve calls of many sizes, whose extents are symbols
        self.calls: list[tuple[Any, int]] = []  # the functions being traced, and in how many scopes they were called
        self.forks = self.all_forks = 0  # choices that are merged later: of a round, or outside of all; and of all
        self.recursions = self.transforms = 0  # derivatives or maps that are being taken of what is traced
        self.recursive: set[Any] = set()  # the code of functions that are known to call themselves until data says so
        self.loops: set[Any] = set()  # short ones that are staged, by their bodies, and names that are read behind one
        self.rounds: dict[Any, Any] = {}  # what those of a loop were last found to change, by its body
        self.first_rounds: set[Any] = set()  # loops that need their first round by itself, and how names are before it
        self.spread: set[Any] = set()  # short ones over large arrays, likewise
        self.collected: dict[Any, Any] = {}  # what rounds of a loop append to lists, by its body
        self.gathered: dict[Node, tuple[Node, int]] = {}  # what such lists have, and of which arrays these are rows
        self.shared: set[Any] = set()  # of those, whose entries may be arrays of other names before rounds append them
        self.unrolled: list[Any] = []  # the loops that are being unrolled
        self.steps = 0  # rounds and calls that were traced one by one
        self.staged: list[Any] = []  # such functions whose bodies are being traced
        self.nests = False  # is another futurized function called?
        self.recurs = False  # does a run hold such a function, which may go too deep for it?
        self.journals: list[Scope] = []
        self.paths: list[Any] = []
        self.generators: list[Any] = []  # those that the traced code made
        self.begun = made_here()  # or when the first trace of the call was
        self.outside: Contents = {}  # the caller's objects that are changed at every run, and what they held
        self.changed_at: dict[int, Any] = {}  # the lines that changed objects first, by identity
        self.assigned: dict[tuple[int, str], Any] = {}  # objects of which attributes were set, by identity and name
        self.held = Holdings()
        self.numbers: set[Any] = set()  # those from outside that are inputs, as guards know them
        self.arguments: dict[int, tuple[Any, Any]] = {}  # stand-ins for containers among the arguments, by identity
        self.futures: set[Cell] = set()  # of arguments: whether two are one the trace does not say
        self.given: Collection[Cell] = ()  # of the arrays that the call is given
        self.replays = self.compares = False  # may the caller's objects be changed? are containers compared by `is`?
        self.prints = self.waits = False  # may a run print or warn, or find out that only plain Python will do?
        self.quiet: dict[str, Any] = {}  # floating-point errors that are silenced somewhere: `floating.silenced`
        self.ignored: tuple[Any, ...] | None = None  # warnings, in catch_warnings: a text and a category each
        self.numbering: Any = None  # of arrays, where it matters which one branches and rounds leave behind
        self.fragments, self.in_library = fragments, False  # what is known of opaque calls; None: there can be none
        self.stacks: dict[Any, Any] = {}  # the displays whose lists are traced, and what their entries are
        self.lists: dict[int, tuple[Any, Any]] = {}  # lists that displays made, by identity, and those displays
        self.lent: list[Any] = []  # traced lists that stand for arguments
        self.lends_long = False  # some of them because they are long
        self.tables: dict[int, tuple[Any, Any]] = {}  # the lists in such lists, by identity, and those that hold them
        self.grown: dict[Any, Any] = {}  # displays whose lists grew or shrank by data, and what their entries were
        self.read: dict[int, Any] = {}  # traced lists that were looked at, by identity
        self.exact = self.inexact = False  # are Python's numbers told from NumPy's of one type? did it matter?
        self.in_vain = False  # was a trace that tells them apart given up?
        self.loosened: set[Collected] = set()  # loops whose lists hold such numbers nevertheless
        self.crowded = False  # was a name more things than a loop carries?
        self.may_tell = self.may_begin_again = False  # will there be another trace: with these apart, lists as arrays?
        self.log: Node | None = None
        self.frozen: dict[int, tuple[Any, ...]] = {}  # Python's objects that some runs take for others
        self.keeps_apart = self.shares = self.meets_objects = False  # arrays of one name: see unshared.py

    def step(self) -> None:
        """Another round, or call of a function, is traced by itself. That must have an end where values are known, too:
        loops inside each other and recursions on them make no nodes that would tell how long it goes on."""
        self.deadline.look()
        self.steps += 1
        if self.steps > STEPS << 4 * bool(self.transforms or self.fragments is None):
            what = f"more than {self.steps - 1} rounds and calls of functions that are traced one by one"
            escape = Escape(what, "plain Python is much faster with values that are known")
            escape.whole = not self.deadline.arrays  # what would stand around a fragment?
            raise escape

    def effect(self, name: str, *inputs: Node, **attrs: Any) -> None:
        """A node that must run although nobody reads it, after the effects before it."""
        self.prints |= name in ("print", "warning")
        effects = self.scopes[-1].effects if self.scopes else self.effects
        before = self._failing_before() if name == "check" else []
        effects.append(apply(name, *inputs, *before, *effects[-1:], **attrs))
        _refuse_failing(self, effects[-1])

    def _failing_before(self) -> list[Node]:
        """What may raise between the last check and this one, outside of loops and branches: it must raise first.

        A call that waits is run again as plain NumPy if it raises anything.
        """
        if self.scopes or self.waits:
            return []
        before, self.n_ordered = self.failing[self.n_ordered :], len(self.failing)
        return [item(node, 0) if isinstance(node.aval, tuple) else node for node in before]

    def tell(self) -> None:
        """Somebody must know whether a number is Python's or NumPy's, which branches have left as one."""
        self.inexact = True
        if self.may_tell:
            raise Retrace
        apart = {ToldApart(site.body) for site in self.loosened}
        if apart - self.loops:
            self.loops |= apart
            raise Retrace

    def fragment(self, inputs: Sequence[Node], call: Any) -> list[Node]:
        """A call that the run makes, after the effects before it; its results."""
        if self.log is None:
            self.log = param(LOG, "log")
        self.effect("fragment", self.log, *inputs, call=call, count=len(inputs))
        effects = self.scopes[-1].effects if self.scopes else self.effects
        node = effects.pop()
        effects.append(item(node, 0))
        return [item(node, k) for k in range(1, len(node.aval))]

    def before(self) -> list[Node]:
        """The effect that a branch or loop begins behind: inside of others, which hand on the last one alone, where
        something is printed or called, and in a function that calls itself, whose calls have an order, too."""
        effects = self.scopes[-1].effects if self.scopes else self.effects
        return effects[-1:] if self.staged or self.scopes or self.prints or self.log is not None else []

    def keep(self, node: Node) -> None:
        """Keep a node whose branches hold effects."""
        (self.scopes[-1].effects if self.scopes else self.effects).append(node)

    def remember_failing(self, node: Node) -> None:
        """Remember a node that may raise, for the case that nobody reads it."""
        (self.scopes[-1] if self.scopes else self).failing.append(node)

    def settle_failing(self, results: Sequence[Node]) -> None:
        """Let what may fail run although nobody reads it: its error would be missed. ``results`` are the scope's.

        A function that calls itself is cut into parts, and what no part reads is gone: there nothing counts as read.
        """
        scope = self.scopes[-1] if self.scopes else self
        start = self.scopes[-1].start if self.scopes else 0
        failing, scope.failing = scope.failing, []
        read = [*scope.effects] if self.staged else [*results, *scope.effects]
        reached = set(reachable(read, set(), start)) if failing else set()
        for node in reversed(failing):
            if node not in reached and not (node.op == "load" and is_looked_up(node, reached)):
                value = item(node, 0) if isinstance(node.aval, tuple) else node
                self.effect("check", const(np.True_), value, failure=_NEVER)
                reached.update(reachable([value], set(), start))

    def remember(self, value: Any) -> Any:
        """Mark a container as made during the trace: changing it is nobody else's business."""
        self.regions[-1].born[id(value)] = value
        return value

    def made(self, generator: Any) -> Any:
        """Keep a generator, to see at the end whether it was left before its own end."""
        self.generators.append(generator)
        return self.remember(generator)

    def is_own(self, value: Any) -> bool:
        """Was this object made by the traced code?"""
        return any(id(value) in region.born for region in self.regions)

    def asked(self, value: Any, name: str, answer: bool) -> bool:
        """The answer of ``hasattr(value, name)``, which is guarded for an object from outside."""
        if not self.is_own(value) and id(value) not in self.arguments:
            key = id(value), name, "hasattr"
            guard = Guard(f"hasattr {name}", lambda: hasattr(value, name), answer, (bool, repr(answer)))
            self.guards.setdefault(key, guard)
        return answer

    def has_changed(self) -> bool:
        """Is anything of the caller's another thing by now than what the trace sees of it?"""
        captured = (capture.tracer._cell for capture in self.captures.values())
        return bool(self.outside) or any(cell.written for cell in (*self.given, *captured))

    def has_set(self, value: Any, name: str, now: Any) -> bool:
        """Does an attribute hold what the traced code put there?"""
        if id(value) in self.outside:
            before = self.outside[id(value)][1]
            return name in entries_of(value) and (name not in before or before[name] is not now)
        return self.is_own(value)

    def is_newest(self, value: Any) -> bool:
        """Was it made in the region that is being traced, so that it is gone when the region is undone?"""
        return id(value) in self.regions[-1].born

    def change(self, value: Any) -> bool:
        """Note what an object held before every region that was begun since it was made; False if it is not ours."""
        before = None
        for region in reversed(self.regions):
            if id(value) in region.born:
                return True
            if region.pure:
                what = f"changing {describe(value)} from outside the transformed function"
                raise Escape(what, "what is run is made of the function, not the function itself", "return what is new")
            if id(value) not in region.state:
                self.changed_at.setdefault(id(value), here())
                before = entries_of(value) if before is None else before
                region.state[id(value)] = value, before
            if id(value) in region.lent:
                before = region.lent[id(value)][1]
        if id(value) in self.outside:
            return True
        for region in self.regions:
            region.state.pop(id(value), None)
        return False

    def freeze(self, objects: Iterable[Any], site: Any = None, among: Sequence[Any] = ()) -> bool:
        """Let nobody change these objects from now on, which branches or rounds have merged, and may be those ``among``
        them: what else changes with them depends on data. True if that is new for one of them."""
        new = {id(value): (value, site, among) for value in objects if id(value) not in self.frozen}
        self.frozen |= new
        return bool(new)

    def freeze_merged(self, value: Any, nests: Sequence[Any], site: Any = None, *, anew: bool = False) -> None:
        """Let nobody change the objects of a nest that was put together of the leaves of these: each may be what stands
        in its place in any of them. ``anew``: more was thought possible before."""
        made = list(containers(value))
        for each, *among in zip(made, *map(containers, nests), strict=True) if made else ():
            if not anew:
                self.freeze([each], site, among)
            elif id(each) in self.frozen and not any(each is one for one in among):
                self.frozen[id(each)] = each, self.frozen[id(each)][1], among

    def check_bound(self, flag: Node, name: str) -> None:
        """A name is read that is bound where this flag is true."""
        if not self.is_bound(flag):
            message = f"cannot access local variable '{name}' where it is not associated with a value"
            self.effect("check", flag, failure=Failure(UnboundLocalError, (message,)))
            self.regions[-1].bound.add(flag)

    def is_bound(self, flag: Node) -> bool:
        """Has a name with this flag been checked already?"""
        return any(flag in region.bound for region in self.regions)

    def remember_all(self, value: Any) -> Any:
        """Remember a container and those in it."""
        if isinstance(value, dict | list | tuple):
            for entry in value.values() if isinstance(value, dict) else value:
                self.remember_all(entry)
        return self.remember(value)

    def captured(
        self, array: Any, read: Callable[[], Any] | None = None, key: Any = None, guard: Guard | None = None
    ) -> Any:
        """The tracer of an array from outside the function. An array of several names must stay one array."""
        if key is None:
            read, key, guard = self.held.place_of(array, self.guards)
        found = self.captures.get(id(array))
        if found is None:
            found = self.captures[id(array)] = self._capture(array, read, key, guard)
        elif found.key != key and found.read is not None and read is not None:
            what = f"{guard.name if guard else key} is {found.guard.name if found.guard else found.key}"
            self.guards["same", key] = Guard(what, IsSame(found.read, read), True, (bool, "True"), True)
        elif found.key != key:
            for place, one in ((found.key, found.guard), (key, guard)):
                if one is not None:
                    self.guards[place] = one
            found.read = None
        return found.tracer

    @staticmethod
    def _capture(array: Any, read: Any, key: Any, guard: Guard | None) -> Capture:
        from futurex.frontend.generators import TracedGenerator
        from futurex.frontend.tracer import Tracer

        if isinstance(array, np.ndarray) and type(array) not in (np.ndarray, np.memmap):
            raise Escape(f"a {type(array).__name__} from outside the function", "only plain arrays are traced")
        if type(array) in GENERATORS:
            generator = TracedGenerator.of(array, "captured")
            generator._cell.born = -1
            return Capture(array, generator._cell.value, generator, read, key, guard)
        future = hasattr(type(array), "__fx_future__")
        aval = array.aval if future else aval_of(array)
        if aval.dtype.kind not in "biufc" or not aval.dtype.isnative:
            raise Escape(f"an array of dtype {aval.dtype}", ONLY_NUMBERS, AS_NUMBERS)
        node = param(aval, "captured")
        origin = array if isinstance(array, np.ndarray) else None
        is_array = origin is not None or (future and array._is_array)
        if is_array:
            current().deadline.lift()
        cell = Cell(node, origin, is_array=is_array, strides=() if aval.ndim == 0 else None)
        cell.frozen = future  # as it is for everybody
        cell.born = -1  # it was there before any branch that it is first used in
        return Capture(array, node, Tracer(cell), read, key, guard)

    def forget_unread(self, leaves: Sequence[Any], values: Sequence[Node]) -> None:
        """Take no array from outside that neither a leaf of what the call leaves, nor one of the ``values`` that it
        writes into arguments, nor anything else depends on, and that nobody has looked at: what a call only replaces
        may be of any shape."""
        from futurex.frontend.generators import TracedGenerator
        from futurex.frontend.tracer import Tracer

        traced = [leaf for leaf in leaves if isinstance(leaf, Tracer | TracedGenerator)]
        cells = {leaf._cell for leaf in traced}
        nodes = [*values, *(leaf._raw if isinstance(leaf, Tracer) else leaf._cell.value for leaf in traced)]
        written = [capture.node for capture in self.captures.values() if capture.tracer._cell.written]
        nodes += [capture.tracer._cell.value for capture in self.captures.values() if capture.tracer._cell.written]
        read = {*reachable([*nodes, *self.effects, *self.failing], set(), 0), *written}
        before = self.captures
        self.captures = {
            key: capture for key, capture in self.captures.items()
            if capture.node in read or capture.tracer._cell in cells or capture.tracer._cell.looked
            or not isinstance(capture.array, np.ndarray)
        }  # fmt: skip
        for key in before.keys() - self.captures.keys():  # that it is one may have been asked: `if self.a is None`
            place, read_it, guard = before[key].key, before[key].read, before[key].guard
            if read_it is not None:
                name = str(place) if guard is None else guard.name
                self.guards["array", place] = Guard(name, IsArray(read_it), True, (bool, "True"), True)

    def has_grown(self) -> bool:
        """Have lists grown by data that another trace can hold as arrays?"""
        new = [kind for site, kind in self.grown.items() if site not in self.stacks]
        return bool(new) and None not in new

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Take back all that the block changed if it raises."""
        self.deadline.look()
        region = Scope(next_id())
        self.journals.append(region)
        self.regions.append(region)
        effects = self.scopes[-1].effects if self.scopes else self.effects
        n_effects = len(effects)
        failing = (self.scopes[-1] if self.scopes else self).failing
        n_failing, n_generators, frozen = len(failing), len(self.generators), dict(self.frozen)
        path = self.paths[-1] if self.paths else None
        met = 0 if path is None else path.met
        try:
            yield
        except BaseException:
            if path is not None:  # another trace of the body may not try this, and counts its choices as this one does
                path.met = met
            for cell, value in region.journal.items():
                cell.restore(value)
            for cell in region.entangled:
                cell.entangled, cell.site = "", None
            restore(region.state)
            for undo in reversed(region.undo):
                undo()
            self.frozen = frozen
            del effects[n_effects:]
            del failing[n_failing:]
            self.n_ordered = min(self.n_ordered, len(self.failing))
            del self.generators[n_generators:]
            raise
        else:
            outer = self.regions[-2]
            outer.born.update(region.born)
            outer.bound |= region.bound
            outer.facts |= region.facts
            outer.undo += region.undo
        finally:
            self.journals.remove(region)
            self.regions.remove(region)

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        """A scope whose changes are undone at its end; the caller reads them from the scope first."""
        self.deadline.look()
        with interning_scope() as start, untold():
            scope = Scope(start)
            self.scopes.append(scope)
            self.regions.append(scope)
            try:
                yield scope
            finally:
                self.scopes.pop()
                self.regions.pop()
                for cell, value in scope.journal.items():
                    cell.restore(value)
                restore(scope.state | scope.lent)


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_stack = _Stack()
under_way: list[Trace] = []
"""The traces of all threads: where there is none, a call need not ask for those of its own."""


def current() -> Trace:
    """The trace in progress in this thread. Raises RuntimeError outside of one."""
    if not _stack.traces:
        raise RuntimeError("a traced array was used outside the function that is being traced")
    return _stack.traces[-1]


def tracing() -> bool:
    return bool(under_way) and bool(_stack.traces)


def calls_futurized(*, users: bool) -> None:
    """What is being traced in this thread calls a futurized function, a user's one or NumPy's."""
    for trace in _stack.traces:
        trace.nests |= users


@contextmanager
def set_aside() -> Iterator[None]:
    """What this thread does meanwhile is no part of its traces: calls of futurized functions are calls."""
    before, _stack.traces = _stack.traces, []
    try:
        yield
    finally:
        _stack.traces = before


@contextmanager
def start(trace: Trace, *, nested: bool = False) -> Iterator[int]:
    """Make ``trace`` the current one; yields the id from which its nodes count."""
    _stack.traces.append(trace)
    under_way.append(trace)
    try:
        with interning_scope(fresh=not nested) as first:
            yield first
    finally:
        under_way.remove(trace)
        _stack.traces.pop()


def emit(name: str, *inputs: Any, **attrs: Any) -> Node:
    """Build a node during a trace; small results of constants are computed at once, so that they stay known."""
    if _stack.traces and _stack.traces[-1].ignored:
        inputs = _told_of(name, inputs, attrs, _stack.traces[-1].ignored)
    node = read(name, *inputs, **attrs)
    _remember_failing(node)
    return node


def _told_of(name: str, inputs: tuple[Any, ...], attrs: dict[str, Any], ignored: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs without imaginary parts, which would be lost, where filters ignore that NumPy tells of it."""
    if name != "cast" and name not in _SETS:
        return inputs
    place, kind = (0, attrs["dtype"].kind) if name == "cast" else (1, inputs[0].dtype.kind)
    if kind not in "fiu" or not isinstance(inputs[place], Node) or inputs[place].dtype.kind != "c":
        return inputs
    if not any(issubclass(np.exceptions.ComplexWarning, of) and re.match(text, _LOST, re.I) for text, of in ignored):
        return inputs
    return (*inputs[:place], apply("real", inputs[place]), *inputs[place + 1 :])


def read(name: str, *inputs: Any, **attrs: Any) -> Node:
    """The same for a view, which was looked at where it was made: it may be read in another scope than that."""
    node = apply(name, *inputs, **attrs)
    if _stack.traces:
        _refuse_failing(_stack.traces[-1], node)
    if (
        isinstance(node.aval, Aval)
        and _folds(node)
        and not node.aval.dtype.hasobject
        and (not node.aval.static or node.aval.nbytes <= FOLD_LIMIT)
    ):
        try:
            value = node.record.run([source.value for source in node.inputs], node.attrs)
        except Exception:
            if not node.record.may_fail(node):
                raise
            return node  # whether the line runs, and fails, is decided at run time
        if node.aval.weak and isinstance(value, np.ndarray | np.generic):
            value = value.item()
        return const(value)
    return node


def _remember_failing(node: Node) -> None:
    # A branch or loop fails in what its names are bound to: a check inside has made it an effect.
    fails = may_raise(node) if node.op in ("cond", "loop") else node.op != "load" and may_fail(node)
    if _stack.traces and fails and not node.record.effect:
        _stack.traces[-1].remember_failing(node)


def _folds(node: Node) -> bool:
    """Is everything that the node needs known now?"""
    return bool(node.inputs) and not node.record.effect and all(source.op == "const" for source in node.inputs)


_NOT_LINEAR = frozenset((
    "power", "choose", "python_scalar", "element", "scalar_power", "scalar_divide", "python_complex", "masked_store",
    "gather", "scatter", "take_along_axis", "math_call", "cmath_call", "ufunc_at", "reduceat",
))  # fmt: skip
"""What may fail, but never with a LinAlgError."""


def _refuse_failing(trace: Trace, node: Node) -> None:
    shielded = trace.protected or (trace.protects_linear and node.op not in _NOT_LINEAR)
    if shielded and not converts(node) and (node.op == "print" or may_fail(node)):
        raise Escape(f"{node.op} in a try statement", "if it failed at run time, the handlers would not see it")


def emit_many(name: str, *inputs: Any, **attrs: Any) -> list[Node]:
    """A node with several results, taken apart at once."""
    node = apply(name, *inputs, **attrs)
    _refuse_failing(current(), node)
    _remember_failing(node)
    if _folds(node) and not all(aval.static for aval in node.aval):
        values = results_now(node, _FOLDED_NODES)
        if values is not None:
            return list(map(const, values))
    return [item(node, k) for k in range(len(node.aval))]
