"""What the benchmarks ran on, and who else used the machine meanwhile."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = (
    "futurex",
    "numpy",
    "numba",
    "llvmlite",
    "onednn-cpu-gomp",
    "dask",
    "distributed",
    "libucx-cu12",
    "torch",
    "jax",
    "jaxlib",
)
VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def describe() -> dict[str, object]:
    """Return CPU model, vector units, CPU count, memory in GiB, kernel and Python version; no names, no paths."""
    cpu = Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*:\s*(.+)", cpu)
    flags = re.search(r"(?:flags|Features)\s*:\s*(.+)", cpu)
    present = set(flags.group(1).split()) if flags else set()
    return {
        "cpu": model.group(1).strip() if model else platform.machine(),
        "vector_units": [flag for flag in VECTOR_FLAGS if flag in present],
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the installed version of each stack that takes part, and the commit of this repository."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit:
        found["commit"] = commit + ("+changes" if _git("status", "--porcelain", "--", "futurex") else "")
    return found


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _own_ticks() -> int:
    """Return the CPU ticks used so far by this process and all its descendants, their ended children included."""
    parents, ticks = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended between the listing and the reading
        parents[int(entry)] = int(fields[1])
        ticks[int(entry)] = sum(int(field) for field in fields[11:15])
    own, me = 0, os.getpid()
    for process in ticks:
        ancestor = process
        while ancestor not in (me, 0):
            ancestor = parents.get(ancestor, 0)
        own += ticks[process] if ancestor == me else 0
    return own


def _busy_ticks() -> int:
    """Return the ticks in which any CPU of the machine did work, stolen time included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return user + nice + system + irq + softirq + steal


class Watch:
    """Measures which share of the machine other processes used since the watch was made.

    >>> watch = Watch()
    >>> 0.0 <= watch.foreign_share() <= 1.0
    True
    """

    def __init__(self) -> None:
        self._start, self._busy, self._own = time.monotonic(), _busy_ticks(), _own_ticks()

    def foreign_share(self) -> float:
        """Return the CPU time of other processes over the CPU time the machine had, from 0 to 1."""
        busy, own = _busy_ticks() - self._busy, _own_ticks() - self._own
        available = (time.monotonic() - self._start) * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy - own) / available)) if available else 0.0
