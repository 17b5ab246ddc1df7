"""oneDNN kernels against small float64 references: matrix products and normalisation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from futurex.kernels import onednn
from futurex.kernels.onednn_backend import OneDNNBackend
from futurex.ops import epilogue  # noqa: F401  (registers matmul_epilogue)
from futurex.tree import Aval, apply, param

pytestmark = [pytest.mark.onednn, pytest.mark.skipif(not onednn.available(), reason=onednn.why_not())]
quick = settings(max_examples=60, deadline=None)
close = {"rtol": 2e-5, "atol": 2e-5}


def floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def run(kernel, shapes, *inputs):
    outs = tuple(np.full(shape, np.nan, np.float32) for shape in shapes)
    kernel(outs if len(outs) > 1 else outs[0], *inputs)
    return outs


BATCHES = [
    ((), ()),
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((2, 1), (3,)),
    ((2, 3), (2, 3)),
    ((1, 2), (3, 1)),
    ((0,), (1,)),
]
sizes = st.sampled_from([1, 2, 5, 16, 33, 70])


def swapped(array: np.ndarray, swap: bool) -> np.ndarray:
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if swap else array


@quick
@given(
    sizes,
    sizes,
    sizes,
    st.sampled_from(BATCHES),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_matmul_matches_reference(m, k, n, batches, transpose_x, transpose_y, bias):
    rng = np.random.default_rng(0)
    x, y, b = floats(rng, (*batches[0], m, k)), floats(rng, (*batches[1], k, n)), floats(rng, (n,))
    expected = np.matmul(x, y, dtype=np.float64) + (b if bias else 0)
    x, y = swapped(x, transpose_x), swapped(y, transpose_y)
    kernel = onednn.matmul(x.shape, y.shape, transpose_x, transpose_y, bias)
    (out,) = run(kernel, [expected.shape], x, y, *[b] * bias)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=5e-5)


def unaligned(array):
    """The same, as it may lie in what a process has received."""
    moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def views(rng, shape):
    """Arrays of this shape that lie in memory in as many ways as there are."""
    yield floats(rng, shape)
    yield floats(rng, (*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    yield floats(rng, (*shape[:-1], shape[-1] + 5))[..., 3:-2]
    yield floats(rng, (*shape[:-1], shape[-1] * 2))[..., ::2]
    yield floats(rng, shape)[..., ::-1]
    yield unaligned(floats(rng, shape))
    if len(shape) > 2:
        yield np.broadcast_to(floats(rng, shape[-2:]), shape)
    if len(shape) == 4:
        yield floats(rng, (shape[0], shape[2], shape[1], shape[3])).transpose(0, 2, 1, 3)
        yield floats(rng, (shape[0], shape[3], shape[1], shape[2])).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 3, 70, 64), (2, 3, 64, 96)), ((128, 200), (200, 96)), ((2, 3, 70, 64), (64, 96)),
        ((3, 70, 64), (2, 3, 64, 96)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_views_equal_numpys(first, second, biased):
    rng = np.random.default_rng(2)
    bias = floats(rng, second[-1:])
    names = (("x", first), ("y", second), ("b", bias.shape))[: 2 + biased]
    node = apply(
        "matmul_epilogue" if biased else "matmul",
        *(param(Aval(shape, np.dtype("float32")), name) for name, shape in names),
    )
    kernel = OneDNNBackend.if_available().claim(node, 2)
    for x, y in itertools.product(views(rng, first), views(rng, second)):
        out = np.full(node.shape, np.nan, np.float32)
        kernel.call(out, x, y, *([bias] if biased else []))
        product = np.matmul(x, y, dtype=np.float64)
        expected = product + bias if biased else product
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4, err_msg=f"{x.strides} {y.strides}")


def test_windows_that_overlap_are_copied():
    """The library describes no memory in which two elements have one address."""
    rng = np.random.default_rng(3)
    signal, w = floats(rng, (32, 50, 6)), floats(rng, (60, 48))
    windows = np.lib.stride_tricks.as_strided(signal, (41, 32, 60), (24, 1200, 4), writeable=False)
    node = apply("matmul", *(param(Aval(each.shape, np.dtype("float32"))) for each in (windows, w)))
    out = np.full(node.shape, np.nan, np.float32)
    OneDNNBackend.if_available().claim(node, 2).call(out, windows, w)
    np.testing.assert_allclose(out, np.matmul(windows, w, dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_matmul_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="inner size 3"):
        onednn.matmul((2, 3), (4, 5))
    assert onednn.matmul((3,), (3, 5)) is None


shapes = st.sampled_from([(1, 1), (4, 3), (32, 16), (2, 5, 8), (3, 4, 2, 20), (2, 3, 3, 3, 6), (6, 40, 64)])


def norm_backward_reference(g, x, scale, mean, var, eps, axes):
    """(dx, dscale, dshift) of scale * (x - mean) / sqrt(var + eps) + shift with mean and var over `axes`."""
    normal = (x - mean) / np.sqrt(var + eps)
    gs = g * scale
    dx = (gs - gs.mean(axes, keepdims=True) - normal * (gs * normal).mean(axes, keepdims=True)) / np.sqrt(var + eps)
    return dx, (g * normal).sum(axes), g.sum(axes)


@pytest.mark.parametrize("kind", ["batch", "layer"])
@quick
@given(shapes, st.sampled_from([1e-5, 1e-3, 0.5]))
def test_normalisation_matches_reference(kind, shape, eps):
    rng = np.random.default_rng(2)
    x, g = floats(rng, shape) + np.float32(0.5), floats(rng, shape)
    scale, shift = floats(rng, shape[-1:]), floats(rng, shape[-1:])
    others = tuple(range(len(shape) - 1))
    axes = others if kind == "batch" else (len(shape) - 1,)
    wide = x.astype(np.float64)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    statistics = (x.shape[-1:] if kind == "batch" else x.shape[:-1],) * 2
    forward = {"batch": onednn.batch_norm_forward, "layer": onednn.layer_norm_forward}[kind](shape, eps)
    y, got_mean, got_var = run(forward, [shape, *statistics], x, scale, shift)
    np.testing.assert_allclose(got_mean, mean.reshape(statistics[0]), **close)
    np.testing.assert_allclose(got_var, var.reshape(statistics[0]), **close)
    np.testing.assert_allclose(y, scale * (wide - mean) / np.sqrt(var + eps) + shift, rtol=1e-4, atol=1e-4)
    if kind == "layer":
        return
    backward = onednn.batch_norm_backward(shape, eps)
    got = run(backward, [shape, shape[-1:], shape[-1:]], g, x, scale, got_mean, got_var)
    if x.size == x.shape[-1]:
        expected = (np.zeros(shape), np.zeros(shape[-1:]), g.sum(others))  # one value: the derivative is exactly zero
    else:
        expected = norm_backward_reference(g, wide, scale, mean, var, eps, others)
    for each, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-3, atol=1e-3)


def test_empty_normalisation_is_left_to_the_caller():
    for factory in (onednn.batch_norm_forward, onednn.batch_norm_backward, onednn.layer_norm_forward):
        assert factory((0, 3, 4), 1e-5) is None
