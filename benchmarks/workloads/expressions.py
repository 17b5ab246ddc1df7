"""Everyday NumPy on a million numbers of single precision and on ten thousand: one expression in NumPy, in futurex
and in ``jax.jit``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Formula = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Case:
    """``formula(np, x)`` of an array of this shape and memory order, where ``np`` is the stack's own module of NumPy's
    functions. JAX has its arrays in an order of its own."""

    title: str
    shape: tuple[int, ...]
    formula: Formula
    order: Literal["C", "F"] = "C"


def softmax(np: Any, x: Any) -> Any:
    """Of each row."""
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def entropy(np: Any, x: Any) -> Any:
    """The mean of what the first class of each row costs."""
    z = x - x.max(1, keepdims=True)
    return (np.log(np.exp(z).sum(1)) - z[:, 0]).mean()


def normalised(np: Any, x: Any) -> Any:
    """Each row with mean zero and variance one."""
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)


def five_points(np: Any, x: Any) -> Any:
    """A step of the heat equation with a frame of zeros."""
    p = np.pad(x, 1)
    return x + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x)


def windows(np: Any, x: Any) -> Any:
    """Means of five neighbours; ``jax.numpy`` has no windows, and adds up slices."""
    if hasattr(np, "lib"):
        return np.lib.stride_tricks.sliding_window_view(x, 5, axis=1).mean(-1)
    return sum(x[:, k : x.shape[1] - 4 + k] for k in range(5)) / 5


def sea_water(np: Any, x: Any) -> Any:
    """The density at the surface of water of 35 to 36 thousandths of salt and some 15 degrees (EOS-80, UNESCO 1983)."""
    t, s = 15 + x, 35 + 1 / (1 + x * x)
    fresh = 6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    a = 0.824493 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 + t * -1.6546e-6)
    return 999.842594 + t * fresh + a * s + b * s * np.sqrt(s) + 4.8314e-4 * s * s


def laplacian(np: Any, x: Any) -> Any:
    """Of a picture whose pixels are rows of three."""
    return np.abs(4 * x[1:-1, 1:-1] - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:])


def smoothed(np: Any, x: Any) -> Any:
    """Without its short waves."""
    waves = np.fft.rfft2(x)
    return np.fft.irfft2(waves * np.exp(-0.01 * np.arange(waves.shape[1], dtype=x.dtype)))


def likelihood(np: Any, x: Any) -> Any:
    """The mean logarithm of a mixture of two normal distributions."""
    return np.log(0.3 * np.exp(-0.5 * (x - 1) ** 2) + 0.7 * np.exp(-0.5 * (x + 1) ** 2)).mean()


def mesh(np: Any, x: Any) -> Any:
    """A function on the grid of two axes."""
    a, b = np.meshgrid(x[0], x[1])
    return a * b + a


def picked(np: Any, x: Any) -> Any:
    """What places of its own pick from each row."""
    places = (np.abs(x) * 1000).astype(np.int32) % x.shape[1]
    return np.take_along_axis(x, places, axis=1)


_SQUARE, _SMALL, _TENS = (1000, 1000), (100, 100), (100_000, 10)
CASES = {
    "softmax-10": Case("softmax over 10", _TENS, softmax),
    "softmax-50": Case("softmax over 50", (20_000, 50), softmax),
    "entropy-10": Case("cross entropy over 10", _TENS, entropy),
    "normalised-32": Case("normalised rows of 32", (31_250, 32), normalised),
    "places-10": Case("places of the largest of 10", _TENS, lambda np, x: x.argmax(1)),
    "columns-4": Case("sums of 4 columns", (250_000, 4), lambda np, x: x.sum(0)),
    "largest-3": Case("largest of 3 columns", (333_333, 3), lambda np, x: x.max(0)),
    "deviations-10": Case("deviations of 10 columns", _TENS, lambda np, x: x.std(0)),
    "lengths": Case("lengths of points", (333_333, 3), lambda np, x: np.sqrt((x * x).sum(1))),
    "windows": Case("means of five neighbours", _SQUARE, windows),
    "einsum": Case("einsum ij,ij->i", _SQUARE, lambda np, x: np.einsum("ij,ij->i", x, x)),
    "outer": Case("product of a column and a row, and one", _SQUARE, lambda np, x: x[:, :1] * x[:1] + 1),
    "angle": Case("angles within a turn", _SQUARE, lambda np, x: (x * 100) % np.float32(2 * math.pi)),
    "smoothed": Case("a picture without its short waves", _SQUARE, smoothed),
    "power": Case("power 2.5", _SQUARE, lambda np, x: np.abs(x) ** 2.5),
    "phases": Case("complex exp", _SQUARE, lambda np, x: np.exp(1j * x)),
    "join": Case("an array and its double, one behind the other", _SQUARE, lambda np, x: np.concatenate([x, x * 2])),
    "rolls": Case("two rolls added", _SQUARE, lambda np, x: np.roll(x, 1, 0) + np.roll(x, -1, 1)),
    "frame": Case("five points with a frame of zeros", _SQUARE, five_points),
    "frame-100": Case("five points with a frame of zeros, 100 x 100", _SMALL, five_points),
    "rolls-100": Case("two rolls added, 100 x 100", _SMALL, lambda np, x: np.roll(x, 1, 0) + np.roll(x, -1, 1)),
    "running-100": Case("running sums of rows, 100 x 100", _SMALL, lambda np, x: np.cumsum(x, 1)),
    "columns-100": Case("means of columns, 100 x 100", _SMALL, lambda np, x: x.mean(0)),
    "symmetric": Case("a matrix and its transpose", _SQUARE, lambda np, x: (x + x.T) / 2),
    "sea-water": Case("sea water's equation of state", _SQUARE, sea_water),
    "laplacian": Case("Laplacian of a picture in colours", (577, 577, 3), laplacian),
    "likelihood": Case("log likelihood of a mixture", _SQUARE, likelihood),
    "mesh": Case("a function on a mesh", _SQUARE, mesh),
    "picked": Case("places along rows", _SQUARE, picked),
    "own-transpose": Case("a matrix times its own transpose", _SQUARE, lambda np, x: x.T @ x),
    "fortran-negative": Case("negative, Fortran order", _SQUARE, lambda np, x: -x, "F"),
    "fortran-exp": Case("exp and a product, Fortran order", _SQUARE, lambda np, x: np.exp(-x) * x, "F"),
    "fortran-columns": Case(
        "standardised columns, Fortran order", (100_000, 10), lambda np, x: (x - x.mean(0)) / x.std(0), "F"
    ),
}


def operand(case: str) -> np.ndarray:
    """The array of a case, the same in every process."""
    values = np.random.default_rng(0).standard_normal(CASES[case].shape, dtype=np.float32)
    return np.asarray(values, order=CASES[case].order)


class _Work(ABC):
    """One case in one stack; ``check`` gives a mean by which the stacks are compared."""

    def __init__(self, case: str) -> None:
        self.x, self.formula = operand(case), CASES[case].formula

    @abstractmethod
    def step(self) -> Any:
        """Compute it, and wait."""

    def check(self) -> float:
        """The mean of all sizes of what comes out."""
        return float(np.mean(np.abs(np.asarray(self.step(), np.complex128))))


class Numpy(_Work):
    """NumPy itself."""

    def step(self) -> Any:
        return self.formula(np, self.x)


class Futurex(_Work):
    """The futurized function."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        super().__init__(case)
        formula = self.formula
        self.call = fx.futurize(lambda x: formula(np, x), escape="error")

    def step(self) -> Any:
        return self.call(self.x).result()


class Jax(_Work):
    """``jax.jit`` of the same formula."""

    def __init__(self, case: str) -> None:
        import jax
        import jax.numpy as jnp

        super().__init__(case)
        formula, self.array = self.formula, jnp.asarray(self.x)
        self.call = jax.jit(lambda x: formula(jnp, x))

    def step(self) -> Any:
        return self.call(self.array).block_until_ready()
