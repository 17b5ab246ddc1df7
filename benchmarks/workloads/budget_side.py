"""Calls of kernels by BLAS, LAPACK, oneDNN and generated code: how many processors do they keep busy?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx

SECONDS = 0.5
KINDS = ("BLAS", "LAPACK", "oneDNN", "generated", "all in turns", "branches")


def kinds() -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Return a function and its argument by the kind of its kernels."""
    rng = np.random.default_rng(0)
    wide, flat = rng.normal(size=(700, 700)), rng.normal(size=1 << 21).astype(np.float32)
    return {
        "BLAS": (lambda x: x @ x, wide),
        "LAPACK": (lambda x: np.linalg.solve(x, x), wide),
        "oneDNN": (lambda x: np.tanh(x @ x), wide.astype(np.float32)),
        "generated": (lambda x: np.sum(np.exp(x) * 2 - x), flat),
        "all in turns": (lambda x: np.tanh(x @ x) @ np.linalg.solve(x, np.exp(x)), wide),
        "branches": (lambda x: sum(np.tanh((x * k) @ x) for k in range(1, 5)), wide.astype(np.float32)),
    }


class Kernels:
    """Calls one after the other of a function whose kernels are of one kind."""

    def __init__(self, kind: str) -> None:
        function, self._x = kinds()[kind]
        self._call = fx.futurize(function)
        for _ in range(3):
            self.step()

    def step(self) -> None:
        """Call it once and wait."""
        self._call(self._x).result()

    def processors(self) -> tuple[float, int]:
        """Return the processor time of calls over the time, and how many there were."""
        start, own, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - start < SECONDS:
            self.step()
            count += 1
        return (time.process_time() - own) / (time.perf_counter() - start), count
