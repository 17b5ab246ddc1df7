"""What several networks are made of: layers with their parameters, and batch normalisation with running statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.models.initial import glorot_uniform, he_normal
from futurex.nn import batch_norm, conv, dense
from futurex.nn.layers import Padding, Sizes

Params = dict[str, Any]
State = Any
"""Running statistics: the structure of the parameters, with a mean and a variance for every normalised layer."""


def biased(rng: np.random.Generator, shape: Sequence[int], draw: Callable[..., Any] = he_normal) -> Params:
    """Weights of ``shape`` (*kernel, in, out) and a bias of zeros."""
    return {"w": draw(rng, shape), "b": np.zeros(shape[-1], np.float32)}


def normalised(rng: np.random.Generator, shape: Sequence[int]) -> Params:
    """Weights of ``shape`` without a bias, and the scale and shift of the normalisation behind them."""
    outputs = shape[-1]
    return {"w": he_normal(rng, shape), "scale": np.ones(outputs, np.float32), "shift": np.zeros(outputs, np.float32)}


def classifier(rng: np.random.Generator, inputs: int, classes: int) -> Params:
    """The last dense layer of a network."""
    return biased(rng, (inputs, classes), glorot_uniform)


def linear(layer: Params, x: Any) -> Any:
    """``x @ w + b``."""
    return dense(x, layer["w"], layer["b"])


def convolve(
    layer: Params, x: Any, running: State, stride: Sizes = 1, padding: Padding = 0, eps: float = 1e-5,
    *, local: bool = False,
) -> tuple[Any, State]:  # fmt: skip
    """A convolution and batch normalisation: ``(y, statistics)``.

    Without ``running`` the statistics are those of this batch, the variance the unbiased one, as a running mean wants
    it; otherwise ``running`` itself, by which ``y`` is normalised. ``local`` is that of ``fx.nn.batch_norm``.
    """
    y = conv(x, layer["w"], stride, padding)
    if running is not None:
        gain = layer["scale"] / np.sqrt(running["var"] + eps)
        return y * gain + (layer["shift"] - running["mean"] * gain), running
    size = y.size // y.shape[-1]
    y, mean, var = batch_norm(y, layer["scale"], layer["shift"], eps, local)
    return y, {"mean": mean, "var": var * (size / max(size - 1, 1))}


def within(state: State, name: Any) -> State:
    """The part of the running statistics that belongs to a part of the network, None where there are none."""
    return None if state is None else state[name]


def initial_state(params: Any) -> State:
    """Running statistics before any training: means of 0 and variances of 1 for every normalised layer of ``params``.

    >>> initial_state({"stem": {"w": np.ones((1, 1, 2)), "scale": np.ones(2), "shift": np.zeros(2)}})
    {'stem': {'mean': array([0., 0.]), 'var': array([1., 1.])}}
    """
    if isinstance(params, list):
        return [initial_state(part) for part in params]
    if "scale" in params:
        return {"mean": np.zeros_like(params["shift"]), "var": np.ones_like(params["scale"])}
    parts = {name: initial_state(part) for name, part in params.items() if isinstance(part, dict | list)}
    return {name: part for name, part in parts.items() if part}


def moved(state: State, statistics: State, momentum: float) -> State:
    """Running statistics moved by a share of ``momentum`` to those of a batch.

    >>> moved({"mean": np.zeros(1), "var": np.ones(1)}, {"mean": np.ones(1), "var": np.ones(1)}, 0.25)
    {'mean': array([0.25]), 'var': array([1.])}
    """
    if isinstance(state, list):
        return [moved(part, other, momentum) for part, other in zip(state, statistics, strict=True)]
    if isinstance(state, dict):
        return {name: moved(part, statistics[name], momentum) for name, part in state.items()}
    return state * (1.0 - momentum) + statistics * momentum
