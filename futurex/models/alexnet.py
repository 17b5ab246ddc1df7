"""AlexNet in the form of Krizhevsky, arXiv 1404.5997: five convolutions and three dense layers, as in torchvision.

For images of 224 x 224 x 3 and 1000 classes it has 61,100,840 parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.models.layers import Params, biased, classifier, linear
from futurex.nn import conv, dropout, max_pool, relu

_CONVOLUTIONS = ((11, 64, 4, 2), (5, 192, 1, 2), (3, 384, 1, 1), (3, 256, 1, 1), (3, 256, 1, 1))
"""Kernel, filters, stride and padding of each."""
_POOLED = (1, 2, 5)  # the convolutions that maximum pooling over 3 x 3 follows, with stride 2
_HIDDEN = 4096


def init(rng: np.random.Generator, classes: int = 1000, size: int = 224, channels: int = 3) -> Params:
    """Float32 parameters for images (size, size, channels): He-normal weights, zero biases.

    Raises ValueError for images of less than 63 x 63, of which the pooling leaves nothing.

    >>> import numpy as np
    >>> from futurex.models import alexnet, count
    >>> count(alexnet.init(np.random.default_rng(0), classes=10, size=63))
    20344650
    """
    params: Params = {}
    left, before = size, channels
    for number, (kernel, filters, stride, padding) in enumerate(_CONVOLUTIONS, 1):
        params[f"conv{number}"] = biased(rng, (kernel, kernel, before, filters))
        left, before = (left + 2 * padding - kernel) // stride + 1, filters
        left = (left - 3) // 2 + 1 if number in _POOLED else left
    if left < 1:
        raise ValueError(f"alexnet needs images of at least 63 x 63, not {size} x {size}")
    params["dense1"] = biased(rng, (left * left * before, _HIDDEN))
    params["dense2"] = biased(rng, (_HIDDEN, _HIDDEN))
    params["dense3"] = classifier(rng, _HIDDEN, classes)
    return params


def apply(params: Params, x: Any, key: Any = None, rate: float = 0.5) -> Any:
    """Logits (N, classes) of images ``x`` (N, size, size, channels).

    With ``key`` (see ``fx.random``) dropout of ``rate`` stands before the first two dense layers, as in training.

    >>> import numpy as np
    >>> from futurex.models import alexnet
    >>> params = alexnet.init(np.random.default_rng(0), classes=10, size=63)
    >>> alexnet.apply(params, np.zeros((2, 63, 63, 3), np.float32)).shape
    (2, 10)
    """
    for number, (_, _, stride, padding) in enumerate(_CONVOLUTIONS, 1):
        layer = params[f"conv{number}"]
        x = relu(conv(x, layer["w"], stride, padding) + layer["b"])
        if number in _POOLED:
            x = max_pool(x, 3, 2)
    x = x.reshape(x.shape[0], -1)
    for number in (1, 2):
        if key is not None:
            x = dropout(x, rate, key + np.uint64(number))
        x = relu(linear(params[f"dense{number}"], x))
    return linear(params["dense3"], x)
