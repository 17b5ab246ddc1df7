"""What only the run can refuse raises where NumPy raises: on lines that nobody reads, and in ``try`` statements."""

import numpy as np
import pytest
from compare import bits, check, outcome, plain

import futurex as fx


def powers(a, b):
    found = a**b  # noqa: F841


def a_sum_of_values(a, b):
    found = np.unique(a) + np.unique(b)  # noqa: F841


def a_comparison(a, b):
    found = np.unique(a) == np.unique(b)  # noqa: F841


def joined_rows(a, b):
    found = np.concatenate([np.unique(a)[None], np.unique(b)[None]])  # noqa: F841


def a_product(a, b):
    found = np.unique(a) @ np.unique(b)  # noqa: F841


def the_largest_of_some(a, b):
    found = a[a > b.max() + 1].max()  # noqa: F841


def the_place_of_the_smallest_of_some(a, b):
    found = a[a > b.max() + 1].argmin()  # noqa: F841


def another_shape(a, b):
    found = a[a > 1].reshape(3, 1)  # noqa: F841


def a_stretched_view(a, b):
    found = np.broadcast_to(np.unique(b), (2, 3))  # noqa: F841


def a_row_of_a_view(a, b):
    found = a[a > b.min()][None][:, 2]  # noqa: F841


def repetitions(a, b):
    found = np.repeat(a[:3], b[:3])  # noqa: F841


def an_extent_of_data(a, b):
    found = np.ones(b[1])  # noqa: F841


def a_range_of_data(a, b):
    found = np.arange(4) + np.arange(b[0])  # noqa: F841


LINES = [
    powers, a_sum_of_values, a_comparison, joined_rows, a_product, the_largest_of_some,
    the_place_of_the_smallest_of_some, another_shape, a_stretched_view, a_row_of_a_view, repetitions,
    an_extent_of_data, a_range_of_data,
]  # fmt: skip
FITS, DOES_NOT = np.array([4, 1, 2, 4]), np.array([1, -2, 5, 5])




@pytest.mark.parametrize("b", [FITS, DOES_NOT, np.array([2, 2, 2, 0])], ids=["fits", "does not", "zeros"])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.__name__)
def test_lines_that_nobody_reads(line, b):
    a = np.array([1, 2, 3, 4])

    def followed(a, b):
        line(a, b)
        return a + 1

    def guarded(a, b):
        try:
            line(a, b)
        except ValueError:
            return a - 1
        except IndexError:
            return a - 2
        return a + 1

    for function in (followed, guarded):
        expected = outcome(function, (a, b))
        futurized = fx.futurize(function)
        for _ in range(3):
            assert outcome(futurized, (a, b)) == expected, futurized.explain()


def test_what_surely_fits_is_staged_in_a_try_statement():
    def guarded(a, b):
        try:
            return (a + b * 2).sum() + a.max() + (a**2)[0]
        except ValueError:
            return a

    check(guarded, np.array([1, 2, 3, 4]), FITS)


def test_a_loop_that_may_leave_another_shape_behind():
    """Where no round is made its array has the shape that it had before."""

    def widened(a, flag):
        wide = flag.ravel() * flag
        for _ in range(int(a.max()) % 5):
            wide = np.greater(a, flag)
        return wide

    futurized = fx.futurize(widened)
    for last in (4.0, 5.0, 4.0):
        args = np.array([1.0, 2.0, last]), np.array(True)
        assert bits(plain(futurized(*args))) == bits(widened(*args))


def test_places_of_extremes_of_what_has_no_axes():
    def places(x):
        return np.argmax(x, keepdims=True), np.argmin(x, axis=-1, keepdims=True), np.argmin(x, axis=None)

    for x in (2, 2.5, np.float64(2), np.array(2), np.ones((2, 3)), np.ones(1)):
        assert bits(plain(fx.futurize(places)(x))) == bits(places(x)), x
