"""Plans whose instructions do next to nothing, so that what is left is the cost of running an instruction."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from futurex.runtime.counters import Grain
from futurex.runtime.plan import Plan, compile_plan
from futurex.runtime.pool import Pool, PoolRun
from futurex.tree import Aval, Graph, Node, apply, param

LENGTH = 256
CASES = {
    "ufuncs": f"{LENGTH} additions of 8 float64, one after the other",
    "regions": f"{LENGTH // 2} compiled regions of 256 float64, each behind a cumsum",
    "tasks": f"{LENGTH} independent additions of 8 float64, each handed to another thread",
}


def _array(name: str, size: int) -> Node:
    return param(Aval((size,), np.dtype(float)), name)


def graph_of(case: str) -> Graph:
    """Return the graph of a case, as the passes leave it."""
    x, y = _array("x", 256 if case == "regions" else 8), _array("y", 256 if case == "regions" else 8)
    if case == "tasks":
        return Graph([x, y], [apply("add", x, apply("add", y, float(k))) for k in range(LENGTH // 2)], case)
    value = x
    for k in range(LENGTH // 2):
        if case == "regions":
            a, b = _array("a", 256), _array("b", 256)
            value = apply("fused", apply("cumsum", value, axis=0, dtype=None), y, graph=Graph([a, b], [a * b - a]))
        else:
            value = apply("add", apply("add", value, y), float(k))
    return Graph([x, y], [value], case)


class Replay:
    """A plan in the calling thread."""

    def __init__(self, case: str) -> None:
        self.plan: Plan = compile_plan(graph_of(case), optimised=True)
        size = self.plan.graph.params[0].shape
        self.args = [np.full(size, 0.5), np.full(size, 0.25)]
        for _ in range(40):
            self.plan.run(self.args)

    def check(self) -> int:
        """Return the number of instructions."""
        return len(self.plan.instructions)

    def step(self) -> None:
        """Run the plan once."""
        self.plan.run(self.args)


class Bare:
    """The NumPy calls of the same plan, with their results in given memory, as one loop over a list."""

    def __init__(self, case: str) -> None:
        size = 256 if case == "regions" else 8
        self.x, self.y, self.out = np.full(size, 0.5), np.full(size, 0.25), np.empty(size)
        self.calls: list[Any] = [np.cumsum if case == "regions" and not k % 2 else np.add for k in range(LENGTH)]

    def check(self) -> int:
        """Return the number of calls."""
        return len(self.calls)

    def step(self) -> None:
        """Make every call once."""
        x, y, out = self.x, self.y, self.out
        for call in self.calls:
            if call is np.add:
                call(x, y, out)
            else:
                call(x, 0, None, out)


class _Long(Grain):
    """Takes every instruction to be long, whatever it is measured to take."""

    __slots__ = ()

    def measured(self, index: int, seconds: float) -> None:
        """Learn nothing."""


class Shared(Replay):
    """A plan whose instructions are all taken to be long: each is a task that another thread may take."""

    def __init__(self, case: str) -> None:
        super().__init__(case)
        self.plan.grain = _Long([1.0] * (len(self.plan.instructions) + 1))
        self.pool = Pool(2)

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each run."""
        seconds = []
        for _ in range(repetitions):
            done = threading.Event()
            start = time.perf_counter()
            self.pool.push(PoolRun(self.pool, self.plan, self.args, lambda *_, done=done: done.set()).start)
            done.wait()
            seconds.append(time.perf_counter() - start)
        return seconds
