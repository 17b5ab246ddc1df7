"""How long is a training step of the larger networks, and how much memory does it take?"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.harness import Child, Comparison, Effort, Peer, PeerFailed, cases_of, compare, effort_of
from benchmarks.workloads import networks

SUBJECT = "futurex"
AGREEMENT = (1e-5, 5e-3, 5e-2)
"""How far the losses of the first steps may be from those in double precision, relatively. The first one shows
rounding alone. Then rounding also decides on which side of zero a unit lies, or which of two is the largest: of N
active ones, one on the other side moves the gradient by N**-0.5, and each further step moves the next one the more."""
DOUBLE = "torch, double precision"
TORCH = "benchmarks.workloads.networks_torch:TrainingStep"
MEBIBYTE = 2**20


def peers_for(name: str, weights: str, threads: int) -> list[Peer]:
    """Return futurex and every variant of a peer that may be the fastest on this network."""
    variants: list[tuple[str, str, dict[str, object]]] = [
        (SUBJECT, "benchmarks.workloads.networks_futurex:TrainingStep", {}),
        ("torch eager", TORCH, {}),
        ("torch.compile", TORCH, {"compiled": True}),
    ]
    if networks.NETWORKS[name].images:
        variants += [
            ("torch eager, channels last", TORCH, {"channels_last": True}),
            ("torch.compile, channels last", TORCH, {"compiled": True, "channels_last": True}),
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


def exact_losses(name: str, weights: str, threads: int) -> list[float]:
    """Return the first losses in double precision, without dropout; none where PyTorch is not installed."""
    options = {"name": name, "weights": weights, "double": True}
    try:
        child = Child(Peer(DOUBLE, TORCH, options, threads))
    except PeerFailed as error:
        print(f"  without {error}", flush=True)
        return []
    try:
        found: list[float] = child.call("check", steps=len(AGREEMENT))
        return found
    finally:
        child.close()


def distances(losses: Mapping[str, Sequence[float]], exact: Sequence[float]) -> dict[str, list[float]]:
    """Return how far each stack's losses are from the exact ones, relatively, step by step.

    >>> distances({"a": [2.0, 1.0], "b": [2.0, 1.5]}, [2.0, 1.0])
    {'a': [0.0, 0.0], 'b': [0.0, 0.5]}
    """
    return {
        name: [abs(one - two) / abs(two) for one, two in zip(found, exact, strict=False)]
        for name, found in losses.items()
    }


def agree(one: Comparison) -> bool:
    """Do all stacks compute the same network, as far as anybody could look?"""
    found = one.remarks["distances"].values()
    steps = [max(step) for step in zip(*found, strict=True)]
    return bool(steps) and all(far <= limit for far, limit in zip(steps, AGREEMENT, strict=True))


def measure(name: str, threads: int, effort: Effort, only: Collection[str] = ()) -> Comparison:
    """Compare all stacks on one network, or those named; the remarks say first losses, floors and peaks of memory."""
    title = networks.NETWORKS[name].title
    print(f"{title}, {threads} CPU(s)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pickle"
        networks.write_weights(name, path)
        flops, bytes_ = floor(name, str(path))
        peers = [peer for peer in peers_for(name, str(path), threads) if not only or peer.name in {SUBJECT, *only}]
        check, around = {"steps": len(AGREEMENT)}, ("forget_peak", "peak")
        found = compare(title, SUBJECT, peers, effort, check=check, around=around)
        exact = exact_losses(name, str(path), threads)
    found.remarks["distances"] = distances(found.remarks["check"], exact)
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


def told(found: Mapping[str, Sequence[float]]) -> str:
    """Distances in words.

    >>> told({"a": [0.0, 0.001]})
    'a 0.0e+00, 1.0e-03'
    """
    return "; ".join(f"{name} {', '.join(f'{each:.1e}' for each in steps)}" for name, steps in found.items())


def main(arguments: argparse.Namespace) -> int:
    """Run the networks, print and write the tables; return 1 where losses differ or futurex is missing."""
    effort = effort_of(arguments, turn_seconds=1.0, warm_steps=3)
    names = cases_of(arguments, networks.NETWORKS, ("lstm", "transformer") if arguments.quick else None)
    found = [measure(name, each, effort, arguments.peers or ()) for each in arguments.threads for name in names]
    notes = [
        f"- {one.case}, {one.threads} CPU(s): {one.remarks['floor']['operations'] / 1e9:.1f} Gflop in convolutions and "
        f"products over {one.remarks['floor']['bytes'] / 1e6:.0f} MB; NumPy multiplies matrices at "
        f"{one.remarks['floor']['numpy_product_rate'] / 1e9:.0f} Gflop/s in the benchmark's own process; how far the "
        f"first losses are from double precision: {told(one.remarks['distances'])}"
        for one in found
    ]
    rows = [row for one in found for row in facts(one)]
    memory = report.table(["case", "CPUs", "stack", "peak resident memory of the steps", "rate"], rows)
    body = "\n\n".join([report.comparison_table(found), memory, "\n".join(notes)])
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    name = "-".join(["models", *(arguments.cases or ())])
    report.publish(name, "Training steps of larger networks", body, data, arguments.out)
    wrong = [one.case for one in found if not agree(one)]
    if wrong:
        print(f"not the losses of double precision, or not compared with them: {', '.join(wrong)}")
    return 1 if wrong or any(SUBJECT in one.missing for one in found) else 0
