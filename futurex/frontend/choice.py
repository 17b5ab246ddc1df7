"""Staged or plain: a short call that is faster as plain NumPy goes on as that.

What a function costs staged is known only when its plan has settled, and what it costs plain only when it has run so.
Therefore calls of one kind go both ways a few times, each call one way, and the faster way stays; they are compared
again from time to time. Calls that compute, write into arguments, draw from generators, print, or change lists, dicts
and objects have the choice, and so have those of many sizes that share a trace; those that are given futures have none.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.entries import Listed
from futurex.frontend.entry_kinds import parts_of
from futurex.frontend.inflight import is_short
from futurex.frontend.ownership import call_and_look
from futurex.frontend.plain import as_futures, call_for_futures, is_apart
from futurex.frontend.returned import Kind, Part, Several, written_call
from futurex.frontend.variants import Output, Variant
from futurex.ops.views import Chain, read_only, view
from futurex.runtime.placement import AnyPlan
from futurex.runtime.plan import Plan
from futurex.tree.aval import PYTHON_SCALARS
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, flatten, unflatten

WORTH, FEWEST = 40e-3, 50
"""Seconds and calls after which both ways are compared."""
ENOUGH = 1.0  # seconds after which fewer calls will do
TRIALS, AGAIN = 8, 4096
"""Calls of each way that are compared, and calls until they are compared again."""
UNSEEN = 16
"""Of so many calls that go as plain NumPy one looks whether the trace still holds; a part of those after which both
ways are compared again."""
SELDOM = 16
"""Calls among which one may be made both ways."""
_MANY = 128  # operations of a plan on small arrays, which may well take long by themselves
_SMALL = 4096  # elements of such arrays
_HOPELESS = 8.0  # times the slowest staged call: where plain ones take so long, no other is tried
_COLD = 2e-3  # seconds of them before that is said: Python's first run of a function of microseconds takes 20 of them
_ARGUMENTS = ("arg", "row")
"""Kinds of outputs that are arrays of the caller's, and views of such."""
_AS_THEY_WERE = (*_ARGUMENTS, "given", "outside", "static", "set")
"""Those that a plain call returns as a run does, whatever it is."""
_AS_THEY_ARE = (*_AS_THEY_WERE, "either", "nest", "rows", "entries")
"""Those that a plain call returns as a run does, or of which it is seen that it does not."""
_OF_RESULTS = ("out", "nest", "either")
_BETTER, _CLEARLY_BETTER, _MUCH_BETTER = 1.0, 0.9, 0.5
"""Of the staged time: plain calls that take less are taken. Of runs that have a thread of their own, those that take
clearly less where callers always wait for them at once, and much less where they do something else meanwhile."""


class Misfit(Exception):
    """A plain call returned something else than the trace says; ``result`` is what the caller gets."""

    def __init__(self, result: Any) -> None:
        super().__init__("a result of another kind")
        self.result = result


class Choice:
    """How calls of one trace go. Threads may call at once: a measurement that is lost does no harm."""

    __slots__ = (
        "_calls", "_failures", "_pack", "_plain", "_spent", "_staged", "call", "open", "plain", "seconds", "variant",
    )  # fmt: skip
    trials = TRIALS

    def __init__(self, variant: Variant, pack: Callable[[list[Any]], Any] | None) -> None:
        """``variant``: one that only :func:`computes`, for which ``pack`` puts its results into the nest that calls
        return, or that :func:`leaves_little`, where there is none.
        """
        self.variant, self._pack = variant, pack
        together = _left_together(variant)
        kinds = [together[k] if k in together else _kind(output) for k, output in enumerate(variant.outputs)]
        self.call = written_call(variant.structure, kinds, self._acted if pack is None else self._looked)
        """``call(function, args, kwargs)``: what the call would return staged. Raises Misfit for a result of another
        kind, and what the function raises."""
        self._begin()

    def _begin(self) -> None:
        self.open = True
        self.plain = False  # do calls go as plain NumPy?
        self.seconds = (0.0, 0.0)  # of a call, staged and plain, as last compared
        self._calls, self._failures, self._spent = 0, 0, 0.0
        self._staged: list[float] = []
        self._plain: list[float] = []

    @property
    def acts(self) -> bool:
        """Do calls more than compute? What one has done is not done again."""
        return self._pack is None and self.variant.waits

    @property
    def next_is_plain(self) -> bool:
        """Shall the next call be plain, to be compared?"""
        return len(self._plain) < len(self._staged)

    def goes_on(self) -> bool:
        """Does this call go as plain NumPy, since such calls are faster, before anybody looks whether the trace still
        holds? That may take longer than the call; from time to time somebody looks, since what has changed may be
        faster staged."""
        if self.plain and self.open and (self._calls + 1) % UNSEEN:
            self._calls += 1
            return True
        return False

    def goes_plain(self) -> bool:
        """Does this call go as plain NumPy, since such calls are faster? From time to time that is found out anew."""
        if self.plain:
            self._calls += 1
            if not self._calls % AGAIN:
                self.plain, self._staged, self._plain = False, [], []
        return self.plain

    def was_staged(self, began: float) -> None:
        """A staged call, begun at ``began``, has returned."""
        took, plan = time.perf_counter() - began, self.variant._plan
        if plan is None or self.variant.rest:  # there was no room for one, or the call went as plain NumPy
            return
        if not is_short(plan):
            took = max(took, plan.grain.seconds)
        if self._settled(plan):
            self._staged.append(took)
        else:
            self._calls += 1
            self._spent += took

    def _settled(self, plan: AnyPlan) -> bool:
        """Has the plan come to the form in which it stays? Of long runs, which have a thread of their own, only those
        have a choice that go through the rounds of a loop in Python, or through many operations on small arrays; others
        may be long since the machine is busy. What holds fragments runs in the caller's thread, however long."""
        if self._spent < WORTH or (self._calls < FEWEST and self._spent < ENOUGH):
            return False
        if not (is_short(plan) or self.variant.has_log or has_rounds(plan) or _has_many(plan)):
            self._calls, self._spent, self._staged, self._plain = 0, 0.0, [], []
            return False
        return isinstance(plan, Plan) and plan.ready and (plan.whole is None or plan.whole.settled)

    def was_plain(self, began: float) -> None:
        """A plain call, begun at ``began``, is over."""
        self._plain.append(time.perf_counter() - began)
        hopeless = min(self._plain) > _HOPELESS * max(self._staged) and sum(self._plain) > _COLD
        if len(self._plain) < self.trials and not hopeless:
            return
        self.seconds = self.usual(self._staged), self.usual(self._plain)
        plan, waits = self.variant.plan, self.acts or self.variant.has_log
        longer = _CLEARLY_BETTER if isinstance(plan, Plan) and plan.habit.waits else _MUCH_BETTER
        better = _BETTER if waits or is_short(plan) else longer
        self.plain = self.seconds[1] < better * self.seconds[0]
        self.open, self._calls, self._failures = self.plain, 0, 0

    def usual(self, seconds: list[float]) -> float:
        """What a call takes, of those that were measured."""
        return min(seconds)

    def failed(self) -> None:
        """A plain call raised, and is made again, staged, if it only computes: then that must be seldom."""
        self._failures += 1
        self.open = self.acts or self._failures <= 1 + self._calls // SELDOM

    def _looked(self, box: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call would return staged, of a plain call that returned what the box holds.

        Raises Misfit for a result of another kind.
        """
        looked = call_and_look(box.pop)
        theirs = zip(looked.leaves, looked.alone, strict=True)
        leaves = _placed(self.variant.structure, looked.structure, theirs)
        if leaves is None:
            raise Misfit(as_futures(looked, args, kwargs))
        outputs, given = self.variant.outputs, flatten((args, kwargs))[0]
        found: list[Any] = [None] * sum(len(places(output)) for output in outputs)
        for (leaf, own), output in zip(leaves, outputs, strict=True):
            if output.kind in ("rows", "entries"):
                columns = Listed(output.value, output.length).columns(leaf)
                if columns is None:
                    raise Misfit(as_futures(looked, args, kwargs))
                found[output.index : output.index + len(columns)] = columns
                continue
            if output.kind == "either":
                number = next((k for k, each in output.among.items() if _is_it(leaf, each)), None)
                if number is None:
                    raise Misfit(as_futures(looked, args, kwargs))
                found[output.index] = number
                output = output.among[number]
                if output.kind == "static":
                    continue
            if not _fits(leaf, output):
                raise Misfit(as_futures(looked, args, kwargs))
            mine = type(leaf) is not np.ndarray or (own and (leaf.base is None or is_apart(leaf, given)))
            found[output.index] = leaf if mine else leaf.copy()
        assert self._pack is not None
        return self._pack(found)

    def _acted(self, box: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raises Misfit: what a call that acts returned is another than the trace says, or somebody else holds it."""
        raise Misfit(as_futures(call_and_look(box.pop), args, kwargs))

    def text(self) -> str | None:
        """What there is to say of the choice."""
        staged, plain = (f"{seconds * 1e6:.3g} µs" for seconds in self.seconds)
        return f"calls run as plain NumPy, which is faster: {plain} instead of {staged}" if self.plain else None


def _kind(output: Output) -> Kind:
    """How a leaf of a plain call's result comes back."""
    if output.kind == "out":
        assert output.aval is not None
        return output.aval, output.is_array
    if output.kind in ("rows", "entries"):
        return Listed(output.value, output.length)
    if output.kind in ("either", "one of"):
        among = [*output.among.values(), *([output.value] if output.kind == "one of" else [])]
        new = [(each.aval, each.is_array) for each in among if each.kind == "out" and each.aval is not None]
        passed = any(each.kind in _ARGUMENTS for each in among)
        return Several([each.value for each in among if each.kind == "static"], new, passed=passed)
    if output.kind == "set":
        return set
    return type(output.value) if output.kind == "static" else object


def leaves_little(variant: Variant) -> bool:
    """Does a call leave nothing but new arrays, lists of numbers, constants and arguments, whatever it writes into
    these, draws, prints, raises or puts into the caller's objects? It comes back alike from either way then."""
    together = _left_together(variant)
    alone = [output for k, output in enumerate(variant.outputs) if k not in together]
    left = [each for output in alone for each in _every(output)]
    put = _put(variant)
    new = [each.index for each in left if each.kind == "out"] + list({part.number for part in together.values()})
    return (
        not (variant.opened or variant.gives or takes_futures(variant))
        and all(
            each.kind in _AS_THEY_ARE
            or (each.kind == "out" and each.aval is not None and not each.chain)
            or (each.kind == "one of" and all(other.kind in _ARGUMENTS for other in each.among.values()))
            for each in left
        )
        and len(put.union(new)) == len(put) + len(new)  # an array in two places would come back as somebody else's
    )


def _put(variant: Variant) -> set[int]:
    """The results of a run that it puts into the caller's objects."""
    puts = (output for change in variant.changes for entry in change.entries for output in entry.outputs)
    return {each.index for output in puts for each in _every(output) if each.kind == "out"}


def leaves_whole_arrays(variant: Variant) -> bool:
    """Does a call leave nothing but new arrays, each in one place, constants and arguments, whatever their sizes are?
    What :func:`call_for_futures` makes of these is what a run does."""
    put, new = _put(variant), [each.index for each in variant.outputs if each.kind == "out"]
    return (
        not (variant.gives or takes_futures(variant))
        and all(
            each.kind in _AS_THEY_WERE
            or (each.kind == "out" and each.aval is not None and not (each.chain or each.aval.weak))
            for each in variant.outputs
        )
        and len(put.union(new)) == len(put) + len(new)
    )


def _left_together(variant: Variant) -> dict[int, Part]:
    """New arrays that a result holds several times, or with views of them; by their places among the outputs."""
    parts: dict[int, dict[int, Part]] = {}
    for k, output in enumerate(variant.outputs):
        moves = output.inner[1] or output.dims  # a view at a place that the run computes
        if output.kind == "out" and output.is_array and output.aval is not None and output.aval.static and not moves:
            viewed = functools.partial(_view, output.chain, output.frozen) if output.chain else None
            name = k if output.same is None else ("same", output.same)
            parts.setdefault(output.index, {})[k] = Part(output.index, output.aval, viewed, name)
    return {k: part for each in parts.values() if _is_whole(each) for k, part in each.items()}


def _is_whole(parts: dict[int, Part]) -> bool:
    """Is the array, of which others are views, among them, once or as one object?"""
    return len(parts) > 1 and len({part.name for part in parts.values() if part.viewed is None}) == 1


def _view(chain: Chain, frozen: bool, value: Any) -> Any:
    seen = view(value, chain, ())
    return read_only(seen) if frozen else seen


class ChoiceOfSizes(Choice):
    """The choice of a trace that serves calls of many sizes: these take turns, so that many of them are compared, and
    plain ones are made in the way that is right for all."""

    __slots__ = ()
    trials = 3 * TRIALS

    def __init__(self, variant: Variant) -> None:
        self.variant, self._pack, self.call = variant, None, call_for_futures
        self._begin()

    def usual(self, seconds: list[float]) -> float:
        """The mean of calls, but for the slowest fourth, which others on the machine may have held up."""
        kept = sorted(seconds)[: (3 * len(seconds) + 3) // 4]
        return sum(kept) / len(kept)


def takes_futures(variant: Variant) -> bool:
    """Are there futures among the arguments, or in what a call finds outside? A plain call would wait for them."""
    return any(key[0] is Array for key in variant.leaves) or any(type(each.array) is Array for each in variant.captures)


def computes(variant: Variant) -> bool:
    """Does a call return new arrays and do nothing else, not even wait for what only the run can tell?"""
    return returns_only(variant) and not (variant.waits and not variant.has_log)


def returns_only(variant: Variant) -> bool:
    """Does a call return new arrays and do nothing else?"""
    return (
        not (variant.written or variant.apart or variant.generators or variant.prints or variant.opened)
        and not variant.gives
        and not takes_futures(variant)
        and all(map(_is_new, variant.outputs))
        and max(found := [place for output in variant.outputs for place in places(output)], default=0) < len(found)
    )


def _is_new(output: Output) -> bool:
    if output.kind in ("either", "nest"):
        return all(each.kind == "static" or _is_new(each) for each in output.among.values())
    return output.kind in ("rows", "entries") or (output.kind == "out" and not output.chain)


def places(output: Output) -> list[int]:
    """The results of a run that an output is made of."""
    if output.kind in ("rows", "entries"):
        return list(range(output.index, output.index + len(parts_of(output.value))))
    first = [] if output.kind == "nest" else [output.index]
    return first + [place for each in output.among.values() if each.kind in _OF_RESULTS for place in places(each)]


def _every(output: Output) -> Iterator[Output]:
    """An output and all that it may be."""
    yield output
    for each in [*output.among.values(), *([output.value] if output.kind == "one of" else [])]:
        yield from _every(each)


def _is_it(leaf: Any, output: Output) -> bool:
    if output.kind == "nest":
        return False  # results of another structure come back as they are
    if output.kind == "static":
        return type(leaf) is type(output.value) and repr(leaf) == repr(output.value)
    return _fits(leaf, output)


def _placed(mine: Structure, theirs: Structure, leaves: Iterator[tuple[Any, bool]]) -> list[tuple[Any, bool]] | None:
    """What stands in a nest of their structure where mine has leaves, and whether nobody else refers to it; None where
    there is another nest."""
    if mine.kind is None:
        if theirs.kind is None:
            return [next(leaves)]
        return [(unflatten(theirs, [leaf for leaf, _ in islice(leaves, theirs.n_leaves)]), True)]
    if (mine.kind, mine.keys, len(mine.children)) != (theirs.kind, theirs.keys, len(theirs.children)):
        return None
    parts = [_placed(*each, leaves) for each in zip(mine.children, theirs.children, strict=True)]
    return None if None in parts else [each for part in parts if part is not None for each in part]


def has_rounds(plan: AnyPlan) -> bool:
    """Does a run go through the rounds of a loop one by one, or does it after compiled code gave up?"""
    return isinstance(plan, Plan) and any(
        (each.kernel.backend == "structured" and each.node.op != "cond") or getattr(each.kernel.late, "gives_up", False)
        for each in plan.instructions
    )


def _has_many(plan: AnyPlan) -> bool:
    """Is a run long since there are many operations on small arrays in it, and no loop, which may take plain NumPy a
    thousand times as long? Beside them may be others on large arrays, which take as long either way."""
    if not isinstance(plan, Plan) or len(plan.instructions) < _MANY:
        return False
    if any(each.kernel.backend in ("loops", "structured") for each in plan.instructions):
        return False
    return plan.whole is not None or sum(_is_small(each.node) for each in plan.instructions) >= _MANY


def _is_small(node: Node) -> bool:
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return all(aval.static and aval.size <= _SMALL for aval in avals)


def _fits(leaf: Any, output: Output) -> bool:
    """Is it what the trace says?"""
    aval = output.aval
    assert aval is not None
    if aval.weak:
        return type(leaf) in PYTHON_SCALARS and np.asarray(leaf).dtype == aval.dtype
    is_array = type(leaf) is np.ndarray
    if is_array is not output.is_array or not (is_array or isinstance(leaf, np.generic)) or leaf.dtype != aval.dtype:
        return False
    return leaf.shape == aval.shape if aval.static else leaf.ndim == len(aval.shape)
