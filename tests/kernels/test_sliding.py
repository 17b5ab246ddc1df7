"""Convolutions whose weights slide over vectors of results."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, sliding
from futurex.kernels.numba_.sliding import IN_ORDER, LEAST, MOST_WEIGHTS
from futurex.kernels.steps import Row, Workspace
from futurex.tree import Aval, apply, param

RNG = np.random.default_rng(12)


def values(size, dtype):
    return (RNG.standard_normal(size) * 100).astype(dtype)


def claimed(a, v, mode, threads=2):
    avals = [Aval(each.shape, each.dtype) for each in (a, v)]
    node = apply("convolve", *(param(each, name) for each, name in zip(avals, "av", strict=True)), mode=mode)
    return NumbaBackend().claim(node, threads), node


def convolved(a, v, mode, threads=2):
    kernel, node = claimed(a, v, mode, threads)
    kernel.late.prepare((), wait=True)
    out = np.full(node.shape, 77, node.dtype)
    kernel.call(out, a, v)
    assert kernel.late.interpreted == 0
    return out


def bound_of(a, v, mode):
    """What sums of these products may differ by, twice rounded in any order."""
    sums = np.convolve(np.abs(a).astype(float), np.abs(v).astype(float), mode)
    return 2 * min(a.size, v.size) * np.finfo(a.dtype).eps * sums


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("weights", [1, 2, 3, 8, 11])
def test_few_products_are_added_up_to_the_bit(weights, mode):
    """At the ends NumPy asks BLAS."""
    a, v = values(70_001, float), values(weights, float)
    for pair in ((a, v), (v, a)):
        found, expected = convolved(*pair, mode), np.convolve(*pair, mode)
        np.testing.assert_array_equal(found[weights:-weights], expected[weights:-weights])
        assert (np.abs(found - expected) <= bound_of(*pair, mode)).all()


@pytest.mark.parametrize(("count", "weights", "mode"), [(300, 300, "full"), (500, 500, "same"), (2000, 1000, "full")])
def test_ends_alone_are_left_to_inner_products(count, weights, mode):
    assert claimed(values(count, float), values(weights, float), mode)[0] is None
    assert claimed(values(5 * count, float), values(weights // 5, float), mode)[0] is not None


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("weights", [5, 12, 31, 64, 129, 1000])
def test_floats_agree_within_their_rounding(weights, dtype, mode):
    a, v = values(66_000, dtype), values(weights, dtype)
    found, expected = convolved(a, v, mode), np.convolve(a, v, mode)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert (np.abs(found - expected.astype(float)) <= bound_of(a, v, mode)).all()
    if weights <= IN_ORDER:
        middle = slice(weights, -weights)
        np.testing.assert_array_equal(found[middle], expected[middle])


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
def test_integers_are_exact_and_wrap_around(dtype, mode):
    a, v = values(5_000, "i8").astype(dtype), (values(40, "i8") << 28).astype(dtype)
    np.testing.assert_array_equal(convolved(a, v, mode), np.convolve(a, v, mode))


@pytest.mark.parametrize(("count", "weights"), [(400, 399), (300, 300), (2100, 2048), (65_536, 2), (66_111, 17)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_any_lengths(count, weights, mode, monkeypatch):
    monkeypatch.setattr(sliding, "_CALL", -np.inf)  # also where NumPy takes less time
    a, v = values(count, float), values(weights, float)
    for pair in ((a, v), (v, a)):
        found, expected = convolved(*pair, mode), np.convolve(*pair, mode)
        assert found.shape == expected.shape
        assert (np.abs(found - expected) <= bound_of(*pair, mode)).all()


@pytest.mark.parametrize("weights", [7, 30])
def test_what_is_not_finite_stays_where_it_is(weights):
    """Beyond the ends there are no products, of infinities either."""
    a, v = values(70_000, float), values(weights, float)
    a[[0, 500, -1]] = np.inf, np.nan, -np.inf
    v[[0, -1]] = np.inf, -np.inf
    for mode in ("full", "same", "valid"):
        with np.errstate(all="ignore"):
            expected = np.convolve(a, v, mode)
        np.testing.assert_array_equal(np.isnan(convolved(a, v, mode)), np.isnan(expected))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_number_of_threads_changes_no_bit(threads):
    a, v = values(100_003, float), values(25, float)
    np.testing.assert_array_equal(convolved(a, v, "same", threads), convolved(a, v, "same", 3))


def test_as_a_step():
    a, v = values(70_000, float), values(20, float)
    kernel, node = claimed(a, v, "full")
    kernel.late.prepare((), wait=True)
    out = np.zeros(node.shape)
    bound = kernel.bind(Workspace())
    Row(bound.aim(out, a, v)).run()
    np.testing.assert_array_equal(out, convolved(a, v, "full"))


OTHERS = {
    "small": (values(LEAST // 20 - 1, "f8"), values(20, "f8")),
    "many weights": (values(5000, "f8"), values(MOST_WEIGHTS + 1, "f8")),
    "two types": (values(70_000, "f8"), values(9, "f4")),
    "complex": (values(70_000, "c16"), values(9, "c16")),
    "bytes": (values(70_000, "i1"), values(9, "i1")),
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_stay_with_numpy(case):
    assert claimed(*OTHERS[case], "same")[0] is None


def test_smoothing_and_its_slopes():
    x, weights = values(40_000, float), np.hanning(31)
    f = fx.futurize(lambda x, w: np.convolve(x, w, "same"))
    assert [each.kernel.backend for each in f.trace(x, weights).plan.instructions] == ["numba"]
    for _ in range(3):
        np.testing.assert_allclose(f(x, weights), np.convolve(x, weights, "same"), rtol=0, atol=1e-10)
    slope = fx.grad(lambda x, w: (np.convolve(x, w, "same") ** 2).sum(), argnums=(0, 1))
    dx, dw = slope(x, weights)
    smooth = np.convolve(x, weights, "same")
    np.testing.assert_allclose(dx, 2 * np.correlate(smooth, weights, "same"), rtol=0, atol=1e-9)
    step = np.zeros(31)
    step[4] = 1.0
    np.testing.assert_allclose(dw[4], 2 * (smooth * np.convolve(x, step, "same")).sum(), rtol=1e-9)
