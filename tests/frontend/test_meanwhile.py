"""While a plan and its code are made, calls go as plain NumPy; nobody can tell but by the time they take."""

import functools
import importlib.util
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from returned_lists import both_sides, pairs, places

import futurex as fx
from futurex.frontend.choice import has_rounds
from futurex.kernels import compiling
from futurex.kernels.numba_ import compiler

SECONDS = 60.0
MAKING = "its code is being made"


@pytest.fixture(autouse=True)
def calls_of_little_are_worth_it(nothing_is_compiled, monkeypatch):
    monkeypatch.setattr("futurex.frontend.meanwhile.WORTH", 0.0)


@pytest.fixture
def compiler_waits():
    """The thread that makes plans and code is held up until the test lets it go on."""
    go = threading.Event()
    compiling.background.submit(lambda: go.wait(SECONDS))
    yield go.set
    go.set()


def made(f):
    """Wait until calls are staged."""
    end = time.monotonic() + SECONDS
    while MAKING in f.explain():
        assert time.monotonic() < end, f.explain()
        time.sleep(0.005)


def levels(starts, ends, source):
    dist = np.full(len(starts) - 1, -1)
    dist[source] = 0
    queue = [source]
    while queue:
        v = queue.pop(0)
        for k in range(starts[v], starts[v + 1]):
            w = ends[k]
            if dist[w] < 0:
                dist[w] = dist[v] + 1
                queue.append(w)
    return dist


def root(a, x):
    while abs(x * x - a) > 1e-12 * a:
        x = (x + a / x) / 2
    return x


def roots(values):
    first = root(values[0], 1.0)
    return {"first": first, "rest": [values.sum() * first, values[1:] * 2], "many": values > 1}


GRAPH = np.array([0, 2, 3, 5, 6, 6]), np.array([1, 2, 3, 0, 3, 4]), np.int64(0)
VALUES = np.array([2.0, 3.0, 0.5])
CASES = {
    "list": (levels, GRAPH), "helper": (roots, (VALUES,)),
    "returned": (both_sides, (VALUES - 1,)), "of tuples": (pairs, (VALUES - 1,)), "beside others": (places, (VALUES,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calls_are_plain_first_and_staged_later_and_mean_the_same(name, compiler_waits):
    function, args = CASES[name]
    f = fx.futurize(function)
    first = [f(*args) for _ in range(4)]
    assert MAKING in f.explain()
    assert f.profile() == []
    compiler_waits()
    made(f)
    leaves = fx.tree.pytree.flatten
    staged = f(*args)
    assert f.profile() != []
    expected = leaves(function(*args))
    for result in (*first, staged):
        found, structure = leaves(result)
        assert structure == expected[1]
        for mine, other, plain in zip(found, leaves(staged)[0], expected[0], strict=True):
            assert type(mine) is fx.Array
            assert (mine.shape, mine.dtype, mine.aval.weak) == (other.shape, other.dtype, other.aval.weak)
            np.testing.assert_array_equal(mine.result(), plain)


def steps(n):
    k = 0.0
    while k < n:
        k = k + 1.0
    return k


@pytest.mark.parametrize("function", [steps, lambda n: steps(n)])
def test_a_long_plain_call_ends_when_the_code_is_there(function, compiler_waits):
    f = fx.futurize(function)
    found = []
    caller = threading.Thread(target=lambda: found.append(float(f(4e8))), daemon=True)  # half a minute, if plain
    caller.start()
    time.sleep(0.05)
    assert not found
    compiler_waits()
    caller.join(SECONDS)
    assert found == [4e8]
    assert f.profile() != []  # it went on staged


def swallows(n):
    k = 0.0
    try:
        while k < n:
            k = k + 1.0
    finally:
        return k  # noqa: B012


def catches(n):
    k = 0.0
    while k < n:
        try:
            k = k + 1.0
        except:  # noqa: E722
            k = n
    return k


@pytest.mark.parametrize("function", [swallows, catches])
def test_what_would_hold_up_the_end_of_a_loop_changes_no_result(function, compiler_waits):
    f = fx.futurize(function)
    found = []
    caller = threading.Thread(target=lambda: found.append(float(f(1e7))), daemon=True)
    caller.start()
    time.sleep(0.05)
    compiler_waits()
    caller.join(SECONDS)
    assert found == [1e7]


def walk(rng, n):
    at, steps = 0.0, 0
    while at < n:
        at, steps = at + rng.random(), steps + 1
    return {"at": at, "steps": steps, "more": rng.normal(size=3)}


def _walks(rng, function, *lengths):
    """What calls return, and the state of the generator behind them."""
    found = [{name: np.asarray(value).tolist() for name, value in function(n).items()} for n in lengths]
    return found, rng.bit_generator.state


@pytest.mark.parametrize("argument", [True, False])
def test_calls_that_draw_are_plain_first(argument, compiler_waits):
    rng, plain = np.random.default_rng(5), np.random.default_rng(5)
    f = fx.futurize(walk if argument else lambda n: walk(rng, n))
    call = functools.partial(f, rng) if argument else f
    first = _walks(rng, call, 3.0, 40.0)
    assert MAKING in f.explain()
    assert f.profile() == []
    compiler_waits()
    made(f)
    last = _walks(rng, call, 7.0)
    assert f.profile() != []
    wanted = functools.partial(walk, plain)
    assert (first, last) == (_walks(plain, wanted, 3.0, 40.0), _walks(plain, wanted, 7.0))


def test_two_generators_of_the_same_bits_are_plain_for_ever(compiler_waits):
    bits = np.random.PCG64(5)
    f = fx.futurize(lambda a, b, n: (walk(a, n), walk(b, n)))
    found = f(np.random.Generator(bits), np.random.Generator(bits), 3.0)
    compiler_waits()
    assert MAKING not in f.explain()
    rng = np.random.default_rng(5)
    wanted = walk(rng, 3.0), walk(rng, 3.0)
    for mine, plain in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine["more"], plain["more"])


def test_a_long_plain_call_that_draws_ends_and_draws_the_same_again(compiler_waits):
    f = fx.futurize(walk)
    rng, found = np.random.default_rng(6), []
    call = functools.partial(f, rng)
    caller = threading.Thread(target=lambda: found.append(_walks(rng, call, 1e6)), daemon=True)
    caller.start()
    time.sleep(0.05)
    assert not found
    compiler_waits()
    caller.join(SECONDS)
    assert f.profile() != []
    plain = np.random.default_rng(6)
    assert found == [_walks(plain, functools.partial(walk, plain), 1e6)]


def test_a_plain_call_that_draws_and_raises_is_made_once(compiler_waits):
    def f(rng, x):
        for _ in range(20):
            x = x + rng.normal(size=2)
        if (x > 1e6).any():
            raise ValueError("too far")
        return x

    futurized = fx.futurize(f)
    for start in (0.0, 1e7, 0.0):
        mine, plain = np.random.default_rng(7), np.random.default_rng(7)
        results = []
        for function, rng in ((futurized, mine), (f, plain)):
            try:
                results.append(np.asarray(function(rng, np.full(2, start))).tolist())
            except ValueError as error:
                results.append(str(error))
        assert results[0] == results[1]
        assert mine.bit_generator.state == plain.bit_generator.state


def test_an_error_is_that_of_the_future(compiler_waits):
    def solve(a, n):
        while n > 0:
            a = np.linalg.inv(a)
            n -= 1
        return a

    f = fx.futurize(solve)
    failed = f(np.zeros((2, 2)), 1.5)
    with pytest.raises(np.linalg.LinAlgError):
        failed.result()
    assert f(np.eye(2), 1.5).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_an_error_that_plain_python_raises_is_raised(compiler_waits):
    def take(n):
        found = [n]
        while n > 0:
            n = n - 1
            found.append(n)
        while n < 100:
            n = found.pop()
        return n

    f = fx.futurize(take)
    with pytest.raises(IndexError, match="pop from empty list"):
        f(np.int64(3))
    assert f(np.int64(100)) == take(np.int64(100))


HELD = np.zeros(3)


def test_what_somebody_else_holds_is_copied(compiler_waits):
    def view(n):
        while n > 1:
            n = n / 2
        return HELD[:2], HELD + n

    f = fx.futurize(view)
    one, two = f(5.0), f(5.0)
    assert not np.shares_memory(np.asarray(one[1]), np.asarray(two[1]))
    assert type(one[0]) is type(two[0])
    assert two[1].tolist() == [0.625] * 3


def test_functions_that_do_more_than_compute_or_ask_futurex_are_not_plain(compiler_waits):
    inner = fx.futurize(root)

    def writes(x):
        while x[0] > 1:
            x /= 2
        return x * 2

    def nested(x):
        return inner(x[0], 1.0)

    def activated(x):
        while x[0] > 1:
            x = x / 2
        return fx.nn.softmax(x)

    for function in (writes, nested, activated):
        f = fx.futurize(function)
        f(np.array([4.0, 2.0]))
        assert MAKING not in f.explain()


def test_functions_that_do_more_than_draw_are_not_plain(compiler_waits, capsys):
    kept = {"x": np.zeros(2)}

    def writes(x, rng):
        while x[0] > 1:
            x /= 2 + rng.random()
        return x * 2

    def prints(x, rng):
        while x[0] > 1:
            x = x / (2 + rng.random())
        print("done", rng.random())
        return x * 2

    def keeps(x, rng, kept):
        while x[0] > 1:
            x = x / (2 + rng.random())
        kept["x"] = x
        return x * 2

    for function, more in ((writes, ()), (prints, ()), (keeps, (kept,))):
        f = fx.futurize(function)
        f(np.array([4.0, 2.0]), np.random.default_rng(0), *more)
        assert "staged: " in f.explain()
        assert MAKING not in f.explain()


def test_who_needs_the_plan_makes_it(compiler_waits):
    """Even if the thread that was to make it does something else."""
    f = fx.futurize(root)
    assert abs(float(f(2.0, 1.0)) - 2**0.5) < 1e-12
    f.memory(2.0, 1.0)
    assert any(row.op == "loop" for row in f.profile())


def test_a_child_goes_on_without_the_thread(compiler_waits):
    f = fx.futurize(root)
    expected = float(f(2.0, 1.0))
    child = os.fork()
    if child == 0:
        same = float(f(2.0, 1.0)) == expected and f.profile() != []
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_function_of_few_operations_waits_for_its_plan(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("FUTUREX_COMPILE", "background")
    f = fx.futurize(lambda x: x * 2 + 1)
    f(VALUES)
    assert f.profile() != []


def crossed(x):
    """Loops of which each is a kernel of its own, between which little happens."""
    total = np.zeros(4)
    for k in range(20):
        total[k % 4] += x[k] * 0.5
    for k in range(20):
        total[(k + 1) % 4] -= x[k] * x[k]
    for k in range(20):
        total[(k + 2) % 4] += x[k] - total[k % 4]
    return total


def called(f, x, seconds=SECONDS):
    """Call until one function leads."""
    end = time.monotonic() + seconds
    while MAKING in f.explain():
        assert time.monotonic() < end, f.explain()
        f(x).result()
    return next(variant.plan for variant in f._traces())


def test_one_function_leads_and_kernels_come_when_they_are_worth_it(compiler_waits, monkeypatch):
    monkeypatch.setattr("futurex.runtime.whole.LEADS", 1e9)
    f, x = fx.futurize(crossed), np.linspace(-1, 1, 20)
    expected = crossed(x)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), expected)
    compiler_waits()
    plan = called(f, x)
    compiled = compiler.Counts.compiled
    assert plan.ready
    assert not plan._has_code
    assert plan.whole.leads
    assert not plan.whole.settled
    assert "runs as one compiled function" in f.explain()
    for _ in range(8):
        np.testing.assert_array_equal(f(x), expected)
    assert plan.interpreted == 0
    assert compiler.Counts.compiled == compiled
    monkeypatch.setattr("futurex.runtime.whole.LEADS", 0.0)
    end = time.monotonic() + SECONDS
    while not plan.whole.settled:
        assert time.monotonic() < end, f.explain()
        np.testing.assert_array_equal(f(x), expected)
    assert plan._has_code
    assert compiler.Counts.compiled > compiled
    assert plan.interpreted == 0


def test_a_single_call_is_not_worth_a_function(compiler_waits):
    f, x = fx.futurize(crossed), np.linspace(-1, 1, 20)
    np.testing.assert_array_equal(f(x), crossed(x))
    compiler_waits()
    made(f)
    plan = next(variant.plan for variant in f._traces())
    assert plan._has_code
    assert not plan.whole.leads


def test_kernels_are_made_where_no_function_can_lead(compiler_waits, monkeypatch):
    f, x = fx.futurize(crossed), np.linspace(-1, 1, 20)
    for _ in range(2):
        f(x)

    def refused(self, graph, donated=()):
        raise RuntimeError("not today")

    monkeypatch.setattr("futurex.kernels.loops.backend.LoopBackend.whole", refused)
    compiler_waits()
    plan = called(f, x)
    assert plan._has_code
    assert "not today" in f.explain()
    np.testing.assert_array_equal(f(x), crossed(x))


def test_a_function_that_leads_and_gives_up_leaves_the_run_to_the_plan(compiler_waits, monkeypatch):
    monkeypatch.setattr("futurex.runtime.whole.LEADS", 1e9)  # one slow call does not end it
    f, x = fx.futurize(crossed), np.linspace(-1, 1, 20)
    for _ in range(2):
        f(x)
    compiler_waits()
    plan = called(f, x)
    assert plan.whole.leads

    class Never:
        own = 0

        def __call__(self, *inputs):
            return None

        def release(self):
            pass

    monkeypatch.setattr(plan.whole, "_program", Never())
    end = time.monotonic() + SECONDS
    while not (plan.whole.settled and plan._has_code):
        assert time.monotonic() < end, f.explain()
        np.testing.assert_array_equal(f(x), crossed(x))
    assert "gave up too often" in f.explain()


def test_a_function_leads_where_the_plan_goes_round_by_round(monkeypatch):
    """Also where none of its kernels is left to be made."""
    monkeypatch.setattr("futurex.kernels.loops.backend._MOST_NODES", 600)  # as for a loop that is longer
    monkeypatch.setattr("futurex.runtime.whole.LEADS", 1e9)  # one slow call does not end it
    path = Path(__file__).parents[1] / "programs" / "minesweeper.py"
    spec = importlib.util.spec_from_file_location("minesweeper", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, end = module.example(np.random.default_rng(0)), time.monotonic() + SECONDS
    expected = module.minesweeper(*args)

    def call(f):
        assert time.monotonic() < end, f.explain()
        for one, two in zip(f(*args), expected, strict=True):
            np.testing.assert_array_equal(one, two)

    for _ in range(2):
        f, go = fx.futurize(module.minesweeper), threading.Event()
        compiling.background.submit(functools.partial(go.wait, SECONDS))
        for _ in range(3):
            call(f)
        go.set()
        while MAKING in f.explain():
            call(f)
        plan = next(variant.plan for variant in f._traces())
        assert has_rounds(plan)
        assert plan.whole.leads
        with monkeypatch.context() as patch:
            patch.setattr("futurex.runtime.whole.LEADS", 0.0)
            while plan.whole.leads or not plan.whole.settled:
                call(f)
        assert "instead of" in f.explain()
