"""The pool and the local executor: futures, chains, cancellation, errors, shutdown."""

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest
from hypothesis import given, settings
from plan_graphs import F8, graphs, inputs, matrix

from futurex.kernels.interrupts import Stop
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel
from futurex.ops.control import Failure
from futurex.runtime import config
from futurex.runtime.counters import INLINE_BELOW, SPAWN_ABOVE, Grain
from futurex.runtime.futures import Future
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.runtime.pool import Pool, PoolRun
from futurex.tree import Aval, Graph, apply, param

NUMPY = (NumpyBackend(),)
WAIT = 60


class Slow:
    """Claims what ``ops`` names and takes it to be worth another thread; ``gate`` holds it until it is set."""

    name = "slow"

    def __init__(self, *ops, gate=None):
        self.ops, self.gate, self.threads = ops, gate, set()
        self.entered = threading.Semaphore(0)

    def claim(self, node, threads):
        if node.op not in self.ops:
            return None
        kernel = NUMPY[0].claim(node, threads)

        def call(out, *args):
            self.threads.add(threading.current_thread().name)
            self.entered.release()
            if self.gate is not None:
                assert self.gate.wait(WAIT)
            return kernel.call(out, *args)

        return Kernel(call, self.name, into=kernel.into, view=kernel.view)


@pytest.fixture
def executor():
    made = LocalExecutor(workers=2)
    yield made
    made.shutdown()


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def increment():
    x = param(Aval((), F8), "x")
    return compile_plan(Graph([x], [x + 1.0]), backends=NUMPY)


def failing():
    x = param(Aval((), F8), "x")
    check = apply("check", apply("less", x, 0.0), failure=Failure(ZeroDivisionError, ("positive",)))
    return compile_plan(Graph([x], [x + 1.0, check]), backends=NUMPY)


def held_back(gate):
    """A plan that waits for the gate, and is taken to be long."""
    x = matrix("x")
    backend = Slow("tanh", gate=gate)
    plan = compile_plan(Graph([x], [apply("tanh", x)]), backends=(backend, *NUMPY))
    plan.grain = Grain([1.0, 1.0])
    return plan, backend


def run_in_pool(pool, plan, args):
    future = concurrent.futures.Future()
    run = PoolRun(pool, plan, args, lambda results, error: future.set_result((results, error)), Stop())
    pool.push(run.start)
    return future.result(WAIT)


@given(graphs(max_nodes=20))
@settings(max_examples=60)
def test_the_pool_computes_what_the_graph_means(graph):
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    plan.grain = Grain([1.0] * (len(plan.instructions) + 1))  # everything is worth another thread
    args = inputs()
    for _ in range(2):
        results, error = run_in_pool(POOL, plan, args)
        assert error is None
        for got, want in zip(results, graph(*args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


POOL = Pool(3)


def test_independent_long_instructions_run_at_the_same_time(gate):
    x = matrix("x")
    backend = Slow("tanh", "sin", gate=gate)
    both = x @ x
    plan = compile_plan(Graph([x], [apply("tanh", both), apply("sin", both)]), backends=(backend, *NUMPY))
    plan.grain = Grain([1.0] * 4)
    future = concurrent.futures.Future()
    run = PoolRun(POOL, plan, inputs(n_params=1), lambda results, error: future.set_result(error), Stop())
    POOL.push(run.start)
    for _ in range(2):  # both are inside before either may leave
        assert backend.entered.acquire(timeout=WAIT)
    gate.set()
    assert future.result(WAIT) is None
    assert len(backend.threads) == 2
    assert sorted(row.inlined for row in plan.profile()) == [0, 1, 1]


def test_short_instructions_run_where_they_became_ready():
    x = matrix("x")
    backend = Slow("tanh", "sin", "cos")
    nodes = [apply(op, x) for op in ("tanh", "sin", "cos")]
    plan = compile_plan(Graph([x], nodes), backends=(backend, *NUMPY))
    _, error = run_in_pool(POOL, plan, inputs(n_params=1))
    assert error is None
    assert len(backend.threads) == 1
    assert [row.inlined for row in plan.profile()] == [1, 1, 1]


def test_measurements_change_what_is_inlined_with_hysteresis():
    grain = Grain([1e-6])
    between = (INLINE_BELOW + SPAWN_ABOVE) / 2
    for _ in range(40):
        grain.measured(0, between)
    assert grain.inline(0)
    for _ in range(40):
        grain.measured(0, 2 * SPAWN_ABOVE)
    assert not grain.inline(0)
    for _ in range(40):
        grain.measured(0, between)
    assert not grain.inline(0)
    for _ in range(40):
        grain.measured(0, INLINE_BELOW / 2)
    assert grain.inline(0)


def test_an_estimate_that_is_far_too_long_is_forgotten_with_the_first_measurement():
    grain = Grain([0.35])
    grain.measured(0, 1e-3)
    assert grain.seconds <= 2e-3
    grain.measured(0, 15e-3)  # another process may have had the processor
    assert grain.seconds <= 4e-3


def test_the_pool_raises_what_the_inline_executor_raises_and_goes_on():
    x = matrix("x")
    total = apply("sum", x, axis=None, keepdims=False, dtype=None)
    checks = [
        apply("check", apply("less", total, limit), failure=Failure(kind, (f"not below {limit}",)))
        for limit, kind in ((5.0, ValueError), (6.0, ArithmeticError))
    ]
    plan = compile_plan(Graph([x], [checks[1], checks[0], x + 1.0]), backends=NUMPY, optimised=True)
    plan.grain = Grain([1.0] * (len(plan.instructions) + 1))
    for _ in range(3):
        _, error = run_in_pool(POOL, plan, [np.ones((3, 3))])
        assert type(error) is ValueError
        with pytest.raises(ValueError, match=r"not below 5\.0"):
            plan.run([np.ones((3, 3))])
        results, error = run_in_pool(POOL, plan, [np.zeros((3, 3))])
        assert error is None
        np.testing.assert_array_equal(results[2], np.ones((3, 3)))


def test_a_short_run_runs_in_the_caller(executor):
    backend = Slow("tanh")
    x = matrix("x")
    plan = compile_plan(Graph([x], [apply("tanh", x)]), backends=(backend, *NUMPY))
    [future] = executor.submit(plan, inputs(n_params=1))
    assert future.done()
    assert backend.threads == {threading.current_thread().name}


def test_a_long_run_does_not_hold_the_caller(executor, gate):
    plan, backend = held_back(gate)
    args = inputs(n_params=1)
    [future] = executor.submit(plan, args)
    assert backend.entered.acquire(timeout=WAIT)
    assert future.running()
    assert not future.cancel()
    with pytest.raises(TimeoutError):
        future.result(timeout=0.001)
    gate.set()
    np.testing.assert_allclose(future.result(WAIT), np.tanh(args[0]))


def test_ten_thousand_runs_in_a_chain(executor, gate):
    first: Future = Future()
    plan, value = increment(), first
    for _ in range(10_000):
        [value] = executor.submit(plan, [value])
    first.set_result(np.float64(0))
    assert value.result(WAIT) == 10_000


@pytest.mark.parametrize("kind", ["error", "cancel"])
def test_ten_thousand_runs_fail_in_a_chain(executor, kind):
    first: Future = Future()
    plan, value = increment(), first
    for _ in range(10_000):
        [value] = executor.submit(plan, [value])
    if kind == "error":
        first.set_exception(KeyError("gone"))
        with pytest.raises(KeyError, match="gone"):
            value.result(WAIT)
    else:
        assert first.cancel()
        with pytest.raises(CancelledError):
            value.result(WAIT)
        assert value.cancelled()


def test_an_exception_reaches_every_output_and_every_dependent_in_its_type(executor):
    plan = failing()
    outs = executor.submit(plan, [np.float64(1)])
    [after] = executor.submit(increment(), [outs[0]])
    for future in (*outs, after):
        assert type(future.exception(WAIT)) is ZeroDivisionError
        assert any("in check" in note for note in future.exception().__notes__)
    assert executor.submit(plan, [np.float64(-1)])[0].result(WAIT) == 0.0


def test_arguments_that_do_not_fit_fail_the_run(executor):
    [future] = executor.submit(increment(), [np.zeros(3)])
    with pytest.raises(TypeError, match=r"argument 0 \(x\)"):
        future.result(WAIT)


def test_a_run_that_waits_can_be_cancelled(executor, gate):
    plan, _ = held_back(gate)
    [running] = executor.submit(plan, inputs(n_params=1))
    backend = Slow("sin")
    x = matrix("x")
    other = compile_plan(Graph([x], [apply("sin", x)]), backends=(backend, *NUMPY))
    [waiting] = executor.submit(other, [running])
    [after] = executor.submit(other, [waiting])
    assert waiting.cancel()
    gate.set()
    running.result(WAIT)
    with pytest.raises(CancelledError):
        after.result(WAIT)
    assert not backend.threads


def test_a_cancelled_output_does_not_cancel_its_neighbour(executor):
    x = param(Aval((), F8), "x")
    plan = compile_plan(Graph([x], [x + 1.0, x * 3.0]), backends=NUMPY)
    start: Future = Future()
    first, second = executor.submit(plan, [start])
    assert first.cancel()
    start.set_result(np.float64(2))
    assert second.result(WAIT) == 6.0


def test_await_wakes_the_loop_from_a_worker(executor, gate):
    plan, _ = held_back(gate)
    args = inputs(n_params=1)

    async def main():
        [future] = executor.submit(plan, args)
        asyncio.get_running_loop().call_later(0.01, gate.set)
        return await asyncio.wait_for(_awaited(future), WAIT)

    np.testing.assert_allclose(asyncio.run(main()), np.tanh(args[0]))


async def _awaited(future):
    return await future


def test_futures_work_with_the_standard_library(executor):
    plan = increment()
    futures = [executor.submit(plan, [np.float64(k)])[0] for k in range(5)]
    done, rest = concurrent.futures.wait(futures, timeout=WAIT)
    assert not rest
    assert sorted(future.result() for future in concurrent.futures.as_completed(done, timeout=WAIT)) == [1, 2, 3, 4, 5]


def test_a_run_lets_go_of_its_arguments(executor):
    x, y = matrix("x"), param(Aval((), F8), "y")
    plan = compile_plan(Graph([x, y], [apply("sum", x, axis=None, keepdims=False, dtype=None) + y]), backends=NUMPY)
    first: Future = Future()
    big = np.zeros((3, 3))
    gone = weakref.ref(big)
    [second] = executor.submit(plan, [big, first])
    del big
    first.set_result(np.float64(1))
    assert second.result(WAIT) == 1.0
    executor.shutdown()
    assert not first.cancelled()  # still here, and with it the callback of the run that waited for it
    assert gone() is None


def test_who_gives_a_result_does_not_hold_it_any_more(executor, gate):
    """Whoever has waited for it may give it away while the worker is still at its end."""
    plan, _ = held_back(gate)
    [future] = executor.submit(plan, inputs(n_params=1))
    found, told = [], threading.Event()

    def look(done):
        done.expose()
        found.append(done.private())
        told.set()

    future.add_done_callback(look)
    gate.set()
    assert told.wait(WAIT)
    assert found == [True]


def test_a_result_is_given_once():
    future: Future = Future()
    future.set_result(1)
    with pytest.raises(concurrent.futures.InvalidStateError, match="FINISHED"):
        future.set_result(2)
    assert future.result(0) == 1


def test_a_task_that_raises_does_not_end_its_worker(monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    pool, after = Pool(1), threading.Event()

    def bad():
        raise LookupError("a task")

    pool.push(bad)
    pool.push(after.set)
    assert after.wait(WAIT)
    assert [each.exc_type for each in told] == [LookupError]
    pool.shutdown()


def test_idle_workers_steal(gate):
    pool, busy, stolen = Pool(2), threading.Event(), threading.Event()

    def fill_and_block():
        pool.push(stolen.set)
        busy.set()
        assert gate.wait(WAIT)

    pool.push(fill_and_block)
    assert busy.wait(WAIT)
    assert stolen.wait(WAIT)
    gate.set()
    pool.shutdown()


def test_no_wake_up_is_lost():
    pool, left, done = Pool(3), [0], threading.Event()
    lock = threading.Lock()

    def task():
        with lock:
            left[0] -= 1
            if not left[0]:
                done.set()

    for _ in range(300):
        left[0], batch = 7, 7
        done.clear()
        for _ in range(batch):
            pool.push(task)
        assert done.wait(WAIT)
    pool.shutdown()


def test_a_task_pushed_while_a_worker_falls_asleep_is_not_forgotten(monkeypatch):
    pool, done, take = Pool(1), threading.Event(), Pool._take

    def distracted(self, me):
        task = take(self, me)
        if task is None and not done.is_set():
            self._injected.append(done.set)  # what another thread does, which finds nobody idle yet
        return task

    pool.push(lambda: None)
    deadline = time.monotonic() + WAIT
    while not pool._idle:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    monkeypatch.setattr(Pool, "_take", distracted)
    pool.push(lambda: None)
    assert done.wait(WAIT)
    pool.shutdown()


def test_shutdown_cancels_a_chain_of_ten_thousand(caplog):
    executor, plan, never = LocalExecutor(workers=1), increment(), Future()
    chain = [never]
    for _ in range(10_000):
        chain += executor.submit(plan, [chain[-1]])
    executor.shutdown()
    assert all(future.cancelled() for future in chain[1:])
    told = [each for each in caplog.records if each.name.startswith("concurrent.futures")]
    assert not told  # of callbacks that raised, as for want of stack


def test_shutdown_finishes_what_it_can_and_cancels_the_rest():
    executor = LocalExecutor(workers=1)
    plan, never = increment(), Future()
    gate = threading.Event()
    slow, _ = held_back(gate)
    [value] = executor.submit(slow, inputs(n_params=1))
    total = matrix("x")
    reduce = compile_plan(Graph([total], [apply("sum", total, axis=None, keepdims=False, dtype=None)]), backends=NUMPY)
    [value] = executor.submit(reduce, [value])
    for _ in range(20):
        [value] = executor.submit(plan, [value])
    [hopeless] = executor.submit(plan, [never])
    threading.Timer(0.02, gate.set).start()
    executor.shutdown(WAIT)
    assert value.done()
    assert np.isfinite(value.result(0))
    with pytest.raises(CancelledError):
        hopeless.result(0)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(slow, inputs(n_params=1))


def test_the_interpreter_ends_with_runs_under_way():
    code = """
import numpy as np, time
from futurex.kernels.interrupts import Stop
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.futures import Future
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.runtime.counters import Grain
from futurex.tree import Aval, Graph, apply, param
x = param(Aval((400, 400), np.dtype(float)), "x")
plan = compile_plan(Graph([x], [x @ x]), backends=(NumpyBackend(),))
plan.grain = Grain([1.0, 1.0])
executor = LocalExecutor(workers=2)
futures = [executor.submit(plan, [np.ones((400, 400))]) for _ in range(8)]
waiting = executor.submit(plan, [Future()])
print("end")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_settings_that_make_no_sense_are_refused(monkeypatch):
    monkeypatch.setenv("FUTUREX_THREADS", "8")
    assert config.threads() == 8
    for nonsense in ("none", "0", "-1", "99999", "²"):
        monkeypatch.setenv("FUTUREX_THREADS", nonsense)
        with pytest.raises(ValueError, match=f"FUTUREX_THREADS='{nonsense}'"):
            config.threads()
    monkeypatch.setenv("FUTUREX_DEADLINE", "-1")
    with pytest.raises(ValueError, match="positive number of seconds"):
        config.deadline()
    monkeypatch.setenv("FUTUREX_DEADLINE", "inf")
    assert config.deadline() <= threading.TIMEOUT_MAX
    for name in ("FUTUREX_THREADS", "FUTUREX_DEADLINE", "FUTUREX_COMPILE"):
        monkeypatch.setenv(name, "")
    assert (config.threads() >= 1, config.deadline(), config.background()) == (True, 600, True)


@pytest.mark.parametrize(("mine", "sharers", "each"), [(16, 1, 16), (16, 4, 4), (16, 5, 3), (4, 4, 4), (16, 99, 1)])
def test_processes_side_by_side_share_the_machine(mine, sharers, each, monkeypatch):
    """But no process gives up processors that are its own."""
    monkeypatch.setenv("FUTUREX_THREADS", "")
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(mine)), raising=False)
    assert config.threads(sharers) == each
    monkeypatch.setenv("FUTUREX_THREADS", "8")
    assert config.threads(sharers) == 8
    command, environment = [sys.executable, "-c", "import futurex"], {**os.environ, "FUTUREX": "0"}
    wrong = subprocess.run(command, env=environment, capture_output=True, timeout=4 * WAIT)
    assert b"FUTUREX='0' must be on or off" in wrong.stderr
