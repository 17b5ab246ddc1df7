"""Reductions along axes that lie apart, of numbers that NumPy converts first: NumPy's bits, and generated kernels."""

import itertools

import numpy as np
import pytest
from compare import bits
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.ops.sweeps import REDUCTIONS
from futurex.passes.pipeline import optimise
from futurex.passes.reductions import arrange_reductions
from futurex.tree import Aval, Graph, apply, param

SHAPES = [(34, 33, 65), (12, 45, 9, 17), (3, 3, 9000), (600, 130, 1), (70_000,), (9, 8200), (4, 9, 9), (41, 40, 13, 4)]
DTYPES = ["?", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8"]


def reduce(name, x, axis, dtype=None, keepdims=False):
    extra = {"dtype": dtype} if name in ("sum", "prod") else {}
    return apply(name, x, axis=axis, keepdims=keepdims, **extra)


def draw(rng, shape, dtype):
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return (rng.normal(size=shape) * 3).astype(dtype)


def axes_of(ndim):
    return [None, *(axes for count in range(1, ndim + 1) for axes in itertools.combinations(range(ndim), count))]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_graph_means_the_same_to_the_bit(dtype):
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        values = draw(rng, shape, dtype)
        if dtype in ("f4", "f8"):
            values.flat[::501], values.flat[3] = -0.0, np.inf
        for axis, name in itertools.product(axes_of(len(shape)), sorted(REDUCTIONS - {"free_sum", "free_max"})):
            for wide in (None, "f8") if name == "sum" and dtype != "f8" else (None,):
                x = param(Aval(shape, np.dtype(dtype)), "x")
                graph = Graph([x], [reduce(name, x, axis, None if wide is None else np.dtype(wide))])
                (expected,), (actual,) = graph(values), arrange_reductions(graph)(values)
                assert bits(np.asarray(actual)) == bits(np.asarray(expected)), (shape, axis, name, wide)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", ["?", "i4", "f2", "f4"])
def test_generated_kernels_compute_them(dtype, monkeypatch, tmp_path):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    shapes = {(32, 40, 65): ((0, 2), (1, 2), (0, 1), 1, None), (41, 40, 13, 4): ((1, 3), (0, 1, 3))}
    for shape, axis in [(shape, axis) for shape, every in shapes.items() for axis in every]:
        values = draw(np.random.default_rng(1), shape, dtype)
        for function in (np.sum, np.mean, np.max, np.any, np.var):
            futurized = fx.futurize(lambda x, function=function, axis=axis: function(x, axis=axis))
            expected = function(values, axis=axis)
            actual = futurized(values).result()
            assert bits(np.asarray(actual)) == bits(np.asarray(expected)), (shape, axis, function)


def ops_of(graph):
    return [node.op for node in graph.nodes if node.inputs]


def test_which_are_taken_apart():
    """Where the order is part of the answer and is another one, and where it is not worth it, NumPy's call stays."""
    cases = [
        ((70, 33, 65), "f4", (0, 2), True), ((70, 33, 65), "f4", (1, 2), False),
        ((70, 33, 65, 5), "f4", (0, 2), False),  # sums that break off where the last axis begins
        ((70, 33, 65, 5), "i4", (0, 2), True), ((70, 33, 65, 16), "i4", (0, 2), True),
        ((16, 7, 8, 9, 20), "f4", (0, 2, 4), False),
        ((7000, 33, 2), "f4", (0, 2), True), ((4, 5, 6), "f4", (0, 2), False),
    ]  # fmt: skip
    for shape, dtype, axis, taken in cases:
        x = param(Aval(shape, np.dtype(dtype)), "x")
        graph = Graph([x], [reduce("sum", x, axis)])
        assert (ops_of(arrange_reductions(graph)) == ["sum", "sum", "reshape"]) == taken, (shape, dtype, axis)
        assert not taken or "fused_reduction" in ops_of(optimise(graph))


def test_a_turned_array_is_summed_as_it_lies():
    x = param(Aval((65, 33, 70), np.dtype("f4")), "x")
    values = np.random.default_rng(2).normal(size=x.shape).astype("f4")
    graph = Graph([x], [reduce("sum", apply("transpose", x, axes=(2, 1, 0)), (0, 2))])
    assert ops_of(arrange_reductions(graph)) == ["transpose", "sum"]
    assert bits(np.asarray(arrange_reductions(graph)(values)[0])) == bits(values.T.sum((0, 2)))


@pytest.mark.parametrize("axis", [(0, 1), (2, 1), (-1, 0)])
@pytest.mark.parametrize("ord", [None, "fro"])
def test_norms_of_matrices_are_regions(axis, ord):
    values = np.random.default_rng(3).normal(size=(34, 33, 65)).astype("f4")
    x = param(Aval(values.shape, values.dtype), "x")
    for keepdims in (False, True):
        graph = Graph([x], [apply("norm", x, ord=ord, axis=axis, keepdims=keepdims)])
        after = optimise(graph)
        assert "norm" not in ops_of(after)
        expected = np.linalg.norm(values, ord=ord, axis=axis, keepdims=keepdims)
        assert bits(np.asarray(after(values)[0])) == bits(expected)


@given(
    size=st.one_of(st.integers(4096, 90000), st.sampled_from([8192, 8193, 8192 * 9, 8192 * 9 + 1, 8192 * 10 - 1])),
    case=st.sampled_from([("f4", "f8"), ("i8", "f8"), ("u8", "f8"), ("f2", "f4"), ("i8", "f4")]),
    seed=st.integers(0, 99), rows=st.sampled_from([1, 2, 7]), keepdims=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_numpy_adds_in_pieces(size, case, seed, rows, keepdims):
    source, dtype = case
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, size // rows)) * (2.0**60 if source in ("i8", "u8") else 1.0)
    values = np.abs(values).astype(source) if source == "u8" else values.astype(source)
    values[0, 3] = 0 if seed % 2 else -0.0
    if seed % 5 == 0:
        values[:] = -0.0
    x = param(Aval(values.shape, values.dtype), "x")
    graph = Graph([x], [reduce("sum", x, None, np.dtype(dtype), keepdims)])
    after = arrange_reductions(graph)
    assert ("cumsum" in ops_of(after)) == (case != ("i8", "f4") and values.size > np.getbufsize())
    assert bits(np.asarray(after(values)[0])) == bits(np.asarray(values.sum(dtype=dtype, keepdims=keepdims)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", ["max", "min", "any", "all", "sum", "prod"])
@pytest.mark.parametrize("shape", [(70_000, 3), (350, 210, 1, 2), (65_536, 1, 15), (22_000, 3)])
def test_few_columns_are_reduced_in_wide_rows(op, shape):
    """What may go in any order: many rows beside each other, and what is left of them joined in the end."""
    rng = np.random.default_rng(len(shape))
    for dtype in ("f4", "f8", "i4", "u1", "?"):
        values = (rng.normal(size=shape) * 40).astype(dtype)
        if dtype[0] == "f":
            values.flat[5] = np.nan
        axes, kind = tuple(range(len(shape) - 1)), {"dtype": values.dtype} if op in ("sum", "prod") else {}
        for keepdims in (False, True):
            def f(x, axes=axes, keepdims=keepdims, kind=kind):
                return getattr(np, op)(x, axis=axes, keepdims=keepdims, **kind)

            expected, found = f(values), np.asarray(fx.futurize(f, escape="error")(values))
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)


def test_which_columns_are_reduced_in_wide_rows():
    def ops(op, shape, kind="f4", **attrs):
        x = param(Aval(shape, np.dtype(kind)), "x")
        return ops_of(arrange_reductions(Graph([x], [apply(op, x, axis=(0,), keepdims=False, **attrs)])))

    assert "maximum" in ops("max", (30_001, 3))
    assert "maximum" not in ops("max", (64 * 1024, 3))  # nothing is left of the rows
    assert ops("max", (64 * 1024, 3)).count("max") == 2
    assert ops("max", (20_000, 3)) == ["max"]
    assert ops("max", (30_001, 16)) == ["max"]
    assert ops("sum", (30_001, 3), dtype=None) == ["sum"]  # in NumPy's order
    assert ops("free_sum", (30_001, 3)) == ["free_sum"]  # which goes beside what else reads the array
    assert "add" in ops("sum", (30_001, 3), "i8", dtype=None)


@pytest.mark.parametrize("source", ["?", "u1", "i1"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("axis", [None, (0,), (1,), (0, 2)])
def test_narrow_integers_that_become_floats_are_added_as_integers(source, dtype, axis):
    """As many as a float counts: NumPy converts rows one by one, of a few elements where axes lie apart."""
    x = draw(np.random.default_rng(0), (40, 30, 50), source)
    m = param(Aval(x.shape, x.dtype), "m")
    graph = Graph([m], [reduce("sum", m, axis, np.dtype(dtype))])
    assert not [node for node in arrange_reductions(graph).nodes if node.op == "sum" and node.dtype == dtype]
    (found,) = optimise(graph)(x)
    np.testing.assert_array_equal(found, x.sum(axis=axis, dtype=dtype), strict=True)


def test_more_than_a_float_can_count_is_numpys():
    for dtype, extent in (("?", (1 << 24) + 1), ("u1", (1 << 16) + 1)):
        m = param(Aval((extent,), np.dtype(dtype)), "m")
        (total,) = arrange_reductions(Graph([m], [reduce("sum", m, None, np.dtype("f4"))])).outs
        assert (total.op, total.inputs[0]) == ("sum", m)
