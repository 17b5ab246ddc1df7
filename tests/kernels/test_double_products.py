"""Generated products in double precision against those of integers, which are exact, and of longer numbers."""

import numpy as np
import pytest
from guarded import before_a_guard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import gemm, openblas
from futurex.kernels.backends import default_backends
from futurex.kernels.gemm import GemmBackend
from futurex.kernels.numba_ import panels
from futurex.kernels.steps import Row, Workspace
from futurex.tree import Aval, apply, param

pytestmark = [
    pytest.mark.onednn,
    pytest.mark.skipif(not panels.is_made() or panels.is_narrow(), reason="the processor has none of them"),
    pytest.mark.skipif(all(each.name != "gemm" for each in default_backends()), reason="FUTUREX_BACKENDS has no gemm"),
]
DOUBLE = np.dtype("f8")


@pytest.fixture
def lagging(monkeypatch):
    """As where BLAS does not know the processor."""
    monkeypatch.setattr(openblas, "core", lambda: "Haswell")


@pytest.fixture
def all_sizes(monkeypatch):
    monkeypatch.setattr(gemm, "LEAST_PRODUCT", 0)


def source(shape, turned):
    if not turned:
        return param(Aval(shape, DOUBLE))
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return apply("transpose", param(Aval((*shape[:-2], shape[-1], shape[-2]), DOUBLE)), axes=axes)


def operand(rng, shape, turned):
    array = rng.integers(-1000, 1000, shape).astype(DOUBLE)
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2) if turned else array


def product(x_shape, y_shape, turned=(False, False)):
    return apply("matmul", *map(source, (x_shape, y_shape), turned))


def check(x_shape, y_shape, turned, threads):
    """Sums of products of whole numbers are exact in any order; what is around the result is not written."""
    node = product(x_shape, y_shape, turned)
    kernel = GemmBackend().claim(node, threads)
    assert kernel is not None
    kernel.late.prepare((), wait=True)
    rng = np.random.default_rng(5)
    x, y = map(operand, (rng, rng), (x_shape, y_shape), turned)
    framed = np.full(node.size + 32, np.nan)
    out = framed[16 : 16 + node.size].reshape(node.shape)
    kernel.call(out, x, y)
    assert kernel.late.interpreted == 0
    assert np.array_equal(out, x @ y)
    assert np.isnan(framed[:16]).all()
    assert np.isnan(framed[-16:]).all()
    again = np.empty_like(out)
    Row(kernel.bind(Workspace()).aim(again, x, y)).run()
    assert np.array_equal(again, out)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 3), st.integers(16, 70), st.integers(16, 90), st.integers(16, 90), st.booleans(), st.booleans(),
    st.integers(1, 3),
)  # fmt: skip
def test_any_sizes(all_sizes, batch, rows, inner, columns, x_turned, y_turned, threads):
    check((batch, rows, inner), (batch, inner, columns), (x_turned, y_turned), threads)


@pytest.mark.parametrize("inner, columns", [(8, 64), (8, 8), (13, 24), (700, 8)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_single_vectors_and_short_sums(all_sizes, inner, columns, turned):
    check((45, inner), (inner, columns), turned, 2)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("inner", [1024, 1030, 2500])
def test_long_inner_axes_take_several_packings(inner, turned):
    check((33, inner), (inner, 47), turned, 2)


def test_a_stack_shares_a_matrix(all_sizes):
    check((20, 24, 64), (64, 100), (False, False), 2)


def test_sums_are_as_exact_as_the_librarys():
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((120, 300)), rng.standard_normal((300, 110))
    kernel = GemmBackend().claim(product(x.shape, y.shape), 1)
    kernel.late.prepare((), wait=True)
    out = kernel.call(np.empty((120, 110)), x, y)
    exact = (x.astype(np.longdouble)[:, :, None] * y.astype(np.longdouble)).sum(1)
    scale = np.abs(x) @ np.abs(y)
    assert (np.abs(out - exact) <= 300 * np.finfo(float).eps * scale / 4).all()


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((300, 200)), rng.standard_normal((200, 130))
    found = []
    for threads in (1, 2, 5):
        kernel = GemmBackend().claim(product(x.shape, y.shape), threads)
        kernel.late.prepare((), wait=True)
        found.append(kernel.call(np.empty((300, 130)), x, y))
    assert all(np.array_equal(found[0], each) for each in found)


@pytest.mark.parametrize("shape", [(128, 90), (61, 700), (100, 2500)])
def test_a_matrix_times_its_own_transpose_is_symmetric(lagging, shape):
    x = param(Aval(shape, DOUBLE))
    kernel = GemmBackend().claim(apply("matmul", x, apply("transpose", x, axes=(1, 0))), 3)
    kernel.late.prepare((), wait=True)
    array = np.random.default_rng(10).standard_normal(shape)
    out = kernel.call(np.empty((shape[0], shape[0])), array, array.T)
    assert np.array_equal(out, out.T)
    np.testing.assert_allclose(out, array @ array.T, rtol=1e-12, atol=1e-12)


def test_nothing_behind_an_operand_is_read(all_sizes):
    rng = np.random.default_rng(8)
    for turned in ((False, False), (True, False), (False, True)):
        node = product((37, 61), (61, 43), turned)
        kernel = GemmBackend().claim(node, 1)
        kernel.late.prepare((), wait=True)
        shapes = [shape[::-1] if each else shape for shape, each in zip(((37, 61), (61, 43)), turned, strict=True)]
        x, y = (before_a_guard(rng.standard_normal(shape)) for shape in shapes)
        x, y = (each.T if turn else each for each, turn in zip((x, y), turned, strict=True))
        np.testing.assert_allclose(kernel.call(np.empty((37, 43)), x, y), np.array(x) @ np.array(y), atol=1e-12)


def test_what_is_left_to_blas(lagging, monkeypatch):
    claim = GemmBackend().claim
    x, y = (param(Aval(shape, DOUBLE)) for shape in ((129, 120), (100, 120)))
    turned = apply("transpose", x, axes=(1, 0))
    square = apply("matmul", y, apply("transpose", y, axes=(1, 0)))
    assert claim(apply("matmul", x, turned), 2) is None  # half of the products there
    assert claim(apply("matmul", turned, x), 2) is not None
    assert claim(square, 2) is not None
    stacks = ((90, 100, 8), (90, 8, 100)), ((90, 100, 100), (90, 100, 8))
    few = ((15, 900), (900, 900)), ((900, 7), (7, 900)), ((900, 900), (900, 12))
    for shapes in (((64, 64), (64, 64)), *few, *stacks):
        assert claim(product(*shapes), 2) is None
    for shapes in (((900, 8), (8, 900)), ((900, 900), (900, 8)), ((90, 100, 16), (90, 16, 100))):
        assert claim(product(*shapes), 2) is not None
    assert claim(product((5000, 40), (40, 40), (True, False)), 2) is None
    assert claim(product((64, 65), (65, 64)), 2) is not None
    monkeypatch.setattr(openblas, "core", lambda: "SkylakeX")  # with vectors as long, half of the products are faster
    assert claim(square, 2) is None
    assert claim(product((64, 65), (65, 64)), 2) is not None
    monkeypatch.setattr(panels, "has_scale", lambda: False)
    assert claim(product((200, 120), (120, 200)), 2) is None


def test_a_blas_says_which_processor_it_is_for():
    core = openblas.core()
    assert core is None or core[0].isupper()


def test_a_function_and_its_slope_use_it():
    rng = np.random.default_rng(9)
    x, w = rng.standard_normal((150, 130)), rng.standard_normal((130, 140))

    def loss(w, x):
        return ((x @ w) ** 2).sum()

    slope = fx.grad(fx.futurize(loss))
    for _ in range(3):
        found = np.asarray(slope(w, x))
    np.testing.assert_allclose(found, 2 * x.T @ (x @ w), rtol=1e-11, atol=1e-9)
    assert "gemm" in {row.backend for row in slope.profile()}
