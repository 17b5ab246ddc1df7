"""What does ``fx.fit`` cost per step beside the step itself, here and on a cluster?"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of, thread_environment
from benchmarks.workloads.cases import CASES, batch

FIT = "benchmarks.workloads.futurex_side:FitSteps"
STEP = "benchmarks.workloads.futurex_side:TrainingStep"
BARE, LOCAL, ONE, TWO = "bare step", "fit, this process", "fit, one locality", "fit, two localities"
DEFAULT_CASES = ("har-adam", "tiny-sgd")


def peers_for(case: str, cpus: int) -> list[Peer]:
    """Return the four ways to run one case; all of them may use ``cpus`` CPUs in all."""
    halved = thread_environment(max(1, cpus // 2))
    return [
        Peer(LOCAL, FIT, {"case": case, "localities": 0}, cpus, own=True),
        Peer(BARE, STEP, {"case": case}, cpus, own=True),
        Peer(ONE, FIT, {"case": case, "localities": 1}, cpus, own=True),
        Peer(TWO, FIT, {"case": case, "localities": 2}, cpus, halved, own=True),
    ]


def difference(one: Comparison, name: str, base: str) -> float | None:
    """Return the median over the kept rounds of seconds(``name``) - seconds(``base``), or None if one is missing."""
    kept = [each.seconds for each in one.kept() if {name, base} <= each.seconds.keys()]
    return statistics.median(each[name] - each[base] for each in kept) if kept else None


def cost_rows(case: str, one: Comparison) -> list[list[str]]:
    """Return case, cost, microseconds per step and per sample."""
    samples = len(batch(CASES[case].model)[0])
    costs = {
        "bookkeeping of fit: in this process - bare step": difference(one, LOCAL, BARE),
        "cluster path: one locality - this process": difference(one, ONE, LOCAL),
        "division: two localities - one locality": difference(one, TWO, ONE),
    }
    return [
        [one.case, what, f"{seconds * 1e6:.1f}", f"{seconds * 1e6 / samples:.2f}"]
        for what, seconds in costs.items()
        if seconds is not None
    ]


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where a way to run is missing."""
    effort = effort_of(arguments)
    cpus = len(os.sched_getaffinity(0))
    found: dict[str, Comparison] = {}
    for case in cases_of(arguments, CASES, DEFAULT_CASES):
        print(CASES[case].title, flush=True)
        found[case] = compare(CASES[case].title, LOCAL, peers_for(case, cpus), effort)
    costs = [row for case, one in found.items() for row in cost_rows(case, one)]
    body = (
        report.comparison_table(list(found.values()))
        + "\n\nTwo localities have half of the CPUs each; the global batch is the same.\n\n"
        + report.table(["case", "cost", "µs per step", "µs per sample"], costs)
    )
    data: dict[str, Any] = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    data["costs"] = [dict(zip(("case", "cost", "us_per_step", "us_per_sample"), row, strict=True)) for row in costs]
    report.publish("step_overhead", "Cost of a step of fx.fit", body, data, arguments.out)
    return 1 if any(one.missing for one in found.values()) else 0
