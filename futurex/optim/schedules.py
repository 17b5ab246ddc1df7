"""Learning rates that change from step to step, gradients whose norm has a bound, and averages of parameters:
optimizers around another one.

A schedule is a function of the number of steps so far, a float from 0 on, that gives the learning rate: one of those
here, or any of your own. It is staged with the step, so the number is not known while it is traced: what is here
chooses by multiplying with comparisons, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.calls import call
from futurex.frontend.tracer import Tracer
from futurex.nn.operation import operation
from futurex.optim.optimizers import Optimizer, State, check_state, not_negative, positive, share, sum_of_squares
from futurex.tree.pytree import flatten, tree_map

Schedule = Callable[[Any], Any]


@dataclass(frozen=True)
class Scheduled:
    """Made by :func:`scheduled`."""

    optimizer: Any
    schedule: Schedule

    def init(self, params: Any) -> State:
        """The optimizer's own state as ``"inner"``, with the learning rate of the first step, and ``"step"``."""
        return {"step": 0.0, "inner": {**self.optimizer.init(params), "lr": float(self.schedule(0.0))}}

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """A step of the optimizer with the learning rate that the schedule gives for it."""
        check_state(state, "step", "inner")
        step = state["step"]
        # one of the user's may branch, which takes the way of calls in staged code
        lr = call(self.schedule, (step,), {}) if isinstance(step, Tracer) else self.schedule(step)
        inner = {**state["inner"], "lr": lr}
        params, inner = self.optimizer.update(params, grads, inner)
        return params, {"step": step + 1.0, "inner": inner}


@dataclass(frozen=True)
class Clipped:
    """Made by :func:`clipped`."""

    optimizer: Any
    norm: float

    def init(self, params: Any) -> State:
        """The optimizer's own state."""
        state: State = self.optimizer.init(params)
        return state

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """A step of the optimizer on gradients that are scaled down where they are too long."""
        total = sum(sum_of_squares(g) for g in flatten(grads)[0])
        scale = np.minimum(self.norm / (np.sqrt(total) + 1e-6), 1.0)
        shorter = tree_map(lambda g: g * scale.astype(g.dtype), grads)
        params, state = self.optimizer.update(params, shorter, state)
        return params, state


@dataclass(frozen=True)
class Ema:
    """Made by :func:`ema`."""

    optimizer: Any
    decay: float

    def init(self, params: Any) -> State:
        """The optimizer's own state, with ``"average"`` in the structure of ``params``, and equal to them."""
        return {**self.optimizer.init(params), "average": tree_map(np.array, params)}

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """A step of the optimizer, and one of the average towards the parameters that it gives."""
        check_state(state, "average")
        own = {name: value for name, value in state.items() if name != "average"}
        params, own = self.optimizer.update(params, grads, own)
        mean = tree_map(lambda a, p: self.decay * a + (1.0 - self.decay) * p, state["average"], params)
        return params, {**own, "average": mean}


def scheduled(optimizer: Optimizer, schedule: Schedule) -> Scheduled:
    """``optimizer`` with the learning rate that ``schedule(step)`` gives; its own ``lr`` is not used.

    Raises TypeError for what is no optimizer with a learning rate, or no function.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.scheduled(fx.optim.sgd(1.0), fx.optim.cosine(0.1, steps=10))
    >>> state = optimizer.init(np.ones(2))
    >>> params, state = optimizer.update(np.ones(2), np.ones(2), state)
    >>> params, state["step"]
    (array([0.9, 0.9]), 1.0)
    """
    if not callable(schedule):
        raise TypeError(f"a schedule is a function of the step, as fx.optim.cosine(0.1, steps=1000), not {schedule!r}")
    return Scheduled(_given(optimizer, "scheduled"), schedule)


def clipped(optimizer: Optimizer, norm: float) -> Clipped:
    """``optimizer`` on gradients whose common Euclidean norm is at most ``norm`` (Pascanu et al., arXiv 1211.5063).

    Longer ones are scaled down, all by one factor, as PyTorch's ``clip_grad_norm_`` does. Raises ValueError for a norm
    that is not positive, TypeError for what is no optimizer.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.clipped(fx.optim.sgd(1.0), norm=1.0)
    >>> optimizer.update(np.zeros(2), np.array([30.0, 40.0]), optimizer.init(np.zeros(2)))[0].round(6)
    array([-0.6, -0.8])
    """
    return Clipped(_given(optimizer, "clipped"), positive("norm", norm))


def ema(optimizer: Optimizer, decay: float = 0.999) -> Ema:
    """``optimizer`` whose state holds an exponential moving average of the parameters, for :func:`average`.

    It begins with the first parameters, and is ``decay * average + (1 - decay) * params`` behind every step, as
    PyTorch's ``get_ema_multi_avg_fn`` has it (Polyak and Juditsky, 1992, for averages of the way). Training does not
    depend on it. Raises ValueError for a decay outside 0 to 1, TypeError for what is no optimizer.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.ema(fx.optim.sgd(1.0), decay=0.75)
    >>> params, state = optimizer.update(np.ones(2), np.ones(2), optimizer.init(np.ones(2)))
    >>> params, fx.optim.average(state)
    (array([0., 0.]), array([0.75, 0.75]))
    """
    return Ema(_given(optimizer, "ema"), share("decay", decay))


def average(state: Any) -> Any:
    """The average of parameters in a state of :func:`ema`, also where that is inside :func:`scheduled` or
    :func:`clipped`; behind a training ``run.state`` is that state.

    Raises TypeError for a state without one.

    >>> import numpy as np, futurex as fx
    >>> fx.optim.average(fx.optim.ema(fx.optim.adam()).init({"w": np.ones(2)}))
    {'w': array([1., 1.])}
    """
    while isinstance(state, dict) and "average" not in state and "inner" in state:
        state = state["inner"]
    if not isinstance(state, dict) or "average" not in state:
        raise TypeError("average takes the state of an optimizer that keeps one, as fx.optim.ema(fx.optim.adam())")
    return state["average"]


def _given(optimizer: Any, name: str) -> Any:
    able = callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))
    if not able or isinstance(optimizer, type):
        raise TypeError(f"{name} takes an optimizer, as fx.optim.adam(), not {optimizer!r}")
    return optimizer


# -- schedules ---------------------------------------------------------------------------------------------------------


def _chosen(first: Any, when: Any, second: Any) -> Any:
    """``first`` where a comparison holds, else ``second``; both are finite."""
    return when * first + (when == 0) * second


def _done(step: Any, steps: float) -> Any:
    """The share of ``steps`` that is over, 0 to 1."""
    return _chosen(step / steps, step < steps, 1.0)


def _half_wave(share: Any) -> Any:
    """From 1 at 0 to 0 at 1, as the cosine goes."""
    angle = math.pi * share
    cosine = math.cos(angle) if isinstance(angle, float) else operation("math_call", angle, function="cos", options=())
    return 0.5 * (1.0 + cosine)


@dataclass(frozen=True)
class StepDecay:
    """Made by :func:`step_decay`."""

    lr: float
    every: float
    factor: float

    def __call__(self, step: Any) -> Any:
        return self.lr * self.factor ** (step // self.every)


@dataclass(frozen=True)
class Exponential:
    """Made by :func:`exponential`."""

    lr: float
    every: float
    factor: float

    def __call__(self, step: Any) -> Any:
        return self.lr * self.factor ** (step / self.every)


@dataclass(frozen=True)
class Polynomial:
    """Made by :func:`polynomial`."""

    lr: float
    steps: float
    power: float
    least: float

    def __call__(self, step: Any) -> Any:
        return self.least + (self.lr - self.least) * abs(1.0 - _done(step, self.steps)) ** self.power


@dataclass(frozen=True)
class Cosine:
    """Made by :func:`cosine`."""

    lr: float
    steps: float
    least: float

    def __call__(self, step: Any) -> Any:
        return self.least + (self.lr - self.least) * _half_wave(_done(step, self.steps))


@dataclass(frozen=True)
class Warmup:
    """Made by :func:`warmup`."""

    schedule: Schedule
    steps: float
    start: float

    def __call__(self, step: Any) -> Any:
        end = self.schedule(0.0)
        rising = self.start + (end - self.start) * _done(step, self.steps)
        later = _chosen(step - self.steps, step >= self.steps, 0.0)
        return _chosen(rising, step < self.steps, self.schedule(later))


def step_decay(lr: float, every: float, factor: float = 0.1) -> StepDecay:
    """``lr``, multiplied by ``factor`` behind every ``every`` steps.

    >>> import futurex as fx
    >>> [fx.optim.step_decay(1.0, every=2, factor=0.5)(step) for step in (0.0, 1.0, 2.0, 4.0)]
    [1.0, 1.0, 0.5, 0.25]
    """
    return StepDecay(positive("lr", lr), positive("every", every), positive("factor", factor))


def exponential(lr: float, every: float, factor: float = 0.1) -> Exponential:
    """``lr * factor ** (step / every)``: the same, without stairs.

    >>> import futurex as fx
    >>> fx.optim.exponential(1.0, every=2, factor=0.25)(1.0)
    0.5
    """
    return Exponential(positive("lr", lr), positive("every", every), positive("factor", factor))


def polynomial(lr: float, steps: float, power: float = 1.0, least: float = 0.0) -> Polynomial:
    """From ``lr`` to ``least`` within ``steps``, by a power of what is left: 1 is a line.

    >>> import futurex as fx
    >>> [fx.optim.polynomial(1.0, steps=10)(step) for step in (0.0, 5.0, 10.0, 20.0)]
    [1.0, 0.5, 0.0, 0.0]
    """
    least = not_negative("least", least)
    return Polynomial(positive("lr", lr), positive("steps", steps), positive("power", power), least)


def cosine(lr: float, steps: float, least: float = 0.0) -> Cosine:
    """From ``lr`` to ``least`` within ``steps``, along half a wave (Loshchilov and Hutter, arXiv 1608.03983).

    >>> import futurex as fx
    >>> [round(fx.optim.cosine(1.0, steps=10)(step), 6) for step in (0.0, 5.0, 10.0, 20.0)]
    [1.0, 0.5, 0.0, 0.0]
    """
    return Cosine(positive("lr", lr), positive("steps", steps), not_negative("least", least))


def warmup(schedule: Schedule, steps: float, start: float = 0.0) -> Warmup:
    """A line from ``start`` to where ``schedule`` begins, within ``steps``, then ``schedule``.

    Large batches train with a learning rate that grows with them, ``lr * batch_size / 256``, after such a beginning
    (Goyal et al., arXiv 1706.02677).

    >>> import futurex as fx
    >>> rate = fx.optim.warmup(fx.optim.polynomial(1.0, steps=10), steps=4)
    >>> [rate(step) for step in (0.0, 2.0, 4.0, 9.0)]
    [0.0, 0.5, 1.0, 0.5]
    """
    if not callable(schedule):
        raise TypeError(f"a schedule is a function of the step, as fx.optim.cosine(0.1, steps=1000), not {schedule!r}")
    return Warmup(schedule, positive("steps", steps), not_negative("start", start))
