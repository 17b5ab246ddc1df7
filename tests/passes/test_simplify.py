"""Rules of the simplifier that must not touch a bit."""

import numpy as np
import pytest

from futurex.passes.pipeline import optimise
from futurex.passes.simplify import simplify
from futurex.tree import Aval, Graph, apply, const, dimension, param
from futurex.tree.graph import topological
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


_ALL, _BACK = ("s", None, None, None), ("s", None, None, -1)


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize(
    "index", [(_BACK,), (_ALL, _BACK), (_BACK, ("n",), _BACK), (("n",), _ALL, _ALL, ("n",))], ids=str
)
def test_what_is_written_over_everything_is_the_value_or_a_sum(index, mode):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(3, 4))
    shape = np.empty((3, 4))[tuple(None if e == ("n",) else slice(*e[1:]) for e in index)].shape
    arrays = base, rng.normal(size=shape)
    params = [param(Aval(each.shape, each.dtype)) for each in arrays]
    graph = Graph(params, [apply("store", *params, chain=(("index", index),), mode=mode)])
    after = simplify(graph)
    assert "store" not in {node.op for node in after.nodes}
    np.testing.assert_array_equal(after(*arrays)[0], graph(*arrays)[0], strict=True)


def test_elements_that_come_back_to_their_shape_are_computed_in_it():
    x, y = (param(Aval((6, 4), np.dtype(float))) for _ in range(2))
    flat = [apply("reshape", each, shape=(24,)) for each in (x, y)]
    sums = apply("exp", flat[0] * flat[1]) + flat[0] * 2.0
    graph = Graph([x, y], [apply("reshape", sums, shape=(6, 4)), apply("reshape", sums, shape=(3, 8))])
    after = simplify(graph)
    assert {node.shape for node in topological(after.outs[:1]) if node.shape} == {(6, 4)}
    arrays = [np.random.default_rng(k).normal(size=(6, 4)) for k in range(2)]
    for one, other in zip(after(*arrays), graph(*arrays), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_a_few_equal_constants_are_neutral_as_one_is():
    """Ones that an image is enlarged with, and masks that let all through; not zeros of two signs."""
    x = param(Aval((2, 3), np.dtype(np.float32)), "x")
    ones, zeros = np.ones(3, np.float32), np.array([-0.0, 0.0, -0.0], np.float32)
    graph = Graph([x], [apply("multiply", x, ones), apply("add", x, -np.abs(zeros)), apply("add", x, zeros)])
    kept, also, added = simplify(graph).outs
    assert kept is also is x
    assert added.op == "add"


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("ufunc", ["add", "subtract", "maximum"])
def test_what_is_added_at_places_has_their_type(ufunc, dtype):
    """Where NumPy's sums are the same: it takes Python's numbers for doubles and integers of 64 bits."""
    rng = np.random.default_rng(0)
    table, places = (rng.random(7) * 5).astype(dtype), rng.integers(0, 7, 40)
    x, i = param(Aval(table.shape, table.dtype), "x"), param(Aval(places.shape, places.dtype), "i")

    def applied(value):
        if ufunc == "add":
            return apply("scatter", x, value, i, pattern=(("d", 0),), mode="add")
        return apply("ufunc_at", x, value, i, ufunc=ufunc, pattern=(("d", 0),))

    wider = {3: ("u8",), -3: ("u4", "u8"), 2**24 + 1: ("f4", "u8"), 2**40: ("i4", "u4", "u8")}
    for number, kept in wider.items():
        with np.errstate(all="ignore"):
            after = simplify(graph := Graph([x, i], [applied(const(number))]))
            np.testing.assert_array_equal(after(table, places)[0], graph(table, places)[0], strict=True)
        if dtype not in kept:
            assert not any(node.aval.weak for node in after.nodes)
            assert not any(node.op == "ufunc_at" and node.attrs["ufunc"] == "subtract" for node in after.nodes)
    values = rng.integers(0, 9, 40).astype("i2")
    y = param(Aval(values.shape, values.dtype), "y")
    graph = Graph([x, i, y], [applied(y)])
    after = simplify(graph)
    np.testing.assert_array_equal(after(table, places, values)[0], graph(table, places, values)[0], strict=True)
    assert any(node.op == "cast" for node in after.nodes) == (dtype[0] != "u")
