"""What does a GPU do with the same trees? Training steps beside its peers, kernels beside the device's own rates.

One command, less than eight minutes on one GPU; where there is none it says why and ends. With ``--quick`` all of it
runs in tiny sizes, on the emulated device where there is no GPU. What is found is written after every case.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import math
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import futurex as fx
from benchmarks import report
from benchmarks.harness import Child, Comparison, Effort, Peer, PeerFailed, cases_of, compare
from benchmarks.workloads import networks
from benchmarks.workloads.cases import disagreement
from futurex.kernels import cupy_
from futurex.kernels.cupy_.devices import EMULATED

SUBJECT = "futurex"
MINUTES = 7.2
STARTED_WITHIN = 5.8  # minutes, after which no further network is started: a cold torch.compile may take one
KERNELS_WITHIN = 2.5  # minutes, after which no further kernel is: there are networks to come
PATIENCE = 45.0  # seconds for a kernel, with all that is compiled for it
STUCK = 0.5  # minutes after the end: who waits for a driver is stopped, and says where it waited
BATCHES, SETTLED = 3, 8  # a plan times its kernels one by one in its first four runs, and captures them in the next
CHECKED_STEPS = 2
NETWORKS = ("transformer", "lstm", "resnet50", "alexnet", "googlenet")
FORMATS = ("tfloat32", "bfloat16")
TIMES = 8  # batches of the other benchmarks are a processor's
JAX = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # the GPU has other users meanwhile


@dataclass(frozen=True)
class Sizes:
    """How large the arrays are, and how often a kernel is timed."""

    elements: int = 1 << 26
    side: int = 8192
    image: tuple[int, ...] = (32, 56, 56, 64)
    images: int = 256  # that do not fit the caches
    heads: tuple[int, ...] = (8, 16, 2048, 64)
    repeat: int = 10


TINY_EFFORT = Effort(rounds=1, most_rounds=1, turn_seconds=0.01, warm_steps=2)  # the first takes arrays of the host
TINY = Sizes(1 << 10, 48, (2, 6, 6, 4), 2, (1, 2, 6, 8), 1)


def peers_for(name: str, weights: str, size: str) -> list[Peer]:
    """Return futurex in single precision and with products in narrower formats, and its peers on the same GPU.

    Those are as they come: jax.jit rounds the operands of products to TF32, torch those of convolutions.
    """
    own, torch_, jax_ = (f"benchmarks.workloads.networks_{stack}:TrainingStep" for stack in ("futurex", "torch", "jax"))
    options = {"name": name, "weights": weights}
    mine, theirs = {**options, "device": "gpu"}, {**options, "device": "cuda"}
    sized, cpus = {networks.SIZE: size}, len(os.sched_getaffinity(0))
    found = [Peer(SUBJECT, own, mine, cpus, sized)]
    found += [Peer(f"futurex, {to} products", own, {**mine, "precision": to}, cpus, sized, own=True) for to in FORMATS]
    return [
        *found,
        Peer("torch eager", torch_, theirs, cpus, sized),
        Peer("torch.compile", torch_, {**theirs, "compiled": True}, cpus, sized),
        Peer("jax.jit", jax_, options, cpus, {**sized, **JAX}),
    ]


def measure(name: str, effort: Effort, deadline: float, quick: bool) -> Comparison:
    """Compare all stacks on one network, until the ``deadline`` on the monotonic clock at most; the remarks say their
    first losses."""
    size = networks.SMALL if quick else str(TIMES)
    title = networks.NETWORKS[name].times(TIMES).title
    print(title, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pickle"
        networks.write_weights(name, path, size)
        peers = peers_for(name, str(path), size)
        check = {"steps": CHECKED_STEPS}
        found = compare(title, SUBJECT, peers, effort, check=check, tells="reasons", together=True, deadline=deadline)
    found.remarks["largest_disagreement"] = disagreement(found.remarks["check"])
    return found


def seconds(function: Callable[[], Any], repeat: int) -> float:
    """Return the time of a call on the device where others follow it, so that kernels run while the next are launched:
    the shortest of a few batches of ``repeat`` calls."""
    whole = cupy_.device().xp.cuda.Device()

    def batch(calls: int) -> float:
        whole.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            result = function()
            for each in result if isinstance(result, tuple) else (result,):
                if isinstance(each, fx.Array):
                    each.exception()  # it was launched
        whole.synchronize()
        return (time.perf_counter() - start) / calls

    batch(2 if repeat == 1 else SETTLED)  # compiles, fills the pool of memory, and counts the runs that wait
    return min(batch(repeat) for _ in range(1 if repeat == 1 else BATCHES))


def rates(sizes: Sizes) -> dict[str, float]:
    """Return what the device itself reaches: bytes a second of a copy, operations a second of products.

    Of random numbers: products of ones take less power, and so are faster.
    """
    xp, rng = cupy_.device().xp, np.random.default_rng(0)
    source, target = xp.ones(sizes.elements, np.float32), xp.empty(sizes.elements, np.float32)
    found = {"copy": 2.0 * source.nbytes / seconds(lambda: xp.copyto(target, source), sizes.repeat)}
    drawn = xp.asarray(rng.standard_normal((sizes.side, sizes.side), np.float32))
    for name, dtype in (("product, float32", np.float32), ("product, float16", np.float16)):
        x = drawn.astype(dtype)
        found[name] = 2.0 * sizes.side**3 / seconds(lambda x=x: xp.matmul(x, x), sizes.repeat)
    return found


@dataclass(frozen=True)
class Work:
    """A function and its arguments, and the bytes and operations that a call cannot do without.

    ``precision`` is that of its products where it is not single.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    moved: float
    flops: float = 0.0
    precision: str = ""


def works(sizes: Sizes) -> Iterator[Work]:
    """Yield what is timed."""
    rng, side = np.random.default_rng(0), sizes.side
    x, row = rng.random((side, side), np.float32), rng.random(side, np.float32)
    whole = float(x.nbytes)
    yield Work("chain of six functions", lambda x: np.tanh(np.exp(-x) * x + np.sqrt(x) - np.log1p(x)), (x,), 2 * whole)
    yield Work("chain with a row", lambda x, row: np.maximum(x * row + 1, 0), (x, row), 2 * whole)
    yield Work("sum of all", lambda x: x.sum(), (x,), whole)
    yield Work("sums of rows", lambda x: (x * x).sum(axis=1), (x,), whole)
    yield Work("sums of columns", lambda x: (x * x).sum(axis=0), (x,), whole)
    yield Work("softmax", lambda x: fx.nn.softmax(x), (x,), 2 * whole)
    layer = lambda x, row: fx.nn.layer_norm(x, row, row)  # noqa: E731 - one of two that are timed
    yield Work("layer normalisation", layer, (x, row), 2 * whole)
    back = fx.grad(lambda x, row: (layer(x, row) ** 2).sum(), argnums=(0, 1))
    yield Work("layer normalisation, and back", back, (x, row), 4 * whole)
    labels = rng.integers(0, side, side)
    loss = fx.value_and_grad(lambda x, labels: fx.nn.softmax_cross_entropy(x, labels).mean())
    yield Work("cross-entropy, and back", loss, (x, labels), 2 * whole)
    yield Work("product", lambda x: x @ x, (x,), 3 * whole, 2.0 * side**3)
    yield Work("product, bfloat16", lambda x: x @ x, (x,), 3 * whole, 2.0 * side**3, "bfloat16")
    yield Work("update by Adam", adam, (x, x * 1e-3, x * 0, x * 0), 7 * whole)
    channels = sizes.image[-1]
    image, kernel = rng.random(sizes.image, np.float32), rng.random((3, 3, channels, channels), np.float32)
    moved, flops = 2.0 * image.nbytes, 2.0 * image.size * 9 * channels
    for title, precision in (("", ""), (", bfloat16", "bfloat16")):
        title = f"convolution 3 x 3, {channels} to {channels}{title}"
        yield Work(title, lambda x, w: fx.nn.conv(x, w, padding="same"), (image, kernel), moved, flops, precision)
    pixels, scale = rng.random((sizes.images, *sizes.image[1:]), np.float32), rng.random(channels, np.float32)
    yield Work("batch normalisation and relu", normalised, (pixels, scale), 3.0 * pixels.nbytes)
    back = fx.grad(lambda x, s: (normalised(x, s) ** 2).sum(), argnums=(0, 1))
    yield Work("batch normalisation and relu, and back", back, (pixels, scale), 6.0 * pixels.nbytes)
    heads = rng.random((3, *sizes.heads), np.float32)
    flops = 4.0 * heads[0].size * sizes.heads[-2]
    back = fx.grad(lambda q, k, v: attend(q, k, v).sum(), argnums=(0, 1, 2))
    yield Work("attention, bfloat16", attend, tuple(heads), heads.nbytes * 4 / 3, flops, "bfloat16")
    yield Work("attention, bfloat16, and back", back, tuple(heads), heads.nbytes * 3.0, 3.5 * flops, "bfloat16")


def normalised(x: Any, scale: Any) -> Any:
    """Batch normalisation over all but the channels, and what is positive of it."""
    return np.maximum(fx.nn.batch_norm(x, scale, scale)[0], 0)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Attention of every head to itself."""
    return fx.nn.softmax(q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1]))) @ v


def adam(p: Any, g: Any, m: Any, v: Any) -> tuple[Any, ...]:
    """One step of Adam on one array."""
    state = {"lr": 1e-3, "step": 3.0, "m": m, "v": v}
    p, state = fx.optim.adam().update(p, g, state)
    return p, state["m"], state["v"]


def kernel(work: Work, sizes: Sizes, reached: dict[str, float]) -> dict[str, Any]:
    """Return the time of a work, its rates, and their share of what the device reaches."""
    move = fx.futurize(lambda x: x * 1, device="gpu")
    there = [arg if arg.dtype.kind == "i" else move(arg) for arg in work.args]  # labels are looked at on the host
    run = fx.futurize(work.function, device="gpu")
    run = fx.autocast(run, work.precision) if work.precision else run
    taken = seconds(lambda: run(*there), sizes.repeat)
    copy, product = (
        reached.get(each, math.nan)  # where the device's own rates could not be found
        for each in ("copy", "product, float16" if work.precision else "product, float32")
    )
    return {
        "name": work.name, "seconds": taken, "bytes_per_second": work.moved / taken,
        "of_copy": work.moved / taken / copy, "operations_per_second": work.flops / taken,
        "of_product": work.flops / taken / product, "backends": sorted({row.backend for row in run.profile()}),
        "reasons": run.trace(*there).plan.reasons(),
    }  # fmt: skip


class Kernels:
    """The rates of the device and the kernels, one after the other, in a process of their own.

    A kernel that reads where it must not leaves its process no device, and one that hangs no time; ``skip``: works
    that are done.
    """

    def __init__(self, quick: bool, skip: int, reached: dict[str, float]) -> None:
        self.sizes, self.reached = TINY if quick else Sizes(), reached
        self.left = itertools.islice(works(self.sizes), skip, None)
        self.work: Work | None = None

    def rates(self) -> dict[str, float]:
        """Return what the device reaches."""
        self.reached = rates(self.sizes)
        return self.reached

    def next(self) -> str | None:
        """Return the name of the next work, or None after the last one."""
        self.work = next(self.left, None)
        return None if self.work is None else self.work.name

    def measure(self) -> dict[str, Any]:
        """Return what there is to say of that work."""
        assert self.work is not None  # next() gave its name
        return kernel(self.work, self.sizes, self.reached)


def measure_kernels(found: Findings, quick: bool, deadline: float) -> None:
    """Measure rates and kernels until the ``deadline``; what comes after a failure has a new process."""
    cpus, done, child = len(os.sched_getaffinity(0)), -1, None
    name: str | None = ""
    while name is not None and time.monotonic() < deadline:
        name = "rates" if done < 0 else f"kernel {done}"
        try:
            if child is None:
                options = {"quick": quick, "skip": max(0, done), "reached": found.rates}
                child = Child(Peer("kernels", "benchmarks.gpu:Kernels", options, cpus), PATIENCE)
            if done < 0:
                found.rates = child.call("rates")
            elif (name := child.call("next")) is not None:
                found.kernels.append(child.call("measure"))
        except PeerFailed as error:
            found.fail(str(name), error)
            if child is not None:
                child.close()
            child = None
        done += 1
        found.write()
    if child is not None:
        child.close()
    if name is not None:
        found.left.append(f"kernels after {name}")


def kernel_table(rows: list[dict[str, Any]]) -> str:
    """Return the rates of the kernels as a table, and why some are not what was meant for them."""
    told = [f"- {row['name']}: {op}: {why}" for row in rows for op, why in row["reasons"].items()]
    return "\n".join([_rates_table(rows), *(["", *told] if told else [])])


def _rates_table(rows: list[dict[str, Any]]) -> str:
    return report.table(
        ["work", "time", "bytes", "of the copy rate", "operations", "of the product rate", "by"],
        [
            [row["name"], report.duration(row["seconds"]), f"{row['bytes_per_second'] / 1e9:.0f} GB/s",
             f"{row['of_copy']:.0%}", f"{row['operations_per_second'] / 1e12:.1f} Tflop/s", f"{row['of_product']:.0%}",
             ", ".join(row["backends"])]
            for row in rows
        ],
    )  # fmt: skip


@dataclass
class Findings:
    """What has been measured so far; it is written after every case, so that a run that is stopped leaves it."""

    folder: Path | None
    rates: dict[str, float] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    compared: list[Comparison] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def write(self, *, final: bool = False) -> None:
        """Write, and in the end print, the tables."""
        device = list(cupy_.findings())
        reached = ", ".join(
            f"{name} {rate / 1e9:.0f} GB/s" if name == "copy" else f"{name} {rate / 1e12:.1f} Tflop/s"
            for name, rate in self.rates.items()
        )
        notes = [f"- {line}" for line in device] + [f"- the device reaches: {reached}"]
        notes += [f"- without {name}: {why}" for one in self.compared[:1] for name, why in one.missing.items()]
        notes += [
            f"- {one.case}: {name}: {op}: {why}"
            for one in self.compared for name, reasons in one.remarks.get("reasons", {}).items()
            for op, why in reasons.items()
        ]  # fmt: skip
        notes += [f"- {name} failed: {why.splitlines()[0]}" for name, why in self.failed.items()]
        notes += [f"- no time was left for {', '.join(self.left)}: name them with --cases"] if self.left else []
        body = "\n\n".join([report.comparison_table(self.compared), kernel_table(self.kernels), "\n".join(notes)])
        data = {
            "device": device, "rates": self.rates, "kernels": self.kernels, "failed": self.failed,
            "comparisons": [report.comparison_record(one) for one in self.compared],
        }  # fmt: skip
        report.publish("gpu", "Training steps and kernels on a GPU", body, data, self.folder, final=final)

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Do a part of the measurement and write it; one that fails is noted and leaves the others alone."""
        try:
            work()
        except Exception as error:  # of a driver, a compiler, a library: whatever it is, the next case may do
            self.fail(name, error)
        self.write()

    def fail(self, name: str, error: Exception) -> None:
        """Note that a part failed; where it did is printed."""
        self.failed[name] = f"{type(error).__name__}: {error}"
        print(f"  {name} failed:", flush=True)
        traceback.print_exception(error, file=sys.stdout)


def main(arguments: argparse.Namespace) -> int:
    """Measure, print and write the tables; return 1 where losses differ or a part failed, 0 without a GPU."""
    networks = cases_of(arguments, NETWORKS, NETWORKS[: 1 if arguments.quick else None])
    if arguments.quick and cupy_.why_not() is not None:
        os.environ["FUTUREX_GPU"] = EMULATED
    reason = cupy_.why_not()
    if reason is None and cupy_.device().kind == EMULATED and not arguments.quick:
        reason = "FUTUREX_GPU=emulated runs on the processor"
    if reason is not None:
        print(f"no GPU: {reason}")
        return 0
    start = time.monotonic()
    if not arguments.quick:
        faulthandler.dump_traceback_later((MINUTES + STUCK) * 60, exit=True, file=sys.__stderr__)
    try:
        return _measured(arguments, networks, start)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _measured(arguments: argparse.Namespace, networks: list[str], start: float) -> int:
    effort = TINY_EFFORT if arguments.quick else Effort(min(arguments.rounds, 5), 6, turn_seconds=0.3, warm_steps=8)
    found = Findings(arguments.out)
    measure_kernels(found, arguments.quick, start + KERNELS_WITHIN * 60)
    for name in networks:
        passed = time.monotonic() - start
        if passed > STARTED_WITHIN * 60:
            found.left.append(name)
            continue
        found.attempt(
            name,
            lambda name=name: found.compared.append(  # type: ignore[misc]
                measure(name, effort, start + MINUTES * 60, arguments.quick)
            ),
        )
    found.write(final=True)
    wrong = [one.case for one in found.compared if one.remarks["largest_disagreement"] > 2e-2]
    if wrong:
        print(f"the stacks disagree about the first losses of: {', '.join(wrong)}; their times do not compare")
    missing = any(SUBJECT in one.missing for one in found.compared)
    return 1 if wrong or missing or found.failed else 0
