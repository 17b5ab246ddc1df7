"""Regions along short rows, whose kernels take blocks of rows as one loop, against NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import row_blocks
from futurex.kernels.numba_.layout import collapse
from futurex.kernels.numba_.region import analyse
from futurex.ops import strides
from futurex.ops.fusion import SHORT_ROW, is_slow
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import apply, param

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 62, 63, 64, 100, 255, 256]


def operands(rows, length, dtype):
    """A matrix, what all rows share, and what each has one of."""
    rng = np.random.default_rng(rows * length)
    shapes = (rows, length), (length,), (rows, 1)
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(1, 100, shape).astype(dtype) for shape in shapes]
    if dtype == "?":
        return [rng.random(shape) < 0.5 for shape in shapes]
    numbers = [rng.normal(size=shape) + 3 for shape in shapes]
    return [each.astype(dtype) + (1j if np.dtype(dtype).kind == "c" else 0) for each in numbers]


def region_of(shapes, function="maximum"):
    params = [param(Aval(shape, np.dtype("f8")), f"p{k}") for k, shape in enumerate(shapes)]
    total = params[0]
    for each in params[1:]:
        total = apply("add", total, each)
    graph = Graph(params, [apply("tanh", total) if function == "tanh" else apply("maximum", total, 0.0)])
    out = graph.outs[0].shape
    return analyse(graph), collapse(out, [*shapes, out])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2"])
def test_exact_operations_have_numpys_bits(length, dtype):
    def plain(x, mean, scale):
        return x - mean, (x - mean) * scale, np.maximum(x * scale, mean)

    f = fx.futurize(plain)
    for rows in (5000 // length + 1, 8192 // length, 3):
        arrays = operands(rows, length, dtype)
        for _ in range(2):
            for found, expected in zip(f(*arrays), plain(*arrays), strict=True):
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("length", [8, 9, 11, 15, 16, 23, 31, 40, 63])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_with_gaps_and_divisions_have_numpys_bits(length, dtype):
    """Also where a divisor is zero, and where what lies in the gaps is."""

    def plain(x, y):
        upper, lower = x[1:-1, 1:], y[1:-1, :-1]
        y[2:, 1:] = np.where(lower > upper, upper / lower, lower / upper) * np.sqrt(upper) + lower
        return y

    f, rng = fx.futurize(plain), np.random.default_rng(length)
    rows = 70_000 // length
    x, y = (rng.integers(0, 3, (rows, length + 1)).astype(dtype) for _ in range(2))
    x[:, 0], y[:, -1] = 0, 0
    with np.errstate(all="ignore"):
        expected = plain(x, y.copy())
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(f(x, y.copy())), expected)


def sharpened(image):
    inner = image[1:-1, 1:-1]
    return 4 * inner - image[:-2, 1:-1] - image[2:, 1:-1] - image[1:-1, :-2] - image[1:-1, 2:]


def largest(image):
    return sharpened(image) / np.max(np.abs(sharpened(image)))


def blurred(image):
    out = np.zeros_like(image)
    out[2:-2, 1:-1] = image[1:-3, :-2] * 0.25 + image[3:-1, 2:] * 0.25 + image[2:-2, 1:-1] * 0.5
    return out


def shaded(image):
    out = image.copy()
    out[1:-1, 1:-1] = image[1:-1, 1:-1] * image[0, 0] + image[1:-1, 2:, :1]
    return out


def stretched(image):
    return np.tanh(image[3:, 4:]) * 0.5


@pytest.mark.parametrize("plain", [sharpened, largest, blurred, shaded, stretched])
@pytest.mark.parametrize("shape", [(200, 150, 3), (150, 200, 4), (70, 3, 200, 2), (40, 30, 5, 3), (300, 3, 3)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_pixels_of_an_images_part(plain, shape, dtype):
    """Rows of three numbers, that go on in the next pixel, are long ones; where something moves from pixel to pixel
    alone, they are not."""
    f, image = fx.futurize(plain), np.random.default_rng(7).normal(size=shape).astype(dtype)
    expected = plain(image)
    close = {"rtol": 1e-5 if dtype == "f4" else 1e-13, "atol": 0} if plain is stretched else {"rtol": 0, "atol": 0}
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(f(image)), expected, **close)
    turned = np.asfortranarray(image)  # which is copied, or read in its own order
    np.testing.assert_allclose(np.asarray(f(turned)), expected, **close)
    apart = np.full((*shape[:-1], shape[-1] + 1), 7.0, dtype)  # the next pixel does not follow
    apart[..., :-1] = image
    np.testing.assert_allclose(np.asarray(f(apart[..., :-1])), expected, **close)


def test_pixels_are_written_where_they_belong_if_all_that_is_read_goes_on_with_them():
    image = np.random.default_rng(3).normal(size=(200, 190, 3))

    def of_neighbours(image):
        out = image.copy()
        out[1:-1, 1:-1] = image[1:-1, 1:-1] - image[2:, 2:]
        return out

    def of_a_color(image):
        out = image.copy()
        out[1:-1, 1:-1] = image[1:-1, 1:-1] * image[0, 0]
        return out

    for f, whole in ((of_neighbours, True), (of_a_color, False)):
        plan = fx.futurize(f).trace(image).plan
        assert ("fused_store" in [each.node.op for each in plan.instructions]) == whole
        plan.prepare(wait=True)
        np.testing.assert_array_equal(plan.run([image])[0], f(image))


def test_a_kernel_refuses_rows_that_do_not_go_on():
    rows, pixels = np.zeros((60, 50, 3)), np.zeros((60, 50, 4))
    assert strides.lies_in_rows(rows[1:-1, 1:-1], strides.LongRows((-1,)))
    assert not strides.lies_in_rows(pixels[1:-1, 1:-1, :3], strides.LongRows((-1,)))


def test_rows_of_pixels_are_read_where_they_lie():
    def kinds(shape):
        image = param(Aval(shape, np.dtype("f8")), "image")
        part = apply("load", image, chain=(("index", (("s", 1, -1, None), ("s", 1, -1, None))),))
        return strides.together(part), strides.has_gaps(part)

    assert kinds((60, 50, 3)) == (strides.LongRows((-1,)), True)
    assert kinds((60, 4, 3)) == (None, False)  # six numbers
    assert kinds((60, 50)) == (None, True)


@pytest.mark.parametrize("dtype", ["c8", "c16", "?"])
def test_complex_numbers_and_truth_values(dtype):
    def plain(x, mean, scale):
        return (x ^ mean, x & scale) if dtype == "?" else (x * mean + mean, x - scale)

    f = fx.futurize(plain)
    for length in (3, 10):
        arrays = operands(2000, length, dtype)
        for found, expected in zip(f(*arrays), plain(*arrays), strict=True):
            np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("length", [2, 3, 10, 63, 64, 200, 255])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 5e-7), ("f8", 1e-15)])
def test_functions(length, dtype, tolerance):
    f = fx.futurize(lambda x, mean, scale: np.tanh(x - mean) + np.exp(-scale))
    x, mean, scale = operands(20000 // length, length, dtype)
    expected = np.tanh(x - mean) + np.exp(-scale)
    np.testing.assert_allclose(np.asarray(f(x, mean, scale)), expected, rtol=tolerance, atol=tolerance)


def squares(a, b):
    d = a[:, None] - b[None]
    return d * d, np.exp(-d * d)


STACKS = {
    "pairs": (squares, (300, 3), (300, 3)),
    "pairs of many": (squares, (40, 30), (200, 30)),
    "images": (lambda x, mask, scale: (x * mask + scale, np.tanh(x + mask)), (5, 90, 90, 3), (90, 90, 1), (3,)),
    "batches": (lambda x, mean, scale: ((x - mean) * scale,), (6, 50, 50, 7), (6, 1, 1, 7), (7,)),
    "channels": (lambda x, bias: (np.tanh(x + bias[:, None, None]), x - bias[:, None, None]), (9, 40, 6, 7), (40,)),
    "sequences": (lambda x, each, place: (np.exp(x - each) * place,), (30, 50, 20), (30, 1, 20), (50, 1)),
    "five": (lambda x, a, b: (x * a - b,), (3, 4, 200, 2, 3), (4, 1, 2, 1), (3, 1, 200, 1, 3)),
    "few rows": (lambda x, a: (x - a,), (2000, 4, 3), (2000, 1, 3)),
    "of one matrix": (lambda x, a: (x / a, np.sin(x) + a), (20, 300, 3), (20, 1, 1)),
}


@pytest.mark.parametrize("name", STACKS)
def test_stacks_of_matrices(name):
    plain, *shapes = STACKS[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.normal(size=shape) + 3 for shape in shapes]
    f = fx.futurize(lambda *arrays: plain(*arrays))
    for found, expected in zip(f(*arrays), plain(*arrays), strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-15, atol=1e-15)


GAPS = {
    "neighbours": (lambda x: ((x[:, 1:] - x[:, :-1]) * 2, np.exp(x[:, 1:] - x[:, :-1])), (5000, 5)),
    "one difference": (lambda x: np.diff(x, axis=1), (5000, 4)),
    "columns": (lambda x: np.tanh(x[:, 2:5]) * x[:, :3], (3000, 7)),
    "other way round": (lambda x: x[::-1, 1:] - x[:, :-1] * 2, (3000, 4)),
    "every third row": (lambda x: x[::3, 1:] * 2 + x[1::3, 1:], (9000, 6)),
    "pairs of views": (lambda x: np.exp(-np.abs(x[:, None, :2] - x[None, :, 1:])), (200, 3)),
    "shared row of a view": (lambda x: (x[:, 1:] - x[3, :-1]) * x[:, :1], (3000, 6)),
    "planes": (lambda x: (x[:, 1:, 2:] + x[:, :-1, :-2]) / 2, (20, 90, 9)),
    "long rows": (lambda x: np.exp(x[:, 3:]) + x[:, :-3], (100, 100)),
}


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "c8", "i2"])
def test_views_with_gaps_between_their_rows(name, dtype):
    plain, shape = GAPS[name]
    x = operands(shape[0], math.prod(shape[1:]), dtype)[0].reshape(shape)
    f = fx.futurize(lambda x: plain(x))
    tolerance = 1e-15 if dtype == "f8" else 1e-6
    for _ in range(2):
        with np.errstate(all="ignore"):
            found, expected = f(x), plain(x)
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for each, other in pairs:
            assert each.dtype == other.dtype
            np.testing.assert_allclose(np.asarray(each), other, rtol=tolerance, atol=tolerance)


def test_a_view_that_is_written_while_others_read_it():
    @fx.futurize
    def smoothed(x):
        x[:, 1:-1] = (x[:, :-2] + x[:, 2:]) * 0.5 + x[:, 1:-1]
        return x

    x = operands(2000, 6, "f8")[0]
    expected = x.copy()
    expected[:, 1:-1] = (expected[:, :-2] + expected[:, 2:]) * 0.5 + expected[:, 1:-1]
    np.testing.assert_array_equal(np.asarray(smoothed(x)), expected)
    np.testing.assert_array_equal(x, expected)


def test_functions_that_hold_up_to_a_bound_tell_of_what_lies_beyond():
    f = fx.futurize(lambda x, phase: np.sin(x + phase) * 2)
    x, phase, _ = operands(3000, 3, "f8")
    x[1234, 1] = 1e300
    np.testing.assert_allclose(np.asarray(f(x, phase)), np.sin(x + phase) * 2, rtol=1e-14, atol=1e-14)


def test_a_matrix_that_is_written_over():
    @fx.futurize(donate=("x",))
    def centred(x, mean):
        return (x - mean) * 2

    x, mean, _ = operands(4000, 3, "f4")
    expected = (x - mean) * 2
    np.testing.assert_array_equal(np.asarray(centred(x.copy(), mean)), expected)

    @fx.futurize
    def in_place(x, mean):
        x -= mean
        x *= 2
        return x

    np.testing.assert_array_equal(np.asarray(in_place(x, mean)), expected)
    np.testing.assert_array_equal(x, expected)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 9000), length=st.integers(1, 40), leading=st.sampled_from([(), (1,), (2,)]))
def test_any_number_of_rows(rows, length, leading):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(*leading, rows, length))
    mean, scale = rng.normal(size=length), rng.normal(size=(rows, 1))
    np.testing.assert_array_equal(np.asarray(_standardised(x, mean, scale)), (x - mean) / scale)


@fx.futurize
def _standardised(x, mean, scale):
    return (x - mean) / scale


def test_which_regions_are_taken():
    shared = [(5000, 3), (3,)]
    assert row_blocks.suits(*region_of(shared))
    assert not row_blocks.suits(*region_of([(5000, 3), (5000, 3)]))  # one loop over all
    assert not row_blocks.suits(*region_of([(500, 3), (3,)]))
    assert not row_blocks.suits(*region_of([(5000, 64), (64,)]))
    assert row_blocks.suits(*region_of([(5000, 7), (5000, 1)]))
    assert not row_blocks.suits(*region_of([(5000, 8), (5000, 1)]))  # a line
    assert row_blocks.suits(*region_of([(5000, 8), (5000, 1)], "tanh"))
    assert row_blocks.suits(*region_of([(90, 200, 3), (200, 1), (90, 1, 3)]))
    assert not row_blocks.suits(*region_of([(2000, 4, 3), (2000, 1, 3)]))  # of which a few rows are all


@pytest.mark.parametrize("wide", [False, True])
def test_functions_of_longer_rows_where_registers_are_few(wide, monkeypatch):
    monkeypatch.setattr(row_blocks, "has_scale", lambda: wide)
    assert row_blocks.suits(*region_of([(5000, 255), (255,)], "tanh")) != wide
    assert not row_blocks.suits(*region_of([(5000, 256), (256,)], "tanh"))


def test_one_operation_on_short_rows_is_slow_in_numpy():
    x = param(Aval((300, SHORT_ROW), np.dtype("f8")), "x")
    row, column = (param(Aval(shape, np.dtype("f8")), "y") for shape in ((SHORT_ROW,), (300, 1)))
    longer = param(Aval((300, SHORT_ROW + 1), np.dtype("f8")), "x")
    assert all(is_slow(apply("add", x, each), here=True) for each in (row, column))
    assert not any(is_slow(apply("add", x, each), here=True) for each in (x, 1.0))
    assert not is_slow(apply("add", longer, column), here=True)
    assert not is_slow(apply("add", x, row), here=False)
