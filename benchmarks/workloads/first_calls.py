"""The same functions in every stack, built when asked for: how long until a result, and until all is compiled."""

from __future__ import annotations

import importlib
import itertools
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from benchmarks.workloads.array_programs import heat

CASES = {
    "chain": "elementwise chain of six functions, 1e6 float32",
    "loop": "a recurrence of 1e5 rounds over scalars",
    "heat": "NumPy program: heat on 300 x 300, 50 steps",
    "recurrent": "gradient of a recurrent network whose 100 rounds append to a list",
    "mlp-sgd": "training step: MLP 784-512-512-10, batch 128, SGD",
    "har-adam": "training step: HAR 1-D CNN, batch 128, Adam",
}
ROUNDS = 100_000
STEADY = 1.5  # times the steady time: what counts as a steady call
STEPS, AT_ONCE = 40, 5
"""Calls at least, and calls whose median is steady."""
PATIENCE = 60.0


def chain(xp: Any, x: Any) -> Any:
    """Return an array."""
    return xp.tanh(xp.exp(-x * x) * xp.sqrt(xp.abs(x) + 1) + x * 0.5) - xp.sin(x)


def recurrence(x: Any) -> Any:
    """Return a number that takes ``ROUNDS`` rounds."""
    total = 0.0
    for k in range(ROUNDS):
        total = total * 0.5 + x[k % 100] * k
    return total


def network(xp: Any, w: Any, u: Any, x: Any) -> Any:
    """Return a number that is made of the states of all rounds."""
    h, states = xp.zeros(len(w)), []
    for t in range(len(x)):
        h = xp.tanh(w @ h + u @ x[t])
        states.append(h)
    return (xp.stack(states) ** 2).mean()


def _weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of a state of 32 numbers, of 8 inputs, and the inputs of 100 rounds."""
    rng = np.random.default_rng(0)
    return 0.1 * rng.standard_normal((32, 32)), rng.standard_normal((32, 8)), rng.standard_normal((100, 8))


def _plate() -> np.ndarray:
    return np.random.default_rng(0).random((300, 300))


def _values() -> np.ndarray:
    return np.linspace(-3, 3, 1_000_000, dtype=np.float32)


class _First(ABC):
    """A stack whose libraries are imported; ``measure`` builds the function of a case and calls it."""

    training = ""
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, case: str) -> None:
        self.case = case
        if "-" in case:
            self._steps = importlib.import_module(f"benchmarks.workloads.{self.training}").TrainingStep
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Import what is needed."""

    @abstractmethod
    def build(self) -> Callable[[], Any]:
        """Return a function that makes one call and waits for its result."""

    def measure(self, seconds: float) -> dict[str, float]:
        """Return seconds: of the first call, until steady ones began, of a steady one; calls go on for so many."""
        start = time.perf_counter()
        call = self._steps(self.case, **self.options).step if "-" in self.case else self.build()
        ends = [start]
        while len(ends) < 2 or ends[-1] - ends[1] < (seconds if len(ends) > STEPS else PATIENCE):
            call()
            ends.append(time.perf_counter())
        spans = [b - a for a, b in itertools.pairwise(ends)]
        steady = statistics.median(spans[len(spans) // 2 :])
        calm = (
            k for k, span in enumerate(spans)
            if max(span, statistics.median(spans[k : k + AT_ONCE])) <= STEADY * steady
        )  # fmt: skip
        begins = next(calm, len(spans) - 1)
        return {"first": spans[0], "until steady": ends[begins] - start, "steady": steady}


class Futurex(_First):
    """``fx.futurize``."""

    training = "futurex_side"

    def prepare(self) -> None:
        import futurex as fx

        self._futurize, self._gradient = fx.futurize, fx.grad

    def build(self) -> Callable[[], Any]:
        if self.case == "loop":
            f, x = self._futurize(recurrence), np.linspace(0.0, 1.0, 100)
        elif self.case == "heat":
            f, x = self._futurize(heat), _plate()
        elif self.case == "recurrent":
            x, *others = _weights()
            f = self._futurize(self._gradient(lambda w: network(np, w, *others)))
        else:
            f, x = self._futurize(lambda x: chain(np, x)), _values()
        return lambda: f(x).result()


class Jax(_First):
    """``jax.jit``."""

    training = "jax_side"

    def prepare(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", self.case in ("loop", "heat", "recurrent"))
        self._jax = jax

    def build(self) -> Callable[[], Any]:
        jax, jnp = self._jax, self._jax.numpy
        if self.case == "loop":
            x = jnp.linspace(0.0, 1.0, 100)

            def function(x: Any) -> Any:
                return jax.lax.fori_loop(0, ROUNDS, lambda k, total: total * 0.5 + x[k % 100] * k, 0.0)
        elif self.case == "heat":
            x = jnp.asarray(_plate())

            def round_(_: Any, u: Any) -> Any:
                neighbours = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
                return u.at[1:-1, 1:-1].add(0.1 * (neighbours - 4 * u[1:-1, 1:-1]))

            def function(u: Any) -> Any:
                return jax.lax.fori_loop(0, 50, round_, u)
        elif self.case == "recurrent":
            x, *others = map(jnp.asarray, _weights())
            function = jax.grad(lambda w: network(jnp, w, *others))
        else:
            x = jnp.asarray(_values())

            def function(x: Any) -> Any:
                return chain(jnp, x)

        f = jax.jit(function)
        return lambda: f(x).block_until_ready()


class Torch(_First):
    """``torch.compile``."""

    training = "torch_side"
    options: ClassVar[dict[str, Any]] = {"compiled": True}

    def prepare(self) -> None:
        import torch

        if self.case in ("loop", "heat", "recurrent"):
            raise ImportError("torch.compile unrolls the loop")
        self._torch = torch

    def build(self) -> Callable[[], Any]:
        torch = self._torch
        x = torch.as_tensor(_values())
        f = torch.compile(lambda x: chain(torch, x))
        return lambda: f(x)


class Numpy(_First):
    """The functions as they are."""

    def prepare(self) -> None:
        """NumPy is there, without derivatives."""
        if self.case == "recurrent":
            raise ImportError("NumPy has no derivatives")

    def build(self) -> Callable[[], Any]:
        if self.case == "heat":
            plate = _plate()
            return lambda: heat(plate)
        x = np.linspace(0.0, 1.0, 100) if self.case == "loop" else _values()
        return lambda: recurrence(x) if self.case == "loop" else chain(np, x)
