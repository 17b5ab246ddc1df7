"""Logarithms, roots and directions of complex numbers in regions: within units in the last place of each part, with C's
special values and branch cuts; reciprocals to the bit."""

import itertools

import numpy as np
import pytest
from complex_regions import compute, made, units
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import complexes, real
from futurex.ops.fusion import loop_of
from futurex.tree import Aval, apply, param

pytestmark = [
    pytest.mark.skipif(not complexes.known(), reason="NumPy multiplies without fused multiply-add here"),
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="longdouble is no wider than double here"),
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
BOUND = 4.0
DTYPES = [np.dtype("F"), np.dtype("D")]
NAMES = ["log", "log2", "log10", "sqrt", "sign"]
N = 1 << 15


def numbers(dtype, rng):
    """Around one and on its circle, of every size, of parts far apart, and with one part zero."""
    own = np.dtype(f"f{dtype.itemsize // 2}")
    top = 120 if own.itemsize == 4 else 1020

    def sizes(low=-top, high=top):
        return np.exp2(rng.uniform(low, high, N)) * rng.choice([-1, 1], N)

    angle = rng.uniform(-np.pi, np.pi, N)
    yield made(rng.normal(size=N), rng.normal(size=N), dtype)
    yield made(np.cos(angle), np.sin(angle), dtype)
    for spread in (1e-3, 1e-9, 1e-15):
        grown = 1 + rng.normal(size=N) * spread
        yield made(np.cos(angle) * grown, np.sin(angle) * grown, dtype)
        yield made(1 + rng.normal(size=N) * spread, rng.normal(size=N) * np.sqrt(spread), dtype)
    yield made(sizes(), sizes(), dtype)
    same = sizes()
    yield made(same, same * sizes(-3, 3), dtype)
    yield made(sizes(-12, 3), sizes(-12, 3), dtype)
    yield made(sizes(), 0.0 * rng.choice([-1, 1], N), dtype)
    yield made(0.0 * rng.choice([-1, 1], N), sizes(), dtype)


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_error_bound(name, dtype, lanes, monkeypatch):
    if not lanes:
        monkeypatch.setattr(real, "has_scale", lambda: False)
    for z in numbers(dtype, np.random.default_rng(0)):
        if name == "sign":  # NumPy's absolute values overflow, too
            z = z[np.abs(z) < np.finfo(dtype).max / 4]
        found, true = compute(name, z), getattr(np, name)(z.astype(np.clongdouble))
        for part, other in ((found.real, true.real), (found.imag, true.imag)):
            distance = units(part, other)
            k = int(np.argmax(distance))
            assert distance[k] <= BOUND, (z[k], found[k], true[k])
            assert np.array_equal(np.signbit(part[other == 0]), np.signbit(other[other == 0]))


@settings(max_examples=300, deadline=None)
@given(z=st.complex_numbers(allow_nan=False, allow_infinity=False), name=st.sampled_from(["log", "sqrt"]))
def test_any_number(z, name):
    if not z:
        return
    many = np.full(9, z)
    found, true = compute(name, many)[[0, 8]], getattr(np, name)(many[:2].astype(np.clongdouble))
    assert units(found.real, true.real).max() <= BOUND
    assert units(found.imag, true.imag).max() <= BOUND


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*NAMES, "reciprocal"])
def test_special_values_are_numpys(name, dtype, lanes, monkeypatch):
    if not lanes:
        monkeypatch.setattr(real, "has_scale", lambda: False)
    limits = np.finfo(dtype)
    few = [0.0, 1.0, 2.5, np.inf, np.nan, limits.smallest_subnormal, limits.tiny, limits.max, 1e-30, 1e30]
    every = [sign * each for each in few for sign in (1, -1)]
    z = made(*np.array(list(itertools.product(every, every))).T, dtype)
    found, own = compute(name, z), getattr(np, name)(z)
    for k in range(z.size):
        for part, other in ((found[k].real, own[k].real), (found[k].imag, own[k].imag)):
            assert np.isnan(part) == np.isnan(other), (z[k], found[k], own[k])
            assert np.isinf(part) == np.isinf(other), (z[k], found[k], own[k])
            assert np.isnan(part) or np.signbit(part) == np.signbit(other), (z[k], found[k], own[k])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reciprocals_have_numpys_bits(dtype):
    for z in numbers(dtype, np.random.default_rng(1)):
        assert np.array_equal(compute("reciprocal", z), np.reciprocal(z), equal_nan=True)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, 7, 10, 31, 99, -1, -2, -3, -5, -99, 3.0, 2 + 0j])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_powers_have_numpys_bits(exponent, dtype):
    few = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny]
    z = np.concatenate([made(*np.array(list(itertools.product(few, few))).T, dtype),
                        made(*np.random.default_rng(3).normal(size=(2, 3000)), dtype)])  # fmt: skip
    found, own = compute("power", z, exponent), np.power(z, exponent)
    word = f"u{dtype.itemsize // 2}"
    for part, other in ((found.real, own.real), (found.imag, own.imag)):
        same = part.copy().view(word) == other.copy().view(word)
        assert (same | (np.isnan(part) & np.isnan(other))).all()


def test_other_powers_are_numpys():
    z = param(Aval((300,), np.dtype("D")))
    for exponent in (2.5, 100, -100, 1j, np.nan, np.inf, np.array([2]), z):
        assert loop_of(apply("power", z, exponent)) is None


def test_spectra_are_one_region(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    rng = np.random.default_rng(2)
    z = made(rng.normal(size=(60, 50)), rng.normal(size=(60, 50)), "D")

    def function(z):
        return np.sqrt(z * 2 + 1j) + np.log(z) / (1 + np.abs(z))

    staged = fx.futurize(function)
    np.testing.assert_allclose(staged(z), function(z), rtol=1e-14, atol=1e-15)
    nodes = [each.node for each in staged.trace(z).plan.instructions]
    assert not {node.op for node in nodes} & {"log", "sqrt", "absolute"}
