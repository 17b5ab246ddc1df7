"""Are a few lines of plain NumPy on large arrays faster futurized, whatever they are?"""

from __future__ import annotations

import argparse
import os
import statistics

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.large_functions import CASES

CALL = "benchmarks.workloads.large_functions:Call"
AGREEMENT = 1e-5
SUBJECT, NUMPY = "futurized", "NumPy"


def measure(case: str, arguments: argparse.Namespace) -> Comparison:
    """Compare the function futurized with the function as it is."""
    print(case, flush=True)
    cpus = len(os.sched_getaffinity(0))
    ways = {SUBJECT: True, NUMPY: False}
    peers = [Peer(name, CALL, {"case": case, "futurized": way}, cpus) for name, way in ways.items()]
    found = compare(case, SUBJECT, peers, effort_of(arguments, turn_seconds=0.2), check={}, together=True)
    sums = list(found.remarks["check"].values())
    found.remarks["disagreement"] = max(sums) / min(sums) - 1 if len(sums) == 2 and min(sums) else 0.0
    return found


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where results differ or one is missing."""
    cases = cases_of(arguments, CASES, list(CASES)[: 3 if arguments.quick else None])
    found = [measure(case, arguments) for case in cases]
    whole = [one for one in found if NUMPY in one.ratios()]
    whole.sort(key=lambda one: -one.ratios()[NUMPY].median)
    rows = []
    for one in whole:
        seconds, ratio = one.seconds(), one.ratios()[NUMPY]
        times = (report.duration(seconds[name].median) for name in (SUBJECT, NUMPY))
        rows.append([one.case, *times, f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"])
    ratios = [one.ratios()[NUMPY].median for one in whole]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    body = (
        f"{report.table(['function', SUBJECT, NUMPY, 'ratio: median [quartiles]'], rows)}\n\n"
        f"Geometric mean of {len(ratios)} ratios: {mean}; above 1.05: {sum(each > 1.05 for each in ratios)}.\n\n"
        f"Arrays hold 260,000 to 6 million elements, doubles but for pictures and rows to be normalised. Both have "
        f"{len(os.sched_getaffinity(0))} CPUs; NumPy uses one, but for products and factorisations."
    )
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("large_arrays", "Plain functions on large arrays", body, data, arguments.out)
    wrong = [one.case for one in found if one.missing or one.remarks["disagreement"] > AGREEMENT]
    print(*(f"{each}: missing, or other results" for each in wrong), sep="\n")
    return int(bool(wrong))
