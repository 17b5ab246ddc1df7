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


def entry(first, last=None):
    return ("i", first) if last is None else ("s", first, last, None)


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        ((entry(0, 4), entry(1)), (entry(0, 4), entry(1)), "value"),
        ((entry(0, 4), entry(1)), (entry(0, 4), entry(2)), "base"),
        ((entry(0, 2),), (entry(2, 4),), "base"),
        ((entry(0, 3),), (entry(2, 4),), "store"),  # a part of it
        ((entry(1, 2),), (entry(1),), "store"),  # in another shape
        ((entry(0, 0),), (entry(0, 4),), "base"),
        ((("s", 0, 4, 2),), (("s", 0, 4, 2),), "store"),  # not of neighbours
    ],
)
@pytest.mark.parametrize("mode", ["set", "add"])
def test_a_view_reads_what_was_written_there_or_what_stood_there_before(written, read, expected, mode):
    base = param(Aval((4, 3), np.dtype(float)), "base")
    whole = np.arange(12.0).reshape(4, 3)
    before = apply("load", base, chain=(("index", written),))
    value = param(before.aval, "value")
    stored = apply("store", base, value, chain=(("index", written),), mode=mode)
    graph = Graph([base, value], [apply("load", stored, chain=(("index", read),))])
    after = optimise(graph)
    names = {node.attrs["name"] for node in after.nodes if node.op == "param"}
    reads = names | {node.op for node in after.nodes if node.op == "store"}
    if mode == "add" and expected == "value":
        expected = "store"
    assert expected in reads
    assert ("store" in reads) == (expected == "store")
    given = [whole, np.full(value.shape, 0.5)]
    np.testing.assert_array_equal(after(*given)[0], graph(*given)[0])


def test_a_view_of_what_was_broadcast_has_its_own_shape():
    base, value = param(Aval((4, 3), np.dtype(float)), "base"), param(Aval((3,), np.dtype(float)), "value")
    chain = (("index", (entry(1, 3),)),)
    stored = apply("store", base, value, chain=chain, mode="set")
    (found,) = optimise(Graph([base, value], [apply("load", stored, chain=chain)]))(np.zeros((4, 3)), np.arange(3.0))
    np.testing.assert_array_equal(found, [np.arange(3.0)] * 2)
