"""How long is a training step beside busy processes, which want the same processors?"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import models, report, small_steps, training_steps
from benchmarks.harness import Child, Peer, PeerAbsent, cases_of
from benchmarks.workloads import cases, networks, small_models

SUBJECT, BEST = "futurex", "best peer"
STACKS = (SUBJECT, "jax.jit", "jax.jit NWC", "torch eager", "torch eager, channels last")
"""As they are called by the benchmarks of the same steps."""
CASES = {
    **{name: small_models.CASES[name].title for name in ("digits", "pictures")},
    **{name: cases.CASES[name].title for name in ("mlp-sgd", "har-adam")},
    **{name: networks.NETWORKS[name].title for name in ("googlenet",)},
}
TURN, WARM, CHUNK = 1.0, 3.0, 0.02
"""Seconds of steps of one stack, alone or beside the others, and before all of them; and of those asked for at once."""
BUSY = "while True: pass"


def peers_for(case: str, weights: str, threads: int) -> list[Peer]:
    """Return the stacks of a case, built as where they are compared alone."""
    if case in small_models.CASES:
        found = small_steps.peers_for(case, threads)
    elif case in cases.CASES:
        found = training_steps.peers_for(case, threads)
    else:
        found = models.peers_for(case, weights, threads)
    return [each for each in found if each.name in STACKS]


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never rest, of the same priority, end with the block."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(0.2 if others else 0.0)  # until they are at it
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def step_of(child: Child, seconds: float) -> float:
    """Return the mean seconds of a step: who waits for a processor takes many times as long, now and then."""
    taken, count, chunk = 0.0, 0, 1
    while taken < seconds:
        taken += sum(child.time(chunk))
        count += chunk
        chunk = max(1, int(CHUNK * count / taken))
    return taken / count


def measure(case: str, threads: int, rounds: int, turn: float) -> dict[str, Any]:
    """Return of each stack the seconds of a step alone, beside one busy process, and beside as many as processors."""
    found: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pickle"
        if case in networks.NETWORKS:
            networks.write_weights(case, path)
        children = {}
        try:
            for peer in peers_for(case, str(path), threads):
                with contextlib.suppress(PeerAbsent):
                    children[peer.name] = Child(peer)
                    step_of(children[peer.name], WARM * turn)
            for _ in range(rounds):
                for others in sorted({0, 1, threads}):
                    for name, child in children.items():
                        with busy(others):
                            found.setdefault(name, {}).setdefault(others, []).append(step_of(child, turn))
        finally:
            for child in children.values():
                child.close()
    return {"case": case, "threads": threads, "stacks": found}


def rows_of(one: dict[str, Any]) -> list[list[str]]:
    """Return the table rows of a case: medians over the rounds."""
    medians = {
        name: {others: statistics.median(seconds) for others, seconds in spans.items()}
        for name, spans in one["stacks"].items()
    }
    rows = []
    for name, spans in medians.items():
        shown = [f"{report.duration(taken)} ({taken / spans[0]:.2f})" for others, taken in spans.items() if others]
        rows.append([CASES[one["case"]], str(one["threads"]), name, report.duration(spans[0]), *shown])
    peers = [spans for name, spans in medians.items() if name != SUBJECT]
    if peers and SUBJECT in medians:
        ratios = [f"{taken / min(each[others] for each in peers):.2f}" for others, taken in medians[SUBJECT].items()]
        rows.append([CASES[one["case"]], str(one["threads"]), f"**{SUBJECT} / {BEST}**", *ratios])
    return rows


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where futurex is missing."""
    rounds, turn = (1, 0.05) if arguments.quick else (min(arguments.rounds, 3), TURN)
    threads = max(arguments.threads)
    found = []
    for case in cases_of(arguments, CASES, ("digits",) if arguments.quick else None):
        print(CASES[case], flush=True)
        found.append(measure(case, threads, rounds, turn))
    head = ["case", "CPUs", "stack", "a step alone", "beside one busy process"]
    head += [f"beside {threads}"] if threads > 1 else []
    table = report.table(head, [row for one in found for row in rows_of(one)])
    note = (
        "Mean seconds of a step in turns of a second, medians over the rounds; in brackets the ratio to the step "
        f"alone. Of {threads} processors one busy process leaves {(threads - 0.5) / threads:.2f}, as many as there are "
        "half."
    )
    data = {"cases": found}
    report.publish("crowded", "Training steps beside busy processes", f"{table}\n\n{note}", data, arguments.out)
    return 0 if all(SUBJECT in one["stacks"] for one in found) else 1
