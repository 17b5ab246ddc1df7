"""``while`` and ``for``: Python where the rounds are known and few, staged where they are many or depend on data."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.control.branches import if_
from futurex.frontend.control.carried import stage_loop
from futurex.frontend.control.choices import and_, not_, round_
from futurex.frontend.control.collected import LEARNED, Appended, Collector
from futurex.frontend.control.compact import COMPACT, LESS_COMPACT, SPREAD
from futurex.frontend.control.growing import Growing
from futurex.frontend.control.paths import IN_BRANCH, Site
from futurex.frontend.control.positions import Drawn, lose
from futurex.frontend.control.rounds import FIRST_ROUND, IN_TEST
from futurex.frontend.control.rows import Rows, TracedRange
from futurex.frontend.control.values import Get, Set, State, asked, is_numeric, is_unknown, raw, truth, truth_of
from futurex.frontend.entry_kinds import of_numbers
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.lists import TracedList
from futurex.frontend.outside import items
from futurex.frontend.picking import are_many_records, entry_at, is_gathered
from futurex.frontend.placeholders import Either
from futurex.frontend.tables import TracedRow
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, as_number, fresh, node_of
from futurex.tree.dims import Dim
from futurex.tree.node import made_here
from futurex.tree.pytree import flatten
from futurex.tree.source import here

FEW = 4  # ranges up to this length are unrolled
UNROLL = 16  # ranges up to this length are unrolled where their rounds are large, or are to be differentiated
UNROLLED = 5_000  # nodes up to which such a loop is unrolled; a derivative, which has no other way, is worth more
WORTH_A_LOOP = 2  # nodes that a round makes of such a loop, at least
FIXPOINT_TRIALS = 4  # of finding out of what types the entries are that rounds append
PEELED = 2  # first rounds that may have types of their own
Names = tuple[str, ...]
_HAVE_ENTRIES = frozenset((list, tuple, dict, set, str, collections.deque))


def filled(value: Any) -> Any:
    """An operand in a test: of a list whether it has entries, of a traced number the truth alone, so that others may be
    of other types. All else is as it is."""
    if type(value) in _HAVE_ENTRIES:
        return len(value) > 0
    return truth_of(asked(value)) if isinstance(value, TracedList | Tracer | Either) else value


def while_(
    test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Names, left: Callable[[], Any] | None
) -> None:
    """A ``while`` statement. Runs as Python as long as its test is known; from then on it is staged."""

    def goes_on() -> Any:
        return asked(test() if left is None else and_(not_(left()), lambda: filled(test())))

    rounds, first, around = 0, made_here(), Unrolled(getattr(body, "__code__", None))
    if around.body in current().loops and _staged_instead(goes_on, body, get, set_, names):
        return
    while True:
        with current().scope() as scope:
            before = get()
            value = goes_on()
            unknown = is_unknown(value)
            set_(before)
        changed = scope.state.keys() - {id(cell) for cell in get.__closure__ or ()}
        if unknown and (scope.journal or changed):
            _stage_acting_test(goes_on, body, get, set_, names)
            return
        if unknown:
            _stage_test(goes_on, body, get, set_, names)
            return
        if not goes_on():
            return
        with around:
            body()
        rounds += 1
        if rounds > UNROLL and made_here() - first > rounds * WORTH_A_LOOP:
            _begin_again_with(around.body)
        if rounds > UNROLL and _is_large(first):
            if _staged_instead(goes_on, body, get, set_, names):
                return
            _refuse_unrolling(f"a while loop of more than {rounds} rounds of such size on known values")


def _begin_again_with(body: Any) -> None:
    """A ``while`` loop whose rounds are known goes on for long: the call is traced again, with it as one of the tree's
    from its first round on. Derivatives would rather have the rounds."""
    trace = current()
    if body is not None and body not in trace.loops and trace.may_begin_again and not trace.transforms:
        trace.loops.add(body)
        raise Retrace


def _staged_instead(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Names) -> bool:
    """Stage a loop from here on, although its test is known as yet. False if that cannot be."""
    trace, before, grown = current(), get(), dict(current().grown)
    try:
        with trace.tentative():
            _stage_test(test, body, get, set_, names)
        return True
    except Escape as escape:
        learned = trace.grown.items() - grown.items()
        if learned and trace.may_begin_again and trace.has_grown():
            raise Retrace from escape  # lists that its rounds change are arrays then: unrolling it would only show that
        set_(before)
        return False


def _stage(
    test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Names, own: Any, peeled: int = 0
) -> None:
    """Stage a loop that need not run at all. First rounds with types of their own become an ``if`` before it."""
    before = get()
    kinds = getattr(own, "__code__", None), *_kinds(before)
    step = functools.partial(round_, body, get, set_, names) if own is body else body
    if kinds not in current().first_rounds or peeled == PEELED:
        try:
            with current().tentative():
                stage_loop(test, step, get, set_, names, own)
            return
        except Escape as escape:
            if escape.site is not FIRST_ROUND or peeled == PEELED:
                raise
            current().first_rounds.add(kinds)
            set_(before)

    def first() -> None:
        body()
        _stage(test, body, get, set_, names, own, peeled + 1)

    if_(test(), first, lambda: None, get, set_, names)


def _stage_test(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Names) -> None:
    """Stage a loop whose test seems only to compute; where it is found to check or print, as one that acts."""
    before = get()
    try:
        _stage(test, body, get, set_, names, body)
    except Escape as escape:
        if escape.site is not IN_TEST:
            raise
        set_(before)
        _stage_acting_test(test, body, get, set_, names)


def _stage_acting_test(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: Names) -> None:
    """A test that changes, checks or prints something is not undone when it ends the loop.

    It runs before the loop, and at the end of each round.
    """
    flag = [fresh(truth(test()))]

    def step() -> None:
        body()
        flag[0] = fresh(truth(test()))

    def set_both(state: State) -> None:
        set_(state[:-1])
        flag[0] = state[-1]

    _stage(lambda: flag[0], step, lambda: (*get(), flag[0]), set_both, (*names, "the test"), body)


def for_(
    iterable: Any, body: Callable[[Any], Any], get: Get, set_: Set, names: Names, left: Callable[[], Any] | None,
    rows: Appended | None = None,
) -> None:  # fmt: skip
    """A ``for`` statement over a range, an array, or any known iterable; ``rows``: what its rounds append to lists that
    nobody looks at before it is over."""
    loop = _Loop(body, get, set_, names, left, rows)
    if isinstance(iterable, TracedRange):
        loop.stage(iterable, lambda i: i)
        return
    if isinstance(iterable, Rows) and current().is_newest(iterable):
        loop.over_rows(*iterable.rest())
        if left is not None:
            lose(iterable)
        return
    if isinstance(iterable, Growing):
        loop.stage(iterable.live_range(), iterable.row)
        return
    if isinstance(iterable, TracedRow):
        loop.stage(iterable.live_range(), lambda i: iterable[i])
        return
    if isinstance(iterable, TracedList):
        before = iterable.order()
        loop.stage(iterable.live_range(), lambda i: iterable[i])
        if iterable.is_deque and any(map(operator.is_not, before, iterable.order())):
            raise Escape("a deque that changes while a loop goes over it", "Python refuses to go on")
        return
    if is_gathered(iterable):
        loop.over_rows(len(iterable), entry_at(iterable, len(iterable)))
        return
    if are_many_records(iterable) and loop.attempt(range(len(iterable)), entry_at(iterable, len(iterable))):
        return
    values = items(iterable)
    if isinstance(values, Tracer):
        if values.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        array, n = values, values.shape[0]
        if isinstance(n, Dim):
            loop.stage(TracedRange(0, as_number(n), 1, True), lambda i: array[i])
            return
        if loop.is_long(n) and loop.attempt(range(n), lambda i: array[i]):
            return
        loop.unroll((array[k] for k in range(n)), n)
        return
    if isinstance(values, range):
        if loop.is_long(len(values)) and loop.attempt(values, lambda i: i):
            return
        loop.unroll(values, len(values))
        return
    sized = type(iterable) in (list, tuple, dict)
    loop.unroll(values, acts=not sized, length=len(iterable) if sized else UNROLL)


def _kinds(state: State) -> Iterator[Any]:
    """What decides whether a round changes the types of names: a loop that needs its first round by itself does so
    again, as often as it is traced with such names."""
    for value in state:
        for leaf in flatten(value)[0]:
            yield raw(leaf).aval if is_numeric(leaf) else type(leaf)


def _few() -> int:
    return UNROLL if current().transforms else FEW


def _is_large(first: int) -> bool:
    """Has unrolling made more nodes since ``first`` than a tree should get?"""
    return made_here() - first > UNROLLED << 4 * bool(current().transforms)


def while_small(values: Any) -> Iterator[Any]:
    """What a comprehension goes through, until its tree is too large: one inside another multiplies their rounds."""
    sized = type(values) in (list, tuple, range, np.ndarray) or (isinstance(values, Tracer) and values.ndim)
    first, length = made_here(), len(values) if sized else 0
    for count, value in enumerate(items(values)):
        if max(count, length) > UNROLL and _is_large(first):
            _refuse_unrolling(f"a comprehension of more than {count} rounds of such size")
        yield value


def anew(values: Any) -> Any:
    """What each round of a comprehension goes over: an iterator may be used up by the first, or another way tried."""
    if hasattr(type(values), "__next__") and not (isinstance(values, Rows) and current().is_newest(values)):
        raise Escape("a comprehension that goes over an iterator in each round", "it can be gone over only once")
    return values


def _refuse_unrolling(what: str) -> None:
    raise Escape(what, "unrolling it makes too large a tree")


@dataclass
class Unrolled:
    """A loop whose rounds are being traced one by one: its body, if it could be staged, and its rounds, if it is known
    how many there are; ``inside``: the loops that were staged in them. ``length``: how many rounds there may be, also
    of a loop that could not be staged. Entered for each round."""

    body: Any
    rounds: int = 0
    inside: int = 0
    length: int = 1

    def __enter__(self) -> None:
        current().step()
        current().unrolled.append(self)

    def __exit__(self, *_: object) -> None:
        current().unrolled.pop()


@dataclass
class _Loop:
    """A ``for`` loop: its body as a function of the item, its state, and whether it was left."""

    body: Callable[[Any], Any]
    get: Get
    set_: Set
    names: Names
    left: Callable[[], Any] | None
    rows: Appended | None = None

    def is_long(self, rounds: int) -> bool:
        """Is it to be staged? Few rounds are unrolled, but not around others that are loops."""
        return rounds > _few() or self._is_nest()

    def _is_nest(self) -> bool:
        return getattr(self.body, "__code__", None) in current().loops

    def _compact(self, rounds: int) -> int:
        """Elements of arrays from which it had rather be unrolled; zero for any number."""
        if rounds > UNROLL or self._is_nest():
            return 0
        copies = math.prod(around.rounds or 1 for around in current().unrolled) * rounds
        return COMPACT if copies <= UNROLL else LESS_COMPACT

    def attempt(self, rounds: range, item: Callable[[Any], Any]) -> bool:
        """Stage a loop over known values; on failure leave everything as it was, to unroll it.

        The first rounds are traced by themselves if they change the types of what the loop carries.
        """
        trace, before, why, grown = current(), self.get(), "", dict(current().grown)
        kinds = getattr(self.body, "__code__", None), *_kinds(before)
        compact = self._compact(len(rounds))
        if (*kinds, compact) in trace.spread:  # as it was around the round before
            return False
        for peeled in range(PEELED + 1):
            if (*kinds, peeled) in trace.first_rounds and peeled < PEELED:
                continue
            again = False
            try:
                with trace.tentative():
                    for k in rounds[:peeled]:
                        self._round(item(k))
                    rest = TracedRange(rounds[peeled], rounds.stop, rounds.step, rounds.step > 0)
                    self._stage_known(rest, rounds[peeled:], item, peeled < PEELED, compact)
                return True
            except Escape as escape:
                if escape.what == SPREAD:
                    trace.spread.add((*kinds, compact))
                why, again = f"{escape.what}: {escape.why}", escape.site is FIRST_ROUND
                if trace.exact and trace.crowded:
                    raise  # round by round each would be a branch for each, and again
                if len(rounds) > UNROLL and isinstance(escape.site, Site) and escape.site.may_fork:
                    raise  # first rounds may leave the loop with types of their own: what follows is traced for each
                learned = dict(trace.grown.items() - grown.items()) if len(rounds) > UNROLL else {}
                if learned and trace.may_begin_again and None not in learned.values():
                    if escape.site is IN_BRANCH:
                        raise Retrace from escape  # round by round there would be as many lengths as paths
                    if any(map(of_numbers, learned.values())):
                        raise Retrace from escape  # and here a number for each place of a list or table
            except Exception as error:  # what a traced index cannot do, a known one often can
                why = f"{type(error).__name__}: {error}"
            self.set_(before)
            if not again:
                break
            trace.first_rounds.add((*kinds, peeled))
        trace.notes.append(f"the loop at {here()} is unrolled ({why})")
        return False

    def _stage_known(
        self, bounds: TracedRange, rounds: range, item: Callable[[Any], Any], peels: bool, compact: int
    ) -> None:  # fmt: skip
        """Stage a loop over these rounds. What they append to lists are rows of arrays, once it is known what that is.
        """
        if self.rows is None:
            self.stage(bounds, item, peels=peels, compact=compact)
            return
        for trial in range(FIXPOINT_TRIALS):
            collector = None
            try:
                with current().tentative():
                    collector = Collector(self.rows, getattr(self.body, "__code__", None), rounds, peels, self.left)
                    with collector.collecting():
                        self.stage(bounds, item, peels=peels, compact=compact, collector=collector)
                    collector.deliver()
                return
            except (Escape, Exception) as error:
                again = isinstance(error, Escape) and error.site is LEARNED
                if not again and collector is not None and collector.learned:  # the round did not get to its end
                    collector.learn(collector.known.kinds)
                    again = True
                if again and trial < FIXPOINT_TRIALS - 1:
                    continue
                if not isinstance(error, Escape) or error.site is FIRST_ROUND:
                    raise
                if collector is None or not collector.sometimes:
                    raise
                break
        self.stage(bounds, item, peels=peels, compact=compact)  # lists get their entries round by round

    def over_rows(self, length: Any, row: Callable[[Any], Any]) -> None:
        """Rows that are known by number."""
        if isinstance(length, Tracer):
            self.stage(TracedRange(0, length, 1, True), row)
        elif not self.is_long(length) or not self.attempt(range(length), row):
            self.unroll((row(k) for k in range(length)), length)

    def _gone(self) -> Any:
        """Was the loop left? Not only the run may know."""
        return self.left() if self.left is not None else False

    def _round(self, value: Any) -> None:
        """One round by itself, unless the loop was surely left."""
        gone = self._gone()
        if is_unknown(gone):
            if_(not_(gone), lambda: self.body(value), lambda: None, self.get, self.set_, self.names)
        elif not gone:
            self.body(value)

    def _rows(self, values: Iterable[Any], acts: bool) -> Iterator[Any]:
        """The rows of rounds up to the one that surely leaves. ``acts``: may asking for one do more than look?"""
        rows = iter(values)
        drawn = Drawn(rows) if acts else None
        while True:
            gone = self._gone()
            unknown = is_unknown(gone)
            if not unknown and gone:
                return
            row = list(itertools.islice(rows, 1)) if drawn is None else drawn.next(not unknown)
            if not row:
                return
            yield row[0]

    def unroll(self, values: Iterable[Any], rounds: int = 0, acts: bool = False, length: int = 0) -> None:
        """Every round by itself. ``rounds``: how many there are, of a loop that could be staged; ``length``: how many
        there may be of another."""
        length = rounds or length
        first, code = made_here(), getattr(self.body, "__code__", None) if rounds else None
        sure = length if self.left is None else 0  # of so many rounds is none left out
        around = Unrolled(code, rounds, length=length)
        for count, value in enumerate(self._rows(values, acts)):
            if max(count, sure) > UNROLL and _is_large(first):
                _refuse_unrolling(f"a loop that cannot be staged and has more than {count} rounds of such size")
            with around:
                self._round(value)

    def stage(
        self, bounds: TracedRange, item: Callable[[Any], Any], peels: bool = False, compact: int = 0,
        collector: Collector | None = None,
    ) -> None:  # fmt: skip
        """A range loop is a while loop with a counter."""
        if self.rows is not None and collector is None:
            self.rows.check_alone()
        counter = [fresh(emit("python_scalar", node_of(bounds.start), kind="i"))]
        fixed = None if callable(bounds.stop) else node_of(bounds.stop)

        def test() -> Any:
            stop = node_of(bounds.stop()) if fixed is None else fixed
            inside = fresh(emit("less" if bounds.up else "greater", counter[0]._node, stop))
            left = self.left
            return inside if left is None else and_(inside, lambda: not_(left()))

        def step() -> None:
            if rounds:
                current().counters[counter[0]._node] = rounds
            if collector is not None:
                collector.begin(counter[0])
            round_(lambda: self.body(item(counter[0])), self.get, self.set_, self.names)
            if collector is not None:
                collector.finish()
            counter[0] = fresh(emit("add", counter[0]._node, node_of(bounds.step)))

        def get() -> State:
            return (*self.get(), *(() if collector is None else collector.get()), counter[0])

        def set_(state: State) -> None:
            self.set_(state[: len(self.names)])
            if collector is not None:
                collector.set(state[len(self.names) : -1])
            counter[0] = state[-1]

        known = all(isinstance(bound, int) for bound in (bounds.start, bounds.stop, bounds.step))
        rounds = range(bounds.start, bounds.stop, bounds.step) if known else range(0)
        runs = len(rounds) > 0
        if runs and self.left is not None:
            gone = self.left()
            runs = not is_unknown(gone) and not gone
        names = (*self.names, *(() if collector is None else collector.names), "the counter")
        with _inside_no_other():
            if runs:
                stage_loop(test, step, get, set_, names, self.body, runs_once=True, peels=peels, compact=compact)
            else:
                _stage(test, step, get, set_, names, self.body)


@contextmanager
def _inside_no_other() -> Iterator[None]:
    """A loop of the tree begins. If short ones around it make many copies of it, the outermost is to be one, too: the
    call is traced again. Derivatives would rather have the copies."""
    trace = current()
    around, trace.unrolled = trace.unrolled, []
    try:
        for each in around:
            each.inside += 1
        counted = [each.inside for each in around if not each.rounds]
        copies = max(math.prod(each.rounds or 1 for each in around), *counted, 0)
        if copies > UNROLL and not trace.transforms:
            outermost = next((each.body for each in around if each.body and each.body not in trace.loops), None)
            if outermost is not None:
                trace.loops.add(outermost)
                raise Retrace
        yield
    finally:
        trace.unrolled = around
