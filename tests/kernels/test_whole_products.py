"""Products of matrices of integers and truth values are machine code, and wrap around as NumPy's do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import compiler, whole_products

DTYPES = ["i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "?"]


def operand(rng, shape, dtype):
    if dtype == "?":
        return rng.random(shape) < 0.2
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def run(f, *args):
    """The result, and by which backend products were computed."""
    plan = fx.futurize(f).trace(*args).plan
    plan.prepare(wait=True)
    (result,) = plan.run(list(args))
    return result, {each.kernel.backend for each in plan.instructions if each.node.op == "matmul"}


def check(f, *args, backend="numba"):
    result, backends = run(f, *args)
    expected = f(*args)
    assert backends == {backend}
    np.testing.assert_array_equal(result, expected, strict=True)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40), inner=st.integers(1, 40), columns=st.integers(1, 90), dtype=st.sampled_from(DTYPES),
    stack=st.sampled_from(["", "both", "first", "second", "spread"]), turned=st.sampled_from(["", "x", "y"]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_sizes(rows, inner, columns, dtype, stack, turned, seed):
    rng = np.random.default_rng(seed)
    x_stack = {"both": (3,), "first": (3,), "spread": (1,)}.get(stack, ())
    y_stack = {"both": (3,), "second": (2,), "spread": (3,)}.get(stack, ())
    x, y = operand(rng, (*x_stack, rows, inner), dtype), operand(rng, (*y_stack, inner, columns), dtype)
    if turned == "x":
        x = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    elif turned:
        y = np.ascontiguousarray(y.swapaxes(-1, -2)).swapaxes(-1, -2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_products, "_LEAST", 1)
        check(lambda x, y: x @ y, x, y)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_ones_on_two_threads(dtype, wide, monkeypatch):
    if wide and not compiler.has_scale():
        pytest.skip("no vectors of 64 bytes")
    monkeypatch.setattr(whole_products, "has_scale", lambda: wide)
    rng = np.random.default_rng(1)
    x, y = operand(rng, (133, 70), dtype), operand(rng, (70, 121), dtype)
    check(lambda x, y: x @ y, x, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.linalg.matrix_power(x, 3),
        lambda x: np.dot(x, x.T),
        lambda x: np.inner(x, x),
        lambda x: np.tensordot(x, x, ([0], [0])),
        lambda x: np.einsum("ij,kj->ki", x, x),
        lambda x: np.einsum("bij,bjk->bik", x.reshape(2, 32, 64), x.reshape(2, 64, 32)),
    ],
)
@pytest.mark.parametrize("dtype", ["i8", "u1"])
def test_what_comes_to_products(f, dtype):
    check(f, operand(np.random.default_rng(2), (64, 64), dtype))


def test_others_are_numpys():
    rng = np.random.default_rng(3)
    x = operand(rng, (60, 60), "i8")
    check(lambda x, y: x @ y, x, x[0], backend="numpy")
    check(lambda x, y: x @ y, x[:4, :4].copy(), x[:4, :4].copy(), backend="numpy")
    check(lambda x, y: x @ y, operand(rng, (2, 1, 40, 40), "i8"), operand(rng, (3, 40, 40), "i8"), backend="numpy")
