"""Joins of many short rows of one array are picked from it: the same elements, by one operation."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise

RNG = np.random.default_rng(11)


def windows(x):
    high, wide = x.shape[1] - 2, x.shape[2] - 2
    return np.concatenate([x[:, i : i + high, j : j + wide] for i in range(3) for j in range(3)], axis=-1)


def nested(x):
    high, wide = x.shape[1] - 2, x.shape[2] - 1
    return np.stack([np.stack([x[:, i : i + high, j : j + wide] for j in range(2)], 3) for i in range(3)], 3)


def with_steps(x):
    return np.concatenate([x[:, i : 12 + i : 2, ::-1][:, :, j : j + 9] for i in range(2) for j in range(3)], axis=3)


def of_a_product(x):
    return windows(np.tanh(x) * 2)


PICKED = [windows, nested, with_steps, of_a_product]


def ops(function, *args):
    return [node.op for node in optimise(fx.lower(function, *args).graph, check=True).nodes]


@pytest.mark.parametrize("function", PICKED)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "c16", "?"])
def test_elements_are_the_same(function, dtype):
    if function is of_a_product and dtype in ("?", "i2"):
        pytest.skip("no floats")
    x = (RNG.normal(size=(40, 16, 17, 3)) * 50).astype(dtype)
    assert "gather" in ops(function, x)
    staged = fx.futurize(function)
    for _ in range(3):
        found, expected = np.asarray(staged(x)), function(x)
        if function is of_a_product:
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected, strict=True)


def test_layers_over_windows_have_the_derivatives_of_differences():
    x, w = RNG.normal(size=(12, 16, 17, 3)), RNG.normal(size=(27, 4))

    def layer(x, w):
        return (np.tanh(windows(x) @ w) ** 2).sum()

    slopes = fx.grad(layer, argnums=(0, 1))(x, w)
    for k, slope in enumerate(slopes):
        moved = [RNG.normal(size=each.shape) * (k == place) for place, each in enumerate((x, w))]
        ends = [layer(x + sign * 1e-6 * moved[0], w + sign * 1e-6 * moved[1]) for sign in (1, -1)]
        assert (np.asarray(slope) * moved[k]).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: windows(x.reshape(20, 8, 17, 6)),  # rows of 18
        lambda x: np.concatenate([x[:, :, k : k + 14, :] for k in range(3)], axis=1),  # rows of 42
        lambda x: np.concatenate([x, x + 1, x + 2, x + 3], axis=-1),  # several arrays
        lambda x: windows(x[:1]),  # small
        lambda x: windows(x.reshape(1, 320, 17, 3)),  # a table as long as the join
    ],
    ids=["wide", "rows", "several", "small", "one"],
)
def test_other_joins_stay(function):
    x = RNG.normal(size=(20, 16, 17, 3))
    assert "gather" not in ops(function, x)
    np.testing.assert_array_equal(np.asarray(fx.futurize(function)(x)), function(x))
