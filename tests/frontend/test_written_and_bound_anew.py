"""Loops whose rounds write into an array and bind its name to a new one, which functions of the user's make."""

import numpy as np
import pytest

import futurex as fx

X = np.linspace(-1.0, 2.0, 16).reshape(4, 4)
ROUNDS = [0, 1, 2, 25, 40, 200]


def smoothed(u):
    return (u + np.roll(u, 1, axis=0) + np.roll(u, -1, axis=0)) / 3


def settled(u, m):
    for _ in range(m):
        u += 0.1
        u = smoothed(u) * 0.9
    return u


def flow(x, n):
    u, v = np.sin(x), x + 0.0
    for _ in range(n):
        u += 0.1 * smoothed(v)
        v[1:] -= 0.1 * u[:-1]
        u = smoothed(u)
        v = np.real(np.fft.ifft2(np.fft.fft2(v) * 0.9))
    return u, v


def nested(x, n):
    u = x * 1.0
    for _ in range(n):
        for _ in range(20):
            u += 0.1
            u = smoothed(u)
        u -= 2.0
    return u


def while_small(x, n):
    u, k = x * 1.0, 0
    while abs(u).sum() < 10 * n:
        u += 1.0
        u, k = smoothed(u) * 1.1, k + 1
    return u, k


def attribute(x, n):
    class Field:
        pass

    field = Field()
    field.u = x * 1.0
    for _ in range(n):
        field.u += 0.1
        field.u = smoothed(field.u)
    return field.u


STAGED = [flow, nested, while_small, attribute]


def other_name(x, n):
    u = x * 1.0
    w = u
    for _ in range(n):
        u += 1.0
        u = smoothed(u)
    return u, w


def view_read_in_a_round(x, n):
    u, total = x * 1.0, 0.0
    w = u[1:]
    for _ in range(n):
        u += 1.0
        total += w.sum()
        u = smoothed(u)
    return u, total


def name_bound_in_a_round(x, n):
    u = w = x * 1.0
    z = u
    for _ in range(n):
        u += 1.0
        w = z
        u = smoothed(u)
    return u, w


def in_a_list(x, n):
    u = x * 1.0
    kept = [u]
    for _ in range(n):
        u += 1.0
        u = smoothed(u)
    kept[0] += 1
    return u, kept


def in_a_closure(x, n):
    u = x * 1.0
    w = u
    total = lambda: w.sum()  # noqa: E731
    for _ in range(n):
        u += 1.0
        u = smoothed(u)
    return u, total()


def history(x, n):
    u, kept = x * 1.0, []
    for _ in range(n):
        u += 1.0
        u = smoothed(u)
        kept.append(u)
    return u, kept


def kept_by_a_round(x, n):
    u, w = x * 1.0, x
    for _ in range(n):
        u += 1.0
        u = smoothed(u)
        w = u
    return u, w


def kept_by_some_rounds(x, n):
    u, best, least = x * 1.0, x, 1e9
    for _ in range(n):
        u += 0.1
        if abs(u.sum() - 30) < least:
            least, best = abs(u.sum() - 30), u
        u = smoothed(u)
    return u, best, least


def changing_places(x, n):
    a, b = x * 1.0, x + 1
    for _ in range(n):
        a += 1.0
        b *= 0.5
        a, b = b, smoothed(a)
    return a, b


def the_same_at_first(x, n):
    a = b = x * 1.0
    for _ in range(n):
        a += 1.0
        b *= 0.5
        a, b = b, smoothed(a)
    return a, b


def the_callers(x, n):
    for _ in range(n):
        x += 1.0
        x = smoothed(x)
    return x


def of_an_outer_round(x, n):
    base, total = x * 1.0, 0.0
    for _ in range(n):
        total += base.sum()
        u = base
        for _ in range(20):
            u += 0.1
            u = smoothed(u)
        total += u.sum()
    return total


def by_a_function(x, n):
    u = x * 1.0
    w = settled(u, n)
    return w, u


def is_it(x, n):
    u = x * 1.0
    w, same = u, 0
    for _ in range(n):
        u += 1.0
        same += u is w
        u = smoothed(u)
    return same, u is w, np.shares_memory(u, w)


def looked_at_by_pairs(x, n):
    u, w, shared = x * 1.0, x * 1.0, 0
    for _ in range(n):
        u += 1.0
        shared += np.shares_memory(u, w)
        w = u
        u = smoothed(u)
    return shared, w


def another_name_that_rounds_bind_anew(x, n):
    a = x * 1.0
    b = a
    for _ in range(n):
        a += 1.0
        a = smoothed(a)
        b = b * 0.5
    return a, b


def a_view_that_rounds_bind_anew(x, n):
    a = x * 1.0
    b = a[1:]
    for _ in range(n):
        a += 1.0
        a = smoothed(a)
        b = b * 0.5
    return a, b


def an_entry_that_rounds_bind_anew(x, n):
    a = x * 1.0
    entries = [a]
    for _ in range(n):
        a += 1.0
        a = smoothed(a)
        entries[0] = entries[0] * 0.5
    return a, entries


def a_sum_that_begins_with_it(x, n):
    a = x * 1.0
    total = a
    for _ in range(n):
        for k in range(20):
            a[k % 4] += 1.0
            a = a * 0.5
        total = total + a
    return a, total


SHARED = [
    other_name, view_read_in_a_round, name_bound_in_a_round, in_a_list, in_a_closure, history, kept_by_a_round,
    kept_by_some_rounds, changing_places, the_same_at_first, the_callers, of_an_outer_round, by_a_function, is_it,
    looked_at_by_pairs, another_name_that_rounds_bind_anew, a_view_that_rounds_bind_anew,
    an_entry_that_rounds_bind_anew, a_sum_that_begins_with_it,
]  # fmt: skip


def _check(function, staged, n):
    given, copy = X.copy(), X.copy()
    expected, found = function(given, n), staged(copy, n)
    _same(expected, found)
    np.testing.assert_allclose(copy, given, rtol=1e-12)


def _same(expected, found):
    if isinstance(expected, tuple | list):
        assert len(expected) == len(found)
        for pair in zip(expected, found, strict=True):
            _same(*pair)
        return
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", STAGED, ids=lambda each: each.__name__)
def test_loops_that_write_and_bind_anew_are_staged(function):
    staged = fx.futurize(function)
    for n in ROUNDS[3:]:
        _check(function, staged, n)
        assert "plain NumPy" not in staged.explain()
        assert "unrolled" not in staged.explain()


@pytest.mark.parametrize("function", SHARED, ids=lambda each: each.__name__)
def test_what_other_names_have_changes_with_it(function):
    staged, future = fx.futurize(function), fx.futurize(lambda x: x + 0.5)
    for n in ROUNDS:
        _check(function, staged, n)
        if function is not the_callers:  # given a future such calls never go as plain NumPy
            _same(function(X + 0.5, n), staged(future(X), n))


def test_derivatives():
    def total(x):
        return (settled(x * 1.0, 30) ** 2).sum()

    def by_hand(x, n):
        u = x * 1.0
        for _ in range(n):
            u = smoothed(u + 0.1) * 0.9
        return (u**2).sum()

    expected = fx.grad(by_hand)(X, 30)
    np.testing.assert_allclose(fx.grad(total)(X), expected, rtol=1e-10)
