"""Compiled loops, scalars and writes mean what NumPy means on every dtype, at the extremes too."""

import itertools
import operator

import numpy as np
import pytest
from compare import outcome, plain

import futurex as fx
from futurex.ops.fusion import CORRECTLY_ROUNDED, OF_COMPLEX

DTYPES = "?bhilBHILefdFD"
EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 5e-324, 3e38, 1e308, 65504.0, 255.0, 2.0**63]
pytestmark = pytest.mark.filterwarnings("ignore")


def values(code, n, rng):
    dtype = np.dtype(code)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        ends = [limits.max, limits.min, limits.max - 1, limits.min + 1]
        return rng.choice(np.array([0, 1, 2, 3, 5, 7, *ends], dtype), n)
    drawn = rng.choice(EXTREMES, n)
    with np.errstate(all="ignore"):
        return (drawn + 1j * rng.choice(EXTREMES, n) if dtype.kind == "c" else drawn).astype(dtype)


def same(function, *args):
    expected, actual = outcome(function, args), outcome(fx.futurize(function), args)
    assert actual == expected, (args, actual, expected)


@pytest.mark.parametrize("name", sorted(CORRECTLY_ROUNDED - {"where", "cast"}))
def test_fused_loops(name):
    ufunc, rng = getattr(np, name), np.random.default_rng(5)
    known = DTYPES[:-2] if f"complex_{name}" in OF_COMPLEX else DTYPES
    pairs = itertools.product(known, repeat=ufunc.nin)
    for number, codes in enumerate(pairs):
        if ufunc.nin == 2 and codes[0] != codes[1] and number % 5:
            continue
        args = [values(code, 300, rng) for code in codes]

        def chain(*xs):
            result = ufunc(*xs)
            other = np.logical_not(result) if result.dtype == bool else np.positive(result)
            return result, other, np.where(xs[0] != 0, result, result)

        same(chain, *args)
        if ufunc.nin == 2 and codes[0] == codes[1]:
            same(lambda x: np.positive(ufunc(x, 2)) if x.dtype != bool else ufunc(x, 2) == 1, args[0])
            same(lambda x: ufunc(np.float32(1.5), x) == 1, args[0])


@pytest.mark.parametrize("size", [1, 7, 300])
def test_clipping(size):
    """Between numbers, arrays of one element and arrays: the type, and the sign of a zero at a bound."""
    rng = np.random.default_rng(9)
    clipped = fx.futurize(lambda x, low, high: (np.clip(x, low, high), x.clip(low, high)))
    for first, second, third in itertools.product("?Iefd", "?If", "?fd"):
        x, arrays = values(first, size, rng), [values(code, size, rng) for code in (second, third)]
        low, high = ((each, each[:1] * 0, 0)[rng.integers(3)] for each in arrays)
        expected = outcome(clipped.plain, (x, low, high))
        assert outcome(clipped, (x, low, high)) == expected, (x, low, high)


BINARY = "add sub mul truediv floordiv mod lt le gt ge eq ne and_ or_ xor lshift rshift pow"


@pytest.mark.parametrize("name", [*BINARY.split(), "divmod"])
def test_operators_on_scalars(name):
    function, rng = getattr(operator, name, divmod), np.random.default_rng(6)
    of_two = fx.futurize(lambda x, y: function(x, y))
    for first, second in itertools.product(DTYPES, repeat=2):
        x, y = values(first, 1, rng)[0], values(second, 1, rng)[0]
        assert outcome(of_two, (x, y))[0] == outcome(function, (x, y))[0], (x, y)
    for number, code in itertools.product((3, -2, 2.5, True, 1j, 300), DTYPES):
        x = values(code, 1, rng)[0]
        for operands in ((x, number), (number, x)):
            assert outcome(of_two, operands)[0] == outcome(function, operands)[0], operands


def first(y, x):
    y[0] = x[0]
    return y


def part(y, x):
    y[1:] = x[0]
    return y


def behind_index_arrays(y, x):
    y[[0, 2]] = x[0]
    return y


def whole(y, x):
    y[...] = x[:1]
    return y


def filled(y, x):
    y.fill(x[1])
    return y


def as_python_number(y, x):
    y[0] = x[0].item()
    y[[1]] = x[1].item()
    return y


def in_a_loop(y, x):
    for k in range(len(y)):
        y[k] += x[k]
    return y


@pytest.mark.parametrize("write", [first, part, behind_index_arrays, whole, filled, as_python_number, in_a_loop])
def test_what_fits_into_an_element(write):
    rng = np.random.default_rng(7)
    for target, source in itertools.product(DTYPES, repeat=2):
        y, x = np.ones(3, target), values(source, 3, rng)
        expected = outcome(write, (y, x))
        actual = outcome(fx.futurize(write), (y, x))
        assert actual == expected, (target, x, actual, expected)


@pytest.mark.parametrize("code", DTYPES)
def test_in_place_operators_cast_as_numpy_does(code):
    x = values(code, 6, np.random.default_rng(8))
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "iand", "ior", "ixor", "ilshift"):
        in_place = getattr(operator, name)
        futurized = fx.futurize(in_place)
        for other in (2, 1.5, True, 1j, 300, np.float64(3), np.int8(-1), np.arange(6.0), np.arange(6, dtype="u1")):
            assert outcome(futurized, (x, other)) == outcome(in_place, (x, other)), (name, x, other)


@pytest.mark.parametrize("make", [
    lambda: np.array(["a", "b"]), lambda: np.array([1, None], object), lambda: np.array(["2020-01-01"], "M8[D]"),
    lambda: np.ones(3, np.longdouble), lambda: np.ones(3, ">f8"), lambda: np.zeros(2, [("a", "i4"), ("b", "f8")]),
    lambda: np.ma.masked_array([1.0, 2.0], [True, False]), lambda: np.ones(2, "m8[s]"),
])  # fmt: skip
def test_other_types_are_left_to_numpy(make):
    def twice(x):
        y = x.copy()
        y[:1] = x[-1:]
        return y, len(y), x.dtype

    expected, actual = twice(make()), plain(fx.futurize(twice)(make()))
    assert type(actual[0]) is type(expected[0])
    assert actual[0].dtype == expected[0].dtype
    assert actual[0].tolist() == expected[0].tolist()
    assert actual[1:] == expected[1:]
