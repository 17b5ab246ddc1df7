"""A function of NumPy's that is replaced, as tests do with ``mock.patch``, is the new one in calls that were traced."""

import math
from unittest import mock

import numpy as np
import pytest

import futurex as fx

X = np.arange(3.0)


def by_name(x):
    return np.sqrt(x) + np.mean(x)


def of_a_submodule(x):
    return np.linalg.norm(x) * x


def in_a_helper(x):
    return by_name(x) * 2


def of_a_generator(x):
    return x + np.random.default_rng(3).normal(size=3)


def of_python(x):
    return x * math.floor(2.5)


REPLACED = {
    by_name: ("numpy.mean", lambda x: 9000.0),
    of_a_submodule: ("numpy.linalg.norm", lambda x: x + 1),
    in_a_helper: ("numpy.sqrt", lambda x: x - 1),
    of_a_generator: ("numpy.random.default_rng", lambda seed: mock.Mock(normal=lambda size: 500.0)),
    of_python: ("math.floor", lambda x: 70),
}


@pytest.mark.parametrize("function", REPLACED)
@pytest.mark.parametrize("calls", [1, 4, 50])
def test_what_is_replaced_is_called(function, calls):
    f = fx.futurize(function)
    for _ in range(2):
        for _ in range(calls):
            assert np.allclose(f(X), function(X))
        with mock.patch(*REPLACED[function]):
            for _ in range(calls):
                assert np.allclose(f(X), function(X))


def test_they_are_not_told_among_what_a_trace_depends_on():
    f = fx.futurize(by_name)
    f(X)
    assert "numpy" not in f.explain()
