"""Collectives run beside the other instructions of a plan, start in one order, and are not waited for for ever."""

import re
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import Tracking, inputs, matrix

from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel
from futurex.runtime.futures import Future
from futurex.runtime.inline import Conversation, RunTimeout
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import compile_plan
from futurex.runtime.stall import Reports, Stall, silent
from futurex.runtime.transport import Completion
from futurex.tree import Graph, apply, item

NUMPY = (NumpyBackend(),)


class Pending(Completion):
    """A sum over two ranks with equal values, finished when somebody says so."""

    def __init__(self, tag, arrays, outs):
        super().__init__()
        self.tag, self.arrays, self.outs = tag, arrays, outs
        self.key = (0, 0, tag)
        self.started, self.finished = time.perf_counter(), None

    def finish(self, error=None):
        for array, out in zip(self.arrays, self.outs, strict=True):
            np.add(array, array, out=out)
        self.finished = time.perf_counter()
        return super().finish(error)

    def result(self):
        self.wait(0)

    def late(self):
        return [1]

    def awaiting(self):
        return "nothing came from rank 1"


class Communicator:
    """Records what was started; ``answer(pending)`` decides when it ends."""

    memory = None

    def __init__(self, answer):
        self.answer, self.tags, self.waits, self.stalls = answer, [], 0, []

    def start(self, op, attrs, arrays, outs, urgency=0.0):
        assert all(array.flags.c_contiguous for array in (*arrays, *outs))
        self.tags.append(attrs["tag"])
        pending = Pending(attrs["tag"], arrays, outs)
        self.answer(pending)
        return pending

    def drive(self, done):
        """Whoever answers needs no help."""

    def waited(self, seconds):
        self.waits += 1

    def stalled(self, seconds, waiting):
        self.stalls.append(Stall.of(0, seconds, waiting))
        return self.stalls[-1]


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
    for got, value in zip(plan.run(args, Communicator(answer)), want, strict=True):
        np.testing.assert_allclose(got, value)


class Logging:
    """NumPy kernels that tell ``done`` when they have run."""

    name = "logging"

    def __init__(self, done):
        self._done, self._numpy = done, NumpyBackend()

    def claim(self, node, threads):
        kernel = self._numpy.claim(node, threads)

        def call(out, *args):
            result = kernel.call(out, *args)
            self._done(node.op)
            return result

        return Kernel(call, self.name, into=kernel.into, view=kernel.view)


def test_other_instructions_run_while_a_collective_is_in_flight():
    x, w = matrix("x"), matrix("w")
    own = x
    for _ in range(5):
        own = own @ w
    log, flying = [], []

    def done(op):
        log.append(op)
        if log.count("matmul") == 5 and flying:
            log.append("finish")
            flying.pop().finish()

    def answer(pending):
        log.append("start")
        flying.append(pending)

    graph = Graph([x, w], [own, reduced(apply("tanh", x), 0) + 1.0])
    compile_plan(graph, backends=(Logging(done),), optimised=True).run(inputs(), Communicator(answer))
    assert log == ["tanh", "start", *["matmul"] * 5, "finish", "add"]


def test_memory_that_a_collective_reads_is_not_wanted_by_others_meanwhile():
    x, w = matrix("x"), matrix("w")
    whole = item(apply("all_gather", apply("tanh", x), axes=(0,), sizes=((3, 3),), tag=0), 0)
    own = x
    for _ in range(5):
        own = own @ w
    plan = compile_plan(Graph([x, w], [apply("tanh", own), whole + 1.0]), backends=NUMPY, optimised=True)
    [gather] = plan.collectives
    products = [each for each in plan.instructions if each.node.op == "matmul"]
    assert not any(gather in each.after for each in products)


def test_the_time_without_anything_else_to_do_is_told(monkeypatch):
    waiting, wait = threading.Event(), Conversation._wait

    def watched(self):
        waiting.set()
        return wait(self)

    def when_waited_for(pending):
        def finish():
            assert waiting.wait(60)
            pending.finish()

        threading.Thread(target=finish).start()

    monkeypatch.setattr(Conversation, "_wait", watched)
    x, w = matrix("x"), matrix("w")
    plan = compile_plan(Graph([x, w], [reduced(x @ w, 0)]), backends=NUMPY)
    for answer, waits in ((Pending.finish, 0), (when_waited_for, 1)):
        communicator = Communicator(answer)
        plan.run(inputs(), communicator)
        assert communicator.waits == waits


def test_who_keeps_others_waiting_is_told_at_ever_longer_intervals(monkeypatch):
    monkeypatch.setenv("FUTUREX_STALL", "0.01")
    pendings = []

    class Answering(Communicator):
        def stalled(self, seconds, waiting):
            stall = super().stalled(seconds, waiting)
            if len(self.stalls) == 4:
                pendings[0].finish()
            return stall

    x, w = matrix("x"), matrix("w")
    product = x @ w
    plan = compile_plan(Graph([x, w], [reduced(product, 0)]), backends=NUMPY, optimised=True)
    communicator = Answering(pendings.append)
    plan.run(inputs(), communicator)
    assert [stall.seconds for stall in communicator.stalls] == pytest.approx([0.01, 0.02, 0.04, 0.08])
    first = communicator.stalls[0]
    assert (first.rank, first.missing) == (0, (1,))
    line = rf"test_communication\.py:{product.src.line}: product = x @ w"
    assert re.search(rf"all_reduce of float64\[3,3\], for {line}.*: nothing came from rank 1", str(first))
    assert Stall.heard(first.event()) == first
    assert silent(3, [first]) == "not waiting, or unable to say so: ranks 1, 2"
    assert silent(1, [first]).startswith("every rank says that it waits")


def test_a_value_reduced_twice_is_reduced_twice():
    x, w = matrix("x"), matrix("w")
    hidden = apply("tanh", x @ w)
    twice = apply("all_reduce", hidden, hidden, reduce="sum", tag=0)
    plan = compile_plan(Graph([x, w], [item(twice, 0) + 1.0, item(twice, 1) * 2.0]), backends=NUMPY, optimised=True)
    args = inputs()
    total = 2 * np.tanh(args[0] @ args[1])
    for got, want in zip(plan.run(args, Communicator(soon)), [total + 1.0, total * 2.0], strict=True):
        np.testing.assert_allclose(got, want)


def test_arrays_that_kernels_made_are_let_go_beside_collectives_too():
    x = matrix("x")
    node = x
    for _ in range(8):
        node = apply("cumsum", node, axis=0, dtype=None)
    backend = Tracking()
    plan = compile_plan(Graph([x], [node + reduced(x, 0)]), backends=(backend, *NUMPY), optimised=True)
    plan.run(inputs(n_params=1), Communicator(soon))
    assert len(backend.made) == 8
    assert backend.most == 2


def test_a_communicator_that_never_answers_meets_the_deadline(monkeypatch):
    monkeypatch.setenv("FUTUREX_DEADLINE", "0.05")
    graph = training_like()
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    communicator = Communicator(lambda pending: None)
    with pytest.raises(RunTimeout, match=r"did not finish within 0\.05 s.*has waited 0\.05 s for rank 1") as caught:
        plan.run(inputs(), communicator)
    assert [stall.seconds for stall in communicator.stalls] == [0.05]
    assert "in all_reduce(float64[3,3])" in caught.value.__notes__[0]
    assert isinstance(caught.value, TimeoutError)
    monkeypatch.setenv("FUTUREX_DEADLINE", "60")
    args = inputs()
    for got, want in zip(plan.run(args, Communicator(soon)), expected(args), strict=True):
        np.testing.assert_allclose(got, want)


def test_memory_of_a_failed_run_is_not_used_again():
    """A collective that was given up may still write to it."""
    x, w = matrix("x"), matrix("w")
    first = reduced(x @ w, 0)
    second = reduced(first @ w, 1)
    plan = compile_plan(Graph([x, w], [apply("tanh", second @ w)]), backends=NUMPY, optimised=True)
    assert plan.memory.arena
    late = []

    def answer(pending):
        late.append(pending)
        pending.finish(ConnectionError("rank 1 is lost") if len(late) == 2 else None)

    with pytest.raises(ConnectionError, match="rank 1 is lost") as caught:
        plan.run(inputs(), Communicator(answer))
    assert "in all_reduce" in caught.value.__notes__[0]

    def interfere(pending):
        for each in late:
            each.outs[0][:] = np.nan
        pending.finish()

    left, right = inputs()
    [result] = plan.run([left, right], Communicator(interfere))
    np.testing.assert_allclose(result, np.tanh(4 * left @ right @ right @ right))


def test_a_plan_that_communicates_needs_a_communicator():
    with pytest.raises(RuntimeError, match=r"communicates \(all_reduce\)"):
        compile_plan(training_like(), backends=NUMPY, optimised=True).run(inputs())


def test_submitted_runs_that_communicate_go_one_by_one_in_order():
    x, w = matrix("x"), matrix("w")
    plans = [compile_plan(Graph([x, w], [reduced(x @ w, tag)]), backends=NUMPY) for tag in range(3)]
    communicator, executor, first = Communicator(soon), LocalExecutor(workers=2), Future()
    left, right = inputs()
    runs = [executor.submit(plan, [first if not k else left, right], communicator)[0] for k, plan in enumerate(plans)]
    assert not any(run.done() for run in runs)
    first.set_result(left)
    for run in runs:
        np.testing.assert_allclose(run.result(60), 2 * left @ right)
    assert communicator.tags == [0, 1, 2]
    executor.shutdown()


def test_who_waited_when_a_run_failed_is_told_later_too():
    start = time.monotonic()
    reports = Reports("run", 2)
    reports.hear(Stall(0, 1.0, (1,), ("all_reduce",)).event())
    told, quiet = reports.lasting(start + 1.0)
    assert told == "rank 0 has waited 1 s for rank 1:\n  all_reduce"
    assert quiet == "not waiting, or unable to say so: rank 1"
    assert reports.lasting(time.monotonic() + 10.0) == []  # it would have said so again
