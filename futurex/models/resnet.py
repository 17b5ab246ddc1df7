"""Residual networks of He et al., arXiv 1512.03385, with the stride of a bottleneck in its 3 x 3 convolution.

That is the form of torchvision. For images of three channels and 1000 classes the networks of 18, 50, 101 and 152
layers have 11,689,512, 25,557,032, 44,549,160 and 60,192,808 parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.models.layers import Params, State, classifier, convolve, initial_state, linear, moved, normalised, within
from futurex.nn import global_average_pool, max_pool, relu

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4  # a bottleneck gives four times as many channels as its 3 x 3 convolution has


def init(rng: np.random.Generator, depth: int = 50, classes: int = 1000, channels: int = 3) -> Params:
    """Float32 parameters of the network of ``depth`` layers: 18 or 34 of pairs, 50, 101 or 152 of bottlenecks.

    He-normal weights, scales of 1 and shifts of 0. Images may have any size from 32 x 32 on. Raises ValueError for
    another depth.

    >>> import numpy as np
    >>> from futurex.models import count, resnet
    >>> count(resnet.init(np.random.default_rng(0), depth=18))
    11689512
    """
    if depth not in _BLOCKS:
        raise ValueError(f"resnet: depth={depth} is none of {', '.join(map(str, _BLOCKS))}")
    make, expansion = (_pair, 1) if depth < 50 else (_bottleneck, _EXPANSION)
    stages: list[list[Params]] = []
    before = _WIDTHS[0]
    for number, (width, blocks) in enumerate(zip(_WIDTHS, _BLOCKS[depth], strict=True)):
        stages.append([])
        for block in range(blocks):
            made, after = make(rng, before, width), width * expansion
            if block == 0 and (number or before != after):
                made["shortcut"] = normalised(rng, (1, 1, before, after))
            stages[-1].append(made)
            before = after
    return {
        "stem": normalised(rng, (7, 7, channels, _WIDTHS[0])),
        "stages": stages,
        "dense": classifier(rng, before, classes),
    }


def apply(params: Params, x: Any, state: State = None) -> Any:
    """Logits (N, classes) of images ``x`` (N, height, width, channels).

    With ``state``, the running statistics that :func:`train` has gathered, the layers normalise by it; without one by
    the statistics of this batch, as in training.

    >>> import numpy as np
    >>> from futurex.models import resnet
    >>> params = resnet.init(np.random.default_rng(0), depth=18, classes=10)
    >>> x = np.zeros((2, 32, 32, 3), np.float32)
    >>> resnet.apply(params, x).shape, resnet.apply(params, x, resnet.init_state(params)).shape
    ((2, 10), (2, 10))
    """
    return _forward(params, x, state)[0]


def train(params: Params, x: Any, state: State, momentum: float = 0.1, local: bool = False) -> tuple[Any, State]:
    """``(logits, state)``: normalised by the batch, and the running statistics moved to its own by ``momentum``.

    With ``local`` each locality of a cluster normalises its share of the batch by the statistics of that share; see
    ``fx.nn.batch_norm``. The running statistics are those of the whole batch even so.

    >>> import numpy as np
    >>> from futurex.models import resnet
    >>> params = resnet.init(np.random.default_rng(0), depth=18, classes=10)
    >>> logits, state = resnet.train(params, np.ones((2, 32, 32, 3), np.float32), resnet.init_state(params))
    >>> state["stem"]["mean"].shape
    (64,)
    """
    logits, statistics = _forward(params, x, None, local)
    return logits, moved(state, statistics, momentum)


def init_state(params: Params) -> State:
    """Running statistics before training: means of 0, variances of 1."""
    return initial_state(params)


def _forward(params: Params, x: Any, state: State, local: bool = False) -> tuple[Any, State]:
    x, stem = convolve(params["stem"], x, within(state, "stem"), stride=2, padding=3, local=local)
    x = max_pool(relu(x), 3, 2, padding=1)
    running = within(state, "stages")
    stages = []
    for number, blocks in enumerate(params["stages"]):
        statistics = []
        for position, block in enumerate(blocks):
            stride = 2 if number and position == 0 else 1
            x, moments = _residual(block, x, None if running is None else running[number][position], stride, local)
            statistics.append(moments)
        stages.append(statistics)
    return linear(params["dense"], global_average_pool(x)), {"stem": stem, "stages": stages}


def _residual(block: Params, x: Any, state: State, stride: int, local: bool) -> tuple[Any, State]:
    """A block with its shortcut; a bottleneck is one with three convolutions."""
    unit = functools.partial(convolve, local=local)
    if "conv3" in block:
        y, first = unit(block["conv1"], x, within(state, "conv1"))
        y, second = unit(block["conv2"], relu(y), within(state, "conv2"), stride, padding=1)
        y, third = unit(block["conv3"], relu(y), within(state, "conv3"))
        statistics = {"conv1": first, "conv2": second, "conv3": third}
    else:
        y, first = unit(block["conv1"], x, within(state, "conv1"), stride, padding=1)
        y, second = unit(block["conv2"], relu(y), within(state, "conv2"), padding=1)
        statistics = {"conv1": first, "conv2": second}
    if "shortcut" in block:
        x, statistics["shortcut"] = unit(block["shortcut"], x, within(state, "shortcut"), stride)
    return relu(y + x), statistics


def _pair(rng: np.random.Generator, before: int, width: int) -> Params:
    return {"conv1": normalised(rng, (3, 3, before, width)), "conv2": normalised(rng, (3, 3, width, width))}


def _bottleneck(rng: np.random.Generator, before: int, width: int) -> Params:
    return {
        "conv1": normalised(rng, (1, 1, before, width)),
        "conv2": normalised(rng, (3, 3, width, width)),
        "conv3": normalised(rng, (1, 1, width, width * _EXPANSION)),
    }


@dataclass(frozen=True)
class Depth:
    """``init``, ``apply``, ``train`` and ``init_state`` of :mod:`futurex.models.resnet` for one depth.

    >>> import numpy as np, futurex as fx
    >>> params = fx.models.resnet18.init(np.random.default_rng(0), classes=10)
    >>> fx.models.resnet18.apply(params, np.zeros((2, 32, 32, 3), np.float32)).shape
    (2, 10)
    """

    init: Callable[..., Params]
    apply: Callable[..., Any] = apply
    train: Callable[..., tuple[Any, State]] = train
    init_state: Callable[[Params], State] = init_state


resnet18, resnet50, resnet101, resnet152 = (Depth(functools.partial(init, depth=depth)) for depth in (18, 50, 101, 152))
