"""What memory does a training step take: predicted, measured, and the pages that a step touches for the first time?"""

from __future__ import annotations

import argparse
import resource
import tracemalloc
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from benchmarks.workloads.cases import CASES, DROPOUT, batch, weights
from benchmarks.workloads.futurex_side import loss_of, optimizer_for, settle

DEFAULT_CASES = ("har-adam", "mlp-sgd", "mlp-adam", "logistic-sgd")
HEAD = ["step", "arguments", "given away", "predicted peak", "measured peak", "ratio", "page faults a step"]


def step_of(case: str, donate: tuple[str, ...]) -> Any:
    """Return the futurized training step of a case."""
    one = CASES[case]
    loss_and_gradient = fx.value_and_grad(loss_of(one.model, DROPOUT[one.model]))
    optimizer = optimizer_for(one.optimizer, one.rate)

    @fx.futurize(donate=donate)
    def train(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        loss, gradient = loss_and_gradient(params, x, y, key)
        params, state = optimizer.update(params, gradient, state)
        return params, state, loss

    return train


def arenas(plan: Any) -> int:
    """Return the bytes that a plan and those inside it keep between runs."""
    own = sum(each.arena.nbytes for each in plan._instances if each.arena is not None)
    return int(own) + sum(arenas(inner) for each in plan.instructions for inner in each.kernel.plans)


def row(case: str, donate: tuple[str, ...], steps: int) -> tuple[list[str], dict[str, Any]]:
    """Return the line of one case, and its figures."""
    one = CASES[case]
    train, params = step_of(case, donate), weights(one.model)
    held: Any = [params, optimizer_for(one.optimizer, one.rate).init(params)]
    x, y = batch(one.model)
    for count in range(10):
        *held[:], loss = train(*held, x, y, np.uint64(count))
        settle([*held, loss])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for count in range(steps):
        *held[:], loss = train(*held, x, y, np.uint64(count))
        settle([*held, loss])
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps
    variant = train.trace(*held, x, y, np.uint64(0))
    program = train.lower(*held, x, y, np.uint64(0))
    leaves = program.flatten(*held, x, y, np.uint64(0))
    values = [leaf.result() if isinstance(leaf, fx.Array) else leaf for leaf in leaves]
    inputs = [np.array(value) if isinstance(value, np.ndarray) else value for value in values]
    plan, size = variant.plan, sum(np.asarray(each).nbytes for each in inputs)
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    results = plan.run(inputs)
    measured = tracemalloc.get_traced_memory()[1] - base + arenas(plan) + plan.memory.constants
    tracemalloc.stop()
    del results
    figures = {
        "case": case, "donate": donate, "arguments": size, "predicted": plan.memory.peak, "measured": measured,
        "faults": faults,
    }  # fmt: skip
    shown = [f"{value / 1e6:.2f} MB" for value in (size, plan.memory.peak, measured)]
    given = "parameters, state" if donate else "nothing"
    return [one.title, shown[0], given, *shown[1:], f"{plan.memory.peak / measured:.3f}", f"{faults:.1f}"], figures


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table."""
    steps = 5 if arguments.quick else 100
    found = [
        row(case, donate, steps)
        for case in arguments.cases or DEFAULT_CASES for donate in ((), ("params", "state"))
    ]  # fmt: skip
    body = report.table(HEAD, [line for line, _ in found]) + (
        "\n\nMeasured: what NumPy allocates in a run (tracemalloc), with the plan's arenas and constants; arguments "
        "are part of neither figure."
    )
    report.publish("memory", "Memory of training steps", body, {"steps": [each for _, each in found]}, arguments.out)
    return 0
