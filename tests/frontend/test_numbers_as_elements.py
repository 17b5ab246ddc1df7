"""Numbers that become elements of arrays of another type: where NumPy looks whether they fit, and where it does not."""

import numpy as np
import pytest
from compare import outcome, plain

import futurex as fx


def item(b, s):
    b[0] = s
    return b


def of_a_list(b, s):
    b[:2] = [s, 1]
    return b


def behind_an_index(b, s):
    b[[0, 1]] = s
    return b


def through_the_iterator(b, s):
    b.flat[1] = s
    return b


def through_a_slice_of_the_iterator(b, s):
    b.flat[1:] = s
    return b


def put(b, s):
    np.put(b, [0, 2], s)
    return b


def put_by_the_method(b, s):
    b.put([1], [s, s])
    return b


def masked(b, s):
    np.putmask(b, b > 1, s)
    return b


def diagonal(b, s):
    np.fill_diagonal(b.reshape(2, 2), s)
    return b


def inserted(b, s):
    return np.insert(b, 1, s)


def made(b, s):
    return np.array(s, b.dtype), np.array([s, [1][0]], b.dtype), np.asarray(s, dtype=b.dtype)


def full(b, s):
    return np.full(3, s, b.dtype), np.full_like(b, s)


def copied(b, s):
    np.copyto(b, s, where=b > 1)
    return b


def chosen(b, s):
    return np.where(b > 1, b, s), np.where(b > 2, s, b)


def bounded_above(b, s):
    return np.clip(b, 2, s), b.clip(None, s), b.clip(0, s)


def bounded_below(b, s):
    return np.clip(b, s, 3), b.clip(s), b.clip(s, 255)


FUNCTIONS = [
    item, of_a_list, behind_an_index, through_the_iterator, through_a_slice_of_the_iterator, put, put_by_the_method,
    masked, diagonal, inserted, made, full, copied, chosen, bounded_above,
    bounded_below,
]  # fmt: skip
NUMBERS = [
    -3.0,
    300.5,
    2.0,
    float("nan"),
    float("inf"),
    1e20,
    -3,
    300,
    2**40,
    2**63,
    1j,
    True,
    np.float64(-3.0),
    np.int64(-3),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["u1", "i4", "u8", "f2", "?"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_numbers_fit_where_numpy_says_so(function, dtype):
    futurized = fx.futurize(function)
    for number in NUMBERS:
        args = np.array([1, 2, 3, 4], dtype), number
        assert outcome(futurized, args) == outcome(function, args), number


@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", "u8", "f4"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_ints_that_a_trace_knows_as_symbols_fit_where_numpy_says_so(function, dtype):
    futurized = fx.futurize(function)
    for number in (3, 4, 5, 6, 300, -3, 2**40, -(2**40), 127, 255, -128, 0):
        args = np.array([1, 2, 3, 4], dtype), number
        assert outcome(futurized, args) == outcome(function, args), number


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
def test_wide_integers_become_what_numpy_makes_of_them(number):
    def arrays(b, s):
        return (
            np.asarray(s) // 2,
            np.array([s, 1]) // 2,
            np.append(b, s),
            np.asarray(s).astype(float),
            np.choose(0, [s, 0.5]),
        )

    args = np.arange(3, dtype=np.uint64), number
    assert str(plain(fx.futurize(arrays)(*args))) == str(arrays(*args))


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4"])
@pytest.mark.parametrize("function", [np.putmask, np.place], ids=lambda function: function.__name__)
def test_arrays_without_dimensions_are_cast_safely_where_numpy_does(function, dtype):
    def write(b, s):
        function(b, b > 1, s)
        return b

    futurized = fx.futurize(write)
    for values in (np.array(2), np.array(2.5), np.int64(2), np.float64(2.5), np.array([2]), np.array(2, "u1"), 3, 2.5):
        args = np.array([1, 2, 3], dtype), values
        assert outcome(futurized, args) == outcome(write, args), values


def test_an_unsigned_number_of_repetitions_is_none_of_an_array():
    def repeated(x, k):
        return np.repeat(x, k % 4)

    for count in (np.uint64(6), np.array(2, np.uint64), np.array([1, 0, 2], np.uint64), np.uint8(3)):
        futurized, args = fx.futurize(repeated), (np.arange(3), count)
        for _ in range(2):
            assert outcome(futurized, args) == outcome(repeated, args), count


def test_positions_of_put_in_a_narrow_type():
    def clipped(b, places):
        np.put(b, places, [5.0, 7.0], mode="clip")
        b.put(places, 3.0, "wrap")
        return b

    args = np.arange(300.0), np.array([250, 3], np.uint8)
    assert outcome(fx.futurize(clipped), args) == outcome(clipped, args)


def item_at(a, places):
    return a.item(int(places[0])) + a.item(places.argmax() + 3)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (2, 2, 2)])
def test_an_item_that_is_not_there_has_numpys_error(shape):
    futurized, a = fx.futurize(item_at, escape="error"), np.arange(np.prod(shape, dtype=int) * 1.0).reshape(shape)
    for first, largest in ((0, 0), (0, 1), (-1, 2), (9, 0), (-9, 0), (0, 7), (2, 4)):
        places = np.where(np.arange(8) == largest, 9, -9)
        places[0] = first
        results = []
        for function in (item_at, futurized):
            try:
                results.append(float(function(a, places)))
            except IndexError as error:
                results.append(str(error))
        assert results[0] == results[1]
