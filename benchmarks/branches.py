"""Parts that do not read each other: beside each other, or in turns on all threads? And is the right way taken?"""

from __future__ import annotations

import argparse
import os

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.branches_side import CASES

HOME = "benchmarks.workloads.branches_side"
SUBJECT, TURNS, BESIDE = "futurex", "forced: in turns", "forced: beside each other"


def measure(case: str, arguments: argparse.Namespace) -> Comparison:
    """Compare a call with both ways in which it could go."""
    title, threads = CASES[case][0], len(os.sched_getaffinity(0))
    print(title, flush=True)
    waits = {"FUTUREX_COMPILE": "wait"}
    sides = {SUBJECT: "Call", TURNS: "Turns", BESIDE: "Beside"}
    peers = [Peer(name, f"{HOME}:{side}", {"case": case}, threads, waits) for name, side in sides.items()]
    return compare(title, SUBJECT, peers, effort_of(arguments, turn_seconds=0.3), check={})


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where futurex is missing."""
    found = {case: measure(case, arguments) for case in cases_of(arguments, CASES)}
    said = [[CASES[case][0], str(one.remarks["check"].get(SUBJECT, "missing"))] for case, one in found.items()]
    body = report.comparison_table(list(found.values())) + "\n\n" + report.table(["function", "how it runs"], said)
    data = {"comparisons": [report.comparison_record(one) for one in found.values()], "ways": said}
    report.publish("branches", "Branches beside each other", body, data, arguments.out)
    return int(any(SUBJECT in one.missing for one in found.values()))
