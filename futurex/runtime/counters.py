"""What a plan did: runs, time, bytes and where each instruction ran."""

from __future__ import annotations

from dataclasses import dataclass

TIMED_FIRST, TIMED_EVERY = 4, 16


class Counters:
    """Of one arena, so that no two threads write the same ones. All runs are counted; the first ones and then every
    sixteenth are timed."""

    __slots__ = ("ns", "runs", "spawned", "timed")

    def __init__(self, size: int) -> None:
        self.runs = 0
        self.timed = 0
        self.ns = [0] * size
        self.spawned = [0] * size

    def due(self) -> bool:
        """Count a run; True if it shall be timed."""
        self.runs += 1
        return self.runs <= TIMED_FIRST or self.runs % TIMED_EVERY == 0


@dataclass(frozen=True, slots=True)
class Row:
    """The profile of one instruction.
     ``ns`` is the time of all ``count`` runs, estimated from those that were timed; ``bytes`` is read and written per
    run; ``inlined`` counts runs on the thread that made the instruction ready.
    """

    op: str
    line: str
    count: int
    ns: int
    bytes: int
    backend: str
    inlined: int
