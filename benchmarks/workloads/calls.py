"""Calls whose arithmetic is nothing, so that what is left is the cost of a call: the same functions in every stack."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

CASES = {
    "few": "three arrays of 8 float64",
    "tree": "a dict of 20 arrays of 8 float64 in, the same out",
    "outside": "three arrays; a global, a closure variable, an attribute and an array from outside",
}
BURST = 50
RATE = 0.5


class Setting:
    """An object whose attribute a function reads."""

    scale = 2.0


SETTING = Setting()
OFFSET = np.linspace(0.0, 1.0, 8)


def few(x: Any, y: Any, z: Any) -> Any:
    """Return an array."""
    return x * y + z


def tree(params: dict[str, Any]) -> dict[str, Any]:
    """Return a dict of arrays."""
    return {name: value * 0.5 for name, value in params.items()}


def outside(shift: float, offset: Any) -> Callable[..., Any]:
    """Return a function that reads a global, a closure variable, an attribute and an array from outside."""

    def function(x: Any, y: Any, z: Any) -> Any:
        return (x * RATE + y) * SETTING.scale + z * shift + offset

    return function


def arguments(case: str, array: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the arguments of a case, each array made by ``array``."""
    arrays = [array(np.linspace(0.0, 1.0, 8) + k) for k in range(20)]
    return ({f"w{k}": value for k, value in enumerate(arrays)},) if case == "tree" else tuple(arrays[:3])


def function_of(case: str, array: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function of a case."""
    return {"few": few, "tree": tree}.get(case) or outside(3.0, array(OFFSET))


class _Calls:
    """Calls of one function, each waited for."""

    def __init__(self, case: str) -> None:
        self.arguments = arguments(case, self.array)
        self.function = self.compiled(function_of(case, self.array))
        self.wait(self.function(*self.arguments))

    def array(self, value: Any) -> Any:
        """An array of the stack."""
        return value

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the stack calls it."""
        return function

    def wait(self, result: Any) -> None:
        """Return when the result is there."""

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of a call, each the mean of a burst: one call is close to what the clock can tell."""
        function, given, wait = self.function, self.arguments, self.wait
        seconds = []
        for _ in range(max(1, repetitions // BURST)):
            start = time.perf_counter()
            for _ in range(BURST):
                wait(function(*given))
            seconds.append((time.perf_counter() - start) / BURST)
        return seconds


class NumpyCalls(_Calls):
    """The function as it is."""


class FuturexCalls(_Calls):
    """The futurized function."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import futurex as fx

        return fx.futurize(function, escape="error")

    def wait(self, result: Any) -> None:
        for each in result.values() if isinstance(result, dict) else (result,):
            each.result()


class JaxCalls(_Calls):
    """``jax.jit``, with float64."""

    def array(self, value: Any) -> Any:
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(value)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        self._block = jax.block_until_ready
        return jax.jit(function)

    def wait(self, result: Any) -> None:
        self._block(result)


class TorchCalls(_Calls):
    """PyTorch eager."""

    def array(self, value: Any) -> Any:
        import torch

        return torch.as_tensor(value)


class CompiledTorchCalls(TorchCalls):
    """``torch.compile``."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        return torch.compile(function)
