"""Systems with factors: substituted from some rows on, with NumPy's bits below, and NumPy's values everywhere."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.simplify import simplify
from futurex.passes.triangles import LEAST_ROWS, substitute
from futurex.tree import Graph, apply, param
from futurex.tree.aval import aval_of

L = np.linalg
PROGRAMS = {
    "weights": lambda a, b: L.solve(L.cholesky(a).T, L.solve(L.cholesky(a), b[:, 0])),
    "sides": lambda a, b: L.solve(L.cholesky(a), b),
    "an upper factor": lambda a, b: L.solve(L.cholesky(a, upper=True).T, b),
    "one that is conjugated": lambda a, b: L.solve(L.cholesky(a).conj().T, b),
    "least squares": lambda a, b: (lambda q, r: L.solve(r, q.conj().T @ b))(*L.qr(a)),
    "a stack": lambda a, b: L.solve(L.cholesky(np.stack([a, 2 * a])), b),
    "a stack that is turned": lambda a, b: L.solve(L.cholesky(np.stack([a, 2 * a])).swapaxes(1, 2), b),
}


def inputs(n, dtype):
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(n, n)), rng.normal(size=(n, 3))
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * rng.normal(size=a.shape), b + 1j * rng.normal(size=b.shape)
    return (a @ a.conj().T + n * np.eye(n)).astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_solution_is_numpys(name, dtype):
    a, b = inputs(LEAST_ROWS, dtype)
    function = PROGRAMS[name]
    staged, expected = fx.futurize(function), function(a, b)
    result = np.asarray(staged(a, b))
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(result, expected, rtol=200 * eps, atol=200 * eps * abs(expected).max())
    graph = substitute(simplify(staged.graph(a, b)))
    ops = [node.op for node in graph.nodes]
    assert "solve" not in ops
    assert "solve_triangular" in ops
    np.testing.assert_array_equal(graph(a, b)[0], expected)  # by NumPy's solver, which is the reference


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_systems_have_numpys_bits(name):
    a, b = inputs(LEAST_ROWS - 1, "f8")
    np.testing.assert_array_equal(np.asarray(fx.futurize(PROGRAMS[name])(a, b)), PROGRAMS[name](a, b))


@pytest.mark.parametrize("change", [
    lambda a: a, lambda a: L.cholesky(a) + a, lambda a: L.qr(a)[0], lambda a: L.cholesky(a)[::-1],
    lambda a: L.cholesky(np.stack([a, a])).transpose(2, 1, 0)[..., :2],
])  # fmt: skip
def test_what_need_not_be_a_triangle_is_left_to_numpy(change):
    a, b = inputs(LEAST_ROWS, "f8")

    def function(a, b):
        matrix = change(a)
        return (
            L.solve(matrix, b if matrix.shape[-1] == len(b) else b[:2]) if matrix.shape[-1] == matrix.shape[-2] else b
        )

    np.testing.assert_array_equal(np.asarray(fx.futurize(function)(a, b)), function(a, b))


def test_a_singular_factor_raises_as_in_numpy():
    a, b = inputs(LEAST_ROWS, "f8")
    a[:, 5] = 0.0
    function = PROGRAMS["least squares"]
    with pytest.raises(L.LinAlgError, match="Singular matrix"):
        function(np.triu(a), b)
    with pytest.raises(L.LinAlgError, match="Singular matrix") as caught:
        np.asarray(fx.futurize(function)(np.triu(a), b))
    assert any("test_triangles.py" in note for note in caught.value.__notes__)


def test_operands_of_two_types_are_left_to_numpy():
    a, b = inputs(LEAST_ROWS, "f8")
    x, y = (param(aval_of(value)) for value in (a, b.astype("f4")))
    graph = Graph([x, y], [apply("solve", apply("cholesky", x, upper=False), y)], "mixed")
    assert substitute(graph) is graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives(name):
    a, b = inputs(LEAST_ROWS, "f8")
    direction = np.cos(np.arange(a.size)).reshape(a.shape)
    direction = direction + direction.T

    def function(a):
        return (PROGRAMS[name](a, b) ** 2).sum()

    slope = (function(a + 1e-5 * direction) - function(a - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose((fx.grad(function)(a) * direction).sum(), slope, rtol=1e-6)
