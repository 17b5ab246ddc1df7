"""Is a futurex training step faster than PyTorch's and JAX's on this machine?"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads.cases import CASES, FLOORS, disagreement

SUBJECT = "futurex"
CHECKED_STEPS = 5
DEFAULT_CASES = ("har-adam", "mlp-sgd", "mlp-adam", "logistic-sgd")
BY_HAND = "gradient by hand"
AGREEMENT = 1e-3  # relative; float32 sums in another order move the fifth Adam loss by about 1e-5


def peers_for(case: str, threads: int) -> list[Peer]:
    """Return futurex and every variant of a peer that may be the fastest on this case."""
    model = CASES[case].model
    torch_, jax_ = "benchmarks.workloads.torch_side:", "benchmarks.workloads.jax_side:"
    variants: list[tuple[str, str, dict[str, object]]] = [
        (SUBJECT, "benchmarks.workloads.futurex_side:TrainingStep", {}),
        ("torch eager", torch_ + "TrainingStep", {}),
        ("torch.compile", torch_ + "TrainingStep", {"compiled": True}),
    ]
    if model == "har":
        variants += [
            ("torch eager, channels last", torch_ + "TrainingStep", {"channels_last": True}),
            ("torch.compile, channels last", torch_ + "TrainingStep", {"compiled": True, "channels_last": True}),
            ("jax.jit NWC", jax_ + "TrainingStep", {"layout": "NWC"}),
            ("jax.jit NCW", jax_ + "TrainingStep", {"layout": "NCW"}),
        ]
    else:
        variants.append(("jax.jit", jax_ + "TrainingStep", {}))
    if model == "logistic":
        variants.append((f"torch, {BY_HAND}", torch_ + "ManualLogistic", {}))
        variants.append((f"NumPy, {BY_HAND}", "benchmarks.workloads.numpy_side:ManualLogistic", {}))
    return [
        Peer(name, factory, {"case": case, **options}, threads, own=name.endswith(BY_HAND))
        for name, factory, options in variants
    ]


def measure(case: str, threads: int, effort: Effort) -> Comparison:
    """Compare all stacks on one case; ``remarks["largest_disagreement"]`` says how far their first losses differ."""
    title = CASES[case].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    found = compare(title, SUBJECT, peers_for(case, threads), effort, check={"steps": CHECKED_STEPS})
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the table; return 1 where the stacks' losses differ or futurex is missing."""
    effort = effort_of(arguments)
    cases = cases_of(arguments, CASES, DEFAULT_CASES)
    found = [measure(case, each, effort) for each in arguments.threads for case in cases]
    notes = [
        f"- {one.case}, {one.threads} CPU(s): the first {CHECKED_STEPS} losses (dropout off) differ by at most "
        f"{one.remarks['largest_disagreement']:.1e} (relative) between stacks"
        for one in found
    ]
    if any(name.endswith(BY_HAND) for one in found for name in one.seconds()):
        notes.append(f"- the best peer is one that differentiates a loss; what has its {BY_HAND} stands beside them")
    notes += [f"- floor of {CASES[case].title}: {FLOORS[CASES[case].model]}" for case in cases]
    body = report.comparison_table(found) + "\n\nA ratio below 1 means that futurex is faster.\n\n" + "\n".join(notes)
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    report.publish("training_steps", "Training steps", body, data, arguments.out)
    wrong = [one.case for one in found if one.remarks["largest_disagreement"] > AGREEMENT]
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    return 1 if wrong or any(SUBJECT in one.missing for one in found) else 0
