"""Training under faults, and whether its result is right: ``python -m tests.elastic.campaign --seed 1 --faults 200``.

The problem is made so that sums over localities are exact: examples are small integers and batches powers of two, and
gradients depend on the examples and the step's key alone. So whatever number of localities makes a step, its gradient
has the same bits, and with them everything after it (Adam is not linear: a step that is left out, done twice or done
with another key shows). The right result is that of one process without faults, bit for bit. The strategies that have
other mathematics on other numbers of localities must come to an end, with all examples seen in every epoch.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import futurex as fx
from tests.elastic.faults import MODES, POINTS, Fault, arm, struck

EXAMPLES, BATCH, EPOCHS, EVERY, SAVED = 136, 16, 25, 7, 25  # the last batch of an epoch has 8 rows
STEPS = EPOCHS * -(-EXAMPLES // BATCH)
STALL = 2.0
STRATEGIES: dict[str, dict[str, Any]] = {  # options of fit
    "all_reduce": {}, "accumulate": {"accumulate": 2}, "zero(1)": {"strategy": fx.strategy.zero(1)},
    "zero(2)": {"strategy": fx.strategy.zero(2), "accumulate": 2},
    "cross_barrier": {"strategy": fx.strategy.cross_barrier(0.5)},
    "server": {"strategy": fx.strategy.parameter_server()},
    "stale server": {"strategy": fx.strategy.parameter_server(2)},
    "local_sgd": {"strategy": fx.strategy.local_sgd(3)},
}  # fmt: skip
OWN_KEYS = {"server"}  # what is random is each locality's own, and sums of uneven shares are not exact
OTHER = {"stale server", "local_sgd"}


def exact(params: Any, which: Any, x: Any, key: Any) -> Any:
    """Gradients: how often an example was seen; a mean of masked examples."""
    seen = (which @ params["seen"]).sum(axis=1)
    return (seen + fx.nn.dropout(x, 0.5, key) @ params["w"]).mean()


def problem() -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...], dict[str, Any]]:
    """Parameters, data and options of :func:`futurex.fit`."""
    x = np.random.default_rng(3).integers(-4, 5, (EXAMPLES, 6)).astype(float)
    params = {"seen": np.zeros((EXAMPLES, 8)), "w": np.zeros(6)}  # the first is large enough to be cut up
    options = {
        "optimizer": fx.optim.adam(1e-2), "epochs": EPOCHS, "batch_size": BATCH, "seed": 11, "progress": False,
    }  # fmt: skip
    return params, (np.eye(EXAMPLES), x), options


@functools.cache
def expected(accumulate: int = 1) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Parameters and history of one process without faults."""
    params, data, options = problem()
    run = fx.fit(exact, params, data, accumulate=accumulate, **options)
    return run.result(300), run.history


def ended(run: Any, timeout: float) -> Any:
    """The result of a run that may take as long as it goes on; TimeoutError once nothing new is heard for a while."""
    seen, since = None, time.monotonic()
    while not run.done():
        now = run.step, len(run.generations)
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > since + timeout:
            raise TimeoutError(f"nothing new for {timeout:g} s behind step {run.step}: {run.generations[-1]}")
        time.sleep(0.05)
    return run.result(timeout)


def schedule(chance: random.Random, faults: int) -> list[Fault]:
    """Faults at random points, spread over the run; the same step does not fail twice with an exception."""
    steps = sorted(chance.sample(range(1, STEPS - 2 * EVERY, 2), faults))
    found = []
    for number, step in enumerate(steps):
        near = number and step - steps[number - 1] <= 2 * EVERY
        mode = chance.choice([each for each in MODES if each != "exception" or not near])
        seconds = chance.choice([0.3, STALL + 1.0]) if mode == "stop" else 0.0
        found.append(Fault(chance.choice(POINTS), step, mode, chance.choice([None, 0, 1, 2]), seconds))
    return found


def trial(
    cluster: fx.Cluster, faults: list[Fault], timeout: float, least: int = 1, strategy: str = "all_reduce"
) -> tuple[Any, list[int], float]:
    """One training under a schedule; raises AssertionError for a wrong result. Returns its run and what has struck."""
    params, data, options = problem()
    want, history = expected(STRATEGIES[strategy].get("accumulate", 1))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # who was stopped may still write there
        folder = Path(name)
        arm(cluster.client, folder, faults)
        start = time.monotonic()
        run = fx.fit(
            exact, params, data, on=cluster, commit_every=EVERY, min_workers=least, stall_seconds=STALL,
            wait_seconds=timeout, checkpoint=folder / "run", checkpoint_every=SAVED, **STRATEGIES[strategy], **options,
        )  # fmt: skip
        got = ended(run, timeout)
        seconds = time.monotonic() - start
        assert run.step == STEPS
        assert [each["epoch"] for each in run.history] == list(range(1, EPOCHS + 1))
        if strategy in OTHER:
            assert (got["seen"] < 0).all(), "an example was never seen"
            assert np.isfinite(got["w"]).all()
        elif strategy in OWN_KEYS:
            np.testing.assert_allclose(got["seen"], want["seen"], rtol=1e-9)
        else:
            for part in want:
                np.testing.assert_array_equal(got[part], want[part], err_msg=part)
            losses = [[each["loss"] for each in one] for one in (run.history, history)]
            np.testing.assert_allclose(*losses, rtol=1e-9)
        return run, struck(folder), seconds


def main(arguments: argparse.Namespace) -> int:
    """Run trials until so many faults have struck; 1 where a result was wrong or did not come."""
    chance = random.Random(arguments.seed)
    names = arguments.strategies or list(STRATEGIES)
    total, failed, generations = 0, 0, 0
    modes: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    with fx.Cluster(arguments.workers, transport=arguments.transport) as cluster:
        number = 0
        while total < arguments.faults:
            number += 1
            faults = schedule(chance, min(arguments.each, arguments.faults - total))
            strategy = names[number % len(names)]
            try:
                run, hit, seconds = trial(cluster, faults, arguments.timeout, strategy=strategy)
            except Exception as error:
                failed += 1
                what = f"{type(error).__name__}: {str(error)[:300]}"
                print(f"trial {number}, {strategy} FAILED: {what}\n  {faults}", flush=True)
                total += len(faults)
                continue
            total += len(hit)
            modes.update((faults[each].mode, faults[each].point) for each in hit)
            count = sum(each["what"] == "started" for each in run.generations)
            generations += count
            what = f"{len(hit)} faults, {count} generations, {seconds:.1f} s: right"
            print(f"trial {number}, {strategy}: {what}", flush=True)
    print(
        f"seed {arguments.seed}: {total} faults in {number} trials, {generations} generations, {failed} trials wrong "
        f"or without a result, {time.monotonic() - began:.0f} s"
    )
    for (mode, point), times in sorted(modes.items()):
        print(f"  {mode:10} at {point:11} {times}")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--each", type=int, default=8, help="faults in one training")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--transport", default="auto", choices=["auto", "local", "tcp", "ucx"])
    parser.add_argument("--strategies", nargs="*", choices=list(STRATEGIES), help="in turn; all if left out")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds without anything new that count as hung")
    sys.exit(main(parser.parse_args()))
