"""A call that runs as plain NumPy means the same where it calls futurized functions: it gets NumPy's arrays."""

import numpy as np
import pytest
from compare import bits, plain
from nested_programs import PROGRAMS, Walker, doubled, written

import futurex as fx


@pytest.mark.parametrize("program", PROGRAMS)
def test_plain_calls_of_functions_that_call_futurized_ones(program):
    function = fx.futurize(program)
    for k in range(6):
        x, same = np.arange(1.0, 4.0) + k, np.arange(1.0, 4.0) + k
        got = bits(plain(function(x)))
        with fx.disable():
            assert got == bits(program(same))
        assert x.tolist() == same.tolist()


def test_methods():
    mine, theirs = Walker(), Walker()
    for k in range(5):
        got = bits(plain(mine.walk(np.ones(3) * k)))
        with fx.disable():
            assert got == bits(theirs.walk(np.ones(3) * k))
        assert {float(key): n for key, n in mine.seen.items()} == theirs.seen


def test_outside_results_stay_futures():
    fx.futurize(written)(np.ones(3))
    assert isinstance(doubled(np.ones(3)), fx.Array)
