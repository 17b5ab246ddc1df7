"""Training steps of small models in each stack."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.small_models import CASES, Case
from benchmarks.workloads.small_stacks import Arrays, FuturexStack, JaxStack, Stack, TorchStack

_STEADY_SECONDS = 1.0  # after which every stack has compiled what it compiles


def initial(case: str) -> tuple[Arrays, tuple[np.ndarray, ...]]:
    """Return weights and the batch, the same in every process."""
    rng = np.random.default_rng(0)
    return CASES[case].weights(rng), CASES[case].batch(rng)


def train_step(s: Stack, case: Case, update: Callable[..., tuple[Arrays, Any]]) -> Callable[..., Any]:
    """Return ``train(params, state, *batch)``, the step that is compiled: new weights, new state and the loss."""
    loss = case.loss
    value_and_grad = s.value_and_grad(lambda params, *batch: loss(s, params, *batch))

    def train(params: Arrays, state: Any, *batch: Any) -> tuple[Arrays, Any, Any]:
        value, grads = value_and_grad(params, *batch)
        params, state = update(params, grads, state)
        return params, state, value

    return train


def updater(s: Stack, case: Case) -> Callable[..., tuple[Arrays, Any]]:
    """Return ``update(params, grads, state)`` of a stack that brings none; the state of Adam is (count, m, v)."""
    root, rate = s.np.sqrt, case.rate

    def sgd(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
        return {k: params[k] - rate * grads[k] for k in params}, state

    def adam(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
        t, m, v = state
        t = t + 1
        m = {k: 0.9 * m[k] + 0.1 * grads[k] for k in params}
        v = {k: 0.999 * v[k] + 0.001 * grads[k] * grads[k] for k in params}
        first, second = 1 - 0.9**t, 1 - 0.999**t
        params = {k: params[k] - rate * (m[k] / first) / (root(v[k] / second) + 1e-8) for k in params}
        return params, (t, m, v)

    return adam if case.optimizer == "adam" else sgd


def initial_state(s: Stack, case: Case, params: Arrays) -> Any:
    """Return what :func:`updater`'s function holds before the first step."""
    if case.optimizer != "adam":
        return ()
    zeros = s.np.zeros_like
    return s.zeros(), {k: zeros(w) for k, w in params.items()}, {k: zeros(w) for k, w in params.items()}


class _TrainingStep(ABC):
    """One forward, backward and update; ``begin`` returns a step from the common weights, which waits for all of it."""

    def __init__(self, case: str) -> None:
        self.case = CASES[case]
        self.weights, self.batch = initial(case)

    @abstractmethod
    def begin(self) -> Callable[[], Any]:
        """Return the step of a training that begins."""

    def check(self, steps: int) -> list[float]:
        """Return the first losses, then step until the stack is in its steady state."""
        step = self.begin()
        losses = [float(step()) for _ in range(steps)]
        end = time.perf_counter() + _STEADY_SECONDS
        while time.perf_counter() < end:
            step()
        self.step = step
        return losses

    def step(self) -> Any:
        """Run one step of the training that goes on."""
        self.step = self.begin()
        return self.step()


class FuturexStep(_TrainingStep):
    """One futurized function with futurex's own optimizer, its arguments given away."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        super().__init__(case)
        self.optimizer = (fx.optim.adam if self.case.optimizer == "adam" else fx.optim.sgd)(self.case.rate)
        step = train_step(FuturexStack(), self.case, self.optimizer.update)
        self.train = fx.futurize(donate=("params", "state"))(step)

    def begin(self) -> Callable[[], Any]:
        train, batch = self.train, self.batch
        params = {k: w.copy() for k, w in self.weights.items()}
        held = [params, self.optimizer.init(params)]

        def step() -> Any:
            *held[:], loss = train(*held, *batch)
            settle(held)
            return loss.result()

        return step


def settle(value: Any) -> None:
    """Wait for every array of dicts, lists and tuples; without a call for each array, which would be part of a step."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list, tuple)):
            settle(each)
        else:
            each.result()


class JaxStep(_TrainingStep):
    """One jitted function, its buffers donated."""

    def __init__(self, case: str, unrolled: bool = False) -> None:
        import jax

        super().__init__(case)
        self.jax, self.stack = jax, JaxStack(unrolled)
        step = train_step(self.stack, self.case, updater(self.stack, self.case))
        self.train = jax.jit(step, donate_argnums=(0, 1))

    def begin(self) -> Callable[[], Any]:
        train, wait, jnp = self.train, self.jax.block_until_ready, self.jax.numpy
        batch = tuple(jnp.array(one) for one in self.batch)
        params = {k: jnp.array(w) for k, w in self.weights.items()}
        held = [params, initial_state(self.stack, self.case, params)]

        def step() -> Any:
            *held[:], loss = train(*held, *batch)
            return wait((held, loss))[1]

        return step


class _TorchStep(_TrainingStep):
    """What both ways of PyTorch begin with."""

    def __init__(self, case: str, compiled: bool) -> None:
        import torch

        super().__init__(case)
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch, self.stack = torch, TorchStack(compiled)

    def _tensor(self, array: np.ndarray, channels: bool) -> Any:
        """Return a copy, integers as PyTorch's own; ``channels``: of an input, whose last axis moves to the second."""
        found = np.moveaxis(array, -1, 1) if channels else array
        return self.torch.from_numpy(np.array(found, np.int64 if array.dtype == np.int32 else None, order="C"))

    def _begin(self) -> tuple[Arrays, tuple[Any, ...]]:
        """Return weights and batch, channels first."""
        first, *others = self.batch
        batch = self._tensor(first, self.case.images), *(self._tensor(one, False) for one in others)
        params = {}
        for name, w in self.weights.items():
            if self.case.images and w.ndim > 2:  # (*kernel, in, out) becomes (out, in, *kernel)
                w = np.moveaxis(w, (-1, -2), (0, 1))
            params[name] = self._tensor(w, False)
        return params, batch


class TorchStep(_TorchStep):
    """PyTorch as it is, with updates in place by its own functions over all weights at once."""

    def __init__(self, case: str) -> None:
        super().__init__(case, compiled=False)

    def begin(self) -> Callable[[], Any]:
        torch, stack, loss, rate = self.torch, self.stack, self.case.loss, self.case.rate
        params, batch = self._begin()
        held = [each.requires_grad_() for each in params.values()]
        value_and_grad = stack.value_and_grad(lambda params, *batch: loss(stack, params, *batch))
        adam = torch.optim.Adam(held, lr=rate, fused=True) if self.case.optimizer == "adam" else None

        def step() -> Any:
            value, grads = value_and_grad(params, *batch)
            if adam is None:
                with torch.no_grad():
                    torch._foreach_add_(held, list(grads.values()), alpha=-rate)
            else:
                for each, grad in zip(held, grads.values(), strict=True):
                    each.grad = grad
                adam.step()
            return value

        return step


class CompiledTorchStep(_TorchStep):
    """The whole step as one function of ``torch.compile``, which writes the weights in place."""

    def __init__(self, case: str) -> None:
        super().__init__(case, compiled=True)
        train = train_step(self.stack, self.case, updater(self.stack, self.case))

        def whole(params: Arrays, state: Any, *batch: Any) -> Any:
            updated, after, value = train(params, state, *batch)
            for name, each in params.items():
                each.copy_(updated[name])
            if state:
                state[0].copy_(after[0])
                for old, new in zip(state[1:], after[1:], strict=True):
                    for name, each in old.items():
                        each.copy_(new[name])
            return value

        self.train = self.torch.compile(whole, fullgraph=True)

    def begin(self) -> Callable[[], Any]:
        params, batch = self._begin()
        state = initial_state(self.stack, self.case, params)
        return lambda: self.train(params, state, *batch)
