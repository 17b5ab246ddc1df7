"""What has an index in Python, or is false, but is no integer where NumPy wants one."""

import numpy as np
import pytest

import futurex as fx

SHAPES = [
    lambda x, n: np.zeros((3, n)) + x,
    lambda x, n: np.ones(n) + x,
    lambda x, n: np.full([n, 2], x),
    lambda x, n: np.broadcast_to(x, (2, n)),
    lambda x, n: np.resize(np.arange(6) + x, (3, n)),
    lambda x, n: (np.arange(6) + x).reshape(6, n),
]


@pytest.mark.parametrize("function", SHAPES)
def test_a_bool_is_no_extent(function):
    with pytest.raises(TypeError) as expected:
        function(1.5, True)
    with pytest.raises(TypeError) as found:
        fx.futurize(function)(1.5, True)
    assert str(found.value) == str(expected.value)
    assert np.array_equal(fx.futurize(function)(1.5, 1), function(1.5, 1))


@pytest.mark.parametrize("bound", [np.True_, np.array([3, 1]) > 2])
def test_a_bool_of_numpy_is_no_bound_of_a_slice(bound):
    def flags(x, m):
        return x[: m[0]] if m.ndim else x[:m]

    with pytest.raises(TypeError, match="slice indices must be integers"):
        fx.futurize(flags)(np.arange(4.0), bound)


def test_a_bool_of_python_is_a_bound_of_a_slice():
    def flag(x, m):
        return x[: bool(m.sum() > 1)]

    assert fx.futurize(flag)(np.arange(4.0), np.arange(3)).tolist() == [0.0]


@pytest.mark.parametrize("times", [None, (2, None)])
def test_none_is_no_number_of_tiles(times):
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*"):
        fx.futurize(lambda x: np.tile(x, times))(np.arange(4.0))


TYPES = [
    lambda x, s: x.astype(s),
    lambda x, s: x.sum(dtype=s),
    lambda x, s: np.sum(x, dtype=s),
    lambda x, s: np.array([1, 2], dtype=s) + x[:2],
    lambda x, s: np.zeros_like(x, dtype=s),
    lambda x, s: np.cumsum(x, dtype=s),
    lambda x, s: np.add(x, x, dtype=s),
    lambda x, s: np.add.reduce(x, dtype=s),
]


@pytest.mark.parametrize("function", TYPES)
@pytest.mark.parametrize("value", [2.0, 3, np.zeros(3)])
def test_a_number_or_array_is_no_data_type(function, value):
    x = np.arange(4.0)
    with pytest.raises(TypeError) as expected:
        function(x, value)
    with pytest.raises(TypeError) as found:
        fx.futurize(function)(x, value)
    assert str(found.value) == str(expected.value)
