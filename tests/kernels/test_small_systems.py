"""Inverses, solutions and determinants of many small matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.small_systems import LARGEST, Systems
from futurex.tree.aval import Aval
from futurex.tree.node import apply, param

pytestmark = pytest.mark.skipif(not has_fma(), reason="fused multiply-adds")
DTYPES = [np.float32, np.float64]
FUNCTIONS = {"inv": np.linalg.inv, "solve": np.linalg.solve, "det": np.linalg.det}


def made(op, *operands, threads=1):
    """The kernel's result; None where it claims nothing."""
    node = apply(op, *(param(Aval(each.shape, each.dtype), f"a{k}") for k, each in enumerate(operands)))
    kernel = NumbaBackend().claim(node, threads)
    if kernel is None:
        return None
    assert isinstance(kernel.call, Systems)
    kernel.late.prepare((), wait=True)
    out = np.full(node.shape, 7.0, node.dtype)
    assert kernel.call(out, *operands) is out
    assert kernel.late.interpreted == 0
    return out


def matrices(rows, dtype, count=40, seed=0):
    return np.random.default_rng(seed).standard_normal((count, rows, rows)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", range(1, LARGEST + 1))
@pytest.mark.parametrize("sides", [1, 2, 3, 7])
def test_solutions_are_as_exact_as_numpys(rows, sides, dtype):
    a = matrices(rows, dtype)
    b = np.random.default_rng(1).standard_normal((40, rows, sides)).astype(dtype)
    x = made("solve", a, b)
    left = np.abs(a.astype(np.longdouble) @ x - b)
    bound = np.abs(a.astype(np.longdouble)) @ np.abs(x) + np.abs(b)
    assert (left <= 8 * rows * np.finfo(dtype).eps * bound.max((1, 2), keepdims=True)).all()
    if dtype == np.float32:  # both are rounded from doubles
        assert np.mean(x == np.linalg.solve(a, b)) > 0.99


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", range(1, LARGEST + 1))
def test_inverses_and_determinants(rows, dtype):
    a = matrices(rows, dtype).reshape(5, 8, rows, rows)
    x, size = made("inv", a), np.linalg.norm
    off = size(a.astype(np.longdouble) @ x - np.eye(rows), axis=(2, 3))
    assert (off <= 8 * rows * np.finfo(dtype).eps * size(a, axis=(2, 3)) * size(x, axis=(2, 3))).all()
    tolerance = 50 * rows * np.finfo(dtype).eps * np.prod(size(a, axis=3), axis=2)
    assert (np.abs(made("det", a) - np.linalg.det(a)) <= tolerance).all()


def test_one_right_side_for_all():
    a, b = matrices(4, float), np.arange(4.0)
    np.testing.assert_allclose(made("solve", a, b), np.linalg.solve(a, b), rtol=1e-9)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_rows_are_exchanged_and_threads_change_nothing(op):
    rng = np.random.default_rng(5)
    order = np.argsort(rng.random((20_000, 5)), axis=1)
    a = np.eye(5)[order] * rng.integers(1, 9, (20_000, 5, 1))
    operands = (a, rng.standard_normal((20_000, 5, 2))) if op == "solve" else (a,)
    found = made(op, *operands)
    np.testing.assert_allclose(found, FUNCTIONS[op](*operands), rtol=1e-13)
    np.testing.assert_array_equal(made(op, *operands, threads=2), found)


@given(st.integers(2, 5), st.integers(0, 10_000), st.booleans())
@settings(max_examples=80)
def test_what_may_be_singular_is_numpys(rows, seed, small):
    """Integers of low rank: rounding hides some zeros of LAPACK's, and makes others."""
    rng = np.random.default_rng(seed)
    a = matrices(rows, float, 32, seed)
    low = rng.integers(-3, 4, (rows, rows - 1)) @ rng.integers(-3, 4, (rows - 1, rows))
    a[7] = low * 1e-9 if small else low
    try:
        expected = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            made("inv", a)
    else:
        found = made("inv", a)
        np.testing.assert_array_equal(found[7], expected[7])
    np.testing.assert_array_equal(made("det", a)[7], np.linalg.det(a)[7])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_what_is_no_number_is_numpys(op, value):
    a = matrices(3, float)
    a[4, 1, 2], a[9] = value, np.diag([value, 1.0, 2.0])
    operands = (a, np.ones((40, 3, 1))) if op == "solve" else (a,)
    found = made(op, *operands)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[op](*operands)
    np.testing.assert_array_equal(found[[4, 9]], expected[[4, 9]])
    assert np.isfinite(np.delete(found, [4, 9], axis=0)).all()


def test_a_singular_matrix_is_told_of_at_the_users_line():
    a = matrices(3, float)
    a[20] = 1.0

    def inverse(a):
        return np.linalg.inv(a) + 1.0

    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix") as told:
        np.asarray(fx.futurize(inverse)(a))
    assert "return np.linalg.inv(a) + 1.0" in "\n".join(getattr(told.value, "__notes__", [str(told.value)]))
    assert (np.asarray(fx.futurize(np.linalg.det)(a))[20] == np.linalg.det(a)[20]).all()


def test_others_are_not_claimed():
    def claims(op, *shapes, dtype=float):
        eye = [np.ones(shape, dtype) for shape in shapes]
        eye[0] = np.broadcast_to(np.eye(shapes[0][-1], dtype=dtype), shapes[0]).copy()
        return made(op, *eye) is not None

    assert claims("inv", (32, 3, 3))
    assert not claims("inv", (31, 3, 3))
    assert not claims("inv", (32, LARGEST + 1, LARGEST + 1))
    assert not claims("inv", (3, 3))
    assert not claims("inv", (32, 3, 3), dtype=complex)
    assert not claims("solve", (32, 3, 3), (1, 3, 2))
    assert not claims("solve", (32, 6, 6), (32, 6, 19))
    assert claims("solve", (32, 6, 6), (32, 6, 10))


@pytest.mark.onednn
def test_derivatives_are_those_of_differences():
    a = matrices(3, float) + 3 * np.eye(3)
    b = np.random.default_rng(2).standard_normal((40, 3, 2))

    def loss(a, b):
        return np.sum(np.linalg.inv(a) ** 2) + np.sum(np.sin(np.linalg.solve(a, b))) + np.sum(np.linalg.det(a))

    rng = np.random.default_rng(3)
    for k, slope in enumerate(fx.grad(loss, argnums=(0, 1))(a, b)):
        step = 1e-6 * rng.standard_normal(slope.shape)
        far, near = ([x + s * step if n == k else x for n, x in enumerate((a, b))] for s in (1, -1))
        np.testing.assert_allclose(np.sum(np.asarray(slope) * step), (loss(*far) - loss(*near)) / 2, rtol=1e-5)
