"""The multi-layer perceptron: dense layers with ReLU between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.models.initial import glorot_uniform
from futurex.nn import dense, dropout, relu

Params = list[dict[str, Any]]


def init(rng: np.random.Generator, widths: Sequence[int] = (784, 512, 512, 10)) -> Params:
    """Float32 parameters of layers of ``widths``, inputs first: Glorot-uniform weights and zero biases.

    >>> import numpy as np
    >>> from futurex.models import count, mlp
    >>> count(mlp.init(np.random.default_rng(0)))
    669706
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths are the sizes of the input, the layers between and the output; {widths} are not")
    return [
        {"w": glorot_uniform(rng, shape), "b": np.zeros(shape[1], np.float32)} for shape in itertools.pairwise(widths)
    ]


def apply(params: Params, x: Any, key: Any = None, rate: float = 0.5) -> Any:
    """Outputs (N, widths[-1]) for ``x`` (N, ...), whose axes after the first are taken as one.

    With ``key`` dropout of ``rate`` is applied before the last layer.

    >>> import numpy as np
    >>> from futurex.models import mlp
    >>> mlp.apply(mlp.init(np.random.default_rng(0), (64, 10)), np.zeros((5, 8, 8, 1), np.float32)).shape
    (5, 10)
    """
    x = x.reshape(x.shape[0], -1)
    for layer in params[:-1]:
        x = relu(dense(x, layer["w"], layer["b"]))
    if key is not None:
        x = dropout(x, rate, key)
    return dense(x, params[-1]["w"], params[-1]["b"])
