"""How fast are products of matrices: square, of a network's shapes, transposed, batched, as contractions, in double?"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.products import CASES

HOME = "benchmarks.workloads.products"
SUBJECT = "futurex"
STACKS = {SUBJECT: "Futurex", "NumPy": "Numpy", "torch eager": "Torch", "jax.jit": "Jax"}


def rate_rows(found: dict[tuple[str, int], Comparison]) -> list[list[str]]:
    """Return case, CPUs, operations, bytes (operands once), and the rate of every stack."""
    rows = []
    for (case, threads), one in found.items():
        product, seconds = CASES[case], one.seconds()
        moved = np.dtype(product.dtype).itemsize * sum(_size(shape) for shape in product.shapes)
        rates = [f"{product.flops / seconds[each].median / 1e9:.0f}" if each in seconds else "-" for each in STACKS]
        rows.append([product.title, str(threads), f"{product.flops:.2e}", f"{moved:.2e}", *rates])
    return rows


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where futurex is missing."""
    effort = effort_of(arguments, turn_seconds=0.2)
    found = {}
    for threads in arguments.threads:
        for case in cases_of(arguments, CASES):
            print(f"{CASES[case].title}, {threads} CPU(s)", flush=True)
            peers = [Peer(name, f"{HOME}:{factory}", {"case": case}, threads) for name, factory in STACKS.items()]
            found[case, threads] = compare(CASES[case].title, SUBJECT, peers, effort)
    head = ["product", "CPUs", "operations", "bytes", *(f"{each}, GFLOP/s" for each in STACKS)]
    body = report.comparison_table(list(found.values())) + "\n\n" + report.table(head, rate_rows(found))
    data = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    report.publish("matmul", "Products of matrices", body, data, arguments.out)
    return 1 if any(SUBJECT in one.missing for one in found.values()) else 0
