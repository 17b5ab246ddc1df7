"""Linear algebra, Fourier transforms and products in staged code mean what they mean in NumPy."""

import functools

import numpy as np
import pytest
from compare import COMPLEX_TOO, agree, is_staged, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from linalg_cases import BAD_EINSUM, EINSUM, MATRIX, PRODUCTS, REAL, SELECTED, SQUARE, WRITES

import futurex as fx
from futurex.frontend.numpy_api import HANDLERS
from futurex.frontend.numpy_api.source import WALKED

pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = (np.float64, np.float32, np.complex128, np.complex64, np.int64, np.float16, np.bool_)


def numbers(rng, shape, dtype):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.6
    if kind in "iu":
        return rng.integers(-5, 6, shape).astype(dtype)
    values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if kind == "c" else 0)
    return np.asarray(values).astype(dtype)


def positive(rng, shape, dtype):
    x = numbers(rng, shape, dtype)
    return (x @ np.swapaxes(x.conj(), -1, -2) + 4 * np.eye(shape[-1])).astype(dtype)


def compare(function, args, staged=True, equal=lambda a, b: a == b):
    expected = outcome(function, args)
    futurized = fx.futurize(function)
    for _ in range(2):
        actual = outcome(futurized, args)
        assert equal(actual, expected), f"{actual}\nis not\n{expected}\n{futurized.explain()}"
    if staged is not None:
        assert is_staged(futurized, args) == staged, futurized.explain()


near = functools.partial(agree, rounding=COMPLEX_TOO)
each_type = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)


@each_type
@pytest.mark.parametrize("name", SQUARE)
def test_functions_of_square_matrices(name, dtype):
    rng = np.random.default_rng(1)
    for shape in ((3, 3), (2, 3, 3), (0, 0)):
        b = numbers(rng, (*shape[:-1], 2), dtype)
        compare(SQUARE[name], (positive(rng, shape, dtype), b, numbers(rng, shape[-1:], dtype)))


@each_type
@pytest.mark.parametrize("name", MATRIX)
def test_functions_of_matrices(name, dtype):
    rng = np.random.default_rng(2)
    for shape in ((3, 4), (4, 3), (2, 5, 3)):
        compare(MATRIX[name], (numbers(rng, shape, dtype),))


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if np.dtype(dtype).kind != "c"], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", REAL)
def test_functions_of_real_matrices(name, dtype):
    rng = np.random.default_rng(3)
    for shape in ((3, 4), (4, 5)):
        compare(REAL[name], (numbers(rng, shape, dtype),))


@each_type
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    rng = np.random.default_rng(4)
    args = tuple(numbers(rng, shape, dtype) for shape in ((3, 4), (4, 3), (2, 3, 4), (4,), (3,)))
    # np.tensordot calls a BLAS for products of one column and one row, where complex numbers are rounded by its kernels
    compare(PRODUCTS[name], args, equal=near if name == "tensordot" else agree)


OPERANDS = {
    "x": (3, 4), "y": (4, 3), "s": (2, 3, 4), "v": (4,), "w": (3,), "a": (), "q": (3, 3), "c": (3, 3, 3), "o": (3, 1),
}  # fmt: skip


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subscripts, names", EINSUM)
def test_einsum(subscripts, names, optimize):
    rng = np.random.default_rng(5)
    for dtype in (np.float64, np.complex64, np.int8, np.bool_):
        args = [np.asarray(numbers(rng, OPERANDS[name], dtype)) for name in names]
        compare(lambda *args: np.einsum(subscripts, *args, optimize=optimize), args, equal=near)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subscripts, names", BAD_EINSUM)
def test_einsum_refuses_what_numpy_refuses(subscripts, names, optimize):
    args = [np.ones(OPERANDS[name]) for name in names]
    compare(lambda *args: np.einsum(subscripts, *args, optimize=optimize), args)


def unread(a):
    np.linalg.cholesky(a)  # only for its error
    return a + 1


def unread_in_a_branch(a):
    if a[0, 0] > 0:
        np.linalg.inv(a)
    return a + 1


def unread_in_a_loop(a):
    k = a[0, 0]
    while k < 3:
        factors = np.linalg.eigh(a / k)  # noqa: F841
        k = k + 1
    return k


def unread_after_a_write(a):
    a[1, 1] = 7
    np.linalg.inv(a[:1, :1] - 1)
    a[2, 2] = 8


def unread_row(a):
    a[np.array([0, 1]) + a[0, 0].astype(int)]
    return a.sum()


def unread_solution_of_a_part(a):
    with np.errstate(all="ignore"):
        u, _, _ = np.linalg.svd(a / (a[0, 0] - 1))
    return u.shape


@pytest.mark.parametrize("function", [
    unread, unread_in_a_branch, unread_in_a_loop, unread_after_a_write, unread_row, unread_solution_of_a_part,
])  # fmt: skip
def test_errors_of_results_that_nobody_reads(function):
    for corner in (1.0, 2.0, -1.0, 9.0):
        for rest in (1.0, 0.0):
            compare(function, (np.diag([corner, rest, 1.0]),))


def test_a_gradient_raises_for_a_factor_that_nobody_reads():
    def loss(a):
        np.linalg.cholesky(a)
        return (a * a).sum()

    np.testing.assert_array_equal(fx.grad(loss)(np.eye(2)), 2 * np.eye(2))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        fx.grad(loss)(-np.eye(2)).result()


def caught(a):
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError as error:
        return str(error)


def fallback(a):
    result = np.linalg.cholesky(a) if a[0, 0] > 0 else np.linalg.inv(a)
    return result * 2


@pytest.mark.parametrize("function, staged", [(caught, False), (fallback, True)])
def test_errors_that_depend_on_values(function, staged):
    for corner in (1.0, -1.0, 0.0):
        compare(function, (np.diag([corner, 1.0]),), staged=staged)


def test_an_error_names_the_line_of_the_user():
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix") as caught:
        fx.futurize(lambda a: np.linalg.inv(a) + 1)(np.zeros((2, 2))).result()
    assert any("np.linalg.inv(a) + 1" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("name", WRITES)
def test_writes_into_results_and_arguments(name):
    rng = np.random.default_rng(6)
    args = (numbers(rng, (3, 3), float), numbers(rng, (3, 3), complex), numbers(rng, (3,), float))
    compare(WRITES[name], args, staged=None, equal=agree)


def test_every_public_function_is_staged():
    """All but the eigenvalues of real matrices, whose type depends on the matrix."""
    handled = {
        name for module in (np.linalg, np.fft) for name in module.__all__
        if (function := getattr(module, name)) in HANDLERS or function in WALKED
    }  # fmt: skip
    assert {*np.linalg.__all__, *np.fft.__all__} - handled == {"LinAlgError"}
    for name in ("eig", "eigvals"):
        function = getattr(np.linalg, name)
        compare(lambda a: function(a), (np.eye(3) * (1 + 2j),))  # noqa: B023
        compare(lambda a: function(a), (np.eye(3),), staged="fragment")  # noqa: B023


@st.composite
def contractions(draw):
    """Subscripts, shapes and types of up to three operands: repeated letters, broadcast dimensions, ellipses, no arrow;
    and ``optimize=``."""
    extents = {letter: draw(st.integers(1, 3)) for letter in "abcdA"}
    front = draw(st.lists(st.integers(1, 2), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        letters = draw(st.lists(st.sampled_from(sorted(extents)), max_size=3))
        own = {letter: draw(st.sampled_from([extents[letter], extents[letter], 1])) for letter in letters}
        dots = draw(st.integers(0, len(front))) if draw(st.booleans()) else None
        place = draw(st.integers(0, len(letters)))
        shape, term = [own[letter] for letter in letters], list(letters)
        if dots is not None:
            shape[place:place], term[place:place] = front[len(front) - dots :], ["..."]
        shapes.append(tuple(shape))
        terms.append("".join(term))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        seen = sorted(set(subscripts) - set(",."))
        out = draw(st.lists(st.sampled_from(seen), max_size=3, unique=True)) if seen else []
        out.insert(draw(st.integers(0, len(out))), "..." if draw(st.integers(0, 4)) else "")
        subscripts += f"->{''.join(out)}"
    types = draw(st.lists(st.sampled_from("dDfhliB?"), min_size=len(terms), max_size=len(terms)))
    return subscripts, shapes, types, draw(st.sampled_from([False, True, "optimal"]))


@settings(max_examples=250, deadline=None)
@given(contractions())
def test_einsum_of_anything(contraction):
    subscripts, shapes, types, optimize = contraction
    rng = np.random.default_rng(len(subscripts))
    args = [rng.integers(-4, 5, shape).astype(code) for shape, code in zip(shapes, types, strict=True)]

    def contracted(*args):
        result = np.einsum(subscripts, *args, optimize=optimize)
        return isinstance(result, np.ndarray), result

    compare(contracted, args, equal=near)  # zeros may have another sign


def test_einsum_of_lists_and_options():
    x, y, v = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(4, 3), np.arange(4, dtype=np.float32)
    functions = [
        lambda x, y, v: np.einsum(x, [0, 1], y, [1, 2]),
        lambda x, y, v: np.einsum(x, [0, 1], y, [1, 2], [2, 0]),
        lambda x, y, v: np.einsum(x, [Ellipsis, 1], v, [1], [Ellipsis]),
        lambda x, y, v: np.einsum(x, [30, 2], [2]),
        lambda x, y, v: np.einsum("ij,jk", x, y, dtype=complex, casting="safe"),
        lambda x, y, v: np.einsum("ij,jk", x, y, dtype=np.float32, casting="same_kind"),
        lambda x, y, v: np.einsum("i,i", v, v, dtype=np.int64),
        lambda x, y, v: np.einsum("ij,jk", x, y, order="C").ravel(),
        lambda x, y, v: np.einsum("ij,jk,kl->il", x, y, x, optimize=["einsum_path", (1, 2), (0, 1)]),
        lambda x, y, v: np.einsum_path("ij,jk,kl", x, y, x),
        lambda x, y, v: np.einsum("ij,j", x, [1, 2, 3, 4]),
        lambda x, y, v: np.einsum(",i->i", 2, v),
        lambda x, y, v: np.einsum("i,i,i", v.astype(np.int8) * 100, v.astype(np.int8), v),
        lambda x, y, v: np.einsum("ij,jk", x, y, optimise=True),
    ]
    for function in functions:
        compare(function, (x, y, v), staged=None, equal=agree)


@pytest.mark.parametrize("name", SELECTED)
def test_functions_of_selected_rows(name):
    rng = np.random.default_rng(12)
    for cut in (0.0, -9.0, 9.0):
        compare(SELECTED[name], (numbers(rng, (5, 5), float), rng.normal(size=5) - cut), equal=agree)


SELECTED_LOSSES = {
    "norm": lambda x, v: np.linalg.norm(x[v > 0]),
    "inv": lambda x, v: np.linalg.inv(x[v > 0].T @ x[v > 0] + np.eye(4)).sum(),
    "det": lambda x, v: np.linalg.det(x[v > 0][:, v > 0]),
    "lstsq": lambda x, v: np.linalg.lstsq(x[v > 0], v[v > 0])[0].sum(),
    "eigh": lambda x, v: np.linalg.eigvalsh((x @ x.T)[v > 0][:, v > 0])[0],
    "einsum": lambda x, v: np.einsum("ij,i->j", x[v > 0], v[v > 0])[0],
    "fft": lambda x, v: abs(np.fft.fft(x[v > 0, 0])[1]),
}


@pytest.mark.parametrize("name", SELECTED_LOSSES)
def test_gradients_of_functions_of_selected_rows(name):
    function = SELECTED_LOSSES[name]
    x, v = np.random.default_rng(13).normal(size=(4, 4)), np.array([1.0, -1.0, 2.0, 3.0])
    steps = 1e-6 * np.eye(16).reshape(16, 4, 4)
    expected = np.array([(function(x + step, v) - function(x - step, v)) / 2e-6 for step in steps]).reshape(4, 4)
    np.testing.assert_allclose(fx.grad(function)(x, v), expected, rtol=1e-5, atol=1e-7)
