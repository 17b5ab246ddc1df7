"""NumPy's functions, methods and options mean the same in staged code, or the call runs as plain NumPy."""

import numpy as np
import pytest
from api_cases import DTYPES, EXPRESSIONS, arrays
from compare import agree, is_staged, outcome

import futurex as fx

CASES = [(number, dtype) for number in range(len(EXPRESSIONS)) for dtype in DTYPES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number, dtype", CASES, ids=lambda value: getattr(value, "__name__", value))
def test_expressions(number, dtype):
    function = EXPRESSIONS[number]
    futurized = fx.futurize(function)
    expected = outcome(function, arrays(dtype))
    for _ in range(2):
        actual = outcome(futurized, arrays(dtype))
        assert agree(actual, expected), f"{actual}\nis not\n{expected}\n{futurized.explain()}"


@pytest.mark.filterwarnings("ignore")
def test_most_of_it_is_staged():
    staged = [is_staged(fx.futurize(function), arrays(np.float64)) for function in EXPRESSIONS]
    assert sum(staged) > 45


def test_rounding_an_array_without_dimensions_gives_a_scalar_that_fill_leaves_alone():
    def rounded(x):
        s = np.round(np.asarray(x.sum()), 1)
        s.fill(200)
        return s

    x = np.array([1.26, 2.0])
    assert float(fx.futurize(rounded)(x)) == rounded(x) == 3.3


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [1, (2, 0), ((1, 2), (0, 3)), ((0, 0), (2, 1)), ((4, 3), (6, 5)), ((30, 1), (0, 0))])
def test_borders_repeat_elements(mode, widths):
    x = np.random.default_rng(0).standard_normal((3, 5))

    def padded(x):
        return np.pad(x, widths, mode=mode)

    np.testing.assert_array_equal(np.asarray(fx.futurize(padded)(x)), padded(x), strict=True)
    weights = np.random.default_rng(1).standard_normal(padded(x).shape)
    slope = np.asarray(fx.grad(lambda x: np.sum(padded(x) * weights))(x))
    unit = np.eye(15).reshape(15, 3, 5)
    np.testing.assert_allclose(slope.ravel(), [np.sum(padded(each) * weights) for each in unit], rtol=1e-12)


@pytest.mark.parametrize("copy", list(np._CopyMode), ids=lambda copy: copy.name)
@pytest.mark.parametrize("make", [np.array, np.asarray])
def test_the_words_that_numpy_1_had_for_copies_are_known(make, copy):
    def written(x):
        y = make(x, copy=copy)
        y[0] = 7
        return y.sum() + x[0]

    futurized = fx.futurize(written)
    for _ in range(2):
        assert float(futurized(np.arange(3.0))) == written(np.arange(3.0))
    assert is_staged(futurized, (np.arange(3.0),))


@pytest.mark.parametrize(
    "repeated", [lambda x: np.resize(x, (500, 3)), lambda x: np.hstack([x] * 100), lambda x: np.vstack([x[::-1]] * 100)]
)
def test_what_is_joined_with_itself_many_times_is_one_operand(repeated):
    x = np.arange(4.0)
    futurized = fx.futurize(repeated)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(futurized(x)), repeated(x), strict=True)
    assert max(len(node.inputs) for node in fx.lower(repeated, x).graph.nodes) < 4
    slope = np.asarray(fx.grad(lambda x: np.sum(repeated(x) ** 2))(x))
    shares = [np.sum(repeated(x) == each) for each in x]
    np.testing.assert_allclose(slope, 2 * x * shares)
