"""Factors of little matrices and their derivatives in compiled loops, which call nothing of Python's for them."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx
from futurex.kernels.loops import LoopBackend
from futurex.tree import Graph, apply, param
from futurex.tree.aval import aval_of

L = np.linalg


def factored(a, b):
    """Covariances that are carried on: each round a factor of the next, and what is left of a vector by it."""
    p, total = np.eye(len(a)), 0.0
    for t in range(b.shape[0]):
        p = a @ p @ a.T + 0.3 * np.eye(len(a))
        factor = L.cholesky(p)
        rest = L.solve(factor, b[t])
        total = total - 0.5 * rest @ rest - np.log(np.diag(factor)).sum()
    return total


def determined(a, b):
    """The same by solutions and determinants."""
    p, total = np.eye(len(a)), 0.0
    for t in range(b.shape[0]):
        p = a @ p @ a.T + 0.3 * np.eye(len(a))
        total = total - 0.5 * b[t] @ L.solve(p, b[t]) - 0.5 * np.log(L.det(p)) + L.det(p[:3, :3]) + L.det(p[1:3, :2])
    return total + L.det(a)


@pytest.mark.parametrize("dtype, tolerance", [("f8", 2e-5), ("f4", 2e-2)])
@pytest.mark.parametrize("function", [factored, determined])
def test_derivatives(function, dtype, tolerance):
    rng = np.random.default_rng(1)
    a, b = 0.5 * np.eye(4) + 0.05 * rng.normal(size=(4, 4)), rng.normal(size=(40, 4))
    steps = 1e-6 * np.eye(a.size).reshape(-1, *a.shape)
    expected = np.reshape([(function(a + step, b) - function(a - step, b)) / 2e-6 for step in steps], a.shape)
    slopes = fx.futurize(lambda a, b: fx.grad(function)(a, b))
    operands = a.astype(dtype), b.astype(dtype)
    for _ in range(40):  # interpreted, then compiled
        np.testing.assert_allclose(slopes(*operands), expected, rtol=tolerance, atol=tolerance)
    assert calls_of_loops(slopes, operands) == []


def test_a_singular_factor_in_a_loop_raises():
    def function(a):
        total = 0.0
        for t in range(a.shape[0]):
            total = total + L.cholesky(a[t])[0, 0]
        return total

    a = np.stack([np.eye(3)] * 40)
    a[39] = 0.0
    with pytest.raises(L.LinAlgError, match="not positive definite"):
        np.asarray(fx.grad(function)(a))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_triangle_is_solved_by_compiled_code(turned, dtype, lower, right):
    rng = np.random.default_rng(2)
    a = (rng.normal(size=(5, 5)) + 4 * np.eye(5)).astype(dtype)
    b = rng.normal(size=(3, 5) if right else (5, 3)).astype(dtype)
    x, y = (param(aval_of(value)) for value in (a, b))
    matrix = apply("transpose", x, axes=(1, 0)) if turned else x
    node = apply("solve_triangular", matrix, y, lower=lower, right=right)
    program = LoopBackend().whole(Graph([x, y], [node], "solved"))
    (found,) = program(a, b)
    assert program.calls == []
    expected = node.record.run((a.T if turned else a, b), node.attrs)
    np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype == "f4" else 1e-13)
    a[2, 2] = 0.0
    assert program(a, b) is None
