"""What all rounds of a loop share is computed before it."""

import warnings

import numpy as np
import pytest

import futurex as fx
from futurex.passes.hoist import hoist
from futurex.tree.verify import verify

RNG = np.random.default_rng(2)
A, X = RNG.normal(size=(60, 60)) * 0.05, RNG.normal(size=60)


def scaled(a, x):
    for _ in range(40):
        x = 0.85 * a @ x + 0.15
    return x


def functions(a, x):
    for _ in range(40):
        x = np.tanh(np.exp(-np.abs(a)) @ x)
    return x


def normal_equations(a, x):
    for _ in range(40):
        x = 0.1 * (a.T @ a) @ x + x
    return x


def loop_in_a_loop(a, x):
    for _ in range(40):
        for k in range(30):
            x = np.sin(a + 1) @ x * 0.01 + x / (k + 1)
    return x


def until(a, x):
    count = 0
    while np.abs(x).sum() > 1e-3 and count < 200:
        x = (a * a) @ x * 5
        count += 1
    return x, count


def a_view(a, x):
    for k in range(40):
        x = x + (a * 2).T[k]
    return x


def part_of_what_is_kept(a, x):
    y = x
    for _ in range(40):
        y = np.exp(a).sum(0) * 2
        x = x * 0.5 + y
    return x, y


BEFORE = {
    scaled: {"multiply"}, functions: {"exp", "absolute"}, normal_equations: {"matmul"}, loop_in_a_loop: {"sin"},
    until: {"multiply"}, a_view: {"multiply"}, part_of_what_is_kept: {"exp", "sum"},
}  # fmt: skip


def written(a, x):
    for k in range(40):
        b = a * 2
        b[k] = x
        x = b.sum(0) * 0.01
    return x


def given_on(a, x):
    b = a
    for _ in range(40):
        b = a * 2
        x = b[0] * x
    return b, x


def never(a, x):
    count = 0
    while count < (a[0, 0] > 99):
        x = np.log(a) @ x
        count += 1
    return x


def zeros(a, x):
    for _ in range(40):
        b = np.zeros(60)
        b[:10] = a[0, :10]
        x = x * 0.5 + b
    return x


def failing(a, x):
    for _ in range(40):
        x = x + np.linalg.inv(a * 2 + np.eye(60))[0]
    return x


INSIDE = [written, given_on, never, zeros]


def ops_around(function, *arguments):
    graph = hoist(fx.lower(function, *arguments).graph)
    verify(graph)
    return {node.op for node in graph.nodes}


@pytest.mark.parametrize("function", BEFORE)
def test_it_stands_before_the_loop(function):
    assert BEFORE[function] <= ops_around(function, A, X)


@pytest.mark.parametrize("function", INSIDE)
def test_what_rounds_write_give_on_or_may_never_compute_stays(function):
    assert not {"multiply", "log", "full"} & ops_around(function, A, X)


def test_what_may_fail_stays():
    """It would fail before what the first round does, as a print."""
    assert "inv" not in ops_around(failing, A, X)
    np.testing.assert_allclose(fx.futurize(failing)(A, X), failing(A, X), rtol=1e-11)


def test_what_is_small_stays():
    assert "multiply" not in ops_around(scaled, A[:10, :10].copy(), X[:10])


@pytest.mark.parametrize("function", [*BEFORE, *INSIDE])
def test_values_are_numpys(function):
    f = fx.futurize(function)
    given = A.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (1.0, 0.5, 2.0, 1.0):
            found, expected = f(scale * A, X), function(scale * A, X)
            pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
            for one, other in zip(*pairs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-300)
    f(given, X)
    np.testing.assert_array_equal(given, A)


@pytest.mark.parametrize("function", [scaled, functions, normal_equations, loop_in_a_loop, a_view])
def test_slopes(function):
    slope = np.asarray(fx.grad(lambda a: function(a, X).sum())(A))
    step = RNG.normal(size=A.shape)
    along = (function(A + 1e-6 * step, X).sum() - function(A - 1e-6 * step, X).sum()) / 2e-6
    assert (slope * step).sum() == pytest.approx(along, rel=1e-5, abs=1e-9)


def test_rows_one_after_the_other():
    def running(a, x, rows):
        sums = []
        for row in rows:
            x = np.exp(a) @ x * 1e-2 + row
            sums.append(x.sum())
        return x, np.array(sums)

    rows = RNG.normal(size=(40, 60))
    for found, expected in zip(fx.futurize(running)(A, X, rows), running(A, X, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert "exp" in ops_around(running, A, X, rows)
