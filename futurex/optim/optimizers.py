"""Gradient descent with momentum, Adam and AdamW.

The state is a dict. ``state["lr"]`` is a Python float, so that float32 parameters stay float32, and may be replaced
at any time; so is ``state["step"]``, the count that bias correction needs (exact up to 2**53 steps).

Complex parameters move against the conjugate of their gradients, the direction of steepest ascent, and what scales a
step is the absolute square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, SupportsFloat

import numpy as np

from futurex.tree.pytree import tree_map

State = dict[str, Any]


class Optimizer(Protocol):
    """What :func:`futurex.fit` needs of an optimizer; both methods are pure and may be staged."""

    def init(self, params: Any) -> Any:
        """The state before the first step for parameters of this structure."""
        ...

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step; structures, shapes and dtypes do not change."""
        ...


@dataclass(frozen=True)
class Sgd:
    """Made by :func:`sgd`."""

    lr: float
    momentum: float
    nesterov: bool

    def init(self, params: Any) -> State:
        """``{"lr"}``, with momentum also ``"velocity"`` in the structure of ``params``."""
        return {"lr": self.lr, "velocity": tree_map(np.zeros_like, params)} if self.momentum else {"lr": self.lr}

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step against the gradient."""
        check_state(state, "lr", *(("velocity",) if self.momentum else ()))
        lr, grads = state["lr"], ascent(grads)
        if not self.momentum:
            return tree_map(lambda p, g: p - lr * g, params, grads), {"lr": lr}
        velocity = tree_map(lambda v, g: self.momentum * v + g, state["velocity"], grads)
        way = tree_map(lambda g, v: g + self.momentum * v, grads, velocity) if self.nesterov else velocity
        return tree_map(lambda p, d: p - lr * d, params, way), {"lr": lr, "velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Made by :func:`adam`."""

    lr: float
    b1: float
    b2: float
    eps: float

    def init(self, params: Any) -> State:
        """``{"lr", "step", "m", "v"}``; the moments have the structure of ``params``."""
        return {
            "lr": self.lr, "step": 0.0, "m": tree_map(np.zeros_like, params), "v": tree_map(np.zeros_like, params),
        }  # fmt: skip

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """One step by the bias-corrected moments of the gradient."""
        state, root, first = self.moments(grads, state)
        rate, eps = state["lr"] * root / first, self.eps * root  # one division an element, not two
        params = tree_map(lambda p, m, v: p - rate * (m / (np.sqrt(v) + eps)), params, state["m"], state["v"])
        return params, state

    def moments(self, grads: Any, state: State) -> tuple[State, Any, Any]:
        """The next state, and by what its moments are corrected: the root for the second one, and the first."""
        check_state(state, "lr", "step", "m", "v")
        step, grads = state["step"] + 1.0, ascent(grads)
        m = tree_map(lambda m, g: self.b1 * m + (1.0 - self.b1) * g, state["m"], grads)
        v = tree_map(lambda v, g: self.b2 * v + (1.0 - self.b2) * square(g), state["v"], grads)
        # not np.sqrt: a NumPy scalar would turn float32 into float64; without abs the root may be complex, and
        # arguments would be kept for a second run as plain Python
        root = abs(1.0 - self.b2**step) ** 0.5
        return {"lr": state["lr"], "step": step, "m": m, "v": v}, root, 1.0 - self.b1**step


@dataclass(frozen=True)
class AdamW:
    """Made by :func:`adamw`."""

    adam: Adam
    weight_decay: float

    def init(self, params: Any) -> State:
        """The state of Adam."""
        return self.adam.init(params)

    def update(self, params: Any, grads: Any, state: State) -> tuple[Any, State]:
        """Shrink the parameters, then a step of Adam."""
        check_state(state, "lr")
        keep = 1.0 - state["lr"] * self.weight_decay
        return self.adam.update(tree_map(lambda p: p * keep, params), grads, state)


def ascent(grads: Any) -> Any:
    """The directions in which a loss grows fastest: of complex parameters the conjugates of the gradients."""
    return tree_map(lambda g: np.conj(g) if _is_complex(g) else g, grads)


def square(x: Any) -> Any:
    """The absolute squares of the elements, in their own type."""
    return x * np.conj(x) if _is_complex(x) else x * x


def sum_of_squares(x: Any) -> Any:
    """Of the absolute values of all elements, a real number in their own precision."""
    total = square(x).sum()
    return total.real if _is_complex(x) else total


def _is_complex(x: Any) -> bool:
    return hasattr(x, "dtype") and bool(x.dtype.kind == "c")


def sgd(lr: float, momentum: float = 0.0, nesterov: bool = False) -> Sgd:
    """Gradient descent: ``v = momentum * v + g``, then ``p -= lr * v``, with Nesterov ``lr * (g + momentum * v)``.

    The form of Sutskever et al. (ICML 2013) as PyTorch writes it. Raises ValueError for a learning rate that is not
    positive, momentum outside 0 to 1, or Nesterov without momentum.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.sgd(0.1)
    >>> params, state = optimizer.update(np.ones(2), np.ones(2), optimizer.init(np.ones(2)))
    >>> params
    array([0.9, 0.9])
    """
    momentum = share("momentum", momentum)
    if nesterov and not momentum:
        raise ValueError("nesterov=True looks ahead along the momentum: give momentum as well, such as 0.9")
    return Sgd(positive("lr", lr), momentum, bool(nesterov))


def adam(lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Adam:
    """Adam (Kingma and Ba, arXiv 1412.6980, Algorithm 1).

    Raises ValueError for a learning rate or ``eps`` that is not positive, or ``b1``, ``b2`` outside 0 to 1.

    >>> import numpy as np, futurex as fx
    >>> optimizer = fx.optim.adam(0.1)
    >>> params, state = optimizer.update(np.ones(2), np.ones(2), optimizer.init(np.ones(2)))
    >>> params.round(6), state["step"]
    (array([0.9, 0.9]), 1.0)
    """
    return Adam(positive("lr", lr), share("b1", b1), share("b2", b2), positive("eps", eps))


def adamw(lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 1e-2) -> AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101): ``p *= 1 - lr * weight_decay`` first.

    Raises ValueError as :func:`adam`, and for a negative decay.

    >>> import futurex as fx
    >>> fx.optim.adamw(3e-4).weight_decay
    0.01
    """
    return AdamW(adam(lr, b1, b2, eps), not_negative("weight_decay", weight_decay))


def _number(value: Any) -> float | None:
    """None for what is no number, a text among it that Python would read as one."""
    return float(value) if isinstance(value, SupportsFloat) and not getattr(value, "shape", ()) else None


def positive(name: str, value: float) -> float:
    """The number. Raises ValueError, by its name, for what is none, or not positive."""
    number = _number(value)
    if number is None or not number > 0:
        raise ValueError(f"{name} must be a positive number, not {value!r}")
    return number


def not_negative(name: str, value: float) -> float:
    """The number. Raises ValueError, by its name, for what is none, or negative."""
    number = _number(value)
    if number is None or not number >= 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return number


def share(name: str, value: float) -> float:
    """The number. Raises ValueError, by its name, for what is none of at least 0 and below 1."""
    number = _number(value)
    if number is None or not 0 <= number < 1:
        raise ValueError(f"{name} must be a number of at least 0 and below 1, not {value!r}")
    return number


def check_state(state: Any, *keys: str) -> None:
    """Refuse what is no state of the optimizer: other libraries give it before the parameters."""
    if not isinstance(state, dict) or any(key not in state for key in keys):
        raise TypeError(
            "update takes the parameters, their gradients and the optimizer's state, in this order; the state is what "
            f"init(params) or the last update returned, a dict with {', '.join(keys)}"
        )
