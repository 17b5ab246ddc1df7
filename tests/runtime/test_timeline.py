"""Timelines: what is written is what viewers of Chrome traces read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import futurex as fx
from futurex.runtime.timeline import Timeline, merged


def event(rank, lane, ts, dur, name="op", **args):
    return {"name": name, "cat": "futurex", "ph": "X", "pid": rank, "tid": lane, "ts": ts, "dur": dur, "args": args}


def check(document):
    """What the format and its viewers ask: https://perfetto.dev/docs/getting-started/other-formats."""
    document = json.loads(json.dumps(document))
    records = document["traceEvents"]
    slices = [record for record in records if record["ph"] == "X"]
    lanes = {}
    for record in records:
        assert isinstance(record["pid"], int)
        assert isinstance(record["tid"], int)
        assert record["pid"] > 0
        assert record["ph"] in "XMsf"
        assert isinstance(record["name"], str)
        if record["ph"] == "X":
            assert record["dur"] >= 0
            lanes.setdefault((record["pid"], record["tid"]), []).append(record)
    named = {(r["pid"], r["tid"]) for r in records if r["name"] == "thread_name"}
    assert named == set(lanes)
    assert len({tid for _, tid in lanes}) == len(lanes), "threads have numbers of their own"
    assert {r["pid"] for r in records if r["name"] == "process_name"} == {pid for pid, _ in lanes}
    for members in lanes.values():
        ends = 0.0
        for member in members:
            assert member["ts"] >= ends, "slices of a lane overlap"
            ends = member["ts"] + member["dur"]
    arrows = {}
    for record in records:
        if record["ph"] in "sf":
            arrows.setdefault(record["id"], []).append(record)
            inside = lanes[record["pid"], record["tid"]]
            assert any(each["ts"] <= record["ts"] <= each["ts"] + each["dur"] for each in inside)
    for start, end in arrows.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
    return slices, list(arrows.values())


def test_messages_and_exchanges_are_joined_by_arrows():
    timeline = Timeline([
        event(0, "sent", 10.0, 5.0, "message", sends="a"),
        event(1, "received", 14.0, 1.0, "message", receives="a"),
        event(0, "sent", 11.0, 2.0, "message", sends="lost"),
        event(0, "communication", 0.0, 9.0, "all_reduce", exchange="0 1 2"),
        event(1, "communication", 6.0, 3.0, "all_reduce", exchange="0 1 2"),
        event(2, "communication", 5.0, 4.0, "all_reduce", exchange="0 1 2"),
        event(2, "communication", 8.0, 4.0, "all_reduce", exchange="0 1 3"),
    ])  # fmt: skip
    slices, arrows = check(timeline.document())
    assert len(slices) == 7
    ends = sorted((start["name"], start["pid"], start["ts"], end["pid"], end["ts"]) for start, end in arrows)
    assert ends == [
        ("exchange", 2, 6.0, 1, 6.0),  # rank 1 came last, and released the others
        ("exchange", 2, 6.0, 3, 6.0),
        ("message", 1, 10.0, 2, 14.0),
    ]


_events = st.builds(
    event, st.integers(0, 3), st.sampled_from(["compute", "communication", "pool-1"]), st.integers(0, 50).map(float),
    st.integers(0, 20).map(float),
)  # fmt: skip


@given(st.lists(_events, max_size=30))
def test_lanes_never_overlap_and_overlap_is_that_of_the_events(events):
    timeline = Timeline(events)
    slices, _ = check(timeline.document())
    assert len(slices) == len(events)
    for rank, share in timeline.overlap().items():
        ticks = {lane: set() for lane in ("compute", "communication")}
        for each in events:
            if each["pid"] == rank and each["tid"] in ticks:
                ticks[each["tid"]] |= set(range(int(each["ts"]), int(each["ts"] + each["dur"])))
        both = ticks["compute"] & ticks["communication"]
        assert share == pytest.approx(len(both) / len(ticks["communication"]))


def test_a_trace_of_this_process(tmp_path):
    f = fx.futurize(lambda x: np.tanh(x) @ x)
    with fx.trace(tmp_path / "trace.json") as timeline:
        f(np.ones((30, 30))).result()
        with pytest.raises(RuntimeError, match="already"), fx.trace():
            pass
    slices, _ = check(json.loads((tmp_path / "trace.json").read_text()))
    assert len(slices) == len(timeline.events) > 0
    assert any(
        "test_timeline.py" in each["args"]["line"] and "np.tanh(x) @ x" in each["args"]["line"] for each in slices
    )
    assert "on 1 localities" in repr(timeline)


def test_merging_keeps_the_worst_error():
    whole = merged([Timeline([event(0, "compute", 0.0, 1.0)], 1e-6), Timeline([event(1, "compute", 0.0, 1.0)], 3e-6)])
    assert (len(whole.events), whole.clock_error) == (2, 3e-6)
    assert whole.document()["otherData"] == {"clock_error_seconds": 3e-6}
