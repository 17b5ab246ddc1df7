"""How close do generated kernels come to the rate at which this machine copies memory?"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.harness import cases_of
from benchmarks.machine import Watch
from benchmarks.workloads.copies import Form, aligned, copies, laps, streams
from futurex.autodiff import grad, pullback
from futurex.kernels.numba_ import NumbaBackend
from futurex.ops.special import PREFIX
from futurex.ops.sweeps import holds_reduction
from futurex.passes.pipeline import optimise
from futurex.tree import Aval, Graph, Node, apply, param

SIZES = {"8 MB": 1 << 21, "16 MB": 1 << 22, "64 MB": 1 << 24}
DEFAULT_SIZES = ("16 MB", "64 MB")
FROM_MEMORY = ("64 MB",)
"""Sizes whose operands come from memory at every run: there are so many sets of them that no cache holds all. What one
run leaves in a last cache that is large enough would be read from there by the next one, less of it the more operands a
kernel has, and all of it by the copy."""
COLUMNS = 1024
FEW = 16 * COLUMNS
TURNS = 5
TURN = 0.012
"""Seconds that a turn of a kernel, or of the copy, takes at least."""
F4 = np.dtype(np.float32)
ENOUGH = 0.8

_OWN = ("fused", "fused_reduction", "argmax", "cumsum")
"""What kernels are made for as it stands."""
_BESIDE = ("checked_labels", "reshape")
"""What NumPy makes of labels before a kernel reads them."""

Run = Callable[[], Any]


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


def _reduced(op: str, axis: tuple[int, ...] | None) -> Callable[[int], Graph]:
    kind = {"dtype": None} if op == "sum" else {}
    return _one(lambda x: apply(op, x, axis=axis, keepdims=False, **kind))


def _moments(n: int) -> Graph:
    x = _x(n)
    mean = apply("sum", x, axis=(1,), keepdims=True, dtype=None) / COLUMNS
    shifted = x - mean
    return Graph([x], [apply("sum", shifted * shifted, axis=(1,), keepdims=True, dtype=None) / COLUMNS, mean], "var")


def _channels(n: int) -> Graph:
    x = param(Aval((n // COLUMNS, COLUMNS // 64, 64), F4), "x")
    return Graph([x], [apply("sum", x, axis=(0, 1), keepdims=False, dtype=None)], "channels")


def _masked(x: Any) -> Any:
    part = apply("where", apply("greater", x, 0.5), x, -0.0)
    return apply("sum", part, axis=(0,), keepdims=False, dtype=None)


def _normalised(n: int) -> Graph:
    x, vectors = _x(n), [param(Aval((COLUMNS,), F4), name) for name in ("scale", "shift")]
    return Graph([x, *vectors], [apply("layer_norm", x, *vectors, eps=1e-5)], "layer_norm")


def _softmax(n: int) -> Graph:
    return _one(lambda x: apply("softmax", x, axis=1))(n)


def _classified(n: int) -> Graph:
    x, labels = _x(n), param(Aval((n // COLUMNS,), np.dtype(np.int64)), "labels")
    loss = apply("sum", apply("softmax_cross_entropy", x, labels), axis=(0,), keepdims=False, dtype=None)
    return grad(Graph([x, labels], [loss], "loss"), [0])


def _added(n: int) -> Graph:
    x, y = _x(n), _x(n, "y")
    return Graph([x, y], [x + y], "add")


def _softmax_back(n: int) -> Graph:
    g, y = _x(n, "g"), _x(n, "y")
    return Graph([g, y], [apply("softmax_grad", g, y, axis=1)], "softmax_grad")


KERNELS: dict[str, Callable[[int], Graph]] = {
    "add": _added,
    "multiply and add": _one(lambda x: x * 1.5 + 0.5),
    "where": _one(lambda x: apply("where", apply("greater", x, 0.0), x, 0.0)),
    "exp": _one(lambda x: apply("exp", x)),
    "log": _one(lambda x: apply("log", x)),
    "tanh": _one(lambda x: apply("tanh", x)),
    "sigmoid": _one(lambda x: apply("ufunc_call", x, ufunc=f"{PREFIX}expit")),
    "erf": _one(lambda x: apply("ufunc_call", x, ufunc=f"{PREFIX}erf")),
    "sum": _reduced("sum", None),
    "sum of squares": _one(lambda x: apply("sum", x * x, axis=None, keepdims=False, dtype=None)),
    "sum of columns where above 0.5": _one(_masked),
    "sum of rows": _reduced("sum", (1,)),
    "sum of columns": _reduced("sum", (0,)),
    "sum of channels": _channels,
    "max of rows": _reduced("max", (1,)),
    "places of the largest in rows": _one(lambda x: apply("argmax", x, axis=1, keepdims=False)),
    "running sums of rows": _one(lambda x: apply("cumsum", x, axis=1, dtype=None)),
    "variance and mean of rows": _moments,
    "softmax": _softmax,
    "softmax, backward": _softmax_back,
    "cross entropy, backward": _classified,
    "layer norm": _normalised,
    "layer norm, backward": lambda n: pullback(_normalised(n), [0, 1, 2]),
    "Adam update": _update,
}


class Rate:
    """Bytes a second of a run, measured in turns of about :data:`TURN` seconds."""

    def __init__(self, run: Run, moved: int) -> None:
        self.run, self.moved = run, moved
        run()
        self.count = max(1, round(TURN / min(_timed(run) for _ in range(3))))

    def turn(self) -> float:
        """The best run of one turn."""
        return self.moved / min(_timed(self.run) for _ in range(self.count))


def _timed(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def kernels(graph: Graph, threads: int, from_memory: bool = False) -> tuple[Run, int, tuple[int, int]]:
    """A run of the graph's generated kernels, one after the other, into memory that is there; the bytes that its
    operands and results weigh; and how many large operands and results it has. What is no kernel's (labels are checked
    by NumPy) is computed before. From memory: every run takes the next one of several sets of operands."""
    graph = optimise(graph)
    values: dict[Node, Any] = {each: _operand(each) for each in graph.params}
    largest = max(values[each].nbytes for each in graph.params)
    large = [each for each in graph.params if values[each].nbytes == largest]
    calls = []
    for node in graph.nodes:
        if node.op == "const":
            values[node] = node.value
        elif node.op == "item":
            values[node] = values[node.inputs[0]][node.attrs["index"]]
        elif node.inputs:
            made = None if node.op in _BESIDE else NumbaBackend().claim(_region(node), threads)
            if made is None and node.op in _BESIDE:
                values[node] = node.record.run([values[source] for source in node.inputs], node.attrs)
                continue
            if made is None:
                raise RuntimeError(f"no generated kernel takes {node!r}")
            avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
            outs = tuple(aligned(aval.nbytes, 0).view(aval.dtype).reshape(aval.shape) for aval in avals)
            values[node] = outs if isinstance(node.aval, tuple) else outs[0]
            calls.append((made.call, values[node], [values[source] for source in node.inputs]))
    moved = sum(values[node].nbytes for node in dict.fromkeys((*graph.params, *graph.outs)))
    results = sum(values[node].nbytes == largest for node in dict.fromkeys(graph.outs))
    sets: list[dict[int, Any]] = [{}]
    for _ in range(laps(largest * len(large)) - 1 if from_memory else 0):
        sets.append({id(values[each]): _operand(each) for each in large})
    turns = itertools.cycle(
        [[(call, out, [others.get(id(each), each) for each in inputs]) for call, out, inputs in calls]
         for others in sets]
    )  # fmt: skip

    def run() -> None:
        for call, out, inputs in next(turns):
            call(out, *inputs)

    return run, moved, (len(large), results)


def _region(node: Node) -> Node:
    """The node as a region, which a single operation on few elements is not made by itself."""
    if node.op in _OWN:
        return node
    inner = [param(source.aval) for source in node.inputs]
    alone = Graph(inner, [apply(node.op, *inner, **node.attrs)], node.op)
    return apply("fused_reduction" if holds_reduction([node]) else "fused", *node.inputs, graph=alone)


def _operand(node: Node) -> Any:
    if node.dtype != F4:
        return np.arange(node.size, dtype=node.dtype).reshape(node.shape) % COLUMNS
    some = np.abs(np.random.default_rng(0).normal(size=4093)).astype(F4)
    array = aligned(node.aval.nbytes, 0).view(F4).reshape(node.shape)
    array[...] = np.resize(some, node.shape)
    return array


def arithmetic(name: str, threads: int) -> float:
    """Bytes a second where they cost nothing: what more rows add to the time of a few, all in one CPU's caches."""
    (few, less, _), (many, more, _) = (kernels(KERNELS[name](n), 1) for n in (FEW, 2 * FEW))
    few(), many()
    rounds = [min(_timed(many) for _ in range(60)) - min(_timed(few) for _ in range(60)) for _ in range(7)]
    return threads * (more - less) / max(statistics.median(rounds), 1e-9)


def fastest(made: Form) -> tuple[str, Rate]:
    """The form that is fastest here, and how to measure it again."""
    rates = {form: Rate(*each) for form, each in made.items()}
    best = max(rates, key=lambda form: statistics.median(rates[form].turn() for _ in range(3)))
    return best, rates[best]


def measure(
    name: str, size: str, threads: int, copy: tuple[str, Rate], floors: dict[tuple[int, int], Rate], allowed: float
) -> dict[str, Any]:
    """The kernel's rate beside that of the copy, and of a loop that reads and writes as many arrays, in turns."""
    form, other = copy
    run, moved, arrays = kernels(KERNELS[name](SIZES[size]), threads, size in FROM_MEMORY)
    if arrays not in floors:
        floors[arrays] = fastest(streams(*arrays, *_bytes_and_sets(size, threads, arrays[0])))[1]
    mine, floor = Rate(run, moved), floors[arrays]
    watch = Watch()
    turns = [(mine.turn(), other.turn(), floor.turn()) for _ in range(TURNS)]
    rate, copied, alone = (statistics.median(column) for column in zip(*turns, strict=True))
    return {
        "kernel": name, "size": size, "threads": threads, "bytes": mine.moved, "bytes_per_second": rate,
        "copy": form, "copy_bytes_per_second": copied, "ratio": statistics.median(a / b for a, b, _ in turns),
        "operands": arrays[0], "results": arrays[1], "as_many_bytes_per_second": alone,
        "of_as_many": statistics.median(a / c for a, _, c in turns), "in_cache_bytes_per_second": allowed,
        "foreign": watch.foreign_share(),
    }  # fmt: skip


def _bytes_and_sets(size: str, threads: int, operands: int) -> tuple[int, int, int]:
    """What a loop over arrays is made for: their bytes, threads, and how many sets of operands it takes in turns."""
    nbytes = SIZES[size] * F4.itemsize
    return nbytes, threads, laps(nbytes * operands) if size in FROM_MEMORY else 1


def of_floor(one: dict[str, Any]) -> float:
    """The kernel's rate over what memory and its own instructions allow."""
    floor = min(one["copy_bytes_per_second"], one["in_cache_bytes_per_second"])
    return float(one["bytes_per_second"] / floor)


def _bound(one: dict[str, Any]) -> str:
    return "memory" if one["in_cache_bytes_per_second"] > one["copy_bytes_per_second"] else "operations"


def text_of(found: Sequence[dict[str, Any]]) -> str:
    """The table and what it means."""
    rows = [
        [one["kernel"], one["size"], str(one["threads"]), f"{one['bytes'] / 1e6:.1f} MB",
         f"{one['bytes_per_second'] / 1e9:.1f}", f"{one['copy_bytes_per_second'] / 1e9:.1f} ({one['copy']})",
         f"{one['ratio']:.2f}", f"{one['as_many_bytes_per_second'] / 1e9:.1f} ({one['operands']}, {one['results']})",
         f"{one['of_as_many']:.2f}",
         f"{one['in_cache_bytes_per_second'] / 1e9:.1f}", _bound(one), f"{of_floor(one):.2f}",
         f"{one['foreign']:.0%}"]
        for one in found
    ]  # fmt: skip
    head = ["kernel", "operand", "CPUs", "moved", "GB/s", "copy, GB/s", "kernel / copy", "as many arrays, GB/s",
            "kernel / as many", "in cache, GB/s", "bound by", "kernel / bound", "other processes"]  # fmt: skip
    reached = sum(one["ratio"] >= ENOUGH for one in found)
    alike = sum(one["of_as_many"] >= ENOUGH for one in found)
    return (
        f"{report.table(head, rows)}\n\n{reached} of {len(found)} move bytes at {ENOUGH:.0%} of the copy's rate or "
        f"more, {alike} at {ENOUGH:.0%} of the rate of a loop over as many arrays. Bytes count each operand and result "
        "once. The copy is the fastest of three of one operand by the same threads: the C library's, vectors, and "
        "vectors whose stores go past the caches. As many arrays: a loop that adds up so many operands into each of so "
        "many results, in the fastest of four forms. "
        f"Operands of {' and '.join(FROM_MEMORY)} come from memory, of the copy and the loop, too: each run takes "
        "the next of several sets, which no cache holds together; smaller ones lie where the last run left them. "
        "In cache: what the "
        "instructions alone allow, on operands of 128 KB, times the CPUs. The bound is the lower of both. All arrays "
        "begin with a line of the cache, as planned memory does."
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure every kernel at every size, print and write the table."""
    os.environ["FUTUREX_COMPILE"] = "wait"
    asked = cases_of(arguments, [*SIZES, *KERNELS], ())
    sizes = [each for each in SIZES if each in asked] or (["8 MB"] if arguments.quick else DEFAULT_SIZES)
    names = [each for each in KERNELS if each in asked] or list(KERNELS)
    found = []
    for threads in arguments.threads:
        allowed = {name: arithmetic(name, threads) for name in names}
        for size in sizes:
            copy = fastest(copies(*_bytes_and_sets(size, threads, 1)))
            floors: dict[tuple[int, int], Rate] = {}
            found += [measure(name, size, threads, copy, floors, allowed[name]) for name in names]
    report.publish("roofline", "Generated kernels beside a copy", text_of(found), {"kernels": found}, arguments.out)
    return 0
