"""Mean and variance of columns in one trip are as close to the exact ones as those of two, on any number of threads."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend
from futurex.kernels.numba_.compiler import Entry
from futurex.tree import Aval, apply, param

SHAPES = [(130, 16), (129, 17), (4, 9, 80), (300, 1029), (5000, 64), (64, 300), (7, 40), (1, 20), (400, 248)]


def moments(x, threads):
    node = apply("moments", param(Aval(x.shape, x.dtype), "x"))
    kernel = NumbaBackend().claim(node, threads)
    assert kernel is not None
    kernel.late.prepare((), wait=True)
    out = tuple(np.full(x.shape[-1:], 77, x.dtype) for _ in range(2))
    for _ in range(2):
        kernel.call(out, x)
    assert kernel.late.interpreted == 0
    return out


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("mean", [0.0, 1e4, -1e7], ids=["no mean", "a large one", "a larger one"])
def test_they_are_as_close_as_those_of_two_trips(dtype, mean, monkeypatch):
    monkeypatch.setattr("futurex.kernels.numba_.channels.PARALLEL_BYTES", 0)
    rng = np.random.default_rng(0)
    unit = np.finfo(dtype).eps
    for shape in SHAPES:
        x = (rng.normal(size=shape) * 3 + mean).astype(dtype)
        axes = tuple(range(x.ndim - 1))
        wide = x.astype(np.longdouble)
        exact = wide.mean(axes), wide.var(axes)
        of_mean, of_variance = moments(x, 1)
        assert np.abs(of_mean - exact[0]).max() <= 4 * unit * (abs(mean) + 10), shape
        assert np.abs(of_variance - exact[1]).max() <= 16 * unit * exact[1].max(), shape
        for threads in (2, 3, 5):
            for actual, other in zip(moments(x, threads), (of_mean, of_variance), strict=True):
                assert np.array_equal(actual, other), (shape, threads)


def test_numpy_computes_until_both_kernels_are_there(monkeypatch):
    real = NumbaBackend().claim(apply("moments", param(Aval((300, 24), np.dtype("f4")), "x")), 1).late
    monkeypatch.setattr("futurex.kernels.numba_.moments.compiled", lambda text, *, wait: Entry("", text))
    real.joining, real.wait = Entry("", ""), True
    x = np.random.default_rng(3).normal(size=(300, 24)).astype("f4")
    out = np.empty(24, "f4"), np.empty(24, "f4")
    real(out, x)
    assert real.entry.ready
    assert not real.ready
    assert real.interpreted == 1
    np.testing.assert_allclose(out, (x.mean(0), x.var(0)), rtol=1e-5, atol=1e-6)


def test_numbers_that_are_not_finite_stay_in_their_columns():
    x = np.random.default_rng(1).normal(size=(500, 40)).astype("f4")
    x[0, 1], x[3, 2], x[499, 3], x[0, 4], x[7, 5], x[:, 6] = np.inf, -np.inf, np.nan, np.nan, np.inf, 3e19
    mean, variance = moments(x, 2)
    with np.errstate(all="ignore"):
        expected, two_trips = x.mean(0), x.var(0)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.isnan(variance), np.isnan(two_trips))
    assert variance[6] == 0


@pytest.mark.parametrize("rows", [100, 2000])
def test_batch_normalisation_finds_its_statistics_by_them(rows):
    x = np.random.default_rng(2).normal(size=(rows, 32)).astype("f4") + 50
    scale, shift = np.linspace(0.5, 1.5, 32, dtype="f4"), np.linspace(-1, 1, 32, dtype="f4")

    def norm(x, scale, shift):
        return fx.nn.batch_norm(x, scale, shift)

    plan = fx.futurize(norm).trace(x, scale, shift).plan
    plan.prepare(wait=True)
    assert ("moments" in {each.node.op for each in plan.instructions}) == (rows > 128)
    wide = x.astype("f8")
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5) * scale + shift
    for actual, exact in zip(plan.run([x, scale, shift]), (expected, wide.mean(0), wide.var(0)), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=1e-4, atol=1e-4)
