"""Loops of numbers and small arrays in double precision, for value and gradient with respect to their argument."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Case:
    """``function(x)`` by Python's operators alone, of an argument like this one. ``masked(lax, np, x)`` is the same for
    JAX: rounds of known number, in which what is over changes nothing."""

    title: str
    example: Any
    function: Callable[[Any], Any]
    masked: Callable[[Any, Any, Any], Any]


def newton(a: Any) -> Any:
    """The cube root by Newton's iteration."""
    x = a
    while abs(x * x * x - a) > TOLERANCE:
        x = x - (x * x * x - a) / (3 * x * x)
    return x


def _newton(lax: Any, np: Any, a: Any) -> Any:
    def round_(x: Any, _: Any) -> Any:
        return np.where(abs(x * x * x - a) > TOLERANCE, x - (x * x * x - a) / (3 * x * x), x), None

    return lax.scan(round_, a, None, length=40)[0]


def fixed_point(a: Any) -> Any:
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


def logistic_map(r: Any) -> Any:
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


def power_iteration(m: Any) -> Any:
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


_MATRIX = np.diag([4.0, 2.5, 2.0, 1.5, 1.0, 0.5]) + 0.1
CASES = {
    "newton": Case("a cube root by Newton's iteration", np.float64(7.0), newton, _newton),
    "fixed-point": Case("a fixed point of a fraction", np.float64(0.7), fixed_point, _fixed_point),
    "logistic-map": Case("200 rounds of the logistic map", np.float64(3.2), logistic_map, _logistic_map),
    "power": Case("power iteration on 6 x 6", _MATRIX, power_iteration, _power_iteration),
}


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
        self.call = fx.value_and_grad(self.case.function)

    def step(self) -> Any:
        value, gradient = self.call(self.case.example)
        return value.result(), gradient.result()


class Torch(_Work):
    """PyTorch's tape of the plain function."""

    def __init__(self, case: str) -> None:
        import torch

        super().__init__(case)
        self.argument = torch.tensor(self.case.example, requires_grad=True)

    def step(self) -> Any:
        self.argument.grad = None
        value = self.case.function(self.argument)
        value.backward()
        return value.detach(), self.argument.grad


class Jax(_Work):
    """``jax.jit`` of ``jax.value_and_grad`` of the loop of known rounds."""

    def __init__(self, case: str) -> None:
        import jax
        import jax.numpy as jnp
        from jax import lax

        jax.config.update("jax_enable_x64", True)
        super().__init__(case)
        masked, self.argument = self.case.masked, jnp.asarray(self.case.example)
        self.call = jax.jit(jax.value_and_grad(lambda x: masked(lax, jnp, x)))

    def step(self) -> Any:
        value, gradient = self.call(self.argument)
        return value.block_until_ready(), gradient.block_until_ready()
