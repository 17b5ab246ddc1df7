"""What can happen while a function is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from futurex.errors import FuturexError
from futurex.tree.source import Source, here, raised_at, reached_from


class StagingError(FuturexError, TypeError):
    """A function could not be staged where only a staged one will do (a derivative, a cluster).

    Names the user's line.
    """

    source: Source | None = None


class Signal(BaseException):
    """Raised by the tracer through the user's code: no ``except``, ``finally`` or ``with`` of the user's may see it."""


ONLY_NUMBERS = "only native numbers and booleans are traced"
AS_NUMBERS = "give it a dtype of numbers, such as x.astype(np.float64)"


class Escape(Signal):
    """Staging stops here and the call runs as plain NumPy."""

    def __init__(self, what: str, why: str, do: str = "", site: Any = None) -> None:
        super().__init__(what)
        self.what, self.why, self.do = what, why, do
        self.site = site  # the choice whose merger is to blame: staging can go on if what follows it is traced twice
        self.candidates: list[Any] = []  # functions whose calls could be fragments instead, innermost first
        self.whole = False  # a fragment would see other objects: only the call as plain NumPy is right
        self.unseen = False  # a fragment could stand here if it were known what the call returns
        self.numbers: set[Any] = set()  # numbers from outside that could be inputs, as guards know them
        self.counts = False  # could a trace go on that numbers its arrays?
        self.one_by_one = False  # without lists as arrays, could a trace go on along each way out of a loop alone?
        self.foreign = ""  # which argument is another library's array: that may be all that is wrong
        self.source: Source | None = here()
        self.reached = reached_from(self.source)  # the line that called the library that the source is in

    def explain(self) -> str:
        """One paragraph: where, what, why, what to do."""
        place = self.reached or self.source
        where = f"{place.place()}: " if place else ""
        line = f"\n    {place.text()}" if place and place.text() else ""
        if self.reached and self.source:
            line += f"\n  which comes to {self.source.place()}: {self.source.text()}"
        do = f"\n  do: {self.do}" if self.do else ""
        foreign = f"\n  {self.foreign}" if self.foreign else ""
        return f"{where}{self.what}{line}\n  why: {self.why}{do}{foreign}"

    def as_error(self) -> StagingError:
        error = StagingError(self.explain())
        error.source = self.source
        return error


class Retrace(Signal):
    """What was learned makes another trace of the call; this one would go on in vain."""


class Late(Signal):
    """The time is over that a trace may take."""


class Unfinished(Signal):
    """A function that is being staged calls itself, and what it returns is not known yet: other paths will tell."""


def unstaged(error: Exception) -> Escape:
    """An error that says no more than that staging stops, as the escape at the line where it was raised."""
    escape = Escape("a shape that depends on data", str(error))
    escape.source, escape.reached = raised_at(error) or escape.source, None
    return escape


@contextmanager
def python() -> Iterator[None]:
    """Exceptions of the block are the program's own: they would be the same at every run."""
    try:
        yield
    except Exception as error:
        mark(error)
        raise


def mark(error: BaseException) -> None:
    """An exception that the program raises, not the trace."""
    error.__staged__ = True  # type: ignore[attr-defined]


def is_own(error: BaseException) -> bool:
    return hasattr(error, "__staged__")
