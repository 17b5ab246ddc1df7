"""Training steps of the larger networks in futurex, on its public interface alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx
from benchmarks.workloads import networks
from benchmarks.workloads.futurex_side import settle


def loss_of(name: str, dropout: float, local: bool = False) -> Callable[..., Any]:
    """Return ``loss(params, state, x, y, key)``, which gives the loss and the running statistics.

    ``local``: each locality of a cluster normalises its share of the batch by itself.
    """
    network = getattr(fx.models, name)

    def loss(params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        if name == "transformer":
            error = network.apply(params, x) - y
            return (error * error).mean(), state
        if name == "resnet50":
            logits, state = network.train(params, x, state, local=local)
        elif name == "googlenet":
            (logits,), state = network.train(params, x, state, key if dropout else None, dropout)
        else:
            logits = network.apply(params, x, key if dropout else None, dropout)
        return fx.nn.softmax_cross_entropy(logits, y).mean(), state

    return loss


def training_step(name: str, dropout: float, local: bool = False) -> tuple[Callable[..., Any], Any]:
    """Return ``step(params, running, moments, x, y, key)``, which gives the first three anew and the loss, and its
    optimizer."""
    network = networks.NETWORKS[name]
    optimizer: Any = (
        fx.optim.adam(network.rate) if network.optimizer == "adam" else fx.optim.sgd(network.rate, networks.MOMENTUM)
    )
    loss_and_gradient = fx.value_and_grad(loss_of(name, dropout, local), has_aux=True)

    def step(params: Any, running: Any, moments: Any, x: Any, y: Any, key: Any) -> Any:
        (loss, running), gradient = loss_and_gradient(params, running, x, y, key)
        params, moments = optimizer.update(params, gradient, moments)
        return params, running, moments, loss

    return step, optimizer


def initial(name: str, weights: str, optimizer: Any) -> list[Any]:
    """Return parameters, running statistics and the optimizer's state before the first step."""
    params = networks.read_weights(weights)
    state = getattr(getattr(fx.models, name), "init_state", lambda params: ())(params)
    return [params, state, optimizer.init(params)]


class TrainingStep:
    """One forward, backward and update as one futurized function, waited for at every step."""

    def __init__(self, name: str, weights: str, device: str = "cpu", precision: str = "") -> None:
        self.name, self.weights, self.device, self.precision = name, weights, device, precision
        self.step, self._plan = self._build(networks.NETWORKS[name].dropout)

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout."""
        step, _ = self._build(0.0)
        return [step() for _ in range(steps)]

    def forget_peak(self) -> None:
        """Begin to measure peak memory."""
        networks.forget_peak()

    def peak(self) -> int:
        """Return peak memory in bytes."""
        return networks.peak()

    def reasons(self) -> dict[str, str]:
        """Return why operations on a GPU are not computed as they are meant to be."""
        found: dict[str, str] = self._plan().reasons()
        return found

    def _build(self, dropout: float) -> tuple[Callable[[], float], Callable[[], Any]]:
        """Return what makes a step, and what gives the plan that it runs by."""
        step, optimizer = training_step(self.name, dropout)
        train = fx.futurize(step, device=self.device, donate=("params", "running", "moments"))
        if self.precision:
            train = fx.autocast(train, self.precision)
        held = initial(self.name, self.weights, optimizer)
        x, y = networks.batch(self.name)
        count = 0

        def run() -> float:
            nonlocal count
            count += 1
            *held[:], loss = train(*held, x, y, np.uint64(count))
            if self.device == "cpu":
                settle(held)  # on a GPU that would copy everything here; the loss waits for the whole step
            return float(loss)

        return run, lambda: train.trace(*held, x, y, np.uint64(count)).plan
