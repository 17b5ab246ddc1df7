"""Steps, signs, neighbours, angles, extremes and rounding to decimals: part of regions, with NumPy's bits."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.expand import expand
from futurex.tree import Aval, Graph, apply, param

pytestmark = [
    pytest.mark.usefixtures("compiled_at_once"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def values(code, seed=0, n=3000):
    """Any bits, and numbers of few digits, which are those that rounding is for."""
    dtype, rng = np.dtype(code), np.random.default_rng(seed)
    every = rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
    few = (rng.integers(-5000, 5000, n) / (8 if dtype.kind == "f" else 1)).astype(dtype)
    return np.concatenate([every, few, np.zeros(4, dtype), -np.zeros(4, dtype), few * (rng.random(n) < 0.5)])


def same(actual, expected):
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype.kind != "f":
        return np.array_equal(actual, expected)
    word = f"u{expected.itemsize}"
    return ((actual.view(word) == expected.view(word)) | (np.isnan(actual) & np.isnan(expected))).all()


def are_regions(staged, *args):
    return {each.node.op for each in staged.trace(*args).plan.instructions} <= {"fused", "item"}


@pytest.mark.parametrize("decimals", [0, 1, 2, 3, 10, 22, 23, 400, -1, -2, -22, -23])
@pytest.mark.parametrize("code", "efdbhilqBHILQ")
def test_rounding_to_decimals(code, decimals):
    x = values(code)
    try:
        expected = np.round(x, decimals)
    except OverflowError:
        pytest.skip("NumPy raises")
    staged = fx.futurize(lambda x: np.round(x, decimals))
    assert same(staged(x), expected)
    if code in "fd" and 0 < abs(decimals) <= 22:
        assert are_regions(staged, x)


def test_rounding_between_others_is_one_region():
    x = values("d")
    staged = fx.futurize(lambda x: np.round(x * 2.0 + 1.0, 2) - x)
    assert same(staged(x), np.round(x * 2.0 + 1.0, 2) - x)
    assert [each.node.op for each in staged.trace(x).plan.instructions] == ["fused"]


def test_few_numbers_are_rounded_by_numpy():
    x = param(Aval((3,), np.dtype("d")))
    assert expand(Graph([x], [apply("round", x, decimals=2)])).outs[0].op == "round"


@pytest.mark.parametrize("code", "efd")
def test_parts_before_and_behind_the_point(code):
    x = values(code)
    staged = fx.futurize(np.modf)
    for actual, expected in zip(staged(x), np.modf(x), strict=True):
        assert same(actual, expected)
    assert code == "e" or are_regions(staged, x)


def with_more(made):
    return made, made == 1


ONE = ["signbit", "fabs", "spacing", "deg2rad", "rad2deg", "radians", "degrees", "trunc", "sign"]
TWO = ["copysign", "heaviside", "nextafter", "fmax", "fmin"]


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("code", "efd")
def test_bits_are_numpys(name, code):
    function = getattr(np, name)
    args = (values(code), np.roll(values(code, 1), 4))[: function.nin]
    staged = fx.futurize(lambda *args: with_more(function(*args)))
    assert same(staged(*args)[0], function(*args))
    left = code == "e" and name in ("nextafter", "spacing")  # whose loops count in bits of their own
    assert are_regions(staged, *args) != left


@pytest.mark.parametrize("code", "bhilBHIL?")
def test_ones_are_counted(code):
    x = values(code) if code != "?" else values("b") > 0
    staged = fx.futurize(lambda x: with_more(np.bitwise_count(x)))
    assert same(staged(x)[0], np.bitwise_count(x))
    assert are_regions(staged, x)


def test_a_derivative_goes_through():
    x = np.linspace(-2, 2, 1000) + 1e-3
    slope = fx.grad(lambda x: np.sum(np.cbrt(x) * np.copysign(x, 1.0) + np.fmax(x, 0.5) + np.deg2rad(x)))
    sign = np.sign(x)
    true = np.cbrt(x) * sign + np.abs(x) / (3 * np.cbrt(x) ** 2) + (x > 0.5) + np.pi / 180
    np.testing.assert_allclose(slope(x), true, rtol=1e-13)
