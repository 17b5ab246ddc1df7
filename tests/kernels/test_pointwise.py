"""Convolutions of single positions as products, against the operations themselves in double precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import gemm
from futurex.kernels.backends import default_backends
from futurex.kernels.gemm import GemmBackend
from futurex.kernels.numba_ import nearest, panels
from futurex.kernels.steps import Following, Row, Workspace
from futurex.tree import Aval, apply, param

pytestmark = [
    pytest.mark.onednn,
    pytest.mark.skipif(not panels.is_made(), reason="the processor has none"),
    pytest.mark.skipif(all(each.name != "gemm" for each in default_backends()), reason="FUTUREX_BACKENDS has no gemm"),
]
FLOAT32 = np.dtype("f4")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(nearest, "wide", lambda: True)


def plain(rank, window=1, stride=1, padding=0, groups=1, dilation=1):
    return {
        "stride": (stride,) * rank, "padding": ((padding, padding),) * rank, "dilation": (dilation,) * rank,
        "groups": groups,
    }  # fmt: skip


def nodes_of(places, channels, filters, dtype=FLOAT32, window=1, **more):
    """The convolution, with a bias, and both gradients, for (N, *S) places."""
    rank = len(places) - 1
    x, g = (param(Aval((*places, each), dtype)) for each in (channels, filters))
    w, bias = param(Aval((window,) * rank + (channels, filters), dtype)), param(Aval((filters,), dtype))
    attrs = plain(rank, **more)
    conv = apply("conv", x, w, **attrs)
    g = param(Aval(conv.shape, dtype))
    return [
        conv, apply("conv_epilogue", x, w, bias, **attrs),
        apply("conv_input_grad", g, w, input_shape=x.shape, **attrs),
        apply("conv_weight_grad", x, g, kernel_shape=w.shape[:-2], **attrs),
    ]  # fmt: skip


def check(node, threads=1):
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(each.shape, dtype=each.dtype) for each in node.inputs]
    kernel = GemmBackend().claim(node, threads)
    assert kernel is not None
    kernel.late.prepare((), wait=True)
    expected = node.record.run([each.astype(float) for each in inputs], node.attrs)
    called, bound = (np.full(node.shape, np.nan, node.dtype) for _ in range(2))
    kernel.call(called, *inputs)
    assert kernel.late.interpreted == 0
    steps = kernel.bind(Workspace())
    Row(steps.aim(bound, *inputs)).run()
    close = {"rtol": 1e-4, "atol": 1e-3} if node.dtype == FLOAT32 else {"rtol": 1e-12, "atol": 1e-11}
    np.testing.assert_allclose(called, expected, **close)
    assert np.array_equal(called, bound)
    return steps


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(2, 4), min_size=2, max_size=4), st.integers(50, 70), st.integers(50, 70), st.integers(1, 3)
)
def test_convolutions_of_single_positions_are_products(places, channels, filters, threads):
    places[0] += 400 // np.prod(places)
    for node in nodes_of(places, channels, filters):
        check(node, threads)


def test_they_follow_arrays_that_move():
    for node in nodes_of((4, 7, 7), 64, 64):
        steps = check(node)
        assert isinstance(steps, Following)
        assert steps.places == steps.bound.places


@pytest.mark.parametrize("more", [{"window": 3}, {"stride": 2}, {"padding": 1}, {"groups": 2}])
def test_others_are_left_to_the_library(more):
    nodes = nodes_of((4, 8, 8), 64, 64, **more) if "groups" not in more else []
    if not nodes:
        x, w = param(Aval((4, 8, 8, 64), FLOAT32)), param(Aval((1, 1, 32, 64), FLOAT32))
        nodes = [apply("conv", x, w, **plain(2, groups=2))]
    assert all(GemmBackend().claim(node, 2) is None for node in nodes)


def test_many_positions_are_left_to_the_library(monkeypatch):
    for node in nodes_of((4, 8, 8), 64, 64):
        assert GemmBackend().claim(node, 2) is not None
        monkeypatch.setattr(gemm, "_FEW_POSITIONS", 4 * 8 * 8 - 1)
        assert GemmBackend().claim(node, 2) is None
        monkeypatch.undo()
        monkeypatch.setattr(nearest, "wide", lambda: True)


def test_those_in_double_precision_are_products_too():
    for node in nodes_of((4, 8, 8), 64, 70, np.dtype("f8")):
        if panels.is_narrow():
            assert GemmBackend().claim(node, 2) is None
        else:
            check(node, 2)


def test_other_processors_are_left_to_others(monkeypatch):
    monkeypatch.setattr(nearest, "wide", lambda: False)
    assert all(GemmBackend().claim(node, 2) is None for node in nodes_of((4, 8, 8), 64, 64))


def test_a_net_learns_by_them():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((4, 8, 8, 64), dtype=FLOAT32)
    params = [rng.standard_normal((1, 1, 64, 64), dtype=FLOAT32) / 8 for _ in range(2)]

    def loss(params, x):
        for w in params:
            x = fx.nn.relu(fx.nn.conv(x, w))
        return (x * x).mean()

    slope = fx.grad(fx.futurize(loss))
    for _ in range(3):
        found = [np.asarray(each) for each in slope(params, x)]
    rows = [x.reshape(256, 64).astype(float)]
    masks = []
    for w in params:
        z = rows[-1] @ w[0, 0]
        masks.append(z > 0)
        rows.append(z * masks[-1])
    g = 2 * rows[-1] / rows[-1].size
    for k in (1, 0):
        g = g * masks[k]
        np.testing.assert_allclose(found[k][0, 0], rows[k].T @ g, rtol=1e-3, atol=1e-5)
        g = g @ params[k][0, 0].T.astype(float)
