"""Elements and slices of results that are there are found at once, and are arrays of their own as from a run."""

import re

import numpy as np
import pytest

import futurex as fx
import futurex.numpy as fnp
from futurex.frontend import staging

INDICES = [
    0, -1, np.int64(1), (1, 2), (1, 2, 3), (0, np.uint8(1)), slice(1, 2), slice(None, None, -1), slice(-2, None, 2),
    (slice(None), 1), (..., 0), (None, 1), (..., None), (), ..., None, (slice(2, 1), 0), (1, ..., slice(0, 4, 3)),
]  # fmt: skip
OTHERS = [[0, 1], np.array([1, 0]), np.ones(2, bool), True, (0, [1]), np.True_]
VALUE = np.arange(24.0).reshape(2, 3, 4)


def result(value):
    return fx.futurize(lambda x: x.copy())(value)


@pytest.mark.parametrize("index", INDICES + OTHERS, ids=repr)
@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "c16"])
def test_parts_are_numpys(index, dtype):
    value = VALUE.astype(dtype)
    array, expected = result(value), np.array(value[index]) if np.ndim(value[index]) else value[index]
    array.result()
    part = array[index]
    found = part.result()
    assert (part.shape, part.dtype, type(found)) == (expected.shape, expected.dtype, type(expected))
    np.testing.assert_array_equal(found, expected)
    if isinstance(expected, np.ndarray):
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert not np.shares_memory(found, array)


@pytest.mark.parametrize("index", [2, (0, 0, 0, 0), 1.5, "x", (0, 3), (..., ...)], ids=repr)
def test_places_that_there_are_not(index):
    array = result(VALUE)
    array.result()
    with pytest.raises(IndexError) as plain:
        VALUE[index]
    with pytest.raises(IndexError, match=re.escape(str(plain.value))):
        array[index]


def test_nothing_is_traced(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("traced")

    array = result(VALUE)
    array.result()
    monkeypatch.setattr(staging, "trace_call", refuse)
    assert [float(array[0, j, k]) for j in range(3) for k in range(4)] == list(range(12))


def test_a_part_stays_when_the_array_is_given_away():
    step = fx.futurize(lambda x: x + 1, donate="x")
    array = result(VALUE)
    array.result()
    part, number = array[1], array[0, 0, 1]
    step(array).result()
    np.testing.assert_array_equal(part, VALUE[1])
    assert float(number) == 1.0
    with pytest.raises(fx.Donated):
        array[1]


def test_parts_of_what_may_be_written_to_may_be():
    array = fnp.arange(6.0)
    part = array[1:3]
    part[0] = 9.0
    assert part.tolist() == [9.0, 2.0]
    assert array.tolist() == list(range(6))


class Kept:
    array = None


def first(x):
    return Kept.array[0] + x


def test_functions_read_what_is_there_at_each_call():
    staged = fx.futurize(first)
    for factor in (1.0, 2.0, 3.0, 4.0):
        Kept.array = result(VALUE * factor)
        Kept.array.result()
        np.testing.assert_array_equal(staged(np.zeros((3, 4))), VALUE[0] * factor)


def test_what_a_trace_calls_as_it_is_gives_no_constant():
    """A function without a source is called by the trace, with the very object."""
    space = {"kept": Kept}
    exec("def first(x):\n    return kept.array[0] + x\n", space)
    unseen = space["first"]

    def caller(x):
        return unseen(x) * 2

    staged = fx.futurize(caller)
    for factor in (1.0, 2.0, 3.0, 4.0):
        Kept.array = result(VALUE * factor)
        Kept.array.result()
        np.testing.assert_array_equal(staged(np.zeros((3, 4))), VALUE[0] * factor * 2)
