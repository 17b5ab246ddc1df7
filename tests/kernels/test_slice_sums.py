"""What is added to slices of one array is written block by block, as gradients of stencils are: NumPy's bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes import joins
from futurex.passes.pipeline import PASSES, optimise
from futurex.runtime.plan import compile_plan

RNG = np.random.default_rng(12)
A = RNG.normal(size=(300, 400))


def ops(f, *args):
    plan = fx.futurize(f).trace(*args).plan
    return [each.node.op for each in plan.instructions if each.node.op not in ("load", "item")]


def same(result, expected):
    result = np.asarray(result)
    return (result.dtype, result.shape, result.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def differences(a):
    return ((a[1:] - a[:-1]) ** 2).sum() + ((a[:, 1:] - a[:, :-1]) ** 2).sum()


def laplacian(a):
    return ((a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2] - 4 * a[1:-1, 1:-1]) ** 2).sum()


def rolled(a):
    return ((np.roll(a, 1, 0) + np.roll(a, -1, 1) - 2 * a) ** 2).sum()


def smoothed(a):
    return np.sin(0.25 * a[:-2] + 0.5 * a[1:-1] + 0.25 * a[2:]).sum()


def total_variation(a):
    return np.sqrt(1e-3 + (a[1:, :-1] - a[:-1, :-1]) ** 2 + (a[:-1, 1:] - a[:-1, :-1]) ** 2).sum()


STENCILS = [differences, laplacian, rolled, smoothed, total_variation]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("extents", [(300, 400), (40, 33)])
@pytest.mark.parametrize("f", STENCILS, ids=lambda f: f.__name__)
def test_gradients_of_stencils_have_the_bits_of_their_sums(f, extents, dtype):
    a = A[: extents[0], : extents[1]].astype(dtype)
    graph = fx.lower(fx.grad(f), a).graph
    without = optimise(graph, passes=[each for each in PASSES if each is not joins.join_in_place])
    (expected,) = compile_plan(without, optimised=True).run([a])
    staged = fx.futurize(fx.grad(f))
    for _ in range(3):
        assert same(staged(a), expected)


@pytest.mark.parametrize("f", STENCILS, ids=lambda f: f.__name__)
def test_they_are_written_once(f):
    found = ops(fx.grad(f), A)
    assert "fused_join" in found
    assert not {"store", "fused_store", "full"} & set(found)


@pytest.mark.parametrize("f", STENCILS, ids=lambda f: f.__name__)
def test_they_are_slopes(f):
    a, along = A[:40, :30], RNG.normal(size=(40, 30))
    slope = (f(a + 1e-6 * along) - f(a - 1e-6 * along)) / 2e-6
    assert (np.asarray(fx.grad(f)(a)) * along).sum() == pytest.approx(slope, rel=1e-6)


def test_negative_zeros_and_what_is_no_number():
    a = A.copy()
    a[3, 3:9], a[5, 5], a[6, 6] = -0.0, np.inf, np.nan

    def f(a):
        out = np.zeros((300, 400))
        out[1:] += a[1:]
        out[:-1] += a[:-1] * 0.5
        return out

    def written(a):
        out = np.zeros((300, 400))
        out[1:] = a[1:]
        out[:-1] += a[:-1] * 0.5
        return out

    a[-1, :9] = -0.0
    for each in (f, written):
        with np.errstate(invalid="ignore"):
            expected = each(a)
        assert "fused_join" in ops(each, a)
        assert same(fx.futurize(each)(a), expected)


def test_what_others_read_and_arguments_are_written_in_place():
    def read(a):
        out = a * 2
        out[1:] += a[1:]
        before = out.copy()
        out[:-1] += before[1:]
        return out, before

    def given_(a):
        a[1:] += 1.5
        a[:-1] += 2.5
        return a

    assert "fused_join" not in ops(given_, A)
    for f in (read, given_):
        results, expected = fx.futurize(f)(A.copy()), f(A.copy())
        for mine, other in zip(np.atleast_2d(results), np.atleast_2d(expected), strict=True):
            assert same(mine, other)


@st.composite
def programs(draw):
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 40 if ndim < 3 else 12)) for _ in range(ndim)]
    dtype = draw(st.sampled_from(["f4", "f8", "i4", "u1", "?", "D"]))
    slices = []
    for _ in range(draw(st.integers(1, 5))):
        bounds = []
        for extent in shape:
            low = draw(st.integers(0, extent - 1))
            bounds.append((low, draw(st.integers(low, extent))))
        slices.append((bounds, [draw(st.integers(0, low)) for low, _ in bounds], draw(st.booleans())))
    return shape, dtype, draw(st.sampled_from(["zeros", "twice", "ones"])), slices


@settings(max_examples=120, deadline=None)
@given(programs())
def test_any_sum_of_slices_is_numpys(program):
    shape, dtype, begins, slices = program

    def f(a):
        out = {"zeros": np.zeros_like(a), "twice": a + a, "ones": np.ones_like(a)}[begins]
        for bounds, lows, computed in slices:
            value = a[tuple(slice(low, low + last - first) for (first, last), low in zip(bounds, lows, strict=True))]
            out[tuple(slice(*each) for each in bounds)] += value * value if computed else value
        return out

    a = (RNG.normal(size=shape) * 9).astype(dtype)
    expected = f(a)
    graph = fx.lower(f, a).graph
    for least in (1, joins.FEWEST_ELEMENTS):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(joins, "FEWEST_ELEMENTS", least)
            patched.setattr(joins, "LEAST_BLOCK", 1 if least == 1 else joins.LEAST_BLOCK)
            (found,) = compile_plan(graph).run([a])
        assert same(found, expected)
