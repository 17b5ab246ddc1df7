"""Arrays with short rows in compiled loops: one generated loop instead of a call of NumPy's for each row, same bits."""

import math

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx
from futurex.kernels.loops import records

RNG = np.random.default_rng(41)


def numbers(dtype, *shape):
    made = (RNG.standard_normal(shape) * 50).astype(dtype)
    if made.dtype.kind == "f":
        made.flat[3], made.flat[-4] = np.nan, np.inf
    return made


def sums(x, axis, keepdims):
    return x.sum(axis=axis, keepdims=keepdims)


def products(x, axis, keepdims):
    return x.prod(axis=axis, keepdims=keepdims)


def largest(x, axis, keepdims):
    return x.max(axis=axis, keepdims=keepdims)


def smallest(x, axis, keepdims):
    return x.min(axis=axis, keepdims=keepdims)


AXES = (0, 1, 2, (0, 1), (1, 2), (0, 2))


def looped(reduce, shift):
    """A loop in which arrays, and views of them with gaps, are reduced along all axes."""

    def rounds(x, y):
        totals = [reduce(x + y, axis, shift % 4 == 0) for axis in AXES]
        views = [reduce((x + y)[..., :shift], axis, False) for axis in AXES[:3]]
        for k in range(20):
            z = x * k + y
            totals = [total + reduce(z, axis, shift % 4 == 0) for total, axis in zip(totals, AXES, strict=True)]
            views = [total + reduce(z[..., :shift], axis, False) for axis, total in enumerate(views)]
        return (*totals, *views)

    return rounds


@pytest.mark.parametrize("reduce", [sums, products, largest, smallest])
@pytest.mark.parametrize(
    ("dtype", "shape", "shift"),
    [("f4", (5, 8, 8), 7), ("f8", (6, 3, 21), 20), ("u1", (3, 70, 2), 1)],
)
def test_reductions_have_numpys_bits(reduce, dtype, shape, shift):
    rounds, x, y = looped(reduce, shift), numbers(dtype, *shape), numbers(dtype, *shape)
    found = fx.futurize(rounds)
    with np.errstate(all="ignore"):
        assert calls_of_loops(found, (x, y)) == []
        for result, expected in zip(found(x, y), rounds(x, y), strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(result, expected)


def test_rows_without_elements():
    def rounds(x):
        total = np.zeros(len(x))
        for k in range(20):
            total += x.sum(axis=1) + (x * k)[:, ::-1].sum(axis=-1)
        return total

    found, x = fx.futurize(rounds), np.zeros((3, 0))
    assert calls_of_loops(found, [x]) == []
    np.testing.assert_array_equal(found(x), rounds(x))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_operands_that_broadcast_have_numpys_bits(dtype):
    def rounds(a, b):
        for _ in range(20):
            z = a[:, :, None] - b[None]
            m = np.maximum(z, b) * (z > 2)
            a = a + (m - z.max(axis=1, keepdims=True))[:, :, 0] // 2
        return a

    a, b = numbers(dtype, 6, 5), numbers(dtype, 5, 5)
    found = fx.futurize(rounds)
    with np.errstate(all="ignore"):
        expected = rounds(a, b)
        assert calls_of_loops(found, (a, b)) == []
        np.testing.assert_array_equal(found(a, b), expected)


def test_short_rows_are_one_loop(monkeypatch):
    """No row is a call of its own: where (20, 8, 8) numbers do not merge, there are 20 calls at most, not 160."""
    calls = []
    emit = records.emit

    def seen(e, callee, operands, dims, steps, extents, columns):
        calls.append(math.prod(extents))
        return emit(e, callee, operands, dims, steps, extents, columns)

    monkeypatch.setattr(records, "emit", seen)

    def rounds(a, b):
        for _ in range(20):
            z = a[:, :, None] + b
            a = np.log(np.exp(z - z.max(axis=1, keepdims=True)).sum(axis=2)) + z.sum(axis=1)
        return a

    fx.precompile(fx.futurize(rounds), numbers("f4", 20, 8), numbers("f4", 8, 8))
    assert calls
    assert max(calls) <= 20
