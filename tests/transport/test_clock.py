"""The ranks agree on the time to within the error that they state."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_mesh import PATIENCE, connect_all, open_or_skip

from futurex.runtime.cluster.host import connect_session
from futurex.runtime.collectives import Communicator
from futurex.runtime.transport.clock import Alignment, Clock, Reading

SKEWS = (0.0, 3.7, -1234.5)


def _clock(skew, drift=0.0):
    begin = time.perf_counter()
    return lambda: (time.perf_counter() - begin) * (1.0 + drift) + skew


@pytest.mark.parametrize("kind", ["inproc", "local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def test_a_clock_that_is_off_is_measured_to_within_the_stated_error(kind):
    endpoints = [open_or_skip(kind, rank, len(SKEWS)) for rank in range(len(SKEWS))]
    nows = [_clock(skew) for skew in SKEWS]
    clocks = [Clock(endpoint, now) for endpoint, now in zip(endpoints, nows, strict=True)]
    try:
        assert connect_all(endpoints) == [None] * len(SKEWS)
        for rank, clock in enumerate(clocks):
            reading = clock.measure(timeout=60.0)
            assert reading == clock.latest
            # Both clocks are read one after the other; what passes between is counted as error of the test.
            before = nows[0]()
            local = nows[rank]()
            after = nows[0]()
            assert before - reading.error - 1e-6 <= local + reading.offset <= after + reading.error + 1e-6
            assert reading.epoch == pytest.approx(time.time() - nows[0](), abs=0.5)
            assert (reading.error == 0) == (rank == 0)
    finally:
        for endpoint in endpoints:
            endpoint.close()


def test_without_an_answer_the_latest_reading_is_kept_and_its_error_grows():
    endpoints = [open_or_skip("inproc", rank, 2) for rank in range(2)]
    clocks = [Clock(endpoint) for endpoint in endpoints]
    try:
        assert clocks[1].measure(timeout=0.1) is None
        connect_all(endpoints)
        first = clocks[1].measure(timeout=60.0)
        endpoints[0].close()
        later = clocks[1].measure(timeout=0.1)
        assert later.offset == first.offset
        assert later.error > first.error
        assert later.at > first.at
    finally:
        for endpoint in endpoints:
            endpoint.close()


def test_a_session_begins_with_a_reading_however_late_rank_0_answers():
    """Without one its traces would not be aligned, and say that they are."""
    endpoints = [open_or_skip("inproc", rank, 2) for rank in range(2)]
    communicators = [Communicator(endpoint) for endpoint in endpoints]
    delays = [1.2]  # seconds, on the thread that answers

    def late():
        if delays and endpoints[0].on_thread():
            time.sleep(delays.pop())
        return time.perf_counter()

    communicators[0].clock._now = late
    workers = [SimpleNamespace(futurex_host=SimpleNamespace(sessions={"a": each})) for each in communicators]

    async def connected():
        addresses = [endpoint.address for endpoint in endpoints]
        await asyncio.gather(*(connect_session("a", addresses, PATIENCE, worker) for worker in workers))

    try:
        asyncio.run(connected())
        assert not delays
        assert abs(communicators[1].clock.latest.offset) <= communicators[1].clock.latest.error
    finally:
        for endpoint in endpoints:
            endpoint.close()


@settings(max_examples=200)
@given(
    skew=st.floats(-1e3, 1e3), drift=st.floats(-1e-4, 1e-4), errors=st.tuples(*[st.floats(1e-6, 1e-2)] * 2),
    signs=st.tuples(*[st.floats(-1, 1)] * 2), span=st.floats(0.1, 100.0), at=st.floats(0, 1),
)  # fmt: skip
def test_alignment_is_right_to_within_its_error(skew, drift, errors, signs, span, at):
    """Whatever the readings got wrong within their errors, and however the clock drifts evenly."""

    def offset(local):
        return skew + drift * local

    ends = [0.0, span]
    readings = [
        Reading(end, offset(end) + sign * error, error, 0.0)
        for end, error, sign in zip(ends, errors, signs, strict=True)
    ]
    aligned = Alignment(*readings)
    local = at * span
    assert abs(aligned.seconds(local) - (local + offset(local))) <= aligned.error + 1e-9
