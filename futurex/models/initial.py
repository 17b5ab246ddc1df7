"""Initial weights as Keras draws them, and the size of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from futurex.tree.pytree import flatten


def glorot_uniform(
    rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Weights (*kernel, in, out), uniform within ``sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio, AISTATS 2010).

    >>> import numpy as np, futurex as fx
    >>> fx.models.glorot_uniform(np.random.default_rng(0), (10, 6, 100)).shape
    (10, 6, 100)
    """
    fan_in, fan_out = _fans(shape)
    limit = math.sqrt(6.0 / (fan_in + fan_out))
    _check(rng)
    return rng.uniform(-limit, limit, shape).astype(dtype)


def he_normal(rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Weights (*kernel, in, out), normal with variance ``2 / fan_in`` (He et al., arXiv 1502.01852).

    They are cut at two deviations. As in Keras the deviation is widened before the cut, so that the variance holds
    after it.

    >>> import numpy as np, futurex as fx
    >>> fx.models.he_normal(np.random.default_rng(0), (64, 10)).dtype.name
    'float32'
    """
    fan_in, _ = _fans(shape)
    _check(rng)
    drawn: Any = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    draws = rng.standard_normal(shape, drawn)
    while (outside := np.abs(draws) > 2.0).any():
        draws[outside] = rng.standard_normal(int(outside.sum()), drawn)
    draws *= math.sqrt(2.0 / fan_in) / 0.87962566103423978
    return draws.astype(dtype, copy=False)


def count(params: Any) -> int:
    """How many numbers a pytree of parameters holds.

    >>> import numpy as np, futurex as fx
    >>> fx.models.count({"w": np.zeros((3, 2)), "b": np.zeros(2)})
    8
    """
    return sum(np.size(leaf) for leaf in flatten(params)[0])


def _check(rng: Any) -> None:
    if not hasattr(rng, "standard_normal"):
        raise TypeError(f"rng must be a generator, not {rng!r}; np.random.default_rng(0) makes one")


def _fans(shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) < 2:
        raise ValueError(f"weights are (*kernel, in, out); shape {tuple(shape)} has no in and out")
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]
