"""How long is a training step of a small model, where the overhead of operations and calls decides?"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads.cases import disagreement
from benchmarks.workloads.small_models import CASES

SUBJECT, BEST = "futurex", "best peer"
CHECKED_STEPS = 5
DEFAULT_QUICK = ("mlp", "rnn")
AGREEMENT = 1e-3  # relative; float32 sums in another order move the fifth loss by about 1e-5
PATIENCE = 300.0  # seconds that torch.compile may take for the loops, which it unrolls


def peers_for(case: str, threads: int) -> list[Peer]:
    """Return futurex and every variant of a peer that may be the fastest on this case."""
    variants: list[tuple[str, str, dict[str, object]]] = [
        (SUBJECT, "FuturexStep", {}),
        ("jax.jit", "JaxStep", {}),
        ("torch eager", "TorchStep", {}),
        ("torch.compile", "CompiledTorchStep", {}),
    ]
    if CASES[case].loop:
        variants.insert(2, ("jax.jit, loop unrolled", "JaxStep", {"unrolled": True}))
    place = "benchmarks.workloads.small_side"
    return [Peer(name, f"{place}:{factory}", {"case": case, **options}, threads) for name, factory, options in variants]


def measure(case: str, threads: int, effort: Effort) -> Comparison:
    """Compare all stacks on one case; ``remarks["largest_disagreement"]`` says how far their first losses differ."""
    title = CASES[case].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    peers, check = peers_for(case, threads), {"steps": CHECKED_STEPS}
    found = compare(title, SUBJECT, peers, effort, check=check, patience=PATIENCE, together=True)
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def summary(found: Sequence[Comparison], threads: int) -> str:
    """Say the geometric mean of futurex / best peer over the cases on so many CPUs, and in how many it is not faster.

    >>> summary([], 2)
    'On 2 CPU(s): no case has futurex and a peer.'
    """
    ratios = {one.case: one.ratios()[BEST].median for one in found if one.threads == threads and BEST in one.ratios()}
    if not ratios:
        return f"On {threads} CPU(s): no case has futurex and a peer."
    slower = [case for case, ratio in ratios.items() if ratio >= 1]
    named = f" ({'; '.join(slower)})" if slower else ""
    mean = statistics.geometric_mean(ratios.values())
    return (
        f"On {threads} CPU(s): futurex / best peer is {mean:.3f} in the geometric mean over {len(ratios)} case(s); "
        f"futurex is not faster in {len(slower)} of them{named}."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where the stacks' losses differ or futurex is missing."""
    effort = effort_of(arguments, turn_seconds=0.2, warm_steps=20)
    cases = cases_of(arguments, CASES, DEFAULT_QUICK if arguments.quick else None)
    found = [measure(case, each, effort) for each in arguments.threads for case in cases]
    notes = [
        f"- {one.case}, {one.threads} CPU(s): the first {CHECKED_STEPS} losses differ by at most "
        f"{one.remarks['largest_disagreement']:.1e} (relative) between stacks"
        for one in found
    ]
    notes += [f"- {one.case}, {one.threads} CPU(s), without {why}" for one in found for why in one.missing.values()]
    means = "\n\n".join(summary(found, each) for each in arguments.threads)
    body = "\n\n".join(
        [report.comparison_table(found), "A ratio below 1 means that futurex is faster.", means, "\n".join(notes)]
    )
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("small_steps", "Training steps of small models", body, data, arguments.out)
    wrong = [one.case for one in found if one.remarks["largest_disagreement"] > AGREEMENT]
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    return 1 if wrong or any(SUBJECT in one.missing for one in found) else 0
