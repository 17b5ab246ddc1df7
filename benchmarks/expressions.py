"""How long does everyday NumPy take on a million numbers and on ten thousand: short rows, windows, joins?"""

from __future__ import annotations

import argparse

from benchmarks.stacks import measured, published
from benchmarks.workloads.expressions import CASES

AGREEMENT = 1e-4
STACKS = {"futurex": "Futurex", "NumPy": "Numpy", "jax.jit": "Jax"}


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where results differ or futurex is missing."""
    titles = {name: case.title for name, case in CASES.items()}
    found = measured(arguments, "benchmarks.workloads.expressions", titles, STACKS)
    return published(arguments, "expressions", "Everyday expressions", found, AGREEMENT)
