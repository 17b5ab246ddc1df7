"""Convolutions by NumPy's BLAS, against the reference that oneDNN's kernels are tested with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_onednn import conv_reference, windows

from futurex.kernels.blas import BlasBackend
from futurex.kernels.blas import unfold as unfold_module
from futurex.kernels.blas.conv import conv_forward, conv_input_grad, conv_weight_grad
from futurex.kernels.blas.unfold import Geometry
from futurex.tree import apply, param
from futurex.tree.aval import aval_of
from futurex.tree.record import record

pytestmark = pytest.mark.onednn

quick = settings(max_examples=60, deadline=None)
dtypes = st.sampled_from(["f4", "f8"])


def close(dtype):
    return {"rtol": 2e-5, "atol": 2e-5} if dtype == "f4" else {"rtol": 1e-11, "atol": 1e-11}


def geometry(window, x, w, groups):
    return Geometry(x.shape, w.shape, window.stride, window.padding, window.dilation, groups, x.dtype)


@quick
@given(
    windows(dilated=True), st.integers(1, 3), st.sampled_from([(1, 1, 1), (1, 3, 4), (2, 2, 3), (3, 1, 1), (4, 4, 2)]),
    dtypes, st.sampled_from([1, 300, 1 << 22]),
)  # fmt: skip
def test_convolutions_match_the_reference_in_chunks_of_any_size(place, batch, channels, dtype, chunk):
    window, spatial = place
    groups, inputs, outputs = channels
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, *spatial, groups * inputs)).astype(dtype)
    w = rng.standard_normal((*window.size, inputs, groups * outputs)).astype(dtype)
    b = rng.standard_normal(groups * outputs).astype(dtype)
    g = rng.standard_normal((batch, *window.result(spatial), groups * outputs)).astype(dtype)
    y, dx, dw = conv_reference(x, w, g, window, groups)
    before, unfold_module.CHUNK_BYTES = unfold_module.CHUNK_BYTES, chunk
    try:
        made = geometry(window, x, w, groups)
        forward = filled(conv_forward(made), y.shape, dtype, x, w, b)
        np.testing.assert_allclose(forward, y + b, **close(dtype))
        np.testing.assert_allclose(filled(conv_input_grad(made), dx.shape, dtype, g, w), dx, **close(dtype))
        np.testing.assert_allclose(filled(conv_weight_grad(made), dw.shape, dtype, x, g), dw, **close(dtype))
    finally:
        unfold_module.CHUNK_BYTES = before


def filled(kernel, shape, dtype, *inputs):
    out = np.full(shape, np.nan, dtype)
    assert kernel(out, *inputs) is out
    return out


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("which", ["x", "g", "w"])
def test_a_number_that_is_none_reaches_what_it_meets_and_nothing_else(value, which):
    """Windows that are left out and padding must not spread it: as in the reference kernels."""
    rng = np.random.default_rng(1)
    arrays = {"x": rng.normal(size=(2, 9, 3)), "w": rng.normal(size=(3, 3, 4)), "g": rng.normal(size=(2, 9, 4))}
    arrays[which][0, 0, 1] = value
    x, w, g = arrays["x"], arrays["w"], arrays["g"]
    attrs = {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    made = Geometry(x.shape, w.shape, dtype=x.dtype, **attrs)
    with np.errstate(all="ignore"):
        for kernel, inputs, expected in (
            (conv_forward(made), (x, w), record("conv").kernel(x, w, **attrs)),
            (conv_input_grad(made), (g, w), record("conv_input_grad").kernel(g, w, input_shape=x.shape, **attrs)),
            (conv_weight_grad(made), (x, g), record("conv_weight_grad").kernel(x, g, kernel_shape=(3,), **attrs)),
        ):
            np.testing.assert_allclose(filled(kernel, expected.shape, "f8", *inputs), expected, rtol=1e-11, atol=1e-11)


def test_only_nodes_of_one_floating_dtype_and_known_size_are_claimed():
    backend = BlasBackend()
    attrs = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}

    def claims(x, w):
        return backend.claim(apply("conv", *(param(aval_of(each)) for each in (x, w)), **attrs), 1) is not None

    floats = np.ones((1, 5, 2), "f4"), np.ones((3, 2, 2), "f4")
    assert claims(*floats)
    assert not claims(floats[0], floats[1].astype("f8"))
    assert not claims(*(each.astype("i8") for each in floats))
    assert not claims(np.ones((0, 5, 2), "f4"), floats[1])
