"""Calls of kernels by BLAS, LAPACK, oneDNN and generated code: how many processors do they keep busy?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx

SECONDS = 0.5


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


def processors(function: Callable[[Any], Any], x: Any) -> float:
    """Return the processor time of calls one after the other, over the time."""
    call = fx.futurize(function)
    for _ in range(3):
        call(x).result()
    start, own = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < SECONDS:
        call(x).result()
    return (time.process_time() - own) / (time.perf_counter() - start)


if __name__ == "__main__":
    os.environ["FUTUREX_COMPILE"] = "wait"
    for name, (function, x) in kinds().items():
        sys.stdout.write(f"{name}|{processors(function, x):.3f}\n")
