"""Joins of joins: one join of all parts where the elements' order allows it, and NumPy's values everywhere."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.nested_joins import LEAST, flatten_joins

X = np.random.default_rng(0).normal(size=(4, 20, 22, 17)).astype(np.float32)


def slices(x, count=3):
    return [[x[:, i : i + 16, j : j + 18] for j in range(count)] for i in range(count)]


def windows(x, inner, outer, count=3):
    return np.stack([np.stack(row, axis=inner) for row in slices(x, count)], axis=outer)


def joins_in(f, *args):
    return sum(node.op == "concatenate" for node in flatten_joins(f.graph(*args)).nodes)


@pytest.mark.parametrize(("axis", "count"), [(0, 3), (1, 3), (2, 2), (3, 3), (4, 2)])
def test_stacks_of_stacks_along_one_axis_are_one_join(axis, count):
    f = fx.futurize(lambda x: windows(x, axis, axis, count))
    assert joins_in(f, X) == 1
    np.testing.assert_array_equal(f(X), f.plain(X))


@pytest.mark.parametrize(("inner", "outer"), [(-1, -1), (0, 1), (1, 0), (0, 3), (3, 1)])
def test_others_have_their_joins(inner, outer):
    f = fx.futurize(lambda x: windows(x, inner, outer, 2))
    assert joins_in(f, X) == 3
    np.testing.assert_array_equal(f(X), f.plain(X))


def test_three_levels_are_one_join():
    f = fx.futurize(lambda x: np.stack([windows(x, 1, 1, 2), windows(x * 2, 1, 1, 2)], axis=1))
    assert joins_in(f, X) == 1
    np.testing.assert_array_equal(f(X), f.plain(X))


def test_rows_of_several_elements_are_one_join():
    f = fx.futurize(lambda x: np.stack([np.concatenate(row, axis=1) for row in slices(x)], axis=1))
    assert joins_in(f, X) == 1
    np.testing.assert_array_equal(f(X), f.plain(X))


def shared(x):
    first = np.stack(slices(x)[0], axis=1)
    return np.stack([first, first + 1], axis=1), first.sum()


def of_two_types(x):
    rows = [np.stack(row, axis=1) for row in slices(x, 2)]
    return np.stack([rows[0], rows[1].astype(float)], axis=1)


def of_many_parts(x):
    wide = np.concatenate([x, x], axis=1)
    return np.stack([np.stack([wide[:, i : i + 9, j : j + 9] for j in range(6)], 1) for i in range(6)], 1)


def of_few_elements(x):
    return windows(x[:1, :, :, :1], 1, 1)


@pytest.mark.parametrize("function", [shared, of_two_types, of_many_parts, of_few_elements])
def test_joins_that_stay(function):
    f = fx.futurize(function)
    assert joins_in(f, X) > 1
    found, expected = f(X), function(X)
    for mine, theirs in zip(found, expected, strict=True) if function is shared else [(found, expected)]:
        np.testing.assert_array_equal(mine, theirs)


def test_slopes_of_windows():
    x = X.astype(float)
    assert windows(x, 3, 3).size >= LEAST
    g = fx.grad(lambda x: (windows(x, 3, 3) ** 2).sum())(x)
    counts = windows(np.ones_like(x), 3, 3)
    expected = np.zeros_like(x)
    for i in range(3):
        for j in range(3):
            expected[:, i : i + 16, j : j + 18] += 2 * x[:, i : i + 16, j : j + 18] * counts[:, :, :, i, j]
    np.testing.assert_allclose(g, expected)
