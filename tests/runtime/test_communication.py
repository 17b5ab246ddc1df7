"""Collectives run beside the other instructions of a plan, start in one order, and are not waited for for ever."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import inputs, matrix

from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel
from futurex.runtime.inline import RunTimeout
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.tree import Graph, apply, item

NUMPY = (NumpyBackend(),)


class Pending:
    """A sum over two ranks with equal values, finished when somebody says so."""

    def __init__(self, tag, arrays, outs):
        self.tag, self.arrays, self.outs = tag, arrays, outs
        self.started, self.finished = time.perf_counter(), None
        self.error = None
        self._callbacks = []

    def add_done_callback(self, fn):
        self._callbacks.append(fn)
        if self.finished is not None:
            fn(self)

    def finish(self, error=None):
        self.error = error
        for array, out in zip(self.arrays, self.outs, strict=True):
            np.add(array, array, out=out)
        self.finished = time.perf_counter()
        for fn in self._callbacks:
            fn(self)

    def result(self):
        if self.error is not None:
            raise self.error


class Communicator:
    """Records what was started; ``answer(pending)`` decides when it ends."""

    def __init__(self, answer):
        self.answer, self.tags, self.waits = answer, [], 0

    def start(self, op, attrs, arrays, outs):
        assert all(array.flags.c_contiguous for array in (*arrays, *outs))
        self.tags.append(attrs["tag"])
        pending = Pending(attrs["tag"], arrays, outs)
        self.answer(pending)
        return pending

    def waited(self, seconds):
        self.waits += 1


def soon(pending):
    threading.Timer(0.01, pending.finish).start()


def reduced(node, tag):
    return item(apply("all_reduce", node, reduce="sum", tag=tag), 0)


def training_like(tags=(0, 1, 2)):
    """Three gradients, reduced with the given tags, each used in an update."""
    x, w = matrix("x"), matrix("w")
    hidden, updates = x, []
    for tag in tags:
        hidden = apply("tanh", hidden @ w)
        updates.append(w - 0.1 * reduced(hidden @ x, tag))
    return Graph([x, w], updates)


def expected(args):
    """What two ranks with equal arguments compute."""
    x, w = args
    hidden, updates = x, []
    for _ in range(3):
        hidden = np.tanh(hidden @ w)
        updates.append(w - 0.1 * (2 * (hidden @ x)))
    return updates


@pytest.mark.parametrize("tags", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_collectives_start_in_the_order_of_their_tags(tags):
    graph = training_like(tags)
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    for answer in (soon, Pending.finish):
        communicator = Communicator(answer)
        args = inputs()
        for got, want in zip(plan.run(args, communicator), expected(args), strict=True):
            np.testing.assert_allclose(got, want)
        assert communicator.tags == [0, 1, 2]


@given(st.permutations(range(3)))
@settings(max_examples=6)
def test_answers_in_any_order_give_the_same_results(order):
    graph = training_like()
    plan = compile_plan(graph, donate={0: 1}, backends=NUMPY, optimised=True)
    held = []

    def answer(pending):
        held.append(pending)
        if len(held) == 3:
            def later():
                for place in order:
                    held[place].finish()

            threading.Timer(0.01, later).start()

    args = inputs()
    want = expected(args)
    communicator = Communicator(answer)
    for got, value in zip(plan.run(args, communicator), want, strict=True):
        np.testing.assert_allclose(got, value)
    assert communicator.waits > 0


class Logging:
    """NumPy kernels that write down when they run."""

    name = "logging"

    def __init__(self, log):
        self._log, self._numpy = log, NumpyBackend()

    def claim(self, node, threads):
        kernel = self._numpy.claim(node, threads)

        def call(out, *args):
            self._log.append(node.op)
            return kernel.call(out, *args)

        return Kernel(call, self.name, into=kernel.into, view=kernel.view)


def test_other_instructions_run_while_a_collective_is_in_flight():
    x, w = matrix("x"), matrix("w")
    own = x
    for _ in range(5):
        own = own @ w
    total = reduced(apply("tanh", x), 0)
    log = []
    plan = compile_plan(Graph([x, w], [own, total + 1.0]), backends=(Logging(log),), optimised=True)

    def answer(pending):
        log.append("start")
        threading.Timer(0.05, lambda: (log.append("finish"), pending.finish())).start()

    plan.run(inputs(), Communicator(answer))
    begin, end = log.index("start"), log.index("finish")
    assert log[:begin] == ["tanh"]
    assert log[begin + 1 : end] == ["matmul"] * 5
    assert log[end + 1 :] == ["add"]


def test_a_communicator_that_never_answers_meets_the_deadline(monkeypatch):
    monkeypatch.setenv("FUTUREX_DEADLINE", "0.05")
    graph = training_like()
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    with pytest.raises(RunTimeout, match=r"did not finish within 0\.05 s") as caught:
        plan.run(inputs(), Communicator(lambda pending: None))
    assert "in all_reduce(float64[3,3])" in caught.value.__notes__[0]
    assert isinstance(caught.value, TimeoutError)
    args = inputs()
    for got, want in zip(plan.run(args, Communicator(soon)), expected(args), strict=True):
        np.testing.assert_allclose(got, want)


def test_memory_of_a_failed_run_is_not_used_again():
    """A collective that was given up may still write to it."""
    graph = training_like()
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    late = []

    def answer(pending):
        late.append(pending)
        if len(late) == 2:
            late[0].finish(ConnectionError("rank 1 is lost"))

    with pytest.raises(ConnectionError, match="rank 1 is lost") as caught:
        plan.run(inputs(), Communicator(answer))
    assert "in all_reduce" in caught.value.__notes__[0]

    def interfere(pending):
        late[1].outs[0][:] = np.nan
        soon(pending)

    args = inputs()
    for got, want in zip(plan.run(args, Communicator(interfere)), expected(args), strict=True):
        np.testing.assert_allclose(got, want)


def test_a_plan_that_communicates_needs_a_communicator():
    with pytest.raises(RuntimeError, match=r"communicates \(all_reduce\)"):
        compile_plan(training_like(), backends=NUMPY, optimised=True).run(inputs())


def test_submitted_runs_that_communicate_go_one_by_one_in_order():
    plan = compile_plan(training_like(), backends=NUMPY, optimised=True)
    communicator = Communicator(soon)
    executor = LocalExecutor(workers=2)
    runs = [executor.submit(plan, inputs(seed), communicator) for seed in range(3)]
    for seed, run in enumerate(runs):
        np.testing.assert_allclose(run[0].result(30), expected(inputs(seed))[0])
    assert communicator.tags == [0, 1, 2] * 3
    executor.shutdown()
