"""Stalls: who keeps whom waiting, for which arrays, at which line of the user's program."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from futurex.tree.node import Node

log = logging.getLogger("futurex.stall")

_SHOWN = 3


class Late(Protocol):
    """An exchange in flight."""

    def late(self) -> Sequence[int]: ...

    def awaiting(self) -> str: ...


@dataclass(frozen=True)
class Stall:
    """A locality has waited ``seconds`` for exchanges that other ranks, ``missing``, have not done their part of.

    ``exchanges`` says of each which arrays it is about, the user's lines that made them, and what has not come.
    """

    rank: int
    seconds: float
    missing: tuple[int, ...]
    exchanges: tuple[str, ...]

    @classmethod
    def of(cls, rank: int, seconds: float, waiting: Iterable[tuple[Node, Late]]) -> Stall:
        """What a rank says that waits for these exchanges."""
        found = list(waiting)
        missing = {each for _, exchange in found for each in exchange.late()}
        return cls(rank, seconds, tuple(sorted(missing)), tuple(_described(node, exchange) for node, exchange in found))

    @classmethod
    def heard(cls, event: Mapping[str, Any]) -> Stall:
        """The stall that :meth:`event` was made of."""
        return cls(event["rank"], event["seconds"], tuple(event["missing"]), tuple(event["exchanges"]))

    def event(self) -> dict[str, Any]:
        """What the driver is told."""
        return {"kind": "stall", **asdict(self)}

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.missing))
        whom = f"rank{'s' if len(self.missing) > 1 else ''} {ranks}" if self.missing else "an exchange"
        more = f"\n  and {len(self.exchanges) - _SHOWN} more" if len(self.exchanges) > _SHOWN else ""
        shown = "".join(f"\n  {each}" for each in self.exchanges[:_SHOWN])
        return f"rank {self.rank} has waited {self.seconds:.3g} s for {whom}:{shown}{more}"


def _described(node: Node, exchange: Late) -> str:
    arrays = [f"{each.aval!r}" for each in node.inputs]
    more = f" and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
    sources = dict.fromkeys(each.src for each in (*node.inputs, node) if each.src is not None and each.src.line)
    lines = "; ".join(f"{src}: {src.text()}" for src in list(sources)[:_SHOWN]) or "a line that is not known"
    return f"{node.op} of {', '.join(arrays[:_SHOWN])}{more}, for {lines}: {exchange.awaiting()}"


def quiet(size: int, stalls: Iterable[Stall]) -> list[int]:
    """Which of all ranks have not said that they wait: one of them is what the others wait for."""
    return sorted(set(range(size)) - {stall.rank for stall in stalls})


def silent(size: int, stalls: Iterable[Stall]) -> str:
    """These ranks in words."""
    found = quiet(size, stalls)
    if not found:
        return "every rank says that it waits: the ranks disagree on what comes next"
    return f"not waiting, or unable to say so: rank{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


class Reports:
    """The stalls of a run as its driver hears of them: it logs each of them, and knows which last."""

    def __init__(self, run: str, size: int) -> None:
        self._run = run
        self._lock = threading.Lock()
        self.begin(size)

    def begin(self, size: int) -> None:
        """So many ranks begin together; what was heard before is over."""
        with self._lock:
            self._size = size
            self._heard: dict[int, tuple[Stall, float]] = {}

    def hear(self, event: Mapping[str, Any]) -> list[int]:
        """A rank has said something; nothing happens where that is no stall. Returns the ranks that say nothing."""
        if event.get("kind") != "stall":
            return []
        stall = Stall.heard(event)
        with self._lock:
            self._heard[stall.rank] = stall, time.monotonic()
            lasting = self._lasting()
        log.warning("run %r: %s\n  %s", self._run, stall, silent(self._size, lasting))
        return quiet(self._size, lasting)

    def lasting(self, at: float | None = None) -> list[str]:
        """What those say who still wait, and who has not said that it does; nothing where nobody waits.

        ``at``: a time by the monotonic clock, if not now; what has been heard since counts.
        """
        with self._lock:
            found = self._lasting(at)
            return [*map(str, found), silent(self._size, found)] if found else []

    def _lasting(self, at: float | None = None) -> list[Stall]:
        """Those who still wait would say so again after twice the time."""
        now = time.monotonic() if at is None else at
        return [stall for stall, heard in self._heard.values() if now - heard <= 2 * stall.seconds]
