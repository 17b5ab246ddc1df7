"""A Mersenne twister's state, read and written in memory, is what NumPy gives and takes, and takes no time."""

import time

import numpy as np
import pytest

import futurex as fx
from futurex.ops import twister
from futurex.ops.streams import generator_of, restore, state_of


def held(state):
    return {**state, "state": {**state["state"], "key": state["state"]["key"].tolist()}}


def advanced(generator, k):
    generator.standard_normal(k)  # an odd number leaves the other of a pair
    generator.random_sample(7 * k)
    return generator


def test_the_place_is_found_in_this_numpy():
    assert twister._place() is not None


@pytest.mark.parametrize("k", [0, 1, 2, 3, 300])
def test_it_is_what_numpy_gives_and_takes(k):
    generator = advanced(np.random.RandomState(k), k)
    assert held(twister.bits_now(generator)) == held(generator.get_state(legacy=False))
    other = np.random.RandomState(99)
    twister.bring(other, generator.get_state(legacy=False))
    assert held(other.get_state(legacy=False)) == held(generator.get_state(legacy=False))
    np.testing.assert_array_equal(other.standard_normal(5), generator.standard_normal(5))


def test_other_bits_are_asked_of_numpy():
    generator = advanced(np.random.RandomState(np.random.PCG64(3)), 3)
    state = state_of(generator)
    expected = generator.standard_normal(4)
    restore(generator, state)
    np.testing.assert_array_equal(generator.standard_normal(4), expected)
    np.testing.assert_array_equal(generator_of(state).standard_normal(4), expected)


def test_a_state_is_nobody_elses_memory():
    generator = np.random.RandomState(1)
    state = state_of(generator)
    expected = held(state.bits)
    generator.random_sample(2000)
    assert held(state.bits) == expected


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, np.int64(7), [1, 2, 3], np.arange(4)])
def test_seeds_are_numpys(seed):
    @fx.futurize
    def drawn(x, seed):
        np.random.seed(seed)
        first = np.random.standard_normal(3)
        return x + first, np.random.RandomState(seed).randint(0, 100, 4)

    for _ in range(3):
        found, counts = drawn(np.zeros(3), seed)
        after = np.random.standard_normal()
        np.random.seed(seed)
        np.testing.assert_array_equal(found, np.random.standard_normal(3))
        assert after == np.random.standard_normal()
        np.testing.assert_array_equal(counts, np.random.RandomState(seed).randint(0, 100, 4))


@pytest.mark.parametrize("seed", [-1, 2**32, "text", 1.5])
def test_seeds_that_numpy_refuses_raise_as_there(seed):
    def drawn(x, seed):
        np.random.seed(seed)
        return x + np.random.standard_normal(3)

    staged = fx.futurize(drawn)
    def raised(function):
        try:
            np.asarray(function(np.zeros(3), seed))
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    for _ in range(3):
        assert raised(staged) == raised(drawn) is not None


def test_reading_and_writing_take_less_than_numpys():
    generator, other = np.random.RandomState(1), np.random.RandomState(2)

    def best(call):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(20):
                call()
            times.append(time.perf_counter() - start)
        return min(times)

    ours = best(lambda: twister.bring(other, twister.bits_now(generator)))
    assert 4 * ours < best(lambda: other.set_state(generator.get_state(legacy=False)))
