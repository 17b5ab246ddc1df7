"""Factorizations in a ``try`` with a handler for LinAlgError are branches on whether they failed."""

import numpy as np
import pytest

import futurex as fx

linalg = pytest.importorskip("scipy.linalg")

RNG = np.random.default_rng(0)
A, Y = RNG.normal(size=(5, 5)), RNG.normal(size=5)
GOOD, NEARLY = A @ A.T + np.eye(5), np.outer(Y, Y)
BAD = np.ones((5, 5))


def solved(a, y):
    try:
        x = np.linalg.solve(a, y)
    except np.linalg.LinAlgError:
        x = np.linalg.lstsq(a, y)[0]
    return x * 2


def returned(a, y):
    try:
        return np.linalg.inv(a) @ y
    except np.linalg.LinAlgError:
        return y * 0.0


def with_more_jitter(a, y):
    jitter = 1e-8
    while True:
        try:
            factor = np.linalg.cholesky(a + jitter * np.eye(len(a)))
            break
        except np.linalg.LinAlgError:
            jitter *= 10
    return np.linalg.solve(factor, y), jitter


def at_most_eight_times(a, y):
    for k in range(8):
        try:
            shifted = a + 10.0 ** (k - 8) * np.eye(len(a))
            factor = np.linalg.cholesky(shifted)
            break
        except np.linalg.LinAlgError:
            continue
    else:
        raise ValueError("not positive definite")
    return factor @ y


def two_of_them(a, y):
    steps = 0
    try:
        factor = np.linalg.cholesky(a)
        steps += 1
        x = np.linalg.solve(factor @ factor.T, y)
        steps += 1
    except np.linalg.LinAlgError:
        x = y
    else:
        x = x + 1
    return x, steps


def flagged(a, y):
    failed = False
    try:
        np.linalg.inv(a)
    except np.linalg.LinAlgError:
        failed = True
    return y.sum(), failed


def helper(a):
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return None


def tried(a, upper):
    factor = np.linalg.cholesky(a, upper=upper)
    return factor[0, 0] + 1


def in_a_helper(a, y):
    try:
        z = tried(a, False)
    except np.linalg.LinAlgError:
        z = -1.0
    return z * y


def scipy_program(a, y):
    try:
        factors = linalg.cho_factor(a, lower=True)
    except np.linalg.LinAlgError:
        return y * 0
    return linalg.cho_solve(factors, y)


STAGED = [solved, returned, with_more_jitter, at_most_eight_times, two_of_them, flagged]


def same(found, expected):
    found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
    for a, b in zip(found, expected, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("program", STAGED)
def test_both_ways_are_taken(program):
    staged = fx.futurize(program, escape="error")
    for a in (GOOD, BAD, NEARLY, GOOD, -GOOD, A):
        if program in (with_more_jitter, at_most_eight_times) and a is not GOOD and a is not NEARLY and a is not BAD:
            continue
        same(staged(a, Y), program(a, Y))
    assert "plain NumPy" not in staged.explain()


def test_a_helper_that_fails_is_plain_and_right():
    for program in (in_a_helper, lambda a, y: y if helper(a) is None else helper(a) @ y):
        staged = fx.futurize(program)
        for a in (GOOD, BAD * -1, GOOD):
            same(staged(a, Y), program(a, Y))


def test_what_scipy_factors_is_tried_too():
    staged = fx.futurize(scipy_program)
    for a in (GOOD, -GOOD):
        same(staged(a, Y), scipy_program(a, Y))
    assert "plain NumPy" not in staged.explain()


def test_a_helper_that_goes_on_behind_a_failure_does_not():
    """It would write although its factorization failed."""
    def solve(a, y):
        x = np.linalg.solve(a, y)
        y[0] = 7.0
        return x

    def program(a, y):
        y = y.copy()
        try:
            x = solve(a, y)
        except np.linalg.LinAlgError:
            x = y * 2
        return x, y

    staged = fx.futurize(program)
    for a in (GOOD, BAD, GOOD):
        same(staged(a, Y), program(a, Y))


@pytest.mark.parametrize("program", [solved, returned, with_more_jitter, at_most_eight_times])
@pytest.mark.parametrize("a", [GOOD, BAD])
def test_derivatives_are_those_of_the_way_that_was_taken(program, a):
    first = lambda found: found[0] if isinstance(found, tuple) else found  # noqa: E731
    f = lambda a, y: (first(program(a, y)) * np.arange(5.0)).sum()  # noqa: E731
    gradient = fx.grad(f, argnums=1)(a, Y)
    expected = [(f(a, Y + step) - f(a, Y - step)) / 2e-6 for step in 1e-6 * np.eye(5)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    if a is GOOD:
        by_matrix = fx.grad(f)(a, Y)
        turned = RNG.normal(size=(5, 5))
        turned = turned + turned.T
        slope = (f(a + 1e-6 * turned, Y) - f(a - 1e-6 * turned, Y)) / 2e-6
        np.testing.assert_allclose((by_matrix * turned).sum(), slope, rtol=1e-5)
        assert np.isfinite(by_matrix).all()


def test_other_errors_are_not_swallowed():
    staged = fx.futurize(solved)
    with pytest.raises(ValueError, match="mismatch"):
        staged(GOOD, np.ones(4)).result()
    with pytest.raises(ValueError, match="not positive definite"):
        fx.futurize(at_most_eight_times)(-GOOD, Y).result()


def test_handlers_that_look_at_the_exception_or_raise_it_again_are_plain():
    def named(a):
        try:
            x = np.linalg.inv(a)
        except np.linalg.LinAlgError as error:
            x = np.full((1, 1), len(str(error)))
        return x

    def again(a):
        try:
            return np.linalg.inv(a)
        except np.linalg.LinAlgError:
            raise

    assert fx.futurize(named)(BAD).result() == named(BAD)
    assert "in a try statement" in (f := fx.futurize(named), f(GOOD))[0].explain()
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        fx.futurize(again)(BAD).result()
