"""One clock for all ranks: how far each is from that of rank 0, measured by round trips.

As in NTP (RFC 5905): a rank notes when it asks and when the answer comes, rank 0 when it is asked and when it answers.
Half of the difference of the two ways is the offset, wrong by half of the time under way at most, however unequal the
ways are; of several round trips the shortest counts. Between measurements the bound grows with the clocks' drift.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from futurex.runtime.trace import Recorder, trace
from futurex.runtime.transport.base import Endpoint
from futurex.runtime.transport.errors import TransportError
from futurex.runtime.transport.message import Header

HANDLER = 17
ROUNDS = 8
DRIFT = 15e-6  #: seconds a second; what RFC 5905 assumes of a clock that is not disciplined
_QUESTION = struct.Struct("<d")  # when it was asked
_ANSWER = struct.Struct("<dddd")  # the same, when it came, when it was answered, and when the clock began
_ASK, _TELL = 0, 1


class Reading(NamedTuple):
    """One measurement: at local time ``at`` rank 0's clock showed ``at + offset``, to within ``error`` seconds.

    Rank 0's clock showed zero at ``epoch``, in seconds since 1970 by its wall clock.
    """

    at: float
    offset: float
    error: float
    epoch: float


class Clock:
    """The clock of one rank. Create it on every rank before the endpoint connects; ``now`` is what it is read with.

    ``latest`` is the newest reading, None before the first one.
    """

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = time.perf_counter) -> None:
        self._endpoint = endpoint
        self._now = now
        self._epoch = time.time() - now()
        self._answers: SimpleQueue[tuple[int, float, bytes]] = SimpleQueue()
        self._asked = 0
        self._measuring = threading.Lock()
        self.latest: Reading | None = None
        endpoint.register(HANDLER, self._arrived)

    def measure(self, timeout: float = 1.0) -> Reading | None:
        """Ask rank 0 some times and return the best reading; where none comes, the latest with what it has drifted.

        Returns None if there has never been one.
        """
        with self._measuring:
            return self._measured(timeout)

    def _measured(self, timeout: float) -> Reading | None:
        readings = [self._own()] if self._endpoint.rank == 0 else []
        deadline = time.monotonic() + timeout
        with suppress(TransportError, Empty):
            while len(readings) < ROUNDS and self._endpoint.rank:
                readings.append(self._ask(deadline))
        if readings:
            self.latest = min(readings, key=lambda reading: reading.error)
        elif self.latest is not None:
            at = self._now()
            return self.latest._replace(at=at, error=self.latest.error + DRIFT * (at - self.latest.at))
        return self.latest

    def _own(self) -> Reading:
        return Reading(self._now(), 0.0, 0.0, self._epoch)

    def _ask(self, deadline: float) -> Reading:
        self._asked += 1
        endpoint = self._endpoint
        endpoint.send(
            0, HANDLER, _QUESTION.pack(self._now()), generation=endpoint.generation, tag=self._asked, part=_ASK
        )
        while True:
            number, returned, answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            if number == self._asked:
                break
        asked, came, answered, epoch = _ANSWER.unpack(answer)
        under_way = (returned - asked) - (answered - came)
        offset = ((came - asked) + (answered - returned)) / 2
        return Reading((asked + returned) / 2, offset, under_way / 2, epoch)

    def _arrived(self, header: Header, payload: memoryview) -> None:
        now = self._now()
        if header.part == _TELL:
            self._answers.put((header.tag, now, bytes(payload)))
            return
        [asked] = _QUESTION.unpack(payload)
        answer = _ANSWER.pack(asked, now, self._now(), self._epoch)
        self._endpoint.send(
            header.source, HANDLER, answer, generation=header.generation, tag=header.tag, part=_TELL, timeout=None
        )


class Alignment:
    """From the times of one rank to those of rank 0, between two readings and near them.

    ``error`` bounds how wrong that is, if the clock drifts evenly between the readings or by 15 millionths at most.

    >>> aligned = Alignment(Reading(10.0, 5.0, 1e-5, 0.0), Reading(20.0, 5.5, 2e-5, 0.0))
    >>> aligned.seconds(15.0), aligned.error < 1e-3
    (20.25, True)
    """

    def __init__(self, first: Reading, last: Reading) -> None:
        self._first, self._last = first, last
        span = max(0.0, last.at - first.at)
        self._rate = (last.offset - first.offset) / span if span else 0.0
        self.error = max(first.error, last.error) + DRIFT * span / 2 if last.error or first.error else 0.0

    def seconds(self, at: float) -> float:
        """Rank 0's time, since 1970, at the local time ``at``."""
        return at + self._first.offset + self._rate * (at - self._first.at) + self._first.epoch


@contextmanager
def recording(rank: int, clock: Clock | None) -> Iterator[Recorder]:
    """Record what this process does inside the block; afterwards its times are those of rank 0."""
    first = clock.measure() if clock is not None else None
    with trace(rank) as recorder:
        yield recorder
    last = clock.measure() if clock is not None else None
    if first is not None and last is not None:
        alignment = Alignment(first, last)
        recorder.seconds, recorder.error = alignment.seconds, alignment.error
