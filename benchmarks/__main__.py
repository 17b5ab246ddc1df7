"""``python -m benchmarks <name>`` runs one benchmark or all of them; ``--quick`` only shows that they work."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.report import RESULTS

NAMES = (
    "training_steps", "accuracy_har", "allreduce", "driving", "step_overhead", "call_path", "first_call", "replay",
    "tracing", "programs", "models", "small_steps", "fallback", "gpu", "elementwise", "roofline", "matmul", "memory",
    "recovery", "strategies", "data_parallel", "limited_link", "branches", "large_arrays", "expressions", "crowded",
    "loop_gradients", "systems",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare futurex with its peers.")
    made.add_argument("name", choices=(*NAMES, "all"), help="which question to answer")
    made.add_argument("--quick", action="store_true", help="a smoke run: its numbers mean nothing and are not written")
    made.add_argument("--rounds", type=int, default=9, help="quiet rounds to measure (default 9)")
    made.add_argument("--threads", type=int, nargs="+", help="CPU counts of training_steps (default: 1 and all)")
    made.add_argument("--cases", nargs="+", help="only these cases or sizes of the benchmark named")
    made.add_argument("--peers", nargs="+", help="models: only these stacks beside futurex")
    made.add_argument("--out", type=Path, help="folder for the results (default benchmarks/results; none with --quick)")
    return made


def main() -> int:
    """Run the benchmark that the command line names."""
    arguments = parser().parse_args()
    if arguments.out is None and not arguments.quick:
        arguments.out = RESULTS
    cpus = len(os.sched_getaffinity(0))
    if arguments.threads is None:
        arguments.threads = [cpus] if arguments.quick else [1, cpus]
    if arguments.rounds < 1 or any(each < 1 for each in arguments.threads):
        parser().error("--rounds and --threads take whole numbers from 1")
    arguments.threads = sorted({min(each, cpus) for each in arguments.threads})
    if arguments.name == "all" and arguments.cases:
        parser().error("--cases belongs to one benchmark: name it instead of all")
    names = NAMES if arguments.name == "all" else (arguments.name,)
    return max(importlib.import_module(f"benchmarks.{name}").main(arguments) for name in names)


if __name__ == "__main__":
    sys.exit(main())
