"""Systems of equations in double precision, for value and gradient by all arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """``function(np, *arguments)``, where ``np`` is the stack's own module, which names what it needs as NumPy does;
    ``given(extent)`` are the arguments."""

    title: str
    extent: int
    function: Callable[..., Any]
    given: Callable[[int], tuple[Any, ...]]


def process(np: Any, theta: Any, x: Any, y: Any) -> Any:
    """The negative log likelihood of a Gaussian process whose covariance falls with the distance, and of noise."""
    square = (x * x).sum(1)
    distance = square[:, None] + square[None, :] - 2 * (x @ x.T)
    covariance = np.exp(theta[0] - 0.5 * distance * np.exp(theta[1])) + np.exp(theta[2]) * np.eye(len(y))
    return 0.5 * y @ np.linalg.solve(covariance, y) + 0.5 * np.linalg.slogdet(covariance)[1]


def solution(np: Any, a: Any, b: Any) -> Any:
    """A number of the solution of a system, as where parameters are found that fit."""
    x = np.linalg.solve(a, b)
    return (x * x).sum()


def density(np: Any, mean: Any, covariance: Any, x: Any) -> Any:
    """The negative log density of many points in a normal distribution."""
    off = x - mean
    return 0.5 * (off * np.linalg.solve(covariance, off.T).T).sum() + 0.5 * len(x) * np.linalg.slogdet(covariance)[1]


def inverse(np: Any, a: Any, w: Any) -> Any:
    """Of an inverse that is used twice."""
    found = np.linalg.inv(a)
    return (found * w).sum() + np.linalg.slogdet(a)[1]


def _points(extent: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return np.array([0.1, 0.2, -1.0]), rng.normal(size=(extent, 3)), rng.normal(size=extent)


def _system(extent: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(extent, extent)) + extent * np.eye(extent), rng.normal(size=extent)


def _normal(extent: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    root = rng.normal(size=(extent, extent)) / extent**0.5
    return rng.normal(size=extent), root @ root.T + np.eye(extent), rng.normal(size=(256, extent))


def _square(extent: int) -> tuple[Any, ...]:
    a, _ = _system(extent)
    return a, np.random.default_rng(3).normal(size=a.shape)


CASES = {
    **{f"process-{n}": Case(f"Gaussian process, {n} points", n, process, _points) for n in (64, 200, 500)},
    **{f"solution-{n}": Case(f"system of {n} equations", n, solution, _system) for n in (100, 500)},
    "density-100": Case("normal density of 256 points in 100 dimensions", 100, density, _normal),
    "inverse-200": Case("inverse and determinant, 200 rows", 200, inverse, _square),
}


class _Work(ABC):
    """One case in one stack; ``check`` gives a number by which the stacks are compared."""

    def __init__(self, case: str) -> None:
        self.case = CASES[case]
        self.arguments = self.case.given(self.case.extent)
        self.places = tuple(range(len(self.arguments)))

    @abstractmethod
    def step(self) -> Any:
        """Value and gradients, waited for."""

    def check(self) -> float:
        """The value and the size of all gradients."""
        value, gradients = self.step()
        return float(value) + sum(float(abs(np.asarray(each)).sum()) for each in gradients)


class Futurex(_Work):
    """The futurized function."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        super().__init__(case)
        function = self.case.function
        self.call = fx.value_and_grad(lambda *arguments: function(np, *arguments), argnums=self.places)

    def step(self) -> Any:
        value, gradients = self.call(*self.arguments)
        return value.result(), [each.result() for each in gradients]


class Torch(_Work):
    """PyTorch in eager mode."""

    def __init__(self, case: str) -> None:
        import torch

        super().__init__(case)
        torch.set_default_dtype(torch.float64)
        self.torch = torch
        self.tensors = [torch.tensor(each, requires_grad=True) for each in self.arguments]

    def step(self) -> Any:
        value = self.case.function(self.torch, *self.tensors)
        return value.detach(), self.torch.autograd.grad(value, self.tensors)


class Jax(_Work):
    """``jax.jit`` of value and gradients."""

    def __init__(self, case: str) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp

        super().__init__(case)
        function = self.case.function
        self.arrays = [jnp.asarray(each) for each in self.arguments]
        self.call = jax.jit(jax.value_and_grad(lambda *arguments: function(jnp, *arguments), argnums=self.places))
        self.ready = jax.block_until_ready

    def step(self) -> Any:
        return self.ready(self.call(*self.arrays))
