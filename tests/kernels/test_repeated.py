"""Copies of elements and of blocks, one behind the other, are machine code with the values of ``np.repeat``."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.frontend.numpy_api.shapes import LEAST_REPEATED

RNG = np.random.default_rng(6)
WIDE = RNG.standard_normal((70, 90, 7))


def run(f, *args):
    """The result, and by which backends it was computed."""
    variant = fx.futurize(f).trace(*args)
    plan = variant.plan
    plan.prepare(wait=True)
    (result,) = plan.run(variant.lying.inputs(list(args)))
    return result, {each.node.op: each.kernel.backend for each in plan.instructions}


def same(result, expected):
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


CASES = {
    "elements": lambda x: np.repeat(x, 4),
    "elements by one": lambda x: np.repeat(x, [3]),
    "of the last axis": lambda x: x.repeat(3, axis=-1),
    "many copies": lambda x: np.repeat(x, 40),
    "blocks": lambda x: np.repeat(x, 2, axis=1),
    "short blocks": lambda x: np.repeat(x[:, :80].reshape(-1, 5), 3, axis=0),
    "many copies of short blocks": lambda x: np.repeat(x[:, :80, :3], 30, axis=1),
    "large blocks": lambda x: np.repeat(x, 5, axis=0),
    "tiles": lambda x: np.tile(x, 3),
    "tiles along two axes": lambda x: np.tile(x, (2, 1, 3)),
    "tiles along new axes": lambda x: np.tile(x[0], (16, 5, 1, 2)),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2", "c16", "?"])
@pytest.mark.parametrize("name", CASES)
def test_it_repeats_what_numpy_repeats(name, dtype):
    x = (WIDE * 9).astype(dtype)
    result, backends = run(CASES[name], x)
    assert backends["repeat_each"] == "numba"
    same(result, CASES[name](x))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_any_number(data):
    """What is left of the last vector, pieces of blocks that are not whole, arguments that lie anywhere."""
    shape = data.draw(st.sampled_from([(30_011,), (301, 97), (3, 41_003), (2, 5, 9_001), (40, 1, 700)]))
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "u1", "i2", "c8", "c16", "f2"])))
    times = data.draw(st.integers(2, 18))
    x = np.random.default_rng(1).integers(0, 200, shape).astype(dtype)
    lies = data.draw(st.sampled_from(["dense", "turned", "cut"]))
    x = {"dense": x, "turned": x[::-1], "cut": x[1:]}[lies]
    f = lambda x: np.repeat(x, times, axis)  # noqa: E731
    expected = f(x)
    assume(expected.nbytes >= LEAST_REPEATED)
    same(run(f, x)[0], expected)


def test_little_is_picked():
    f, x = fx.futurize(lambda x: np.repeat(x, 2)), np.arange(9.0)
    assert all(node.op != "repeat_each" for node in f.trace(x).graph.nodes)
    same(np.asarray(f(x)), np.repeat(x, 2))


def test_derivatives_and_maps():
    x = RNG.standard_normal((90, 80))
    weights = RNG.standard_normal((90, 240))
    grown = fx.grad(lambda x: (np.repeat(x, 3, 1) * weights).sum())(x)
    np.testing.assert_allclose(grown, weights.reshape(90, 80, 3).sum(-1))
    tiled = fx.grad(lambda x: (np.tile(x, 3) * weights).sum())(x)
    np.testing.assert_allclose(tiled, weights.reshape(90, 3, 80).sum(1))
    along = fx.jvp(lambda x: np.repeat(x, 3, 1), (x,), (2 * x,))[1]
    np.testing.assert_array_equal(along, np.repeat(2 * x, 3, 1))
    mapped = fx.vmap(lambda row: np.repeat(row, 200))(x)
    np.testing.assert_array_equal(mapped, np.repeat(x, 200, 1))


@pytest.mark.parametrize("times", [0, 1, np.int32(3), np.array([2]), True, -1, 2.0])
def test_numbers_of_any_kind(times):
    x = RNG.standard_normal(20_000)
    try:
        expected = np.repeat(x, times)
    except (TypeError, ValueError) as error:
        kind = type(error)
        with pytest.raises(kind):
            np.asarray(fx.futurize(lambda x: np.repeat(x, times))(x))
    else:
        same(np.asarray(fx.futurize(lambda x: np.repeat(x, times))(x)), expected)
