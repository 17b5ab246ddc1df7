"""Loops of numbers and small arrays in double precision, for value and gradient by their first argument."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Case:
    """``function(xp, *arguments)`` in Python's loops. ``scanned(lax, np, *arguments)`` is the same for JAX: a scan over
    rounds of known number, in which what is over changes nothing."""

    title: str
    arguments: tuple[Any, ...]
    function: Callable[..., Any]
    scanned: Callable[..., Any]


def newton(xp: Any, a: Any) -> Any:
    """The cube root by Newton's iteration."""
    x = a
    while abs(x * x * x - a) > TOLERANCE:
        x = x - (x * x * x - a) / (3 * x * x)
    return x


def _newton(lax: Any, np: Any, a: Any) -> Any:
    def round_(x: Any, _: Any) -> Any:
        return np.where(abs(x * x * x - a) > TOLERANCE, x - (x * x * x - a) / (3 * x * x), x), None

    return lax.scan(round_, a, None, length=40)[0]


def fixed_point(xp: Any, a: Any) -> Any:
    """Where ``1 / (1 + a x x)`` is x."""
    x, new = a, 1 / (1 + a * a * a)
    while abs(new - x) > TOLERANCE:
        x, new = new, 1 / (1 + a * new * new)
    return new


def _fixed_point(lax: Any, np: Any, a: Any) -> Any:
    def round_(pair: Any, _: Any) -> Any:
        x, new = pair
        goes_on = abs(new - x) > TOLERANCE
        return (np.where(goes_on, new, x), np.where(goes_on, 1 / (1 + a * new * new), new)), None

    return lax.scan(round_, (a, 1 / (1 + a * a * a)), None, length=80)[0][1]


def logistic_map(xp: Any, r: Any) -> Any:
    """The mean of two hundred rounds."""
    x, total = r / 10, 0.0 * r
    for _ in range(200):
        x = r * x * (1 - x)
        total = total + x
    return total / 200


def _logistic_map(lax: Any, np: Any, r: Any) -> Any:
    def round_(pair: Any, _: Any) -> Any:
        x = r * pair[0] * (1 - pair[0])
        return (x, pair[1] + x), None

    return lax.scan(round_, (r / 10, 0.0 * r), None, length=200)[0][1] / 200


def power_iteration(xp: Any, m: Any) -> Any:
    """The largest eigenvalue of a symmetric matrix."""
    v = m[0]
    w = m @ v
    value, before = (w @ v) / (v @ v), 0 * m[0, 0]
    while abs(value - before) > TOLERANCE:
        v = w / (w @ w) ** 0.5
        w = m @ v
        value, before = w @ v, value
    return value


def _power_iteration(lax: Any, np: Any, m: Any) -> Any:
    w = m @ m[0]
    value = (w @ m[0]) / (m[0] @ m[0])

    def round_(state: Any, _: Any) -> Any:
        w, value, before = state
        v = w / (w @ w) ** 0.5
        new = m @ v
        goes_on = abs(value - before) > TOLERANCE
        now = np.where(goes_on, new @ v, value)
        return (np.where(goes_on, new, w), now, np.where(goes_on, value, before)), None

    return lax.scan(round_, (w, value, 0 * m[0, 0]), None, length=80)[0][1]


def recurrent(xp: Any, w: Any, u: Any, rows: Any, h: Any) -> Any:
    """A network whose states are kept in a list."""
    states = []
    for row in rows:
        h = xp.tanh(w @ h + u @ row)
        states.append(h)
    return (xp.stack(states) ** 2).mean()


def _recurrent(lax: Any, np: Any, w: Any, u: Any, rows: Any, h: Any) -> Any:
    def round_(h: Any, row: Any) -> Any:
        h = np.tanh(w @ h + u @ row)
        return h, h

    return (lax.scan(round_, h, rows)[1] ** 2).mean()


def gated(xp: Any, w: Any, u: Any, rows: Any, h: Any) -> Any:
    """Gated recurrent units (Cho et al., 2014); the weights of both gates and of what is proposed lie side by side."""
    n, total = len(h), 0.0
    for row in rows:
        z = 1 / (1 + xp.exp(-(w[:n] @ h + u[:n] @ row)))
        r = 1 / (1 + xp.exp(-(w[n : 2 * n] @ h + u[n : 2 * n] @ row)))
        h = (1 - z) * h + z * xp.tanh(w[2 * n :] @ (r * h) + u[2 * n :] @ row)
        total = total + (h * h).sum()
    return total


def _gated(lax: Any, np: Any, w: Any, u: Any, rows: Any, h: Any) -> Any:
    n = len(h)

    def round_(pair: Any, row: Any) -> Any:
        h, total = pair
        z = 1 / (1 + np.exp(-(w[:n] @ h + u[:n] @ row)))
        r = 1 / (1 + np.exp(-(w[n : 2 * n] @ h + u[n : 2 * n] @ row)))
        h = (1 - z) * h + z * np.tanh(w[2 * n :] @ (r * h) + u[2 * n :] @ row)
        return (h, total + (h * h).sum()), None

    return lax.scan(round_, (h, 0.0), rows)[0][1]


def memory(xp: Any, w: Any, u: Any, batches: Any, h: Any) -> Any:
    """Long short-term memory (Hochreiter & Schmidhuber, 1997) for a batch."""
    n, c, total = h.shape[1], 0 * h, 0.0
    for batch in batches:
        made = h @ w + batch @ u
        opened = 1 / (1 + xp.exp(-made[:, : 3 * n]))
        c = opened[:, :n] * c + opened[:, n : 2 * n] * xp.tanh(made[:, 3 * n :])
        h = opened[:, 2 * n :] * xp.tanh(c)
        total = total + (h * h).mean()
    return total


def _memory(lax: Any, np: Any, w: Any, u: Any, batches: Any, h: Any) -> Any:
    n = h.shape[1]

    def round_(state: Any, batch: Any) -> Any:
        h, c, total = state
        made = h @ w + batch @ u
        opened = 1 / (1 + np.exp(-made[:, : 3 * n]))
        c = opened[:, :n] * c + opened[:, n : 2 * n] * np.tanh(made[:, 3 * n :])
        h = opened[:, 2 * n :] * np.tanh(c)
        return (h, c, total + (h * h).mean()), None

    return lax.scan(round_, (h, 0 * h, 0.0), batches)[0][2]


STEPS, STEP = 50, 0.05


def flow(xp: Any, w: Any, u: Any, points: Any) -> Any:
    """Where a field, which is a network, takes points: fifty steps of the classical Runge-Kutta method."""
    for _ in range(STEPS):
        points = _moved(xp, w, u, points)
    return (points * points).sum()


def _moved(xp: Any, w: Any, u: Any, points: Any) -> Any:
    k1 = xp.tanh(points @ w) @ u
    k2 = xp.tanh((points + STEP / 2 * k1) @ w) @ u
    k3 = xp.tanh((points + STEP / 2 * k2) @ w) @ u
    k4 = xp.tanh((points + STEP * k3) @ w) @ u
    return points + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _flow(lax: Any, np: Any, w: Any, u: Any, points: Any) -> Any:
    moved = lax.scan(lambda points, _: (_moved(np, w, u, points), None), points, None, length=STEPS)[0]
    return (moved * moved).sum()


def descent(xp: Any, w: Any, x: Any, y: Any) -> Any:
    """The error of logistic regression after a hundred steps from here."""
    for _ in range(100):
        w = w - x.T @ (1 / (1 + xp.exp(-(x @ w))) - y) / len(y)
    p = 1 / (1 + xp.exp(-(x @ w)))
    return ((p - y) ** 2).mean()


def _descent(lax: Any, np: Any, w: Any, x: Any, y: Any) -> Any:
    def round_(w: Any, _: Any) -> Any:
        return w - x.T @ (1 / (1 + np.exp(-(x @ w))) - y) / len(y), None

    w = lax.scan(round_, w, None, length=100)[0]
    p = 1 / (1 + np.exp(-(x @ w)))
    return ((p - y) ** 2).mean()


_MATRIX = np.diag([4.0, 2.5, 2.0, 1.5, 1.0, 0.5]) + 0.1
_normal = np.random.default_rng(0).standard_normal
CASES = {
    "newton": Case("a cube root by Newton's iteration", (np.float64(7.0),), newton, _newton),
    "fixed-point": Case("a fixed point of a fraction", (np.float64(0.7),), fixed_point, _fixed_point),
    "logistic-map": Case("200 rounds of the logistic map", (np.float64(3.2),), logistic_map, _logistic_map),
    "power": Case("power iteration on 6 x 6", (_MATRIX,), power_iteration, _power_iteration),
    "recurrent": Case(
        "recurrent network, 32 wide, 100 rounds",
        (0.1 * _normal((32, 32)), _normal((32, 8)), _normal((100, 8)), np.zeros(32)), recurrent, _recurrent,
    ),
    "recurrent-wide": Case(
        "recurrent network, 128 wide, 100 rounds",
        (0.05 * _normal((128, 128)), _normal((128, 16)), _normal((100, 16)), np.zeros(128)), recurrent, _recurrent,
    ),
    "gated": Case(
        "gated recurrent units, 16 wide, 80 rounds",
        (0.2 * _normal((48, 16)), _normal((48, 8)), _normal((80, 8)), np.zeros(16)), gated, _gated,
    ),
    "memory": Case(
        "long short-term memory, 32 wide, batch 16, 40 rounds",
        (0.2 * _normal((32, 128)), _normal((8, 128)), _normal((40, 16, 8)), np.zeros((16, 32))), memory, _memory,
    ),
    "memory-wide": Case(
        "long short-term memory in single precision, 128 wide, batch 32, 64 rounds",
        tuple(
            each.astype(np.float32) for each in
            (0.05 * _normal((128, 512)), 0.05 * _normal((64, 512)), _normal((64, 32, 64)), np.zeros((32, 128)))
        ),
        memory, _memory,
    ),
    "recurrent-batch": Case(
        "recurrent network in single precision, 256 wide, batch 32, 64 rounds",
        tuple(
            each.astype(np.float32) for each in
            (0.05 * _normal((256, 256)), 0.05 * _normal((256, 64)), _normal((64, 64, 32)), np.zeros((256, 32)))
        ),
        recurrent, _recurrent,
    ),
    "flow": Case(
        "20 points in a field that is a network, 50 steps",
        (0.3 * _normal((4, 32)), 0.3 * _normal((32, 4)), _normal((20, 4))), flow, _flow,
    ),
    "descent": Case(
        "100 steps of logistic regression, 200 x 10",
        (np.zeros(10), _normal((200, 10)), (_normal(200) > 0) * 1.0), descent, _descent,
    ),
}  # fmt: skip


class _Work(ABC):
    """One case in one stack; ``check`` gives a mean by which the stacks are compared."""

    def __init__(self, case: str) -> None:
        self.case = CASES[case]

    @abstractmethod
    def step(self) -> Any:
        """Value and gradient, waited for."""

    def check(self) -> float:
        """The mean of the sizes of value and gradient."""
        return float(np.mean([np.mean(np.abs(np.asarray(each))) for each in self.step()]))


class Futurex(_Work):
    """``fx.value_and_grad`` of the plain function."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        super().__init__(case)
        function = self.case.function
        self.call = fx.value_and_grad(lambda *arguments: function(np, *arguments))

    def step(self) -> Any:
        value, gradient = self.call(*self.case.arguments)
        return value.result(), gradient.result()


class Torch(_Work):
    """PyTorch's tape of the plain function."""

    def __init__(self, case: str) -> None:
        import torch

        super().__init__(case)
        self.torch = torch
        self.arguments = [torch.tensor(each, requires_grad=not k) for k, each in enumerate(self.case.arguments)]

    def step(self) -> Any:
        self.arguments[0].grad = None
        value = self.case.function(self.torch, *self.arguments)
        value.backward()
        return value.detach(), self.arguments[0].grad


class Jax(_Work):
    """``jax.jit`` of ``jax.value_and_grad`` of the scan."""

    def __init__(self, case: str) -> None:
        import jax
        import jax.numpy as jnp
        from jax import lax

        jax.config.update("jax_enable_x64", True)
        super().__init__(case)
        scanned, self.arguments = self.case.scanned, [jnp.asarray(each) for each in self.case.arguments]
        self.call = jax.jit(jax.value_and_grad(lambda *arguments: scanned(lax, jnp, *arguments)))

    def step(self) -> Any:
        value, gradient = self.call(*self.arguments)
        return value.block_until_ready(), gradient.block_until_ready()
