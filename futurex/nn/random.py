"""Random numbers without hidden state: every array is a function of its key and of the position of its elements.

A key is a uint64 scalar. The same key gives the same numbers, in staged code and outside of it, on one locality or
many; different keys, and the different functions here, give unrelated ones. Derive a key for every use:

>>> import futurex as fx
>>> key = fx.random.key(0)
>>> first, second = fx.random.fold(key, 1), fx.random.fold(key, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from futurex.errors import whole_number
from futurex.nn.operation import operation

__all__ = ["bernoulli", "bits", "fold", "key", "normal", "uniform"]

START = np.int64(0)  # the whole array begins at row 0; the partitioner adds where a tile begins
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
Shape = int | Sequence[int]


def key(seed: int) -> np.uint64:
    """The key of a seed, 0 <= seed < 2**64.

    >>> import futurex as fx
    >>> bool(fx.random.key(1) == fx.random.key(1)), bool(fx.random.key(1) == fx.random.key(2))
    (True, False)
    """
    number = whole_number("key: seed", seed)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"a seed lies in 0 to 2**64 - 1; {number} does not")
    return fold(np.uint64(number), 0)


def fold(key: Any, number: Any) -> Any:
    """Another key, derived from ``key`` and an integer: a step, a layer, the number of a member of an ensemble.

    ``number`` may be an integer array that is only known at run time; its low 64 bits count. This is the mixing
    function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

    >>> import futurex as fx
    >>> key = fx.random.key(0)
    >>> bool(fx.random.fold(key, 3) == fx.random.fold(key, 3)), bool(fx.random.fold(key, 3) == fx.random.fold(key, 4))
    (True, False)
    """
    if isinstance(number, int):
        count: Any = np.uint64(number & 0xFFFFFFFFFFFFFFFF)
    elif getattr(number, "dtype", np.dtype(float)).kind in "iu":
        count = number.astype(np.uint64)
    else:
        raise TypeError(f"a key is folded with an integer, not with {type(number).__name__}")
    mixed = np.add(key, np.multiply(np.add(count, np.uint64(1)), _GOLDEN))  # ufuncs: scalars wrap around in silence
    for shift, factor in _MIX:
        mixed = np.multiply(np.bitwise_xor(mixed, np.right_shift(mixed, np.uint64(shift))), factor)
    return np.bitwise_xor(mixed, np.right_shift(mixed, np.uint64(31)))


def bits(key: Any, shape: Shape = (), dtype: npt.DTypeLike = np.uint32) -> Any:
    """Uniform random integers of all values of ``dtype``, uint32 or uint64.

    >>> import futurex as fx
    >>> fx.random.bits(fx.random.key(0), 4).dtype.name
    'uint32'
    """
    return _drawn("random_bits", key, shape, dtype)


def uniform(key: Any, shape: Shape = (), low: float = 0.0, high: float = 1.0, dtype: npt.DTypeLike = np.float64) -> Any:
    """Uniform numbers in ``low`` to ``high``, without the end, of a floating ``dtype`` (float16, float32 or float64).

    >>> import futurex as fx
    >>> u = fx.random.uniform(fx.random.key(0), (100,), 2.0, 3.0)
    >>> bool((u >= 2).all() and (u < 3).all())
    True
    """
    unit = _drawn("random_uniform", key, shape, dtype)
    return unit if (low, high) == (0.0, 1.0) else unit * (high - low) + low


def normal(key: Any, shape: Shape = (), dtype: npt.DTypeLike = np.float64) -> Any:
    """Numbers of the standard normal distribution, of a floating ``dtype``.

    >>> import futurex as fx
    >>> fx.random.normal(fx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _drawn("random_normal", key, shape, dtype)


def bernoulli(key: Any, p: Any, shape: Shape = ()) -> Any:
    """Booleans that are True with probability ``p``, a number or an array that broadcasts with ``shape``.

    Raises ValueError for a number outside 0 to 1.

    >>> import futurex as fx
    >>> bool(fx.random.bernoulli(fx.random.key(0), 1.0, (5,)).all())
    True
    """
    if isinstance(p, int | float) and not 0 <= p <= 1:
        raise ValueError(f"bernoulli: p is a probability, 0 to 1, not {p}")
    return uniform(key, shape) < p


def key_of(key: Any, name: str) -> Any:
    """The key itself. Raises TypeError for what is none: a number would be one that other numbers share."""
    if getattr(key, "dtype", None) != np.uint64 or key.shape != ():
        found = f"{key.dtype} of shape {key.shape}" if hasattr(key, "dtype") else f"{type(key).__name__}"
        raise TypeError(f"{name}: a key is a uint64 scalar, got {found}; fx.random.key(seed) makes one")
    return key


def _drawn(op: str, key: Any, shape: Shape, dtype: npt.DTypeLike) -> Any:
    name = op.removeprefix("random_")
    entries = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    sizes = tuple(whole_number(f"{name}: shape", entry) for entry in entries)
    if any(size < 0 for size in sizes):
        raise ValueError(f"random numbers of shape {sizes}: a size cannot be negative")
    return operation(op, key_of(key, name), START, shape=sizes, dtype=np.dtype(dtype))
