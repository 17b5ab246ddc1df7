"""Counter-based random numbers: every element is a function of the key and of its position alone.

The generator is Philox4x32-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, SC11). ``key`` is a uint64
scalar. ``start``, always the last input, is the index along axis 0 at which the array begins inside the whole that it
is a tile of (0 for a whole). So rows ``a:b`` computed with ``start=a`` are rows ``a:b`` of the whole, whoever computes
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op

Shape = tuple[int, ...]

COUNTER_OPS = frozenset({"random_bits", "random_uniform", "random_normal", "dropout"})
"""Ops whose last input must grow by a tile's offset along axis 0 when the op is tiled."""

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BLOCKS_AT_ONCE = 1 << 13  # working arrays that stay in the cache
STREAMS = {"bits": 0, "uniform": 1, "normal": 2, "dropout": 3}  # equal keys give unrelated numbers to different ops


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds of Philox4x32 on four uint64 arrays (or scalars) that hold 32-bit words.

    >>> [hex(int(word)) for word in philox((np.uint64(0),) * 4, (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(key: Any, stream: str, first: int, count: int) -> Any:
    """Words ``first`` to ``first + count`` of a key's stream, as uint32."""
    key_words = int(key) & 0xFFFFFFFF, (int(key) >> 32) & 0xFFFFFFFF
    begin, end = first // 4, -(-(first + count) // 4)
    out = np.empty((end - begin, 4), np.uint32)
    third, fourth = np.uint64(STREAMS[stream]), np.uint64(0)
    for low in range(begin, end, _BLOCKS_AT_ONCE):
        high = min(low + _BLOCKS_AT_ONCE, end)
        block = np.arange(low, high, dtype=np.uint64)
        result = philox((block & _LOW, block >> _HALF, third, fourth), key_words)
        for position, word in enumerate(result):
            out[low - begin : high - begin, position] = word
    return out.reshape(-1)[first - 4 * begin :][:count]


def _elements(key: Any, start: Any, stream: str, shape: Shape, per_element: int) -> Any:
    """``per_element`` words for every element of the tile of ``shape`` that begins at row ``start``, (size, words)."""
    first = int(start) * math.prod(shape[1:]) * per_element
    return words(key, stream, first, math.prod(shape) * per_element).reshape(-1, per_element)


def _bits(key: Any, start: Any, shape: Shape, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    pairs = _elements(key, start, "bits", shape, dtype.itemsize // 4).astype(np.uint64)
    out = pairs[:, 0] if dtype.itemsize == 4 else pairs[:, 0] | pairs[:, 1] << _HALF
    return out.astype(dtype).reshape(shape)


def _unit(high: Any, low: Any) -> Any:
    """53 of 64 random bits as multiples of 2**-53 in [0, 1)."""
    return ((high.astype(np.uint64) >> np.uint64(5) << np.uint64(26)) + (low >> np.uint32(6))) * 2.0**-53


def _uniform(key: Any, start: Any, shape: Shape, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        pairs = _elements(key, start, "uniform", shape, 2)
        return _unit(pairs[:, 0], pairs[:, 1]).reshape(shape)
    bits = np.finfo(dtype).nmant + 1
    word = _elements(key, start, "uniform", shape, 1)[:, 0]
    return ((word >> np.uint32(32 - bits)) * 2.0**-bits).astype(dtype).reshape(shape)


def _normal(key: Any, start: Any, shape: Shape, dtype: Any) -> Any:
    """The Box-Muller transform: radius and angle from two uniform numbers of the element's own."""
    four = _elements(key, start, "normal", shape, 4)
    radius = np.sqrt(-2.0 * np.log1p(-_unit(four[:, 0], four[:, 1])))
    return (radius * np.cos(2.0 * np.pi * _unit(four[:, 2], four[:, 3]))).astype(dtype).reshape(shape)


def least_kept(rate: float) -> int:
    """The least of 2**32 numbers whose element dropout keeps."""
    return min(round(rate * 2**32), 2**32 - 1)


def _dropout(x: Any, key: Any, start: Any, rate: float) -> Any:
    kept = _elements(key, start, "dropout", x.shape, 1).reshape(x.shape) >= np.uint32(least_kept(rate))
    return np.where(kept, x * x.dtype.type(1.0 / (1.0 - rate)), x.dtype.type(0))


def _dropout_aval(x: Aval, key: Aval, start: Aval, rate: float) -> Aval:
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout drops a share of its input: rate must be at least 0 and below 1, got {rate}")
    if not x.inexact:
        raise TypeError(f"dropout rescales what it keeps, so it needs floating-point numbers, not {x.dtype}")
    return Aval(x.shape, x.dtype)


def _drawn(kinds: str, allowed: str) -> Any:
    def aval(key: Aval, start: Aval, shape: Shape, dtype: Any) -> Aval:
        if np.dtype(dtype).name not in allowed.split():
            raise TypeError(f"random {kinds} come as {allowed}, not as {np.dtype(dtype)}")
        return Aval(shape, np.dtype(dtype))

    return aval


def _tile_names(ndim: int) -> str:
    """Only axis 0 may be tiled: ``start`` counts along it."""
    return " ".join("d0" if k == 0 else f"!d{k}" for k in range(ndim))


def _drawn_cost(key: Aval, start: Aval, shape: Shape, dtype: Any) -> Cost:
    return Cost(25.0 * math.prod(shape), float(math.prod(shape) * np.dtype(dtype).itemsize))


def _drawn_samples(*dtypes: str) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for dtype in dtypes:
            for shape, start in (((5, 3), 0), ((7,), 3), ((), 0), ((0, 2), 1)):
                attrs = {"shape": shape, "dtype": np.dtype(dtype)}
                yield Sample((np.uint64(2**63 + 5), np.int64(start)), attrs, order=0)

    return samples


for _name, _kernel, _kinds, _dtypes in (
    ("random_bits", _bits, "bits", "uint32 uint64"),
    ("random_uniform", _uniform, "uniform numbers", "float16 float32 float64"),
    ("random_normal", _normal, "normal numbers", "float16 float32 float64"),
):
    op(
        _name, _kernel, aval=_drawn(_kinds, _dtypes), shape_attr="shape", cost=_drawn_cost,
        factors=lambda key, start, shape, dtype: f",  -> {_tile_names(len(shape))}",
        samples=_drawn_samples(*_dtypes.split()),
    )  # fmt: skip


def _dropout_rule(g: Node, out: Node, x: Node, key: Node, start: Node, rate: float) -> tuple[Node, None, None]:
    return apply("dropout", g, key, start, rate=rate), None, None


op(
    "dropout", _dropout, aval=_dropout_aval, vjp=_dropout_rule,
    factors=lambda x, key, start, rate: f"{_tile_names(x.ndim)}, ,  -> {_tile_names(x.ndim)}",
    cost=lambda x, key, start, rate: Cost(25.0 * x.size, 2.0 * x.nbytes),
    samples=lambda rng: [
        Sample((rng.normal(size=(5, 3)), np.uint64(7), np.int64(0)), {"rate": 0.4}),
        Sample((rng.normal(size=(6,)).astype(np.float32), np.uint64(7), np.int64(11)), {"rate": 0.5}, order=0),
        Sample((rng.normal(size=(4,)), np.uint64(7), np.int64(2)), {"rate": 0.0}),
    ],
)  # fmt: skip
