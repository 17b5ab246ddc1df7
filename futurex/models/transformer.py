"""The transformer block of Vaswani et al., arXiv 1706.03762, normalised before attention and network (2002.04745).

At 512 wide with a network of 2048 it has 3,152,384 parameters, those of PyTorch's ``TransformerEncoderLayer``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.models.initial import glorot_uniform
from futurex.models.layers import Params, biased, linear
from futurex.nn import dropout, gelu, layer_norm, softmax


def init(rng: np.random.Generator, width: int = 512, heads: int = 8, hidden: int = 2048) -> Params:
    """Float32 parameters: Glorot-uniform weights, zero biases, scales of 1 and shifts of 0.

    Raises ValueError where ``width`` is no multiple of ``heads``.

    >>> import numpy as np
    >>> from futurex.models import count, transformer
    >>> count(transformer.init(np.random.default_rng(0)))
    3152384
    """
    if min(width, heads, hidden) < 1 or width % heads:
        raise ValueError(f"width={width} must be a multiple of heads={heads}, hidden={hidden} at least 1")
    size = width // heads
    weights = glorot_uniform(rng, (width, 3 * width))
    return {
        "norm1": _norm(width),
        "attention": {"w": weights.reshape(width, 3, heads, size), "b": np.zeros((3, heads, size), np.float32)},
        "mix": biased(rng, (width, width), glorot_uniform),
        "norm2": _norm(width),
        "dense1": biased(rng, (width, hidden), glorot_uniform),
        "dense2": biased(rng, (hidden, width), glorot_uniform),
    }


def apply(params: Params, x: Any, causal: bool = False, key: Any = None, rate: float = 0.1) -> Any:
    """The block's output (N, length, width) for ``x`` (N, length, width).

    With ``causal`` no position sees a later one. With ``key`` (see ``fx.random``) dropout of ``rate`` stands behind
    attention and network.

    >>> import numpy as np
    >>> from futurex.models import transformer
    >>> params = transformer.init(np.random.default_rng(0), width=16, heads=2, hidden=32)
    >>> transformer.apply(params, np.ones((2, 5, 16), np.float32), causal=True).shape
    (2, 5, 16)
    """
    y = attend(params, _normalise(params["norm1"], x), causal)
    if key is not None:
        y = dropout(y, rate, key)
    x = x + y
    y = linear(params["dense2"], gelu(linear(params["dense1"], _normalise(params["norm2"], x))))
    if key is not None:
        y = dropout(y, rate, key + np.uint64(1))
    return x + y


def attend(params: Params, x: Any, causal: bool = False) -> Any:
    """Multi-head attention of ``x`` (N, length, width) to itself, mixed over the heads, (N, length, width).

    >>> import numpy as np
    >>> from futurex.models import transformer
    >>> params = transformer.init(np.random.default_rng(0), width=16, heads=2, hidden=32)
    >>> transformer.attend(params, np.ones((2, 5, 16), np.float32)).shape
    (2, 5, 16)
    """
    rows, length, width = x.shape
    _, heads, size = params["attention"]["b"].shape
    weights, bias = params["attention"]["w"].reshape(width, 3 * width), params["attention"]["b"].reshape(3 * width)
    parts = (x @ weights + bias).reshape(rows, length, 3, heads, size)
    q, k, v = (parts[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) * (1.0 / math.sqrt(size))
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, np.asarray(-np.inf, scores.dtype))
    mixed = softmax(scores) @ v
    return linear(params["mix"], mixed.transpose(0, 2, 1, 3).reshape(rows, length, width))


def _norm(width: int) -> Params:
    return {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}


def _normalise(params: Params, x: Any) -> Any:
    return layer_norm(x, params["scale"], params["shift"])
