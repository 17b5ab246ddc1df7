"""np.vectorize: its loop over the elements is staged, and has derivatives."""

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
