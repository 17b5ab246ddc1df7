"""Products in the processor's matrix unit: as exact as those by vectors, for all numbers."""

import re

import numpy as np
import pytest
from blockwise import close, planned
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.backends import default_backends
from futurex.kernels.gemm import GemmBackend
from futurex.kernels.numba_ import matrix_unit, unit_parts
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, apply, param

pytestmark = [
    pytest.mark.onednn,
    pytest.mark.skipif(not matrix_unit.is_there(), reason="the processor has no matrix unit (AMX)"),
    pytest.mark.skipif(all(each.name != "gemm" for each in default_backends()), reason="FUTUREX_BACKENDS has no gemm"),
]
FLOAT32 = np.dtype("f4")
UNIT = 2.0**-24
TINY = np.float32(np.finfo("f4").smallest_subnormal)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Products of any size are made in the unit."""
    monkeypatch.setenv("FUTUREX_MATRIX_UNIT", "on")
    monkeypatch.setattr(unit_parts, "pays", lambda sizes, turned: True)


def kernel_of(x, y, threads, bias=None, used="on"):
    """The kernel of a product of arrays that lie so."""
    inputs = []
    for each in (x, y):
        turned = each.ndim > 1 and each.strides[-1] != each.itemsize
        shape = (*each.shape[:-2], each.shape[-1], each.shape[-2]) if turned else each.shape
        node = param(Aval(shape, FLOAT32))
        axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        inputs.append(apply("transpose", node, axes=axes) if turned else node)
    if bias is not None:
        inputs.append(param(Aval(bias.shape, FLOAT32)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUTUREX_MATRIX_UNIT", used)
        node = apply("matmul_epilogue" if bias is not None else "matmul", *inputs)
        return GemmBackend(alone=True).claim(node, threads)


def product(x, y, threads=1, bias=None, used="on"):
    """The product, in a frame that must stay as it is."""
    kernel = kernel_of(x, y, threads, bias, used)
    shape = (*x.shape[:-1], y.shape[-1])
    framed = np.full(int(np.prod(shape)) + 64, 7, FLOAT32)
    out = framed[32:-32].reshape(shape)
    kernel.call(out, x, y, *(() if bias is None else (bias,)))
    assert kernel.late.interpreted == 0
    assert (framed[:32] == 7).all()
    assert (framed[-32:] == 7).all()
    return out


def turned(array):
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def by_unit(x, y):
    """Does the unit make the product, and are its last bits others than those of a chain of multiply-adds?"""
    return (product(x, y) != product(x, y, used="off")).any()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(2, 150), inner=st.integers(17, 1300), columns=st.integers(17, 150),
    lie=st.tuples(st.booleans(), st.booleans()), threads=st.sampled_from([1, 2, 3]), bias=st.booleans(),
    batch=st.sampled_from([0, 3]), seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_are_as_exact_as_those_of_single_precision(rows, inner, columns, lie, threads, bias, batch, seed):
    rng = np.random.default_rng(seed)
    stack = (batch,) if batch else ()
    x, y = (
        rng.standard_normal(shape, dtype=FLOAT32) * np.exp2(rng.integers(-9, 9, shape), dtype=FLOAT32)
        for shape in ((*stack, rows, inner), (*stack, inner, columns))
    )
    x[rng.random(x.shape) < 0.2] = 0
    x, y = (turned(each) if way else each for each, way in zip((x, y), lie, strict=True))
    if kernel_of(x, y, threads) is None:
        return
    added = rng.standard_normal(columns, dtype=FLOAT32) if bias and not batch else None
    exact, scale = x.astype("f8") @ y.astype("f8"), np.abs(x).astype("f8") @ np.abs(y).astype("f8")
    if added is not None:
        exact, scale = exact + added, scale + np.abs(added)
    found = product(x, y, threads, added)
    assert (np.abs(found - exact) <= 16 * UNIT * scale).all()  # multiply-adds, one after the other: 16


def test_the_error_is_less_than_that_of_multiply_adds():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 700), dtype=FLOAT32), rng.standard_normal((700, 130), dtype=FLOAT32)
    exact = x.astype("f8") @ y.astype("f8")
    errors = [np.abs(product(x, y, used=used) - exact).mean() for used in ("on", "off")]
    assert errors[0] < 0.7 * errors[1], errors
    positive = [np.abs(x), np.abs(y)]  # a bias of what is left out would add up
    exact = positive[0].astype("f8") @ positive[1].astype("f8")
    errors = [np.abs(product(*positive, used=used) - exact).mean() for used in ("on", "off")]
    assert errors[0] < errors[1], errors


@pytest.mark.parametrize(
    "value", [np.nan, -np.nan, np.inf, -np.inf, TINY, 2e-42, 1e-38, 1e-35, 3e38, 2.0**120], ids=str
)  # fmt: skip
@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("way", [False, True])
def test_numbers_that_thirds_do_not_hold_are_multiplied_by_vectors(value, operand, way):
    rng = np.random.default_rng(1)
    pair = [rng.standard_normal((70, 300), dtype=FLOAT32), rng.standard_normal((300, 200), dtype=FLOAT32)]
    assert by_unit(*pair)
    pair[operand][:, 130] = 0
    pair[operand][5, 130] = np.array(value, "f4")
    pair[1 - operand] *= np.float32(1e4)
    pair = [turned(each) if way else each for each in pair]
    found, other = product(*pair), product(*pair, used="off")
    first = 0 if operand == 0 else 128  # all that is made of what these rows, or these columns, are packed with
    np.testing.assert_array_equal(found[:, first:], other[:, first:])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1)


@pytest.mark.parametrize("sizes", [(1e-25, 1e-20), (1e30, 1e20), (1e-30, 1e-6), (2.0**-95, 1.0)])
def test_products_that_could_be_too_small_or_too_large_are_made_by_vectors(sizes):
    rng = np.random.default_rng(2)
    x, y = (
        (rng.uniform(1, 2, shape) * size).astype("f4")
        for shape, size in zip(((64, 128), (128, 64)), sizes, strict=True)
    )
    with np.errstate(all="ignore"):
        exact = x.astype("f8") @ y.astype("f8")
        found, other = product(x, y), product(x, y, used="off")
    np.testing.assert_array_equal(found, other)
    within = np.isfinite(other) & (np.abs(exact) > 1e-37)
    assert (np.abs(found - exact)[within] <= 130 * UNIT * np.abs(exact)[within]).all()


def test_small_numbers_beside_zeros_keep_all_their_digits():
    x, y = np.zeros((64, 96), "f4"), np.zeros((96, 64), "f4")
    x[:, 3], y[3] = np.float32(1.2345678e-12), np.float32(7.654321e-9)
    expected = np.float64(x[0, 3]) * np.float64(y[3, 0])
    assert (np.abs(product(x, y) - expected) <= 2 * UNIT * expected).all()


def adam(w, m, x, g, rate):
    d = x.T @ g
    v = np.abs(w) * np.float32(0.99) + d * d * np.float32(0.01)
    m = m * np.float32(0.9) + d * np.float32(0.1)
    return w - rate * m / (np.sqrt(v) + np.float32(1e-3)), m, v


@pytest.mark.parametrize("shape", [(128, 784, 512), (17, 701, 515), (300, 1003, 333), (512, 600, 520)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("value", [0.5, 1e-41])
def test_updates_take_their_tiles_from_the_unit(shape, threads, value):
    batch, rows, columns = shape
    rng = np.random.default_rng(3)
    w, m = rng.normal(size=(2, rows, columns)).astype("f4")
    x, g = (rng.normal(size=(batch, width)).astype("f4") for width in (rows, columns))
    g[3, columns - 2] = value  # what is made before is not made twice
    arguments = w, m, x, g, np.float32(0.125)
    program, plan, _ = planned("rank_update", adam, arguments, threads=threads)
    expected = adam(*(np.float64(each) for each in arguments))
    close(plan.run(program.flatten(*arguments)), expected, 1e-4)
    in_place = compile_plan(program.graph, threads=threads, donate={0: 0, 1: 1})
    given = [np.copy(each) for each in program.flatten(*arguments)]
    found = in_place.run(given)
    assert found[0] is given[0]
    close(found, expected, 1e-4)


def test_a_call_uses_the_unit_where_it_is_asked_to(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("FUTUREX_MATRIX_UNIT", "on")
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((251, 509), dtype=FLOAT32), rng.standard_normal((509, 512), dtype=FLOAT32)

    @fx.futurize
    def layer(x, y):
        return np.maximum(x @ y, -1000)

    exact = x.astype("f8") @ y.astype("f8")
    errors = [np.abs(each - exact).mean() for each in (layer(x, y).result(), x @ y)]
    assert errors[0] < 0.7 * errors[1], errors


def test_other_words_are_refused(monkeypatch):
    monkeypatch.setenv("FUTUREX_MATRIX_UNIT", "yes")
    with pytest.raises(ValueError, match=re.escape("FUTUREX_MATRIX_UNIT='yes' must be on or off")):
        matrix_unit.is_used()
