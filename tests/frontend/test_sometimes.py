"""Lists to which only some rounds of a loop append are rows with flags until it is over: NumPy's results, and
derivatives that are loops."""

import numpy as np
import pytest
from compare import check

import futurex as fx

X = np.random.default_rng(0).random(40) * 2 - 0.3


def above(x, c):
    out = []
    for v in x:
        if v > c:
            out.append(v * v)
    return np.array(out), len(out)


def numbers(x, c):
    out = [7]
    for i in range(3, len(x), 2):
        if x[i] > c:
            out.append(i)
    return np.array(out), len(out)


def backwards(x, c):
    out = []
    for i in range(len(x) - 1, -1, -1):
        if x[i] <= c:
            continue
        out.append(x[i])
    return np.array(out)


def either_way(x, c):
    out = []
    for v in x:
        if v > c:
            out.append(v)
        else:
            out.append(-v)
    return np.array(out), out[3], len(out)


def at_two_places(x, c):
    out, others = [], []
    for v in x:
        if v > c:
            out.append(v)
        if v > 2 * c:
            out.append(v * 2)
        else:
            others.append(v)
        out.append(v + 100)
    return np.array(out), np.array(others)


def pairs(x, c):
    out = []
    for i, v in enumerate(x):
        if v > c:
            out.append((i, v, v > 1))
    total = 0.0
    for i, v, large in out:
        total += i * v if large else v
    return np.array(out), total


def arrays(x, c):
    out = []
    for i in range(len(x) - 3):
        w = x[i : i + 3] * 2
        if np.sum(w) > c * 4:
            out.append(w)
    return np.array(out)


def nested(x, c):
    out = []
    for i in range(20):
        for j in range(18):
            if x[i] * x[j] > c:
                out.append(x[i] + j)
        if x[i] > c:
            for j in range(17):
                out.append(x[j] * i)
    return np.array(out)


def nested_to_a_number_of_rounds(x, c):
    out = []
    for i in range(20):
        for j in range(i):
            if x[i] * x[j] > c:
                out.append(x[i] + j)
        for _ in range(int(abs(x[i]) * 9)):
            out.append(x[i] * c)
    return np.array(out)


def left(x, c):
    out = []
    for v in x:
        out.append(v)
        if v > 2 * c:
            break
        if v > c:
            out.append(c - v)
    return np.array(out)


def returned(x, c):
    out = []
    for v in x:
        if v > 3 * c:
            return np.array(out)
        if v > c:
            out.append(v)
    return np.array(out) + 1


def another_loop(x, c):
    out = []
    for v in x:
        if v > c:
            out.append(v)
    for v in x:
        out.append(v * 2)
    return np.array(out)


def another_array(x, c):
    out, w = [], np.zeros(3)
    for i in range(30):
        w[0] = x[i]
        if x[i] > c:
            out.append(w.copy())
    return np.sum(np.array(out)), w


def looked_at(x, c):
    out = [x[0]]
    for v in x:
        if v > out[-1] and len(out) < 10:
            out.append(v * c)
    return np.array(out)


PROGRAMS = [
    above, numbers, backwards, either_way, at_two_places, pairs, arrays, nested, nested_to_a_number_of_rounds, left,
    returned, another_loop, another_array, looked_at,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("c", [0.5, -1.0, 1.1])
def test_results_are_numpys(program, c):
    check(program, X, c)


def test_an_empty_list():
    check(above, X, 9.0)
    check(backwards, X, 9.0)


@pytest.mark.parametrize("program", [above, pairs, nested, left, either_way], ids=lambda program: program.__name__)
def test_compiled(program, at_once):
    futurized = fx.futurize(program)
    for _ in range(4):
        for found, expected in zip(futurized(X, 0.5), program(X, 0.5), strict=False):
            np.testing.assert_array_equal(found, expected)


def written_by_hand(x, c):
    mask = x > c
    return np.sum(x[mask] ** 3 * np.arange(1, mask.sum() + 1))


def summed(x, c):
    out = []
    for v in x:
        if v > c:
            out.append(v * v * v)
    return np.sum(np.array(out) * np.arange(1, len(out) + 1))


def steps(x, c):
    out = []
    for _ in range(60):
        x = np.sin(x) + 0.9 * x
        if np.sum(x) > c:
            out.append(x)
    return np.sum(np.array(out) ** 2)


def of_nested(x, c):
    out = []
    for i in range(20):
        for j in range(18):
            if x[i] * x[j] > c:
                out.append(x[i] * j)
        out.append(x[i])
    return np.sum(np.array(out))


def test_the_derivative_is_that_of_the_rows():
    np.testing.assert_allclose(fx.grad(summed)(X, 0.5), fx.grad(written_by_hand)(X, 0.5), rtol=1e-14)
    for program in (steps, of_nested):
        g, d, step = np.asarray(fx.grad(program)(X, 0.5)), np.cos(X), 1e-6
        slope = (program(X + step * d, 0.5) - program(X - step * d, 0.5)) / (2 * step)
        np.testing.assert_allclose(np.sum(g * d), slope, rtol=1e-6)
        _, along = fx.jvp(lambda x, program=program: program(x, 0.5), (X,), (d,))
        np.testing.assert_allclose(along, np.sum(g * d), rtol=1e-12)


@pytest.mark.parametrize("program", [summed, steps, of_nested], ids=lambda program: program.__name__)
def test_the_derivative_is_compiled(program):
    """Its rounds store in arrays what the way back reads, although how many rows count is known to the run alone."""
    slope = fx.grad(program)
    np.asarray(slope(X, 0.5))
    assert "round by round" not in slope.explain(), slope.explain()
    assert "is compiled whole" in slope.explain(), slope.explain()
