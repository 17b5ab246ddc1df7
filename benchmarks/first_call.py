"""How long until the first result of a function, and until it runs at full speed? Each time in a process of its own."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Child, Peer, PeerFailed
from benchmarks.workloads.first_calls import CASES

HOME = "benchmarks.workloads.first_calls"
COLD, WARM, WAIT = "futurex, nothing compiled", "futurex, compiled before", "futurex, waiting for the compiler"
OWN = dict.fromkeys((COLD, WARM, WAIT), "Futurex")
STACKS = {**OWN, "jax.jit": "Jax", "torch.compile": "Torch", "NumPy": "Numpy"}
PACKAGES = ("futurex", "numpy", "jax", "torch")
SPANS = ("first", "until steady", "steady")


def environment(stack: str, empty: Path, filled: Path) -> dict[str, str]:
    """Return where compiled code is kept, and whether to wait for it."""
    folder = filled if stack == WARM else empty
    return {
        "FUTUREX_CACHE": str(folder), "FUTUREX_COMPILE": "wait" if stack == WAIT else "background",
        "TORCHINDUCTOR_CACHE_DIR": str(empty / "torch"),
    }  # fmt: skip


def measure(stack: str, case: str, empty: Path, filled: Path) -> dict[str, float]:
    """Return the spans of one fresh process."""
    cpus = len(os.sched_getaffinity(0))
    peer = Peer(stack, f"{HOME}:{STACKS[stack]}", {"case": case}, cpus, environment(stack, empty, filled))
    child = Child(peer)
    try:
        return child.call("measure")
    finally:
        child.close()


def loading(package: str, rounds: int) -> list[float]:
    """Return the processor seconds that importing a package took in processes of its own; none where it is missing."""
    code = f"import time; start = time.process_time(); import {package}; print(time.process_time() - start)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        for _ in range(rounds + 1)
    ]  # the first finds no compiled Python and no pages in memory
    return [float(each.stdout) for each in runs[1:] if not each.returncode]


def main(arguments: argparse.Namespace) -> int:
    """Measure every stack on every case, print and write the table; return 1 where futurex is missing."""
    rounds = 1 if arguments.quick else min(arguments.rounds, 5)
    rows, data, missing = [], {}, False
    with tempfile.TemporaryDirectory() as place:
        filled = Path(place, "filled")
        for case in arguments.cases or CASES:
            print(CASES[case], flush=True)
            stacks = [stack for stack in STACKS if not (stack == "NumPy" and "-" in case)]
            measure(WARM, case, filled, filled)  # fills the cache
            found: dict[str, list[dict[str, float]]] = {stack: [] for stack in stacks}
            for number in range(rounds):
                for stack in stacks:
                    try:
                        found[stack].append(measure(stack, case, Path(place, f"{case}-{stack}-{number}"), filled))
                    except PeerFailed as error:
                        print(f"  without {error}", flush=True)
                        missing = missing or STACKS[stack] == "Futurex"
            data[case] = found
            for stack, spans in found.items():
                if spans:
                    medians = (statistics.median(each[span] for each in spans) for span in SPANS)
                    rows.append([CASES[case], stack, *map(report.duration, medians), str(len(spans))])
    head = ["case", "stack", "first result", "until full speed", "a call at full speed", "processes"]
    body = report.table(head, rows) + "\n\nMedians. Imports are not counted; building the function and tracing are."
    imports = {name: loading(name, rounds) for name in PACKAGES}
    lines = [[name, report.duration(statistics.median(each)) if each else "missing"] for name, each in imports.items()]
    body += f"\n\n{report.table(['import of', 'processor time'], lines)}"
    report.publish("first_call", "Time to the first result", body, {"seconds": data, "imports": imports}, arguments.out)
    return int(missing)
