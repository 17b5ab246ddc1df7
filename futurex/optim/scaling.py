"""Optimizers that scale steps by how large gradients have been, or by how large the weights of a layer are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.optim.optimizers import (
    Adam,
    State,
    ascent,
    check_state,
    not_negative,
    positive,
    share,
    square,
    sum_of_squares,
)
from futurex.tree.pytree import tree_map


@dataclass(frozen=True)
class RmsProp:
    """Made by :func:`rmsprop`."""

    lr: float
    decay: float
    eps: float
    momentum: float

    def init(self, params: Any) -> State:
        """``{"lr", "v"}``, with momentum also ``"velocity"``, in the structure of ``params``."""
        state: State = {"lr": self.lr, "v": tree_map(np.zeros_like, params)}
        return {**state, "velocity": tree_map(np.zeros_like, params)} if self.momentum else state

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step against the gradient over the root of its mean square."""
        check_state(state, "lr", "v", *(("velocity",) if self.momentum else ()))
        lr, grads = state["lr"], ascent(grads)
        v = tree_map(lambda v, g: self.decay * v + (1.0 - self.decay) * square(g), state["v"], grads)
        way = tree_map(lambda g, v: g / (np.sqrt(v) + self.eps), grads, v)
        if not self.momentum:
            return tree_map(lambda p, d: p - lr * d, params, way), {"lr": lr, "v": v}
        velocity = tree_map(lambda b, d: self.momentum * b + d, state["velocity"], way)
        return tree_map(lambda p, d: p - lr * d, params, velocity), {"lr": lr, "v": v, "velocity": velocity}


@dataclass(frozen=True)
class Adagrad:
    """Made by :func:`adagrad`."""

    lr: float
    eps: float

    def init(self, params: Any) -> State:
        """``{"lr", "total"}``; the sums of squares have the structure of ``params``."""
        return {"lr": self.lr, "total": tree_map(np.zeros_like, params)}

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step against the gradient over the root of the sum of all squares so far."""
        check_state(state, "lr", "total")
        lr, grads = state["lr"], ascent(grads)
        total = tree_map(lambda t, g: t + square(g), state["total"], grads)
        params = tree_map(lambda p, g, t: p - lr * (g / (np.sqrt(t) + self.eps)), params, grads, total)
        return params, {"lr": lr, "total": total}


@dataclass(frozen=True)
class Lars:
    """Made by :func:`lars`."""

    lr: float
    momentum: float
    weight_decay: float
    trust: float

    def init(self, params: Any) -> State:
        """``{"lr", "velocity"}``, the latter in the structure of ``params``."""
        return {"lr": self.lr, "velocity": tree_map(np.zeros_like, params)}

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step of every array by its own learning rate."""
        check_state(state, "lr", "velocity")
        lr, decay = state["lr"], self.weight_decay

        def moved(v: Any, p: Any, g: Any) -> Any:
            size = norm(p)
            own = _ratio(self.trust * size, norm(g) + decay * size)
            return self.momentum * v + (lr * own) * (g + decay * p)

        velocity = tree_map(moved, state["velocity"], params, ascent(grads))
        return tree_map(lambda p, v: p - v, params, velocity), {"lr": lr, "velocity": velocity}


@dataclass(frozen=True)
class Lamb:
    """Made by :func:`lamb`."""

    adam: Adam
    weight_decay: float

    def init(self, params: Any) -> State:
        """The state of Adam."""
        return self.adam.init(params)

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step of Adam, scaled for every array by its norm over the step's."""
        state, root, first = self.adam.moments(grads, state)
        scale, eps = root / first, self.adam.eps * root

        def moved(p: Any, m: Any, v: Any) -> Any:
            way = scale * (m / (np.sqrt(v) + eps)) + self.weight_decay * p
            return p - (state["lr"] * _ratio(norm(p), norm(way))) * way

        return tree_map(moved, params, state["m"], state["v"]), state


def norm(x: Any) -> Any:
    """The Euclidean norm of all elements, in their own precision."""
    return np.sqrt(sum_of_squares(x))


def _ratio(size: Any, step: Any) -> Any:
    """``size / step``, and 1 where one of them is zero: an array that is nothing yet, or has no gradient."""
    usable = (size > 0) & (step > 0)
    return np.where(usable, size / np.where(usable, step, 1.0), 1.0)


def rmsprop(lr: float = 1e-2, decay: float = 0.99, eps: float = 1e-8, momentum: float = 0.0) -> RmsProp:
    """RMSProp (Tieleman and Hinton, 2012): ``v = decay * v + (1 - decay) * g**2``, then ``p -= lr * g / (sqrt(v) +
    eps)``, as PyTorch writes it.

    Raises ValueError for a learning rate or ``eps`` that is not positive, or ``decay``, ``momentum`` outside 0 to 1.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.rmsprop(0.1, decay=0.0)
    >>> optimizer.update(np.ones(2), np.full(2, 5.0), optimizer.init(np.ones(2)))[0].round(6)
    array([0.9, 0.9])
    """
    return RmsProp(positive("lr", lr), share("decay", decay), positive("eps", eps), share("momentum", momentum))


def adagrad(lr: float = 1e-2, eps: float = 1e-10) -> Adagrad:
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011): ``p -= lr * g / (sqrt(sum of all g**2) + eps)``.

    Raises ValueError for a learning rate or ``eps`` that is not positive.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.adagrad(0.1)
    >>> optimizer.update(np.ones(2), np.full(2, 5.0), optimizer.init(np.ones(2)))[0].round(6)
    array([0.9, 0.9])
    """
    return Adagrad(positive("lr", lr), positive("eps", eps))


def lars(lr: float, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 1e-3) -> Lars:
    """LARS (You, Gitman and Ginsburg, arXiv 1708.03888, Algorithm 1), for large batches.

    Every array has a learning rate of its own, ``lr * trust * norm(p) / (norm(g) + weight_decay * norm(p))``; ``lr``
    alone where one of the norms is zero. Raises ValueError for a learning rate or ``trust`` that is not positive,
    ``momentum`` outside 0 to 1, and a negative decay.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.lars(1.0, trust=0.1)
    >>> optimizer.update(np.ones(4), np.full(4, 100.0), optimizer.init(np.ones(4)))[0].round(6)
    array([0.9, 0.9, 0.9, 0.9])
    """
    decay = not_negative("weight_decay", weight_decay)
    return Lars(positive("lr", lr), share("momentum", momentum), decay, positive("trust", trust))


def lamb(lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, weight_decay: float = 0.01) -> Lamb:
    """LAMB (You et al., arXiv 1904.00962, Algorithm 2), for large batches: Adam's step, scaled for every array.

    The step of an array, decay included, is as long as ``lr`` times the array's norm; it is ``lr`` times Adam's where
    one of the norms is zero. Raises ValueError as :func:`adamw`.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.lamb(0.1, weight_decay=0.0)
    >>> optimizer.update(np.full(2, 3.0), np.ones(2), optimizer.init(np.ones(2)))[0].round(6)
    array([2.7, 2.7])
    """
    adam = Adam(positive("lr", lr), share("b1", b1), share("b2", b2), positive("eps", eps))
    return Lamb(adam, not_negative("weight_decay", weight_decay))
