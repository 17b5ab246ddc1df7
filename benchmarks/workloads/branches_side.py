"""Functions whose parts do not read each other: as calls go, and forced to run beside each other or in turns."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx
from futurex.runtime import config
from futurex.runtime.plan import Plan, compile_plan
from futurex.runtime.pool import Pool, PoolRun
from futurex.tree.pytree import flatten

RNG = np.random.default_rng(0)


def _weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def ranks(columns: Any) -> Any:
    """Return the mean of the middle half of each column."""
    return [np.sort(column)[len(column) // 4 : -len(column) // 4].mean() for column in columns]


def walks(starts: Any, x: Any) -> Any:
    """Return where recurrences end that begin at several places."""
    ends = []
    for start in starts:
        value = start
        for k in range(50_000):
            value = value * 0.9 + x[k % 100]
        ends.append(value)
    return ends


def ensemble(members: Any, x: Any) -> Any:
    """Return the mean of several small networks."""
    return sum(np.tanh(np.tanh(x @ each["in"]) @ each["middle"]) @ each["out"] for each in members) / len(members)


def inception(x: Any, w: Any) -> Any:
    """Return the four branches of a block of GoogLeNet beside each other."""
    relu, conv = fx.nn.relu, fx.nn.conv
    first = relu(conv(x, w["1"]))
    second = relu(conv(relu(conv(x, w["3 reduced"])), w["3"], padding="same"))
    third = relu(conv(relu(conv(x, w["5 reduced"])), w["5"], padding="same"))
    fourth = relu(conv(fx.nn.max_pool(x, 3, stride=1, padding=1), w["pooled"]))
    return np.concatenate([first, second, third, fourth], axis=-1)


def folds(x: Any, y: Any) -> Any:
    """Return the errors of ridge regressions that leave out a fifth of the data each."""
    errors = []
    fifth = len(x) // 5
    for k in range(5):
        inside = slice(k * fifth, (k + 1) * fifth)
        rest_x, rest_y = np.delete(x, inside, axis=0), np.delete(y, inside)
        w = np.linalg.solve(rest_x.T @ rest_x + 0.1 * np.eye(x.shape[1]), rest_x.T @ rest_y)
        errors.append(((x[inside] @ w - y[inside]) ** 2).mean())
    return errors


def _block() -> dict[str, np.ndarray]:
    shapes = {"1": (1, 1, 192, 64), "3 reduced": (1, 1, 192, 96), "3": (3, 3, 96, 128), "5 reduced": (1, 1, 192, 16)}
    shapes |= {"5": (5, 5, 16, 32), "pooled": (1, 1, 192, 32)}
    return {name: _weights(*shape) for name, shape in shapes.items()}


def _members(count: int) -> list[dict[str, np.ndarray]]:
    shapes = {"in": (20, 64), "middle": (64, 64), "out": (64, 1)}
    return [{name: _weights(*shape) for name, shape in shapes.items()} for _ in range(count)]


CASES: dict[str, tuple[str, Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "ranks": ("middle means of 4 columns of 2e5", ranks, lambda: (list(RNG.normal(size=(4, 200_000))),)),
    "walks": (
        "4 recurrences of 5e4 rounds", walks, lambda: ([np.float64(k) for k in range(4)], RNG.normal(size=100)),
    ),
    "ensemble": ("8 networks 20-64-64-1, batch 256", ensemble, lambda: (_members(8), _weights(256, 20))),
    "inception": ("inception block, 1 x 28 x 28 x 192", inception, lambda: (_weights(1, 28, 28, 192), _block())),
    "folds": (
        "5 folds of ridge regression, 2000 x 40", folds, lambda: (RNG.normal(size=(2000, 40)), RNG.normal(size=2000)),
    ),
}  # fmt: skip


class Call:
    """The futurized function."""

    def __init__(self, case: str) -> None:
        _, function, arguments = CASES[case]
        self.function, self.arguments = fx.futurize(function), arguments()
        for _ in range(12):
            self.step()

    def step(self) -> None:
        """Call it once and wait."""
        for each in flatten(self.function(*self.arguments))[0]:
            each.result()

    def check(self) -> str:
        """Return what is said of the way that calls go."""
        lines = [line.strip() for line in self.function.explain().splitlines() if "beside each other" in line]
        return lines[0] if lines else "in turns, kernels on all threads, by estimate"


class _Forced(ABC):
    def __init__(self, case: str) -> None:
        _, function, arguments = CASES[case]
        program = fx.lower(function, *arguments())
        self.inputs = program.flatten(*arguments())
        self.plan = self.compiled(program.graph)
        self.step()

    def check(self) -> str:
        """Return what was asked for."""
        return "as it is forced to"

    @abstractmethod
    def compiled(self, graph: Any) -> Plan:
        """Return the plan."""

    @abstractmethod
    def step(self) -> None:
        """Run it once."""


class Turns(_Forced):
    """One operation after the other, each with all threads."""

    def compiled(self, graph: Any) -> Plan:
        return compile_plan(graph, threads=config.threads())

    def step(self) -> None:
        """Run it once."""
        self.plan.run(self.inputs)


class Beside(_Forced):
    """Operations of one thread, on as many workers as there are processors."""

    def compiled(self, graph: Any) -> Plan:
        self.pool = Pool(config.threads())
        return compile_plan(graph, apart=True)

    def step(self) -> None:
        """Run it once."""
        done = threading.Event()
        self.pool.push(PoolRun(self.pool, self.plan, self.inputs, lambda *_: done.set()).start)
        done.wait()
