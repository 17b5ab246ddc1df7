"""How long do value and gradient of a loop take whose rounds depend on the one before, of numbers and small arrays?"""

from __future__ import annotations

import argparse

from benchmarks.stacks import measured, published
from benchmarks.workloads.loops import CASES

AGREEMENT = 1e-6
STACKS = {"futurex": "Futurex", "torch eager": "Torch", "jax.jit": "Jax"}
NOTE = (
    "jax.jit knows no reverse mode through a loop that data ends: its rounds are a scan of known number, with masks "
    "where data ends the loop."
)


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where gradients differ or futurex is missing."""
    titles = {name: case.title for name, case in CASES.items()}
    found = measured(arguments, "benchmarks.workloads.loops", titles, STACKS)
    return published(arguments, "loop_gradients", "Derivatives of loops", found, AGREEMENT, NOTE)
