"""``futurex train``: train a network, measure it on unseen examples, write a checkpoint and a report."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import futurex as fx
from futurex.data import Dataset, load_digits, load_har
from futurex.errors import whole_number
from futurex.models import count, har_cnn, mlp
from futurex.nn import softmax_cross_entropy
from futurex.training.checkpoint import latest
from futurex.training.layout import TreeNode
from futurex.training.report import write_report
from futurex.training.run import Run
from futurex.tree.graph import Graph

TRACE_STEPS = 4
STOP_SECONDS = 60.0  # how long a stopped run may take to reach the end of its step


@dataclass(frozen=True)
class Job:
    """A network, its data, and for how long it is trained unless told otherwise."""

    load: Callable[[], Dataset]
    init: Callable[[np.random.Generator, Dataset], Any]
    apply: Callable[..., Any]
    epochs: int
    unseen: str


JOBS = {
    "har": Job(
        load_har, lambda rng, data: har_cnn.init(rng, data.x_train.shape[-1], len(data.classes)), har_cnn.apply, 5,
        "people it has never seen",
    ),
    "mlp": Job(
        load_digits, lambda rng, data: mlp.init(rng, (data.x_train[0].size, 128, len(data.classes))), mlp.apply, 30,
        "digits it has never seen",
    ),
}  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Train what the options say; prints results and paths, returns 0."""
    job, folder = JOBS[options.model], _folder(options)
    seed, localities = whole_number("--seed", options.seed, 0), whole_number("--localities", options.localities, 1)
    data = job.load() if options.limit is None else job.load().head(options.limit)
    params = job.init(np.random.default_rng(seed), data)
    where = "1 locality" if localities == 1 else f"{localities} localities"
    size = f"{len(data.x_train):,} examples, {count(params):,} parameters"
    print(f"{options.model}: {size}, {where}, batches of {options.batch_size}", flush=True)
    with _group(options) as group:
        started = time.perf_counter()
        training = _start(options, job, data, params, group, folder)
        try:
            training.result()
        except KeyboardInterrupt:
            if not training.step:
                raise  # nothing to keep, and its code is being made, which would be waited for
            print("\nstops after this step, and keeps what it has; Ctrl-C again ends it at once", flush=True)
            training.stop()
            training.result(STOP_SECONDS)
        seconds = time.perf_counter() - started
    facts = _facts(training, job, seconds)
    for name, value in facts.items():
        print(f"{name:<28} {value}")
    report = write_report(
        folder / "report.html", title=f"futurex train {options.model}", history=training.history,
        tree=tree_nodes(_network(job, data, params, options.batch_size)), timeline=training.timeline, facts=facts,
    )  # fmt: skip
    print(f"{'checkpoint':<28} {training.saved}\n{'report':<28} {report}")
    return 0


def tree_nodes(graph: Graph) -> list[TreeNode]:
    """The nodes of a graph for drawing, with the user's lines; constants are left out.

    >>> import numpy as np, futurex as fx
    >>> [node.label for node in tree_nodes(fx.lower(lambda x: x * 2.0, x=np.ones(3)).graph)]
    ['x', 'multiply']
    """
    shown = [node for node in graph.nodes if node.op != "const"]
    return [
        TreeNode(
            node.id,
            node.attrs["name"] if node.op == "param" else node.op,
            tuple(source.id for source in node.inputs if source.op != "const"),
            f"{node.aval!r}" + (f"\n{node.src}: {node.src.text()}" if node.src else ""),
        )
        for node in shown
    ]


def _network(job: Job, data: Dataset, params: Any, rows: int) -> Graph:
    """The tree of the network itself; a whole training step is too large to be read."""
    return fx.lower(job.apply, params, data.x_train[:rows], fx.random.key(0)).graph


def _folder(options: argparse.Namespace) -> Path:
    folder: Path = options.out or Path("runs") / f"{options.model}-{time.strftime('%Y%m%d-%H%M%S')}"
    if latest(folder) is not None:
        raise ValueError(f"{folder} holds the checkpoint of another run; nothing is overwritten: choose another --out")
    return folder


@contextlib.contextmanager
def _group(options: argparse.Namespace) -> Iterator[Any]:
    if options.localities == 1:
        yield None
        return
    with fx.Cluster(options.localities, transport=options.transport) as cluster:
        yield cluster


def _start(options: argparse.Namespace, job: Job, data: Dataset, params: Any, group: Any, folder: Path) -> Run:
    def loss(params: Any, x: Any, y: Any, key: Any = None) -> Any:
        return softmax_cross_entropy(job.apply(params, x, key), y).mean()

    def accuracy(params: Any, x: Any, y: Any) -> Any:
        return (job.apply(params, x).argmax(axis=-1) == y).mean()

    return fx.fit(
        loss, params, (data.x_train, data.y_train), optimizer=fx.optim.adam(options.lr),
        epochs=job.epochs if options.epochs is None else options.epochs, batch_size=options.batch_size, on=group,
        name=options.model, seed=options.seed, validation=(data.x_test, data.y_test), metrics={"accuracy": accuracy},
        checkpoint=folder, trace_steps=TRACE_STEPS,
    )  # fmt: skip


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _facts(training: Run, job: Job, seconds: float) -> dict[str, str]:
    last = training.history[-1]
    spent = sum(record["seconds"] for record in training.history)
    samples = sum(record["samples_per_second"] * record["seconds"] for record in training.history)
    facts = {
        "accuracy": f"{last['accuracy']:.1%} on {job.unseen}",
        "loss": f"{last['loss']:.4f} (unseen: {last['val_loss']:.4f})",
        "throughput": f"{samples / spent:,.0f} samples/s",
        "time": f"{seconds:.1f} s for {_counted(len(training.history), 'epoch')}, {_counted(training.step, 'step')} "
        f"({training.status})",
    }
    communication = sum(record.get("comm_seconds", 0.0) for record in training.history)
    if communication:
        exposed = sum(record["exposed_comm_seconds"] for record in training.history)
        facts["communication hidden"] = f"{max(0.0, 1.0 - exposed / communication):.0%} of {communication:.2f} s"
        shares = ", ".join(f"{share:.0%}" for share in training.timeline.overlap().values())
        if shares:  # a run of two steps is over before any is recorded
            facts["beside instructions"] = f"{shares} of the recorded exchanges, by locality"
    if len(training.counters) > 1:
        facts |= {f"locality {rank}": str(counters) for rank, counters in enumerate(training.counters)}
    for rank, held in enumerate(training.memory):
        sizes = ", ".join(f"{name} {nbytes / 1e6:,.1f} MB" for name, nbytes in held.items())
        facts[f"memory of locality {rank}" if len(training.memory) > 1 else "memory"] = sizes
    return facts
