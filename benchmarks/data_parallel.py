"""How long is a data-parallel training step of two localities on two processors, and how much of it is waiting?"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of, thread_environment
from benchmarks.workloads import team
from benchmarks.workloads.cases import disagreement

SUBJECT = "futurex"
RANKS = 2
CHECKED_STEPS = 3
AGREEMENT = 1e-2
TARGETS = {"har": 0.45, "mlp": 0.7, "resnet50": 0.7}
NORMALISED = ("resnet50",)
TEAM = "benchmarks.workloads.team:Team"


def peers_for(name: str, weights: str) -> list[Peer]:
    """Return the teams of one case; every rank has one processor and one thread."""
    cpus = len(os.sched_getaffinity(0))
    common = {"name": name, "weights": weights}
    variants: list[tuple[str, str, dict[str, object]]] = [
        (SUBJECT, "FuturexTrainer", {}),
        ("futurex over tcp", "FuturexTrainer", {"kind": "tcp"}),
        *([("futurex, a rank's statistics", "FuturexTrainer", {"local": True})] if name in NORMALISED else []),
        ("torch DDP, gloo", "TorchTrainer", {}),
    ]
    return [
        Peer(
            title, TEAM,
            {"rank": f"benchmarks.workloads.team:{factory}", "size": RANKS, "options": {**common, **options}}, cpus,
            thread_environment(1), own=factory == "FuturexTrainer",
        )
        for title, factory, options in variants
    ]  # fmt: skip


def measure(name: str, effort: Effort) -> Comparison:
    """Compare the teams on one network."""
    title = f"{team.title(name)}, {RANKS} localities of one processor"
    print(title, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        peers = peers_for(name, team.write_weights(name, Path(folder)))
        found = compare(title, SUBJECT, peers, effort, check={"steps": CHECKED_STEPS}, around=("begin", "exposed"))
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def shares(one: Comparison) -> list[list[str]]:
    """Return a row for each stack that says how much of its steps is communication, and how much of that is seen."""
    found = one.remarks.get("exposed", {})
    return [
        [one.case, name, *(f"{share:.1%}" for share in each)] for name, each in found.items() if each is not None
    ]


def main(arguments: argparse.Namespace) -> int:
    """Run the networks, print and write the tables; return 1 where losses differ or futurex is missing."""
    effort = effort_of(arguments, turn_seconds=1.0, warm_steps=5)
    names = cases_of(arguments, team.NAMES, ["mlp"] if arguments.quick else None)
    found = {name: measure(name, effort) for name in names}
    notes = [
        f"- {one.case}: the aim is {TARGETS[name]} of PyTorch's time per sample; the first {CHECKED_STEPS} losses of "
        f"the whole batch differ by at most {one.remarks['largest_disagreement']:.1e}"
        for name, one in found.items()
    ]
    notes.append(
        "- Batch normalisation of ResNet-50: futurex computes what one locality with the whole batch would, so its "
        "ranks exchange the sums of every normalisation, forwards and backwards; DDP normalises each rank's part by "
        "itself, and so does futurex with a rank's statistics (`local=True`). The losses of the two therefore differ."
    )
    rows = [row for one in found.values() for row in shares(one)]
    heads = [
        "case", "stack", "of the step something is in flight", "of the step is spent waiting",
        "by the rank that waits least",
    ]  # fmt: skip
    table = report.table(heads, rows)
    body = "\n\n".join([report.comparison_table(list(found.values())), table, "\n".join(notes)])
    data = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    report.publish("data_parallel", "Data-parallel training steps", body, data, arguments.out)
    wrong = [
        one.case for name, one in found.items()
        if name in team.SMALL and one.remarks["largest_disagreement"] > AGREEMENT
    ]  # fmt: skip
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    return 1 if wrong or any(SUBJECT in one.missing for one in found.values()) else 0
