"""Smaller forms of gradients: what is sent in their place, and what is made of it. Errors are the caller's to keep.

Sources: one bit: Seide et al., *1-Bit Stochastic Gradient Descent*, Interspeech 2014. Largest entries: Aji and
Heafield, *Sparse Communication for Distributed Gradient Descent*, EMNLP 2017. Low rank: Vogels, Karimireddy and Jaggi,
*PowerSGD*, NeurIPS 2019.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

SMALLEST = 1024  #: elements; what has fewer is sent as it is
BLOCK = 32 << 10  #: elements that are handled at once, a multiple of eight: all that is made of them fits into a cache
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)  # of every byte


def blocks(size: int) -> Iterator[slice]:
    """Yield the blocks of a vector, in order."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


class Codec(ABC):
    """Turns a vector of single precision into bytes, as many for all vectors of one size, and back."""

    @abstractmethod
    def nbytes(self, size: int) -> int:
        """Return how many bytes stand for `size` elements."""

    @abstractmethod
    def encode(self, vector: np.ndarray) -> np.ndarray:
        """Return the bytes that stand for a vector."""

    @abstractmethod
    def pieces(self, payload: np.ndarray, size: int) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield (places, values) of what the bytes stand for: no place twice, zeros where there is none."""

    def decode(self, payload: np.ndarray, size: int) -> np.ndarray:
        """Return the vector of `size` elements that the bytes stand for."""
        vector = np.zeros(size, np.float32)
        for places, values in self.pieces(payload, size):
            vector[places] = values
        return vector


class Half(Codec):
    """IEEE half precision. What is too large for it becomes infinite."""

    def nbytes(self, size: int) -> int:
        return 2 * size

    def encode(self, vector: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return vector.astype(np.float16).view(np.uint8)

    def pieces(self, payload: np.ndarray, size: int) -> Iterator[tuple[Any, np.ndarray]]:
        halves = payload.view(np.float16)
        return ((part, halves[part].astype(np.float32)) for part in blocks(size))


class Brain(Codec):
    """The upper half of single precision, rounded to nearest, ties to even."""

    def nbytes(self, size: int) -> int:
        return 2 * size

    def encode(self, vector: np.ndarray) -> np.ndarray:
        uppers = np.empty(vector.size, np.uint16)
        for part in blocks(vector.size):
            bits = vector[part].view(np.uint32)
            rounded = bits >> np.uint32(16)
            rounded &= np.uint32(1)
            rounded += np.uint32(0x7FFF)
            rounded += bits
            rounded >>= np.uint32(16)
            uppers[part] = rounded
            nans = np.isnan(vector[part])
            if nans.any():
                uppers[part][nans] = 0x7FC0
        return uppers.view(np.uint8)

    def pieces(self, payload: np.ndarray, size: int) -> Iterator[tuple[Any, np.ndarray]]:
        uppers = payload.view(np.uint16)
        for part in blocks(size):
            bits = uppers[part].astype(np.uint32)
            bits <<= np.uint32(16)
            yield part, bits.view(np.float32)


class OneBit(Codec):
    """The sign of every element, and the means of those that are negative and of the others."""

    def nbytes(self, size: int) -> int:
        return 8 + -(-size // 8)

    def encode(self, vector: np.ndarray) -> np.ndarray:
        payload = np.empty(self.nbytes(vector.size), np.uint8)
        bits = payload[8:]
        count, above, below = 0, 0.0, 0.0
        for part in blocks(vector.size):
            block = vector[part]
            positive = block >= 0
            count += int(np.count_nonzero(positive))
            above += float(np.fmax(block, np.float32(0)).sum(dtype=np.float64))
            below += float(np.minimum(block, np.float32(0)).sum(dtype=np.float64))  # what is not a number shows
            bits[part.start // 8 : -(-part.stop // 8)] = np.packbits(positive)
        payload[:8].view(np.float32)[:] = below / max(1, vector.size - count), above / max(1, count)
        return payload

    def pieces(self, payload: np.ndarray, size: int) -> Iterator[tuple[Any, np.ndarray]]:
        below, above = payload[:8].view(np.float32)
        eights = np.where(_BITS, above, below)  # what every byte stands for
        for part in blocks(size):
            values = eights.take(payload[8 + part.start // 8 : 8 - (-part.stop // 8)], axis=0)
            yield part, values.reshape(-1)[: part.stop - part.start]


class TopK(Codec):
    """The elements that are largest in magnitude, with their places: a `share` of all."""

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"topk sends a share of the elements, more than 0 and at most 1, not {share:g}")
        self.share = share

    def count(self, size: int) -> int:
        """Return how many of `size` elements are sent."""
        return max(1, math.ceil(self.share * size))

    def nbytes(self, size: int) -> int:
        return 8 * self.count(size)

    def encode(self, vector: np.ndarray) -> np.ndarray:
        count = self.count(vector.size)
        places = np.sort(np.argpartition(np.abs(vector), vector.size - count)[vector.size - count :])
        return np.concatenate([places.astype(np.uint32).view(np.uint8), vector[places].view(np.uint8)])

    def pieces(self, payload: np.ndarray, size: int) -> Iterator[tuple[Any, np.ndarray]]:
        half = payload.size // 2
        yield payload[:half].view(np.uint32), payload[half:].view(np.float32)


class LowRank:
    """Matrices as products of two with `rank` columns, found by one step of power iteration from the last ones."""

    def __init__(self, rank: int) -> None:
        if rank < 1:
            raise ValueError(f"powersgd needs a rank of at least 1, not {rank}")
        self.rank = rank

    def applies(self, shape: tuple[int, ...]) -> bool:
        """Whether the two factors are smaller than the matrix."""
        rows, columns = self.matrix(shape)
        return len(shape) > 1 and self.rank * (rows + columns) < rows * columns

    @staticmethod
    def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
        """Return rows and columns of an array as a matrix: what comes out of a layer by what goes in."""
        return math.prod(shape[:-1]), shape[-1] if shape else 1

    def start(self, columns: int) -> np.ndarray:
        """Return the right factor to begin with, the same on every rank."""
        return np.random.default_rng(columns).standard_normal((columns, self.rank)).astype(np.float32)


def codec_of(text: str) -> Codec | LowRank:
    """Return the codec that a name such as "bf16", "topk:0.01" or "powersgd:4" stands for; ValueError for any other."""
    name, _, figure = text.partition(":")
    simple: dict[str, Any] = {"fp16": Half, "bf16": Brain, "1bit": OneBit}
    try:
        if name in simple and not figure:
            found: Codec = simple[name]()
            return found
        if name == "topk":
            return TopK(float(figure or 0.01))
        if name == "powersgd":
            return LowRank(int(figure or 4))
    except ValueError as error:
        raise ValueError(f"compression={text!r}: {error}") from None
    raise ValueError(f"compression={text!r} is not fp16, bf16, 1bit, topk:SHARE or powersgd:RANK")
