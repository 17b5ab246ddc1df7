"""Long short-term memory of Hochreiter and Schmidhuber (Neural Computation 9, 1997), layers on top of one another.

A layer of 256 units over 256 signals has 525,312 parameters, as in Keras: the gates have one bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.models.initial import glorot_uniform
from futurex.models.layers import Params, classifier, linear
from futurex.nn import dropout, sigmoid


def init(rng: np.random.Generator, channels: int = 6, classes: int = 7, widths: Sequence[int] = (256, 256)) -> Params:
    """Float32 parameters for sequences of ``channels`` signals, with layers of ``widths`` units.

    Glorot-uniform weights; zero biases but for the forget gates, which start at 1 (Jozefowicz et al., ICML 2015).

    >>> from futurex.models import count
    >>> count(init(np.random.default_rng(0), channels=256)["layers"])
    1050624
    """
    if min(channels, classes, *widths, len(widths)) < 1:
        raise ValueError(f"channels, classes and widths must be at least 1, not {channels}, {classes} and {widths}")
    layers, before = [], channels
    for width in widths:
        bias = np.zeros((4, width), np.float32)
        bias[1] = 1.0
        layers.append({
            "w": glorot_uniform(rng, (before, 4 * width)),
            "u": glorot_uniform(rng, (width, 4 * width)),
            "b": bias.ravel(),
        })  # fmt: skip
        before = width
    return {"layers": layers, "dense": classifier(rng, before, classes)}


def apply(params: Params, x: Any, key: Any = None, rate: float = 0.5) -> Any:
    """Logits (N, classes) of sequences ``x`` (N, length, channels), from the last output of the last layer.

    With ``key`` (see ``fx.random``) dropout of ``rate`` stands before the dense layer.

    >>> params = init(np.random.default_rng(0), widths=(8, 8))
    >>> apply(params, np.zeros((2, 80, 6), np.float32)).shape
    (2, 7)
    """
    x = sequence(params, x)[:, -1]
    if key is not None:
        x = dropout(x, rate, key)
    return linear(params["dense"], x)


def sequence(params: Params, x: Any) -> Any:
    """All outputs (N, length, widths[-1]) of the last layer for sequences ``x`` (N, length, channels).

    >>> sequence(init(np.random.default_rng(0), widths=(8, 4)), np.zeros((2, 80, 6), np.float32)).shape
    (2, 80, 4)
    """
    x = np.moveaxis(x, 1, 0)
    for layer in params["layers"]:
        x = _layer(layer, x)
    return np.moveaxis(x, 0, 1)


def _layer(layer: Params, x: Any) -> Any:
    """Outputs (length, N, width); the products with the inputs of all steps are one."""
    steps, rows = x.shape[:2]
    width = layer["u"].shape[0]
    given = x @ layer["w"] + layer["b"]
    h = np.zeros((rows, width), x.dtype)
    c = np.zeros((rows, width), x.dtype)
    out = np.empty((steps, rows, width), x.dtype)
    for step in range(steps):
        z = given[step] + h @ layer["u"]
        i, f, o = (sigmoid(z[:, at * width : (at + 1) * width]) for at in (0, 1, 3))
        c = f * c + i * np.tanh(z[:, 2 * width : 3 * width])
        h = o * np.tanh(c)
        out[step] = h
    return out
