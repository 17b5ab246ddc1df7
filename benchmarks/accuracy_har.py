"""Does the HAR network reach the same accuracy on unseen subjects in futurex as in PyTorch?"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.harness import Child, Peer, PeerFailed
from benchmarks.workloads import har

STACKS = {
    "futurex": "benchmarks.workloads.futurex_side:TrainHar",
    "torch eager": "benchmarks.workloads.torch_har:TrainHar",
}
SEEDS, EPOCHS = 5, 5
RUN_SECONDS = 3600.0
NOTE = (
    "Every stack starts each seed from the same weights and sees the same batches in the same order. The dropout masks "
    "differ: each stack has its own random stream, so runs of one seed agree in distribution, not number by number."
)


def run_stack(name: str, threads: int, seeds: int, epochs: int, limit: int | None) -> list[dict[str, Any]]:
    """Train one stack once per seed and return what each run gave."""
    child = Child(Peer(name, STACKS[name], {}, threads))
    found = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(seeds):
                initial = har.write_weights(Path(folder), seed)
                run = child.call("train", RUN_SECONDS, initial=initial, seed=seed, epochs=epochs, limit=limit)
                print(f"{name}, seed {seed}: accuracy {run['accuracy']:.4f}, {run['seconds']:.1f} s", flush=True)
                found.append(run)
    finally:
        child.close()
    return found


def row(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """Return stack, mean, deviation, range of the accuracies, and seconds of training per run."""
    values = [run["accuracy"] for run in runs]
    deviation = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "–"
    spread = f"{min(values):.4f} to {max(values):.4f}"
    seconds = f"{statistics.median(run['seconds'] for run in runs):.1f}"
    return [name, f"{statistics.mean(values):.4f}", deviation, spread, f"{runs[0]['losses'][-1]:.4f}", seconds]


def main(arguments: argparse.Namespace) -> int:
    """Train every stack, print and write the table; return 1 where a stack could not run."""
    seeds, epochs, limit = (1, 1, 512) if arguments.quick else (SEEDS, EPOCHS, None)
    threads = max(arguments.threads)
    runs: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    for name in STACKS:
        try:
            runs[name] = run_stack(name, threads, seeds, epochs, limit)
        except PeerFailed as error:
            missing[name] = str(error).splitlines()[0]
            print(f"without {error}", flush=True)
    head = ["stack", "mean accuracy", "deviation", "range", "last training loss of seed 0", "seconds per run (median)"]
    table = report.table(head, [row(name, each) for name, each in runs.items()])
    body = f"{table}\n\n{seeds} seeds, {epochs} epochs, batch {har.BATCH}, {threads} CPU(s). {NOTE}"
    data = {"seeds": seeds, "epochs": epochs, "cpus": threads, "runs": runs, "missing": missing, "note": NOTE}
    report.publish("accuracy_har", "HAR: accuracy on unseen subjects", body, data, arguments.out)
    return 1 if missing else 0
