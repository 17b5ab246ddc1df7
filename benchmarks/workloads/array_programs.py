"""NumPy programs over arrays of megabytes: what memory do they take?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Program:
    """A function and the shapes of its arguments, which are float64."""

    title: str
    shapes: tuple[tuple[int, ...], ...]
    function: Callable[..., Any]

    def arguments(self) -> list[np.ndarray]:
        """Return numbers between zero and one, the same in every process."""
        rng = np.random.default_rng(0)
        return [rng.random(shape) for shape in self.shapes]


def heat(u: Any) -> Any:
    """Return a plate after fifty steps of heat conduction."""
    for _ in range(50):
        v = u.copy()
        v[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        u = v
    return u


def options(price: Any, strike: Any, time: Any) -> Any:
    """Return prices of options by a logistic approximation of the normal distribution."""
    spread = 0.2 * np.sqrt(time + 0.1)
    first = np.log((price + 0.5) / (strike + 0.5)) / spread + spread / 2
    second = first - spread
    return price / (1 + np.exp(-1.702 * first)) - strike * np.exp(-0.05 * time) / (1 + np.exp(-1.702 * second))


def assignment(points: Any, centres: Any) -> Any:
    """Return the nearest centre of each point, and how far it is."""
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
    return distances.argmin(axis=1), np.sqrt(distances.min(axis=1))


def components(x: Any) -> Any:
    """Return the data in the directions in which they vary most."""
    centred = x - x.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred / len(x))
    return centred @ directions[:, ::-1][:, :8]


def ranks(x: Any) -> Any:
    """Return the rank of each element in its column, from zero to one."""
    return np.argsort(np.argsort(x, axis=0), axis=0) / len(x)


def power(a: Any, x: Any) -> Any:
    """Return the largest eigenvalue and its vector."""
    for _ in range(30):
        y = a @ x
        x = y / np.sqrt((y * y).sum())
    return x @ (a @ x), x


PROGRAMS = {
    "heat": Program("heat on 1000 x 1000, 50 steps", ((1000, 1000),), heat),
    "options": Program("prices of 1e6 options", ((1_000_000,),) * 3, options),
    "assignment": Program("nearest of 16 centres, 1e5 points in 8 dimensions", ((100_000, 8), (16, 8)), assignment),
    "components": Program("principal components of 1e5 x 32", ((100_000, 32),), components),
    "ranks": Program("ranks in 2e4 x 64", ((20_000, 64),), ranks),
    "power": Program("power iteration, 1500 x 1500, 30 steps", ((1500, 1500), (1500,)), power),
}
