"""How fast is a program traced, and made ready to run?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.tracing import CASES

TREE, PLAN = "futurex, the tree", "futurex, the plan"
STACKS = {
    TREE: ("FuturexTrace", {}),
    "jax.make_jaxpr": ("JaxTrace", {}),
    PLAN: ("FuturexTrace", {"compiled": True}),
    "jax.jit(f).lower": ("JaxTrace", {"compiled": True}),
}


def speed_rows(case: str, one: Comparison) -> list[list[str]]:
    """Return case, stack, nodes or equations, and how many of them a second."""
    counts = one.remarks.get("check", {})
    return [
        [case, stack, str(counts[stack]), f"{counts[stack] / spread.median:,.0f}"]
        for stack, spread in one.seconds().items()
        if stack in counts
    ]


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where futurex is missing."""
    effort = effort_of(arguments)
    found = {}
    for case in cases_of(arguments, CASES):
        print(CASES[case], flush=True)
        peers = [
            Peer(stack, f"benchmarks.workloads.tracing:{factory}", {"case": case, **options}, 1, own=stack == PLAN)
            for stack, (factory, options) in STACKS.items()
        ]
        found[case] = compare(CASES[case], TREE, peers, effort, check={})
    rows = [row for case, one in found.items() for row in speed_rows(case, one)]
    speeds = report.table(["case", "stack", "nodes", "nodes a second"], rows)
    body = report.comparison_table(list(found.values())) + "\n\n" + speeds
    data = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    report.publish("tracing", "Tracing", body, data, arguments.out)
    return 1 if any(TREE in one.missing for one in found.values()) else 0
