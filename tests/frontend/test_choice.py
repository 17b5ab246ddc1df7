"""Short calls that are faster as plain NumPy go on as that, and nobody can tell but by the time they take."""

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from choosing import alike, compare_soon, settle

import futurex as fx
from futurex.frontend import choice
from futurex.frontend.plain import call_for_futures
from futurex.runtime.habit import Habit


@pytest.fixture
def at_once(monkeypatch):
    compare_soon(monkeypatch)


@pytest.fixture
def soon(at_once, monkeypatch):
    """Compare after a few calls, and take what is measured for what it is."""
    monkeypatch.setattr(choice, "_BETTER", 1.0)


@pytest.fixture
def long_ones(at_once, monkeypatch):
    """All runs count as long."""
    monkeypatch.setattr(choice, "is_short", lambda plan: False)
    for bound in ("_MUCH_BETTER", "_CLEARLY_BETTER"):
        monkeypatch.setattr(choice, bound, 1e9)


VALUES = np.arange(6.0)


def helper(x):
    return np.ma.masked_equal(x, 3.0).filled(0.0)


def with_fragment(x):
    return helper(x) * 2, x.sum()


def number_twice(x, s):
    most = x.max()
    return {"most": most, "more": [most, most + s, x.size], "again": most}


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x, s: x * s + 1, (VALUES, 2.5)),
        (lambda x, s: {"sum": x.sum(), "parts": (x * s, np.array(3) + s), "list": [x > s, s * 2]}, (VALUES, 2.5)),
        (lambda x, s: (x.astype(np.int8), x.max() > s, np.float32(2) * x[0]), (VALUES, 2.5)),
        (number_twice, (VALUES, 2.5)),
        (with_fragment, (VALUES,)),
    ],
)
def test_plain_results_are_those_of_the_trace(at_once, function, args):
    f = fx.futurize(function)
    staged = f(*args)
    settle(f, *args)
    plain = f(*args)
    alike(plain, staged)


def test_what_somebody_else_holds_is_copied(at_once):
    held = np.zeros(3)
    keep = []

    def f(x):
        y = x + held
        return y[:2]

    g = fx.futurize(f)
    settle(g, np.ones(3))
    first = g(np.ones(3))
    second = g(np.ones(3))
    keep += [first, second]
    assert not np.shares_memory(first.result(), second.result())
    assert first.tolist() == [1.0, 1.0]


def test_an_error_is_that_of_the_future(at_once):
    f = fx.futurize(lambda x: np.linalg.inv(x))
    settle(f, np.eye(2))
    failed = f(np.zeros((2, 2)))
    with pytest.raises(np.linalg.LinAlgError):
        failed.result()
    assert f(np.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    g = fx.futurize(lambda x: (np.linalg.inv(x), len(x), x))
    settle(g, np.eye(2))
    failed, *others = g(zeros := np.zeros((2, 2)))
    with pytest.raises(np.linalg.LinAlgError):
        failed.result()
    assert others[0] == 2
    assert others[1] is zeros


FACTOR = 2


def test_a_guard_that_fails_traces_again(at_once, monkeypatch):
    f = fx.futurize(lambda x: x * FACTOR)
    settle(f, np.ones(2))
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert f(np.ones(2)).tolist() == [3.0, 3.0]


def write(a):
    a += 1
    return a * 2, a, None, a[1:], float(a[0])


def draw(a, rng):
    return a + rng.random(), int(rng.integers(9))


def say(a):
    print("here", a.shape)
    return a + 1


def refuse(a):
    a += 1
    if a[0] > 50:
        raise ValueError(f"{a[0]} is too much")
    return a.sum()


ACTS = {"writes": write, "draws": draw, "prints": say, "refuses": refuse}


@pytest.mark.parametrize("kind", ACTS)
def test_calls_that_act_have_the_choice_and_act_once(at_once, kind, capsys):
    def called(f):
        """Results, errors and what is left behind, of calls on one array and one generator."""
        a, rng = np.zeros(3), np.random.default_rng(0)
        seen = []
        for _ in range(60):
            try:
                result = f(a, rng) if kind == "draws" else f(a)
                parts = result if type(result) is tuple else (result,)
                seen.append([(np.asarray(each).tolist(), each is a, np.shares_memory(each, a)) for each in parts])
            except ValueError as error:
                seen.append(str(error))
        return seen, a.tolist(), rng.random(), capsys.readouterr().out

    f = fx.futurize(ACTS[kind])
    first = f(np.zeros(3), np.random.default_rng(0)) if kind == "draws" else f(np.zeros(3))
    capsys.readouterr()
    assert called(f) == called(ACTS[kind])
    assert "calls run as plain NumPy" in f.explain()
    last = f(np.zeros(3), np.random.default_rng(0)) if kind == "draws" else f(np.zeros(3))
    kinds = [[type(each) for each in fx.tree.pytree.flatten(result)[0]] for result in (first, last)]
    assert kinds[0] == kinds[1]
    assert fx.Array in kinds[0]


def test_traces_that_take_turns_have_the_choice(at_once):
    def either(a, flag):
        a += 1
        return a.sum() if flag else a.max()

    f, a = fx.futurize(either), np.zeros(3)
    for k in range(120):
        assert float(f(a, k % 2 == 0)) == (3.0 * (k + 1) if k % 2 == 0 else k + 1.0)
    assert f.explain().count("calls run as plain NumPy") == 2


def test_a_generator_of_another_kind_is_another_trace(at_once):
    f = fx.futurize(draw)
    for _ in range(30):
        f(np.ones(3), np.random.default_rng(1))
    other = [np.random.Generator(np.random.MT19937(1)) for _ in range(2)]
    np.testing.assert_array_equal(f(np.ones(3), other[0])[0], draw(np.ones(3), other[1])[0])


@pytest.mark.parametrize("kind", ["donates", "future", "gradient"])
def test_calls_that_leave_more_behind_have_no_choice(at_once, kind):
    x = np.ones(3)
    functions = {
        "donates": (fx.futurize(lambda a: a * 2, donate="a"), (x,)),
        "future": (fx.futurize(lambda a: a * 2), (fx.futurize(lambda a: a + 0)(x),)),
        "gradient": (fx.grad(fx.futurize(lambda a: (a * a).sum())), (x,)),
    }  # fmt: skip
    f, args = functions[kind]
    for _ in range(40):
        f(*args)
    if hasattr(f, "explain"):
        assert "calls run as plain NumPy" not in f.explain()


def test_one_plain_call_that_takes_far_longer_is_enough(at_once, monkeypatch):
    monkeypatch.setattr(choice, "_BETTER", 1.0)
    f = fx.futurize(lambda x: x * 2)
    for _ in range(8):
        f(np.arange(4.0)).result()
    taken = f._lane.choice
    taken.open, taken.plain, taken._staged, taken._plain = True, False, [1e-5], []
    taken.was_plain(time.perf_counter() - 1.0)
    assert not taken.open
    assert not taken.plain


def test_a_first_plain_call_that_is_slow_for_it_is_cold_is_not_enough(soon, monkeypatch):
    f = fx.futurize(lambda x: x * 2)
    for _ in range(8):
        f(np.arange(4.0)).result()
    taken = f._lane.choice
    taken.open, taken.plain, taken._staged, taken._plain = True, False, [2e-6] * choice.TRIALS, []
    monkeypatch.setattr(choice, "time", SimpleNamespace(perf_counter=lambda: 1.0))  # not that of a busy machine
    taken.was_plain(1.0 - 3e-5)
    assert taken.open
    taken._plain += [1e-6] * (choice.TRIALS - 2)
    taken.was_plain(1.0 - 1e-6)
    assert taken.plain


def test_the_faster_way_stays():
    def slow(x):  # a fragment costs more than the call
        return helper(x) * 2

    f = fx.futurize(slow)
    x = np.arange(4.0)
    for _ in range(8):
        f(x)
    lane = f._lane
    lane.choice.seconds = (2e-5, 1e-5)
    assert lane.choice.text() is None
    lane.choice.plain = True
    assert "10 µs instead of 20 µs" in f.explain()
    np.testing.assert_array_equal(f(x).result(), [0.0, 2.0, 4.0, 0.0])


def compared(f, x, staged, plain):
    """The choice of a function, after calls that took so many seconds."""
    for _ in range(8):
        f(x).result()
    taken = f._lane.choice
    taken.open, taken.plain, taken._staged, taken._plain = True, False, [], []
    while len(taken._staged) < choice.TRIALS:
        taken.was_staged(time.perf_counter() - staged)
    for _ in range(choice.TRIALS):
        taken.was_plain(time.perf_counter() - plain)
    assert not taken.open or taken.plain
    return taken


@pytest.mark.parametrize(("staged", "plain", "taken"), [(200.0, 150.0, True), (150.0, 200.0, False)])
def test_short_calls_go_the_faster_way(soon, staged, plain, taken):
    assert compared(fx.futurize(lambda x: x * 2), np.arange(4.0), staged, plain).plain is taken


@pytest.mark.parametrize(
    ("plain", "waits", "taken"), [(150.0, False, False), (50.0, False, True), (150.0, True, True), (190.0, True, False)]
)
def test_the_caller_waits_for_what_is_much_faster_or_where_it_does_anyway(soon, monkeypatch, plain, waits, taken):
    def rounds(x):
        z = np.float16(0)
        for i in range(len(x)):
            z = z * z + x[i]
        return z

    monkeypatch.setattr(choice, "is_short", lambda plan: False)
    monkeypatch.setattr(Habit, "waits", property(lambda habit: waits, lambda habit, found: None))
    assert compared(fx.futurize(rounds), np.linspace(-0.5, 0.2, 20).astype(np.float16), 200.0, plain).plain is taken


def test_plain_calls_are_compared_again(soon):
    f = fx.futurize(lambda x: x * 2)
    taken = compared(f, np.arange(4.0), 200.0, 1e-9)
    rounds = choice.AGAIN - 1
    assert all(taken.goes_plain() for _ in range(rounds))
    assert not taken.goes_plain()
    assert taken.open
    assert not taken.next_is_plain  # a staged call first, to measure both anew


def test_rounds_one_by_one_have_the_choice_however_long_they_take(long_ones):
    def rounds(x):
        z = np.float16(0)
        for i in range(len(x)):
            z = z * z + x[i]
        return z

    x = np.linspace(-0.5, 0.2, 20).astype(np.float16)
    f = fx.futurize(rounds)
    assert "runs round by round" in (settle(f, x) or f.explain())
    assert f(x).result() == rounds(x)


def test_so_has_a_loop_whose_compiled_code_always_gives_up(long_ones):
    def eliminated(a):
        a, i = a.copy(), 0
        while i < len(a) - 1:  # of which nobody knows before that the column has one element
            a[i + 1 :] -= a[i + 1 :, i : i + 1] * a[i] * 0.25
            i += 1
        return a

    a = np.cos(np.arange(900.0)).reshape(30, 30)
    f, wanted = fx.futurize(eliminated), eliminated(a)
    fx.precompile(f, a)
    for _ in range(20):
        f(a).result()
    settle(f, a)
    np.testing.assert_allclose(f(a).result(), wanted, rtol=1e-12)
    assert "plain NumPy, which is faster" in f.explain()


def test_a_long_run_without_rounds_has_none(long_ones):
    f = fx.futurize(lambda x: np.linalg.inv(x) @ x)
    for _ in range(40):
        f(np.eye(3)).result()
    assert "calls run as plain NumPy" not in f.explain()


def test_a_long_run_of_many_operations_on_small_arrays_has_the_choice(long_ones):
    def many(x):
        found = []
        for _ in range(20):
            x = np.linalg.inv(x) @ np.sort(x, axis=0) - np.linalg.solve(x, x.T) + np.cumprod(x * 0.5, axis=1)
            x = x / np.abs(x).max() + 3 * np.eye(3)
            found += [np.linalg.eigvalsh(x + x.T)]
        return np.array(found)

    f, x = fx.futurize(many), np.eye(3) + 0.1
    settle(f, x)
    assert f._lane.choice.seconds != (0.0, 0.0), f.explain()


def test_so_has_one_with_a_few_on_large_arrays_beside_them(long_ones):
    def resampled(x, places):
        left_out = np.array([np.median(np.delete(x, i + j)) for i in range(0, 80, 20) for j in range(20)])
        return np.median(x[places], axis=1).std(), left_out.mean()

    f, x = fx.futurize(resampled), np.cos(np.arange(80.0))
    settle(f, x, np.arange(40_000).reshape(500, 80) * 7 % 80)
    assert f._lane.choice.seconds != (0.0, 0.0), f.explain()


HELD = np.arange(3.0)
KINDS = {
    "a view of its own": lambda x, s: ((x + 1)[1:], s),
    "what somebody else holds": lambda x, s: (HELD, x * s),
    "an argument": lambda x, s: [x, s],
    "one array twice": lambda x, s: (lambda y: (y, y))(x * s),
    "another type": lambda x, s: x.astype(np.float32) * 2 if s > 3 else (x, 1),
    "another shape": lambda x, s: {"a": x[: int(s)] + 1, "b": None, "c": "text"},
    "texts and numbers": lambda x, s: (np.array(["a"]), x.sum(), float(s), 2**70, True),
    "one number": lambda x, s: x.sum() * s,
}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_calls_return_the_same_the_short_way_and_the_long_one(kind):
    def function(x, s):
        np.ma.masked_equal(x, 3.0).count()
        vars(np)  # cannot be staged
        return KINDS[kind](x, s)

    short, flat = fx.futurize(function, escape="eager"), fx.tree.pytree.flatten
    x = np.arange(5.0)
    for s in (2.0, 2.0, 2.0, 2.0, 4.0, 3.0):
        mine, other = short(x, s), fx.futurize(function, escape="eager")(x, s)
        assert flat(mine)[1] == flat(other)[1]
        for one, two in zip(flat(mine)[0], flat(other)[0], strict=True):
            assert type(one) is type(two)
            assert not isinstance(one, fx.Array) or one.aval == two.aval
            np.testing.assert_array_equal(np.asarray(one), np.asarray(two))
            assert (one is x) is (two is x)
    assert short._lane.variant.graph is None


def test_calls_that_go_plain_because_runs_failed_are_not_measured_as_staged():
    def outgrows(a):
        product = 1
        for v in a:
            product = product * int(v)
        return product

    f, a = fx.futurize(outgrows), np.full(6, 2**40)
    for _ in range(100):
        assert f(a) == 2**240
    lane = f._lane
    assert lane.variant.rest
    assert lane.choice._calls < 20
    assert lane.plain.call not in (call_for_futures, lane.plain._first)  # the short way


def test_calls_rest_as_many_times_as_runs_have_failed():
    def outgrows(a):
        product = 1
        for v in a:
            product = product * int(v)
        return product, a * 2

    f, rests = fx.futurize(outgrows), []
    for k in range(100):
        a = np.full(6, 2 + (k % 5) * 2**40)
        product, double = f(a)
        assert product == outgrows(a)[0]
        assert double.tolist() == (a * 2).tolist()
        assert type(double) is fx.Array
        rests.append(f._lane.variant.rest if f._lane is not None else 0)
    assert max(rests) > 3
    assert all(later == earlier - 1 for earlier, later in itertools.pairwise(rests) if earlier > 1)
