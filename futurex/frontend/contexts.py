"""``with`` and ``try`` in staged code: what fails in them must fail while tracing, or where no handler would see it."""

from __future__ import annotations

import contextlib
import functools
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from futurex.frontend.calls import call, special
from futurex.frontend.control import is_unknown
from futurex.frontend.errors import Escape, Signal, is_own
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import entered, fresh

_TEXTS = {
    "divide": "divide by zero", "over": "overflow", "under": "underflow", "invalid": "invalid value",
}  # fmt: skip
NEVER_RUN = (KeyError, AttributeError, ImportError, NotImplementedError, StopIteration, OSError, RecursionError)
"""Exceptions that no operation of a run raises: where handlers are for these alone, what the program raises matters."""


@contextlib.contextmanager
def protected(caught: Callable[[], tuple[Any, ...]] | None) -> Iterator[None]:
    """The body of a ``try``: an exception in it, now or at run time, would have to reach the handlers.

    ``caught``: the types that handlers catch; None for all. Exceptions of the user's own, of Python's containers and of
    imports happen at every run as they do now; others may belong to the trace.
    """
    trace = current()
    kinds = _kinds(caught)
    shields = kinds is None or not all(issubclass(kind, NEVER_RUN) for kind in kinds)
    trace.waits = trace.waits or MemoryError in (kinds or ())  # a run without room is made again as plain Python
    linear = shields and kinds is not None and all(issubclass(kind, np.linalg.LinAlgError) for kind in kinds)
    trace.protects_linear += linear
    trace.protected += shields and not linear
    named = () if shields else tuple(kinds or ())
    trace.caught.append(named)
    try:
        yield
    except Exception as error:
        if not (is_own(error) or isinstance(error, ImportError)):
            raise Escape(
                f"{type(error).__name__} in a try statement: {error}", "its handlers run as plain Python"
            ) from error
        raise
    finally:
        trace.protects_linear -= linear
        trace.protected -= shields and not linear
        trace.caught.remove(named)  # that of a generator may end before those that began after it


def attempt(value: Callable[[], Any], kind: Callable[[], Any]) -> tuple[Any, Any]:
    """The value of an expression in a ``try``, and whether a factorization in it failed."""
    trace = current()
    with protected(lambda: (kind(),)):
        if kind() is not np.linalg.LinAlgError:
            raise Escape("a handler of a LinAlgError that is not NumPy's", "it is plain Python's")
        before, trace.attempt = trace.attempt, (trace.regions[-1], len(trace.calls), [])
        try:
            found = value()
        finally:
            failures, trace.attempt = trace.attempt[2], before
    failed = functools.reduce(lambda a, b: emit("logical_or", a, b), failures) if failures else None
    if failed is None:
        return found, False
    trace.attempted.add(failed)
    return found, fresh(failed)


def _kinds(caught: Callable[[], tuple[Any, ...]] | None) -> list[Any] | None:
    """The types that handlers catch; None where they are all, or not known."""
    if caught is None:
        return None
    try:
        kinds = [kind for entry in caught() for kind in (entry if isinstance(entry, tuple) else (entry,))]
        return kinds if all(isinstance(kind, type) for kind in kinds) else None
    except Exception:
        return None


def context(manager: Any) -> Any:
    """A context manager that may be entered once, not at every run: staged ones, and those that change nothing."""
    manager = entered(manager)
    if isinstance(manager, np.errstate) and current().is_own(manager):
        return manager
    if isinstance(manager, contextlib.nullcontext | _Quiet):
        return manager
    if isinstance(manager, contextlib.suppress) and current().is_own(manager):
        return _Suppressed(manager)
    kind = type(manager)
    if isinstance(manager, contextlib._GeneratorContextManager) and current().is_own(manager):
        return _Staged(manager, lambda name, args: getattr(manager, name)(*args))
    methods = {name: getattr(kind, name, None) for name in ("__enter__", "__exit__")}
    if all(type(method) is types.FunctionType for method in methods.values()) and current().is_own(manager):
        return _Staged(manager, lambda name, args: call(methods[name], (manager, *args), {}))
    raise Escape(f"a with statement on a {kind.__qualname__}", "what it does at its end is not known to the tracer")


class _Staged:
    """A context manager of the user's: its methods are staged; it sees the exceptions that a ``try`` would see."""

    def __init__(self, manager: Any, method: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self.manager, self.method = manager, method
        self.guard = protected(None)

    def __enter__(self) -> Any:
        value = self.method("__enter__", ())
        self.guard.__enter__()
        return value

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.guard.__exit__(kind, error, traceback)
        if error is not None and not isinstance(error, Exception):
            return False
        answer = self.method("__exit__", (kind, error, traceback))
        if is_unknown(answer):
            raise Escape("a context manager whose answer to an exception depends on data", "Python needs it here")
        return bool(answer) and error is not None


class _Suppressed:
    """``contextlib.suppress``: a ``try`` whose handlers do nothing."""

    def __init__(self, manager: contextlib.suppress) -> None:
        self.manager = manager
        kinds = manager._exceptions  # type: ignore[attr-defined]
        self.guard = protected(lambda: kinds)

    def __enter__(self) -> None:
        self.guard.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.guard.__exit__(kind, error, traceback)
        if isinstance(error, Signal):
            return False
        return bool(self.manager.__exit__(kind, error, traceback))


class _Quiet(contextlib.nullcontext[None]):
    """``warnings.catch_warnings()`` of staged code: what is ignored in it is ignored up to its end."""

    def __enter__(self) -> None:
        self.before = current().ignored
        current().ignored = self.before or ()

    def __exit__(self, *error: object) -> None:
        current().ignored = self.before


@special(warnings.catch_warnings)
def _catch_warnings(*args: Any, **kwargs: Any) -> Any:
    if args or kwargs:
        raise Escape("warnings.catch_warnings() with options", "which warnings come is known to the run alone")
    return current().remember(_Quiet())


@special(warnings.simplefilter)
def _simple_filter(action: str, category: Any = Warning, lineno: int = 0, append: bool = False) -> None:
    _ignore(action, "", category, lineno or append)


@special(warnings.filterwarnings)
def _filter(
    action: str, message: Any = "", category: Any = Warning, module: str = "", lineno: int = 0, append: bool = False
) -> None:
    _ignore(action, message, category, module or lineno or append)


@special(warnings.resetwarnings)
def _reset() -> None:
    _ignore("default", "", Warning, False)


def _ignore(action: str, message: Any, category: Any, more: Any) -> None:
    """A change to the filter of warnings: in ``catch_warnings``, and where it ignores some of whatever lines, runs give
    none of these."""
    trace = current()
    known = type(message) is str and isinstance(category, type)
    if trace.ignored is None or action != "ignore" or more or not known:
        escape = Escape("a change to the filter of warnings", "it is the state of the whole process")
        escape.whole = trace.ignored is None  # it is there for all that follows
        raise escape
    trace.ignored += ((message, category),)
    if issubclass(RuntimeWarning, category):
        for error, text in _TEXTS.items():
            if message.startswith(text) or re.match(message, f"{text} encountered in", re.IGNORECASE):
                trace.quiet.setdefault(error, "warn")


@special(np.errstate)
def _errstate(**modes: Any) -> Any:
    if set(modes.values()) - {"ignore", "warn"}:
        raise Escape("np.errstate that raises or calls", "the state at run time is another one")
    current().quiet |= {error: mode for error, mode in modes.items() if mode == "ignore"}
    return current().remember(np.errstate(**modes))
