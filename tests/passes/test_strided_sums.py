"""What is added to slices with a step is added up without gaps: the same bits, and fewer trips."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes import strided_sums
from futurex.passes.pipeline import PASSES, optimise
from futurex.passes.strided_sums import gather_strides
from futurex.runtime.plan import compile_plan

RNG = np.random.default_rng(7)


def taps(x, step, window):
    high, wide = ((extent - window) // step + 1 for extent in x.shape[:2])
    return [
        x[i : i + step * high : step, j : j + step * wide : step] for i in range(window) for j in range(window)
    ]  # fmt: skip


def windows(x, w):
    return (np.tanh(np.concatenate(taps(x, 2, 3), -1) @ w) ** 2).sum()


def apart(x, w):
    return sum((each * w[k]).sum() ** 2 for k, each in enumerate(taps(x, 3, 2)))


def every_other(x, w):
    x = x[::2, 1::3]
    return sum((x[i : i + 10, j : j + 8] * w[i + j]).sum() ** 2 for i in range(3) for j in range(2))


def several_steps(x, w):
    return (x[::2] * w[0]).sum() ** 2 + (x[1::3] * w[1]).sum() ** 2


def backwards(x, w):
    return (x[::-2] * w[0]).sum() ** 2 + (x[::-2] * w[1]).sum()


def graphs(function, *args):
    graph = fx.lower(fx.grad(function, argnums=(0, 1)), *args).graph
    return optimise(graph, passes=[each for each in PASSES if each is not gather_strides]), optimise(graph, check=True)


def stores(graph):
    """Additions to parts of what is as large as the first argument."""
    shape = graph.params[0].shape
    return [node for node in graph.nodes if node.op == "store" and node.attrs["mode"] == "add" and node.shape == shape]


@pytest.mark.parametrize("function", [windows, apart, every_other])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_have_the_same_bits_and_are_written_once(function, dtype):
    x, w = RNG.normal(size=(31, 34, 16)).astype(dtype), RNG.normal(size=(9 * 16, 5)).astype(dtype)
    w = w if function is windows else w[:, 0]
    before, after = graphs(function, x, w)
    assert len(stores(before)) > len(stores(after)) == 0
    expected = compile_plan(before, optimised=True).run([x, w])
    for mine, other in zip(compile_plan(after, optimised=True).run([x, w]), expected, strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)
    moved, f8 = RNG.normal(size=x.shape), x.astype(float)
    ends = [function(f8 + sign * 1e-6 * moved, w.astype(float)) for sign in (1, -1)]
    slope = np.asarray(fx.grad(function)(x, w))
    rough = 1e-6 if dtype == "f8" else 1e-2
    assert (slope * moved).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=rough, abs=rough)


@pytest.mark.parametrize("function", [several_steps, backwards])
def test_other_sums_stay_as_they_are(function):
    x, w = RNG.normal(size=(64, 64)), RNG.normal(size=4)
    before, after = graphs(function, x, w)
    assert stores(before)
    assert len(stores(before)) == len(stores(after))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_slices_anywhere(data, down, across):
    x = RNG.normal(size=(13, 11))
    bound = st.integers(-14, 14) | st.none()
    places = data.draw(st.lists(st.tuples(bound, bound, bound, bound), min_size=2, max_size=5))
    parts = [(slice(a, b, down), slice(c, d, across)) for a, b, c, d in places]
    parts = [part for part in parts if x[part].size]

    def function(x):
        return sum((k + 1.5) * (x[part] ** 2).sum() for k, part in enumerate(parts)) + 0.0 * x.sum()

    expected = np.zeros_like(x)
    for k, part in enumerate(parts):
        expected[part] += 2 * (k + 1.5) * x[part]
    least, strided_sums.FEWEST_ELEMENTS = strided_sums.FEWEST_ELEMENTS, 1
    try:
        graph = optimise(fx.lower(fx.grad(function), x).graph, check=True)
        (found,) = compile_plan(graph, optimised=True).run([x])
    finally:
        strided_sums.FEWEST_ELEMENTS = least
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)
