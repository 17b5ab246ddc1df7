"""Convolutions of sequences on a GPU: sums, as NumPy's are, and no transforms."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_ import CupyBackend, devices
from futurex.tree import apply, param
from futurex.tree.aval import aval_of

pytestmark = pytest.mark.skipif(
    emulation.compiler() is None and devices._missing() is not None, reason="no C++ compiler is on the path, and no GPU"
)


def computed(device, op, mode, *args):
    node = apply(op, *(param(aval_of(arg)) for arg in args), mode=mode)
    kernel = CupyBackend(device).claim(node, 1).call
    return device.to_host(kernel(None, *map(device.to_device, args))), kernel


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(1, 1), (40, 7), (40, 6), (7, 40), (6, 41), (300, 300)], ids=str)
@pytest.mark.parametrize("op", ["convolve", "correlate"])
def test_elements_are_sums(op, sizes, mode, device):
    rng = np.random.default_rng(0)
    a, v = (rng.normal(size=size) * 10 ** rng.uniform(-12, 12, size) for size in sizes)
    a[len(a) // 2] = np.nan
    found, kernel = computed(device, op, mode, a, v)
    expected = getattr(np, op)(a, v, mode)
    bound = getattr(np, op)(abs(a), abs(v), mode) * 1e-14
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert (abs(found - expected) <= bound)[~np.isnan(expected)].all()
    assert not kernel.reason


@pytest.mark.parametrize(
    "dtypes, host", [("f4f4", False), ("f4i4", False), ("i4i8", False), ("c8f8", True), ("f2f2", True)]
)
def test_dtypes(dtypes, host, device):
    """Those for which CuPy has transforms alone are the host's."""
    kinds = dtypes[:2], dtypes[2:]
    a, v = (np.arange(1, size + 1).astype(kind) for size, kind in zip((9, 4), kinds, strict=True))
    a[2] = np.nan if kinds[0][0] in "fc" else 3
    found, kernel = computed(device, "convolve", "full", a, v)
    expected = np.convolve(a, v)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert bool(kernel.reason) == host


def test_a_filter_is_differentiated(device):
    def smoothed(x, w):
        return (np.convolve(x, w, "same") ** 2).sum()

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=50), rng.normal(size=5)
    for found, expected in zip(fx.futurize(fx.grad(smoothed, argnums=(0, 1)), device="gpu")(x, w),
                               fx.grad(smoothed, argnums=(0, 1))(x, w), strict=True):  # fmt: skip
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10)
