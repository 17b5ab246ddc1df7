"""What do driving a step from the client and a locality's bookkeeping cost, beside a Dask task?"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from futurex.partition import Replicate, Shard

TASKS, STEPS, QUICK_STEPS = 500, 2000, 50
ROWS = ("Dask task, one at a time", "Dask task, many at once", "run of nothing on all localities",
        "step driven from the client", "step inside a run", "the same without counting and numbering",
        "bookkeeping of a locality, a step")  # fmt: skip


def nothing(*_: Any) -> None:
    """A task, and a function for all localities."""


def step(w: Any, x: Any) -> Any:
    """As small as a step with an exchange can be."""
    return w - 0.1 * (x * w).sum(axis=0)


def inside(locality: Any, graph: Any, x: Any, steps: int) -> tuple[float, float, float]:
    """Seconds of a step with an exchange, of one without, and of what is done beside the plan in each."""
    compiled = locality.compile(graph, [Replicate(), Shard(0)])
    w = np.ones(8)
    for _ in range(20):
        compiled([w, x])
    whole = _seconds(lambda: compiled([w, x]), steps)
    communicator, ledger = locality._communicator, locality.ledger

    def bare() -> None:
        communicator._step += 1  # every exchange needs a number of its own
        compiled.plan.run([w, x], communicator)

    plan = _seconds(bare, steps)

    def bookkeeping() -> None:
        start = time.perf_counter()
        communicator.begin_step()
        ledger.step(time.perf_counter() - start)

    return whole, plan, _seconds(bookkeeping, steps)


def _seconds(call: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def one_round(cluster: fx.Cluster, tasks: int, steps: int) -> list[float]:
    """Seconds by row of the table."""
    client, x = cluster.client, np.ones((2, 8))
    tiled, staged = cluster.tile(x), fx.futurize(step).on(cluster)
    program = fx.lower(step, np.ones(8), x)
    staged(np.ones(8), tiled).result()

    def together() -> None:
        client.gather(client.map(nothing, range(tasks), pure=False))

    single = _seconds(lambda: client.submit(nothing, pure=False).result(), max(5, tasks // 20))
    many = _seconds(together, 1) / tasks
    run = _seconds(lambda: cluster.spmd(nothing).result(60), 5)
    driven = _seconds(lambda: staged(np.ones(8), tiled).result(), 5)
    localities = cluster.spmd(inside, program.graph, tiled, steps).result(120)
    return [single, many, run, driven, *(max(each) for each in zip(*localities, strict=True))]


def main(arguments: argparse.Namespace) -> int:
    """Measure in turn, print and write the table of medians."""
    rounds = 2 if arguments.quick else arguments.rounds
    tasks, steps = (50, QUICK_STEPS) if arguments.quick else (TASKS, STEPS)
    with fx.Cluster(2) as cluster:
        found = [one_round(cluster, tasks, steps) for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    rows = [
        [name, f"{seconds * 1e6:,.1f}", f"{min(column) * 1e6:,.1f} to {max(column) * 1e6:,.1f}"]
        for name, seconds, column in zip(ROWS, medians, zip(*found, strict=True), strict=True)
    ]
    body = (
        report.table(["what", "µs, median", "all rounds"], rows)
        + f"\n\nTwo localities on one machine, {rounds} rounds, the slower locality counts. A step is one exchange of "
        "64 bytes and three operations on 8 numbers.\n"
    )
    data = {"seconds": dict(zip(ROWS, medians, strict=True)), "rounds": found}
    report.publish("driving", "Cost of driving a step", body, data, arguments.out)
    return 0
