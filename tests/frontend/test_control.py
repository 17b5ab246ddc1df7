"""Control flow on data means in staged code what it means in Python."""

import branch_cases
import exception_cases
import loop_cases
import numpy as np
import pytest
from compare import check, is_staged

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


def test_a_handler_of_memory_errors_sees_them():
    """What a plan has no room for is plain Python's to handle, with what was written until then."""

    def distances(x, room):
        x[0] = 1.0
        try:
            table = np.ones((room, room)).cumsum(axis=0)
        except MemoryError:
            return "in pieces", x.sum()
        x[1] = 2.0
        return "at once", x.sum() + table.max()

    f = fx.futurize(distances)
    for room, way in ((2, "at once"), (10**7, "in pieces")):
        for _ in range(2):
            x, y = np.zeros(3), np.zeros(3)
            assert f(x, room) == distances(y, room)
            assert f(x, room)[0] == way
            assert x.tolist() == y.tolist()
    assert is_staged(f, (np.zeros(3), 2)) is True


def test_no_room_is_said_at_the_line_that_asks_for_it():
    def table(x, n):
        x[0] = 1.0
        return np.ones((n, n)).cumsum(axis=0) + x[0]

    x = np.zeros(3)
    with pytest.raises(MemoryError) as found:
        fx.futurize(table)(x, 10**7)
    assert any(entry.name == "table" for entry in found.traceback)
    assert x[0] == 1.0
