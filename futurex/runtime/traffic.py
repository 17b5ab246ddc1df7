"""What a locality exchanged with the others and how long it waited: by step, and over a run."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Protocol

KEPT = 1024  # steps of which a ledger keeps the figures


@dataclass(frozen=True, slots=True)
class Traffic:
    """The figures of one locality over ``steps`` runs of compiled programs that took ``seconds``.

    ``exchanges`` are collectives and ``exchanged_bytes`` the arrays given to them. Messages and their bytes are what
    the transport carried for them; inside a host arrays lie in shared memory and few messages are needed.
    ``communication`` is the time in seconds with something in flight, ``exposed`` the part of it for which the
    computation had nothing else to do, in ``waits`` pieces.

    >>> step = Traffic(steps=1, seconds=0.1, exchanges=2, communication=0.04, exposed=0.01)
    >>> step.hidden, (step + step).exchanges, (step + step - step) == step
    (0.03, 4, True)
    """

    steps: int = 0
    seconds: float = 0.0
    exchanges: int = 0
    exchanged_bytes: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    waits: int = 0
    communication: float = 0.0
    exposed: float = 0.0

    @property
    def hidden(self) -> float:
        """Seconds of communication beside which the computation went on."""
        return max(0.0, self.communication - self.exposed)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        if not self.exchanges:
            return f"{self.steps:,} steps, nothing exchanged"
        hidden = self.hidden / self.communication if self.communication else 1.0
        share = self.exposed / self.seconds if self.seconds else 0.0
        return (
            f"{self.steps:,} steps, {self.exchanges:,} exchanges of {self.exchanged_bytes / 1e6:,.1f} MB, "
            f"{self.messages_sent:,} messages of {self.bytes_sent / 1e6:,.1f} MB sent, "
            f"{self.messages_received:,} of {self.bytes_received / 1e6:,.1f} MB received, {self.waits:,} waits; "
            f"communication {self.communication:.2f} s, {hidden:.0%} hidden, {self.exposed:.2f} s exposed "
            f"({share:.1%} of the steps)"
        )


FIGURES = tuple(field.name for field in fields(Traffic))
Tally = tuple[float, ...]
"""The figures of :class:`Traffic` from ``exchanges`` on."""


class Source(Protocol):
    """Who counts the exchanges of a locality."""

    def tally(self) -> Tally: ...


class Ledger:
    """The figures of one locality: totals, and those of its latest steps. Filled by one thread, read by any."""

    def __init__(self, source: Source | None = None) -> None:
        self._source = source
        self._marks: deque[Tally] = deque([(0, 0.0, *self._tally())], maxlen=KEPT + 1)

    def _tally(self) -> Tally:
        return self._source.tally() if self._source is not None else (0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)

    def step(self, seconds: float) -> None:
        """A step has ended, which took this long."""
        before = self._marks[-1]
        self._marks.append((before[0] + 1, before[1] + seconds, *self._tally()))

    @property
    def total(self) -> Traffic:
        """Everything up to the end of the latest step."""
        return _traffic(self._marks[-1])

    def steps(self) -> list[Traffic]:
        """The figures of each of the latest steps, the oldest first."""
        marks = list(map(_traffic, self._marks))
        return [after - before for before, after in itertools.pairwise(marks)]


def _traffic(mark: Sequence[float]) -> Traffic:
    return Traffic(int(mark[0]), float(mark[1]), *map(int, mark[2:9]), *map(float, mark[9:]))
