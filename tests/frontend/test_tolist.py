"""``tolist()``: the elements of a small array are numbers of the trace, as Python's own."""

import numpy as np
import pytest

import futurex as fx
from tests.compare import check


def nested(x):
    return x.tolist(), x.reshape(-1, 1).tolist(), x[None, :, None].tolist(), x[:0].tolist(), np.zeros((2, 0)).tolist()


def of_one(x):
    return x.sum().tolist(), x[0].tolist(), x[:1].reshape(()).tolist()


def kinds(x):
    numbers = x[0].tolist(), (x > 0).tolist()[0], x.astype(int).tolist()[0], x.astype(np.float32).tolist()[1]
    return [*numbers, x.astype(complex).tolist()], [type(n) in (float, bool, int) for n in numbers]


def a_step_on_a_grid(x):
    state = [1, 2]
    for action in range(3):
        moved = (np.array(state) + x.astype(int)[:2] * action).tolist()
        i, j = moved
        if i < 0 or i >= 4 or j < 0 or j >= 4:
            moved = [0, 0]
        state = moved
    return state, x


def largest_and_sum(x):
    values, total = x.tolist(), 0
    for value in values:
        total += value * 2
    values.append(7)
    return max(values), min(values), total, [i for i in np.argsort(x).tolist() if i > 0]


def long(x):
    return np.tile(x, 40).tolist()


def as_many_as_data_says(x):
    return np.unique(x).tolist()


@pytest.mark.parametrize("x", [np.array([1.0, 2.0, 3.0]), np.array([1.0, -0.5]), np.array([-2.0, 1.0, 0.0, 1.0])])
@pytest.mark.parametrize("function", [nested, of_one, kinds, a_step_on_a_grid, largest_and_sum])
def test_small_arrays_become_lists_of_numbers(function, x):
    check(function, x)


@pytest.mark.parametrize("function", [long, as_many_as_data_says])
def test_longer_ones_and_those_of_unknown_size_are_plain(function):
    check(function, np.array([3.0, 1.0, 2.0]), staged=False)


def test_of_a_future_it_is_numpys_own_list():
    numbers = fx.futurize(lambda x: x * 2)(np.arange(3.0)).tolist()
    assert numbers == [0.0, 2.0, 4.0]
    assert {type(number) for number in numbers} == {float}
