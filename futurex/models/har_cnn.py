"""The one-dimensional convolutional network for human activity recognition that Phylanx was measured on.

Two convolutions of 100 filters, pooling by 3, two of 160 filters, all over 10 samples with ReLU; global average
pooling, dropout and a dense layer. For 3 channels and 6 classes it has the 520,486 parameters of the published Keras
model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.models.initial import glorot_uniform
from futurex.nn import conv, dense, dropout, global_average_pool, max_pool, relu

KERNEL, POOL = 10, 3
FILTERS = (100, 100, 160, 160)

Params = dict[str, dict[str, Any]]


def init(rng: np.random.Generator, channels: int = 6, classes: int = 7) -> Params:
    """Float32 parameters for windows of ``channels`` signals: Glorot-uniform weights, zero biases, as in Keras.

    >>> import numpy as np
    >>> from futurex.models import count, har_cnn
    >>> count(har_cnn.init(np.random.default_rng(0), channels=3, classes=6))
    520486
    """
    if channels < 1 or classes < 1:
        raise ValueError(f"channels and classes must be at least 1, not {channels} and {classes}")
    params: Params = {}
    before = channels
    for number, filters in enumerate(FILTERS, 1):
        params[f"conv{number}"] = _layer(rng, (KERNEL, before, filters))
        before = filters
    params["dense"] = _layer(rng, (before, classes))
    return params


def apply(params: Params, x: Any, key: Any = None, rate: float = 0.5) -> Any:
    """Logits (N, classes) of windows ``x`` (N, length, channels).

    With ``key`` (see ``fx.random``) dropout of ``rate`` is applied, as in training; without one it is left out.

    >>> import numpy as np
    >>> from futurex.models import har_cnn
    >>> har_cnn.apply(har_cnn.init(np.random.default_rng(0)), np.zeros((2, 80, 6), np.float32)).shape
    (2, 7)
    """
    for number in range(1, len(FILTERS) + 1):
        layer = params[f"conv{number}"]
        x = relu(conv(x, layer["w"]) + layer["b"])
        if number == 2:
            x = max_pool(x, POOL)
    x = global_average_pool(x)
    if key is not None:
        x = dropout(x, rate, key)
    return dense(x, params["dense"]["w"], params["dense"]["b"])


def _layer(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"w": glorot_uniform(rng, shape), "b": np.zeros(shape[-1], np.float32)}
