"""oneDNN kernels against small float64 references: convolution, pooling, threads, calling convention."""

import concurrent.futures
import ctypes
import itertools
import os
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from futurex.kernels import onednn
from futurex.kernels.numba_.team import Share
from futurex.kernels.onednn import binding, conv, shared
from futurex.kernels.onednn_backend import OneDNNBackend
from futurex.tree import Aval, apply, param

pytestmark = [pytest.mark.onednn, pytest.mark.skipif(not onednn.available(), reason=onednn.why_not())]
quick = settings(max_examples=60, deadline=None)


class Window(NamedTuple):
    """Where a convolution or pooling window reads: one entry per spatial dimension."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    def result(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        padded = [size + low + high for size, (low, high) in zip(spatial, self.padding, strict=True)]
        spans = [(size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True)]
        return tuple((a - b) // c + 1 for a, b, c in zip(padded, spans, self.stride, strict=True))

    def taps(self, spatial: tuple[int, ...]):
        """(output index, window index, input index) for every tap that lies inside the input, in row-major order."""
        for out in np.ndindex(*self.result(spatial)):
            for tap in np.ndindex(*self.size):
                place = tuple(
                    o * s + t * d - p[0]
                    for o, s, t, d, p in zip(out, self.stride, tap, self.dilation, self.padding, strict=True)
                )
                if all(0 <= at < size for at, size in zip(place, spatial, strict=True)):
                    yield out, tap, place


@st.composite
def windows(draw, dilated: bool):
    """A window and a spatial shape that it fits."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 3]))
    size = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    dilation = tuple(draw(st.integers(1, 2)) if dilated else 1 for _ in range(rank))
    limit = [2 if dilated else each - 1 for each in size]
    padding = tuple((draw(st.integers(0, each)), draw(st.integers(0, each))) for each in limit)
    least = [max(1, (k - 1) * d + 1 - low - high) for k, d, (low, high) in zip(size, dilation, padding, strict=True)]
    spatial = tuple(draw(st.integers(each, each + 4)) for each in least)
    return Window(size, stride, padding, dilation), spatial


def floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def run(kernel, shape, *inputs):
    out = np.full(shape, np.nan, np.float32)
    kernel(out, *inputs)
    return out


def conv_reference(x, w, g, window: Window, groups: int):
    """(y, dx, dw) in float64."""
    x, w, g = (each.astype(np.float64) for each in (x, w, g))
    y, dx, dw = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    inputs, outputs = x.shape[-1] // groups, w.shape[-1] // groups
    for (out, tap, place), group in itertools.product(window.taps(x.shape[1:-1]), range(groups)):
        i, o = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
        at, to, weights = (slice(None), *place, i), (slice(None), *out, o), (*tap, slice(None), o)
        y[to] += x[at] @ w[weights]
        dx[at] += g[to] @ w[weights].T
        dw[weights] += x[at].T @ g[to]
    return y, dx, dw


@quick
@given(
    windows(dilated=True),
    st.integers(0, 3),
    st.sampled_from([(1, 1, 1), (1, 3, 4), (1, 8, 16), (2, 2, 3), (3, 1, 1), (8, 1, 1), (4, 4, 2)]),
    st.booleans(),
)
def test_conv_matches_reference(place, batch, channels, bias):
    window, spatial = place
    groups, inputs, outputs = channels
    rng = np.random.default_rng(0)
    x = floats(rng, (batch, *spatial, groups * inputs))
    w = floats(rng, (*window.size, inputs, groups * outputs))
    b = floats(rng, (groups * outputs,)) if bias else np.zeros(groups * outputs, np.float32)
    g = floats(rng, (batch, *window.result(spatial), groups * outputs))
    y, dx, dw = conv_reference(x, w, g, window, groups)
    how = (x.shape, w.shape, window.stride, window.padding, window.dilation, groups)
    forward = onednn.conv_forward(*how, bias)
    close = {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(run(forward, y.shape, x, w, *[b] * bias), y + b, **close)
    np.testing.assert_allclose(run(onednn.conv_input_grad(*how), dx.shape, g, w), dx, **close)
    np.testing.assert_allclose(run(onednn.conv_weight_grad(*how), dw.shape, x, g), dw, **close)


@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [((3, 25, 64), (10, 64, 48)), ((2, 9, 11, 32), (3, 3, 32, 64)), ((2, 8, 8, 32), (3, 3, 1, 32))],
)
def test_conv_with_blocked_weights_matches_reference(x_shape, w_shape):
    rank, groups = len(x_shape) - 2, x_shape[-1] // w_shape[-2]
    window = Window(w_shape[:rank], (1,) * rank, ((1, 2),) * rank, (1,) * rank)
    rng = np.random.default_rng(1)
    x, w = floats(rng, x_shape), floats(rng, w_shape)
    g = floats(rng, (x_shape[0], *window.result(x_shape[1:-1]), w_shape[-1]))
    how = (x_shape, w_shape, window.stride, window.padding, window.dilation, groups)
    y, dx, dw = conv_reference(x, w, g, window, groups)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(run(onednn.conv_forward(*how), y.shape, x, w), y, **close)
    np.testing.assert_allclose(run(onednn.conv_input_grad(*how), dx.shape, g, w), dx, **close)
    np.testing.assert_allclose(run(onednn.conv_weight_grad(*how), dw.shape, x, g), dw, **close)


def average_reference(x, g, window: Window):
    """The average of each window and its gradient, in float64."""
    average, dx = np.zeros(g.shape), np.zeros(x.shape)
    for out, _, place in window.taps(x.shape[1:-1]):
        at, to = (slice(None), *place), (slice(None), *out)
        average[to] += x[at].astype(np.float64) / np.prod(window.size)
        dx[at] += g[to].astype(np.float64) / np.prod(window.size)
    return average, dx


@quick
@given(windows(dilated=False), st.integers(0, 3), st.sampled_from([1, 3, 8, 16, 20]))
def test_average_pooling_matches_reference(place, batch, channels):
    window, spatial = place
    rng = np.random.default_rng(2)
    x = floats(rng, (batch, *spatial, channels))
    g = floats(rng, (batch, *window.result(spatial), channels))
    how = (x.shape, window.size, window.stride, window.padding)
    average, dx = average_reference(x, g, window)
    np.testing.assert_allclose(run(onednn.avg_pool(*how), g.shape, x), average, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(onednn.avg_pool_grad(*how), x.shape, g), dx, rtol=1e-5, atol=1e-5)


def test_contractions_keep_nan():
    x, w = np.full((1, 2, 8), np.nan, np.float32), np.ones((1, 8, 8), np.float32)
    kernel = onednn.conv_forward(x.shape, w.shape, (1,), ((0, 0),), (1,))
    assert np.isnan(run(kernel, x.shape, x, w)).all()
    for bias in (False, True):
        product = onednn.matmul((2, 8), (8, 8), bias=bias)
        assert np.isnan(run(product, (2, 8), x[0], w[0], *[w[0, 0]] * bias)).all()


def test_unsupported_geometries_give_no_kernel():
    assert onednn.avg_pool((1, 4, 2), (2,), (1,), ((2, 0),)) is None  # a window in the padding alone
    assert onednn.conv_forward((1, 4, 2), (2, 2, 3), (1,), ((-1, 0),), (1,)) is None
    assert onednn.conv_forward((1, 1, 2), (2, 2, 3), (1,), ((0, 0),), (1,)) is None  # an empty result
    assert onednn.conv_weight_grad((1, 2, 2, 2, 2, 2), (1, 1, 1, 1, 2, 2), (1,) * 4, ((0, 0),) * 4, (1,) * 4) is None


def test_a_wrong_array_is_refused():
    kernel = onednn.avg_pool((1, 4, 2), (2,), (2,), ((0, 0),))
    out, x = np.zeros((1, 2, 2), np.float32), np.zeros((1, 4, 2), np.float32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for bad_out, bad_x in [
        (out, x.astype(np.float64)),
        (out, x[:, :3]),
        (out, np.zeros((1, 8, 2), np.float32)[:, ::2]),
        (read_only, x),
        (out[:, :1], x),
    ]:
        with pytest.raises(ValueError, match="C-contiguous"):
            kernel(bad_out, bad_x)
    with pytest.raises(TypeError, match="built for 2 arrays"):
        kernel(out, x, x)


def test_two_kernels_run_in_two_threads():
    rng = np.random.default_rng(3)
    how = ((4, 30, 16), (5, 16, 24), (1,), ((2, 2),), (1,))
    xs = [floats(rng, how[0]) for _ in range(2)]
    w = floats(rng, how[1])
    g = floats(rng, (4, 30, 24))
    expected = [run(onednn.conv_weight_grad(*how), w.shape, x, g) for x in xs]
    start, wrong = threading.Barrier(2), []

    def work(number: int) -> None:
        kernel = onednn.conv_weight_grad(*how, threads=1 + number)
        start.wait(timeout=60)
        for _ in range(200):
            out = run(kernel, w.shape, xs[number], g)
            if not np.allclose(out, expected[number], rtol=1e-4, atol=1e-4):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=60)
    assert not any(each.is_alive() for each in threads)
    assert wrong == []


@quick
@given(
    windows(dilated=True), st.sampled_from([1, 1, 2, 3, 5, 8]),
    st.sampled_from([(1, 1, 1), (1, 3, 4), (1, 2, 50), (2, 2, 3), (4, 1, 1)]), st.booleans(), st.integers(2, 5),
)  # fmt: skip
def test_convolutions_in_parts_are_those_of_the_whole(place, batch, channels, bias, threads):
    """By images, and by rows of images where these are few."""
    window, spatial = place
    groups, inputs, outputs = channels
    spatial = (spatial[0] + 7, *spatial[1:])
    rng = np.random.default_rng(0)
    x = floats(rng, (batch, *spatial, groups * inputs))
    w = floats(rng, (*window.size, inputs, groups * outputs))
    b = [floats(rng, (groups * outputs,))] * bias
    g = floats(rng, (batch, *window.result(spatial), groups * outputs))
    how = (x.shape, w.shape, window.stride, window.padding, window.dilation, groups)
    calls = [
        (onednn.conv_forward, (bias,), g.shape, (x, w, *b)), (onednn.conv_input_grad, (), x.shape, (g, w)),
        (onednn.conv_weight_grad, (), w.shape, (x, g)),
    ]  # fmt: skip
    for make, more, shape, arrays in calls:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conv, "_LEAST", 0)
            parts = make(*how, *more, threads=threads)
        expected = run(make(*how, *more), shape, *arrays)
        np.testing.assert_allclose(run(parts, shape, *arrays), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch, threads", [(8, 2), (3, 2), (1, 2), (1, 4), (5, 3), (2, 16)])
@pytest.mark.parametrize("size, stride, padding", [(3, 1, 1), (1, 2, 0), (3, 2, 1)])
def test_convolutions_are_cut_for_all_threads(batch, threads, size, stride, padding):
    x_shape, w_shape = (batch, 64, 28, 32), (size, size, 32, 160)
    how = (x_shape, w_shape, (stride,) * 2, ((padding,) * 2,) * 2, (1, 1))
    rng = np.random.default_rng(6)
    y_shape = (batch, 64 // stride, 28 // stride, 160)
    x, w, g = floats(rng, x_shape), floats(rng, w_shape), floats(rng, y_shape)
    for make, shape, arrays in (
        (onednn.conv_forward, g.shape, (x, w)), (onednn.conv_input_grad, x_shape, (g, w)),
        (onednn.conv_weight_grad, w_shape, (x, g)),
    ):  # fmt: skip
        kernel = make(*how, threads=threads)
        assert kernel.threads == threads
        assert max(len(tickets) for tickets in kernel._program.phases) >= 0.85 * threads
        expected = run(make(*how), shape, *arrays)
        np.testing.assert_allclose(run(kernel, shape, *arrays), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "x_shape, w_shape, stride",
    [
        ((2, 7, 7, 96), (3, 3, 96, 250), 1), ((3, 9, 9, 64), (3, 3, 64, 192), 2),
        ((2, 40, 33), (5, 33, 144), 1), ((2, 5, 6, 5, 48), (3, 3, 3, 48, 240), 1),
    ],
)  # fmt: skip
def test_gradients_of_many_weights_are_those_of_output_channels(x_shape, w_shape, stride):
    """Nothing is added up: as many threads as there are have the bits of one, and no memory for a sum each."""
    rank = len(x_shape) - 2
    how = (x_shape, w_shape, (stride,) * rank, tuple((size // 2,) * 2 for size in w_shape[:-2]), (1,) * rank)
    y_shape = conv.Geometry(*how, 1).y_shape
    rng = np.random.default_rng(9)
    x, g = floats(rng, x_shape), floats(rng, y_shape)
    alone = onednn.conv_weight_grad(*how)
    expected = run(alone, w_shape, x, g)
    for threads in (2, 3, 5):
        kernel = onednn.conv_weight_grad(*how, threads=threads)
        (tickets,) = kernel._program.phases
        assert len(tickets) >= 0.8 * threads
        assert np.array_equal(run(kernel, w_shape, x, g), expected)
        assert kernel.scratch < 2 * (g.nbytes + expected.nbytes)


def test_gradients_are_added_up_where_weights_are_few():
    how = ((8, 56, 56, 32), (3, 3, 32, 64), (1, 1), ((1, 1), (1, 1)), (1, 1))
    parts, *sums = onednn.conv_weight_grad(*how, threads=2)._program.phases
    assert len(parts) == 2
    assert sums


def test_sums_of_gradients_are_few(monkeypatch):
    how = ((8, 12, 12, 64), (3, 3, 32, 128), (1, 1), ((1, 1), (1, 1)), (1, 1), 2)
    monkeypatch.setattr(conv, "_MOST_SUMS", 3 * 4 * 9 * 32 * 128)
    for threads, parts in ((2, 2), (3, 3), (8, 3)):
        kernel = onednn.conv_weight_grad(*how, threads=threads)
        assert len(kernel._program.phases[0]) == parts
    monkeypatch.setattr(conv, "_MOST_SUMS", 1)
    assert len(onednn.conv_weight_grad(*how, threads=8)._program.phases[0]) == 2


def test_weights_are_brought_in_order_in_pieces(monkeypatch):
    monkeypatch.setattr(conv, "_LEAST_PIECE", 1)
    for outputs, groups in ((128, 1), (200, 1), (256, 2)):
        x_shape, w_shape = (4, 30, 32 * groups), (5, 32, outputs)
        how = (x_shape, w_shape, (1,), ((2, 2),), (1,), groups)
        rng = np.random.default_rng(7)
        x, w, g = floats(rng, x_shape), floats(rng, w_shape), floats(rng, (4, 30, outputs))
        for make, shape, arrays in (
            (onednn.conv_forward, g.shape, (x, w)), (onednn.conv_input_grad, x_shape, (g, w)),
            (onednn.conv_weight_grad, w_shape, (x, g)),
        ):  # fmt: skip
            kernel, expected = make(*how, threads=2), run(make(*how), shape, *arrays)
            np.testing.assert_allclose(run(kernel, shape, *arrays), expected, rtol=1e-4, atol=1e-3)


def test_average_pooling_is_shared_by_images():
    x, g = (floats(np.random.default_rng(8), shape) for shape in ((9, 40, 40, 16), (9, 20, 20, 16)))
    how = (x.shape, (2, 2), (2, 2), ((0, 0), (0, 0)))
    for make, shape, array in ((onednn.avg_pool, g.shape, x), (onednn.avg_pool_grad, x.shape, g)):
        kernel = make(*how, threads=4)
        assert [len(tickets) for tickets in kernel._program.phases] == [4]
        np.testing.assert_array_equal(run(kernel, shape, array), run(make(*how), shape, array))


def test_the_number_of_openmps_threads_stays_the_users():
    """It belongs to the thread, and other libraries go by it."""
    setter, getter = binding.thread_functions()
    how = ((4, 28, 28, 32), (3, 3, 32, 64), (1, 1), ((1, 1), (1, 1)), (1, 1))
    before = getter()
    try:
        setter(3)
        kernel = onednn.conv_forward(*how, threads=2)
        run(kernel, (4, 28, 28, 64), np.zeros(how[0], np.float32), np.zeros(how[1], np.float32))
        assert getter() == 3
    finally:
        setter(before)


def test_a_ticket_that_fails_tells_its_status():
    called, passing = [], []

    def status(code, *_):
        called.append(code)
        return 0 if code in passing else code

    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 4)(status)
    address = ctypes.cast(function, ctypes.c_void_p).value
    functions = [ctypes.cast(each, ctypes.c_void_p).value for each in binding.thread_functions()]

    def tickets(*codes):
        return [[(address, code, 0, 0, 0, checked) for code, checked in each] for each in codes]

    well = shared.Phase(tickets([(0, 1), (5, 0)], [(0, 1)]), Share(2, 2), functions)
    ill = shared.Phase(tickets([(0, 1)], [(7, 1), (8, 1)]), Share(2, 2), functions)
    assert shared.play(well.steps) == 0
    assert sorted(called) == [0, 0, 5]
    for _ in range(2):
        assert shared.play(ill.steps) == 7
    assert 8 not in called  # a ticket ends where something fails
    passing += [7, 8]
    assert shared.play(ill.steps) == 0  # what failed before is over


def test_kernels_of_a_thread_share_scratch_memory_and_threads_do_not():
    """A larger kernel moves the memory; the smaller one, built and run before, finds it again."""
    rng = np.random.default_rng(5)
    sizes = [((4, 20, 64), (5, 64, 64), (1,), ((0, 0),), (1,)), ((8, 40, 128), (5, 128, 96), (1,), ((0, 0),), (1,))]
    kernels = [onednn.conv_weight_grad(*each) for each in sizes]
    operands = [(floats(rng, x), floats(rng, (x[0], x[1] - 4, w[-1]))) for x, w, *_ in sizes]
    alone = [
        run(onednn.conv_weight_grad(*each), each[1], *arrays) for each, arrays in zip(sizes, operands, strict=True)
    ]
    assert 0 < kernels[0].scratch < kernels[1].scratch
    places: dict[int, int] = {}
    held = threading.Barrier(2, timeout=60)

    def work(number: int) -> None:
        for which in (0, 1, 0, 1):
            kernel = kernels[which] if number == 0 else onednn.conv_weight_grad(*sizes[which])
            out = run(kernel, sizes[which][1], *operands[which])
            np.testing.assert_allclose(out, alone[which], rtol=1e-4, atol=1e-3)
        places[number] = binding.per_thread().scratch(kernels[1].scratch)
        held.wait()  # both are alive, so that neither has the other's memory

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(work, number) for number in range(2)]:
            each.result(timeout=60)
    assert abs(places[0] - places[1]) >= kernels[1].scratch


def test_without_the_library_there_are_reasons_and_no_kernels(tmp_path):
    code = (
        "from futurex.kernels import onednn\n"
        "assert not onednn.available()\n"
        "assert onednn.conv_forward((1, 4, 2), (2, 2, 3), (1,), ((0, 0),), (1,)) is None\n"
        "assert onednn.avg_pool_grad((1, 4, 2), (2,), (1,), ((0, 0),)) is None\n"
        "assert onednn.matmul((2, 3), (3, 4)) is None\n"
        "print(onednn.why_not())\n"
    )
    missing = str(tmp_path / "libdnnl.so.3")
    environment = {**os.environ, "FUTUREX_LIBDNNL": missing}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert missing in done.stdout


def test_the_plan_is_told_on_how_many_threads_a_convolution_runs():
    for size, threads in ((4, 1), (64, 2)):
        x, w = (param(Aval(shape, np.dtype(np.float32))) for shape in ((8, size, 16), (3, 16, 32)))
        node = apply("conv", x, w, stride=(1,), padding=((1, 1),), dilation=(1,), groups=1)
        kernel = OneDNNBackend().claim(node, 2)
        assert kernel is not None
        assert kernel.threads == threads
