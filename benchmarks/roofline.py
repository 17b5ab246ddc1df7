"""How close do generated kernels come to the rate at which this machine copies memory?"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.machine import Watch
from futurex.kernels.numba_ import NumbaBackend
from futurex.ops.sweeps import holds_reduction
from futurex.passes.expand import expand
from futurex.passes.pipeline import optimise
from futurex.passes.simplify import simplify
from futurex.tree import Aval, Graph, Node, apply, param

SIZES = {"4 MB": 1 << 20, "16 MB": 1 << 22, "64 MB": 1 << 24}
COLUMNS = 1024
AT_ONCE = 10
FEW = 16 * COLUMNS
F4 = np.dtype(np.float32)


def _x(n: int, name: str = "x") -> Any:
    return param(Aval((n // COLUMNS, COLUMNS), F4), name)


def _update(n: int) -> Graph:
    p, m, v, g = (_x(n, name) for name in "pmvg")
    m2, v2 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    return Graph([p, m, v, g], [p - 1e-3 * m2 / (apply("sqrt", v2) + 1e-8), m2, v2], "adam")


def _one(make: Callable[[Any], Any]) -> Callable[[int], Graph]:
    def graph(n: int) -> Graph:
        x = _x(n)
        return Graph([x], [make(x)], "one")

    return graph


def _reduced(axis: tuple[int, ...] | None) -> Callable[[Any], Any]:
    return lambda x: apply("sum", x, axis=axis, keepdims=False, dtype=None)


def _normalised(n: int) -> Graph:
    x, vectors = _x(n), [param(Aval((COLUMNS,), F4), name) for name in ("scale", "shift")]
    return Graph([x, *vectors], [apply("layer_norm", x, *vectors, eps=1e-5)], "layer_norm")


def _added(n: int) -> Graph:
    x, y = _x(n), _x(n, "y")
    return Graph([x, y], [x + y], "add")


KERNELS: dict[str, Callable[[int], Graph]] = {
    "add": _added,
    "multiply and add": _one(lambda x: x * 1.5 + 0.5),
    "where": _one(lambda x: apply("where", apply("greater", x, 0.0), x, 0.0)),
    "exp": _one(lambda x: apply("exp", x)),
    "tanh": _one(lambda x: apply("tanh", x)),
    "sum": _one(_reduced(None)),
    "sum of rows": _one(_reduced((1,))),
    "sum of columns": _one(_reduced((0,))),
    "softmax": _one(lambda x: apply("softmax", x, axis=1)),
    "layer norm": _normalised,
    "Adam update": _update,
}


def rate(run: Callable[[], Any], moved: int, seconds: float) -> list[float]:
    """Bytes a second of several turns, each the best of a few runs."""
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 3:
        best = min(_timed(run) for _ in range(5))
        found.append(moved / best)
    return found


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def copying(n: int, threads: int) -> tuple[Callable[[], Any], int]:
    """A copy of n floats by NumPy, each thread its part; and the bytes it moves."""
    source, target = np.ones(n, F4), np.zeros(n, F4)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    gate, done = threading.Barrier(threads), threading.Barrier(threads)

    def work(k: int) -> None:
        while True:
            gate.wait()
            part(k)
            done.wait()

    def part(k: int) -> None:
        for _ in range(AT_ONCE):  # so many that waking the threads does not count
            np.copyto(parts[k][1], parts[k][0])

    for k in range(1, threads):
        threading.Thread(target=work, args=(k,), daemon=True).start()

    def run() -> None:
        gate.wait()
        part(0)
        done.wait()

    return run, 2 * AT_ONCE * source.nbytes


def kernel(graph: Graph, threads: int) -> tuple[Callable[[], Any], int]:
    """A run of the graph's one generated kernel into memory that is there; and the bytes it moves."""
    (node,) = (each for each in optimise(graph).nodes if each.op in ("fused", "fused_reduction"))
    return claimed(node, threads)


def claimed(node: Node, threads: int) -> tuple[Callable[[], Any], int]:
    """A run of the node's generated kernel into memory that is there; and the bytes it moves."""
    made = NumbaBackend().claim(node, threads)
    if made is None:
        raise RuntimeError(f"no generated kernel takes {node!r}")
    rng = np.random.default_rng(0)
    inputs = [np.abs(rng.normal(size=source.shape)).astype(F4) for source in node.inputs]
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    outs = tuple(np.ones(aval.shape, aval.dtype) for aval in avals)
    out = outs if isinstance(node.aval, tuple) else outs[0]
    moved = sum(each.nbytes for each in (*inputs, *outs))
    return lambda: made.call(out, *inputs), moved


def arithmetic(name: str) -> float:
    """Bytes a second of one CPU where they cost nothing: what more rows add to the time of a few, all in its caches."""
    times, bytes_moved = [], []
    for n in (FEW, 2 * FEW):
        graph = optimise(KERNELS[name](n), passes=(expand, simplify))
        op = "fused_reduction" if holds_reduction(graph.nodes) else "fused"
        run, moved = claimed(apply(op, *(param(each.aval) for each in graph.params), graph=graph), 1)
        run()
        times.append(min(_timed(run) for _ in range(2000)))
        bytes_moved.append(moved)
    return (bytes_moved[1] - bytes_moved[0]) / max(times[1] - times[0], 1e-9)


def measure(name: str, size: str, threads: int, seconds: float) -> dict[str, Any]:
    """The kernel's rate beside that of the copy, in turns."""
    os.environ["FUTUREX_COMPILE"] = "wait"
    n = SIZES[size]
    run, moved = kernel(KERNELS[name](n), threads)
    copy, copied = copying(n, threads)
    run(), copy()
    watch = Watch()
    ratios, rates, copies = [], [], []
    for _ in range(5):
        mine = statistics.median(rate(run, moved, seconds))
        other = statistics.median(rate(copy, copied, seconds))
        ratios.append(mine / other)
        rates.append(mine)
        copies.append(other)
    return {
        "kernel": name, "size": size, "threads": threads, "bytes": moved, "ratio": statistics.median(ratios),
        "bytes_per_second": statistics.median(rates), "copy_bytes_per_second": statistics.median(copies),
        "in_cache_bytes_per_second": threads * arithmetic(name), "foreign": watch.foreign_share(),
    }  # fmt: skip


def of_floor(one: dict[str, Any]) -> float:
    """The kernel's rate over what memory and its own instructions allow."""
    floor = min(one["copy_bytes_per_second"], one["in_cache_bytes_per_second"])
    return float(one["bytes_per_second"] / floor)


def main(arguments: argparse.Namespace) -> int:
    """Measure every kernel at every size, print and write the table."""
    seconds = 0.01 if arguments.quick else 0.1
    sizes = ["4 MB"] if arguments.quick else list(SIZES)
    found = [
        measure(name, size, each, seconds)
        for each in arguments.threads for size in sizes for name in arguments.cases or KERNELS
    ]  # fmt: skip
    rows = [
        [one["kernel"], one["size"], str(one["threads"]), f"{one['bytes_per_second'] / 1e9:.1f} GB/s",
         f"{one['copy_bytes_per_second'] / 1e9:.1f} GB/s", f"{one['in_cache_bytes_per_second'] / 1e9:.1f} GB/s",
         f"{one['ratio']:.2f}", f"{of_floor(one):.2f}", f"{one['foreign']:.0%}"]
        for one in found
    ]  # fmt: skip
    head = ["kernel", "operand", "CPUs", "operands and results", "copy", "in cache", "kernel / copy", "kernel / floor",
            "other processes"]  # fmt: skip
    body = (
        f"{report.table(head, rows)}\n\nBytes count each operand and result once. The copy is NumPy's, of one "
        "operand, each CPU its part. In cache: what the kernel's instructions alone allow, on operands of 128 KB, "
        "times the CPUs. The floor is the lower of both rates: `exp`, `tanh` and softmax do 15 to 30 operations a "
        "number, the others are bound by memory."
    )
    report.publish("roofline", "Generated kernels beside a copy", body, {"kernels": found}, arguments.out)
    return 0
