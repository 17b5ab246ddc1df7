"""Control flow on data means in staged code what it means in Python."""

import branch_cases
import exception_cases
import loop_cases
import numpy as np
import pytest
from compare import check

import futurex as fx

CASES = [*branch_cases.cases, *loop_cases.cases, *exception_cases.cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_control_flow(case):
    check(case.function, *case.args, staged=case.staged)


def test_one_trace_takes_both_branches():
    f = fx.futurize(lambda x: x * 2 if x.sum() > 0 else x - 1)
    graphs = {f.graph(x).hash for x in (np.ones(3), -np.ones(3))}
    assert len(graphs) == 1
    assert f(np.ones(3)).tolist() == [2, 2, 2]
    assert f(-np.ones(3)).tolist() == [-2, -2, -2]


def count_up(x, n):
    for i in range(n):
        x = x + i
    return x


def test_a_long_loop_is_one_node():
    assert len(fx.futurize(count_up).graph(np.ones(3), 1000).nodes) < 20
