"""oneDNN kernels against small float64 references: matrix products."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from futurex.kernels import onednn
from futurex.kernels.onednn import gemm
from futurex.kernels.onednn_backend import OneDNNBackend
from futurex.ops import epilogue  # noqa: F401  (registers matmul_epilogue)
from futurex.tree import Aval, apply, param

pytestmark = [pytest.mark.onednn, pytest.mark.skipif(not onednn.available(), reason=onednn.why_not())]
quick = settings(max_examples=60, deadline=None)
close = {"rtol": 2e-5, "atol": 2e-5}


def floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def run(kernel, shapes, *inputs):
    outs = tuple(np.full(shape, np.nan, np.float32) for shape in shapes)
    kernel(outs if len(outs) > 1 else outs[0], *inputs)
    return outs


BATCHES = [
    ((), ()),
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((2, 1), (3,)),
    ((2, 3), (2, 3)),
    ((1, 2), (3, 1)),
    ((0,), (1,)),
]
sizes = st.sampled_from([1, 2, 5, 16, 33, 70])


def swapped(array: np.ndarray, swap: bool) -> np.ndarray:
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if swap else array


@quick
@given(
    sizes,
    sizes,
    sizes,
    st.sampled_from(BATCHES),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_matmul_matches_reference(m, k, n, batches, transpose_x, transpose_y, bias):
    rng = np.random.default_rng(0)
    x, y, b = floats(rng, (*batches[0], m, k)), floats(rng, (*batches[1], k, n)), floats(rng, (n,))
    expected = np.matmul(x, y, dtype=np.float64) + (b if bias else 0)
    x, y = swapped(x, transpose_x), swapped(y, transpose_y)
    kernel = onednn.matmul(x.shape, y.shape, transpose_x, transpose_y, bias)
    (out,) = run(kernel, [expected.shape], x, y, *[b] * bias)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=5e-5)


def unaligned(array):
    """The same, as it may lie in what a process has received."""
    moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def views(rng, shape):
    """Arrays of this shape that lie in memory in as many ways as there are."""
    yield floats(rng, shape)
    yield floats(rng, (*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    yield floats(rng, (*shape[:-1], shape[-1] + 5))[..., 3:-2]
    yield floats(rng, (*shape[:-1], shape[-1] * 2))[..., ::2]
    yield floats(rng, shape)[..., ::-1]
    yield unaligned(floats(rng, shape))
    if len(shape) > 2:
        yield np.broadcast_to(floats(rng, shape[-2:]), shape)
    if len(shape) == 4:
        yield floats(rng, (shape[0], shape[2], shape[1], shape[3])).transpose(0, 2, 1, 3)
        yield floats(rng, (shape[0], shape[3], shape[1], shape[2])).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 3, 70, 64), (2, 3, 64, 96)), ((128, 200), (200, 96)), ((2, 3, 70, 64), (64, 96)),
        ((3, 70, 64), (2, 3, 64, 96)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_views_equal_numpys(first, second, biased):
    rng = np.random.default_rng(2)
    bias = floats(rng, second[-1:])
    names = (("x", first), ("y", second), ("b", bias.shape))[: 2 + biased]
    node = apply(
        "matmul_epilogue" if biased else "matmul",
        *(param(Aval(shape, np.dtype("float32")), name) for name, shape in names),
    )
    kernel = OneDNNBackend.if_available().claim(node, 2)
    for x, y in itertools.product(views(rng, first), views(rng, second)):
        out = np.full(node.shape, np.nan, np.float32)
        kernel.call(out, x, y, *([bias] if biased else []))
        product = np.matmul(x, y, dtype=np.float64)
        expected = product + bias if biased else product
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4, err_msg=f"{x.strides} {y.strides}")


def test_windows_that_overlap_are_copied():
    """The library describes no memory in which two elements have one address."""
    rng = np.random.default_rng(3)
    signal, w = floats(rng, (32, 50, 6)), floats(rng, (60, 48))
    windows = np.lib.stride_tricks.as_strided(signal, (41, 32, 60), (24, 1200, 4), writeable=False)
    node = apply("matmul", *(param(Aval(each.shape, np.dtype("float32"))) for each in (windows, w)))
    out = np.full(node.shape, np.nan, np.float32)
    OneDNNBackend.if_available().claim(node, 2).call(out, windows, w)
    np.testing.assert_allclose(out, np.matmul(windows, w, dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_matmul_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="inner size 3"):
        onednn.matmul((2, 3), (4, 5))
    assert onednn.matmul((3,), (3, 5)) is None


@quick
@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(1, 150), st.sampled_from([(), (1,), (2,), (5,), (3, 2)]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(2, 17),
)  # fmt: skip
def test_products_in_parts_are_those_of_the_whole(rows, inner, columns, batch, how, threads):
    turned_x, turned_y, bias = how
    rng = np.random.default_rng(4)
    x = floats(rng, (*batch, *((inner, rows) if turned_x else (rows, inner))))
    y = floats(rng, (*batch, *((columns, inner) if turned_y else (inner, columns))))
    b = [floats(rng, (columns,))] * bias
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "LEAST_SHARED", 0)
        kernel = onednn.matmul(x.shape, y.shape, turned_x, turned_y, bias, threads=threads)
    expected = np.matmul(*(each.swapaxes(-1, -2) if turned else each
                           for each, turned in ((x, turned_x), (y, turned_y))))  # fmt: skip
    [found] = run(kernel, [expected.shape], x, y, *b)
    np.testing.assert_allclose(found, expected + (b[0] if bias else 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned_x", [False, True])
@pytest.mark.parametrize("turned_y", [False, True])
@pytest.mark.parametrize("rows, columns, threads", [(70, 30, 2), (12, 300, 2), (64, 256, 4), (50, 200, 7)])
def test_products_by_the_librarys_blas_are_cut(monkeypatch, turned_x, turned_y, rows, columns, threads):
    for name, value in (("LEAST_SHARED", 0), ("_SMALL", 0), ("_FEW_ROWS", 1000)):
        monkeypatch.setattr(gemm, name, value)
    rng = np.random.default_rng(9)
    x_shape, y_shape = (33, rows) if turned_x else (rows, 33), (columns, 33) if turned_y else (33, columns)
    kernel = onednn.matmul(x_shape, y_shape, turned_x, turned_y, threads=threads)
    assert set(kernel.implementations) == {"sgemm"}
    assert len(kernel.implementations) > 1
    for _ in range(2):  # where the arrays lie is asked each time
        x, y = floats(rng, x_shape), floats(rng, y_shape)
        [found] = run(kernel, [(rows, columns)], x, y)
        np.testing.assert_allclose(found, (x.T if turned_x else x) @ (y.T if turned_y else y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_products_of_views_in_parts_are_those_of_the_whole(monkeypatch, threads):
    monkeypatch.setattr(gemm, "LEAST_SHARED", 0)
    rng = np.random.default_rng(5)
    for x, y in (
        (floats(rng, (4, 32, 3, 16)).transpose(0, 2, 1, 3), floats(rng, (4, 32, 3, 16)).transpose(0, 2, 3, 1)),
        (floats(rng, (70, 40))[:, :33], floats(rng, (33, 300))[:, :200]),
        (floats(rng, (70, 40))[:, :33], floats(rng, (300, 33)).T[:, :200]),
    ):
        strides = (tuple(step // 4 for step in each.strides) for each in (x, y))
        (x_strides, y_strides), expected = strides, x @ y
        kernel = onednn.matmul_of_views(x.shape, x_strides, y.shape, y_strides, threads=threads)
        np.testing.assert_allclose(*run(kernel, [expected.shape], x, y), expected, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([(), (2,), (7,), (3, 2)]), st.integers(2, 40))
def test_tiles_cover_a_result_once(rows, columns, batch, threads):
    seen = np.zeros((*batch, rows, columns), np.int64)
    tiles = gemm.tiles_of(seen.shape, threads)
    for tile in tiles:
        seen[tile] += 1
    assert seen.min() == seen.max() == 1
    if rows >= 16 * threads or columns >= 64 * threads or (batch and batch[0] >= threads):
        assert len(tiles) >= threads


@pytest.mark.parametrize(
    ("first", "second", "claimed"),
    [
        ((8, 512, 64), (8, 64, 1), False), ((8, 1, 512), (8, 512, 64), False), ((512, 64), (64, 1), False),
        ((512, 1, 64), (64, 512), True), ((8, 512, 64), (8, 64, 2), True),
    ],
)  # fmt: skip
def test_stacks_of_matrices_and_vectors_are_left_to_blas(first, second, claimed):
    """It takes a quarter of the time for them. Rows that meet one matrix are a matrix."""
    x, y = (param(Aval(shape, np.dtype(np.float32))) for shape in (first, second))
    assert (OneDNNBackend.if_available().claim(apply("matmul", x, y), 2) is not None) == claimed
