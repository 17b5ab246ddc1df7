"""What loops are given: arrays that their rounds fill, and arrays from outside in the shape that all rounds see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.loops.split import splits
from futurex.passes.fuse import LARGE_ELEMENTS
from futurex.passes.pipeline import optimise

RNG = np.random.default_rng(7)
WIDTH = LARGE_ELEMENTS // 16


def loops_of(function, *args):
    """The loops of a function's optimised tree, outermost alone, and what each begins with."""
    graph = optimise(fx.lower(fx.futurize(function, escape="error"), *args).graph, check=True)
    return [node for node in graph.nodes if node.op == "loop"]


def begins(loop, shape):
    return [source.op for source in loop.inputs if source.shape == shape]


@settings(max_examples=30, deadline=None)
@given(
    rounds=st.integers(17, 24), before=st.integers(0, 3), behind=st.integers(0, 3), downwards=st.booleans(),
    fill=st.sampled_from([0.0, -0.0, 2.5, np.nan]), reads=st.sampled_from(["nothing", "adds", "rows"]),
    every=st.sampled_from([1, 1, 2]),
)  # fmt: skip
def test_rows_that_no_round_writes_keep_what_was_filled_in(rounds, before, behind, downwards, fill, reads, every):
    def function(x):
        kept = np.full((before + every * rounds + behind, WIDTH), fill)
        for k in range(every * (rounds - 1), -1, -every) if downwards else range(0, every * rounds, every):
            x = x * 0.5 + k
            if reads == "rows":
                x = x + kept[k + before]
            if reads == "adds":
                kept[k + before] += x
            else:
                kept[k + before] = x
        return kept, x

    x = RNG.normal(size=WIDTH)
    [loop] = loops_of(function, x)
    begun = "full" if reads != "nothing" or every > 1 else "store" if before + behind else "room"
    assert begins(loop, (before + every * rounds + behind, WIDTH)) == [begun]
    for given_, wanted in zip(fx.futurize(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(given_, wanted)
        np.testing.assert_array_equal(np.signbit(given_), np.signbit(wanted))


def test_small_arrays_and_those_mostly_left_alone_begin_filled():
    def few(x):
        kept = np.zeros((60, WIDTH))
        for k in range(20):
            x = x * 0.5 + k
            kept[k] = x
        return kept

    def small(x):
        kept = np.zeros((20, 1024))
        for k in range(20):
            x = x * 0.5 + k
            kept[k] = x
        return kept

    for function, shape in ((few, (60, WIDTH)), (small, (20, 1024))):
        x = RNG.normal(size=shape[1])
        [loop] = loops_of(function, x)
        assert begins(loop, shape) == ["full"]
        np.testing.assert_array_equal(fx.futurize(function)(x), function(x))


def test_two_loops_do_not_share_their_arrays():
    def function(x):
        first, second = np.zeros((20, WIDTH)), np.zeros((20, WIDTH))
        for k in range(20):
            x = x * 0.5 + k
            first[k] = x
        for k in range(20):
            x = x * 0.25 - k
            second[k] = x
        return first, second

    x = RNG.normal(size=WIDTH)
    one, two = loops_of(function, x)
    assert not {each for each in one.inputs if each.op == "room"} & {each for each in two.inputs if each.op == "room"}
    for given_, wanted in zip(fx.futurize(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(given_, wanted)


def test_gradients_through_arrays_that_rounds_fill():
    def function(x):
        kept = np.zeros((20, WIDTH))
        for k in range(20):
            x = np.sin(x) + k
            kept[k] = x
        return (kept * kept).sum()

    x, step = RNG.normal(size=WIDTH), 1e-6
    along = RNG.normal(size=WIDTH)
    slope = (function(x + step * along) - function(x - step * along)) / (2 * step)
    np.testing.assert_allclose(np.asarray(fx.grad(function)(x)) @ along, slope, rtol=1e-4)


def recurrent(x, w):
    given_ = (x @ w).reshape(24, -1, w.shape[1])
    level = np.zeros(given_.shape[1:], x.dtype)
    for k in range(24):
        level = np.tanh(given_[k] + level @ w)
    return level


def test_threads_share_loops_over_arrays_that_were_reshaped():
    x, w = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((24 * 16, 32), (32, 32)))
    w *= np.float32(0.1)
    [loop] = loops_of(recurrent, x, w)
    assert (24, 16, 32) in [source.shape for source in loop.inputs]
    assert [split(2).parts for split in splits(loop)] == [2]
    np.testing.assert_allclose(fx.futurize(recurrent)(x, w), recurrent(x, w), rtol=1e-5, atol=1e-6)


def also_whole(x):
    rows, total = x.reshape(24, 8), np.zeros(8)
    for k in range(24):
        total = total * x.sum() + rows[k]
    return total


def also_otherwise(x):
    rows, total = x.reshape(24, 8), np.zeros(8)
    for k in range(24):
        total = total * x.reshape(8, 24)[:, k] + rows[k]
    return total


def also_in_the_test(x):
    rows, total, k = x.reshape(24, 8), np.zeros(8), 0
    while k < 24 and x[k] < 9.0:
        total = total * 0.5 + rows[k]
        k += 1
    return total


@pytest.mark.parametrize("function", [also_whole, also_otherwise, also_in_the_test])
def test_arrays_that_are_seen_in_several_ways_are_given_as_they_lie(function):
    x = RNG.normal(size=24 * 8)
    [loop] = loops_of(function, x)
    assert x.shape in [source.shape for source in loop.inputs]
    np.testing.assert_allclose(fx.futurize(function)(x), function(x), rtol=1e-12)
