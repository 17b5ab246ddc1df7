"""Timelines: the recorded events of one or several localities, as one file for Perfetto and chrome://tracing.

The format is Chrome's (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete
events on lanes, names of processes and lanes, and arrows from a message's sending to its receipt, and from the rank
that came last to an exchange to those that waited for it.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from futurex.runtime.trace import RECEIVED, SENT, Event
from futurex.runtime.trace import trace as record

_LANES = ("compute", "waiting", "communication", SENT, RECEIVED)
Span = tuple[float, float]


class Timeline:
    """What localities did when, on one clock. ``clock_error`` bounds in seconds how wrong the clocks' alignment is.

    ``events`` are complete Chrome trace events with the rank as ``pid`` and the lane's name as ``tid``; times are in
    microseconds since 1970. Lanes: ``compute``, ``waiting`` for exchanges, ``communication`` (exchanges from start to
    end), messages ``sent`` and ``received``, and threads by name.

    >>> timeline = Timeline([
    ...     {"name": "all_reduce", "ph": "X", "pid": 0, "tid": "communication", "ts": 0.0, "dur": 10.0},
    ...     {"name": "matmul", "ph": "X", "pid": 0, "tid": "compute", "ts": 5.0, "dur": 20.0},
    ... ])
    >>> timeline.overlap()
    {0: 0.5}
    """

    def __init__(self, events: Iterable[Event] = (), clock_error: float = 0.0) -> None:
        self.events = list(events)
        self.clock_error = clock_error

    def overlap(self) -> dict[int, float]:
        """By rank, the share of the time with an exchange in flight in which instructions ran beside it."""
        shares = {}
        for rank in sorted({event["pid"] for event in self.events}):
            flights = _spans(self.events, rank, "communication")
            total = sum(end - start for start, end in flights)
            if total:
                busy = _spans(self.events, rank, "compute")
                shares[rank] = _common(flights, busy) / total
        return shares

    def document(self) -> dict[str, Any]:
        """The whole in Chrome's format, ready for ``json.dump``."""
        return {
            "traceEvents": list(_records(self.events)),
            "displayTimeUnit": "ms",
            "otherData": {"clock_error_seconds": self.clock_error},
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file that https://ui.perfetto.dev and chrome://tracing open."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.document(), file)

    def __repr__(self) -> str:
        ranks = len({event["pid"] for event in self.events})
        return f"<Timeline of {len(self.events)} events on {ranks} localities, clocks within {self.clock_error:.1e} s>"


def merged(timelines: Iterable[Timeline]) -> Timeline:
    """One timeline of those of several localities."""
    found = list(timelines)
    events = (event for timeline in found for event in timeline.events)
    return Timeline(events, max((timeline.clock_error for timeline in found), default=0.0))


@contextmanager
def trace(path: str | os.PathLike[str] | None = None) -> Iterator[Timeline]:
    """Record what this process runs inside the block; the timeline is filled, and written to ``path``, at its end.

    For the localities of a cluster: ``cluster.trace()``, or ``fx.fit(..., trace_steps=N)``. Raises RuntimeError inside
    another such block.

    >>> import numpy as np, futurex as fx
    >>> f = fx.futurize(lambda x: np.tanh(x) @ x)
    >>> with fx.trace() as timeline:
    ...     _ = f(np.ones((300, 300))).result()
    >>> timeline.save("trace.json")  # doctest: +SKIP
    """
    timeline = Timeline()
    with record() as recorder:
        yield timeline
    timeline.events += recorder.chrome()
    if path is not None:
        timeline.save(path)


def _spans(events: Iterable[Event], rank: int, lane: str) -> list[Span]:
    """When a lane was busy, without overlaps."""
    found = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == rank and e["tid"] == lane)
    merged: list[Span] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _common(these: Sequence[Span], those: Sequence[Span]) -> float:
    """How long spans of both kinds last at the same time."""
    total, k = 0.0, 0
    for start, end in these:
        while k < len(those) and those[k][1] <= start:
            k += 1
        for since, until in those[k:]:
            if since >= end:
                break
            total += min(end, until) - max(start, since)
    return total


def _records(events: Sequence[Event]) -> Iterator[Event]:
    """Lanes as rows of numbers, one below the other where events overlap, and arrows between them."""
    placed: list[Event] = []
    numbers = itertools.count(1)
    for rank in sorted({event["pid"] for event in events}):
        process = rank + 1  # 0 is the idle process to some viewers
        mine = [event for event in events if event["pid"] == rank]
        yield _metadata("process_name", process, 0, name=f"locality {rank}")
        yield _metadata("process_sort_index", process, 0, sort_index=rank)
        for lane in sorted({event["tid"] for event in mine}, key=_lane_order):
            for row, members in enumerate(_rows([event for event in mine if event["tid"] == lane])):
                number = next(numbers)
                yield _metadata("thread_name", process, number, name=lane if not row else f"{lane} ({row + 1})")
                yield _metadata("thread_sort_index", process, number, sort_index=number)
                placed += [{"cat": "futurex", **event, "pid": process, "tid": number} for event in members]
    yield from sorted(placed, key=lambda event: event["ts"])
    yield from _arrows(placed)


def _lane_order(lane: str) -> tuple[int, str]:
    return _LANES.index(lane) if lane in _LANES else len(_LANES), lane


def _metadata(kind: str, process: int, thread: int, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}


def _rows(events: Iterable[Event]) -> list[list[Event]]:
    rows: list[list[Event]] = []
    for event in sorted(events, key=lambda event: float(event["ts"])):
        free = next((row for row in rows if row[-1]["ts"] + row[-1]["dur"] <= event["ts"]), None)
        if free is None:
            rows.append(free := [])
        free.append(event)
    return rows


def _arrows(events: Iterable[Event]) -> Iterator[Event]:
    """From events with the key ``sends`` to that with the same ``receives``; from the last to start to all others."""
    sends: dict[str, Event] = {}
    receives: dict[str, Event] = {}
    exchanges: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        about = event.get("args", {})
        if "sends" in about:
            sends[about["sends"]] = event
        elif "receives" in about:
            receives[about["receives"]] = event
        elif "exchange" in about:
            exchanges.setdefault((event["name"], about["exchange"]), []).append(event)
    numbers = itertools.count(1)
    for key in sends.keys() & receives.keys():
        yield from _arrow(next(numbers), "message", sends[key], receives[key])
    for members in exchanges.values():
        last = max(members, key=lambda event: float(event["ts"]))
        for other in members:
            if other is not last:
                yield from _arrow(next(numbers), "exchange", last, other)


def _arrow(number: int, name: str, source: Event, target: Event) -> Iterator[Event]:
    """Both ends lie inside the events that they connect."""
    common = {"name": name, "cat": "futurex", "id": number}
    yield {**common, "ph": "s", "pid": source["pid"], "tid": source["tid"], "ts": source["ts"]}
    at = min(max(source["ts"], target["ts"]), target["ts"] + target["dur"])
    yield {**common, "ph": "f", "bp": "e", "pid": target["pid"], "tid": target["tid"], "ts": at}
