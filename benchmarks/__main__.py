"""``python -m benchmarks <name>`` runs one benchmark; ``--quick`` only shows that it works."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.report import RESULTS

NAMES = ("training_steps", "accuracy_har", "allreduce", "step_overhead")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare futurex with its peers.")
    made.add_argument("name", choices=NAMES, help="which question to answer")
    made.add_argument("--quick", action="store_true", help="a smoke run: its numbers mean nothing and are not written")
    made.add_argument("--rounds", type=int, default=9, help="quiet rounds to measure (default 9)")
    made.add_argument("--threads", type=int, nargs="+", help="CPU counts of training_steps (default: 1 and all)")
    made.add_argument("--cases", nargs="+", help="only these cases of training_steps or sizes of allreduce")
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
    return importlib.import_module(f"benchmarks.{arguments.name}").main(arguments)


if __name__ == "__main__":
    sys.exit(main())
