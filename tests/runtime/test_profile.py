"""Counters and traces say what ran, where, and for how long."""

import json

import numpy as np
import pytest
from plan_graphs import inputs, matrix
from test_communication import Communicator, soon, training_like

from futurex.kernels.numpy_ import NumpyBackend
from futurex.ops.control import Failure
from futurex.runtime import trace
from futurex.runtime.plan import compile_plan
from futurex.runtime.timeline import Timeline
from futurex.tree import Graph, apply

NUMPY = (NumpyBackend(),)


def test_a_profile_counts_every_run_and_names_the_line():
    x, w = matrix("x"), matrix("w")
    product = x @ w
    plan = compile_plan(Graph([x, w], [apply("tanh", product)]), backends=NUMPY)
    for _ in range(50):
        plan.run(inputs())
    rows = plan.profile()
    assert [row.op for row in rows] == ["matmul", "tanh"]
    assert rows[0].line == f"test_profile.py:{product.src.line}"
    assert [(row.count, row.inlined, row.backend) for row in rows] == [(50, 50, "numpy")] * 2
    assert all(row.ns > 0 for row in rows)
    assert rows[1].bytes == 2 * 72


def test_a_failed_run_keeps_the_counts():
    x = matrix("x")
    total = apply("sum", x, axis=None, keepdims=False, dtype=None)
    check = apply("check", apply("less", total, 5.0), failure=Failure(ValueError, ("too much",)))
    plan = compile_plan(Graph([x], [check]), backends=NUMPY)
    plan.run([np.zeros((3, 3))])
    with pytest.raises(ValueError, match="too much"):
        plan.run([np.ones((3, 3))])
    plan.run([np.zeros((3, 3))])
    assert {row.count for row in plan.profile()} == {3}


def test_a_trace_has_a_lane_for_collectives(tmp_path):
    plan = compile_plan(training_like(), backends=NUMPY, optimised=True)
    with trace.trace(rank=3) as recorder:
        plan.run(inputs(), Communicator(soon))
    other = [{"name": "add", "cat": "futurex", "ph": "X", "pid": 0, "tid": "compute", "ts": 0.0, "dur": 1.0}]
    mine = recorder.chrome()
    Timeline([*mine, *other]).save(tmp_path / "trace.json")
    written = [
        event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"
    ]
    assert [event["name"] for event in written] == ["add", *(e["name"] for e in sorted(mine, key=lambda e: e["ts"]))]
    assert {event["pid"] for event in mine} == {3}
    lanes = {lane: [event for event in mine if event["tid"] == lane] for lane in ("compute", "communication")}
    assert len(lanes["communication"]) == 3
    assert len(lanes["compute"]) == len(plan.instructions) - 3
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in mine)
    assert min(event["dur"] for event in lanes["communication"]) > 0


def test_every_run_is_traced_and_none_after_the_block():
    x = matrix("x")
    plan = compile_plan(Graph([x], [apply("tanh", x)]), backends=NUMPY)
    with trace.trace() as recorder:
        for _ in range(30):
            plan.run(inputs(n_params=1))
    plan.run(inputs(n_params=1))
    assert [event["name"] for event in recorder.chrome()] == ["tanh"] * 30


def test_one_trace_at_a_time():
    with trace.trace(), pytest.raises(RuntimeError, match="already"), trace.trace():
        pass
    with trace.trace() as recorder:
        assert recorder.chrome() == []
