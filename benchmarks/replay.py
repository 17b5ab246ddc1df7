"""What does it cost to run an instruction of a plan, in the calling thread and across threads?"""

from __future__ import annotations

import argparse
import itertools
import os

from benchmarks import report
from benchmarks.harness import Child, Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.budget_side import KINDS
from benchmarks.workloads.replay_side import CASES

PLAN, BARE, SHARED = "futurex, one thread", "the NumPy calls alone", "futurex, tasks"
LIMITS = {PLAN: 1.0, SHARED: 15.0}  # µs an instruction, above the calls alone


def peers_for(case: str) -> list[Peer]:
    """Return the ways to run a case."""
    home = "benchmarks.workloads.replay_side"
    cpus = len(os.sched_getaffinity(0))
    peers = [Peer(PLAN, f"{home}:Replay", {"case": case}, 1), Peer(BARE, f"{home}:Bare", {"case": case}, 1, own=True)]
    if case == "tasks":
        peers.append(Peer(SHARED, f"{home}:Shared", {"case": case}, cpus, own=True))
    return peers


def overhead_rows(case: str, one: Comparison) -> list[list[str]]:
    """Return case, stack, instructions, µs an instruction, of which overhead, and the limit."""
    counts, seconds = one.remarks["check"], one.seconds()
    rows = []
    for stack, limit in LIMITS.items():
        if stack in seconds and stack in counts and BARE in seconds:
            mine, bare = (1e6 * seconds[each].median / counts[each] for each in (stack, BARE))
            rows.append([case, stack, str(counts[stack]), f"{mine:.2f}", f"{mine - bare:.2f}", f"{limit:g}"])
    return rows


def budget_rows() -> list[list[str]]:
    """Return kind of kernels, budget of threads, processors at work on average, threads that want one at once."""
    cpus, rows = len(os.sched_getaffinity(0)), []
    for budget, kind in itertools.product(sorted({1, cpus}), KINDS):
        environment = {"FUTUREX_THREADS": str(budget), "FUTUREX_COMPILE": "wait"}
        peer = Peer("futurex", "benchmarks.workloads.budget_side:Kernels", {"kind": kind}, cpus, environment)
        child = Child(peer)
        try:
            used, calls = child.call("processors")
            wanting = child.runnable(max(1, calls))
        finally:
            child.close()
        rows.append([kind, str(budget), f"{used:.2f}", f"{wanting.median:g} to {wanting.high:g}"])
    return rows


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where futurex is missing."""
    effort = effort_of(arguments, turn_seconds=0.2)
    found = {}
    for case in cases_of(arguments, CASES):
        print(CASES[case], flush=True)
        found[case] = compare(CASES[case], PLAN, peers_for(case), effort, check={})
    rows = [row for case, one in found.items() for row in overhead_rows(case, one)]
    costs = report.table(["case", "stack", "instructions", "µs an instruction", "above the calls alone", "limit"], rows)
    budget = budget_rows()
    used = report.table(["kernels", "budget of threads", "processors at work", "threads that want one"], budget)
    body = "\n\n".join([report.comparison_table(list(found.values())), costs, used])
    data = {"comparisons": [report.comparison_record(one) for one in found.values()], "budget": budget}
    report.publish("replay", "Cost of an instruction", body, data, arguments.out)
    return 1 if any(PLAN in one.missing for one in found.values()) else 0
