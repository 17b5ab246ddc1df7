"""Functions that call themselves until data says that it is enough: staged once, and run as a loop with a stack.

Arguments that every call passes on as they are (a function, coefficients, a tolerance) stay what the first call gives;
the others have one type on all levels. What the function returns is found from the paths that do not call it again. An
array that it writes goes into every call and comes out of it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.closing import close
from futurex.frontend.control import machine
from futurex.frontend.control.values import (
    Kind,
    aliases_of,
    coerce,
    common_type,
    is_loose,
    is_numeric,
    merged_tracer,
    owned_cells,
    raw,
    same_value,
    same_view,
)
from futurex.frontend.errors import Escape, Signal, Unfinished
from futurex.frontend.held import Guard
from futurex.frontend.outside import fingerprint
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, current
from futurex.frontend.tracer import SCALARS, entered
from futurex.ops.control import Failure
from futurex.ops.recursion import described
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, const, item, param
from futurex.tree.pytree import Structure, flatten, unflatten

Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]
FIRST_LEVEL = object()  # the site of an Escape that would not happen if the first call stood by itself
ATTEMPTS = 12  # traces of a function until the types of all its calls agree
CALLS = 64  # of the function in its own body, loops of known length unrolled: a search over all places has hundreds
LIMIT = 1000  # Python's own, if nobody raises it: rows of the stack cost memory
_FLAG = Aval((), np.dtype(bool))
_TOO_DEEP = Failure(RecursionError, ("maximum recursion depth exceeded",))


def stage(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
    """A call of a function that is known to call itself; ``run`` traces its body for given arguments."""
    trace = current()
    given = _Arguments.of(function, args, kwargs)
    for recursion in trace.staged:
        if recursion.function is function:
            if recursion is not trace.staged[-1]:
                raise recursion._refusal("another function that calls itself calls it in turn")
            return recursion.call(given)
    is_first = all(code is not function.__code__ for code, _ in trace.calls[1:])
    try:
        with trace.tentative():
            return _Recursion(function, given, is_first).staged(run)
    except Escape as escape:
        if escape.site is not FIRST_LEVEL:
            raise
    return run(args, kwargs)


class _Again(Signal):
    """A call inside the function has shown what was not known of its arguments or arrays."""


@dataclass
class _Arguments:
    """Arguments of one call in the order of the signature, defaults filled in and tuples taken apart."""

    shape: Any
    leaves: list[Any]

    @classmethod
    def of(cls, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        try:
            bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        except TypeError as error:
            raise Escape(f"a call of {function.__qualname__}", str(error)) from None
        bound.apply_defaults()
        nest = bound.args, tuple(bound.kwargs.values())
        return cls((_shape(nest), tuple(bound.kwargs)), list(map(entered, _leaves(nest))))

    def call(self, run: Run, leaves: list[Any]) -> Any:
        shape, names = self.shape
        args, values = _filled(shape, iter(leaves))
        return run(args, dict(zip(names, values, strict=True)))


def _shape(value: Any) -> Any:
    return tuple(map(_shape, value)) if type(value) is tuple else None


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) is tuple:
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value


def _filled(shape: Any, leaves: Iterator[Any]) -> Any:
    return next(leaves) if shape is None else tuple(_filled(each, leaves) for each in shape)


@dataclass
class _Results:
    """What a call returns: nested as ``structure``, an entry for each leaf. ``avals``: None for a constant."""

    structure: Structure
    avals: list[Aval | None]
    constants: list[Any]
    arrays: list[bool]
    loose: list[bool]  # may a number be Python's or NumPy's?
    shared: list[bool]  # may an array be the storage of another name?

    @classmethod
    def of(cls, result: Any, start: int) -> _Results:
        """The types of what a trace of the body since node ``start`` has returned."""
        leaves, structure = flatten(result)
        found, owned = cls(structure, [], [], [], [], []), owned_cells([result], start)
        for leaf in map(entered, leaves):
            numeric = is_numeric(leaf)
            if not numeric and type(leaf) not in (str, type(None)):
                raise Escape(f"a recursion that returns a {type(leaf).__qualname__}", "it may depend on data")
            aval = raw(leaf).aval if numeric else None
            if aval is not None and not aval.static:
                raise Escape("a recursion that returns arrays of many sizes", "one stack holds arrays of one size")
            found.avals.append(aval)
            found.constants.append(None if numeric else leaf)
            found.arrays.append(numeric and Kind.of(leaf).is_array)
            found.loose.append(numeric and is_loose(leaf))
            found.shared.append(numeric and bool(aliases_of(leaf, owned)))
        return found

    def joined(self, before: _Results | None) -> _Results:
        """What is returned on these paths, or on those seen before."""
        if before is None:
            return self
        if (self.structure, self.constants, self.arrays) != (before.structure, before.constants, before.arrays):
            raise Escape("a recursion that returns different things", "what it returns depends on data")
        avals = [a and b and common_type(a, b, "a result") for a, b in zip(self.avals, before.avals, strict=True)]
        mixed = [a != b for a, b in zip(self.avals, before.avals, strict=True)]
        loose = [any(each) for each in zip(self.loose, before.loose, mixed, strict=True)]
        shared = [any(each) for each in zip(self.shared, before.shared, strict=True)]
        return _Results(self.structure, avals, self.constants, self.arrays, loose, shared)

    @property
    def types(self) -> list[Aval]:
        return [aval for aval in self.avals if aval is not None]


@dataclass
class _Recursion:
    """One function with calls of itself. ``avals``: of the arguments that change from level to level.

    ``is_first``: if the first call has types of its own, it may stand by itself, and its calls are the first ones.
    """

    function: types.FunctionType
    given: _Arguments
    is_first: bool
    avals: list[Aval | None] = field(default_factory=list)
    loose: list[bool] = field(default_factory=list)  # is it Python's number on some levels, and NumPy's on others?
    inside: list[Any] = field(default_factory=list)  # the arguments as the body sees them
    cells: list[Cell] = field(default_factory=list)  # arrays that the body writes
    results: _Results | None = None
    calls: int = 0  # that its body makes
    base: int = 0  # how many calls of Python's are around the body
    frames: int = 1  # and around the next level's

    def staged(self, run: Run) -> Any:
        trace = current()
        if trace.protected:
            raise Escape(f"a recursion of {self.function.__qualname__} in a try statement", "its end depends on data")
        self.avals, self.loose = [None] * len(self.given.leaves), [False] * len(self.given.leaves)
        self.base = len(trace.calls)
        trace.staged.append(self)
        try:
            for _ in range(ATTEMPTS):
                built = self._attempt(run)
                if built is not None:
                    return self._returned(*built)
        finally:
            trace.staged.remove(self)
        raise self._refusal("its calls keep changing the types of what they take and return")

    def _refusal(self, why: str, site: Any = None) -> Escape:
        return Escape(f"a recursion of {self.function.__qualname__} whose end depends on data", why, site=site)

    # -- the body ----------------------------------------------------------------------------------------------------

    def _attempt(self, run: Run) -> tuple[list[Node], Node] | None:
        """Trace the body on stand-ins; None if that showed something new of what calls take and return."""
        trace = current()
        self.calls = 0
        with trace.scope() as scope:
            params = self._stand_ins()
            for cell in self.cells:
                params.append(param(cell.value.aval, "array"))
                scope.journal[cell] = cell.value
                cell.restore(params[-1])
            params.append(param(_FLAG, "done"))
            scope.effects.append(params[-1])
            try:
                result = self.given.call(run, self.inside)
            except _Again:
                return None
            except Unfinished:
                raise self._refusal("no path through it ends") from None
            except Escape:
                raise
            except Exception as error:
                what = f"{type(error).__name__} in a recursion: {error}"
                raise Escape(what, "it may belong to the trace, not to the run") from error
            if scope.state:
                raise self._refusal("it changes lists, dicts or objects that others see")
            written = [cell for cell in scope.journal if cell not in self.cells]
            if any(cell.value.dtype.hasobject for cell in written):
                raise self._refusal("it draws random numbers")
            if written:
                self.cells += written
                return None
            results = _Results.of(result, scope.start).joined(self.results)
            if results != self.results:
                self.results = results
                return None
            leaves = flatten(result)[0]
            outs = [coerce(raw(entered(leaf)), aval) for leaf, aval in zip(leaves, results.avals, strict=True) if aval]
            outs += [cell.value for cell in self.cells]
            trace.settle_failing(outs)
            if trace.log is not None:
                raise self._refusal("it makes calls that cannot be staged")
            outs.append(scope.effects[-1])
        (graph,), free = close([outs], [params], scope.start, [self.function.__name__])
        depth = min(sys.getrecursionlimit(), LIMIT) // 2 // self.frames
        return machine.run(graph, self._inputs(self.given), free, depth)

    def _stand_ins(self) -> list[Node]:
        params: list[Node] = []
        self.inside = list(self.given.leaves)
        for k, aval in enumerate(self.avals):
            if aval is not None:
                params.append(param(aval, "argument"))
                kind = Kind(Kind.of(self.given.leaves[k]).is_array)
                self.inside[k] = merged_tracer(params[-1], kind, (), loose=self.loose[k])
                if aval.ndim:
                    self.inside[k]._cell.entangle("another level of a recursion may hold")
        return params

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, given: _Arguments) -> Any:
        """A call of the function in its own body."""
        trace = current()
        if trace.protected:
            raise self._refusal("it is called in a try statement")
        self.calls += 1
        if self.calls > CALLS:  # each is traced several times, with all that comes behind it
            raise self._refusal(f"its body calls it at more than {CALLS} places")
        self.frames = max(self.frames, len(trace.calls) - self.base)
        if given.shape != self.given.shape:
            raise self._refusal("its calls have arguments of other structures")
        news = [self._differs(k, leaf) for k, leaf in enumerate(given.leaves)]  # of all arguments at once
        if any(news):
            raise _Again
        if self.results is None:
            raise Unfinished
        trace.settle_failing([])
        effects = trace.scopes[-1].effects
        before = effects[-1] if effects else const(np.True_)
        nodes = self._inputs(given, before)
        types_ = [*self.results.types, *(cell.value.aval for cell in self.cells), _FLAG]
        call = apply("recur", *nodes, results=tuple(map(described, types_)))
        effects.append(item(call, len(types_) - 1))
        return self._result([item(call, k) for k in range(len(types_) - 1)], given)

    def _differs(self, k: int, leaf: Any) -> bool:
        """Is it news that this argument changes from level to level?"""
        start, aval = self.inside[k], self.avals[k]
        if aval is None:
            constant = type(leaf) in (*SCALARS, str, type(None)) or isinstance(leaf, np.generic)
            equal = constant and type(leaf) is type(start) and same_value(leaf, start)
            if leaf is start or same_view(leaf, start) or equal:
                return False
            if not is_numeric(leaf) or not is_numeric(start):
                raise self._refusal("it passes other objects to itself than it was given")
        elif not is_numeric(leaf):
            raise self._refusal("it passes other objects to itself than it was given")
        first = self.given.leaves[k]
        wide = raw(first).aval if aval is None else aval
        loose = self.loose[k] or is_loose(leaf, first)
        if raw(leaf).aval != wide or Kind.of(leaf).is_array != Kind.of(first).is_array:
            if self.is_first:
                raise self._refusal("an argument changes its type from level to level", FIRST_LEVEL)
            wide = common_type(wide, raw(leaf).aval, "an argument")
        if not wide.static:
            raise self._refusal("it takes arrays of many sizes")
        news = wide != aval or loose != self.loose[k]
        self.avals[k], self.loose[k] = wide, loose
        return news

    def _inputs(self, given: _Arguments, before: Node | None = None) -> list[Node]:
        """Changing arguments, arrays that are written, and what must happen before."""
        changing = [(leaf, aval) for leaf, aval in zip(given.leaves, self.avals, strict=True) if aval is not None]
        if any(aval.ndim and leaf._cell in self.cells for leaf, aval in changing):
            raise self._refusal("it writes an array that another level may have as an argument")
        nodes = [coerce(raw(leaf), aval) for leaf, aval in changing]
        if before is None:
            effects = current().scopes[-1].effects if current().scopes else current().effects
            before = effects[-1] if effects else const(np.True_)
        return [*nodes, *(cell.value for cell in self.cells), before]

    def _result(self, nodes: list[Node], given: _Arguments) -> Any:
        """What a call returns, and what it leaves in the arrays that it writes."""
        assert self.results is not None
        rest, leaves = iter(nodes), list(self.results.constants)
        lent = [leaf._cell for leaf, aval in zip(given.leaves, self.avals, strict=True) if aval and aval.ndim]
        for k, aval in enumerate(self.results.avals):
            if aval is not None:
                aliases = (*lent, *self.cells) if self.results.shared[k] else ()
                kind, loose = Kind(self.results.arrays[k]), self.results.loose[k]
                leaves[k] = merged_tracer(next(rest), kind, aliases, loose=loose)
                if self.results.shared[k]:
                    leaves[k]._cell.entangle(SAME_IN_SOME_BRANCHES)
                    leaves[k]._cell.which = None  # nobody counts through levels
        for cell in self.cells:
            cell.settle(next(rest))
        value = unflatten(self.results.structure, leaves)
        return value if self.results.structure.kind is None else current().remember_all(value)

    def _returned(self, nodes: list[Node], ended: Node) -> Any:
        """The result of the first call, where the run goes no deeper than it may."""
        trace = current()
        trace.waits = trace.recurs = True  # where it does, plain Python runs the call again, and knows its own limit
        limit = sys.getrecursionlimit()
        trace.guards["recursion limit"] = Guard("the recursion limit", sys.getrecursionlimit, limit, fingerprint(limit))
        trace.effect("check", ended, failure=_TOO_DEEP)
        return self._result(nodes[:-1], self.given)
