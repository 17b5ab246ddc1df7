"""How long does a training stand still when a worker is killed, what is done again, and what does a commit cost?"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from benchmarks.harness import Spread, cases_of, effort_of
from benchmarks.workloads.stamps import Stamps, read
from futurex.runtime.elastic.commits import Commits
from futurex.runtime.elastic.coordinator import Mark
from futurex.tree.pytree import flatten

EVERY, BATCH, EXAMPLES = 10, 64, 1024
WIDTHS = {"0.1 M parameters": (64, 256, 256, 10), "4 M parameters": (256, 1536, 2048, 10)}
WORKERS = (2, 3)
_PATIENCE = 120.0


@dataclass
class Loss:
    """One worker that was killed: seconds until the survivors finished a step, and what was on the way."""

    noticed: float  # the scheduler forms a generation
    started: float  # it has begun
    seconds: float  # a step of it is done
    redone: int


def network(params: Any, x: Any, y: Any) -> Any:
    """Cross entropy of a perceptron."""
    *hidden, last = params
    for layer in hidden:
        x = np.tanh(x @ layer)
    return fx.nn.softmax_cross_entropy(x @ last, y).mean()


def problem(widths: tuple[int, ...]) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Parameters and data."""
    rng = np.random.default_rng(0)
    sizes = itertools.pairwise(widths)
    params = [(rng.normal(size=size) / np.sqrt(size[0])).astype(np.float32) for size in sizes]
    x = rng.normal(size=(EXAMPLES, widths[0])).astype(np.float32)
    return params, (x, rng.integers(0, widths[-1], EXAMPLES))


def _until(condition: Any, what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {_PATIENCE:g} s")
        time.sleep(0.005)


def losses(widths: tuple[int, ...], workers: int, count: int) -> list[Loss]:
    """Kill ``count`` workers of one training, one after the other, each when all are there again."""
    params, data = problem(widths)
    found = []
    with tempfile.TemporaryDirectory() as folder, fx.Cluster(workers) as cluster:
        cluster.client.register_plugin(Stamps(folder))
        run = fx.fit(
            network, params, data, on=cluster, optimizer=fx.optim.adam(1e-4), epochs=10**6, batch_size=BATCH,
            commit_every=EVERY, progress=False,
        )  # fmt: skip

        def started() -> list[dict[str, Any]]:
            return [each for each in run.generations if each["what"] == "started"]

        def trains() -> bool:
            newest = started()[-1:]
            steps = [stamp for stamp in read(folder) if newest and stamp.generation == newest[0]["generation"]]
            return bool(newest) and len(newest[0]["workers"]) == workers and len(steps) > 20 * workers

        for number in range(count):
            _until(trains, "the training did not go on with all workers")
            before = started()[-1]
            victim = before["workers"][number % workers]
            process = cluster.client.run(os.getpid, workers=[victim])[victim]
            killed, wall = time.monotonic(), time.time()
            os.kill(process, signal.SIGKILL)
            _until(lambda before=before: started()[-1] is not before, "no generation was formed")
            after = started()[-1]
            first = after["generation"], after["step"] + 1
            _until(lambda first=first: any(each[:3:2] == first for each in read(folder)), "no step was finished")
            stamps = read(folder)
            finished = next(each for each in stamps if each[:3:2] == first)
            noticed = next(each for each in run.generations if each["generation"] > before["generation"])
            done = max(each.step for each in stamps if each.time < killed)
            found.append(
                Loss(noticed["time"] - wall, after["time"] - wall, finished.time - killed, done - after["step"])
            )
        run.stop()
        run.result(_PATIENCE)
    return found


def commit(widths: tuple[int, ...], times: int) -> tuple[Spread, int]:
    """Seconds of a commit, and the bytes that a locality keeps for commits."""
    params, _ = problem(widths)
    leaves = flatten((params, fx.optim.adam().init(params)))[0]
    commits, spans = Commits(), []
    for step in range(times + 2):
        start = time.perf_counter()
        commits.take(Mark(step, 1), leaves, {})
        spans.append(time.perf_counter() - start)
    return Spread.of(spans[2:]), 2 * sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray))


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where more steps were done again than commits allow."""
    rounds = 1 if arguments.quick else effort_of(arguments).rounds
    cases = cases_of(arguments, WIDTHS, list(WIDTHS)[: 1 if arguments.quick else None])
    rows, kept, data = [], [], []
    for case in cases:
        for workers in WORKERS[:1] if arguments.quick else WORKERS:
            print(f"{case}, {workers} localities: {rounds} are killed", flush=True)
            found = losses(WIDTHS[case], workers, rounds)
            data += [{"case": case, "workers": workers, **asdict(each)} for each in found]
            spreads = [Spread.of([getattr(each, name) for each in found]) for name in ("noticed", "started", "seconds")]
            redone = max(each.redone for each in found)
            figures = [report.duration(spread.median) for spread in spreads]
            rows.append([case, str(workers), *figures, report.duration(spreads[-1].high), f"{redone} of {EVERY}"])
        spread, nbytes = commit(WIDTHS[case], 5 * rounds)
        kept.append([case, report.duration(spread.median), f"{nbytes / 2**20:,.1f} MiB"])
    head = ["case", "localities", "noticed", "new generation", "next step done", "upper quartile", "most steps redone"]
    body = (
        "Medians of the time from SIGKILL on, by the clock that the processes of this machine share.\n\n"
        + report.table(head, rows)
        + "\n\nWhat commits cost on each locality, parameters and Adam's state together:\n\n"
        + report.table(["case", "one commit", "memory kept"], kept)
    )
    report.publish("recovery", "Recovery from a killed worker", body, {"losses": data}, arguments.out)
    return 1 if any(each["redone"] > EVERY for each in data) else 0
