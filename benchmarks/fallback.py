"""How much slower is a training step where oneDNN does not exist, and generated products and NumPy's BLAS take its
place?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads.cases import CASES, disagreement

SUBJECT = "without oneDNN"
DEFAULT_CASES = ("har-adam", "mlp-sgd", "mlp-adam")
BACKENDS = {SUBJECT: "gemm,blas,numba,loops,numpy", "oneDNN": "gemm,onednn,blas,numba,loops,numpy"}
CHECKED_STEPS = 5
AGREEMENT = 1e-3


def measure(case: str, threads: int, effort: Effort) -> Comparison:
    """Compare the same step with and without oneDNN."""
    title = CASES[case].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    factory = "benchmarks.workloads.futurex_side:TrainingStep"
    peers = [
        Peer(name, factory, {"case": case}, threads, {"FUTUREX_BACKENDS": names}) for name, names in BACKENDS.items()
    ]
    found = compare(title, SUBJECT, peers, effort, check={"steps": CHECKED_STEPS})
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where losses differ or a step failed."""
    effort = effort_of(arguments)
    cases = cases_of(arguments, CASES, DEFAULT_CASES)
    found = [measure(case, each, effort) for each in arguments.threads for case in cases]
    body = report.comparison_table(found) + "\n\nA ratio of 1.5 means that the step takes half as long again."
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("fallback", "Training steps without oneDNN", body, data, arguments.out)
    return int(any(one.missing or one.remarks["largest_disagreement"] > AGREEMENT for one in found))
