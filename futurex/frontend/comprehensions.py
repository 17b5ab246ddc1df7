"""Comprehensions, and generator expressions that one of Python's functions uses up.

They are loops where they are long, where only the run knows how long they are, or where data says which values have an
entry. Else Python goes through them.
"""

from __future__ import annotations

import builtins
import collections
from collections.abc import Callable
from typing import Any

from futurex.frontend import control
from futurex.frontend.calls import call
from futurex.frontend.control.loops import UNROLL
from futurex.frontend.control.rows import Rows
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.folds import FOLDS
from futurex.frontend.lists import Site
from futurex.frontend.made_lists import listed
from futurex.frontend.outside import items
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer

_ON_DATA = object()
"""The site of an Escape that says that data decides which values have an entry."""
_OF_LISTS = frozenset((builtins.list, builtins.sorted, collections.deque))


def _nothing(*_: Any) -> None:
    return None


class Comprehension:
    """One over an iterable of ``values``: ``make`` has Python do it, of values and of what asks tests; ``each`` is the
    body of a loop that does it, of what gets the entries; ``tests``: have only some values entries? ``count``: how
    many has a round of the loop?"""

    def __init__(
        self, code: Any, values: Any, make: Callable[..., Any], each: Callable[[Any], Any], tests: bool, count: int,
        line: int, column: int,
    ) -> None:  # fmt: skip
        self.make, self.each, self.tests, self.site = make, each, tests, Site(code, line, column, 0)
        self.count = count
        self.rows = values.rest() if isinstance(values, Rows) and current().is_newest(values) else None
        self._values = values
        if isinstance(values, control.TracedRange):
            self.rows = _of_range(values)
        elif self.rows is not None:
            control.lose(values)  # the generator goes on with it, as far as it is asked to

    @property
    def values(self) -> Any:
        """What it goes over, anew for each way that is tried."""
        return self._values if self.rows is None else current().remember(Rows(*self.rows))

    @property
    def _is_used_up(self) -> bool:
        """Can it be gone over only once?"""
        return self.rows is None and hasattr(type(self._values), "__next__")

    @property
    def _length(self) -> Any:
        """How many values there are, if they are known by number."""
        from futurex.frontend.iteration import length_of

        return length_of(self._values) if self.rows is None else self.rows[0]

    def _is_long(self) -> bool:
        length = self._length
        return length is not None and (isinstance(length, Tracer) or length > UNROLL)

    # -- lists -------------------------------------------------------------------------------------------------------

    def listed(self) -> Any:
        trace = current()
        if isinstance(self._length, Tracer) or (self.site in trace.stacks and (self.tests or self._is_long())):
            return self._loop()
        if self._is_long():
            try:
                with trace.tentative():
                    return self._loop()
            except Escape:
                self._begin_again()
        if self._is_used_up or (self.count == 1 and not self.tests):
            return self._unrolled(_known)
        try:
            with trace.tentative():
                return self._unrolled(_kept)
        except Escape as escape:
            if escape.site is not _ON_DATA and self.count != -1:
                raise
        try:
            with trace.tentative():
                return self._loop()
        except Escape:
            self._begin_again()
        return self._unrolled(_known)

    def _unrolled(self, kept: Callable[[Any], Any]) -> Any:
        made = self.make(control.while_small(self.values), kept)
        if isinstance(self._values, control.TracedRange) and type(made) is list:
            return listed(made, self.site)  # which is an array in another trace, if this one comes to an end by it
        return current().remember(made)

    def _begin_again(self) -> None:
        """Was the list found to grow by data? Then it is a traced one in another trace."""
        trace = current()
        if trace.may_begin_again and self.site not in trace.stacks and trace.grown.get(self.site) is not None:
            raise Retrace

    def _loop(self) -> Any:
        made = listed([], self.site)
        into = _Into(lambda: made, self.count)
        control.for_(self.values, self.each(into), lambda: (), _nothing, (), None, into.rows)
        return made

    # -- generators --------------------------------------------------------------------------------------------------

    def consumed_by(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that uses the generator up."""
        if not self._is_used_up and (self._is_long() or self.tests):
            if function in FOLDS and not kwargs:
                return self._folded(function, args)
            if function in _OF_LISTS or (self._is_long() and function in (builtins.max, builtins.min)):
                return call(function, (self.listed(), *args), kwargs)
        return self._given_to(function, args, kwargs, _known)

    def _given_to(self, function: Any, args: Any, kwargs: Any, kept: Callable[[Any], Any]) -> Any:
        generator = current().remember(self.make(items(self.values), kept))
        return call(function, (generator, *args), kwargs)

    def _folded(self, function: Any, args: tuple[Any, ...]) -> Any:
        if not self._is_long():
            try:
                with current().tentative():
                    return self._given_to(function, args, {}, _kept)
            except Escape as escape:
                if escape.site is not _ON_DATA:
                    raise
        fold = FOLDS[function](*args)
        return fold.over(self.values, self.each(fold))


class _Into:
    """What puts the entries of rounds into a list that ``get`` gives; ``count``: how many each of them puts."""

    def __init__(self, get: Callable[[], Any], count: int) -> None:
        append, extend = (_calling(get, name) for name in ("append", "extend"))
        self.rows = control.Appended((get, append, extend, count))

    def take(self, test: Callable[[], Any] | None, entry: Callable[[], Any]) -> None:
        if test is None:
            self.rows.put(0, entry())
        else:
            control.if_expression(test(), lambda: self.rows.put(0, entry()), _nothing)

    def go_over(
        self, test: Callable[[], Any] | None, values: Callable[[], Any], each: Callable[[Any], Any], count: int
    ) -> None:
        """A round of a comprehension goes over more values."""

        def go() -> None:
            into = _Into(lambda: self.rows.at(0), count)
            control.for_(control.anew(values()), each(into), lambda: (), _nothing, (), None, into.rows)

        if test is None:
            go()
        else:
            control.if_expression(test(), go, _nothing)


def _calling(get: Callable[[], Any], method: str) -> Callable[[Any], Any]:
    return lambda value: call(getattr(get(), method), (value,), {})


def _of_range(values: control.TracedRange) -> tuple[int, Callable[[Any], Any]] | None:
    """The numbers of a range between bounds that move together, as ``range(i, i + 3)``: in each round as many."""
    from futurex.frontend.iteration import length_of

    length = length_of(values)
    return (length, lambda i: values.start + i * values.step) if isinstance(length, int) else None


def _known(test: Any) -> Any:
    from futurex.frontend.hooks import Runtime

    return Runtime.known(test)


def _kept(test: Any) -> Any:
    """Has a value an entry?"""
    test = control.asked(test)
    if control.is_unknown(test):
        raise Escape("a test on data in a comprehension", "how many entries there are is not known", site=_ON_DATA)
    return test
