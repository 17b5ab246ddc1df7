"""What does each training strategy send, wait for and hold in a step of the MLP on two localities?"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from benchmarks.harness import cases_of

STRATEGIES: dict[str, dict[str, Any]] = {
    "all-reduce": {},
    "4 parts": {"accumulate": 4},
    "ZeRO 1, 4 parts": {"strategy": fx.strategy.zero(1), "accumulate": 4},
    "ZeRO 2": {"strategy": fx.strategy.zero(2)},
    "ZeRO 2, 4 parts": {"strategy": fx.strategy.zero(2), "accumulate": 4},
    "cross barrier": {"strategy": fx.strategy.cross_barrier()},
    "mean of every 8": {"strategy": fx.strategy.local_sgd(8)},
    "server": {"strategy": fx.strategy.parameter_server()},
    "server, 2 steps stale": {"strategy": fx.strategy.parameter_server(2)},
    "server, asynchronous": {"strategy": fx.strategy.parameter_server(None)},
}
TRANSPORTS = ("local", "tcp")
BATCH, STEPS = 64, 32  # steps of an epoch; the first epoch warms up, the second is measured
HEAD = ["strategy", "ms a step", "MB given to exchanges", "MB sent", "ms waited", "MB of state", "MB of gradient sums"]


def loss(params: Any, x: Any, y: Any) -> Any:
    """Return the mean cross-entropy of the MLP."""
    return fx.nn.softmax_cross_entropy(fx.models.mlp.apply(params, x), y).mean()


def measure(cluster: Any, options: dict[str, Any], steps: int) -> dict[str, float]:
    """Train two epochs and return the figures of a step of the second, of the locality that has most of each."""
    rng = np.random.default_rng(0)
    params = fx.models.mlp.init(rng)
    data = rng.normal(size=(BATCH * steps, 784)).astype(np.float32), rng.integers(0, 10, BATCH * steps)
    run = fx.fit(loss, params, data, on=cluster, epochs=2, batch_size=BATCH, progress=False, **options)
    run.result(600)
    second = run.history[1]
    return {
        "seconds": second["seconds"] / steps,
        "given": max(counters.exchanged_bytes for counters in run.counters) / run.step,
        "sent": max(counters.bytes_sent for counters in run.counters) / run.step,
        "waited": second["exposed_comm_seconds"] / steps,
        "state": max(held["optimizer state"] for held in run.memory),
        "sums": max(held.get("gradients summed up", 0) for held in run.memory),
    }


def row(name: str, found: dict[str, float]) -> list[str]:
    """Return the figures of one strategy as text."""
    millis, megas = [f"{found[key] * 1e3:.2f}" for key in ("seconds", "waited")], 1e6
    given, sent, state, sums = (f"{found[key] / megas:.2f}" for key in ("given", "sent", "state", "sums"))
    return [name, millis[0], given, sent, millis[1], state, sums]


def main(arguments: argparse.Namespace) -> int:
    """Run every strategy over every transport in turn, round by round; print and write medians."""
    rounds, steps = (1, 4) if arguments.quick else (arguments.rounds, STEPS)
    names = cases_of(arguments, STRATEGIES)
    size = sum(leaf.nbytes for layer in fx.models.mlp.init(np.random.default_rng(0)) for leaf in layer.values())
    tables, data = [], {}
    for transport in TRANSPORTS:
        with fx.Cluster(2, transport=transport) as cluster:
            found = [{name: measure(cluster, STRATEGIES[name], steps) for name in names} for _ in range(rounds)]
        medians = {
            name: {key: statistics.median(each[name][key] for each in found) for key in found[0][name]}
            for name in names
        }
        data[transport] = medians
        tables.append(f"Over {transport}:\n\n" + report.table(HEAD, [row(name, medians[name]) for name in names]))
    body = (
        f"MLP 784-512-512-10, Adam, {BATCH} examples a step, two localities. Parameters are {size / 1e6:.2f} MB: the "
        "sum over two ranks takes at least as many bytes from each. Inside a host arrays lie in shared memory and "
        "nothing is sent.\n\n" + "\n\n".join(tables)
    )
    report.publish("strategies", "Strategies of data-parallel training", body, data, arguments.out)
    return 0
