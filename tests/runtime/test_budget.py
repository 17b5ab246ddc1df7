"""One budget of threads: who may run together, what runs beside what, and that the results stay the same."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from plan_graphs import F8, graphs, inputs, matrix
from test_pool import NUMPY, WAIT, Slow

import futurex as fx
from futurex.kernels.contest import TRIALS
from futurex.kernels.registry import LIBRARIES, Kernel
from futurex.runtime import config
from futurex.runtime.budget import Budget
from futurex.runtime.counters import Grain
from futurex.runtime.futures import Future
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.runtime.tasks import same_bits
from futurex.tree import Aval, Graph, apply, param


class Runs(RuleBasedStateMachine):
    """Every run starts once, in the order of entering; one that needs everything is alone."""

    def __init__(self):
        super().__init__()
        self.budget, self.entered, self.started, self.over = Budget(), [], [], set()

    def note(self, started):
        self.started += started

    @rule(whole=st.booleans())
    def enter(self, whole):
        self.entered.append(whole)
        self.note(self.budget.enter(len(self.entered) - 1, whole=whole))

    @rule(whole=st.booleans())
    def enter_alone(self, whole):
        idle = len(self.started) == len(self.over) and not self.budget.waiting
        assert self.budget.enter_alone(whole=whole) == idle
        if idle:
            self.entered.append(whole)
            self.note([len(self.entered) - 1])

    @precondition(lambda self: len(self.started) > len(self.over))
    @rule(data=st.data())
    def leave(self, data):
        self.over.add(data.draw(st.sampled_from([run for run in self.started if run not in self.over])))
        self.note(self.budget.leave())

    @invariant()
    def order(self):
        assert self.started == list(range(len(self.started)))
        assert self.budget.waiting == len(self.entered) - len(self.started)

    @invariant()
    def alone(self):
        active = [run for run in self.started if run not in self.over]
        assert self.budget.running == len(active)
        assert len(active) == 1 or not any(self.entered[run] for run in active)
        assert active or not self.budget.waiting


TestRuns = Runs.TestCase


def test_nobody_leaves_who_did_not_enter():
    with pytest.raises(ValueError, match="no run"):
        Budget().leave()


class Counted:
    """Claims ``ops``: kernels of ``threads`` threads that note who else is inside; ``stay()`` keeps them there."""

    name = "counted"

    def __init__(self, threads, *ops, stay=lambda: time.sleep(0.005)):
        self.threads, self.stay, self.ops = threads, stay, ops
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def claim(self, node, threads):
        if node.op not in self.ops:
            return None
        kernel = NUMPY[0].claim(node, threads)

        def call(out, *args):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.stay()
            result = kernel.call(out, *args)
            with self.lock:
                self.now -= 1
            return result

        return Kernel(call, self.name, into=kernel.into, threads=self.threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_of_several_threads_are_alone(threads):
    """Of kernels of one thread as many run as there are workers; those of two have the machine to themselves."""
    pairs = threading.Barrier(2)  # kernels of one thread leave two by two
    options = {"stay": lambda: pairs.wait(WAIT)} if threads == 1 else {}
    backend, executor = Counted(threads, "tanh", **options), LocalExecutor(threads=2)
    x = matrix("x")
    plans = [compile_plan(Graph([x], [apply("tanh", x)]), backends=(backend, *NUMPY), threads=2) for _ in range(8)]
    for plan in plans:
        plan.grain = Grain([1.0] * 2)
    args = inputs(n_params=1)
    futures = [executor.submit(plan, args)[0] for plan in plans for _ in range(3)]
    for future in futures:
        np.testing.assert_allclose(future.result(WAIT), np.tanh(args[0]))
    executor.shutdown()
    assert backend.most == (2 if threads == 1 else 1)


def test_a_run_in_the_caller_has_the_machine_to_itself():
    """A caller may run a plan itself only while nobody else runs; others wait until it has left."""
    executor, x = LocalExecutor(threads=2), matrix("x")
    backend = Counted(2, lambda: time.sleep(0.005), "tanh")
    plan = compile_plan(Graph([x], [apply("tanh", x)]), backends=(backend, *NUMPY), threads=2)
    plan.grain = Grain([1.0] * 2)
    args = inputs(n_params=1)
    assert executor.claim(plan)
    assert not executor.claim(plan)
    futures = [executor.submit(plan, args)[0] for _ in range(3)]
    assert not any(future.done() for future in futures)
    executor.leave()
    for future in futures:
        np.testing.assert_allclose(future.result(WAIT), np.tanh(args[0]))
    executor.shutdown()
    assert backend.most == 1


@given(graphs(max_nodes=20))
@settings(max_examples=60, deadline=None)
def test_apart_means_the_same_and_waits_for_nothing_but_operands(graph):
    plan = compile_plan(graph, backends=NUMPY, optimised=True, apart=True)
    written = {out: each.index for each in plan.instructions for out in each.outs}
    for each in plan.instructions:
        sources = {plan.low.slots[slot].writer for slot in each.ins} - {None}
        own = {written[slot] for slot in each.ins if slot in written}
        assert set(each.after) <= sources | own
    for seed in range(2):
        args = inputs(seed)
        for got, want in zip(plan.run(args), graph(*args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def vector(name, size=200_000):
    return param(Aval((size,), F8), name)


def test_branches_run_as_tasks_and_chains_do_not():
    xs = [vector(f"x{k}") for k in range(4)]
    branches = Graph(xs, [apply("cumsum", apply("sort", x, axis=0, kind=None), axis=0, dtype=None) for x in xs])
    chain = Graph(xs[:1], [apply("cumsum", apply("sort", xs[0], axis=0, kind=None), axis=0, dtype=None)])
    assert compile_plan(branches, backends=NUMPY, threads=2).as_tasks() is not None
    assert compile_plan(chain, backends=NUMPY, threads=2).as_tasks() is None


def test_branches_that_call_blas_stay_together():
    xs = [matrix(f"x{k}", 300) for k in range(4)]
    assert compile_plan(Graph(xs, [x @ x for x in xs]), backends=NUMPY, threads=2).as_tasks() is None


def test_an_ensemble_has_numpy_s_bits_and_says_that_it_runs_beside():
    def ensemble(arrays):
        return [np.sort(array).cumsum() for array in arrays]

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(200_000) for _ in range(4)]
    f = fx.futurize(ensemble, escape="error")
    for _ in range(3):
        for got, want in zip(f(arrays), ensemble(arrays), strict=True):
            assert np.array_equal(got, want)
    if config.threads() > 1:
        assert "beside each other" in f.explain()


def test_runs_held_back_are_cancelled_at_shutdown():
    gate = threading.Event()
    backend = Slow("tanh", gate=gate)
    x = matrix("x")
    plan = compile_plan(Graph([x], [apply("tanh", x)]), backends=(backend, *NUMPY), threads=2)
    plan.grain, plan.threads = Grain([1.0] * 2), 2
    executor = LocalExecutor(threads=2)
    [first], [second] = (executor.submit(plan, inputs(n_params=1)) for _ in range(2))
    assert backend.entered.acquire(timeout=WAIT)
    executor.shutdown(timeout=0.05)
    with pytest.raises(CancelledError):
        second.result(WAIT)
    gate.set()
    np.testing.assert_allclose(first.result(WAIT), np.tanh(inputs(n_params=1)[0]))


class AlwaysLong(Grain):
    """What takes long however fast the machine is."""

    __slots__ = ()

    def measured(self, index, seconds):
        """Learns nothing."""


@pytest.mark.parametrize(("threads", "names"), [(1, NUMPY), (2, NUMPY), (2, None)])
def test_both_ways_are_measured_and_give_the_same_bits(threads, names):
    """With one thread a kernel the tasks are those of the plan itself; with two another plan has them."""
    xs = [vector(f"x{k}") for k in range(4)]
    graph = Graph(xs, [apply("sort", x, axis=0, kind=None) for x in xs])
    plan, executor = compile_plan(graph, backends=names, threads=threads), LocalExecutor(2)
    plan.grain = AlwaysLong([1.0] * (len(plan.instructions) + 1))
    tasks = plan.as_tasks()
    assert tasks is not None
    assert (tasks is plan) == (threads == 1)
    arrays = list(np.random.default_rng(0).normal(size=(4, 200_000)))
    want = [np.sort(x).tobytes() for x in arrays]
    runs = 0
    while plan.contest.open:
        found = executor.submit(plan, arrays)
        assert [np.asarray(each.result(WAIT)).tobytes() for each in found] == want
        runs += 1
        assert runs <= 2 * TRIALS
    assert runs == 2 * TRIALS
    assert min(plan.contest.seconds) > 0
    end = time.monotonic() + WAIT
    for way in (0, 1):
        plan.contest.way = way
        while executor._budget.running:  # a worker gives results before it says that its run is over
            assert time.monotonic() < end
            time.sleep(0.001)
        assert executor.claim(plan) == (way == 0)  # alone on the caller's thread, or shared by workers
        if way == 0:
            executor.leave()
    executor.shutdown()


def test_workers_that_shared_a_run_do_not_hold_its_results():
    """Whoever has waited for them may give them away while a worker is still at its end."""
    xs = [vector(f"x{k}") for k in range(4)]
    plan = compile_plan(Graph(xs, [apply("sort", x, axis=0, kind=None) for x in xs]), backends=NUMPY, threads=1)
    plan.grain = AlwaysLong([1.0] * (len(plan.instructions) + 1))
    executor, first, found, told = LocalExecutor(2), Future(), [], threading.Event()
    assert plan.as_tasks() is plan
    arrays = list(np.random.default_rng(0).normal(size=(4, 200_000)))
    futures = executor.submit(plan, [first, *arrays[1:]])

    def look(done):
        done.expose()
        found.append(done.private())
        told.set()

    futures[0].add_done_callback(look)
    first.set_result(arrays[0])
    assert told.wait(WAIT)
    assert found == [True]
    executor.shutdown()


def test_where_bits_may_differ_the_estimate_decides():
    """Sums inside products of a library may be split otherwise among other numbers of threads."""
    x = param(Aval((64, 64), np.dtype("f4")), "x")
    product = compile_plan(Graph([x], [x @ x]))
    elsewhere = compile_plan(Graph([x], [apply("sort", x, axis=0, kind=None)]), backends=NUMPY)
    named = {each.kernel.backend for each in product.instructions}
    assert same_bits(product) is named.isdisjoint(LIBRARIES)
    assert same_bits(elsewhere)
    assert same_bits(elsewhere, product) is same_bits(product)
