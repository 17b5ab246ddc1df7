"""Where elements of large arrays are other than zero."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, truths
from futurex.tree import Aval, apply, param

RNG = np.random.default_rng(5)
DTYPES = ["?", "u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def kernel_for(x, threads=2, **attrs):
    node = apply("nonzero", param(Aval(x.shape, x.dtype), "x"), **{"extents": None, **attrs})
    kernel = NumbaBackend().claim(node, threads)
    if kernel is not None:
        kernel.late.prepare((), wait=True)
    return kernel


def found_in(x, threads=2, **attrs):
    kernel = kernel_for(x, threads, **attrs)
    places = kernel.call(None, x)
    assert kernel.late.interpreted == 0
    return places


def elements(dtype, size, share, seed):
    rng = np.random.default_rng(seed)
    x = rng.random(size) < share
    if dtype == "?":
        return x
    return np.where(x, rng.integers(1, 100, size), 0).astype(dtype)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), size=st.integers(truths.LEAST, truths.LEAST + 300), seed=st.integers(0, 999),
    share=st.sampled_from([0.0, 0.0005, 0.02, 0.5, 0.99, 1.0]), threads=st.sampled_from([1, 2, 3, 16]),
)  # fmt: skip
def test_places_are_numpys(dtype, size, share, seed, threads):
    x = elements(dtype, size, share, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truths, "PARALLEL", 1)
        (found,) = found_in(x, threads)
    (expected,) = np.nonzero(x)
    assert found.dtype == expected.dtype
    assert found.base is None
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("where", [slice(0, 1), slice(-1, None), slice(0, 64), slice(-64, None), slice(63, 65)])
def test_beside_the_ends(where, monkeypatch):
    monkeypatch.setattr(truths, "PARALLEL", 1)
    for size in (truths.LEAST, truths.LEAST + 7):
        x = np.zeros(size, bool)
        x[where] = True
        for threads in (1, 2, 5):
            np.testing.assert_array_equal(found_in(x, threads)[0], np.nonzero(x)[0])


def test_what_is_no_number_is_true_and_zeros_of_either_sign_are_not():
    x = np.tile([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324], 5000)
    for dtype in ("f8", "f4"):
        np.testing.assert_array_equal(found_in(x.astype(dtype))[0], np.nonzero(x.astype(dtype))[0])


@pytest.mark.parametrize("shape", [(200, 300), (30, 40, 50), (1, 40_000), (40_000, 1)])
def test_arrays_of_several_axes(shape):
    x = RNG.random(shape) < 0.1
    for found, expected in zip(found_in(x), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_what_a_mask_does_not_fit_is_numpys_error():
    x = RNG.random(20_000) < 0.5
    np.testing.assert_array_equal(found_in(x, extents=(20_000,), first=0)[0], np.nonzero(x)[0])
    with pytest.raises(IndexError, match="boolean index did not match"):
        found_in(x, extents=(20_001,), first=0)


@pytest.mark.parametrize(
    "x", [np.ones(100, bool), np.ones(20_000, complex), np.ones(20_000, "f2"), np.ones(20_000, ">i4")]
)
def test_others_stay_with_numpy(x):
    assert kernel_for(x) is None


def test_programs():
    x = RNG.normal(size=(300, 200))
    programs = [
        lambda x: np.argwhere(x > 1), lambda x: x[x > 1], lambda x: np.flatnonzero(np.diff(np.sign(x.ravel()))),
        lambda x: np.where(x.ravel()[::2] > 0)[0], lambda x: x[(x > 0).any(1)], lambda x: x[:, x[0] > 0],
    ]  # fmt: skip
    for program in programs:
        f = fx.futurize(program)
        for scale in (1.0, 2.0, -1.0):
            np.testing.assert_array_equal(f(scale * x), program(scale * x), strict=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "c16", "?"])
def test_what_places_of_any_number_pick(axis, dtype):
    x = (RNG.normal(size=(60, 50, 40)) * 10).astype(dtype)
    mask = RNG.random(x.shape[axis]) < 0.7
    index = (slice(None),) * axis
    f = fx.futurize(lambda x, m: x[(*index, m)])
    plan = f.trace(x, mask).plan
    assert "numba" in {each.kernel.backend for each in plan.instructions if each.node.op == "gather"}
    for chosen in (mask, ~mask, mask & False, mask | True):
        np.testing.assert_array_equal(f(x, chosen), x[(*index, chosen)], strict=True)
        np.testing.assert_array_equal(plan.run([x, chosen])[0], x[(*index, chosen)], strict=True)


def test_places_outside_are_numpys_error():
    def picked(x, m, shift):
        return x[np.flatnonzero(m) + shift]

    x, mask = RNG.normal(size=20_000), RNG.random(20_000) < 0.9
    f = fx.futurize(picked)
    np.testing.assert_array_equal(f(x, mask, -20_000), picked(x, mask, -20_000))
    for shift in (20_000, -20_001 - int(np.flatnonzero(mask)[0])):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 20000"):
            np.asarray(f(x, mask, shift))
