"""Tapes of arrays of which the way back reads little: the same gradients from less memory."""

import numpy as np
import pytest

import futurex as fx
from futurex.ops.tapes import Tape
from futurex.passes.common import share
from futurex.passes.dead import prune
from futurex.passes.pipeline import optimise
from futurex.passes.stack_tapes import stack_tapes
from futurex.passes.thin_tapes import thin_tapes
from futurex.tree.graph import Graph

RNG = np.random.default_rng(11)


def filtered(a, x):
    y = np.zeros(len(x))
    y[0] = x[0]
    for n in range(1, len(x)):
        y[n] = x[n] - a[n] * y[n - 1]
    return (y**2).sum()


def of_two(a, x):
    y = np.zeros(len(x))
    y[:2] = x[:2]
    for n in range(2, len(x)):
        y[n] = np.tanh(x[n] - a[n] * y[n - 1] + 0.3 * y[n - 2] * y[n - 1])
    return (y * x).sum()


def rows(a, x):
    y = np.zeros((len(a), 6))
    y[0] = x[:6]
    for n in range(1, len(a)):
        y[n] = np.sin(y[n - 1] * a[n]) + x[n]
    return (y**2).sum()


def warped(a, x):
    cost = np.full((len(a) + 1, len(x) + 1), 1e3)
    cost[0, 0] = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(x) + 1):
            near = min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
            cost[i, j] = (a[i - 1] - x[j - 1]) ** 2 + near
    return cost[len(a), len(x)]


def over_and_over(a, x):
    y = x.copy()
    for k in range(3 * len(x)):
        n = (5 * k) % (len(x) - 1)
        y[n] = y[n + 1] * a[n] + 0.1 * y[n] ** 2
    return (y * a).sum()


def backwards(a, x):
    y = a * 0.5
    for n in range(len(x) - 2, -1, -1):
        y[n] = y[n + 1] * x[n] * y[n]
    return y.sum()


def whole_array_too(a, x):
    y = np.zeros(len(x))
    for n in range(1, len(x)):
        y[n] = x[n] * y[n - 1] + (y * a).sum() + 0.1
    return y.sum()


def counted_by_data(a, x):
    y = np.zeros(5000)
    n, level = 1, x[0]
    while level < 3.0 and n < 60:
        y[n] = level * a[n % len(a)] + 0.2 * y[n - 1] ** 2
        level = level + 0.1 * y[n] + 0.05
        n += 1
    return y.sum() + level


PROGRAMS = [filtered, of_two, rows, warped, over_and_over, backwards, whole_array_too, counted_by_data]


def numbers(extent=20):
    return RNG.uniform(0.2, 0.9, extent), RNG.uniform(0.2, 0.9, extent)


def slope(function, arrays, number, place, step=1e-6):
    """The central difference by one element."""
    ends = []
    for sign in (1, -1):
        moved = [each.copy() for each in arrays]
        moved[number][place] += sign * step
        ends.append(function(*moved))
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_finite_differences(program):
    gradient = fx.futurize(fx.grad(program, argnums=(0, 1)))
    for _ in range(3):
        arrays = numbers()
        for number, found in enumerate(gradient(*arrays)):
            for place in (0, 1, 7, 18, 19):
                expected = slope(program, arrays, number, place)
                assert np.asarray(found)[place] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_pass_changes_no_bit(program):
    arrays = numbers()
    graph = fx.lower(fx.futurize(fx.grad(program, argnums=(0, 1))), *arrays).graph
    before = optimise(graph, passes=(share, prune, stack_tapes))
    after = optimise(graph, passes=(share, prune, thin_tapes, stack_tapes))
    for one, two in zip(before(*arrays), after(*arrays), strict=True):
        assert np.array_equal(one, two)
    shrinks = program is not whole_array_too
    assert (largest(after) < largest(before)) is shrinks


def largest(graph):
    """Elements of the largest array, or of the largest tape that is a list of so many."""
    found = [0]
    for node in graph.nodes:
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        found += [60 * aval.element.size if isinstance(aval, Tape) else aval.size for aval in avals]
        found += [largest(value) for value in node.attrs.values() if isinstance(value, Graph)]
    return max(found)


def test_second_derivatives():
    arrays = numbers(8)
    for program in (filtered, of_two, backwards):
        hessian = np.asarray(fx.hessian(program)(*arrays))
        for place in range(8):
            expected = slope(lambda *given: np.asarray(fx.grad(program)(*given)), arrays, 0, place)  # noqa: B023
            np.testing.assert_allclose(hessian[place], expected, rtol=1e-6, atol=1e-7)


def test_a_loop_without_rounds():
    gradient = fx.grad(filtered, argnums=1)
    x = np.array([0.7])
    assert np.array_equal(np.asarray(gradient(x, x)), 2 * x)


def test_mapped_gradients():
    a, x = RNG.uniform(0.2, 0.9, (2, 3, 20))
    found = np.asarray(fx.vmap(fx.grad(of_two))(a, x))
    for row in range(3):
        np.testing.assert_allclose(found[row], np.asarray(fx.grad(of_two)(a[row], x[row])), rtol=1e-12)


def test_memory_grows_with_the_rounds_and_not_with_their_square():
    graph = fx.lower(fx.futurize(fx.grad(filtered, argnums=(0, 1))), *numbers(1000)).graph
    assert largest(optimise(graph)) == 1000
