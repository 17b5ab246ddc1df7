"""``choose``: every element from one of several arrays, by number; ``round``: to so many decimals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import unbroadcast, where
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op


def _choose(number: Any, *choices: Any, mode: str) -> Any:
    return np.choose(number, choices, mode=mode)  # type: ignore[call-overload]


def _aval(number: Aval, *choices: Aval, mode: str) -> Aval:
    dtype = np.choose(0, [np.zeros((), choice.dtype) for choice in choices]).dtype
    return Aval(broadcast_shapes(number.shape, *(choice.shape for choice in choices)), dtype)


def _rule(g: Node, out: Node, number: Node, *choices: Node, mode: str) -> tuple[Any, ...]:
    last = len(choices) - 1
    if mode == "wrap":
        number = apply("remainder", number, last + 1)
    elif mode == "clip":
        number = apply("minimum", apply("maximum", number, 0), last)
    parts = (where(apply("equal", number, k), g, 0.0) for k in range(last + 1))
    return None, *(unbroadcast(part, choice.aval) for part, choice in zip(parts, choices, strict=True))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y = rng.normal(size=(3, 4)), rng.normal(size=4)
    yield Sample((rng.integers(0, 2, (3, 4)), x, y), {"mode": "raise"})
    yield Sample((rng.integers(-5, 5, 4), x, y), {"mode": "wrap"})
    yield Sample((rng.integers(-5, 5, 4), x, y), {"mode": "clip"})


op("choose", _choose, aval=_aval, vjp=_rule, samples=_samples, fails=True)
op(
    "round", lambda x, decimals: np.round(x, decimals), elementwise=True, factors="elementwise",
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 4)),), {"decimals": 1}, order=0),
        Sample((rng.integers(0, 99, 4),), {"decimals": -1}, order=0),
    ],
)  # fmt: skip
