"""Rules of the simplifier that must not touch a bit."""

import numpy as np
import pytest

from futurex.passes.pipeline import optimise
from futurex.tree import Aval, Graph, apply, dimension, param
from futurex.tree.node import dimensions_of


@pytest.mark.parametrize("zero", [0, False, 0.0])
def test_a_positive_zero_added_to_floats_is_kept(zero):
    x = param(Aval((2,), np.dtype(np.float32)), "x")
    graph = Graph([x], [apply("add", x, zero), apply("add", zero, x)])
    for result in optimise(graph)(np.array([-0.0, 1.0], np.float32)):
        np.testing.assert_array_equal(np.signbit(result), [False, False])


def test_a_branch_reads_extents_from_its_own_inputs():
    """What defined an extent stands around the branch: a filled array made anew inside must not ask that."""
    extent = dimension("around")
    param(Aval((extent, 3), np.dtype(float)), "x")
    inside = param(Aval((extent,), np.dtype(float)), "c")
    with dimensions_of([inside]):
        filled = apply("full", 0.0, shape=inside.shape, dtype=np.dtype(float))
        graph = Graph([inside], [apply("sign", filled)])
    after = optimise(graph)
    assert all(node in after.params for node in after.nodes if node.op == "param")
    np.testing.assert_array_equal(after(np.ones(4))[0], np.zeros(4))
