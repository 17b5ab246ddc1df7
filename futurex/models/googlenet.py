"""GoogLeNet of Szegedy et al., arXiv 1409.4842, with batch normalisation and no local response normalisation.

As in torchvision the third branch of an inception block has a 3 x 3 convolution where the paper has 5 x 5. For images
of three channels and 1000 classes it has 6,624,904 parameters, 13,004,888 with the auxiliary classifiers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.models.layers import (
    Params,
    State,
    biased,
    classifier,
    convolve,
    initial_state,
    linear,
    moved,
    normalised,
    within,
)
from futurex.nn import avg_pool, dropout, global_average_pool, max_pool, relu

_EPSILON = 1e-3
_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Filters of the branches of each block: 1 x 1; reduction and 3 x 3; reduction and the other 3 x 3; behind pooling."""
_POOLED_AFTER = {"3b": 3, "4e": 2}
_AUXILIARY = {"4a": 512, "4d": 528}
"""The blocks that an auxiliary classifier follows, and the channels that they give."""


def init(rng: np.random.Generator, classes: int = 1000, channels: int = 3, auxiliary: bool = False) -> Params:
    """Float32 parameters: He-normal weights, scales of 1 and shifts of 0.

    Images may have any size from 32 x 32 on; with the ``auxiliary`` classifiers they are 224 x 224.

    >>> import numpy as np
    >>> from futurex.models import count, googlenet
    >>> count(googlenet.init(np.random.default_rng(0))), count(googlenet.init(np.random.default_rng(0), auxiliary=True))
    (6624904, 13004888)
    """
    params: Params = {
        "stem1": normalised(rng, (7, 7, channels, 64)),
        "stem2": normalised(rng, (1, 1, 64, 64)),
        "stem3": normalised(rng, (3, 3, 64, 192)),
    }
    before = 192
    for name, (alone, narrow3, wide3, narrow5, wide5, pooled) in _INCEPTIONS.items():
        params[name] = {
            "alone": normalised(rng, (1, 1, before, alone)),
            "second1": normalised(rng, (1, 1, before, narrow3)),
            "second2": normalised(rng, (3, 3, narrow3, wide3)),
            "third1": normalised(rng, (1, 1, before, narrow5)),
            "third2": normalised(rng, (3, 3, narrow5, wide5)),
            "pooled": normalised(rng, (1, 1, before, pooled)),
        }
        before = alone + wide3 + wide5 + pooled
    if auxiliary:
        for name, width in _AUXILIARY.items():
            params[f"auxiliary{name}"] = {
                "conv": normalised(rng, (1, 1, width, 128)),
                "dense1": biased(rng, (4 * 4 * 128, 1024)),
                "dense2": classifier(rng, 1024, classes),
            }
    params["dense"] = classifier(rng, before, classes)
    return params


def apply(params: Params, x: Any, state: State = None, key: Any = None, rate: float = 0.2) -> Any:
    """Logits (N, classes) of images ``x`` (N, height, width, channels), without those of the auxiliary classifiers.

    With ``state``, the running statistics that :func:`train` has gathered, the layers normalise by it; without one by
    the statistics of this batch, as in training. With ``key`` dropout of ``rate`` stands before the last layer.

    >>> import numpy as np
    >>> from futurex.models import googlenet
    >>> params = googlenet.init(np.random.default_rng(0), classes=10)
    >>> googlenet.apply(params, np.zeros((2, 32, 32, 3), np.float32)).shape
    (2, 10)
    """
    return _forward(params, x, state, key, rate)[0][0]


def train(
    params: Params, x: Any, state: State, key: Any = None, rate: float = 0.2, momentum: float = 0.1
) -> tuple[tuple[Any, ...], State]:
    """``(outputs, state)``: logits normalised by the batch, and the running statistics moved to its own.

    ``outputs`` are the logits, and behind them those of the two auxiliary classifiers where ``params`` has them; the
    paper adds their losses with a weight of 0.3. They have dropout of 0.7.

    >>> import numpy as np
    >>> from futurex.models import googlenet
    >>> params = googlenet.init(np.random.default_rng(0), classes=10)
    >>> (logits,), state = googlenet.train(params, np.ones((2, 32, 32, 3), np.float32), googlenet.init_state(params))
    >>> state["3a"]["alone"]["var"].shape
    (64,)
    """
    outputs, statistics = _forward(params, x, None, key, rate)
    return outputs, moved(state, statistics, momentum)


def init_state(params: Params) -> State:
    """Running statistics before training: means of 0, variances of 1."""
    return initial_state(params)


def _forward(params: Params, x: Any, state: State, key: Any, rate: float) -> tuple[tuple[Any, ...], State]:
    statistics, extra = {}, []
    x, statistics["stem1"] = _unit(params, x, state, "stem1", stride=2, padding=3)
    x, statistics["stem2"] = _unit(params, _pool(x, 3), state, "stem2")
    x, statistics["stem3"] = _unit(params, x, state, "stem3", padding=1)
    x = _pool(x, 3)
    for number, name in enumerate(_INCEPTIONS):
        x, statistics[name] = _inception(params[name], x, within(state, name))
        if name in _POOLED_AFTER:
            x = _pool(x, _POOLED_AFTER[name])
        head = f"auxiliary{name}"
        if head in params:
            own = None if key is None else key + np.uint64(number)
            logits, statistics[head] = _auxiliary(params[head], x, within(state, head), own)
            extra.append(logits)
    x = global_average_pool(x)
    if key is not None:
        x = dropout(x, rate, key)
    return (linear(params["dense"], x), *extra), statistics


def _unit(params: Params, x: Any, state: State, name: str, stride: int = 1, padding: int = 0) -> tuple[Any, State]:
    y, statistics = convolve(params[name], x, within(state, name), stride, padding, _EPSILON)
    return relu(y), statistics


def _inception(params: Params, x: Any, state: State) -> tuple[Any, State]:
    statistics = {}
    alone, statistics["alone"] = _unit(params, x, state, "alone")
    second, statistics["second1"] = _unit(params, x, state, "second1")
    second, statistics["second2"] = _unit(params, second, state, "second2", padding=1)
    third, statistics["third1"] = _unit(params, x, state, "third1")
    third, statistics["third2"] = _unit(params, third, state, "third2", padding=1)
    pooled, statistics["pooled"] = _unit(params, max_pool(x, 3, 1, padding=1), state, "pooled")
    return np.concatenate([alone, second, third, pooled], axis=-1), statistics


def _auxiliary(params: Params, x: Any, state: State, key: Any) -> tuple[Any, State]:
    x, statistics = _unit(params, avg_pool(x, 5, 3), state, "conv")
    x = relu(linear(params["dense1"], x.reshape(x.shape[0], -1)))
    if key is not None:
        x = dropout(x, 0.7, key)
    return linear(params["dense2"], x), {"conv": statistics}


def _pool(x: Any, window: int) -> Any:
    """The maximum over windows with stride 2; a last window that is not whole counts."""
    missing = tuple((0, -(size - window) % 2) for size in x.shape[1:-1])
    return max_pool(x, window, 2, padding=missing)
