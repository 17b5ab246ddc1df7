"""How long do value and gradient take of what solves systems of equations, whose matrix is factorised?"""

from __future__ import annotations

import argparse

from benchmarks.stacks import measured, published
from benchmarks.workloads.systems import CASES

AGREEMENT = 1e-6
STACKS = {"futurex": "Futurex", "torch eager": "Torch", "jax.jit": "Jax"}


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where gradients differ or futurex is missing."""
    titles = {name: case.title for name, case in CASES.items()}
    found = measured(arguments, "benchmarks.workloads.systems", titles, STACKS)
    return published(arguments, "systems", "Systems of equations", found, AGREEMENT)
