"""Reductions with ``where=`` and ``initial=``, and ``fmax`` and ``fmin``: regions that mean what NumPy means."""

import numpy as np
import pytest
from compare import bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes.reductions import arrange_reductions
from futurex.tree import Aval, Graph, apply, const, param

SHAPES = [((260, 257), (0,)), ((260, 257), (1,)), ((260, 257), None), ((33, 40, 65), (1,)), ((33, 40, 65), (0, 2))]
UFUNCS = ["add", "multiply", "maximum", "minimum", "logical_or", "logical_and"]


def reduction(ufunc, x, mask=None, start=None, **attrs):
    given_ = [] if start is None else [start]
    masked = [] if mask is None else [mask]
    initial = "default" if start is None else "given"
    kept = {"axis": None, "keepdims": False, "dtype": None, "out": None, **attrs}
    return apply("ufunc_reduce", x, *given_, *masked, ufunc=ufunc, initial=initial, masked=mask is not None, **kept)


def draw(rng, shape, dtype):
    x = (rng.normal(size=shape) * 3).astype(dtype)
    if x.dtype.kind == "f":
        flat = x.reshape(-1)
        flat[rng.integers(0, x.size, 40)] = -0.0
        flat[rng.integers(0, x.size, 3)] = np.inf
        flat[rng.integers(0, x.size, 3)] = np.nan
    return x


def ops_of(graph):
    return [node.op for node in graph.nodes if node.inputs]


def check(graph, taken, exact, *values):
    """The graph, its arranged form and its kernels, on one thread and two, agree."""
    after = arrange_reductions(graph)
    assert ("ufunc_reduce" not in ops_of(after)) == taken
    with np.errstate(all="ignore"):
        (expected,) = graph(*values)
        found = [after(*values)[0], *(run(graph, threads, values) for threads in (1, 2))]
    for each in found:
        assert np.asarray(each).dtype == np.asarray(expected).dtype
        if exact:
            assert bits(np.asarray(each)) == bits(np.asarray(expected))
        else:
            np.testing.assert_allclose(each, expected, rtol=2e-4, atol=2e-2)
    assert bits(np.asarray(found[1])) == bits(np.asarray(found[2]))


def run(graph, threads, values):
    return fx.runtime.plan.compile_plan(graph, threads=threads).run(list(values))[0]


@pytest.mark.usefixtures("compiled_at_once")
@given(
    case=st.sampled_from(SHAPES), ufunc=st.sampled_from(UFUNCS), dtype=st.sampled_from(["f4", "f8", "i4", "u8", "?"]),
    seed=st.integers(0, 99), share=st.sampled_from([0.0, 0.02, 0.5, 1.0]), narrow=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mask(case, ufunc, dtype, seed, share, narrow):
    (shape, axis), rng = case, np.random.default_rng(seed)
    x = draw(rng, shape, dtype)
    mask = rng.random(shape[-1:] if narrow else shape) < share
    extreme = ufunc in ("maximum", "minimum")
    start = const(x.dtype.type(1)) if extreme else None
    one, which = param(Aval(shape, x.dtype), "x"), param(Aval(mask.shape, mask.dtype), "m")
    graph = Graph([one, which], [reduction(ufunc, one, which, start, axis=axis)])
    exact = not (ufunc == "add" and x.dtype.kind == "f" and (axis is None or len(shape) - 1 in axis))
    check(graph, True, exact, x, mask)


@pytest.mark.usefixtures("compiled_at_once")
@pytest.mark.parametrize("ufunc", ["fmax", "fmin"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_all_but_nan(shape, axis, dtype, ufunc):
    x = draw(np.random.default_rng(1), shape, dtype)
    if dtype != "i4":
        x = np.where(x == 0, 1, x).astype(dtype)  # which zero NumPy takes depends on its place
        x[:, 3], x[2] = np.nan, np.nan
        x[5] = -np.inf if ufunc == "fmax" else np.inf
    one = param(Aval(shape, x.dtype), "x")
    check(Graph([one], [reduction(ufunc, one, axis=axis)]), True, True, x)


@pytest.mark.usefixtures("compiled_at_once")
def test_start_values():
    """Of floats' sums a start value is part of the order; a number that NumPy would convert with loss stays its own."""
    x = draw(np.random.default_rng(2), (260, 257), "f4")
    whole = (np.nan_to_num(x, posinf=0) * 10).astype("i4")
    for values, ufunc, start, taken in [
        (x, "maximum", 2, True), (x, "maximum", -np.inf, True), (x, "minimum", np.nan, True), (x, "add", 2.0, False),
        (whole, "add", 7, True), (whole, "maximum", 2**31 - 1, True), (whole, "multiply", 3, True),
        (whole, "maximum", 2.5, False), (x, "multiply", 2.0, False),
    ]:  # fmt: skip
        one = param(Aval(values.shape, values.dtype), "x")
        check(Graph([one], [reduction(ufunc, one, None, const(start), axis=(0,))]), taken, True, values)


@pytest.mark.parametrize(("x", "attrs"), [
    (np.zeros((260, 257), "f4"), {"out": np.dtype("f8")}), (np.zeros((260, 257), "f2"), {}),
    (np.zeros((260, 257), "c8"), {}), (np.zeros((20, 20), "f4"), {}),
], ids=str)  # fmt: skip
def test_what_stays_with_numpy(x, attrs):
    one, mask = param(Aval(x.shape, x.dtype), "x"), param(Aval(x.shape, np.dtype(bool)), "m")
    check(Graph([one, mask], [reduction("add", one, mask, axis=(0,), **attrs)]), False, True, x, x == 0)


def test_products_of_halves_outgrow_them_at_every_run_of_the_mask():
    x, m = np.tile(np.array([300, 300, 1, 0], "u4"), (64, 300)), np.tile([True, True, False, True], (64, 300))
    one, mask = param(Aval(x.shape, x.dtype), "x"), param(Aval(m.shape, m.dtype), "m")
    graph = Graph([one, mask], [reduction("multiply", one, mask, axis=(1,), dtype=np.dtype("f2"))])
    with np.errstate(all="ignore"):
        check(graph, False, True, x, m)
        assert np.isnan(run(graph, 1, [x, m])).all()


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_sums_of_real_numbers_with_a_start_value_stay_with_numpy(dtype):
    x = draw(np.random.default_rng(4), (260, 257), "i4")
    one, start = param(Aval(x.shape, x.dtype), "x"), const(1)
    for ufunc in ("add", "multiply"):
        check(Graph([one], [reduction(ufunc, one, None, start, dtype=np.dtype(dtype))]), False, True, x)


def test_a_sum_without_a_start_keeps_the_sign_of_zero():
    x = np.full((260, 257), -0.0, "f4")
    one = param(Aval(x.shape, x.dtype), "x")
    attrs = {"axis": (0,), "keepdims": False, "dtype": None, "out": None, "masked": False}
    graph = Graph([one], [apply("ufunc_reduce", one, ufunc="add", initial="none", **attrs)])
    assert "ufunc_reduce" in ops_of(arrange_reductions(graph))
    assert np.signbit(run(graph, 1, [x])).all()


@pytest.mark.usefixtures("compiled_at_once")
def test_in_a_function():
    @fx.futurize
    def f(x, m):
        return np.nanmax(x), np.nanmin(x, axis=0), x.sum(axis=0, where=m), np.mean(x, axis=0, where=m)

    x = np.random.default_rng(3).normal(size=(300, 400)).astype("f4")
    x[4, 5] = np.nan
    m = np.isfinite(x)
    for _ in range(3):
        assert bits([np.asarray(each) for each in f(x, m)]) == bits(list(f.plain(x, m)))
    assert {row.op for row in f.profile() if row.backend == "numpy"} <= {"divide", "where", "cast", "check", "any"}
