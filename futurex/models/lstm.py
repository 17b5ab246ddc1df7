"""Long short-term memory of Hochreiter and Schmidhuber (Neural Computation 9, 1997), layers on top of one another.

A layer of 256 units over 256 signals has 525,312 parameters, as in Keras: the gates have one bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend import custom_vjp
from futurex.models.initial import glorot_uniform
from futurex.models.layers import Params, classifier, linear
from futurex.nn import dropout


def init(rng: np.random.Generator, channels: int = 6, classes: int = 7, widths: Sequence[int] = (256, 256)) -> Params:
    """Float32 parameters for sequences of ``channels`` signals, with layers of ``widths`` units.

    Glorot-uniform weights; zero biases but for the forget gates, which start at 1 (Jozefowicz et al., ICML 2015).

    >>> import numpy as np
    >>> from futurex.models import count, lstm
    >>> count(lstm.init(np.random.default_rng(0), channels=256)["layers"])
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

    >>> import numpy as np
    >>> from futurex.models import lstm
    >>> params = lstm.init(np.random.default_rng(0), widths=(8, 8))
    >>> lstm.apply(params, np.zeros((2, 80, 6), np.float32)).shape
    (2, 7)
    """
    x = sequence(params, x)[:, -1]
    if key is not None:
        x = dropout(x, rate, key)
    return linear(params["dense"], x)


def sequence(params: Params, x: Any) -> Any:
    """All outputs (N, length, widths[-1]) of the last layer for sequences ``x`` (N, length, channels).

    >>> import numpy as np
    >>> from futurex.models import lstm
    >>> lstm.sequence(lstm.init(np.random.default_rng(0), widths=(8, 4)), np.zeros((2, 80, 6), np.float32)).shape
    (2, 80, 4)
    """
    x = np.moveaxis(x, 1, 0)
    for layer in params["layers"]:
        x = _layer(x, layer["w"], layer["u"], layer["b"])
    return np.moveaxis(x, 0, 1)


@custom_vjp
def _layer(x: Any, w: Any, u: Any, b: Any) -> Any:
    """Outputs (length, N, width) for ``x`` (length, N, channels)."""
    return _steps(x, w, u, b)[0][1:]


def _steps(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any, Any]:
    """Outputs and cells (length + 1, N, width), zero first, and gates (length, N, 4 * width) after their activations.

    The products with the inputs of all steps are one, so that a step has one product and one activation of all gates:
    the sigmoid is ``0.5 + 0.5 * tanh(z / 2)``.
    """
    steps, rows = x.shape[:2]
    width = u.shape[0]
    half = np.full((4, width), 0.5, x.dtype)
    half[2] = 1.0
    half = half.reshape(4 * width)
    rest = 1.0 - half
    given = x @ w + b
    outputs = np.zeros((steps + 1, rows, width), x.dtype)
    cells = np.zeros((steps + 1, rows, width), x.dtype)
    gates = np.empty((steps, rows, 4 * width), x.dtype)
    h = np.zeros((rows, width), x.dtype)
    c = np.zeros((rows, width), x.dtype)
    for step in range(steps):
        a = np.tanh((given[step] + h @ u) * half) * half + rest
        c = a[:, width : 2 * width] * c + a[:, :width] * a[:, 2 * width : 3 * width]
        h = a[:, 3 * width :] * np.tanh(c)
        gates[step] = a
        cells[step + 1] = c
        outputs[step + 1] = h
    return outputs, cells, gates


def _forward(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, tuple[Any, ...]]:
    outputs, cells, gates = _steps(x, w, u, b)
    return outputs[1:], (x, w, u, outputs, cells, gates)


def _backward(kept: tuple[Any, ...], given: Any) -> tuple[Any, Any, Any, Any]:
    """Gradients of inputs, weights and bias: the loop makes those of the gates, products over all steps the rest."""
    x, w, u, outputs, cells, gates = kept
    steps, rows, width = gates.shape[0], gates.shape[1], u.shape[0]
    dz = np.empty((steps, rows, 4 * width), gates.dtype)
    dh = np.zeros((rows, width), gates.dtype)
    dc = np.zeros((rows, width), gates.dtype)
    back = u.T
    for step in range(steps - 1, -1, -1):
        i, f = gates[step, :, :width], gates[step, :, width : 2 * width]
        n, o = gates[step, :, 2 * width : 3 * width], gates[step, :, 3 * width :]
        level = np.tanh(cells[step + 1])
        dh = dh + given[step]
        dc = dc + dh * o * (1.0 - level * level)
        di = dc * n * i * (1.0 - i)
        df = dc * cells[step] * f * (1.0 - f)
        dn = dc * i * (1.0 - n * n)
        do = dh * level * o * (1.0 - o)
        every = np.concatenate([di, df, dn, do], axis=1)
        dz[step] = every
        dc = dc * f
        dh = every @ back
    flat = dz.reshape(steps * rows, 4 * width)
    dw = x.reshape(steps * rows, w.shape[0]).T @ flat
    du = outputs[:-1].reshape(steps * rows, width).T @ flat
    return (flat @ w.T).reshape(x.shape), dw, du, flat.sum(axis=0)


_layer.defvjp(_forward, _backward)
