"""Systems with one matrix share its factors: NumPy's bits where NumPy factorises it so, its errors, and no sharing
where the numbers would be others."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import blas_threads as of_blas
from futurex.kernels.blas import lapack
from futurex.kernels.blas_threads import blas_threads
from futurex.kernels.openblas import function, libraries, symbol
from futurex.passes.pipeline import optimise
from futurex.passes.shared_factors import LEAST_ROWS, LEAST_VALUES, factorise_once
from futurex.tree import Aval, Graph, apply, item, param

found = pytest.mark.skipif(function("dgetrf_64_") is None, reason="no OpenBLAS is loaded that has the function")
DTYPES = ("f", "d", "F", "D")


def matrix_of(extent, dtype, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(extent, extent)) + (1j * rng.normal(size=(extent, extent)) if dtype in "FD" else 0)
    return a.astype(dtype)


def everything(a, b, c):
    sign, logarithm = np.linalg.slogdet(a)
    return np.linalg.solve(a, b), np.linalg.inv(a), np.linalg.solve(a, c), sign, logarithm


def turned(a, b, c):
    return np.linalg.solve(a.T, b), np.linalg.solve(a, c), np.linalg.inv(a.T), np.linalg.slogdet(a.T)[1]


def signs(a):
    first, second = np.linalg.slogdet(a), np.linalg.slogdet(a.T)
    return first[0], first[1], second[0], second[1]


def through(a):
    return np.linalg.slogdet(a)[1], np.linalg.solve(a, a[0])


def solved_twice(a, b):
    x = np.linalg.solve(a, b)
    return x + np.linalg.solve(a, x)


def likelihood(a, y):
    return 0.5 * y @ np.linalg.solve(a, y) + 0.5 * np.linalg.slogdet(a)[1]


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        one = np.asarray(one)
        assert one.dtype == np.asarray(other).dtype
        assert one.tobytes() == np.ascontiguousarray(other).tobytes()


def close(found, wanted, factor=1.0):
    for one, other in zip(found, wanted, strict=True):
        other = np.asarray(other)
        bound = factor * 1e-9 if other.dtype.char in "dD" else factor * 1e-4
        assert np.asarray(one).dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound * np.abs(other).max())


def nodes_of(function, *args):
    graph = function.trace(*args).graph
    return [node.op for node in optimise(graph).nodes]


@pytest.fixture
def one_thread():
    found = [symbol(library, "openblas_set_num_threads") for library in libraries()]
    before, changes = blas_threads(), [each for each in found if each is not None]
    for change in changes:
        change(1)
    yield
    for change, count in zip(changes, before, strict=True):
        change(count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", [64, 65, 130, 257])
@pytest.mark.parametrize("order", "CF")
def test_bits_are_those_of_numpy(dtype, extent, order, one_thread):
    """Where OpenBLAS uses as many threads for each of LAPACK's functions."""
    a = np.asarray(matrix_of(extent, dtype), order=order)
    b, c = matrix_of(extent, dtype, 1)[0], np.asarray(matrix_of(extent, dtype, 2)[:, :7], order=order)
    f = fx.futurize(everything)
    for _ in range(2):
        same(f(a, b, c), everything(a, b, c))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_transpose_is_solved_by_the_same_factors(dtype):
    a, b, c = matrix_of(90, dtype), matrix_of(90, dtype, 1)[:, :3], matrix_of(90, dtype, 2)[0]
    f = fx.futurize(turned)
    close(f(a, b, c), turned(a, b, c))


def test_how_often_a_matrix_is_factorised():
    x, y = matrix_of(80, "d"), np.ones(80)
    ops = nodes_of(fx.value_and_grad(likelihood, argnums=(0, 1)), x, y)
    assert ops.count("lu") == 1
    assert not {"solve", "inv", "slogdet"} & set(ops)


@pytest.mark.parametrize(
    ("extent", "a", "b", "ops"),
    [
        (LEAST_ROWS - 1, "d", "d", 2), (LEAST_ROWS, "d", "d", 0), (80, "d", "D", 2), (80, "f", "d", 0),
        (80, "d", "l", 0), (80, "D", "d", 0), (80, "l", "d", 2),
    ],
)  # fmt: skip
def test_which_systems_share(extent, a, b, ops):
    """A real matrix with complex sides is a complex one for NumPy; of integers nobody keeps matrices."""
    matrix = (10 * matrix_of(extent, "d") + 50 * np.eye(extent)).astype(a)
    sides = (10 * matrix_of(extent, "d", 1)[0]).astype(b)
    assert nodes_of(fx.futurize(solved_twice), matrix, sides).count("solve") == ops
    close([fx.futurize(solved_twice)(matrix, sides)], [solved_twice(matrix, sides)])


def test_stacks_triangles_and_single_askers_are_left_alone():
    double = np.dtype(float)
    stack, one, b = (param(Aval(shape, double), "x") for shape in ((3, 80, 80), (80, 80), (80,)))
    factor = apply("cholesky", one, upper=False)
    for outs in (
        [apply("solve", stack, b), apply("inv", stack)], [apply("inv", factor), apply("solve", factor, b)],
        [apply("solve", one, b)], [apply("solve", one, stack), apply("inv", one)],
    ):  # fmt: skip
        graph = Graph([stack, one, b], outs)
        assert factorise_once(graph) is graph


@pytest.mark.parametrize("extent", [64, 200])
def test_a_singular_matrix(extent):
    a = matrix_of(extent, "d")
    a[:, 5] = 0
    f = fx.futurize(solved_twice)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        np.asarray(f(a, a[0]))
    for _ in range(2):
        found = fx.futurize(signs)(a)
        same(found, signs(a))
        assert found[1] == -np.inf
    regular = matrix_of(extent, "d", 3)
    close([f(regular, a[0])], [solved_twice(regular, a[0])])


@pytest.mark.parametrize("dtype", "dD")
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e-310, 1e300])
def test_unusual_numbers(dtype, number):
    a = matrix_of(64, dtype)
    a[3, 4] = number
    a[9] *= -1
    with np.errstate(all="ignore"):
        for function in (signs, through):
            for found, wanted in zip(fx.futurize(function)(a), function(a), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_lapack_the_matrix_stands_for_its_factors(dtype, monkeypatch):
    monkeypatch.setattr(lapack, "_functions", lambda char: None)
    a, b, c = matrix_of(70, dtype), matrix_of(70, dtype, 1)[0], matrix_of(70, dtype, 2)[:, :2]
    close(fx.futurize(turned)(a, b, c), turned(a, b, c))
    close(fx.futurize(everything)(a, b, c), everything(a, b, c))
    found, wanted = fx.futurize(signs)(a), signs(a)
    close(found, wanted)


def test_derivatives_are_those_of_a_sum():
    """Of the logarithm of a determinant and a quadratic form, by Giles (2008)."""
    a, y = matrix_of(70, "d") + 20 * np.eye(70), matrix_of(70, "d", 1)[0]
    da, dy = fx.grad(likelihood, argnums=(0, 1))(a, y)
    x, z = np.linalg.solve(a, y), np.linalg.solve(a.T, y)
    np.testing.assert_allclose(da, 0.5 * np.linalg.inv(a).T - 0.5 * np.outer(z, x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dy, 0.5 * (x + z), rtol=1e-9, atol=1e-12)


@found
def test_right_sides_are_shared_among_threads(monkeypatch):
    a = matrix_of(150, "d") + 20 * np.eye(150)
    matrix = param(Aval(a.shape, a.dtype), "a")
    factors = apply("lu", matrix)
    second = apply("lu_inv", item(factors, 0), item(factors, 1), turned=False, dtype=a.dtype)
    columns, pivots = lapack.kernel_for(factors, 1).call((np.empty_like(a), np.empty(151, np.int64)), a)
    asked, calls = [], lapack.together
    monkeypatch.setattr(lapack, "together", lambda tasks: [asked.append(len(tasks)), calls(tasks)])
    found = [lapack.kernel_for(second, threads).call(np.empty_like(a), columns, pivots) for threads in (1, 2)]
    assert asked == []
    monkeypatch.setattr(lapack, "LEAST_PRODUCTS", 1000)
    found += [lapack.kernel_for(second, threads).call(np.empty_like(a), columns, pivots) for threads in (2, 7)]
    assert asked == [2, 7]
    for each in found:
        np.testing.assert_allclose(each @ a, np.eye(150), atol=1e-9)


def test_openblas_has_its_threads_again():
    before = blas_threads()
    a, b = matrix_of(200, "d"), matrix_of(200, "d", 1)
    np.asarray(fx.futurize(solved_twice)(a, b))
    assert blas_threads() == before
    a[:, 0] = 0
    with pytest.raises(np.linalg.LinAlgError):
        np.asarray(fx.futurize(solved_twice)(a, b))
    assert blas_threads() == before


def energies(a):
    return np.sqrt(np.linalg.eigvalsh(a @ a.T)).sum() + np.linalg.norm(a, "nuc")


def values_and_vectors(a):
    return np.linalg.eigvalsh(a), np.linalg.eigh(a)[1], np.linalg.eigvalsh(a, "U"), np.linalg.svd(a, compute_uv=False)


@pytest.mark.parametrize(("extent", "alone"), [(LEAST_VALUES - 1, 1), (LEAST_VALUES, 0)])
def test_values_are_those_beside_their_vectors(extent, alone):
    a = matrix_of(extent, "d")
    f = fx.value_and_grad(energies)
    ops = nodes_of(f, a)
    assert [ops.count(op) for op in ("eigvalsh", "eigh", "svdvals", "svd")] == [alone, 1, alone, 1]
    value, gradient = f(a)
    u, s, vh = np.linalg.svd(a)
    np.testing.assert_allclose(value, 2 * s.sum(), rtol=1e-10)
    np.testing.assert_allclose(gradient, 2 * u @ vh, rtol=1e-6, atol=1e-9)


def of_two_matrices(a, b):
    return np.linalg.eigvalsh(a), np.linalg.eigh(b)[1], np.linalg.svd(b, compute_uv=False), np.linalg.svd(a)[0]


def test_values_of_one_matrix_are_not_those_beside_vectors_of_another():
    a, b = matrix_of(40, "d"), matrix_of(40, "d", 1)
    close(fx.futurize(of_two_matrices)(a, b)[::2], of_two_matrices(a, b)[::2])
    ops = nodes_of(fx.futurize(of_two_matrices), a, b)
    assert [ops.count(op) for op in ("eigvalsh", "eigh", "svdvals", "svd")] == [1, 1, 1, 1]


def iterated(a, b):
    for _ in range(200):
        b = np.tanh(np.linalg.solve(a, np.linalg.solve(a, b)) + np.linalg.slogdet(a)[1])
        a = a + 1e-3 * b
    return b


def test_rounds_of_loops_are_left_alone():
    """Code of loops calls LAPACK by NumPy's own functions."""
    a, b = matrix_of(70, "d") + 20 * np.eye(70), matrix_of(70, "d", 1)[0]
    (loop,) = (node for node in optimise(fx.futurize(iterated).trace(a, b).graph).nodes if node.op == "loop")
    assert "lu" not in {node.op for node in loop.attrs["body"].nodes}
    close([fx.futurize(iterated)(a, b)], [iterated(a, b)])


@found
@pytest.mark.parametrize(("most", "calls"), [(1000, 2), (60, 1)])
def test_factors_are_made_and_used_by_the_calling_thread(most, calls, monkeypatch):
    entered = []
    monkeypatch.setattr(lapack, "MOST_ALONE", most)
    monkeypatch.setattr(of_blas, "_enter", lambda: entered.append(1))
    a = matrix_of(64, "d")
    factors = apply("lu", param(Aval(a.shape, a.dtype), "a"))
    columns, pivots = lapack.kernel_for(factors, 2).call((np.empty_like(a), np.empty(65, np.int64)), a)
    inverse = apply("lu_inv", item(factors, 0), item(factors, 1), turned=False, dtype=a.dtype)
    lapack.kernel_for(inverse, 2).call(np.empty_like(a), columns, pivots)
    assert len(entered) == calls


def test_values_of_the_other_half_or_without_vectors_are_asked_for_alone():
    a = matrix_of(40, "d")
    ops = nodes_of(fx.futurize(values_and_vectors), a)
    assert [ops.count(op) for op in ("eigvalsh", "eigh", "svdvals", "svd")] == [1, 1, 1, 0]
    close(fx.futurize(values_and_vectors)(a)[::2], values_and_vectors(a)[::2])
