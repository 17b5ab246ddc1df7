"""What does a GPU do with the same trees? Training steps beside its peers, kernels beside the device's own rates.

One command, less than eight minutes on one GPU; where there is none it says why and ends.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from benchmarks.harness import QUICK, Comparison, Effort, Peer, compare
from benchmarks.workloads import networks
from benchmarks.workloads.cases import disagreement
from futurex.kernels import cupy_
from futurex.kernels.cupy_.devices import EMULATED

SUBJECT = "futurex"
MINUTES = 6.0  # after which no further network is started: a cold torch.compile may take one
CHECKED_STEPS = 3
ELEMENTS = 1 << 26
NETWORKS = ("transformer", "lstm", "resnet50", "alexnet", "googlenet")


def why_not() -> str | None:
    """Return why there is no GPU to measure, or None."""
    reason = cupy_.why_not()
    if reason is None and cupy_.device().kind == EMULATED:
        return "FUTUREX_GPU=emulated runs on the processor"
    return reason


def peers_for(name: str, weights: str) -> list[Peer]:
    """Return futurex in single precision and with products in bfloat16, and its peers on the same GPU."""
    own, torch_, jax_ = (f"benchmarks.workloads.networks_{stack}:TrainingStep" for stack in ("futurex", "torch", "jax"))
    options = {"name": name, "weights": weights}
    there = {**options, "device": "cuda"}
    return [
        Peer(SUBJECT, own, {**options, "device": "gpu"}, 4),
        Peer("futurex, bfloat16 products", own, {**options, "device": "gpu", "precision": "bfloat16"}, 4, own=True),
        Peer("torch eager", torch_, there, 4),
        Peer("torch.compile", torch_, {**there, "compiled": True}, 4),
        Peer("jax.jit", jax_, options, 4),
    ]


def measure(name: str, effort: Effort) -> Comparison:
    """Compare all stacks on one network; the remarks say their first losses."""
    title = networks.NETWORKS[name].title
    print(title, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pickle"
        networks.write_weights(name, path)
        found = compare(title, SUBJECT, peers_for(name, str(path)), effort, check={"steps": CHECKED_STEPS})
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def seconds(function: Callable[[], Any], repeat: int = 10) -> float:
    """Return the shortest time of a call on the device, launches and waiting included."""
    whole = cupy_.device().xp.cuda.Device()
    found = []
    for _ in range(repeat + 2):  # the first two compile and fill the pool of memory
        whole.synchronize()
        start = time.perf_counter()
        result = function()
        if isinstance(result, fx.Array):
            result.exception()  # it was launched
        whole.synchronize()
        found.append(time.perf_counter() - start)
    return min(found[2:])


def rates() -> dict[str, float]:
    """Return what the device itself reaches: bytes a second of a copy, operations a second of products."""
    xp = cupy_.device().xp
    source, target = xp.ones(ELEMENTS, np.float32), xp.empty(ELEMENTS, np.float32)
    found = {"copy": 2.0 * source.nbytes / seconds(lambda: xp.copyto(target, source))}
    for name, dtype in (("product, float32", np.float32), ("product, float16", np.float16)):
        x = xp.ones((8192, 8192), dtype)
        found[name] = 2.0 * 8192**3 / seconds(lambda x=x: xp.matmul(x, x), 5)
    return found


def works(rng: np.random.Generator) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...], float, float]]:
    """Yield name, function, arguments, and the bytes and operations that a call cannot do without."""
    x, row = rng.random((8192, 8192), np.float32), rng.random(8192, np.float32)
    whole = float(x.nbytes)
    yield "chain of six functions", lambda x: np.tanh(np.exp(-x) * x + np.sqrt(x) - np.log1p(x)), (x,), 2 * whole, 0.0
    yield "chain with a row", lambda x, row: np.maximum(x * row + 1, 0), (x, row), 2 * whole, 0.0
    yield "sum of all", lambda x: x.sum(), (x,), whole, 0.0
    yield "sums of rows", lambda x: (x * x).sum(axis=1), (x,), whole, 0.0
    yield "sums of columns", lambda x: (x * x).sum(axis=0), (x,), whole, 0.0
    yield "softmax", lambda x: fx.nn.softmax(x), (x,), 2 * whole, 0.0
    yield "product", lambda x: x @ x, (x,), 3 * whole, 2.0 * 8192**3
    image, kernel = rng.random((32, 56, 56, 64), np.float32), rng.random((3, 3, 64, 64), np.float32)
    moved, flops = 2.0 * image.nbytes, 2.0 * image.size * 9 * 64
    yield "convolution 3 x 3, 64 to 64", lambda x, w: fx.nn.conv(x, w, padding="same"), (image, kernel), moved, flops


def kernels(found: dict[str, float]) -> list[dict[str, Any]]:
    """Return for each work its time, its rates, and their share of what the device reaches."""
    rows = []
    for name, function, args, moved, flops in works(np.random.default_rng(0)):
        there = fx.futurize(lambda *args: tuple(arg + np.float32(0) for arg in args), device="gpu")(*args)
        run = fx.futurize(function, device="gpu")
        taken = seconds(lambda run=run, there=there: run(*there))
        rows.append({
            "name": name, "seconds": taken, "bytes_per_second": moved / taken, "of_copy": moved / taken / found["copy"],
            "operations_per_second": flops / taken, "of_product": flops / taken / found["product, float32"],
            "backends": sorted({row.backend for row in run.profile()}),
        })  # fmt: skip
    return rows


def kernel_table(rows: list[dict[str, Any]]) -> str:
    """Return the rates of the kernels as a table."""
    return report.table(
        ["work", "time", "bytes", "of the copy rate", "operations", "of the product rate", "by"],
        [
            [row["name"], report.duration(row["seconds"]), f"{row['bytes_per_second'] / 1e9:.0f} GB/s",
             f"{row['of_copy']:.0%}", f"{row['operations_per_second'] / 1e12:.1f} Tflop/s", f"{row['of_product']:.0%}",
             ", ".join(row["backends"])]
            for row in rows
        ],
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Measure, print and write the tables; return 1 where losses differ or futurex is missing, 0 without a GPU."""
    reason = why_not()
    if reason is not None:
        print(f"no GPU: {reason}")
        return 0
    start = time.monotonic()
    found = rates()
    rows = kernels(found)
    effort = QUICK if arguments.quick else Effort(min(arguments.rounds, 5), 6, turn_seconds=0.5, warm_steps=3)
    compared, left = [], []
    for name in arguments.cases or NETWORKS:
        if time.monotonic() - start > MINUTES * 60:
            left.append(name)
        else:
            compared.append(measure(name, effort))
    device = list(cupy_.findings())
    reached = ", ".join(
        f"{name} {rate / 1e9:.0f} GB/s" if name == "copy" else f"{name} {rate / 1e12:.1f} Tflop/s"
        for name, rate in found.items()
    )
    notes = [f"- {line}" for line in device] + [f"- the device reaches: {reached}"]
    notes += [f"- no time was left for {', '.join(left)}: name them with --cases"] if left else []
    body = "\n\n".join([report.comparison_table(compared), kernel_table(rows), "\n".join(notes)])
    data = {
        "device": device, "rates": found, "kernels": rows,
        "comparisons": [report.comparison_record(one) for one in compared],
    }  # fmt: skip
    report.publish("gpu", "Training steps and kernels on a GPU", body, data, arguments.out)
    wrong = [one.case for one in compared if one.remarks["largest_disagreement"] > 2e-2]
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    return 1 if wrong or any(SUBJECT in one.missing for one in compared) else 0
