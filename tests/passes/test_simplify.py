"""Rules of the simplifier that must not touch a bit."""

import numpy as np
import pytest

from futurex.passes.pipeline import optimise
from futurex.tree import Aval, Graph, apply, param


@pytest.mark.parametrize("zero", [0, False, 0.0])
def test_a_positive_zero_added_to_floats_is_kept(zero):
    x = param(Aval((2,), np.dtype(np.float32)), "x")
    graph = Graph([x], [apply("add", x, zero), apply("add", zero, x)])
    for result in optimise(graph)(np.array([-0.0, 1.0], np.float32)):
        np.testing.assert_array_equal(np.signbit(result), [False, False])
