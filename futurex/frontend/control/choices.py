"""Expressions that choose: ``then if test else orelse``, ``and``, ``or``, ``not``, and ``assert``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from futurex.frontend.control.branches import if_
from futurex.frontend.control.paths import explored, explored_round
from futurex.frontend.control.values import Get, Set, asked, is_unknown, truth
from futurex.frontend.errors import mark
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, fresh


def if_expression(test: Any, then: Callable[[], Any], orelse: Callable[[], Any], learns: bool = True) -> Any:
    """``then if test else orelse``."""
    return if_(test, then, orelse, lambda: (), lambda state: None, (), learns)


def body(run: Callable[[], Any]) -> Any:
    """Run the body of a function; choices in it that cannot be merged where they end are merged at its end."""
    return explored(run, functools.partial(if_expression, learns=False), lambda: None)


def round_(run: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...]) -> None:
    """Run the body of a loop; choices in it that cannot be merged where they end are merged at its end."""
    before = get()

    def merge(test: Tracer, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        return if_(test, then, orelse, get, set_, names, learns=False)

    explored_round(run, merge, lambda: set_(before))


def and_(first: Any, *others: Callable[[], Any]) -> Any:
    """``first and others...``: the first false one, evaluated no further."""
    if not others:
        return first
    second, *rest = others
    test = asked(first)
    if is_unknown(test):
        return _known_anyway(first, False, lambda other: if_expression(test, other, lambda: first), second, rest, and_)
    return and_(second(), *rest) if test else first


def or_(first: Any, *others: Callable[[], Any]) -> Any:
    """``first or others...``: the first true one, evaluated no further."""
    if not others:
        return first
    second, *rest = others
    test = asked(first)
    if is_unknown(test):
        return _known_anyway(first, True, lambda other: if_expression(test, lambda: first, other), second, rest, or_)
    return first if test else or_(second(), *rest)


def _known_anyway(
    first: Any, outcome: bool, choose: Callable[[Callable[[], Any]], Any], second: Callable[[], Any],
    rest: list[Callable[[], Any]], join: Callable[..., Any],
) -> Any:  # fmt: skip
    """What is chosen of a traced value and what follows it: of Python's bool and ``False``, ``and`` gives False."""
    found: list[Any] = []

    def others() -> Any:
        found[:] = [join(second(), *rest)]
        return found[0]

    chosen = choose(others)
    own = isinstance(first, Tracer) and first.aval.weak and first.dtype.kind == "b" and not first._loose
    return outcome if own and len(found) == 1 and found[0] is outcome else chosen


def not_(value: Any) -> Any:
    value = asked(value)
    return fresh(emit("python_scalar", emit("logical_not", truth(value)), kind="b")) if is_unknown(value) else not value


def assert_not(test: Any, error: Exception) -> None:
    """Raise where the test is true, as an ``if`` of the user's would."""

    def fail() -> None:
        failed = type(error)(*error.args)
        mark(failed)
        raise failed

    if_(test, fail, lambda: None, lambda: (), lambda state: None, ())


def assert_(test: Any, message: Callable[[], Any] | None) -> None:
    """``assert test, message``: checked at run time when the test is traced."""

    def fail() -> None:
        error = AssertionError(*(() if message is None else (message(),)))
        mark(error)  # also where it is known to fail: data may have led here
        raise error

    if not is_unknown(test):
        if not test:
            fail()
        return
    if_(test, lambda: None, fail, lambda: (), lambda state: None, ())
