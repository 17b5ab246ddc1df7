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
from benchmarks.harness import Child, Peer, PeerFailed, cases_of
from benchmarks.workloads.first_calls import CASES

HOME = "benchmarks.workloads.first_calls"
COLD, WAIT, WARM = "futurex, nothing compiled", "futurex, waiting for the compiler", "futurex, compiled before"
JAX, JAX_WARM = "jax.jit", "jax.jit, compiled before"
TORCH, TORCH_WARM = "torch.compile", "torch.compile, compiled before"
STACKS = {
    COLD: "Futurex", WAIT: "Futurex", WARM: "Futurex", JAX: "Jax", JAX_WARM: "Jax", TORCH: "Torch", TORCH_WARM: "Torch",
    "NumPy": "Numpy",
}  # fmt: skip
FILLED_BY = {WARM: WAIT, JAX_WARM: JAX, TORCH_WARM: TORCH}
"""Whose caches on disk a stack finds."""
LONG = 3.0
"""Seconds of a first call that are measured once."""
CALLS = 0.5
"""Seconds for which calls go on where all is compiled by the first one; behind the first call the compiler needs eight
times as long."""
PACKAGES = ("futurex", "numpy", "jax", "torch")
SPANS = ("first", "until steady", "steady")


def environment(stack: str, folder: Path) -> dict[str, str]:
    """Return where compiled code is kept, and whether to wait for it; Python's own bytecode is always kept."""
    return {
        "FUTUREX_CACHE": str(folder), "FUTUREX_COMPILE": "wait" if stack == WAIT else "background",
        "TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"),
        "JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1", "PYTHONDONTWRITEBYTECODE": "",
    }  # fmt: skip


def measure(stack: str, case: str, folder: Path, seconds: float) -> dict[str, float]:
    """Return the spans of one fresh process."""
    cpus = len(os.sched_getaffinity(0))
    peer = Peer(stack, f"{HOME}:{STACKS[stack]}", {"case": case}, cpus, environment(stack, folder))
    child = Child(peer)
    try:
        return child.call("measure", seconds=seconds)
    finally:
        child.close()


def loading(package: str, rounds: int) -> list[float]:
    """Return the processor seconds that importing a package took in processes of its own; none where it is missing."""
    code = f"import time; start = time.process_time(); import {package}; print(time.process_time() - start)"
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=kept)
        for _ in range(rounds + 1)
    ]  # the first finds no compiled Python and no pages in memory
    return [float(each.stdout) for each in runs[1:] if not each.returncode]


def main(arguments: argparse.Namespace) -> int:
    """Measure every stack on every case, print and write the table; return 1 where futurex is missing."""
    rounds = 1 if arguments.quick else min(arguments.rounds, 3)
    rows, data, missing = [], {}, False
    with tempfile.TemporaryDirectory() as place:
        for case in cases_of(arguments, CASES, [case for case in CASES if not (arguments.quick and case == "loop")]):
            print(CASES[case], flush=True)
            stacks = [stack for stack in STACKS if not (stack == "NumPy" and "-" in case)]
            found: dict[str, list[dict[str, float]]] = {stack: [] for stack in stacks}
            folders: dict[str, Path] = {}
            for number in range(rounds):
                for stack in list(stacks):
                    seconds = 8 * CALLS if stack == COLD and not arguments.quick else CALLS
                    folders[stack] = folders.get(FILLED_BY.get(stack, ""), Path(place, f"{case}-{stack}-{number}"))
                    try:
                        found[stack].append(measure(stack, case, folders[stack], seconds))
                    except PeerFailed as error:
                        print(f"  without {error}", flush=True)
                        missing = missing or STACKS[stack] == "Futurex"
                        stacks.remove(stack)
                    else:
                        if found[stack][-1]["first"] > LONG:
                            stacks.remove(stack)
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
