"""A futurized function: from a call to a cached plan and back to futures."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeGuard, TypeVar, cast

from futurex.frontend import calls, explain, forked
from futurex.frontend.assembly import left_behind
from futurex.frontend.brake import IN_VAIN, VARIANTS, Brake, in_vain, of_kinds, say
from futurex.frontend.donation import parameters
from futurex.frontend.effects import write_back
from futurex.frontend.errors import Late
from futurex.frontend.forsaken import Kinds
from futurex.frontend.fragments import Fragments
from futurex.frontend.generators import held, share_bits
from futurex.frontend.inflight import Result, failed, foreseen, launched, run_at_once, run_here, run_quickly
from futurex.frontend.itself import called_by_itself
from futurex.frontend.keys import Key, Untraceable, argument_paths, call_key
from futurex.frontend.lane import Lane, lane_of
from futurex.frontend.lying import lying_of, may_write
from futurex.frontend.meanwhile import NOT_NOW, meanwhile
from futurex.frontend.nested import waited_for
from futurex.frontend.number_lists import flat_arguments
from futurex.frontend.observe import Observer
from futurex.frontend.patience import Deadline
from futurex.frontend.plain import call_for_futures, call_plainly
from futurex.frontend.printed import printed_here, without_printed
from futurex.frontend.replay import repeats
from futurex.frontend.standing import Standing
from futurex.frontend.switch import disabled, disabling
from futurex.frontend.symbolic import Families, Symbolic, needs_sizes
from futurex.frontend.trace import calls_futurized, tracing, under_way
from futurex.frontend.tracebacks import fold, folds, settle
from futurex.frontend.turns import in_turn, turn_of
from futurex.frontend.variants import Variant, trace_call
from futurex.ops.opaque import ChangedResult, Made
from futurex.ops.plainly import called_plainly, is_deep, plain_calls, plainly, throughout
from futurex.ops.streams import state_of
from futurex.passes.precision import lower_precision
from futurex.runtime import floating
from futurex.runtime.counters import Profile
from futurex.runtime.local import executor
from futurex.runtime.memory import Memory
from futurex.runtime.plan import Plan
from futurex.tree.graph import Graph
from futurex.tree.pytree import Structure

P = ParamSpec("P")
R = TypeVar("R")
GIVEN_UP = 4  # traces of one kind of call for states of what it depends on; where none was staged, calls are plain
LANES = 6  # short ways that are tried: of the layers of a network, say, whose arrays have other shapes
REPEATED = 3  # calls of one kind, from which on they take the short way


class Futurized(Standing, Generic[P, R]):
    """A function whose calls return at once with futures.

    ``plain`` is the original; ``graph(*args)`` the tree of a call; ``explain()`` what was traced and why not;
    ``on(cluster)`` the same function with data on localities; ``profile()`` the counters of its instructions.
    """

    # What others wrap (``functools.wraps``) gives them its ``__dict__``, and would give them locks and traces with it.
    __slots__ = (
        "_acts", "_brake", "_device", "_donate", "_escape", "_families", "_fragments", "_itself", "_lane", "_lanes",
        "_library", "_limit", "_lock", "_may_be_plain", "_means_numpy", "_precision", "_strict", "_turns", "_variants",
        "_warned", "plain",
    )  # fmt: skip

    def __init__(
        self, function: Callable[P, R], escape: str = "fragment", donate: Any = (), *, device: str = "cpu",
        precision: str = "", strict: bool = False, library: bool = False, limit: int | None = None,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function, updated=("__dict__",) if isinstance(function, FunctionType) else ())
        self.plain = function
        self._itself: Callable[P, R] | None = None  # as it is where it calls itself in plain calls
        self._escape = escape
        self._strict = strict
        self._donate = parameters(function, donate)
        self._device = device
        self._precision = precision
        self._limit = limit
        self._fragments = Fragments() if escape == "fragment" and not strict else None
        self._variants = Kinds(self)
        self._brake = Brake()
        self._families = Families(self._brake.given_up)
        self._lane: Lane | None = None  # of the last call
        self._lanes: tuple[Lane, ...] = ()  # of the last kinds of calls
        self._lock = forked.lock()
        self._acts: bool | None = None  # do calls change what is not their own? None: there was no staged one yet
        self._turns = 0
        self._library = self._warned = library  # what everybody calls has arguments of many kinds
        self._may_be_plain = not strict and escape != "error"
        self._means_numpy = device == "cpu" and not (strict or library or precision or limit)

    # -- calling -----------------------------------------------------------------------------------------------------

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if under_way and tracing():
            return self.__fx_stage__(args, kwargs)
        if plain_calls and called_plainly() and not self._library:
            if self._means_numpy and (throughout() or is_deep(self.plain)):
                if self._itself is None:
                    self._itself = called_by_itself(self)
                return self._itself(*args, **kwargs)
            return waited_for(self, args, kwargs)
        try:
            if ((disabling and disabled()) or floating.strict()) and not self._strict:
                return call_plainly(self.plain, args, kwargs)
            if self._acts is not False and not (lock := turn_of(self, args))._is_owned():
                return in_turn(lock, self, args, kwargs)
            lane = self._lane
            if lane is not None and not (self._strict and floating.strict()):
                found = lane.match(args, kwargs)
                if found is None and len(self._lanes) > 1:
                    lane, found = self._other(lane, args, kwargs)
                choice = lane.choice
                if found is not None and choice is not None and choice.goes_on():
                    return lane.either_way(self._run_again, found, args, kwargs, 0.0, looked=False)
                began = time.perf_counter() if choice is not None and choice.open else 0.0
                if found is not None and lane.valid():
                    if lane.variant.graph is None:
                        return lane.within.call(lane.plain.call, args, kwargs)
                    if choice is not None and choice.open:
                        return lane.either_way(self._run_again, found, args, kwargs, began)
                    return self._run_again(lane, found, args, kwargs)
            elif not self._variants and self._brake.patience.refuses(args, kwargs):
                return self._brake.plain(self.plain, call_for_futures, args, kwargs)
            leaves: list[Any] = []
            key: Key | None = None
            try:
                key = call_key(args, kwargs, leaves)
            except Untraceable as error:
                if not self._may_be_plain:
                    raise error.as_error() from None
            if key is None:
                self._acts = self._acts or False
                return self._run_plain(args, kwargs)
            variant = self._variant(key, args, kwargs, leaves)
            if variant is None:
                self._acts = self._acts or False
                return self._brake.plain(self.plain, call_for_futures, args, kwargs)
            if variant.escape is not None or variant.error is not None:
                if self._may_be_plain and (variant.given_up or variant.error is not None):
                    self._remember(variant, leaves, args, kwargs)
                return self._run_untraced(variant, args, kwargs)
            before, self._acts = self._acts, bool(variant.changes or self._acts)
            if before is False and self._acts:  # other threads may have changed what the call has found
                return self(*args, **kwargs)
            self._remember(variant, leaves, args, kwargs)
            lane = variant.lane  # of a trace that others take turns with
            choice = lane.choice if lane is not None else None
            if choice is not None and choice.open:
                found = leaves if variant.opened else lane.match(args, kwargs)
                if found is not None:
                    return lane.either_way(self._run_again, found, args, kwargs, time.perf_counter())
            return self._run(variant, leaves, args, kwargs)
        except (Exception, KeyboardInterrupt) as error:
            fold(error)
            raise

    def _remember(self, variant: Variant, leaves: list[Any], args: Any, kwargs: Any) -> None:
        """Let the next call of this kind take the short way, if it is not the first."""
        if variant.meanwhile is not None:
            return
        variant.calls += 1
        if variant.calls == REPEATED:
            variant.lane = lane_of(variant, flat_arguments(args, kwargs)[1], leaves, choice=self._means_numpy)
        self._lane = lane = variant.lane
        if lane is not None and lane not in self._lanes and lane.looks:
            self._lanes = (lane, *self._lanes)[:LANES]

    def _other(self, lane: Lane, args: Any, kwargs: Any) -> tuple[Lane, list[Any] | None]:
        """The short way of a call that is not like the last one, and its leaves; without them where there is none."""
        for other in self._lanes:
            if other is not lane and (found := other.match(args, kwargs)) is not None:
                self._lane = other
                return other, found
        return lane, None

    def _run_again(self, lane: Lane, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        variant, plan = lane.variant, lane.variant._plan
        if variant.rest > 1 and not self._strict:
            variant.rests()
            return lane.plain.call(variant.plainly, args, kwargs)
        if lane.pack is None or not isinstance(plan, Plan) or variant.rest:
            return self._run(variant, leaves, args, kwargs)
        inputs = leaves if lane.inputs is None else [leaves[k] for k in lane.inputs]
        if variant.captures:
            inputs = inputs + variant.captured()
        if lane.lies:
            inputs = variant.lying.inputs(inputs)
        taken = lane.take(inputs) if lane.take is not None else (inputs, ())
        if taken is not None:
            values, owners = taken
            futures = None
            try:
                if lane.fits and (results := run_quickly(plan, inputs)) is not None:
                    variant.failed = 0
                    return lane.pack(results)
                found = run_at_once(executor(), plan, values, lane.read, owners, lane.names)
            except Exception as error:
                futures = failed(plan, error)
            if futures is not None:  # made again as plain NumPy it fails with nothing being handled
                return self._left(variant, futures, inputs, leaves, [], printed_here(), args, kwargs)
            if found is not None:
                variant.failed = 0
                return lane.pack(*found)
            del taken, values  # what is given away is copied where others hold it
        return self._run(variant, leaves, args, kwargs)

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called from staged code: part of the caller's tree."""
        calls_futurized(users=not self._library)
        if self._precision:
            raise TypeError(
                f"{self._name()} was given to fx.autocast and is called inside another futurized function or "
                "transform, whose products it cannot change; give that one to fx.autocast, derivatives included"
            )
        return calls.call(self.plain, args, kwargs)

    def _held(self, key: Key) -> Variant | None:
        known = self._variants.get(key, ())
        if known and known[-1].settled:
            return known[-1]
        for variant in known:
            if variant.valid():
                self._brake.serves(variant)
                return variant
        return None

    def _variant(self, key: Key, args: Any, kwargs: Any, given: list[Any] | None = None) -> Variant | None:
        """The trace for a call. Of one whose leaves are ``given`` None where tracing has been in vain for too long, or
        takes too long for a call without arrays."""
        if (variant := self._held(key)) is not None:
            return variant
        free = given is None or not (self._means_numpy and self._may_be_plain)
        deadline = Deadline() if free or given is None else self._brake.patience.deadline(given)
        if deadline is None and not self._families.traced:
            return None
        try:
            return self._new_variant(key, args, kwargs, given is not None, deadline)
        except Late:
            assert deadline is not None
            self._brake.was_late(deadline, args)
            return None

    def _new_variant(self, key: Key, args: Any, kwargs: Any, rests: bool, deadline: Deadline | None) -> Variant | None:
        """A trace for a call that has none of its own, if there is time for one, or one for many sizes. Raises Late
        behind the deadline."""
        with self._lock:
            if (variant := self._held(key)) is not None:  # another thread may have traced it meanwhile
                return variant
            last = self._variants.get(key, ())[-GIVEN_UP:]
            if self._may_be_plain and len(last) == GIVEN_UP and all(each.given_up for each in last):
                last[-1].settled = True  # what the function depends on changes at every call
                return last[-1]
            leaves, structure = flat_arguments(args, kwargs)
            if rests and self._brake.rests and not self._families.traced and self._rests(key, structure):
                return None
            found = self._families.find(structure, leaves, key) if self._limit is None else None
            if found is not None and found.variant is not None and found.variant.valid():
                self._brake.serves(found.variant)
                return found.variant
            if deadline is None or (rests and self._rests(key, structure)):
                return None
            if found is not None and (symbolic := self._symbolic(found, leaves, structure, deadline)) is not None:
                return symbolic
            self._variants.forget()
            variant = self._traced(leaves, structure, None, self._variants.get(key, ()), deadline)
            self._brake.patience.traced(deadline)
            if self._donate:
                variant.donate(argument_paths(self.plain, structure), self._donate)
            variant.lying = lying_of(variant, leaves)
            variant.share(self._traces())
            if self._means_numpy and self._may_be_plain and variant._plan is None:
                variant.meanwhile = meanwhile(variant, self.plain)
            known = self._variants.get(key, [])
            self._variants[key] = [*known[1 - GIVEN_UP :], variant]
            self._forsake(known[: 1 - GIVEN_UP])
            self._variants.note(variant)
            if len(self._variants) > VARIANTS:
                _, gone = self._variants.popitem(last=False)
                self._brake.given_up(gone)
                self._forsake(gone)
                self._warn_of_kinds(structure)
            return variant

    def _forsake(self, variants: Sequence[Variant]) -> None:
        """These traces are not kept any longer."""
        if variants:
            self._lanes = tuple(each for each in self._lanes if all(each.variant is not gone for gone in variants))

    def _symbolic(
        self, found: Symbolic, leaves: list[Any], structure: Structure, deadline: Deadline
    ) -> Variant | None:
        """A trace for many sizes, which the calls so far suggest, if it is possible."""
        variant = self._traced(leaves, structure, found.avals, [found.variant] if found.variant else (), deadline)
        found.variant, variant.lying = variant, lying_of(variant, leaves)
        if variant.graph is None or needs_sizes(variant.graph):
            found.variant, found.refused = None, True
        return found.variant

    def _rests(self, key: Key, structure: Structure) -> bool:
        """Does a call go as plain NumPy because the last traces served one call each?"""
        before = self._variants.get(key, ())
        if not self._may_be_plain or self._library or not self._brake.stops(IN_VAIN if before else VARIANTS + 1):
            return False
        if self._warned or self._brake.quiet:
            return True
        if before and not self._brake.dear:
            self._warn(in_vain(self._name(), before[-1]))
        else:
            self._warn_of_kinds(structure)
        return True

    def _traced(
        self, leaves: list[Any], structure: Structure, opened: Any, before: Sequence[Variant], deadline: Deadline
    ) -> Variant:
        variant = trace_call(self.plain, leaves, structure, self._fragments, opened, before, deadline)
        variant.device, variant.limit = self._device, self._limit
        if self._precision and variant.graph is not None:
            variant.graph = lower_precision(variant.graph, self._precision)
        self._brake.traced(variant)
        return variant

    def _warn(self, text: str) -> None:
        """Say it, if nothing has been said yet."""
        if not self._warned:
            self._warned = True
            say(text)

    def _warn_of_kinds(self, structure: Structure) -> None:
        paths, last = argument_paths(self.plain, structure), [*self._variants.values()][-8:]
        self._warn(of_kinds(self._name(), paths, last, dear=self._brake.dear))

    def _name(self) -> str:
        return getattr(self.plain, "__qualname__", type(self.plain).__name__)

    def _run_untraced(self, variant: Variant, args: Any, kwargs: Any) -> Any:
        if self._strict or self._escape == "error":
            if variant.escape is not None:
                raise variant.escape.as_error()
            raise self._error_of(variant)
        if variant.escape is not None and not variant.given_up:
            assert self._fragments is not None
            known = self._fragments.lessons
            result = self._observe(args, kwargs, [])
            if self._fragments.lessons > known:
                self._forget(variant)  # the next call knows more of what the opaque ones return
            else:
                variant.unlearned += 1
            return result
        lane = variant.lane  # of a trace that others take turns with
        if lane is None:
            return call_for_futures(variant.plainly, args, kwargs)
        return lane.within.call(lane.plain.call, args, kwargs)

    def _error_of(self, variant: Variant) -> BaseException:
        """What tracing raised, for the caller alone: raised, it holds the frames that it goes through."""
        assert variant.error is not None
        self._forget(variant)
        settle(variant.error)
        return variant.error

    def _forget(self, variant: Variant) -> None:
        with self._lock:
            self._lane, self._lanes = None, ()
            for key, variants in self._variants.items():
                self._variants[key] = [each for each in variants if each is not variant]

    def _observe(self, args: Any, kwargs: Any, log: list[Made], error: BaseException | None = None) -> Any:
        """The call as plain NumPy that looks at what opaque functions return; those in the log are not called again."""
        fragments = self._fragments
        assert fragments is not None
        known = fragments.lessons
        result = call_for_futures(plainly(Observer(fragments, log).twin(self.plain)), args, kwargs)
        if isinstance(error, ChangedResult):
            fragments.refuse(error.function, known)
        return result

    def _run_plain(self, args: Any, kwargs: Any) -> Any:
        """Plain NumPy: always right."""
        return call_for_futures(plainly(self.plain), args, kwargs)

    def _run(self, variant: Variant, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        captured = variant.captured() if variant.captures else []
        bridge = variant.meanwhile
        if bridge is not None:
            given = [leaves[k] for k in variant.inputs] + captured if variant.generators else []
            found = bridge.call(args, kwargs, [given[k] for k in variant.generators])
            if found is not NOT_NOW:
                return found
        rests = variant.rests() and not self._strict
        repeated = variant.apart and repeats((args, kwargs), variant.held.now())
        if rests or repeated or (variant.written and not may_write(variant, leaves, captured)):
            return self._run_plain(args, kwargs)
        inputs: list[Any] = [leaves[k] for k in variant.inputs] + captured + [list[Made]()] * variant.has_log
        inputs = variant.lying.inputs(inputs)
        if not variant.generators:
            return self._finish(variant, inputs, leaves, captured, args, kwargs)
        generators = [inputs[k] for k in variant.generators]
        if share_bits(generators):
            return self._run_plain(args, kwargs)
        with held(generators):
            for k in variant.generators:
                inputs[k] = state_of(inputs[k])
            return self._finish(variant, inputs, leaves, captured, args, kwargs)

    def _finish(
        self, variant: Variant, inputs: list[Any], leaves: list[Any], captured: list[Any], args: Any, kwargs: Any
    ) -> Any:
        before = printed_here()
        try:
            futures = self._started(variant, inputs)
        except MemoryError as full:  # there is no room for what the plan needs at once
            if self._strict or self._limit is not None or variant.gives or variant.wrote(full, inputs, leaves):
                raise
            futures = None
        if futures is None:
            return self._run_plain(args, kwargs)  # which may do with less, or fail where its handlers see it
        return self._left(variant, futures, inputs, leaves, captured, before, args, kwargs)

    def _left(
        self, variant: Variant, futures: Sequence[Result], inputs: list[Any], leaves: list[Any], captured: list[Any],
        before: int, args: Any, kwargs: Any,
    ) -> Any:  # fmt: skip
        """What a call leaves behind, of whose run these are the results; ``before`` it so much had been printed. One
        that waits may have to be made again as plain NumPy."""
        if variant.waits:
            error = variant.error_of(futures)
            if isinstance(error, ChangedResult):
                self._forget(variant)
            if variant.has_log and error is not None:
                with without_printed(printed_here() - before):
                    return self._observe(args, kwargs, inputs[-1], error)
            if not (error is None or self._strict or variant.wrote(error, inputs, leaves)):
                with without_printed(printed_here() - before):  # it fails as NumPy does, with what was written by then
                    return self._run_plain(args, kwargs)
            if error is not None:
                settle(error)
                raise error
            write_back(variant, self._name(), leaves, captured, inputs, futures)
        return left_behind(variant, leaves, captured, futures, (args, kwargs))

    def _started(self, variant: Variant, inputs: list[Any]) -> Sequence[Result]:
        with floating.silenced(variant.quiet):
            if not (self._strict and floating.strict()):
                if variant.has_log or variant.prints:
                    return run_here(variant.plan, inputs)
                return launched(executor(), variant.plan, inputs, variant.waits or variant.chooses, variant.gives)
            futures = run_here(variant.checked, inputs)
            for failure in filter(None, (future.exception() for future in futures)):
                settle(failure)
                raise failure
            return futures

    # -- looking -----------------------------------------------------------------------------------------------------

    @folds
    def trace(self, /, *args: P.args, **kwargs: P.kwargs) -> Variant:
        """The trace for these arguments.

        Raises StagingError with the user's line where the function cannot be staged.
        """
        try:
            variant = cast(Variant, self._variant(call_key(args, kwargs, []), args, kwargs))
        except Untraceable as error:
            raise error.as_error() from None
        if variant.escape is not None:
            raise variant.escape.as_error()
        if variant.error is not None:
            raise self._error_of(variant)
        return variant

    @folds
    def graph(self, /, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """The tree of a call, without running it; ``print`` it for executable Python.

        >>> import numpy as np, futurex as fx
        >>> len(fx.futurize(lambda x: x * 2 + 1).graph(np.ones(3)).nodes)
        5
        """
        graph = self.trace(*args, **kwargs).graph
        assert graph is not None
        return graph

    def lower(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The call as a program: a flat graph, and the structures of arguments and result (:func:`futurex.lower`)."""
        from futurex.frontend.program import lower

        return lower(self.plain, *args, **kwargs)

    def memory(self, /, *args: P.args, **kwargs: P.kwargs) -> Memory:
        """The memory that a run will take, in bytes: ``peak``, and what it is made of. Nothing is run for it.

        ``first`` is that of a first call, for which there is no code and which may copy its arguments. The one function
        that a plan over small arrays becomes is compiled here, and its memory counted.
        """
        variant, leaves = self.trace(*args, **kwargs), list[Any]()
        call_key(args, kwargs, leaves)
        inputs = variant.lying.inputs([leaves[k] for k in variant.inputs])
        inputs = [each for place, each in enumerate(inputs) if place not in variant.gives]
        return foreseen(variant.plan, inputs, variant.waits or variant.chooses or variant.has_log)

    def profile(self) -> Profile:
        """A row for every instruction of the calls so far: what it is, how often it ran, how long, and who computed it.

        Printed, it is a table with those first that take longest; a row's ``ns`` and the like are numbers. Calls that
        ran as plain NumPy have no rows.
        """
        plans = dict.fromkeys(variant._plan for variant in self._traces() if variant._plan is not None)
        return Profile(row for plan in plans for row in plan.profile())

    def _traces(self) -> list[Variant]:
        return [*itertools.chain(*self._variants.values()), *self._families.variants()]

    def explain(self) -> str:
        """What was traced, what was not and why, and how the arrays of a net lie in memory: one paragraph a trace, one
        for all that were given up for the same reason."""
        traces = self._traces()
        lines = [f"{self._name()}: {len(traces)} trace(s)"]
        lines += explain.paragraphs(traces) if traces else explain.not_traced_yet(self._fragments)
        if self._brake.impatient:
            lines.append("- other calls run as plain NumPy: traces took longer than the calls that they were made for")
        if self._brake.patience.was_lost:
            lines.append("- other calls run as plain Python: a trace without arrays took longer than they are worth")
        return explain.Text("\n".join(lines))

    def on(self, cluster: Any) -> Any:
        """The function on a cluster: ``f.on(cluster)(...)``; a ``memory_limit`` is that of each locality."""
        from futurex.frontend.bound import Bound

        return Bound(self, cluster, self._limit, self._device)

    def moved(self, device: str) -> Futurized[P, R]:
        """The same function for another device; itself where it runs there already."""
        if device == self._device:
            return self
        return self._like(device=device)

    @property
    def precision(self) -> str:
        """The format that its products are taken in; empty where they are as they are written."""
        return self._precision

    def lowered(self, precision: str) -> Futurized[P, R]:
        """The same function with its products in a narrow format (:func:`futurex.autocast`)."""
        return self._like(precision=precision)

    def limited(self, limit: int) -> Futurized[P, R]:
        """The same function whose runs take at most ``limit`` bytes."""
        return self._like(limit=limit)

    def _like(self, **options: Any) -> Futurized[P, R]:
        return Futurized(self.plain, **{**self.options(), **options})

    def options(self) -> dict[str, Any]:
        """What the function was futurized with, by the names of ``Futurized``'s parameters."""
        return {
            "escape": self._escape, "donate": self._donate, "device": self._device, "precision": self._precision,
            "strict": self._strict, "library": self._library, "limit": self._limit,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<futurized {self._name()}{'' if self._device == 'cpu' else f' on {self._device}'}>"


def is_futurized(function: Any) -> TypeGuard[Futurized[Any, Any]]:
    """Is it one, and no proxy (wrapt's) that says that it is one, and does something around its calls?"""
    return issubclass(type(function), Futurized)
