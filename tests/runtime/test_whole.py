"""Plans that become one compiled function: NumPy's values, the plan's errors, and the choice between both."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading

import numpy as np
import pytest

import futurex as fx
from futurex.frontend.trace import Trace, start, tracing
from futurex.runtime import whole

RNG = np.random.default_rng(5)


def steps(x, y):
    total = x * 2 + y.T
    total[1:, 0] += np.exp(-np.abs(y[0, 1:]))
    scaled = total / np.linalg.norm(total)
    return scaled @ y, scaled.sum(axis=0), np.argmax(scaled, axis=1), total.max() - np.median(total)


def masks(x, y):
    chosen = x[x > 0]
    places = np.flatnonzero(y[0] > 0)
    out = x.copy()
    out[x < 0] = -1.0
    out[0, places] = 3.0
    return chosen, places, out, len(chosen) + 0.5, np.unique(np.sign(x))


def views(x, y):
    x[0], x[1] = x[1].copy(), x[0].copy()
    z = x[::-1, 1:3]
    x[2:, 1:3] = z[:2] * 2
    y.T[0] = x[:, 0]
    return z, np.concatenate([x[:1], y]), y.reshape(-1)[::3], np.cumsum(y, axis=1)


def algebra(x, y):
    square = x @ x.T + 4 * np.eye(4)
    low = np.linalg.cholesky(square)
    sign, size = np.linalg.slogdet(square)
    return np.linalg.solve(square, y), np.linalg.inv(low), sign * size, np.linalg.det(y), np.linalg.norm(x, axis=1)


def numbers(x, y):
    i = int(np.argmax(x[0]))
    total = 0
    for k in range(i + 20):
        total += k % 7 if k % 3 else -k
    return total, i, bool(x[i % 4, 0] > 0), x[i % 4] * total


def mixed(x, y):
    small = (x * 10).astype(np.int16)
    single = y.astype(np.float32)
    return small // np.int16(3), small % 5, single * np.float32(0.1) + small, (x > y) ^ (small > 0), x + 1j * y


FUNCTIONS = (steps, masks, views, algebra, numbers, mixed)


def flat(value):
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, tuple | list) else [value]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_compiled_function_gives_numpys_bits(function, at_once):
    staged = fx.futurize(function, escape="error")
    for _ in range(5):
        given = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 4))
        ours, theirs = ([each.copy() for each in given] for _ in range(2))
        expected, found = flat(function(*theirs)), flat(staged(*ours))
        for one, two in zip(expected, found, strict=True):
            value = np.asarray(two)
            np.testing.assert_array_equal(value, np.asarray(one))
            assert value.dtype == np.asarray(one).dtype
        for one, two in zip(theirs, ours, strict=True):
            np.testing.assert_array_equal(two, one)
    assert "runs as one compiled function" in staged.explain()
    assert any(row.op == "graph" and row.count >= 1 for row in staged.profile())


def test_results_of_one_call_live_through_the_next(at_once):
    staged = fx.futurize(lambda x: (x * 2 + 1, x[1:] - x[:-1]), escape="error")
    for _ in range(3):
        staged(np.arange(5.0))[0].result()
    first = staged(np.arange(5.0))
    kept = [np.asarray(each) for each in first]
    staged(np.ones(5))[0].result()
    np.testing.assert_array_equal(kept[0], np.arange(5.0) * 2 + 1)
    np.testing.assert_array_equal(kept[1], np.ones(4))


def test_errors_come_from_the_plan_at_the_users_line(at_once):
    def pick(x, i):
        y = x * 2 + 1
        if y[0] > 100:
            raise ArithmeticError("too large")
        return y[i] + np.linalg.inv(y.reshape(2, 2)).sum()

    staged = fx.futurize(pick, escape="error")
    x = np.array([1.0, 2.0, 3.0, 5.0])
    for i in (np.int64(1), np.int64(2), np.int64(-1), np.int64(0)):
        assert float(staged(x, i)) == pick(x, i)
    assert "one compiled function" in staged.explain()
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        staged(x, np.int64(4)).result()
    with pytest.raises(ArithmeticError, match="too large"):
        staged(x + 100, np.int64(0)).result()
    with pytest.raises(np.linalg.LinAlgError):
        staged(np.ones(4), np.int64(0)).result()
    assert float(staged(x, np.int64(3))) == pick(x, np.int64(3))


def test_a_function_that_often_gives_up_is_left(at_once):
    def powers(x, n):
        total = 1
        for _ in range(20):
            total = total * n
        return x + 1, x * 2, total % 7

    staged = fx.futurize(powers)
    for _ in range(12):
        found = flat(staged(np.ones(3), 10**6))
        assert [np.asarray(each).tolist() for each in found] == [[2.0] * 3, [2.0] * 3, 10**120 % 7]
    assert "one compiled function" not in staged.explain()


def test_large_arrays_stay_with_the_plan(at_once):
    staged = fx.futurize(lambda x: (np.sort(x)[::-1] * 2, x.sum()), escape="error")
    for _ in range(4):
        staged(np.ones(100_000))[1].result()
    assert not any(row.op == "graph" for row in staged.profile())


def test_the_slower_way_is_not_taken(at_once, monkeypatch):
    monkeypatch.setattr(whole, "_BETTER", 0.0)
    staged = fx.futurize(lambda x: (x + 1, np.sort(x) * 2), escape="error")
    for _ in range(4):
        staged(np.ones(5))[0].result()
    assert "runs instruction by instruction" in staged.explain()
    assert not any(row.op == "graph" for row in staged.profile())


def test_derivatives_are_compiled_too(at_once):
    def loss(w, x):
        for _ in range(3):
            x = np.tanh(w @ x)
        return (x**2).sum()

    gradient = fx.grad(loss)
    plain = fx.grad(loss)
    w, x = RNG.normal(size=(4, 4)), RNG.normal(size=4)
    expected = np.asarray(plain(w, x))
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(gradient(w, x)), expected, rtol=1e-14)


def test_integers_of_more_than_64_bits_are_what_they_are(at_once):
    def drawn(x):
        rng = np.random.default_rng(2**70)
        return rng.normal(size=3) + x, x * float(2**80)

    staged = fx.futurize(drawn)
    x = np.ones(3)
    for _ in range(4):
        for one, two in zip(drawn(x), staged(x), strict=True):
            np.testing.assert_array_equal(np.asarray(two), one)


def shifted(x, n):
    return np.concatenate([x[n:], x[:n]]) * 2, x[n], n + 1


def odd(kind):
    """The numbers from 1 to 6, with an array behind them that is not as most are."""
    plain = np.arange(1.0, 7.0)
    if kind == "strided":
        return np.repeat(plain, 2)[::2]
    if kind == "backwards":
        return plain[::-1].copy()[::-1]
    if kind == "unaligned":
        room = np.empty(49, np.uint8)[1:].view(np.float64)
        room[...] = plain
        return room
    if kind == "read-only":
        plain.flags.writeable = False
    if kind == "other byte order":
        return plain.astype(">f8")
    if kind == "single":
        return plain.astype(np.float32)
    return plain


@pytest.mark.parametrize("kind", ["strided", "backwards", "unaligned", "read-only", "other byte order", "single"])
def test_arrays_of_another_kind_after_many_calls(kind, at_once):
    """A settled call takes arrays as they are: those that are not as it was compiled for go another way."""
    staged, x = fx.futurize(shifted), odd("plain")
    for _ in range(8):
        staged(x, 2)
    assert "runs as one compiled function" in staged.explain()
    for given in (odd(kind), x, odd(kind)):
        for one, two in zip(flat(staged(given, 2)), flat(shifted(given, 2)), strict=True):
            value = one.result() if isinstance(one, fx.Array) else one
            assert (type(value), np.asarray(value).dtype) == (type(two), np.asarray(two).dtype)
            np.testing.assert_array_equal(value, two)


def test_settled_calls_fail_and_go_on(at_once):
    """A run that gives up goes the plan's way, whose error is the caller's; the next call is as quick as before."""

    def element(x, at):
        return (x * 2)[at] + 1

    staged, x, at = fx.futurize(element), np.arange(5.0), np.array([3, -1])
    for _ in range(8):
        assert staged(x, at).result().tolist() == [7.0, 9.0]
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        staged(x, np.array([5, 0])).result()
    assert staged(x, at).result().tolist() == [7.0, 9.0]


def test_settled_calls_of_many_threads(at_once):
    """Each call has memory of its own."""

    def powers(x):
        y = x * 1.0
        for _ in range(40):
            y = y * x[::-1] + 1
        return y, y.sum()

    staged = fx.futurize(powers)
    for _ in range(8):
        staged(RNG.normal(size=30))
    arguments = [RNG.normal(size=30) for _ in range(8)]
    expected = [powers(x) for x in arguments]

    def work(number):
        for _ in range(200):
            y, total = staged(arguments[number])
            if y.result().tobytes() != expected[number][0].tobytes() or total.result() != expected[number][1]:
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_what_another_thread_does_is_not_ours(at_once):
    """Tracing, ``disable`` and error states of one thread leave calls of the others alone."""
    staged, x = fx.futurize(lambda x: (x / x[::-1] + 1) * 2), np.arange(1.0, 4.0)
    for _ in range(8):
        staged(x)
    inside, done = threading.Event(), threading.Event()

    def other_thread():
        with fx.disable(), np.errstate(all="raise"), start(Trace("other")):
            assert tracing()
            inside.set()
            assert done.wait(60)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(other_thread)
        try:
            assert inside.wait(60)
            assert not tracing()
            assert isinstance(staged(x), fx.Array)
            with np.errstate(all="raise"), pytest.raises(FloatingPointError):
                staged(np.zeros(3))
        finally:
            done.set()
        other.result()


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.float64])
def test_what_compiled_functions_pass_through_is_a_copy(at_once, dtype):
    """Also of types that generated code hands on without looking at them."""

    @fx.futurize
    def kept_and_doubled(x):
        before = x.copy()
        x *= 2
        return before, x.sum(), before + 1, before + 1

    for _ in range(6):
        x = np.arange(1, 6).astype(dtype)
        before, total, first, second = map(np.asarray, kept_and_doubled(x))
        assert (before.tolist(), x.tolist()) == ([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
        assert total == 30
        assert not any(np.shares_memory(*pair) for pair in itertools.combinations((x, before, first, second), 2))


@pytest.mark.parametrize("several, taken", [(False, False), (True, True)])
def test_a_function_that_is_as_good_spares_the_other_processors(several, taken):
    plan = fx.futurize(lambda x: (x + 1, np.sort(x) * 2)).trace(np.ones(5)).plan
    compared = whole.Whole(
        plan.graph, plan.whole._compiler, plan._replayed, plan.delivery, plan.grain, behind=False, several=several
    )
    compared.make()
    for _ in range(whole.TRIALS):
        compared._compared(0, 1.0)
        compared._compared(1, 1.0)
    assert compared.taken is taken


def test_a_function_that_was_taken_stays_unless_the_plan_is_better():
    compared = fx.futurize(lambda x: (x + 1, np.sort(x) * 2)).trace(np.ones(5)).plan.whole
    compared.make()
    for seconds, taken in ((0.5, True), (1.0, True), (1.3, False)):
        for _ in range(whole.TRIALS):
            compared._compared(0, 1.0)
            compared._compared(1, seconds)
        assert compared.taken is taken, seconds
