"""A group of MPICH processes that all-reduce one float32 array: started by ``mpiexec``, driven through rank 0."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

QUESTIONS = ("ready", "check", "time", "stop")


class MpichGroup:
    """``size`` processes of MPI; the same questions as those of ``benchmarks.workloads.group``."""

    def __init__(self, size: int, elements: int) -> None:
        launcher = Path(sys.prefix, "bin", "mpiexec")
        if importlib.util.find_spec("mpi4py") is None or not launcher.exists():
            raise ImportError("mpi4py and mpich are not installed: pip install mpich mpi4py")
        self._process = subprocess.Popen(
            [str(launcher), "-n", str(size), sys.executable, "-m", "benchmarks.workloads.mpich_group", str(elements)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._ask("ready", 0)

    def check(self) -> list[float]:
        """Return the largest error of one all-reduce of known numbers, over all ranks."""
        return self._ask("check", 0)

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each of ``repetitions`` operations run back to back: those of the slowest rank."""
        return self._ask("time", repetitions)

    def close(self) -> None:
        """End every rank."""
        self._ask("stop", 0)
        self._process.wait(10.0)

    def _ask(self, what: str, repetitions: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, repetitions]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the MPI processes ended")
        return json.loads(line)


def main() -> None:
    """One rank: rank 0 reads the questions, all answer them."""
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    array = np.zeros(int(sys.argv[1]), np.float32)

    def seconds() -> float:
        start = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, array)
        return time.perf_counter() - start

    def told(question: Any) -> Any:
        """What rank 0 was asked. MPI waits by looking without pause, which would take a processor from the others."""
        words = np.zeros(2, np.int64)
        if question is not None:
            words[:] = QUESTIONS.index(question[0]), question[1]
        request = world.Ibcast(words, 0)
        while not request.Test():
            time.sleep(0.001)
        return QUESTIONS[words[0]], int(words[1])

    while True:
        line = sys.stdin.readline() if world.rank == 0 else None
        what, repetitions = told(json.loads(line) if line else None)
        answer: Any = [0.0]
        if what == "check":
            pattern = np.arange(array.size) % 251
            array[:] = pattern + world.rank
            seconds()
            expected = world.size * pattern + world.size * (world.size - 1) // 2
            answer = [world.allreduce(float(np.abs(array - expected).max()), MPI.MAX)]
        elif what == "time":
            array[:] = 0.0
            seconds()
            spans = np.array([seconds() for _ in range(repetitions)])
            slowest = np.empty_like(spans)
            world.Allreduce(spans, slowest, MPI.MAX)
            answer = slowest.tolist()
        if world.rank == 0:
            print(json.dumps(answer), flush=True)
        if what == "stop":
            return


if __name__ == "__main__":
    main()
