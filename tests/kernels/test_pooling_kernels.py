"""Compiled maximum pooling has the bits of the reference kernels, with NaN, infinities and zeros of both signs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.kernels.numba_ import NumbaBackend
from futurex.kernels.numba_ import channels as module
from futurex.tree import Aval, apply, param, record

SPECIAL = np.array([np.nan, -np.inf, np.inf, -1.0, 0.0, -0.0, 2.0])


@st.composite
def geometries(draw):
    """The spatial sizes and attributes of a pooling that fits."""
    spatial, attrs = [], {"window": [], "stride": [], "padding": []}
    for _ in range(draw(st.integers(1, 3))):
        window = draw(st.integers(1, 3))
        low, high = (draw(st.integers(0, window - 1)) for _ in range(2))
        spatial.append(draw(st.integers(max(1, window - low - high), 6)))
        for name, value in (("window", window), ("stride", draw(st.integers(1, 3))), ("padding", (low, high))):
            attrs[name].append(value)
    return tuple(spatial), {name: tuple(value) for name, value in attrs.items()}


def claimed(name, *arrays, threads=1, **attrs):
    """The compiled kernel's result and that of the reference."""
    node = apply(name, *(param(Aval(each.shape, each.dtype)) for each in arrays), **attrs)
    kernel = NumbaBackend().claim(node, threads)
    assert kernel is not None
    assert kernel.into
    several = isinstance(node.aval, tuple)
    outs = tuple(np.full(aval.shape, 7, aval.dtype) for aval in (node.aval if several else (node.aval,)))
    out = outs if several else outs[0]
    assert kernel.call(out, *arrays) is out
    expected = record(name).kernel(*arrays, **attrs)
    return list(zip(outs, expected if several else (expected,), strict=True))


def same_bits(pairs):
    for got, expected in pairs:
        same_bits_of(got, expected)


def same_bits_of(got, expected):
    bits = f"i{got.dtype.itemsize}"
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    known = ~np.isnan(got)
    np.testing.assert_array_equal(got.view(bits)[known], np.ascontiguousarray(expected).view(bits)[known])


@settings(max_examples=80, deadline=None)
@given(geometries(), st.sampled_from([1, 3, 64, 70]), st.sampled_from(["f4", "f8"]), st.integers(0, 99))
def test_bits_of_the_reference(geometry, channels, dtype, seed):
    spatial, attrs = geometry
    rng = np.random.default_rng(seed)
    x = rng.choice(SPECIAL, (2, *spatial, channels)).astype(dtype)
    same_bits(claimed("max_pool", x, **attrs))
    (y, _), (places, _) = pairs = claimed("max_pool_places", x, **attrs)
    same_bits(pairs)
    g = rng.normal(size=y.shape).astype(dtype)
    same_bits(claimed("max_pool_spread", g, places, input_shape=x.shape, **attrs))


@pytest.mark.parametrize(("batch", "channels"), list(itertools.product([1, 3], [40, 150])))
def test_threads_share_examples_and_channels(batch, channels, monkeypatch):
    monkeypatch.setattr(module, "PARALLEL_BYTES", 0)
    attrs = {"window": (3, 2), "stride": (2, 1), "padding": ((1, 1), (0, 1))}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, 7, 5, channels)).astype("f4")
    same_bits(claimed("max_pool", x, threads=3, **attrs))
    (y, _), (places, _) = pairs = claimed("max_pool_places", x, threads=3, **attrs)
    same_bits(pairs)
    g = rng.normal(size=y.shape).astype("f4")
    same_bits(claimed("max_pool_spread", g, places, threads=3, input_shape=x.shape, **attrs))


def test_a_wrong_array_is_refused():
    node = apply("max_pool", param(Aval((1, 4, 2), np.dtype("f4"))), window=(2,), stride=(2,), padding=((0, 0),))
    kernel = NumbaBackend().claim(node, 1)
    with pytest.raises(ValueError, match="built for"):
        kernel.call(np.empty((1, 2, 2), "f4"), np.empty((1, 5, 2), "f4"))


@pytest.mark.parametrize(("shape", "dtype"), [((1, 4, 2), "i4"), ((1, 4, 2), "f2"), ((0, 4, 2), "f4")])
def test_other_arrays_stay_with_numpy(shape, dtype):
    node = apply("max_pool", param(Aval(shape, np.dtype(dtype))), window=(2,), stride=(2,), padding=((0, 0),))
    assert NumbaBackend().claim(node, 1) is None


@pytest.mark.parametrize("channels", [1, 7, 16, 33, 64, 100])
@pytest.mark.parametrize("window", [(2,), (1,), (2, 3), (1, 3, 2)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_that_lie_apart(channels, window, dtype, threads):
    rng = np.random.default_rng(channels)
    pooled = (2, *rng.integers(1, 5, len(window)), channels)
    attrs = {"window": window, "stride": window, "padding": ((0, 0),) * len(window)}
    shape = (2, *(count * extent for count, extent in zip(pooled[1:-1], window, strict=True)), channels)
    x = rng.choice(np.append(SPECIAL, [3.0, 4.0]), shape).astype(dtype)
    g = rng.choice(SPECIAL, pooled).astype(dtype)
    same_bits(claimed("max_pool", x, threads=threads, **attrs))
    pairs = claimed("max_pool_places", x, threads=threads, **attrs)
    same_bits(pairs)
    same_bits(claimed("max_pool_spread", g, pairs[1][0], input_shape=shape, threads=threads, **attrs))
