"""How long does a futurized call of a plain NumPy program take, beside NumPy itself?"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

from benchmarks import report
from benchmarks.harness import QUICK, Comparison, Effort, Peer, compare
from benchmarks.workloads.programs_side import names

PROGRAM = "benchmarks.workloads.programs_side:Program"
SUBJECT, NUMPY = "futurized", "NumPy"


def peers_for(case: str, cpus: int) -> list[Peer]:
    """Return the program futurized, and as it is."""
    return [
        Peer(SUBJECT, PROGRAM, {"case": case, "futurized": True}, cpus),
        Peer(NUMPY, PROGRAM, {"case": case, "futurized": False}, cpus),
    ]


def row(one: Comparison) -> list[str]:
    """Return case, how it runs, first call, time per call of both, and their ratio."""
    seconds, ratio = one.seconds(), one.ratios()[NUMPY]
    check = one.remarks["check"]
    return [
        one.case,
        "one graph" if check[SUBJECT]["staged"] else "with plain parts",
        report.duration(check[SUBJECT]["first_call"]),
        report.duration(seconds[SUBJECT].median),
        report.duration(seconds[NUMPY].median),
        f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]",
    ]


def main(arguments: argparse.Namespace) -> int:
    """Run the programs, print and write the table; return 1 where one is missing."""
    effort = QUICK if arguments.quick else Effort(arguments.rounds, 2 * arguments.rounds, turn_seconds=0.1)
    cpus = len(os.sched_getaffinity(0))
    cases = arguments.cases or (names()[:3] if arguments.quick else names())
    found = []
    for case in cases:
        print(case, flush=True)
        found.append(compare(case, SUBJECT, peers_for(case, cpus), effort, check={}))
    complete = [one for one in found if not one.missing]
    complete.sort(key=lambda one: -one.ratios()[NUMPY].median)
    head = ["program", "runs as", "first call", "futurized", "NumPy", "futurized / NumPy: median [quartiles]"]
    ratios = [one.ratios()[NUMPY].median for one in complete]
    noisy, close = sum(one.noisy for one in complete), sum(each <= 1.1 for each in ratios)
    body = (
        f"{report.table(head, [row(one) for one in complete])}\n\n"
        f"Median of the ratios: {statistics.median(ratios):.2f}; {close} of {len(ratios)} programs take at most 1.1 "
        f"times as long as with NumPy. {noisy} were measured while others used the machine.\n\n"
        "Arrays are small, as the examples of the programs are: what is measured is mostly the cost of a call and of "
        "a node. A call includes a copy of its arguments on both sides."
    )
    data: dict[str, Any] = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("programs", "Plain NumPy programs, futurized", body, data, arguments.out)
    return 1 if len(complete) < len(found) else 0
