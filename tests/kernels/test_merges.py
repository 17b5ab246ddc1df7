"""Long rows that threads sort in parts, which are merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, merges
from futurex.tree import Aval, apply, param

RNG = np.random.default_rng(7)
DTYPES = ["f4", "f8", "i4", "i8", "u4", "u8"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(merges, "LEAST", 8)


def kernel_for(x, threads, kind=None):
    node = apply("sort", param(Aval(x.shape, x.dtype), "x"), axis=0, kind=kind)
    return NumbaBackend().claim(node, threads)


def ordered(x, threads):
    kernel = kernel_for(x, threads)
    kernel.late.prepare((), wait=True)
    given, out = x.copy(), np.full_like(x, 3)
    kernel.call(out, x)
    assert kernel.late.interpreted == 0
    np.testing.assert_array_equal(x, given)
    return out


def numbers(dtype, size, spread, seed):
    rng = np.random.default_rng(seed)
    if dtype[0] != "f":
        limits = np.iinfo(dtype)
        low, high = (max(limits.min, -spread), min(limits.max, spread)) if spread else (limits.min, limits.max)
        return rng.integers(low, high, size, dtype, endpoint=True)
    x = (rng.normal(size=size) * (spread or 1)).astype(dtype)
    x = x.round() if spread else x
    x[rng.random(size) < 0.05] = np.nan
    x[rng.random(size) < 0.02] = -np.inf
    return x


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), size=st.integers(64, 900), threads=st.sampled_from([2, 3, 4, 8]),
    spread=st.sampled_from([0, 1, 5, 300]), seed=st.integers(0, 999),
)  # fmt: skip
def test_rows_are_in_numpys_order(dtype, size, threads, spread, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merges, "LEAST", 8)
        x = numbers(dtype, size, spread, seed)
        np.testing.assert_array_equal(ordered(x, threads), np.sort(x))


@pytest.mark.parametrize("threads", [2, 4, 8])
@pytest.mark.parametrize(
    "x",
    [np.arange(1000.0), -np.arange(1000.0), np.zeros(1000), np.full(1000, np.nan),
     np.r_[np.full(500, np.nan), np.ones(500)], np.r_[np.ones(500), np.full(500, np.nan)],
     np.r_[np.arange(500, 1000), np.arange(500)],
     np.r_[np.full(500, np.iinfo("i8").max), np.full(500, np.iinfo("i8").min)], np.tile([3, 1, 2], 400)],
)  # fmt: skip
def test_rows_whose_parts_lie_apart(x, threads):
    np.testing.assert_array_equal(ordered(x, threads), np.sort(x))


def test_written_over_its_operand():
    for threads in (2, 4):
        x = RNG.normal(size=5000)
        kernel, expected = kernel_for(x, threads), np.sort(x)
        kernel.late.prepare((), wait=True)
        assert kernel.inplace == (0,)
        kernel.call(x, x)
        np.testing.assert_array_equal(x, expected)


def test_both_ways_are_tried_and_the_faster_one_stays():
    x = np.zeros(400_000)
    kernel = kernel_for(x, 2)
    kernel.late.prepare((), wait=True)
    for _ in range(12):
        np.testing.assert_array_equal(kernel.call(np.ones_like(x), x), x)
    assert kernel.call.contest.seconds is not None


@pytest.mark.parametrize(
    ("x", "threads", "kind"),
    [(RNG.normal(size=15), 2, None), (RNG.normal(size=500), 1, None), (RNG.normal(size=(50, 50)), 2, None),
     (RNG.normal(size=500), 2, "stable"), (np.zeros(500, "u1"), 2, None), (np.zeros(500, complex), 2, None)],
)  # fmt: skip
def test_others_stay_with_numpy(x, threads, kind):
    assert kernel_for(x, threads, kind) is None


def test_integers_in_a_stable_order_are_the_same():
    x = RNG.integers(0, 9, 1000)
    assert kernel_for(x, 2, "stable") is not None
    f = fx.futurize(lambda x: np.sort(x[::-1] * 2))
    for _ in range(3):
        np.testing.assert_array_equal(f(x), np.sort(x * 2))
