"""Programs over large arrays, and how much memory their first call takes in a process that has no code of theirs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads import networks
from benchmarks.workloads.memory_side import resident, training_step

STEPS = {"mlp-adam": "perceptron step", "har-adam": "HAR step"}


@dataclass(frozen=True)
class Program:
    """A NumPy function, and what makes its arguments."""

    title: str
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _components(x: Any) -> Any:
    c = x - x.mean(0)
    return np.linalg.svd(c.T @ c)[1]


def _heat(u: Any) -> Any:
    u = u.copy()
    for _ in range(20):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u


def _recursion(x: Any) -> Any:
    s = 0.0
    for i in range(200_000):
        s = s * 0.5 + x[i]
    return s


def _power(a: Any, v: Any) -> Any:
    for _ in range(30):
        v = a @ v
        v = v / np.sqrt((v * v).sum())
    return v


def _logistic(x: Any, w: Any, y: Any) -> Any:
    for _ in range(10):
        p = 1 / (1 + np.exp(-(x @ w)))
        w = w - 0.1 * x.T @ (p - y) / len(y)
    return w


def _f32(rng: np.random.Generator, *shape: int) -> Any:
    return rng.random(shape, dtype=np.float32)


def _square(rng: np.random.Generator, n: int) -> Any:
    a = rng.random((n, n))
    return a + a.T + n * np.eye(n)


PROGRAMS = {
    "chain": Program(
        "six operations on 5e6 numbers", lambda x, y: np.exp(-x) * np.sin(y) + np.sqrt(x * y),
        lambda rng: (_f32(rng, 5_000_000), _f32(rng, 5_000_000)),
    ),
    "chain64": Program(
        "a logistic function, float64", lambda x: 1 / (1 + np.exp(-x * x + 2 * x - 1)),
        lambda rng: (rng.random(5_000_000),),
    ),
    "complex": Program(
        "complex numbers", lambda z: z * z.conj() + np.exp(1j * z.real), lambda rng: (rng.random((1500, 1500)) + 0j,),
    ),
    "deviations": Program(
        "deviations from means", lambda x: ((x - x.mean(0)) ** 2).sum(1), lambda rng: (_f32(rng, 4000, 4000),)
    ),
    "softmax": Program("softmax of rows", _softmax, lambda rng: (_f32(rng, 2000, 5000),)),
    "nearest": Program(
        "nearest of 32 centres", lambda x, c: ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1),
        lambda rng: (_f32(rng, 200_000, 8), _f32(rng, 32, 8)),
    ),
    "stencil": Program(
        "a stencil", lambda u: u[1:-1, 1:-1] * 4 - u[2:, 1:-1] - u[:-2, 1:-1] - u[1:-1, 2:] - u[1:-1, :-2],
        lambda rng: (rng.random((3000, 3000)),),
    ),
    "heat": Program("heat, 20 steps", _heat, lambda rng: (_f32(rng, 2000, 2000),)),
    "product": Program(
        "a product", lambda a, b: a @ b, lambda rng: (_f32(rng, 3000, 3000), _f32(rng, 3000, 3000))
    ),
    "product64": Program(
        "a product, float64", lambda a, b: a @ b, lambda rng: (rng.random((2000, 2000)), rng.random((2000, 2000)))
    ),
    "solve": Program(
        "a system of 1500 equations", np.linalg.solve, lambda rng: (_square(rng, 1500), rng.random((1500, 200)))
    ),
    "eigh": Program("eigenvalues of 700 x 700", lambda a: np.linalg.eigh(a), lambda rng: (_square(rng, 700),)),
    "components": Program("principal components", _components, lambda rng: (rng.random((100_000, 60)),)),
    "power": Program("power iteration", _power, lambda rng: (rng.random((2000, 2000)), rng.random(2000))),
    "logistic": Program(
        "logistic regression", _logistic,
        lambda rng: (rng.random((2000, 2500)), rng.random(2500), rng.random(2000)),
    ),
    "recursion": Program("a loop over numbers", _recursion, lambda rng: (rng.random(3_000_000),)),
    "sort": Program("sorting", lambda x: np.sort(x)[::1000], lambda rng: (rng.random(5_000_000),)),
    "medians": Program("medians", lambda x: np.median(x, axis=2), lambda rng: (rng.random((500, 500, 20)),)),
    "transform": Program("a Fourier transform", lambda x: abs(np.fft.rfft(x)), lambda rng: (rng.random(4_000_000),)),
    "gather": Program(
        "elements by places", lambda x, i: x[i] * 2,
        lambda rng: (_f32(rng, 5_000_000), rng.integers(0, 5_000_000, 2_000_000)),
    ),
    "mask": Program("elements by a mask", lambda x: x[x > 0.5].sum(), lambda rng: (rng.random(5_000_000),)),
    "running": Program(
        "running means", lambda x: np.cumsum(x) / np.arange(1, len(x) + 1), lambda rng: (rng.random(4_000_000),)
    ),
}  # fmt: skip
TITLES = {name: each.title for name, each in PROGRAMS.items()} | STEPS


def _settle(result: Any) -> None:
    """Wait for all that a call returned."""
    if isinstance(result, dict):
        result = list(result.values())
    for each in result if isinstance(result, list | tuple) else [result]:
        _settle(each) if isinstance(each, dict | list | tuple) else getattr(each, "result", bool)()


class FirstCall:
    """One program in a process that has the compiler, BLAS and oneDNN loaded, but no code of it."""

    def __init__(self, name: str) -> None:
        import futurex as fx

        if name in STEPS:
            function, held, batch = training_step(name, "")
            self._arguments = [*held, *batch, np.uint64(0)]
        else:
            function = PROGRAMS[name].function
            self._arguments = list(PROGRAMS[name].arguments(np.random.default_rng(0)))
        self._plain, self._staged = function, fx.futurize(function)
        small = np.ones((130, 130))
        other = fx.futurize(lambda x, y: np.exp(-x) * np.sin(x) + np.sqrt(x) + (x @ y).sum(0))
        fx.precompile(other, small, small)
        fx.futurize(lambda x: fx.nn.softmax(x @ x))(np.ones((64, 64), np.float32)).result()

    def predicted(self) -> tuple[int, int]:
        """Return what is predicted of a run, and of a first call; that compiles, so it is for another process."""
        found = self._staged.memory(*self._arguments)
        return found.peak, found.first

    def grown(self, plain: bool) -> int:
        """Return by how much the peak of resident memory is above what was resident before the first call."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = resident()
        networks.forget_peak()
        result = (self._plain if plain else self._staged)(*self._arguments)
        _settle(result)
        return networks.peak() - before
