"""Compiled maps of image tiles against their reference kernels, at every border, in vectors and one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.kernels.numba_ import NumbaBackend, channels
from futurex.passes.winograd import algorithm
from futurex.tree import Aval, apply, param, record

MATRICES = [*algorithm(4, 3)[1:], *algorithm(2, 5)[1:], ((1.0, 0.0), (0.0, 0.0), (0.25, -1.0))]


def check(name, array, threads=1, **attrs):
    node = apply(name, param(Aval(array.shape, array.dtype)), **attrs)
    kernel = NumbaBackend().claim(node, threads)
    out = np.full(node.shape, np.nan, node.dtype)
    assert kernel.call(out, array) is out
    tolerance = 1e-4 if array.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(out, record(name).kernel(array, **attrs), rtol=tolerance, atol=tolerance)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MATRICES), st.integers(1, 4), st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([1, 16, 19]), st.sampled_from(["f4", "f8"]),
)  # fmt: skip
def test_tiles(matrix, hop, low, tiles, sizes, channels, dtype):
    rng = np.random.default_rng(0)
    attrs = {"matrix": matrix, "hop": hop, "low": low, "tiles": tiles}
    check("tile_transform", rng.normal(size=(2, *sizes, channels)).astype(dtype), **attrs)
    planes = (len(matrix) ** 2, 2, tiles[0] * tiles[1], channels)
    check("tile_assemble", rng.normal(size=planes).astype(dtype), sizes=sizes, **attrs)


@pytest.mark.parametrize("batch", [1, 3])
def test_threads_share_examples_and_channels(batch, monkeypatch):
    monkeypatch.setattr(channels, "PARALLEL_BYTES", 0)
    rng = np.random.default_rng(1)
    attrs = {"matrix": MATRICES[0], "hop": 4, "low": (1, 1), "tiles": (3, 2)}
    check("tile_transform", rng.normal(size=(batch, 10, 7, 70)).astype("f4"), threads=3, **attrs)
    check("tile_assemble", rng.normal(size=(36, batch, 6, 70)).astype("f4"), threads=3, sizes=(10, 7), **attrs)
