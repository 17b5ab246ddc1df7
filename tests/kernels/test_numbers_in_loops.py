"""Python's numbers in compiled loops: bits and errors of ``%``, ``//``, powers and ``math`` are Python's, at the edges,
and nothing of it is a call of a node."""

from __future__ import annotations

import itertools
import math
import traceback

import numpy as np
import pytest
from compare import calls_of_loops, outcome
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

TINY, HUGE = 5e-324, 1.7976931348623157e308
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -7.0, 1e-300, TINY, -TINY, HUGE, -HUGE, np.inf, -np.inf, np.nan, 1e16]
WHOLE = [0, 1, -1, 2, 3, -3, 7, 12, -18, 63, 64, 1 << 31, -(1 << 31), (1 << 62) - 1, -(1 << 63), (1 << 63) - 1]


def quotient(x, y):
    return x // y


def remainder(x, y):
    return x % y


def both(x, y):
    whole, rest = divmod(x, y)
    return whole + rest


def power(x, y):
    return x**y


def together(x, y):
    return (x > 0) & (y > 0) | (x > y) ^ (x < 1)


def of_math(name, count):
    function = getattr(math, name)
    if count == 1:
        return lambda x, y: function(x)
    return lambda x, y: function(x, y)


def rounded(x, y):
    return round(x)


def to_digits(x, y):
    return round(x, 2)


def close(x, y):
    return math.isclose(x, y, rel_tol=1e-3, abs_tol=1e-4)


ONE = (
    "fabs", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "degrees", "radians", "erf", "erfc", "gamma",
    "lgamma",
)  # fmt: skip
TWO = ("atan2", "hypot", "fmod", "copysign", "pow", "remainder", "isclose", "log")
FLOATS = {
    **{each.__name__: each for each in (quotient, remainder, both, power, together, rounded, to_digits, close)},
    **{name: of_math(name, 1) for name in ONE}, **{name: of_math(name, 2) for name in TWO},
}  # fmt: skip
INTEGERS = {
    **{each.__name__: each for each in (power, quotient, remainder, close)},
    **{name: of_math(name, 2) for name in ("gcd", "lcm", "atan2", "pow", "comb")},
    **{name: of_math(name, 1) for name in ("floor", "isqrt", "factorial", "degrees", "isnan")},
}


def over(number, kind):
    """A function that is a loop over two arrays."""

    def called(values, others):
        out = np.zeros(len(values))
        for k in range(len(values)):
            out[k] = number(kind(values[k]), kind(others[k]))
        return out

    return called


def fits(number, x, y):
    """Does Python make a number of it that code can hold?"""
    if number is power and type(y) is int and not 0 <= y < 70:
        return False  # a float, or a number that fills the memory
    try:
        found = number(x, y)
    except (ArithmeticError, ValueError):
        return False
    return type(found) in (float, bool) or (type(found) is int and -(1 << 63) <= found < 1 << 63)


@pytest.fixture(scope="module")
def kept():
    """The functions, each of them traced once."""
    made = {}

    def of(names, name, kind):
        if (name, kind) not in made:
            plain = over(names[name], kind)
            made[name, kind] = plain, fx.futurize(plain)
        return made[name, kind]

    return of


def pairs(edges, dtype):
    return [np.array(each, dtype) for each in zip(*itertools.product(edges, edges), strict=True)]


@pytest.mark.parametrize("name", FLOATS)
def test_floats_at_the_edges(name, at_once, kept):
    args = pairs(EDGES, float)
    good = np.array([fits(FLOATS[name], x, y) for x, y in zip(*(each.tolist() for each in args), strict=True)])
    plain, futurized = kept(FLOATS, name, float)
    args = [each[good] for each in args]
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    for _ in range(2):
        assert outcome(futurized, args) == outcome(plain, args)


@pytest.mark.parametrize("name", INTEGERS)
def test_ints_at_the_edges(name, at_once, kept):
    edges = WHOLE if name not in ("comb", "factorial") else list(range(30))
    args = pairs(edges, np.int64)
    good = np.array([fits(INTEGERS[name], x, y) for x, y in zip(*(each.tolist() for each in args), strict=True)])
    plain, futurized = kept(INTEGERS, name, int)
    args = [each[good] for each in args]
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    for _ in range(2):
        assert outcome(futurized, args) == outcome(plain, args)


NUMBERS = st.one_of(st.floats(), st.floats(-100, 100), st.sampled_from(EDGES), st.integers(-50, 50).map(float))


def alike(plain, futurized, args):
    assert outcome(futurized, args) == outcome(plain, args), args
    results = []
    for function in (plain, futurized):
        try:
            np.asarray(function(*args))
        except Exception as error:
            lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == __file__]
            results.append((type(error), str(error), lines[-2:]))
    assert not results or results[0][:2] == results[1][:2]
    assert not results or results[0][2][-1] == results[1][2][-1]


@pytest.mark.parametrize("name", [name for name in FLOATS if name != "together"])
def test_any_floats(name, at_once, kept):
    plain, futurized = kept(FLOATS, name, float)

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=12, max_size=12))
    def compare(values):
        alike(plain, futurized, [np.array(each) for each in zip(*values, strict=True)])

    compare()


@pytest.mark.parametrize("name", [name for name in INTEGERS if name not in ("comb", "factorial")])
def test_any_ints(name, at_once, kept):
    plain, futurized = kept(INTEGERS, name, int)
    numbers = st.one_of(st.integers(-9, 70), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(WHOLE))

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.tuples(numbers, numbers), min_size=12, max_size=12))
    def compare(values):
        args = [np.array(each) for each in zip(*values, strict=True)]
        if all(fits(INTEGERS[name], x, y) for x, y in values) or name != "power":
            assert outcome(futurized, args) == outcome(plain, args)

    compare()


def squares(values):
    z = 0j
    for k in range(len(values)):
        z = z**2 + complex(values[k]) ** 3 - z**5
    return z


@given(st.lists(st.complex_numbers(max_magnitude=1.5), min_size=5, max_size=5))
@settings(max_examples=15, deadline=None)
def test_small_powers_of_complex_numbers(values):
    args = (np.array(values),)
    assert outcome(fx.futurize(squares), args) == outcome(squares, args)


def test_small_powers_of_complex_numbers_are_code(at_once):
    args = (np.array([0.3 + 0.2j, complex(-0.0, 0.1), 0.1j, complex(np.nan, 1), -0.5]),)
    futurized = fx.futurize(squares)
    assert calls_of_loops(futurized, args) == []
    assert outcome(futurized, args) == outcome(squares, args)
    large = (np.full(5, 1e200 + 1e200j),)
    assert outcome(futurized, large) == outcome(squares, large)


def of_numpy(values, counts):
    out = np.zeros_like(values)
    for k in range(len(values)):
        out[k] = values[k] ** counts[k] + values[k] ** 2
    return out


@pytest.mark.parametrize("code", "bhilBHIL")
def test_powers_of_numpys_integers_wrap(code, at_once):
    limits = np.iinfo(code)
    args = pairs([0, 1, 3, 5, limits.max, limits.min, limits.max - 2], code)
    args = [each[args[1] >= 0] for each in args]
    futurized = fx.futurize(of_numpy)
    assert calls_of_loops(futurized, args) == []
    for _ in range(2):
        assert outcome(futurized, args) == outcome(of_numpy, args)
    if limits.min:
        args = [np.full(4, 3, code), np.full(4, -1, code)]
        assert outcome(futurized, args) == outcome(of_numpy, args)


def truth(values):
    total = 0
    for k in range(len(values)):
        flag = bool(values[k])
        total = total + flag**True + (flag**flag)
    return total


def test_powers_of_booleans_are_ints():
    values = np.array([True, False, True] * 5)
    found = fx.futurize(truth)(values)
    found = found.result() if isinstance(found, fx.Array) else found
    assert (type(found), found) == (int, truth(values))


def roots(n):
    count = 0
    for k in range(2, n):
        prime = True
        for d in range(2, int(k**0.5) + 1):
            if k % d == 0:
                prime = False
                break
        count += prime * (-1) ** k * 2 ** (k % 5)
    return count


def test_roots_and_signs_of_ints_are_code(at_once):
    futurized = fx.futurize(roots)
    assert calls_of_loops(futurized, (200,)) == []
    assert outcome(futurized, (200,)) == outcome(roots, (200,))


def turned(a, s):
    """A matrix of numbers, as a rotation is written."""
    for k in range(len(a)):
        c, d = np.cos(a[k]), np.sin(a[k])
        s = np.stack([np.stack([c, -d]), np.stack([d, c])]) @ s
    return s


def stacked(a, s):
    for k in range(len(a)):
        s = s + np.stack([a[k], a[k] * 2, np.int64(k)], axis=-1)[:2, None] * np.expand_dims(a[k], (0, 1))
        s = s * np.array(a[k])[None, ...] + np.concatenate([np.asarray(a[k])[np.newaxis], s[0, :1]])[:, None]
    return s


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i8"])
@pytest.mark.parametrize("program", [turned, stacked])
def test_numbers_get_axes_without_a_call(program, dtype, at_once):
    rng = np.random.default_rng(4)
    args = (rng.normal(size=30) * 3).astype(dtype), (rng.normal(size=(2, 4)) * 3).astype(dtype)
    f = fx.futurize(program)
    with np.errstate(all="ignore"):
        for actual in (f(*args), f(*args)):
            expected = program(*args)
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(actual, expected, rtol=1e-3 if dtype in ("f4", "c8") else 1e-10)
        assert "load" not in calls_of_loops(f, args)
