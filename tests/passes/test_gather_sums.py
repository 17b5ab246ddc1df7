"""Derivatives of branches and inner loops are added where they stand: right slopes, and no arrays of zeros a round."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.gather_sums import gather_sums
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan
from futurex.tree.graph import Graph
from futurex.tree.verify import verify

RNG = np.random.default_rng(21)
N = 20
A, B = RNG.normal(size=(N, N)) + 3 * N * np.eye(N), RNG.normal(size=N)


def seidel(a, b):
    x = np.zeros(N)
    for _ in range(3):
        for i in range(N):
            s = 0.0
            for j in range(N):
                if j != i:
                    s += a[i, j] * x[j]
            x[i] = (b[i] - s) / a[i, i]
    return (x * x).sum()


def best(a, b):
    score = b
    for t in range(1, N):
        new = np.zeros(N)
        for i in range(N):
            most = score[0] + a[0, i]
            for j in range(1, N):
                c = score[j] + a[j, i]
                if c > most:
                    most = c
            new[i] = most * 0.5 + b[t]
        score = new
    return score.max()


def several(a, b):
    """An element is read in both branches, twice in one, beside the array as a whole."""
    total = 0.0
    for k in range(40):
        if total > 3 * k:
            total = total - a[k % N, 0] * b[k % 7] + b[k % 7] * b[k % 7]
        elif k % 3 == 0:
            total = total * 0.5 + (a @ b).sum() * 0.001
        else:
            total = total + b[k % 5] * 0.1 + np.abs(b[k % 5])
    return total


def until(a, b):
    x, r, rounds = np.zeros(N), 1.0, 0
    while r > 1e-8:
        r = 0.0
        for i in range(N):
            s = b[i]
            for j in range(i):
                s = s - a[i, j] * x[j]
            new = s / a[i, i] + 0.1 * x[i]
            if abs(new - x[i]) > r:
                r = abs(new - x[i])
            x[i] = new
        rounds += 1
    return (x * x).sum() * rounds


def unrelated(a, b):
    x = b
    for _ in range(30):
        x = np.tanh(a[0] * x * 0.01) + b
    return x.sum()


PROGRAMS = [seidel, best, several, until, unrelated]


def inside(graph):
    for node in graph.nodes:
        for value in node.attrs.values():
            if isinstance(value, Graph):
                yield value
                yield from inside(value)


def zeros(graph):
    """Arrays of zeros that branches and rounds make as large as the matrix."""
    return sum(each.op == "full" and each.size == N * N for body in inside(graph) for each in body.nodes)


@pytest.mark.parametrize("program", PROGRAMS)
def test_sums_are_those_of_before(program):
    graph = fx.lower(fx.grad(program, argnums=(0, 1)), A, B).graph
    after = gather_sums(graph)
    verify(after)
    assert gather_sums(after) is after
    assert (after is graph) is (program is unrelated)
    for mine, other in zip(after(A, B), graph(A, B), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
    run = compile_plan(optimise(graph, check=True), optimised=True).run([A, B])
    for mine, other in zip(run, graph(A, B), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("program", [seidel, best, until])
def test_rounds_make_no_arrays_of_zeros(program):
    graph = fx.lower(fx.grad(program, argnums=(0, 1)), A, B).graph
    assert zeros(graph)
    assert not zeros(optimise(graph))


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_differences(program):
    slopes = [np.asarray(each) for each in fx.grad(program, argnums=(0, 1))(A, B)]
    for number, slope in enumerate(slopes):
        for place in [(0, 0), (3, 1), (7, 7)] if number == 0 else [(0,), (3,), (5,)]:
            ends = [[x.copy() for x in (A, B)] for _ in range(2)]
            ends[0][number][place] += 1e-6
            ends[1][number][place] -= 1e-6
            difference = (program(*ends[0]) - program(*ends[1])) / 2e-6
            np.testing.assert_allclose(slope[place], difference, rtol=1e-4, atol=1e-6)


def test_second_derivatives():
    def squares(b):
        return (fx.grad(seidel, argnums=1)(A, b) ** 2).sum()

    slope = np.asarray(fx.grad(squares)(B))
    moved = np.zeros(N)
    moved[2] = 1e-4
    difference = (squares(B + moved) - squares(B - moved)) / 2e-4
    np.testing.assert_allclose(slope[2], float(difference), rtol=1e-5)


def test_sums_of_programs_are_added_in_their_order():
    def sums(a, b):
        total = 1e16
        for i in range(N):
            s = 0.0
            for j in range(N):
                s += a[i, j]
            total = total + s
        return total

    for program in (sums, seidel, best):
        graph = fx.lower(program, A, B).graph
        assert gather_sums(graph) is graph
    assert float(fx.futurize(sums)(A, B)) == sums(A, B)
