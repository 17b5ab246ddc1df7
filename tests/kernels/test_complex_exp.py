"""``exp`` of complex numbers in regions: within units in the last place of each part, with C's special values."""

import itertools

import numpy as np
import pytest
from complex_regions import compute, made, units

import futurex as fx
from futurex.kernels.numba_ import complexes, real

pytestmark = [
    pytest.mark.skipif(not complexes.known(), reason="NumPy multiplies without fused multiply-add here"),
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
BOUND = 4.0
DTYPES = [np.dtype("F"), np.dtype("D")]


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_error_bound(dtype, lanes, monkeypatch):
    if not lanes:
        monkeypatch.setattr(real, "has_scale", lambda: False)
    rng, n = np.random.default_rng(0), 1 << 16
    own = np.dtype(f"f{dtype.itemsize // 2}")
    high, far = (100, 9e4) if own.itemsize == 4 else (740, 9e8)
    tiny = np.exp2(rng.uniform(-150 if own.itemsize == 4 else -1074, 0, n))
    cases = [(rng.normal(size=n), rng.uniform(-10, 10, n)), (rng.uniform(-high, high, n), rng.uniform(-far, far, n)),
             (rng.uniform(high * 0.8, 1.9 * high, n), tiny), (np.zeros(n), rng.uniform(-100, 100, n))]  # fmt: skip
    for a, b in cases:
        z = made(a.astype(own), b.astype(own), dtype)
        found, wide = compute("exp", z), z.astype(np.clongdouble)
        size = np.exp(wide.real)
        for part, true in ((found.real, size * np.cos(wide.imag)), (found.imag, size * np.sin(wide.imag))):
            distance = units(part, true)
            k = int(np.argmax(distance))
            assert distance[k] <= BOUND, (z[k], part[k], true[k])


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values_are_cs(dtype, lanes, monkeypatch):
    if not lanes:
        monkeypatch.setattr(real, "has_scale", lambda: False)
    limits = np.finfo(dtype)
    few = [0.0, 1.0, 2.5, np.inf, np.nan, limits.smallest_subnormal, float(limits.max) if dtype == "D" else 90.0, 1e4]
    every = [sign * each for each in few for sign in (1, -1)]
    pairs = [(a, b) for a, b in itertools.product(every, every) if not np.isfinite(b) or abs(b) < 1e5]
    z = made(*map(np.array, zip(*pairs, strict=True)), dtype)
    found, own = compute("exp", z), np.exp(z)
    for k, (a, b) in enumerate(pairs):
        for part, other in ((found[k].real, own[k].real), (found[k].imag, own[k].imag)):
            assert np.isnan(part) == np.isnan(other), (a, b, found[k], own[k])
            assert np.isinf(part) == np.isinf(other), (a, b, found[k], own[k])
            odd = not np.isfinite(b)  # then C leaves the signs of zeros and infinity open
            assert odd or np.isnan(part) or np.signbit(part) == np.signbit(other), (a, b, found[k], own[k])


def test_larger_angles_are_the_librarys():
    z = np.linspace(1, 2, 1000) * (0.1 + 1e12j)
    np.testing.assert_allclose(compute("exp", z), np.exp(z), rtol=1e-15)


def test_phasors_are_one_region(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    x = np.random.default_rng(1).normal(size=(60, 50))

    def phasors(x):
        return (np.exp(1j * x) * 2).imag + 1

    staged = fx.futurize(phasors)
    np.testing.assert_allclose(staged(x), phasors(x), rtol=1e-14, atol=1e-15)
    nodes = [each.node for each in staged.trace(x).plan.instructions]
    assert "exp" not in {node.op for node in nodes}
