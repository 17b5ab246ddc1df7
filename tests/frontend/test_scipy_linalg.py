"""Factors and triangular systems of ``scipy.linalg`` in staged code: SciPy's bits and errors, with derivatives."""

import numpy as np
import pytest
from compare import check

import futurex as fx

linalg = pytest.importorskip("scipy.linalg")


def system(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, n)), rng.normal(size=(n, 3))
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * rng.normal(size=a.shape), b + 1j * rng.normal(size=b.shape)
    return (a @ a.conj().T + n * np.eye(n)).astype(dtype), b.astype(dtype)


FUNCTIONS = {
    "lower": lambda a, b: linalg.solve_triangular(a, b, lower=True),
    "upper": lambda a, b: linalg.solve_triangular(a, b[:, 0]),
    "transposed": lambda a, b: linalg.solve_triangular(a, b, trans="T", lower=True, check_finite=False),
    "adjoint": lambda a, b: linalg.solve_triangular(a, b, 2),
    "factor": lambda a, b: linalg.cholesky(a),
    "lower factor": lambda a, b: linalg.cholesky(a, lower=True, check_finite=False),
    "factor with a rest": lambda a, b: linalg.cho_factor(a)[0],
    "lower factor with a rest": lambda a, b: linalg.cho_factor(a, True)[0],
    "by a factor": lambda a, b: linalg.cho_solve(linalg.cho_factor(a), b),
    "by a lower factor": lambda a, b: linalg.cho_solve((linalg.cholesky(a, lower=True), True), b[:, 1]),
    "by a part of a factor": lambda a, b: linalg.cho_solve(linalg.cho_factor(a, lower=True), b, check_finite=False)[1:],
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("n", [1, 4, 70])
def test_bits_are_scipys(name, dtype, n):
    check(FUNCTIONS[name], *system(n, dtype))


def test_whether_a_factor_is_lower_is_what_was_said():
    check(lambda a: linalg.cho_factor(a, lower=True)[1], system(3, "f8")[0])
    check(lambda a: linalg.cho_factor(a, 1)[1], system(3, "f8")[0])


@pytest.mark.parametrize("function, change", [
    (FUNCTIONS["lower"], lambda a: np.where(np.eye(4)[1] > 0, 0.0, a)),
    (FUNCTIONS["lower"], lambda a: a * np.nan),
    (FUNCTIONS["factor"], lambda a: -a),
    (FUNCTIONS["by a factor"], lambda a: a + np.inf),
    (lambda a, b: linalg.solve_triangular(a, b[:3]), lambda a: a),
    (lambda a, b: linalg.cholesky(a[:3]), lambda a: a),
])  # fmt: skip
def test_errors_are_scipys(function, change):
    a, b = system(4, "f8")
    a = change(a)
    with pytest.raises(ValueError) as expected:
        function(a, b)
    with pytest.raises(type(expected.value)) as caught:
        np.asarray(fx.futurize(function)(a, b))
    assert str(caught.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("function", [
    lambda a, b: linalg.solve_triangular(a, b, unit_diagonal=True, lower=True),
    lambda a, b: linalg.solve_triangular(np.stack([a, a]), np.stack([b, b])),
    lambda a, b: linalg.cholesky(a.astype(int)),
    lambda a, b: linalg.solve(a, b, assume_a="pos"),
])  # fmt: skip
def test_others_are_called_whole(function):
    check(function, *system(4, "f8"), staged="fragment")


def test_what_may_be_overwritten_is_scipys_affair():
    a, b = system(4, "f8")
    function = fx.futurize(lambda a, b: linalg.solve_triangular(np.asfortranarray(a), b, overwrite_b=True))
    np.testing.assert_array_equal(np.asarray(function(a, b)), linalg.solve_triangular(a, b))


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, dtype):
    a, b = system(4, dtype)
    da, db = system(4, dtype, 1)

    def function(a, b):
        return (np.abs(FUNCTIONS[name](a, b)) ** 3).sum()

    slope = (function(a + 1e-6 * da, b + 1e-6 * db) - function(a - 1e-6 * da, b - 1e-6 * db)) / 2e-6
    ga, gb = fx.grad(function, argnums=(0, 1))(a, b)
    np.testing.assert_allclose((ga * da).sum().real + (gb * db).sum().real, slope, rtol=1e-6)


def test_a_likelihood_as_it_is_written_with_scipy():
    x, y = np.random.default_rng(2).normal(size=(2, 30))

    def evidence(theta):
        distance = (x[:, None] - x) ** 2
        covariance = np.exp(theta[0] - distance * np.exp(theta[1])) + np.exp(theta[2]) * np.eye(len(x))
        factor = linalg.cho_factor(covariance, lower=True)
        rest = linalg.solve_triangular(np.tril(factor[0]), y, lower=True)
        return 0.5 * y @ linalg.cho_solve(factor, y) + np.log(np.diag(factor[0])).sum() + 0.1 * rest @ rest

    theta = np.array([0.1, 0.4, -1.0])
    np.testing.assert_allclose(float(fx.futurize(evidence)(theta)), evidence(theta), rtol=1e-13)
    expected = [(evidence(theta + step) - evidence(theta - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(fx.grad(evidence)(theta), expected, rtol=1e-6)
    hessian = fx.hessian(evidence)(theta)
    slopes = [
        (np.asarray(fx.grad(evidence)(theta + step)) - np.asarray(fx.grad(evidence)(theta - step))) / 2e-5
        for step in 1e-5 * np.eye(3)
    ]
    np.testing.assert_allclose(hessian, slopes, rtol=1e-5, atol=1e-6)
