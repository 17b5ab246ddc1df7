"""Numbers that are Python's have the attributes of Python's types, in staged code as outside of it."""

import math

import numpy as np
import pytest
from compare import agree, bits, check, plain

import futurex as fx

NUMBERS = {
    "bool": lambda x: bool(x[0] > 0), "int": lambda x: int(x[0]), "float": lambda x: float(x[1]),
    "complex": lambda x: complex(x[1]) * 1j, "item": lambda x: x[1].item(), "equal": lambda x: np.array_equal(x, x),
}  # fmt: skip
ATTRIBUTES = {
    "real": lambda n: n.real, "imag": lambda n: n.imag, "numpy.real": lambda n: np.real(n),
    "numpy.imag": lambda n: np.imag(n), "conjugate": lambda n: n.conjugate(), "item": lambda n: n.item(),
    "sum": lambda n: n.sum(), "shape": lambda n: n.shape, "dtype": lambda n: n.dtype, "T": lambda n: n.T,
    "numerator": lambda n: n.numerator, "denominator": lambda n: n.denominator, "max": lambda n: n.max(),
}  # fmt: skip


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("number", NUMBERS)
def test_attributes_of_python_numbers(number, attribute):
    make, read = NUMBERS[number], ATTRIBUTES[attribute]

    def program(x):
        return read(make(x))

    check(program, np.array([2.0, -1.5]))


@pytest.mark.parametrize("attribute", ["is_integer", "hex", "as_integer_ratio"])
def test_what_only_python_can_tell_runs_as_plain_python(attribute):
    check(lambda x: getattr(float(x[0]), attribute)(), np.array([2.5]), staged=False)


def test_a_number_in_one_round_and_an_array_in_another():
    def program(a, rows):
        for _ in rows:
            a = a.item() * 2
        return a

    check(program, np.array([3]), np.zeros((1, 2)))
    check(program, np.array([3]), np.zeros((3, 2)))


def nothing_selected(x):
    return x[x[2:] < 0.3]


def nothing_written(x):
    x[x[2:] < 0.3] = 5.0
    return x


def nothing_written_by_pairs(x):
    x.reshape(1, 2)[np.zeros((0, 2), bool)] = 1.0
    return x


@pytest.mark.parametrize("program", [nothing_selected, nothing_written, nothing_written_by_pairs])
def test_a_mask_without_elements_fits_any_array(program):
    check(program, np.array([0.1, 0.2]))


@pytest.mark.parametrize("axis", [0, -1, 1, -2, None])
@pytest.mark.parametrize("name", ["argsort", "argmax", "argmin", "sort", "cumsum", "argpartition"])
def test_axes_of_arrays_without_dimensions(name, axis):
    function, more = getattr(np, name), (0,) if name == "argpartition" else ()
    refused_by_source = name == "argpartition" and axis in (1, -2)
    check(lambda x: function(x, *more, axis=axis), np.array(1.5), staged=not refused_by_source)


def root(x):
    return x**0.3, x + 1.0


def root_by_argument(x, p=0.5):
    return x**p


def roots_in_a_loop(x):
    total = 0.0
    for _ in range(4):
        total, x = total + x**0.5, x - 1.0
    return total


def root_of_a_sum(x):
    return (x * x + 1.0) ** 0.5 + abs(x) ** 1.5


@pytest.mark.parametrize("program", [root, root_by_argument, roots_in_a_loop, root_of_a_sum])
def test_a_root_of_a_negative_number_is_complex(program):
    """As in Python, whatever calls before it were of; where no root can be complex, no call waits to find out."""
    futurized = fx.futurize(program)
    for x in (4.0, -4.0, 2.0, 2.0, 2.0, -8.0, -0.0, float("nan"), 4.0):
        assert agree(bits(plain(futurized(x))), bits(program(x)))
    assert futurized.trace(4.0).waits == (program is not root_of_a_sum)


@pytest.mark.parametrize("dtype", [bool, "i4", "f4", "c8", "c16"])
@pytest.mark.parametrize("digits", [(), (1,)])
def test_round_of_what_numpy_does_not_round(dtype, digits):
    check(lambda x: round(x[0], *digits), np.array([1, 0], dtype))


EDGES = [0.0, -0.0, 1.5, 2.0**53, 2.0**53 + 2, 2.0**62, 2.0**63, -(2.0**63), 1e300, np.inf, -np.inf, np.nan]
WHOLE = [0, 2**53, 2**53 + 1, 2**53 - 1, 2**63 - 1, -(2**63), 2**62 + 1, -(2**53) - 1, 7]


def test_ints_and_floats_are_compared_exactly():
    """As Python does; a float that is next to an int is not equal to it."""

    def compare(n, x):
        return n == x, n != x, n < x, n <= x, n > x, n >= x, x < n, x <= n, x > n, x >= n, x == n, x != n, n in [x]

    def from_data(x, y):
        return int(x) == y, int(x) + 1 > y, y >= int(x) + 1

    compared, found = fx.futurize(compare), fx.futurize(from_data)
    for x in map(float, EDGES):
        for n in WHOLE:
            assert tuple(map(bool, compared(n, x))) == compare(n, x), (n, x)
        for y in map(float, EDGES[:6]):
            assert tuple(map(bool, found(y, x))) == from_data(y, x), (y, x)


def test_wide_ints_among_others_run_as_plain_python():
    double = fx.futurize(lambda n: n // 7 + n % 5)
    for n in (1, 2, 3, 2**63, -(2**63) - 1, 4, 2**70, 5):
        assert plain(double(n)) == double.plain(n)


def the_one_true(x):
    close, whole = np.allclose(x, 2.0), bool(x.sum() > 3)
    of_numpy = np.all(x > 0) is True, (x[0] > 0) is not False
    return close is False, close is True, whole is not True, True is whole, of_numpy


def given_up(x):
    if np.allclose(x, 2.0) is False:
        return 0.0
    return x.sum()


@pytest.mark.parametrize("x", [np.full(2, 2.0), np.array([2.0, -1.5])])
@pytest.mark.parametrize("function", [the_one_true, given_up])
def test_true_and_false_are_one_object_each(function, x):
    check(function, x)


def sometimes_python(x):
    same = np.allclose(x, 2.0) if x[0] > 0 else np.bool_(True)
    return same is True


HALVES = 257.5


def a_number_that_was_given(x, y):
    return y is HALVES, x.sum()


@pytest.mark.parametrize("args", [(np.full(2, 2.0),), (np.full(2, -2.0),), (np.full(2, 2.0), HALVES)])
def test_which_object_a_number_is_only_the_run_knows(args):
    check(sometimes_python if len(args) == 1 else a_number_that_was_given, *args, staged=False)


def lists_of_constants(x):
    numbers, rows = np.arange(4).tolist(), np.eye(2).tolist()
    numbers.append(7)
    kinds = [type(number) is int for number in numbers], type(rows[0][0]) is float
    return numbers, rows, kinds, np.float64(3.0).tolist(), f"{np.arange(3.0)[1]!r} {np.arange(2)}", x * numbers[-1]


def test_lists_and_texts_of_constants():
    check(lists_of_constants, np.arange(3.0))


GROWING = {
    "a cube": lambda x: int(x[0]) ** 3 % 7,
    "a factorial": lambda x: math.factorial(int(x[1])) % 1009,
    "a choice": lambda x: math.comb(int(x[1]), 30) % 1009,
    "a multiple": lambda x: math.lcm(int(x[0]), int(x[0] * x[1]) - 1) % 1009,
}


@pytest.mark.parametrize("name", GROWING)
def test_ints_that_outgrow_64_bits_are_plain_pythons(name):
    check(GROWING[name], np.array([2.0**40, 5.0]), staged=True)
    check(GROWING[name], np.array([2.0**40, 70.0]))


@pytest.mark.parametrize("value", [np.bool_(True), np.float64(2.0), np.array(2.0), np.int8(2)], ids=repr)
@pytest.mark.parametrize("function", [lambda n: math.gcd(6, n), math.factorial, lambda n: math.ldexp(1.5, n)])
def test_what_math_takes_for_an_int(function, value):
    check(lambda n, x: (function(n), x + 1), value, np.ones(2))


@pytest.mark.parametrize("function", [lambda n: n >> -1, lambda n: n << -1, lambda n: (n > 1) >> -1])
def test_shifts_by_a_negative_constant(function):
    check(lambda x: (function(int(x[0])), x + 1), np.array([2.0]))


@pytest.mark.filterwarnings("error:a kernel was not compiled")
@pytest.mark.parametrize("code", ["u1", "u4", "u8", "i2", "f4", "?"])
def test_items_of_all_types_are_numbers_of_code(code):
    def program(x):
        return x.item(0), x.item(1) * 2 + x.sum(), np.modf(x.item(1))

    x = np.array([3, 1, 0]).astype(code)
    staged = fx.futurize(program)
    fx.precompile(staged, x)
    assert agree(bits(plain(staged(x))), bits(program(x)))


def numbers_of_ranges(x, first):
    """By ``enumerate``, ``zip`` and ``reversed``, which count rows where only the run knows how many there are."""
    n, found, rows = (x > 0).sum(), (), []
    for k, j in enumerate(range(first, n)):
        found = k, j, j * np.float32(0.5)
    for v, j in zip(x, range(n, n * 2), strict=False):
        rows.append(v + j * np.float32(0.25))
    last = backwards = None
    for _, j in zip(x, range(n, 40), strict=False):
        last = j * np.float32(2)
    for j in reversed(range(first, n)):
        backwards = j
    return *found, rows[-1], last, backwards


@pytest.mark.parametrize("first", [1, np.int64(2), np.int32(1), np.array(2), True, -1, 1.0, np.float64(2), None])
def test_ranges_count_in_pythons_ints_whatever_they_are_given(first):
    """Beside single precision, an int of NumPy's makes doubles."""
    f, x = fx.futurize(numbers_of_ranges), np.random.default_rng(3).normal(size=30)
    try:
        expected = numbers_of_ranges(x, first)
    except TypeError as error:
        with pytest.raises(TypeError, match=str(error)):
            f(x, first)
        return
    for _ in range(3):
        found = list(map(plain, f(x, first)))
        assert found == list(expected)
        assert list(map(type, found)) == list(map(type, expected))
