"""Triangular systems: by BLAS, row by row, in compiled loops and on a GPU, beside NumPy's solution of the triangle."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.blas import BlasBackend, triangular
from futurex.kernels.cupy_ import CupyBackend
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.kernels.openblas import function
from futurex.tree import apply, param
from futurex.tree.aval import aval_of

found = pytest.mark.skipif(function("cblas_dtrsm") is None, reason="no OpenBLAS is loaded that has the function")

SHAPES = {
    "one": ((5, 5), (5, 3)),
    "a column": ((5, 5), (5, 1)),
    "a number": ((1, 1), (1, 1)),
    "columns for one": ((5, 5), (7, 5, 1)),
    "sides for one": ((5, 5), (7, 5, 3)),
    "one of a stack": ((1, 5, 5), (7, 5, 3)),
    "a side for a stack": ((3, 5, 5), (5, 2)),
    "many little ones": ((60, 4, 4), (60, 4, 3)),
    "stacks that are repeated": ((3, 1, 4, 4), (20, 4, 3)),
    "few of some rows": ((3, 20, 20), (3, 20, 4)),
    "nothing": ((2, 0, 0), (2, 0, 3)),
    "no sides": ((4, 4), (4, 0)),
}
LYING = {
    "rows": lambda a: a,
    "columns": lambda a: np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2),
    "a part of rows": lambda a: np.concatenate([a, a], -1)[..., : a.shape[-1]],
    "a part of columns": lambda a: np.concatenate([a, a], -2).swapaxes(-1, -2).copy().swapaxes(-1, -2)[
        ..., : a.shape[-1], :
    ],
    "apart": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "backwards": lambda a: a[..., ::-1].copy()[..., ::-1],
}  # fmt: skip


def system(shape, dtype, *, lower, right, unread=np.nan):
    """A triangle, with what nobody may read in its other half, a right side, and the node."""
    rng = np.random.default_rng(0)

    def draw(shape):
        return (rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype in "FD" else 0)).astype(dtype)

    first, second = SHAPES[shape]
    inside = np.tri(first[-1], dtype=bool) if lower else np.tri(first[-1], dtype=bool).T
    a = np.where(inside, draw(first) + 4 * np.eye(first[-1], dtype=dtype), np.asarray(unread, dtype))
    b = draw((*second[:-2], second[-1], second[-2]) if right else second)
    node = apply("solve_triangular", param(aval_of(a)), param(aval_of(b)), lower=lower, right=right)
    half = np.where(inside, a, 0)
    if right:
        expected = np.linalg.solve(half.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
    else:
        expected = np.linalg.solve(half, b)
    return a, b, node, expected


def close(dtype):
    return {"rtol": 2e-4, "atol": 2e-4} if dtype in "fF" else {"rtol": 1e-11, "atol": 1e-11}


@found
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("shape", SHAPES)
def test_blas_solves_what_numpy_solves(shape, lying, dtype, lower, right):
    a, b, node, expected = system(shape, dtype, lower=lower, right=right)
    kernel = BlasBackend().claim(node, 1)
    out = np.full(node.shape, np.nan, dtype)
    a, before = LYING[lying](a), b.copy()
    assert kernel.call(out, a, b) is out
    np.testing.assert_allclose(out, expected, **close(dtype))
    np.testing.assert_array_equal(b, before)
    if b.shape == node.shape:
        assert kernel.call(b, a, b) is b
        np.testing.assert_array_equal(b, out)


@found
@pytest.mark.parametrize("lower", [False, True])
def test_little_matrices_are_solved_alike_however_many(lower, monkeypatch):
    a, b, node, expected = system("many little ones", "d", lower=lower, right=False)
    called = BlasBackend().claim(node, 1).call(np.empty_like(b), a, b)
    monkeypatch.setattr(triangular, "_MANY", 1000)
    np.testing.assert_allclose(BlasBackend().claim(node, 1).call(np.empty_like(b), a, b), called, **close("d"))
    np.testing.assert_allclose(called, expected, **close("d"))


@pytest.mark.parametrize("shape", ["one", "a column", "many little ones", "few of some rows"])
def test_a_zero_on_the_diagonal_is_numpys_error(shape):
    a, b, node, _ = system(shape, "d", lower=True, right=False, unread=0.0)
    a[..., -1, -1] = 0.0
    kernels = [BlasBackend().claim(node, 1)] if function("cblas_dtrsm") else []
    for call in (*(kernel.call for kernel in kernels), lambda out, a, b: node.record.run((a, b), node.attrs)):
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            call(np.empty(node.shape), a, b)


def test_without_the_function_the_reference_is_left(monkeypatch):
    monkeypatch.setattr(triangular, "function", lambda name: None)
    triangular._trsm.cache_clear()
    *_, node, _ = system("one", "d", lower=True, right=False)
    try:
        assert BlasBackend().claim(node, 1) is None
    finally:
        triangular._trsm.cache_clear()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("shape", ["one", "many little ones", "sides for one", "a side for a stack"])
def test_a_gpu_solves_them_by_cublas(shape, lower, right):
    device = Device(NAMESPACE, "emulated")
    a, b, node, expected = system(shape, "d", lower=lower, right=right)
    kernel = CupyBackend(device).claim(node, 1).call
    result = device.to_host(kernel(None, *map(device.to_device, (a, b))))
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    assert (kernel.backend, kernel.reason) == ("cublas", "")
    np.einsum("...ii->...i", a)[..., 0] = 0.0
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        kernel(None, *map(device.to_device, (np.nan_to_num(a), b)))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", "dD")
@pytest.mark.parametrize("shape", [(3, 3), (40, 3, 3), (2, 3, 6, 6), (260, 260), (0, 0), (3, 0, 0)])
def test_the_derivative_of_cholesky_by_differences(shape, dtype, upper):
    rng = np.random.default_rng(2)

    def draw():
        return rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype == "D" else 0)

    x, weights, direction = draw(), draw(), draw()
    x = x @ x.conj().swapaxes(-1, -2) + max(3, shape[-1]) * np.eye(shape[-1])
    direction = direction + direction.conj().swapaxes(-1, -2)

    def function(x):
        return (np.linalg.cholesky(x, upper=upper) * weights).real.sum()

    slope = (function(x + 1e-6 * direction) - function(x - 1e-6 * direction)) / 2e-6
    found = (np.asarray(fx.grad(function)(x)) * direction).real.sum()
    np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-7)
