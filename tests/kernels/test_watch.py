"""What machine code sees of the values of a run: which have moved, and numbers and addresses that it copies."""

import numpy as np
import pytest

from futurex.kernels import steps
from futurex.kernels.steps import Row
from futurex.kernels.watch import AXES, Watch, address_to, how_to_copy

pytestmark = pytest.mark.skipif(not steps.ready(), reason="there is no compiler")


class Other(np.ndarray):
    """Arrays of another type."""


def watched(value, **how):
    watch = Watch(2)
    row = Row([], watch)
    watch.note(0, value, **how)
    watch.note(1, y := np.ones(3), number=False, copied=False)
    return watch, lambda other: None if row.run([other, y]) else watch.moved()


def test_what_has_moved_is_seen():
    base = np.arange(24.0).reshape(4, 6)
    for value in (base, base[1:], base.T, base[:, ::2], base[0, 0, ...], np.zeros((1,) * AXES)):
        _, seen = watched(value, number=False, copied=False)
        assert seen(value) is None
        for other in (base[2:], base[:, ::3], base.T[::2], np.ones(2), 1.0, np.float64(1), None, value.view(Other)):
            assert seen(other) == [0]
        assert seen(value[...]) is None
    for value in (3, 2.5, np.float32(1), "x", base.view(Other), np.zeros((1,) * (AXES + 1))):
        assert watched(value, number=False, copied=False)[1](value) == [0]  # nothing is known of these


def test_addresses_are_followed_where_strides_and_alignment_stay():
    base = np.arange(48.0).reshape(6, 8)
    odd = np.frombuffer(bytes(6 * 8 * 8 + 4), np.float64, 48, offset=0)
    odd = np.ndarray((6, 8), np.float64, odd.base, 4)
    target = np.zeros(2, np.int64)
    watch, seen = watched(base, number=False, copied=True)
    watch.copy([address_to(0, target.ctypes.data + 8, 24), address_to(0, target.ctypes.data, 0)])
    for value in (base, base.copy(), base[1:], np.zeros((6, 8), np.float32).view(np.float64).repeat(2, axis=1)):
        assert seen(value) is None
        assert target.tolist() == [value.ctypes.data, value.ctypes.data + 24]
    for value in (odd, base.T, base[:, ::2], base[0], np.float64(1), 2.0, base.view(Other)):
        assert seen(value) == [0]


def copied(first, others, dtype):
    """Each of these values, in turn, goes to two places of three; anything else is seen, and changes nothing."""
    target = np.zeros(3, dtype)
    watch, seen = watched(first, number=True, copied=True)
    watch.copy([(0, target.ctypes.data + k * dtype.itemsize, how_to_copy(first, dtype), 0) for k in (0, 2)])
    for value in (first, *others):
        assert seen(value) is None
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(target, np.array([value, 0, value]).astype(dtype))
    before = target.copy()
    assert seen(7) == [0]
    np.testing.assert_array_equal(target, before)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_are_copied_from_wherever_they_are(dtype):
    copied(2.5, [0.1, -0.0, 1e300, np.nan], np.dtype(dtype))


@pytest.mark.parametrize("kind", "?bBhHiIlLefd")
def test_scalars_and_arrays_of_one_element_are_copied(kind):
    dtype = np.dtype(kind)
    values = [np.array(each, dtype) for each in (1, 0, 1)] if kind == "?" else [
        np.array(each, dtype) for each in (1, 77, np.iinfo(kind).min if dtype.kind in "iu" else -np.inf)
    ]  # fmt: skip
    copied(values[0], values[1:], dtype)
    scalars = [each[()] for each in values]
    copied(scalars[0], scalars[1:], dtype)
    for value in (3, True, "x", None, np.ones(1, dtype), np.complex128(1), np.array(1, ">i8"), np.array(1, ">f4")):
        assert how_to_copy(value, dtype) == 0
    assert how_to_copy(np.longdouble(1), np.dtype("g")) == how_to_copy(2.5, np.dtype("i8")) == 0
    assert how_to_copy(2.5, np.dtype("f2")) == how_to_copy(np.float64(2.5), np.dtype("f4")) == 0
