"""Generated matrix products against products in double precision: every edge of tiles, panels and packings."""

import re

import numpy as np
import pytest
from guarded import before_a_guard
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import gemm, onednn_backend
from futurex.kernels.backends import default_backends
from futurex.kernels.gemm import GemmBackend, suits
from futurex.kernels.numba_ import compiler, nearest, panels
from futurex.kernels.numba_.panels import DEEPEST, HALF, NARROW_ROWS, ROWS, form_of, panels_of
from futurex.kernels.numba_.products import text_of
from futurex.kernels.registry import kernel_for
from futurex.kernels.steps import Row, Workspace
from futurex.tree import Aval, apply, param

pytestmark = [
    pytest.mark.onednn,
    pytest.mark.skipif(not panels.is_made(), reason="the processor has none"),
    pytest.mark.skipif(all(each.name != "gemm" for each in default_backends()), reason="FUTUREX_BACKENDS has no gemm"),
]
FLOAT32 = np.dtype("f4")


@pytest.fixture(autouse=True, params=[False, True], ids=["wide", "narrow"])
def narrow(request, monkeypatch):
    """Tiles as on processors with 32 registers of sixteen numbers, and with 16 of eight. Both run on both."""
    monkeypatch.setattr(panels, "has_scale", lambda: not request.param)
    return request.param


@pytest.fixture
def wide(narrow):
    if narrow:
        pytest.skip("wide tiles alone")


def backend(alone=False):
    """As beside a library, or without one."""
    return GemmBackend(alone=alone)


def operand(rng, shape, turned):
    array = rng.standard_normal(shape, dtype=FLOAT32)
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2) if turned else array


def source(shape, turned):
    """The node of an operand that lies so."""
    if not turned:
        return param(Aval(shape, FLOAT32))
    below = param(Aval((*shape[:-2], shape[-1], shape[-2]), FLOAT32))
    return apply("transpose", below, axes=(*range(len(shape) - 2), len(shape) - 1, len(shape) - 2))


def claimed(x_shape, y_shape, turned=(False, False), bias=False, threads=1, alone=False):
    inputs = [source(x_shape, turned[0]), source(y_shape, turned[1])]
    if not bias:
        return apply("matmul", *inputs), backend(alone).claim(apply("matmul", *inputs), threads)
    node = apply("matmul_epilogue", *inputs, param(Aval(y_shape[-1:], FLOAT32)))
    return node, backend(alone).claim(node, threads)


def run_bound(kernel, *arrays):
    """As a plan does: the steps read what the bound kernel and its workspace hold."""
    workspace = Workspace()
    bound = kernel.bind(workspace)
    Row(bound.aim(*arrays)).run()


def check(x_shape, y_shape, turned=(False, False), bias=False, threads=1, expected=None, alone=False):
    """``expected``: how the operands lie for all that the tree says."""
    rng = np.random.default_rng(sum(x_shape + y_shape))
    node, kernel = claimed(x_shape, y_shape, turned if expected is None else expected, bias, threads, alone)
    inputs = [operand(rng, x_shape, turned[0]), operand(rng, y_shape, turned[1])]
    exact = inputs[0].astype("f8") @ inputs[1].astype("f8")
    if bias:
        inputs.append(rng.standard_normal(y_shape[-1], dtype=FLOAT32))
        exact = exact + inputs[2]
    scale = np.abs(inputs[0]).astype("f8") @ np.abs(inputs[1]).astype("f8") + 1
    framed = np.full(node.size + 64, np.nan, FLOAT32)  # nothing around the result is written
    out = framed[32 : 32 + node.size].reshape(node.shape)
    assert kernel.call(out, *inputs) is out
    assert kernel.late.interpreted == 0
    assert (np.abs(out - exact) <= 1e-6 * scale).all()
    assert np.isnan(framed[:32]).all()
    assert np.isnan(framed[-32:]).all()
    again = np.empty_like(out)
    run_bound(kernel, again, *inputs)
    np.testing.assert_array_equal(again, out)


def test_rows_are_divided_into_tiles_of_two_heights():
    assert panels_of(128, 512, 512, narrow=False)[0].mixed
    assert not panels_of(128, 512, 48, narrow=False)[0].mixed  # sixteen tiles of eight
    for rows in range(30, 68):
        check((rows, 259), (259, 128), turned=(False, rows % 2 == 0), bias=rows % 3 == 0)
        check((rows, 259), (259, 64), threads=2)  # 48 rows, and what is left of them


def test_operands_that_lie_as_before_are_not_looked_at_again(monkeypatch):
    rng = np.random.default_rng(3)
    node, kernel = claimed((40, 300), (300, 70))
    product, out = kernel.late, np.empty(node.shape, FLOAT32)

    def products():
        return [operand(rng, shape, turned) for shape, turned in (((40, 300), False), ((300, 70), False))]

    product(out, *products())
    monkeypatch.setattr(panels, "numbers", None)
    for _ in range(3):
        x, y = products()
        np.testing.assert_allclose(product(out, x, y), x @ y, rtol=1e-4, atol=1e-4)
    monkeypatch.undo()
    for x in (operand(rng, (40, 300), True), rng.standard_normal((40, 310), dtype=FLOAT32)[:, 7:307]):
        np.testing.assert_allclose(product(out, x, y), x @ y, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="built for float32 arrays"):
        product(out, x[:-1], y)


@pytest.mark.parametrize(
    ("rows", "threads", "tickets"), [(784, 2, (16, 2)), (1000, 4, (32, 4)), (479, 2, (8, 2)), (784, 1, (8, 1))]
)
def test_long_products_are_cut_into_parts(rows, threads, tickets, narrow):
    x, y = operand(np.random.default_rng(rows), (rows, 66), True), np.ones((66, 512), FLOAT32)
    product = claimed(x.shape, y.shape, (True, False), threads=threads)[1].late
    out, alone = np.empty((2, rows, 512), FLOAT32)
    assert product.share(product.found((out, x, y))[1]).tickets == tickets[narrow]
    product(out, x, y)
    claimed(x.shape, y.shape, (True, False))[1].late(alone, x, y)
    np.testing.assert_array_equal(out, alone)


@pytest.mark.parametrize("columns", [17, 100, 160])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_edges_of_panels_and_tiles(columns, turned):
    check((9, 61, 37), (9, 37, columns), turned)
    deep = DEEPEST + 41
    check((641, deep), (deep, columns), turned, bias=True, threads=2, expected=(False, False))


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_every_inner_element_counts_once(turned):
    """Inner elements go in rounds of several, and those in lots: sizes around both, with sums that are exact."""
    for inner in (61, 64, 65, 66, 67, 127, 130):
        _, kernel = claimed((130, inner), (inner, 70), turned)
        x = operand(np.random.default_rng(inner), (130, inner), turned[0])
        y = operand(np.random.default_rng(1), (inner, 70), turned[1])
        x[:], y[:] = np.rint(8 * x), np.rint(8 * y)
        found = kernel.call(np.empty((130, 70), FLOAT32), x, y)
        np.testing.assert_array_equal(found, x.astype("i8") @ y.astype("i8"))


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_nothing_behind_an_operand_is_read(turned):
    for rows, inner, columns in ((16, 140, 140), (21, 130, 100), (53, 80, 65)):
        lying = [before_a_guard(np.ones((b, a) if turn else (a, b), FLOAT32))
                 for (a, b), turn in zip(((rows, inner), (inner, columns)), turned, strict=True)]  # fmt: skip
        x, y = (each.T if turn else each for each, turn in zip(lying, turned, strict=True))
        _, kernel = claimed(x.shape, y.shape, turned, alone=True)
        found = kernel.call(np.empty((rows, columns), FLOAT32), x, y)
        assert (found == inner).all()


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", [(128, 512, 10), (128, 10, 512), (1, 700, 700), (3, 300, 300), (520, 521, 1)])
def test_without_a_library_thin_and_deep_products_are_made_here_too(sizes, turned, narrow):
    rows, inner, columns = sizes
    if narrow and 1 < rows < HALF and turned[0]:
        assert claimed((rows, inner), (inner, columns), turned, alone=True)[1] is None
        return
    for bias, threads in ((False, 1), (True, 2)):
        check((rows, inner), (inner, columns), turned, bias, threads, alone=True)


def test_without_a_library_all_products_of_a_net_are_made_here(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "gemm,blas,numba,loops,numpy")
    assert default_backends()[0].alone
    x, w = param(Aval((1280, 1000), FLOAT32)), param(Aval((1000, 10), FLOAT32))
    assert kernel_for(apply("matmul", x, w), default_backends(), 2).backend == "gemm"
    assert backend().claim(apply("matmul", x, w), 2) is None


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 3), st.integers(16, 300), st.integers(2, 1200), st.integers(20, 140), st.booleans(), st.booleans(),
    st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_any_sizes(batch, rows, inner, columns, x_turned, y_turned, bias, threads):
    if suits(batch, rows, inner, columns, (x_turned, y_turned)):
        check((batch, rows, inner), (batch, inner, columns), (x_turned, y_turned), bias, threads)


def test_the_little_thin_products_of_a_classifier_are_made_here():
    """A plan without a library has one team of threads."""
    for rows, inner, columns, turned in (
        (128, 160, 7, (False, False)), (128, 7, 160, (False, True)), (160, 128, 7, (True, False)),
    ):  # fmt: skip
        assert suits(1, rows, inner, columns, turned)
        check((rows, inner), (inner, columns), turned)
    assert not suits(1, 128, 128, 7, (False, False))  # which NumPy's BLAS is as fast at


def test_few_rows_of_many_columns_and_leading_axes():
    check((10, 106), (106, 5000), threads=2)
    check((5, 7, 40), (40, 200), bias=True, threads=2)
    check((2, 3, 33, 65), (2, 3, 65, 48), (True, False), threads=2)


@pytest.mark.parametrize("columns", [20, 100, 160])
@pytest.mark.parametrize("y_turned", [False, True])
def test_a_stack_that_is_no_matrix_shares_what_is_packed(columns, y_turned):
    """Each thread's part of the tasks begins in the middle of a panel, too; the bits are those of one matrix."""
    rng = np.random.default_rng(columns)
    below, w = rng.standard_normal((37, 11, 70), dtype=FLOAT32), operand(rng, (70, columns), y_turned)
    bias = rng.standard_normal(columns, dtype=FLOAT32)
    stack = apply("transpose", param(Aval(below.shape, FLOAT32)), axes=(1, 0, 2))
    inputs = [stack, source(w.shape, y_turned), param(Aval(bias.shape, FLOAT32))]
    node = apply("matmul_epilogue", *inputs)
    x = below.transpose(1, 0, 2)
    matrix = np.ascontiguousarray(x).reshape(-1, 70)
    whole = np.empty((len(matrix), columns), FLOAT32)
    claimed(matrix.shape, w.shape, (False, y_turned), bias=True)[1].call(whole, matrix, w, bias)
    np.testing.assert_allclose(whole, matrix.astype("f8") @ w + bias, rtol=1e-4, atol=1e-4)
    for threads in (1, 2, 3):
        kernel = backend().claim(node, threads)
        out = np.full(node.shape, np.nan, FLOAT32)
        run_bound(kernel, out, x, w, bias)
        np.testing.assert_array_equal(out.reshape(whole.shape), whole)


@pytest.mark.parametrize("columns", [48, 70])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_is_written_through_a_view(columns, threads):
    """And nothing else of the array, whether it lies in the operand's memory or not."""
    rng = np.random.default_rng(columns)
    x, y = rng.standard_normal((2, 3, 50, 64), dtype=FLOAT32), rng.standard_normal((2, 3, 64, columns), dtype=FLOAT32)
    base = rng.standard_normal((2, 50, 3, 3, columns), dtype=FLOAT32)
    chain = (("index", (("s", None, None, None),) * 2 + (("i", 1),)), ("transpose", (0, 2, 1, 3)))
    node = apply("matmul_store", *(param(Aval(each.shape, FLOAT32)) for each in (base, x, y)), chain=chain)
    kernel = backend().claim(node, threads)
    expected = base.copy()
    expected[:, :, 1] = (x.astype("f8") @ y).transpose(0, 2, 1, 3)
    out = np.empty_like(base)
    assert kernel.call(out, base, x, y) is out
    assert kernel.late.interpreted == 0
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    for part in (0, 2):
        np.testing.assert_array_equal(out[:, :, part], base[:, :, part])
    assert kernel.bind(Workspace()).aim(out, base, x, y) is None  # another array would have to be copied
    over = base.copy()
    run_bound(kernel, over, over, x, y)
    np.testing.assert_array_equal(over, out)


def test_a_view_whose_rows_are_not_dense_is_left_to_others():
    base, x, y = (param(Aval(shape, FLOAT32)) for shape in ((90, 80), (80, 64), (64, 90)))
    assert backend().claim(apply("matmul_store", base, x, y, chain=(("transpose", (1, 0)),)), 1) is None


def test_a_product_through_a_view_without_generated_products(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "numba,numpy")
    heads = fx.futurize(lambda x, y: (x @ y).transpose(0, 2, 1, 3).reshape(4, 90, 3 * 70))
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((4, 3, 90, 64), dtype=FLOAT32), rng.standard_normal((4, 3, 64, 70), dtype=FLOAT32)
    np.testing.assert_array_equal(heads(x, y), (x @ y).transpose(0, 2, 1, 3).reshape(4, 90, 210))


def test_windows_are_rows_that_overlap():
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((32, 50, 6), dtype=FLOAT32), rng.standard_normal((60, 48), dtype=FLOAT32)
    turned = apply("transpose", param(Aval(x.shape, FLOAT32)), axes=(1, 0, 2))
    frames = apply("transpose", apply("frames", turned, size=10, hop=1), axes=(1, 2, 0, 3))
    windows = apply("reshape", frames, shape=(41, 32, 60))
    seen = np.lib.stride_tricks.sliding_window_view(x, 10, 1).transpose(1, 0, 3, 2)
    view = np.lib.stride_tricks.as_strided(x, (41, 32, 60), (24, 1200, 4), writeable=False)
    np.testing.assert_array_equal(view, seen.reshape(41, 32, 60))
    for node, inputs in (
        (apply("matmul", windows, param(Aval(w.shape, FLOAT32))), (view, w)),
        (apply("matmul", apply("transpose", windows, axes=(0, 2, 1)), param(Aval((41, 32, 48), FLOAT32))),
         (view.swapaxes(1, 2), rng.standard_normal((41, 32, 48), dtype=FLOAT32))),
    ):  # fmt: skip
        kernel = backend().claim(node, 2)
        out = np.full(node.shape, np.nan, FLOAT32)
        run_bound(kernel, out, *inputs)
        np.testing.assert_allclose(out, inputs[0].astype("f8") @ inputs[1], rtol=1e-4, atol=1e-4)


def test_not_a_number_and_infinity_stay_in_their_row_and_column():
    _, kernel = claimed((64, 70), (70, 68))
    x, y = np.ones((64, 70), FLOAT32), np.ones((70, 68), FLOAT32)
    x[3, 4], y[5, 67] = np.inf, np.nan
    out = np.empty((64, 68), FLOAT32)
    kernel.call(out, x, y)
    np.testing.assert_array_equal(out, x @ y)


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(1)
    x, y = operand(rng, (400, 300), False), operand(rng, (300, 90), False)
    outs = []
    for threads in (1, 2, 3):
        outs.append(np.empty((400, 90), FLOAT32))
        claimed((400, 300), (300, 90), threads=threads)[1].call(outs[-1], x, y)
    assert all((out == outs[0]).all() for out in outs)


def test_what_lies_otherwise_is_copied_or_left_to_others():
    rng = np.random.default_rng(2)
    _, kernel = claimed((64, 80), (80, 90))
    x, y = rng.standard_normal((64, 160), dtype=FLOAT32)[:, ::2], rng.standard_normal((90, 80), dtype=FLOAT32).T
    out = np.empty((64, 90), FLOAT32)
    kernel.call(out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)
    assert kernel.bind(Workspace()).aim(out, x, y) is None
    with pytest.raises(ValueError, match="built for float32 arrays"):
        kernel.call(out, x[:, :70], y)
    copied = apply("reshape", apply("transpose", param(Aval((8, 90, 70), FLOAT32)), axes=(0, 2, 1)), shape=(560, 90))
    assert backend().claim(apply("matmul", copied, param(Aval((90, 64), FLOAT32))), 1) is not None
    heads = apply("transpose", param(Aval((8, 90, 4, 70), FLOAT32)), axes=(0, 2, 1, 3))
    three = apply("transpose", param(Aval((70, 4, 8, 90), FLOAT32)), axes=(2, 1, 0, 3))
    assert backend().claim(apply("matmul", heads, param(Aval((8, 4, 70, 90), FLOAT32))), 1) is not None
    assert backend().claim(apply("matmul", heads, three), 1) is not None
    apart = param(Aval((3, 90, 2, 5, 70), FLOAT32))
    assert backend().claim(apply("matmul", apply("transpose", apart, axes=(3, 0, 2, 1, 4)),
                                 param(Aval((5, 3, 2, 70, 90), FLOAT32))), 1) is None  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_stacks_of_stacks_are_read_where_they_lie(data):
    """Heads of attention: side by side in rows, in the order of heads or of examples, beside a dense operand or not."""
    outer, together = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 5))
    rows, inner, columns = (data.draw(st.integers(45, 130)) for _ in range(3))
    threads = data.draw(st.integers(1, 2))
    rng = np.random.default_rng(rows)

    def heads(first, second):
        """A node of shape (outer, together, first, second), and an array that lies as it does."""
        shapes = {
            (0, 1, 2, 3): (outer, together, first, second), (0, 2, 1, 3): (outer, first, together, second),
            (0, 2, 3, 1): (outer, second, together, first), (1, 0, 2, 3): (together, outer, first, second),
        }  # fmt: skip
        axes = data.draw(st.sampled_from(sorted(shapes)))
        below = rng.standard_normal((*shapes[axes][:-1], 2, shapes[axes][-1]), dtype=FLOAT32)
        chain = (("index", (*(("s", None, None, None),) * 3, ("i", 1))), ("transpose", axes))
        return apply("load", param(Aval(below.shape, FLOAT32)), chain=chain), below[..., 1, :].transpose(axes)

    (x_node, x), (y_node, y) = heads(rows, inner), heads(inner, columns)
    node = apply("matmul", x_node, y_node)
    kernel = backend().claim(node, threads)
    assert kernel is not None
    scale = np.abs(x).astype("f8") @ np.abs(y).astype("f8") + 1
    framed = np.full(node.size + 64, np.nan, FLOAT32)
    out = framed[32 : 32 + node.size].reshape(node.shape)
    run_bound(kernel, out, x, y)
    assert kernel.late.interpreted == 0
    assert (np.abs(out - x.astype("f8") @ y) <= 1e-6 * scale).all()
    assert np.isnan(framed[:32]).all()
    assert np.isnan(framed[-32:]).all()


@pytest.mark.parametrize("x, y, dtype", [
    ((64, 64), (64, 64), "f8"), ((64, 64), (64, 64), "f4"), ((7, 1000), (1000, 100), "f4"),
    ((2, 1, 64, 90), (3, 90, 80), "f4"), ((500, 1000), (1000, 1), "f4"),
])  # fmt: skip
def test_not_claimed(x, y, dtype, monkeypatch):
    monkeypatch.setattr(nearest, "small", lambda: False)
    node = apply("matmul", param(Aval(x, np.dtype(dtype))), param(Aval(y, np.dtype(dtype))))
    assert backend().claim(node, 1) is None


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("turned, most", [((True, False), 512), ((False, True), 256), ((False, False), 4096)])
def test_what_is_turned_and_deep_is_left_to_the_library_unless_the_nearest_cache_is_small(
    turned, most, small, monkeypatch, wide
):
    monkeypatch.setattr(nearest, "small", lambda: small)
    monkeypatch.setattr(nearest, "wide", lambda: False)
    assert claimed((500, most), (most, 500), turned)[1] is not None
    deeper = claimed((500, most + 1), (most + 1, 500), turned)[1]
    assert (deeper is None) == (any(turned) and not small)
    few = claimed((300, most + 1), (most + 1, 300), turned)[1]
    assert (few is None) == (turned[0] or (turned[1] and 300 * 300 * most > 1 << 25))


def test_what_is_turned_and_deep_is_made_here_where_the_nearest_cache_is_wide(monkeypatch, wide):
    monkeypatch.setattr(nearest, "small", lambda: False)
    monkeypatch.setattr(nearest, "wide", lambda: True)
    for rows, columns, here in ((500, 320, True), (1025, 320, False), (500, 330, False), (300, 320, False)):
        assert (claimed((rows, 2000), (2000, columns), (True, False))[1] is not None) == here
    for rows, here in ((256, True), (255, False)):
        assert (claimed((rows, 2000), (2000, 320), (False, True))[1] is not None) == here


@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("inner", [1024, 1025, 1500, 2049])
def test_packings_of_a_long_inner_axis(turned, inner, monkeypatch):
    """Of 512 elements of a turned first operand, otherwise of 1024, the last of which are fewer."""
    monkeypatch.setattr(nearest, "wide", lambda: True)
    monkeypatch.setattr(gemm, "suits", lambda *a: True)
    check((100, inner), (inner, 200), turned, threads=2)


def test_a_product_of_which_an_update_is_made_has_one_packing(monkeypatch, wide):
    monkeypatch.setattr(nearest, "wide", lambda: True)
    forms = [
        form_of((1, 300, inner, 640), (True, False), bias=False, shared=False, once=once)[0]
        for inner, once in ((1024, True), (1024, False), (512, False))
    ]
    assert [each.deep for each in forms] == [False, True, False]


@pytest.mark.parametrize("small", [False, True])
def test_few_rows_and_short_inner_axes_are_made_here_where_the_nearest_cache_is_small(small, monkeypatch, wide):
    monkeypatch.setattr(nearest, "small", lambda: small)
    for rows, inner, columns, turned in (
        (4, 512, 700, (False, False)), (15, 250, 500, (False, True)), (1000, 4, 500, (True, False)),
    ):  # fmt: skip
        assert (claimed((rows, inner), (inner, columns), turned)[1] is not None) == small
        if small:
            check((rows, inner), (inner, columns), turned, threads=2)
    assert claimed((3, 512), (512, 700))[1] is None
    assert claimed((1000, 3), (3, 500), (True, False))[1] is None


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_narrow_tiles_are_for_turned_and_deep_operands_too_and_for_more_rows(turned, narrow, monkeypatch):
    if not narrow:
        pytest.skip("narrow tiles alone")
    monkeypatch.setattr(nearest, "small", lambda: True)
    assert claimed((300, 2000), (2000, 300), turned)[1] is not None
    assert claimed((8, 512), (512, 700), turned)[1] is not None
    assert claimed((7, 512), (512, 700), turned)[1] is None
    assert claimed((1000, 4), (4, 500), turned)[1] is None


def asked(code, write):
    """The lines that code asks for, to be written to or to be read."""
    return len(re.findall(rf"prefetch.p0\(ptr \S+, i32 {int(write)},", code))


def test_lines_of_a_long_first_operand_that_is_turned_are_asked_for(monkeypatch, wide):
    monkeypatch.setattr(nearest, "small", lambda: True)
    forms = {inner: form_of((1, 300, inner, 640), (True, False), bias=False, shared=False)[0] for inner in (512, 513)}
    usual, long = (asked(text_of(form, True), write=False) for form in forms.values())
    assert long > usual
    assert not form_of((1, 300, 513, 640), (False, True), bias=False, shared=False)[0].x_long
    check((300, 513), (513, 640), (True, False), threads=2)
    monkeypatch.setattr(nearest, "small", lambda: False)
    monkeypatch.setattr(nearest, "wide", lambda: False)
    assert form_of((1, 300, 513, 640), (True, False), bias=False, shared=False)[0] == forms[512]


def test_a_tile_asks_for_its_own_lines_row_by_row(wide):
    """One row with each lot of inner elements, or all of them with the first: a row of the code serves both."""
    form, _ = form_of((1, 300, 512, 640), (False, False), bias=False, shared=False)
    places = {form.whole.rows - lower: 1 + (not lower) for lower in range(1 + form.whole.mixed)}  # the first tile, too
    assert asked(text_of(form, True), write=True) == form.whole.vectors * sum(places.values())


def test_little_products_need_no_threads_of_the_library():
    """All products of a perceptron's step are made here."""
    assert claimed((128, 512), (512, 512), (False, True))[1] is not None
    for x, y in (((128, 512), (512, 10)), ((128, 10), (10, 512)), ((512, 128), (128, 10))):
        assert claimed(x, y, (x[0] > x[1], y[0] < y[1]))[1] is not None


@pytest.mark.parametrize("inner", [100, 129, 300, 513, 900])
@pytest.mark.parametrize("columns", [100, 520, 1100])
def test_panels_are_wider_and_shallower_where_rows_are_packed_anew_for_each(inner, columns, narrow):
    if narrow:
        check((150, inner), (inner, columns), (True, False), threads=2)
    (form, count), (_, usual) = (
        form_of((1, 150, inner, columns), (turned, False), bias=False, shared=False, narrow=narrow)
        for turned in (True, False)
    )
    assert (count < usual) == (narrow and columns > 100 and inner != 300)
    assert (form.whole.width * form.deepest <= 8.5 * 16 * 512) or not narrow


def test_panels_cover_all_columns(narrow):
    for columns in range(1, 200):
        whole, end, count = panels_of(columns + 20, 512, columns, narrow)
        last = end or whole
        assert (count - 1) * whole.width + (last.vectors - 1) * 16 + last.last == columns
        assert all(1 <= each.rows <= (NARROW_ROWS if narrow else ROWS[each.vectors]) for each in (whole, last))


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_rounds_are_multiplications_and_what_they_read(turned, narrow):
    """Few other instructions, and none that reads what did not find a register, or at the stack pointer."""
    if not narrow and not compiler.has_scale():
        pytest.skip("half as many registers of half the length")
    form, _ = form_of((1, 128, 512, 512), turned, bias=True, shared=True)
    machine, module = compiler.optimised(text_of(form, True))
    fewest = 20 if narrow and compiler.has_scale() else 40  # a narrow tile's vector is one register there, not two
    rounds = [
        re.findall(r"^\t([a-z].*)", block, re.MULTILINE)
        for block in re.split(r"^\S+:.*$", machine.emit_assembly(module), flags=re.MULTILINE)
        if block.count("vfmadd") >= fewest
    ]
    assert rounds
    for each in rounds:
        works = [line for line in each if re.match("vfmadd|vbroadcastss|vmovaps", line)]
        assert len(each) - len(works) <= 12, each
        assert not any("(%rsp" in line for line in each), each


def test_a_function_uses_it():
    f = fx.futurize(lambda x, w, b: x @ w + b)
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(shape, dtype=FLOAT32) for shape in ((64, 90), (90, 70), (70,)))
    fx.precompile(f, x, w, b)
    np.testing.assert_allclose(f(x, w, b), x.astype("f8") @ w + b, rtol=1e-4, atol=1e-4)
    assert "gemm" in {row.backend for row in f.profile()}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("form", [lambda x: x.T @ x, lambda x: x @ x.T, lambda x: (y := x - 1.0).T @ y + 2.0])
def test_a_matrix_times_its_own_transpose_is_left_to_numpy(form, dtype, monkeypatch):
    """Which has BLAS compute one half: the result is symmetric to the bit."""
    monkeypatch.setattr(gemm, "blas_lags", lambda: False)
    monkeypatch.setattr(onednn_backend, "blas_lags", lambda: False)
    x = np.random.default_rng(0).normal(size=(300, 200)).astype(dtype)
    f = fx.futurize(form)
    for _ in range(3):
        found = np.asarray(f(x))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(found, form(x))
    assert [each.kernel.backend for each in f.trace(x).plan.instructions if each.node.op == "matmul"] == ["numpy"]
