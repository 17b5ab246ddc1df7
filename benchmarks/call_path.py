"""What does a call of a futurized function cost, from the call to its result, when there is next to nothing to do?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Peer, cases_of, compare, effort_of
from benchmarks.workloads.calls import CASES

STACKS = {
    "futurex": "FuturexCalls",
    "jax.jit": "JaxCalls",
    "torch.compile": "CompiledTorchCalls",
    "torch eager": "TorchCalls",
    "NumPy": "NumpyCalls",
}


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where futurex is missing."""
    effort = effort_of(arguments, turn_seconds=0.2)
    found = []
    for case in cases_of(arguments, CASES):
        title = f"{case}: {CASES[case]}"
        print(title, flush=True)
        peers = [
            Peer(stack, f"benchmarks.workloads.calls:{factory}", {"case": case}, 1, own=stack == "NumPy")
            for stack, factory in STACKS.items()
        ]
        found.append(compare(title, "futurex", peers, effort))
    body = report.comparison_table(found) + "\n\nEvery call is waited for. A time is that of one call."
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("call_path", "Cost of a call", body, data, arguments.out)
    return 1 if any("futurex" in one.missing for one in found) else 0
