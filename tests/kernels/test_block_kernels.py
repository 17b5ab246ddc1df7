"""Kernels with memory of their own, called from several threads: plans that share one take turns."""

import dataclasses
import threading

import numpy as np
import pytest
from blockwise import close, planned

from futurex.kernels.backends import default_backends
from futurex.runtime.counters import HOT, RARELY
from futurex.runtime.local import LocalExecutor


def rank_update(w, x, g):
    return w - (x.T @ g) * np.float32(0.125), g @ w.T


def row_products(x, w, y):
    residual = np.tanh(x @ w) - y
    return residual @ x, residual


def updates(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in ((600, 512), (8, 600), (8, 512))]


def rows(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in ((3001, 600), 600, 3001)]


CASES = {"rank_update": (rank_update, updates), "row_products": (row_products, rows)}


class Once:
    """The backends, with one kernel object for all who claim a node; a call of an exclusive one notes company."""

    name = "once"

    def __init__(self):
        self.backends, self.kernels, self.company = default_backends(), {}, 0

    def claim(self, node, threads):
        if node.id not in self.kernels:
            kernel = next(found for each in self.backends if (found := each.claim(node, threads)) is not None)
            if kernel.exclusive and kernel.bind is None:
                kernel = dataclasses.replace(kernel, call=self.alone(kernel.call))
            self.kernels[node.id] = kernel
        return self.kernels[node.id]

    def alone(self, call):
        busy = threading.Lock()

        def entered(*args):
            free = busy.acquire(blocking=False)
            self.company += not free
            result = call(*args)
            if free:
                busy.release()
            return result

        return entered


def at_once(*works):
    """Run functions in threads of their own, from the same moment on; raises what one of them raised."""
    errors, start = [], threading.Barrier(len(works))

    def held(work):
        try:
            start.wait(60)
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=held, args=(work,)) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("plans", [1, 2])
def test_threads_that_run_plans_with_one_kernel(op, threads, plans):
    """Instruction by instruction, and as one function; by the executor, too."""
    function, data = CASES[op]
    sets = [data(seed) for seed in range(2)]
    backend = Once()
    made = [planned(op, function, sets[0], threads=threads, backends=[backend])[1] for _ in range(plans)]
    wanted = [function(*(np.float64(each) for each in arguments)) for arguments in sets]
    executor = LocalExecutor(threads)

    def runs(number):
        plan = made[number % plans]
        for _ in range(HOT + 8):
            close(plan.run(sets[number]), wanted[number])
        for _ in range(4):
            close([each.result(60) for each in executor.submit(plan, sets[number])], wanted[number])

    try:
        at_once(lambda: runs(0), lambda: runs(1))
    finally:
        executor.shutdown()
    assert backend.company == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_around_one_that_is_timed(threads):
    """Now and then a plan that is one function is run instruction by instruction: here its results lie elsewhere."""

    def descent(x, w, y):
        gradient, residual = row_products(x, w, y)
        return gradient, w - gradient * np.float32(0.125), residual.sum()

    rng = np.random.default_rng(0)
    shapes = (4001, 512), 512, 4001
    sets = [[rng.standard_normal(shape, np.float32) for shape in shapes] for _ in range(2)]
    held = [each.copy() for each in sets[0]]
    plan = planned("row_products", descent, held, threads=threads)[1]
    wanted = [descent(*(np.float64(each) for each in arguments)) for arguments in sets]
    usual, other = ([np.empty(np.shape(each), np.float32) for each in wanted[0]] for _ in range(2))
    for run in range(HOT + RARELY + 8):
        for array, values in zip(held, sets[run % 2], strict=True):
            array[...] = values
        close(plan.run(held, outs=usual if (run + 1) % RARELY else other), wanted[run % 2])
