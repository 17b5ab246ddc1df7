"""How long is a training step of the larger networks, and how much memory does it take?"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of
from benchmarks.workloads import networks
from benchmarks.workloads.cases import disagreement

SUBJECT = "futurex"
CHECKED_STEPS = 3
AGREEMENT = 1e-2  # relative; batch normalisation over few positions enlarges the rounding of earlier layers
MEBIBYTE = 2**20


def peers_for(name: str, weights: str, threads: int) -> list[Peer]:
    """Return futurex and every variant of a peer that may be the fastest on this network."""
    torch_ = "benchmarks.workloads.networks_torch:TrainingStep"
    variants: list[tuple[str, str, dict[str, object]]] = [
        (SUBJECT, "benchmarks.workloads.networks_futurex:TrainingStep", {}),
        ("torch eager", torch_, {}),
        ("torch.compile", torch_, {"compiled": True}),
    ]
    if networks.NETWORKS[name].images:
        variants += [
            ("torch eager, channels last", torch_, {"channels_last": True}),
            ("torch.compile, channels last", torch_, {"compiled": True, "channels_last": True}),
        ]
    variants.append(("jax.jit", "benchmarks.workloads.networks_jax:TrainingStep", {}))
    return [
        Peer(title, factory, {"name": name, "weights": weights, **options}, threads)
        for title, factory, options in variants
    ]


def floor(name: str, weights: str) -> tuple[float, float]:
    """Return the operations (multiply-adds times two) of a step's convolutions and products, and the bytes they touch.

    Those of the recurrent layers are counted by hand: three products with every weight at every step.
    """
    import futurex as fx
    from benchmarks.workloads import networks_futurex
    from futurex.tree.record import record

    step, optimizer = networks_futurex.training_step(name, networks.NETWORKS[name].dropout)
    held = networks_futurex.initial(name, weights, optimizer)
    if name == "lstm":
        used = sum(layer[kind].size for layer in held[0]["layers"] for kind in "wu")
        rows = math.prod(networks.NETWORKS[name].shape[:2])
        return 6.0 * rows * used, 4.0 * 3 * used
    graph = fx.lower(step, *held, *networks.batch(name), np.uint64(1)).graph
    flops = bytes_ = 0.0
    for node in graph.nodes:
        if node.op.startswith(("conv", "matmul", "einsum")):
            cost = record(node.op).work(tuple(each.aval for each in node.inputs), node.aval, node.attrs)
            flops, bytes_ = flops + cost.flops, bytes_ + cost.bytes
    return flops, bytes_


def matmul_rate() -> float:
    """Return the fastest of ten products of 1024 x 1024 float32 matrices by NumPy, in operations a second."""
    x = np.ones((1024, 1024), np.float32)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        x @ x
        seconds.append(time.perf_counter() - start)
    return 2.0 * 1024**3 / min(seconds)


def measure(name: str, threads: int, effort: Effort, only: Collection[str] = ()) -> Comparison:
    """Compare all stacks on one network, or those named; the remarks say first losses, floors and peaks of memory."""
    title = networks.NETWORKS[name].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pickle"
        networks.write_weights(name, path)
        flops, bytes_ = floor(name, str(path))
        peers = [peer for peer in peers_for(name, str(path), threads) if not only or peer.name in {SUBJECT, *only}]
        found = compare(title, SUBJECT, peers, effort, check={"steps": CHECKED_STEPS}, around=("forget_peak", "peak"))
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    found.remarks["floor"] = {"operations": flops, "bytes": bytes_, "numpy_product_rate": matmul_rate()}
    return found


def facts(one: Comparison) -> list[list[str]]:
    """Return a row for each stack: peak memory, and the rate of its convolutions and products."""
    peaks, operations = one.remarks.get("peak", {}), one.remarks["floor"]["operations"]
    return [
        [one.case, str(one.threads), name, f"{peaks[name] / MEBIBYTE:.0f} MiB" if name in peaks else "–",
         f"{operations / spread.median / 1e9:.0f} Gflop/s"]
        for name, spread in one.seconds().items()
    ]  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Run the networks, print and write the tables; return 1 where losses differ or futurex is missing."""
    effort = effort_of(arguments, turn_seconds=1.0, warm_steps=3)
    names = cases_of(arguments, networks.NETWORKS, ("lstm", "transformer") if arguments.quick else None)
    found = [measure(name, each, effort, arguments.peers or ()) for each in arguments.threads for name in names]
    notes = [
        f"- {one.case}, {one.threads} CPU(s): {one.remarks['floor']['operations'] / 1e9:.1f} Gflop in convolutions and "
        f"products over {one.remarks['floor']['bytes'] / 1e6:.0f} MB; NumPy multiplies matrices at "
        f"{one.remarks['floor']['numpy_product_rate'] / 1e9:.0f} Gflop/s in the benchmark's own process; the first "
        f"{CHECKED_STEPS} losses differ by at most {one.remarks['largest_disagreement']:.1e}"
        for one in found
    ]
    rows = [row for one in found for row in facts(one)]
    memory = report.table(["case", "CPUs", "stack", "peak resident memory of the steps", "rate"], rows)
    body = "\n\n".join([report.comparison_table(found), memory, "\n".join(notes)])
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    name = "-".join(["models", *(arguments.cases or ())])
    report.publish(name, "Training steps of larger networks", body, data, arguments.out)
    wrong = [one.case for one in found if one.remarks["largest_disagreement"] > AGREEMENT]
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    return 1 if wrong or any(SUBJECT in one.missing for one in found) else 0
