"""np.vectorize and np.apply_along_axis: their loops are staged, and have derivatives."""

import math

import numpy as np
import pytest

import futurex as fx

V, W = np.array([0.5, -0.3, 1.2, 0.7]), np.array([1.0, 2.0, 3.0, 4.0])


def scaled(a, c):
    return a * 2 + c if a > 0 else a * c


@np.vectorize
def steps(n):
    count = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


both = np.vectorize(scaled)
of_math = np.vectorize(lambda x: math.sin(x) * x if x > 0.2 else 0.0)
single = np.vectorize(lambda x: x * 1.5, otypes=[np.float32])
PROGRAMS = {
    "a branch": lambda v, w: both(v, w),
    "broadcast": lambda v, w: of_math(v[:, None] * w),
    "a number": lambda v, w: both(v, 1.5),
    "elements": lambda v, w: both(v[0], w[1]),
    "a type": lambda v, w: single(v),
    "integers": lambda v, w: steps(np.arange(1, 30)) + v[0],
    "made inside": lambda v, w: np.vectorize(lambda a: a * a)(v),
    "single precision": lambda v, w: both(v.astype("f"), w.astype("f")),
    "tests": lambda v, w: np.vectorize(lambda a: a > 0)(v) * w,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_loop_is_staged(name):
    program = PROGRAMS[name]
    staged, expected = fx.futurize(program, escape="error"), program(V, W)
    for _ in range(2):
        found = staged(V, W).result()
        assert (type(found), found.dtype, found.shape) == (type(expected), expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-15 if found.dtype == float else 1e-7)


@pytest.mark.parametrize("name", ["a branch", "broadcast", "a number", "elements", "made inside"])
def test_derivatives(name):
    total = lambda v: (PROGRAMS[name](v, W) ** 2).sum()  # noqa: E731
    expected = [(total(V + step) - total(V - step)) / 2e-6 for step in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(fx.grad(total)(V), expected, rtol=1e-6, atol=1e-8)


def test_what_is_not_traced_is_plain():
    several = np.vectorize(lambda x: (x, -x))
    pairs = np.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")
    kinds = np.vectorize(lambda x: 0 if x < 0 else x)
    for program in (lambda v: several(v)[1], lambda v: pairs(v, v), lambda v: kinds(v), lambda v: both(a=v, c=2.0)):
        np.testing.assert_array_equal(fx.futurize(program)(V), program(V))
    with pytest.raises(ZeroDivisionError):
        fx.futurize(lambda v: np.vectorize(lambda x: 1 / x)(v))(np.zeros(2)).result()
    with pytest.raises(ValueError, match="size 0"):
        fx.futurize(lambda v: both(v, v))(np.zeros(0))


M = np.random.default_rng(4).normal(size=(300, 7))
ALONG = {
    "a number": lambda m: np.apply_along_axis(lambda r: r.max() - r[0] if r[0] > 0 else r.min(), 1, m),
    "a row": lambda m: np.apply_along_axis(lambda r: (r - r.mean()) / r.std(), 1, m),
    "a shorter row": lambda m: np.apply_along_axis(np.diff, 1, m),
    "a matrix": lambda m: np.apply_along_axis(lambda r: np.outer(r, r[:2]), 1, m),
    "of columns": lambda m: np.apply_along_axis(lambda c: np.sort(c)[:3], 0, m.T),
    "chosen numbers": lambda m: np.apply_along_axis(lambda r: r[r > -9].sum(), 1, m),
    "more arguments": lambda m: np.apply_along_axis(lambda r, a, b=0: r @ a + b, 1, m, np.arange(7.0), b=2),
    "whole numbers": lambda m: np.apply_along_axis(lambda r: np.floor(r[0]).astype(int), 1, m),
    "truth": lambda m: np.apply_along_axis(lambda r: (r > 0).any(), 1, m),
    "a stream": lambda m: np.apply_along_axis(
        lambda r, rng: r + rng.normal(size=7), 1, m, np.random.default_rng(int(m.shape[0]))
    ),
}


@pytest.mark.parametrize("name", ALONG)
def test_many_rows_are_the_rounds_of_a_loop(name):
    f = ALONG[name]
    g = fx.futurize(f, escape="error")
    for m in (M, -M, M * 3 + 1):
        expected, found = f(m), np.asarray(g(m))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def in_place(r):
    r[0] = r[1:].sum()
    return r[0]


def written(m):
    m = m.copy()
    total = np.apply_along_axis(in_place, 1, m)
    return m, total


def test_what_a_function_writes_into_its_row_is_written():
    for found, expected in zip(fx.futurize(written)(M), written(M), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_first_result_has_the_type_of_all():
    def f(m):
        return np.apply_along_axis(lambda r: 0 if r[0] < 0 else r[1], 1, m)

    for m in (M, M[::-1], -M, -M[::-1]):
        expected, found = f(m), np.asarray(fx.futurize(f)(m))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_results_of_other_shapes_raise_what_numpy_raises():
    def f(m):
        return np.apply_along_axis(lambda r: r[r > 0], 1, m)

    with pytest.raises(ValueError, match="could not broadcast") as own:
        f(M)
    with pytest.raises(ValueError, match="could not broadcast") as ours:
        fx.futurize(f)(M).result()
    assert str(own.value) == str(ours.value)


def test_derivatives_along_rows():
    def loss(m):
        return np.apply_along_axis(lambda r: np.tanh(r).sum() if r[0] > 0 else r[1] ** 2, 1, m).sum()

    slope = np.asarray(fx.grad(loss)(M))
    positive = M[:, :1] > 0
    other = np.zeros_like(M)
    other[:, 1] = 2 * M[:, 1]
    np.testing.assert_allclose(slope, np.where(positive, 1 / np.cosh(M) ** 2, other), rtol=1e-10)
