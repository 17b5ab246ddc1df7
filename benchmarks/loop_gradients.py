"""How long do value and gradient of a loop take whose rounds depend on the one before, of numbers and small arrays?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads.loops import CASES

AGREEMENT = 1e-6
SUBJECT = "futurex"
STACKS = {SUBJECT: "Futurex", "torch eager": "Torch", "jax.jit": "Jax"}
WITHOUT_JAX = "jax.jit knows no reverse mode through a loop that data ends; its rounds are of known number, with masks"


def measure(case: str, threads: int, effort: Effort) -> Comparison:
    """Compare the stacks on one case."""
    title = CASES[case].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    place = "benchmarks.workloads.loops"
    peers = [Peer(name, f"{place}:{factory}", {"case": case}, threads) for name, factory in STACKS.items()]
    found = compare(title, SUBJECT, peers, effort, check={})
    answers = list(found.remarks["check"].values())
    found.remarks["largest_disagreement"] = max(answers) / min(answers) - 1 if answers else 0.0
    return found


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where gradients differ or futurex is missing."""
    effort = effort_of(arguments, turn_seconds=0.2)
    found = [measure(case, each, effort) for each in arguments.threads for case in cases_of(arguments, CASES)]
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    body = "\n\n".join([report.comparison_table(found), f"{WITHOUT_JAX}."])
    report.publish("loop_gradients", "Derivatives of loops", body, data, arguments.out)
    return int(any(SUBJECT in one.missing or one.remarks["largest_disagreement"] > AGREEMENT for one in found))
