"""How long do elementwise chains, stencils, reductions, softmax and normalisations take, forward and backward?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads.rowwise import CASES, FORMULAS

AGREEMENT = 1e-4
STACKS = {
    "futurex": "FuturexWork", "torch eager": "TorchWork", "torch.compile": "CompiledTorchWork", "jax.jit": "JaxWork",
}  # fmt: skip


def measure(case: str, threads: int, effort: Effort) -> Comparison:
    """Compare the stacks on one case."""
    title = CASES[case].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    stacks = {**STACKS, "NumPy": "NumpyWork"} if CASES[case].work in FORMULAS else STACKS
    place = "benchmarks.workloads.rowwise"
    peers = [Peer(name, f"{place}:{factory}", {"case": case}, threads) for name, factory in stacks.items()]
    found = compare(title, "futurex", peers, effort, check={})
    answers = list(found.remarks["check"].values())
    found.remarks["largest_disagreement"] = max(answers) / min(answers) - 1 if answers else 0.0
    found.remarks["floor_bytes"] = CASES[case].bytes
    return found


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where results differ or futurex is missing."""
    effort = effort_of(arguments)
    found = [measure(case, each, effort) for each in arguments.threads for case in cases_of(arguments, CASES)]
    floors = "\n".join(f"- {case.title}: {case.bytes / 1e6:.3g} MB" for case in CASES.values())
    body = (
        f"{report.comparison_table(found)}\n\nFloors: what operands and results weigh, once each.\n\n{floors}\n\n"
        "A step returns fresh arrays in every stack. torch runs batch norm in channels-last memory."
    )
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    title = "Elementwise chains, stencils, reductions and normalisations"
    report.publish("elementwise", title, body, data, arguments.out)
    return int(any("futurex" in one.missing or one.remarks["largest_disagreement"] > AGREEMENT for one in found))
