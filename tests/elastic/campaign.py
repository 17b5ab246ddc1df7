"""Training under faults, and whether its result is right: ``python -m tests.elastic.campaign --seed 1 --faults 200``.

The problem is made so that sums over localities are exact: examples are small integers and batches powers of two, and
gradients depend on the examples and the step's key alone. So whatever number of localities makes a step, its gradient
has the same bits, and with them everything after it (Adam is not linear: a step that is left out, done twice or done
with another key shows). The right result is that of one process without faults, bit for bit.
"""

from __future__ import annotations

import argparse
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


def exact(params: Any, which: Any, x: Any, key: Any) -> Any:
    """Gradients: how often an example was seen; a mean of masked examples."""
    seen = (which * params["seen"]).sum(axis=1)
    return (seen + fx.nn.dropout(x, 0.5, key) @ params["w"]).mean()


def problem() -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...], dict[str, Any]]:
    """Parameters, data and options of :func:`futurex.fit`."""
    x = np.random.default_rng(3).integers(-4, 5, (EXAMPLES, 6)).astype(float)
    params = {"seen": np.zeros(EXAMPLES), "w": np.zeros(6)}
    options = {
        "optimizer": fx.optim.adam(1e-2), "epochs": EPOCHS, "batch_size": BATCH, "seed": 11, "progress": False,
    }  # fmt: skip
    return params, (np.eye(EXAMPLES), x), options


def expected() -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Parameters and history of one process without faults."""
    params, data, options = problem()
    run = fx.fit(exact, params, data, **options)
    return run.result(300), run.history


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
    cluster: fx.Cluster, faults: list[Fault], right: Any, timeout: float, least: int = 1
) -> tuple[Any, list[int], float]:
    """One training under a schedule; raises AssertionError for a wrong result. Returns its run and what has struck."""
    params, data, options = problem()
    want, history = right
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arm(cluster.client, folder, faults)
        start = time.monotonic()
        run = fx.fit(
            exact, params, data, on=cluster, commit_every=EVERY, min_workers=least, stall_seconds=STALL,
            wait_seconds=timeout, checkpoint=folder / "run", checkpoint_every=SAVED, **options,
        )  # fmt: skip
        got = run.result(timeout)
        seconds = time.monotonic() - start
        for part in want:
            np.testing.assert_array_equal(got[part], want[part], err_msg=part)
        assert run.step == STEPS
        losses = [[each["loss"] for each in one] for one in (run.history, history)]
        np.testing.assert_allclose(*losses, rtol=1e-9)
        return run, struck(folder), seconds


def main(arguments: argparse.Namespace) -> int:
    """Run trials until so many faults have struck; 1 where a result was wrong or did not come."""
    chance, right = random.Random(arguments.seed), expected()
    total, failed, generations = 0, 0, 0
    modes: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    with fx.Cluster(arguments.workers, transport=arguments.transport) as cluster:
        number = 0
        while total < arguments.faults:
            number += 1
            faults = schedule(chance, min(arguments.each, arguments.faults - total))
            try:
                run, hit, seconds = trial(cluster, faults, right, arguments.timeout)
            except Exception as error:
                failed += 1
                print(f"trial {number} FAILED: {type(error).__name__}: {str(error)[:300]}\n  {faults}", flush=True)
                total += len(faults)
                continue
            total += len(hit)
            modes.update((faults[each].mode, faults[each].point) for each in hit)
            count = sum(each["what"] == "started" for each in run.generations)
            generations += count
            print(f"trial {number}: {len(hit)} faults, {count} generations, {seconds:.1f} s: right", flush=True)
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
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds after which a training counts as hung")
    sys.exit(main(parser.parse_args()))
