"""The training steps and the training runs in futurex, on its public interface alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import futurex as fx
from benchmarks.workloads import har
from benchmarks.workloads.cases import CASES, DROPOUT, HAR_POOL, batch, weights

Parameters = dict[str, Any]
WAIT_SECONDS = 1800.0


def har_logits(params: Parameters, x: Any, key: Any, rate: float) -> Any:
    """Return logits (N, 7) of the HAR network; ``rate`` 0 leaves dropout out."""
    for i in range(1, 5):
        x = np.maximum(fx.nn.conv(x, params[f"w{i}"]) + params[f"b{i}"], 0)
        if i == 2:
            x = fx.nn.max_pool(x, HAR_POOL)
    x = x.mean(axis=1)
    if rate:
        x = fx.nn.dropout(x, rate, key)
    return x @ params["w5"] + params["b5"]


def mlp_logits(params: Parameters, x: Any) -> Any:
    """Return logits (N, 10)."""
    x = np.maximum(x @ params["w1"] + params["b1"], 0)
    x = np.maximum(x @ params["w2"] + params["b2"], 0)
    return x @ params["w3"] + params["b3"]


def loss_of(model: str, rate: float) -> Callable[..., Any]:
    """Return ``loss(params, x, y, key)`` of a case, plain NumPy with futurex's layers."""

    def loss(params: Parameters, x: Any, y: Any, key: Any) -> Any:
        if model == "har":
            return fx.nn.softmax_cross_entropy(har_logits(params, x, key, rate), y).mean()
        if model == "mlp":
            return fx.nn.softmax_cross_entropy(mlp_logits(params, x), y).mean()
        z = x @ params["w1"] + params["b1"]
        return (np.logaddexp(np.float32(0), z) - z * y).mean()

    return loss


def optimizer_for(name: str, rate: float) -> Any:
    """Return futurex's own optimizer."""
    return fx.optim.adam(rate) if name == "adam" else fx.optim.sgd(rate)


def settle(value: Any) -> None:
    """Wait for every array of a pytree; raise what one of them failed with."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            settle(each)
    elif isinstance(value, fx.Array):
        value.result(timeout=WAIT_SECONDS)


class TrainingStep:
    """One forward, backward and update as one futurized function, waited for at every step."""

    def __init__(self, case: str) -> None:
        self.case = CASES[case]
        self.step = self._build(DROPOUT[self.case.model])

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout, from the common initial weights."""
        step = self._build(0.0)
        return [step() for _ in range(steps)]

    def _build(self, dropout: float) -> Callable[[], float]:
        loss_and_gradient = fx.value_and_grad(loss_of(self.case.model, dropout))
        optimizer = optimizer_for(self.case.optimizer, self.case.rate)

        @fx.futurize(donate=("params", "state"))
        def train(params: Parameters, state: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any, Any]:
            loss, gradient = loss_and_gradient(params, x, y, key)
            params, state = optimizer.update(params, gradient, state)
            return params, state, loss

        params = weights(self.case.model)
        held = [params, optimizer.init(params)]
        x, y = batch(self.case.model)
        count = 0

        def step() -> float:
            nonlocal count
            count += 1
            *held[:], loss = train(*held, x, y, np.uint64(count))
            settle(held)
            return float(loss)

        return step


class TrainHar:
    """Trains the HAR network from given weights, batches in the order of the common sampler."""

    def train(self, initial: str, seed: int, epochs: int, limit: int | None) -> dict[str, Any]:
        """Return the accuracy on unseen subjects, the loss of each epoch and the seconds of the run."""
        data = har.load(limit)
        run = fx.fit(
            loss_of("har", DROPOUT["har"]),
            har.read_weights(initial),
            (data.x_train, data.y_train),
            optimizer=optimizer_for("adam", har.RATE),
            epochs=epochs,
            batch_size=har.BATCH,
            seed=seed,
        )
        params = run.result(timeout=WAIT_SECONDS)
        predict = fx.futurize(lambda params, x: har_logits(params, x, np.uint64(0), 0.0))
        logits = np.concatenate([np.asarray(predict(params, x)) for x in har.parts(data.x_test)])
        return {
            "accuracy": har.accuracy(logits, data.y_test),
            "losses": [float(each["loss"]) for each in run.history],
            "seconds": sum(each["seconds"] for each in run.history),
        }


class FitSteps:
    """Measures ``fx.fit`` per step: here, or on a cluster of ``localities`` of the embedded kind.

    The first epoch of a run, which compiles and ships the plan, is left out; every further epoch gives one figure.
    """

    STEPS_PER_EPOCH = 20

    def __init__(self, case: str, localities: int) -> None:
        self._case = CASES[case]
        self._cluster = fx.Cluster(localities) if localities else None
        x, y = batch(self._case.model)
        self._batch_size = len(x)
        self._data = tuple(np.concatenate([part] * self.STEPS_PER_EPOCH) for part in (x, y))

    def time(self, repetitions: int) -> list[float]:
        """Return seconds per step of enough epochs to make at least ``repetitions`` steps."""
        epochs = 1 + math.ceil(repetitions / self.STEPS_PER_EPOCH)
        run = fx.fit(
            loss_of(self._case.model, DROPOUT[self._case.model]),
            weights(self._case.model),
            self._data,
            optimizer=optimizer_for(self._case.optimizer, self._case.rate),
            epochs=epochs,
            batch_size=self._batch_size,
            on=self._cluster,
            seed=0,
        )
        run.result(timeout=WAIT_SECONDS)
        return [each["seconds"] / self.STEPS_PER_EPOCH for each in run.history[1:]]

    def close(self) -> None:
        """Close the cluster."""
        if self._cluster is not None:
            self._cluster.close()
