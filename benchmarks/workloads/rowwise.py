"""Elementwise chains, stencils, reductions and normalisations, float32: the same formulas in every stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

EPS = 1e-5


@dataclass(frozen=True)
class Case:
    """``shape`` of the operand, what is computed, and the bytes that must move: operands and results once each."""

    title: str
    shape: tuple[int, ...]
    work: str
    bytes: int


CASES = {
    "chain-1e6": Case("six functions of 1e6 numbers", (1_000_000,), "chain", 8_000_000),
    "chain-1e7": Case("six functions of 1e7 numbers", (10_000_000,), "chain", 80_000_000),
    "stencil-300": Case("five points of 300 x 300", (300, 300), "stencil", 720_000),
    "stencil-2000": Case("five points of 2000 x 2000", (2000, 2000), "stencil", 32_000_000),
    "batch-norm": Case(
        "batch norm + ReLU, forward and backward, 8 x 56 x 56 x 64", (8, 56, 56, 64), "batch_norm", 3 * 6_422_528
    ),
    "softmax": Case("softmax, 4096 x 1024", (4096, 1024), "softmax", 2 * 16_777_216),
    "layer-norm": Case("layer norm, forward and backward, 4096 x 1024", (4096, 1024), "layer_norm", 3 * 16_777_216),
    "squares": Case("sum of 1e7 squares", (10_000_000,), "squares", 40_000_000),
    "masked": Case("columns summed where positive, 4096 x 1024", (4096, 1024), "masked", 16_777_216),
    "places": Case("places of the largest in rows, 4096 x 1024", (4096, 1024), "places", 16_777_216),
    "running": Case("running sums of rows, 4096 x 1024", (4096, 1024), "running", 2 * 16_777_216),
}


def chain(xp: Any, x: Any) -> Any:
    """Six functions: tanh, exp, log1p, sqrt, sin and the logistic function."""
    return xp.sqrt(xp.exp(xp.tanh(x)) + xp.log1p(x * x)) + xp.sin(x) / (1.0 + xp.exp(-x))


def stencil(xp: Any, u: Any) -> Any:
    """One step of the heat equation, of views that are shifted against each other."""
    inner = u[1:-1, 1:-1]
    return inner + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)


def squares(xp: Any, x: Any) -> Any:
    """One number."""
    return xp.sum(x * x)


def masked(xp: Any, x: Any) -> Any:
    """A reduction of a part of an array; PyTorch has no ``where=``."""
    return xp.where(x > 0, x, 0.0).sum(0) if xp.__name__ == "torch" else xp.sum(x, axis=0, where=x > 0)


def places(xp: Any, x: Any) -> Any:
    """Where in its row the largest number stands."""
    return xp.argmax(x, axis=1)


def running(xp: Any, x: Any) -> Any:
    """Running sums of each row."""
    return xp.cumsum(x, axis=1)


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "chain": chain, "stencil": stencil, "squares": squares, "masked": masked, "places": places, "running": running,
}  # fmt: skip
"""What stands in every stack as NumPy writes it: ``formula(module, x)``."""


def arrays(case: str) -> dict[str, Any]:
    """The operands: x, the cotangent g, and scale and shift of the last axis."""
    rng = np.random.default_rng(0)
    shape = CASES[case].shape
    channels = shape[-1] if len(shape) > 1 else 1
    made = {"x": rng.normal(size=shape), "g": rng.normal(size=shape), "scale": rng.uniform(0.5, 1.5, channels)}
    made["shift"] = rng.normal(size=channels)
    return {name: value.astype(np.float32) for name, value in made.items()}


class _Work(ABC):
    """One case in one stack: ``step`` runs it to its end, ``check`` says what came out."""

    def __init__(self, case: str) -> None:
        self.given = {name: self.array(value) for name, value in arrays(case).items()}
        work = CASES[case].work
        self.function = self.formula(FORMULAS[work]) if work in FORMULAS else getattr(self, work)()

    def array(self, value: Any) -> Any:
        """An array of the stack."""
        return value

    @abstractmethod
    def formula(self, formula: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        """A formula on x, as the stack runs it."""

    @abstractmethod
    def step(self) -> Any:
        """Run the work to its end."""

    def check(self) -> float:
        """A mean of all results, by which the stacks are compared."""
        found = self.step()
        parts = found if isinstance(found, tuple | list) else (found,)
        return float(np.mean([np.mean(np.abs(np.asarray(part, dtype=np.float64))) for part in parts]))


class NumpyWork(_Work):
    """The formulas alone, as NumPy runs them."""

    def formula(self, formula: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        return lambda: formula(np, self.given["x"])

    def step(self) -> Any:
        return self.function()


class FuturexWork(_Work):
    """Futurized functions."""

    def formula(self, formula: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        import futurex as fx

        return self._call(fx.futurize(lambda x: formula(np, x), escape="error"), "x")

    def softmax(self) -> Any:
        import futurex as fx

        return self._call(fx.futurize(fx.nn.softmax), "x")

    def layer_norm(self) -> Any:
        import futurex as fx

        return self._slopes(lambda x, scale, shift: fx.nn.layer_norm(x, scale, shift, EPS))

    def batch_norm(self) -> Any:
        import futurex as fx

        return self._slopes(lambda x, scale, shift: np.maximum(fx.nn.batch_norm(x, scale, shift, EPS)[0], 0))

    def _slopes(self, function: Any) -> Any:
        import futurex as fx

        def total(x: Any, scale: Any, shift: Any, g: Any) -> Any:
            return (function(x, scale, shift) * g).sum()

        return self._call(fx.grad(total, argnums=(0, 1, 2)), "x", "scale", "shift", "g")

    def _call(self, function: Any, *names: str) -> Callable[[], Any]:
        given = [self.given[name] for name in names]
        return lambda: function(*given)

    def step(self) -> Any:
        found = self.function()
        parts = found if isinstance(found, tuple | list) else (found,)
        return [part.result() for part in parts]


class TorchWork(_Work):
    """PyTorch eager; images in channels-last memory."""

    def array(self, value: Any) -> Any:
        import torch

        return torch.as_tensor(value)

    def compiled(self, function: Any) -> Any:
        """The function as the stack runs it."""
        return function

    def formula(self, formula: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        import torch

        function = self.compiled(lambda x: formula(torch, x))
        return lambda: function(self.given["x"])

    def softmax(self) -> Any:
        import torch

        function = self.compiled(lambda x: torch.softmax(x, -1))
        return lambda: function(self.given["x"])

    def layer_norm(self) -> Any:
        import torch

        return self._slopes(
            lambda x, scale, shift: torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, EPS)
        )

    def batch_norm(self) -> Any:
        import torch

        for name in ("x", "g"):
            self.given[name] = self.given[name].permute(0, 3, 1, 2)  # the memory stays channels-last
        norm = torch.nn.functional.batch_norm
        return self._slopes(
            lambda x, scale, shift: torch.relu(norm(x, None, None, scale, shift, training=True, eps=EPS))
        )

    def _slopes(self, function: Any) -> Any:
        import torch

        inputs = [self.given[name].detach().requires_grad_() for name in ("x", "scale", "shift")]
        forward = self.compiled(function)
        return lambda: torch.autograd.grad(forward(*inputs), inputs, self.given["g"])

    def step(self) -> Any:
        return self.function()

    def check(self) -> float:
        found = self.function()
        parts = found if isinstance(found, tuple | list) else (found,)
        return float(np.mean([part.detach().abs().double().mean().item() for part in parts]))


class CompiledTorchWork(TorchWork):
    """``torch.compile``."""

    def compiled(self, function: Any) -> Any:
        import torch

        return torch.compile(function)


class JaxWork(_Work):
    """``jax.jit``; channels last."""

    def array(self, value: Any) -> Any:
        import jax

        return jax.numpy.asarray(value)

    def formula(self, formula: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        import jax

        function = jax.jit(lambda x: formula(jax.numpy, x))
        return lambda: function(self.given["x"])

    def softmax(self) -> Any:
        import jax

        function = jax.jit(lambda x: jax.nn.softmax(x, axis=-1))
        return lambda: function(self.given["x"])

    def layer_norm(self) -> Any:
        return self._slopes(lambda x, scale, shift: _standardised(x, (-1,)) * scale + shift)

    def batch_norm(self) -> Any:
        import jax

        return self._slopes(lambda x, scale, shift: jax.nn.relu(_standardised(x, (0, 1, 2)) * scale + shift))

    def _slopes(self, function: Any) -> Any:
        import jax

        slopes = jax.jit(jax.grad(lambda x, scale, shift, g: (function(x, scale, shift) * g).sum(), argnums=(0, 1, 2)))
        given = [self.given[name] for name in ("x", "scale", "shift", "g")]
        return lambda: slopes(*given)

    def step(self) -> Any:
        import jax

        return jax.block_until_ready(self.function())


def _standardised(x: Any, axes: tuple[int, ...]) -> Any:
    import jax

    return (x - x.mean(axes, keepdims=True)) * jax.lax.rsqrt(x.var(axes, keepdims=True) + EPS)
