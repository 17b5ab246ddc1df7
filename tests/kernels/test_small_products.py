"""Products of many small matrices, written out."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

import futurex as fx
from futurex.kernels.gemm import GemmBackend
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.small_products import SmallProduct
from futurex.tree.aval import Aval
from futurex.tree.node import apply, param

pytestmark = [pytest.mark.onednn, pytest.mark.skipif(not has_fma(), reason="chains of fused multiply-adds")]
DTYPES = [np.float32, np.float64]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def made(x, y, threads=1):
    """The result of the kernel for these operands, into memory full of other numbers; None where it claims nothing."""
    node = apply("matmul", *(param(Aval(each.shape, each.dtype), name) for each, name in ((x, "x"), (y, "y"))))
    kernel = GemmBackend().claim(node, threads)
    if kernel is None or not isinstance(kernel.call, SmallProduct):
        return None
    kernel.late.prepare((), wait=True)
    out = np.full(node.shape, 7.0, node.dtype)
    assert kernel.call(out, x, y) is out
    assert kernel.late.interpreted == 0
    return out


def check(x, y, threads=1):
    found, wide = made(x, y, threads), np.longdouble
    assert found is not None
    bound = np.matmul(np.abs(x).astype(wide), np.abs(y).astype(wide)) * x.shape[-1] * np.finfo(x.dtype).eps
    exact = np.matmul(x.astype(wide), y.astype(wide))
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= bound).all()
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (3, 3, 3), (3, 3, 1), (1, 3, 3), (2, 5, 7), (4, 16, 1), (9, 9, 9), (17, 3, 5), (8, 8, 32), (33, 4, 17),
     (70, 7, 9), (5, 32, 31), (64, 2, 2)],
)  # fmt: skip
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_each_is_the_product_of_its_matrices(rng, dtype, sizes, turned):
    rows, inner, columns = sizes
    x = rng.standard_normal((65, *((inner, rows) if turned[0] else (rows, inner)))).astype(dtype)
    y = rng.standard_normal((65, *((columns, inner) if turned[1] else (inner, columns)))).astype(dtype)
    check(np.swapaxes(x, 1, 2) if turned[0] else x, np.swapaxes(y, 1, 2) if turned[1] else y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shapes",
    [((70, 3, 3), (3, 3)), ((3, 3), (70, 3, 2)), ((70, 3, 3), (3,)), ((3,), (70, 3, 5)), ((8, 9, 3, 4), (8, 9, 4, 2)),
     ((1, 4, 4), (70, 4, 4)), ((1100, 3), (3, 3)), ((1500, 31), (31, 7)), ((40, 70, 3), (3, 3)), ((3,), (70, 3, 1))],
)  # fmt: skip
def test_one_operand_may_be_the_same_for_all(rng, dtype, shapes):
    check(*(rng.standard_normal(shape).astype(dtype) for shape in shapes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_lie_anywhere(rng, dtype):
    whole = rng.standard_normal((140, 9, 9)).astype(dtype)
    for x in (whole[:, :3, 2:5], whole[::2, ::3, :4][:, :, :3], whole[::-1, :3, :3], whole[:, 1:9:3, ::3]):
        check(x, np.ascontiguousarray(x))
        check(np.swapaxes(x, 1, 2), x)
    column = rng.standard_normal((70, 3, 3)).astype(dtype)[:, 0, ::-1]
    check(rng.standard_normal((70, 5, 3)).astype(dtype), column[..., None])
    check(rng.standard_normal((70, 5, 3)).astype(dtype), rng.standard_normal(9).astype(dtype)[::-3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(rng, dtype):
    x, y = rng.standard_normal((5000, 5, 6)).astype(dtype), rng.standard_normal((5000, 6, 3)).astype(dtype)
    np.testing.assert_array_equal(check(x, y, threads=2), check(x, y))
    tall, small = rng.standard_normal((20_001, 5)).astype(dtype), rng.standard_normal((5, 4)).astype(dtype)
    np.testing.assert_array_equal(check(tall, small, threads=2), check(tall, small))


def test_sums_are_chains_of_fused_multiply_adds(rng):
    x, y = rng.standard_normal((64, 2, 6)), rng.standard_normal((64, 6, 3))
    found = made(x, y)
    for (stack, i, j), value in np.ndenumerate(found):
        total = Fraction(0)
        for k in range(6):
            total = Fraction(float(total + Fraction(x[stack, i, k]) * Fraction(y[stack, k, j])))
        assert Fraction(value) == total


def test_nan_infinity_and_zeros_stay_in_their_places():
    x, y = np.ones((64, 3, 3)), np.ones((64, 3, 3))
    x[2, 1, 0], x[3, 0, 2], y[4, 2, 1] = np.nan, np.inf, -np.inf
    x[5], y[5] = -0.0, 1.0
    expected = x @ y
    np.testing.assert_array_equal(made(x, y), expected)
    assert not np.signbit(made(x, y)[5]).any()


def test_others_are_not_claimed(rng):
    def claims(*shapes, dtype=np.float64):
        return made(*(np.ones(shape, dtype) for shape in shapes)) is not None

    assert claims((64, 3, 3), (64, 3, 3))
    assert not claims((63, 3, 3), (63, 3, 3))  # a few
    assert not claims((64, 3, 33), (64, 33, 3))
    assert not claims((64, 3, 3), (64, 3, 33))
    assert not claims((64, 3, 17), (64, 17, 1))  # long sums
    assert not claims((8, 1, 3, 3), (1, 9, 3, 3))  # neither stack is the result's
    assert not claims((64, 3, 0), (64, 0, 3))
    assert not claims((1000, 3), (3, 3))
    assert claims((1100, 3), (3, 3))
    assert not claims((1100, 3), (3, 1))
    assert not claims((1100, 3), (3, 9))
    assert claims((1100, 3), (3, 9), dtype=np.float32)
    assert not claims((64, 3, 3), (64, 3, 3), dtype=np.complex128)


def of_many(rotations, points, offsets):
    moved = rotations @ points[..., None]
    turned = np.swapaxes(rotations, 1, 2) @ rotations
    return moved[..., 0] + offsets, turned, np.einsum("nij,nj->ni", rotations, points), np.matvec(rotations, points)


@given(
    st.integers(8, 16), st.sampled_from(DTYPES),
    hnp.arrays(np.float64, (9, 3, 3), elements=st.floats(-4, 4)),
    hnp.arrays(np.float64, (9, 3), elements=st.floats(-4, 4)),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_functions_of_many_points(count, dtype, rotations, points):
    args = [np.concatenate([each] * count).astype(dtype) for each in (rotations, points, points)]
    f = fx.futurize(of_many)
    fx.precompile(f, *args)
    for found, expected in zip(f(*args), of_many(*args), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_derivatives_are_those_of_differences(rng):
    x, y = rng.standard_normal((70, 3, 4)), rng.standard_normal((70, 4, 2))
    weights = rng.standard_normal((70, 3, 2))

    def loss(x, y):
        return np.sum(np.tanh(x @ y) * weights)

    for k, found in enumerate(fx.grad(loss, argnums=(0, 1))(x, y)):
        direction = rng.standard_normal(found.shape)
        moved = [(each + s * 1e-6 * direction) if n == k else each for s in (1, -1) for n, each in enumerate((x, y))]
        slope = (loss(*moved[:2]) - loss(*moved[2:])) / 2e-6
        np.testing.assert_allclose(np.sum(np.asarray(found) * direction), slope, rtol=1e-6)


def test_mapped_over_examples(rng):
    matrices, vectors = rng.standard_normal((70, 4, 4)), rng.standard_normal((70, 4))
    found = fx.futurize(lambda a, v: fx.vmap(lambda a, v: v @ a @ v)(a, v))(matrices, vectors)
    np.testing.assert_allclose(found, np.einsum("ni,nij,nj->n", vectors, matrices, vectors), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", ["ni,nj->nij", "nj,ni->nij", "i,j->ij", "ni,n->in", "ij,kl->ljki", "nij,nij->nij"])
def test_products_without_sums_have_the_bits_of_numpy(rng, dtype, text):
    extents = {"n": 300, "i": 17, "j": 18, "k": 13, "l": 20}
    names = text.split("->")[0].split(",")
    if len(text) == 6:
        extents = {"i": 500, "j": 700}
    x, y = (rng.standard_normal([extents[letter] for letter in own]).astype(dtype) for own in names)
    x.flat[3], x.flat[5], y.flat[7] = -0.0, np.nan, np.inf
    f = fx.futurize(lambda x, y: np.einsum(text, x, y))
    fx.precompile(f, x, y)
    expected = np.einsum(text, x, y)
    found = np.asarray(f(x, y))
    np.testing.assert_array_equal(found, expected, strict=True)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_stacks_of_stacks_are_read_as_they_lie(rng, dtype):
    """Windows of pictures, and parts of the axes of both operands: nothing is copied."""
    x, y = rng.standard_normal((5, 30, 34, 6)).astype(dtype), rng.standard_normal((5, 30, 6, 9)).astype(dtype)
    for one, other in (
        (x[:, 1:29, 2:34], rng.standard_normal((6, 4)).astype(dtype)),
        (x[:, 1:29, 2:34, 1:4], y[:, 2:, :3]),
        (x[:, ::2, 3:6], np.ascontiguousarray(y[:, ::2])),
        (np.swapaxes(x[1:, 1:29, :9, 3:], 2, 3), y[:-1, 1:29, :1].repeat(9, 2)[..., 1:]),
        (rng.standard_normal((4, 6)).astype(dtype), np.swapaxes(x[:, 1:29, :7], 2, 3)),
    ):
        node = apply("matmul", *(param(Aval(each.shape, each.dtype), "x") for each in (one, other)))
        out = np.empty(node.shape, dtype)
        assert GemmBackend().claim(node, 1).call.lies((out, one, other)) is not None
        for threads in (1, 2):
            check(one, other, threads)
