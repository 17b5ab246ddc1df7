"""Rows that are read backwards in functions that are compiled whole."""

import subprocess
import sys

import pytest

PROGRAM = '''
import sys
import numpy as np
import futurex as fx

def logarithms(x, y):
    return np.log(x[:, ::-1]) + y[0] - y

def products(x, y):
    return x[:, ::-1] * y[:, ::-1] - y

def quotients(x, y):
    z = np.exp(x)
    z[:, ::-1] = x[:, ::-1] * 2 + y[:, ::-1]
    return z[:, ::-1] / x[:, ::-1]

rng = np.random.default_rng(0)
for columns in map(int, sys.argv[1:]):
    x, y = (rng.random((12, columns)).astype(np.float32) + 1 for _ in range(2))
    for function in (logarithms, products, quotients):
        plan = fx.futurize(function).trace(x, y).plan
        plan.whole.decide()
        assert plan.whole.taken
        np.testing.assert_allclose(plan.run([x, y])[0], function(x, y), rtol=1e-5, atol=1e-6)
'''


@pytest.mark.parametrize("columns", [(20, 21), (22, 28), (29, 30), (31, 60)])
def test_compiling_a_loop_of_known_length_that_goes_backwards_does_not_end_the_process(columns, tmp_path):
    """LLVM asserts that its estimates agree, and aborts: by itself, so that the others run."""
    (tmp_path / "backwards.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "backwards.py", *map(str, columns)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
