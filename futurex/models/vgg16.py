"""VGG-16, configuration D of Simonyan and Zisserman, arXiv 1409.1556: thirteen 3 x 3 convolutions, three dense layers.

For images of 224 x 224 x 3 and 1000 classes it has 138,357,544 parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.models.layers import Params, biased, classifier, linear
from futurex.nn import conv, dropout, max_pool, relu

_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""The filters of the convolutions of each block; pooling by 2 follows it."""
_HIDDEN = 4096


def init(rng: np.random.Generator, classes: int = 1000, size: int = 224, channels: int = 3) -> Params:
    """Float32 parameters for images (size, size, channels): He-normal weights, zero biases.

    Raises ValueError for images of less than 32 x 32, of which the pooling leaves nothing.

    >>> import numpy as np
    >>> from futurex.models import count, vgg16
    >>> count(vgg16.init(np.random.default_rng(0), classes=10, size=32))
    33638218
    """
    left, before = size // 2 ** len(_BLOCKS), channels
    if left < 1:
        raise ValueError(f"vgg16 needs images of at least 32 x 32, not {size} x {size}")
    blocks: list[list[Params]] = []
    for widths in _BLOCKS:
        blocks.append([])
        for filters in widths:
            blocks[-1].append(biased(rng, (3, 3, before, filters)))
            before = filters
    return {
        "blocks": blocks,
        "dense1": biased(rng, (left * left * before, _HIDDEN)),
        "dense2": biased(rng, (_HIDDEN, _HIDDEN)),
        "dense3": classifier(rng, _HIDDEN, classes),
    }


def apply(params: Params, x: Any, key: Any = None, rate: float = 0.5) -> Any:
    """Logits (N, classes) of images ``x`` (N, size, size, channels).

    With ``key`` (see ``fx.random``) dropout of ``rate`` stands behind the first two dense layers, as in training.

    >>> import numpy as np
    >>> from futurex.models import vgg16
    >>> params = vgg16.init(np.random.default_rng(0), classes=10, size=32)
    >>> vgg16.apply(params, np.zeros((2, 32, 32, 3), np.float32)).shape
    (2, 10)
    """
    for block in params["blocks"]:
        for layer in block:
            x = relu(conv(x, layer["w"], padding=1) + layer["b"])
        x = max_pool(x, 2)
    x = x.reshape(x.shape[0], -1)
    for number in (1, 2):
        x = relu(linear(params[f"dense{number}"], x))
        if key is not None:
            x = dropout(x, rate, key + np.uint64(number))
    return linear(params["dense3"], x)
