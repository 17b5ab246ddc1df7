"""Products of many small matrices in compiled loops: the kernels of plans, called where the code is."""

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx
from futurex.kernels.loops import records
from futurex.kernels.numba_.compiler import has_fma

pytestmark = pytest.mark.skipif(not has_fma(), reason="chains of fused multiply-adds")
RNG = np.random.default_rng(44)
ROUNDS = 24  # a loop of fewer is none in the end


def by_one(x, m):
    for _ in range(ROUNDS):
        x = np.tanh(m @ x) + np.einsum("ij,ekj->eki", m, x)
    return x


def by_turned_ones(x, m):
    for _ in range(ROUNDS):
        x = np.tanh(x.swapaxes(1, 2) @ m.T) + np.einsum("ji,ejk->eik", m, x)
    return x


def by_each_other(x, m):
    y = x + m
    for _ in range(ROUNDS):
        x, y = np.tanh(x @ y), y[::-1] - x.transpose(0, 2, 1)
    return x, y


def of_vectors(x, m):
    v = x[:, 0]
    for _ in range(ROUNDS):
        v = np.tanh((x @ v[:, :, None])[:, :, 0]) + (v[:, None] @ x)[:, 0] + m[0]
    return v


def of_parts(x, m):
    """Matrices of a part that rounds choose, of every second row of one, of a stack of stacks."""
    total = x[:20] * 0
    for k in range(ROUNDS):
        total = np.sin(total + x[k : k + 20] @ m) + x[::2][:20] @ total
        total[:] = total @ (x[:40].reshape(2, 20, *m.shape)[1])
    return total


def of_gaps(x, m):
    """Elements that lie apart: no kernel reads them."""
    for _ in range(ROUNDS):
        x = np.tanh(x[:, ::-1, ::-1] @ m[::-1, ::-1]) + x
    return x


def of_long_ones(x, m):
    """Matrices of so many rows that each is several tasks."""
    y = np.concatenate([x, x * 0.5, x[::-1]]).reshape(21, 10 * len(m), len(m))
    for _ in range(ROUNDS):
        y = np.tanh(y @ m) + y
    return y


def of_stacks_of_stacks(x, m):
    """Stacks that do not lie evenly apart."""
    x = x.reshape(7, 10, *m.shape)
    for _ in range(ROUNDS):
        y = np.tanh((x.swapaxes(0, 1) @ m).swapaxes(0, 1))
        x[1:, 2:8] = y[1:, 2:8] + y[1:, 2:8] @ x[:-1, 4:] + m @ y[:-1, 1:7]
    return x


def of_all_with_all(x, m):
    """Stacks whose matrices meet all of another: no kernel has them."""
    x = x.reshape(7, 10, *m.shape)
    for _ in range(ROUNDS):
        x = np.tanh(x + x[:, :1] @ x[:1])
    return x


OTHERS = [of_gaps, of_all_with_all]
FUNCTIONS = [by_one, by_turned_ones, by_each_other, of_vectors, of_parts, of_long_ones, of_stacks_of_stacks, *OTHERS]


@pytest.fixture
def called(monkeypatch):
    """The loops of NumPy that code is made to call."""
    found, run_core = [], records.run_core
    monkeypatch.setattr(records, "run_core", lambda e, loop, *rest: (found.append(loop), run_core(e, loop, *rest))[1])
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 5, 8])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_products_are_those_of_numpy(function, size, dtype, called):
    x, m = ((RNG.normal(size=shape) / size).astype(dtype) for shape in ((70, size, size), (size, size)))
    f = fx.futurize(function)
    fx.precompile(f, x, m)
    found, wanted = f(x.copy(), m), function(x.copy(), m)
    assert calls_of_loops(f, (x, m)) == []
    assert not called or function in OTHERS
    for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, wanted)), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-3 if dtype == np.float32 else 1e-10, atol=1e-4)


def test_few_matrices_stay_numpys(called):
    def function(x, m):
        for _ in range(ROUNDS):
            x = x @ m
        return x

    x, m = RNG.normal(size=(15, 3, 3)), RNG.normal(size=(3, 3))
    f = fx.futurize(function)
    fx.precompile(f, x, m)
    np.testing.assert_array_equal(f(x, m), function(x, m))
    assert called


def test_what_is_not_finite_stays_where_it_is():
    def function(x, m):
        for _ in range(ROUNDS):
            x = m @ x
        return x

    x, m = RNG.normal(size=(40, 4, 4)), np.triu(RNG.normal(size=(4, 4)))
    x[3, 1, 2], x[7, 0, 0], x[9, 3, 3] = np.nan, np.inf, -np.inf
    f = fx.futurize(function)
    fx.precompile(f, x, m)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(f(x, m), function(x, m), rtol=1e-10)
