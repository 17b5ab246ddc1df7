"""Ctrl-C, a notebook's interrupt and other signals, while a loop is under way that is one piece of machine code."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, Graph, apply, item, param

WAIT = 60
LONG = 10**10
"""Rounds of a loop that takes some ten seconds: without looks a test fails, and ends."""
X = np.arange(8.0)
I8 = np.dtype(np.int64)


@pytest.fixture(autouse=True)
def state_of_errors():
    """NumPy's own ``np.errstate`` is left in force where an interrupt comes while it is entered; later tests are not to
    find that."""
    before = np.geterr()
    yield
    np.seterr(**before)


def over_numbers(x, rounds):
    total = 0.0
    for i in range(rounds):
        total = total * 0.5 + x[i % 8]
    return total


def over_rows(x, rounds):
    rows = np.zeros((1 << 10, 32)) + x[0]
    for _ in range(rounds):
        rows = rows * rows * 0.5 + 0.25
    return rows


def nested(x, rounds):
    y = x.copy()
    for _ in range(rounds):
        for i in range(1, 8):
            y[i] = 0.5 * y[i] + y[i - 1]
    return y


def until(x, rounds):
    count = np.float64(0)
    while count < rounds:
        count = np.minimum(count + 1.0, rounds)
    return count + x[0]


def vectors(x, rounds):
    total = np.int64(0)
    for i in range(rounds):
        total = total + (np.int64(i) ^ np.int64(5)) % 7
    return total + x[0]


def calling(x, rounds):
    total = 0.0
    for _ in range(rounds):
        total = total * 0.5 + np.quantile(x + total, 0.3)
    return total


def gradient(x, rounds):
    def loss(y):
        for _ in range(rounds):
            y = y * 0.99 + 0.01 * np.tanh(y)
        return y.sum()

    return fx.grad(loss)(x)


PROGRAMS = {
    over_numbers: LONG, over_rows: 10**6, nested: 10**9, until: LONG, vectors: 10**11, calling: 10**6, gradient: 10**8,
}  # fmt: skip


@contextlib.contextmanager
def handled(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.fixture
def interrupts():
    with handled(signal.SIGINT, signal.default_int_handler):  # ignored by what a script starts behind itself
        yield


def soon(number=signal.SIGINT, seconds=0.3):
    timer = threading.Timer(seconds, signal.pthread_kill, (threading.main_thread().ident, number))
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def interrupted():
    """What is done inside ends by an interrupt that comes soon."""
    soon()
    with pytest.raises(KeyboardInterrupt):
        yield


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_a_loop_that_the_caller_runs_ends_at_an_interrupt(function, interrupts):
    futurized = fx.futurize(function)
    for _ in range(9):  # whoever waits at once runs what is short himself
        np.testing.assert_allclose(futurized(X, 30).result(), function(X, 30))
    for _ in range(2):
        with interrupted():
            futurized(X, PROGRAMS[function]).result()
    np.testing.assert_allclose(futurized(X, 30).result(), function(X, 30))


def plan_of(rounds, backends=None):
    """x, i = x * 0.5 + 1, i + 1 while i < rounds: an endless loop in a plan of its own."""
    x, i = param(Aval((8,), X.dtype), "x"), param(Aval((), I8), "i")
    params = [x, i]
    body = Graph(params, [x * 0.5 + 1.0, i + 1], "body")
    test = Graph(params, [apply("less", i, rounds)], "test")
    outer = [param(Aval((8,), X.dtype), "x"), param(Aval((), I8), "i")]
    loop = apply("loop", *outer, test=test, body=body, tape=())
    return compile_plan(Graph(outer, [item(loop, 0)]), backends=backends)


@pytest.fixture
def executor():
    made = LocalExecutor(workers=1)
    yield made
    made.shutdown()


def begun(executor, plan, args):
    """A run of a worker; it is under way."""
    plan.grain.measured(-1, 1.0)  # too long to be run here
    [future] = executor.submit(plan, args)
    until = time.monotonic() + WAIT
    while not future.running():
        assert time.monotonic() < until
        time.sleep(0.001)
    return future


@pytest.mark.parametrize("backends", [None, (NumpyBackend(),)], ids=["compiled", "round by round"])
@pytest.mark.parametrize("ask", ["result", "exception"])
def test_who_is_interrupted_while_he_waits_ends_the_run_of_a_worker(executor, backends, ask, interrupts):
    future = begun(executor, plan_of(LONG, backends), [X, np.int64(0)])
    with interrupted():
        getattr(future, ask)(WAIT)
    with pytest.raises(CancelledError, match="somebody was interrupted who waited for this run"):
        future.result(WAIT)
    [after] = executor.submit(plan_of(3, backends), [X, np.int64(0)])  # the only worker is free again
    np.testing.assert_array_equal(after.result(WAIT), ((X * 0.5 + 1) * 0.5 + 1) * 0.5 + 1)


def test_a_run_that_is_waited_for_ends_with_what_it_waits_for_and_others_go_on(executor, interrupts):
    first = begun(executor, plan_of(LONG), [X, np.int64(0)])
    [beside] = executor.submit(plan_of(3), [X, np.int64(0)])
    [second] = executor.submit(plan_of(3), [first, np.int64(0)])
    with interrupted():
        second.result(WAIT)
    for each in (first, second):
        with pytest.raises(CancelledError):
            each.result(WAIT)
    assert beside.result(WAIT) is not None


def test_an_interrupted_call_leaves_its_arguments_as_they_were(interrupts):
    @fx.futurize
    def count(a, rounds):
        for i in range(rounds):
            a[i % 8] += 1.0
        return a.sum()

    a = X.copy()
    for _ in range(9):
        count(a, 30).result()
    before = a.copy()
    with interrupted():
        count(a, LONG)
    np.testing.assert_array_equal(a, before)


def test_what_was_given_away_to_an_interrupted_call_is_gone(interrupts):
    @fx.futurize(donate="a")
    def grow(a, rounds):
        for _ in range(rounds):
            a = a * 0.5 + 1.0
        return a

    a = grow(X, 30)
    with interrupted():
        grow(a, LONG).result()
    with pytest.raises(fx.Donated):
        a.result(WAIT)


def test_other_signals_are_handled_while_a_loop_goes_on():
    seen = []
    futurized = fx.futurize(over_numbers)
    futurized(X, 30).result()

    def noted(*_):
        seen.append(time.monotonic())
        soon(signal.SIGUSR1 if len(seen) < 2 else signal.SIGALRM, 0.1)  # two that wait at once would be one

    with handled(signal.SIGUSR1, noted):
        with handled(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("of the alarm"))):
            soon(signal.SIGUSR1, 0.1)
            with pytest.raises(TimeoutError, match="of the alarm"):
                futurized(X, LONG).result()
    assert len(seen) == 2


def test_an_interrupt_is_not_lost_where_code_calls_python(interrupts):
    @fx.futurize
    def mostly_code(x, rounds):
        total = 0.0
        for _ in range(rounds):
            y = x
            for _ in range(3000):
                y = y * 0.99 + total
            total = 0.5 * total + np.quantile(y, 0.3)
        return total

    mostly_code(X, 3).result()
    for _ in range(4):
        with interrupted():
            mostly_code(X, 10**6).result()


@pytest.mark.slow
def test_ctrl_c_ends_a_script():
    script = (
        "import numpy as np, futurex as fx\n"
        "@fx.futurize\n"
        "def f(x, n):\n"
        "    for _ in range(n): x = x * 0.5 + 1.0\n"
        "    return x\n"
        "f(np.ones(4), 3).result()\n"
        "print('ready', flush=True)\n"
        "print(f(np.ones(4), 10**10))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT)
    assert errors.rstrip().endswith("KeyboardInterrupt")


ENDS = """
import atexit, sys, threading
atexit.register(lambda: print([each.name for each in threading.enumerate() if each.name.startswith("compute")]))
sys.path.insert(0, {folder!r})
import numpy as np, futurex as fx
from test_interrupts import until

f, x = fx.futurize(until), np.ones(8)
fx.precompile(f, x, 1.0)
for _ in range(3):  # from now on it is no call to wait for
    f(x, 1e7).result()
under_way = [f(x, 1e13), f(x * 2.0, 1e13)]
print([each.done() for each in under_way])
"""


def test_a_program_ends_while_a_compiled_loop_is_under_way():
    """No thread is in code that the process takes apart, which ended in a crash at times; one run waits for another."""
    script = ENDS.format(folder=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=4 * WAIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[False, False]\n[]\n", "")
