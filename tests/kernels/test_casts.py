"""Floats become integers in generated code as NumPy's loops have it here, beyond the integers, too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend
from futurex.ops import casts
from futurex.ops.fusion import loop_of
from futurex.tree import Aval, Graph, apply, param

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
FLOATS, INTEGERS = [np.dtype(code) for code in "efd"], [np.dtype(code) for code in "bhilBHIL"]
PAIRS = [(source, target) for source in FLOATS for target in INTEGERS]


def node_of(x, target):
    return apply("cast", x, dtype=target)


def compute(x, target):
    node = param(Aval(x.shape, x.dtype))
    graph = Graph([node], [node_of(node, target)], "region")
    kernel = NumbaBackend().claim(apply("fused", param(node.aval), graph=graph), 1)
    return kernel.call(np.full(x.shape, 77, target), x)


def is_member(source, target):
    return loop_of(node_of(param(Aval((300,), source)), target)) is not None


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_bits_are_numpys(source, target):
    """Any bits, numbers around the ends of every integer type, and of every size."""
    if not is_member(source, target):
        pytest.skip("NumPy gives now this, now that")
    rng, n = np.random.default_rng(0), 1 << 15
    ends = [2.0**bits * sign + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)
            for more in (-1, -0.5, 0, 0.5, 1)]  # fmt: skip
    with np.errstate(all="ignore"):
        every = [np.array([*ends, np.nan, np.inf, -np.inf, -0.0]), rng.normal(size=n) * np.exp2(rng.uniform(-2, 70, n))]
        x = np.concatenate([each.astype(source) for each in every])
        near = np.concatenate([np.nextafter(x, source.type(np.inf)), np.nextafter(x, source.type(-np.inf))])
    x = np.concatenate([x, near, rng.integers(0, 256, n * source.itemsize, dtype=np.uint8).view(source)])
    assert np.array_equal(compute(x, target), x.astype(target))


@settings(max_examples=200, deadline=None)
@given(x=st.floats(), where=st.integers(0, 36), pair=st.sampled_from(PAIRS))
def test_one_odd_number_among_others(x, where, pair):
    source, target = pair
    if is_member(source, target):
        xs = np.linspace(-20, 20, 37).astype(source)
        with np.errstate(all="ignore"):
            xs[where] = x
        assert np.array_equal(compute(xs, target), xs.astype(target))


def test_what_depends_on_the_place_in_an_array_is_numpys():
    x, target = np.full(67, np.nan), np.dtype(np.uint32)
    found = x.astype(target)
    if (found == found[0]).all():
        pytest.skip("NumPy gives one thing only")
    assert not casts.known(x.dtype, target)
    assert not is_member(x.dtype, target)


def test_a_picture_is_one_region(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    x = np.random.default_rng(1).normal(size=(60, 50)) * 300
    x[0, :3] = np.nan, np.inf, -np.inf

    def picture(x):
        return (np.clip(x, 0, 255) + 0.5).astype(np.uint8) // 2 + (x * 3).astype(np.int64) % 5

    staged = fx.futurize(picture)
    assert np.array_equal(staged(x), picture(x))
    assert {each.node.op for each in staged.trace(x).plan.instructions} == {"fused"}


def in_a_loop(x):
    total = np.zeros(x.shape, np.int64)
    for k in range(1, 60):
        total = total + (x * k).astype(np.uint8) + (x * k).astype(np.int64) % 7 + (x * k).astype(np.uint64).astype(int)
    return total


def numbers_in_a_loop(x):
    a, b = 0, np.int64(0)
    for k in range(len(x)):
        a += int(x[k] * 3)
        b += x[k].astype(np.int8)
    return a, b


@pytest.mark.parametrize("function", [in_a_loop, numbers_in_a_loop])
def test_compiled_loops_agree(function):
    x = np.random.default_rng(4).normal(size=300) * 1e3
    futurized, expected = fx.futurize(function), function(x)
    for _ in range(3):
        assert np.array_equal(np.asarray(futurized(x)), np.asarray(expected))


@pytest.mark.parametrize(("value", "error"), [(np.nan, ValueError), (np.inf, OverflowError)])
def test_pythons_own_integers_are_asked_for_their_errors(value, error):
    x = np.array([1.0, 2.0, value])
    with pytest.raises(error):
        np.asarray(fx.futurize(lambda x: numbers_in_a_loop(x)[0] + 1)(x))


def test_pythons_own_integers_grow():
    x = np.array([1.0, 1e30])
    assert int(fx.futurize(lambda x: numbers_in_a_loop(x)[0])(x)) == numbers_in_a_loop(x)[0]
