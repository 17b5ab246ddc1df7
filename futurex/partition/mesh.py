"""Meshes, and where an array lies on one: sharded, replicated or a partial result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from futurex.errors import FuturexError


class PartitionError(FuturexError):
    """A program cannot be partitioned as asked, or an op's tiling rule contradicts the op; the message says which."""


@dataclass(frozen=True)
class Mesh:
    """Named axes of localities, such as ``(("data", 4),)``; ranks count through them in C order.

    >>> Mesh((("data", 4),)).size
    4
    """

    axes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if not names or len(set(names)) != len(names) or any(size < 1 for _, size in self.axes):
            raise ValueError(f"a mesh needs differently named axes of at least one locality each, not {self.axes!r}")

    @property
    def size(self) -> int:
        """The number of localities."""
        return math.prod(size for _, size in self.axes)


@dataclass(frozen=True, slots=True)
class Shard:
    """Every rank holds a contiguous part of dimension ``dim``, in rank order; ``unit`` indices that belong together
    stay on one rank (rows of a matrix that was flattened).

    >>> Shard(0).bounds(10, parts=4, rank=1)
    (2, 5)
    """

    dim: int
    unit: int = 1

    def bounds(self, extent: int, parts: int, rank: int) -> tuple[int, int]:
        """First index and end of the part of ``rank`` along the dimension."""
        groups = extent // self.unit
        return self.unit * (groups * rank // parts), self.unit * (groups * (rank + 1) // parts)

    def sizes(self, extent: int, parts: int) -> tuple[int, ...]:
        """Extents of all parts; they differ by at most one ``unit``, and may be zero."""
        ends = [self.bounds(extent, parts, rank) for rank in range(parts)]
        return tuple(end - first for first, end in ends)


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank holds the whole array."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Every rank holds an array of full shape; the value combines them by ``reduce``: sum, prod, max or min."""

    reduce: str = "sum"


Placement = Shard | Replicate | Partial
REPLICATE = Replicate()
SUM = Partial("sum")


def tile_sizes(extent: int, parts: int) -> tuple[int, ...]:
    """Sizes of contiguous tiles that differ by at most one, as the sampler shares out a batch.

    >>> tile_sizes(10, 4)
    (2, 3, 2, 3)
    """
    return Shard(0).sizes(extent, parts)


def local_shape(shape: tuple[int, ...], placement: Placement, parts: int, rank: int) -> tuple[int, ...]:
    """The shape of what ``rank`` holds of an array of ``shape``."""
    if not isinstance(placement, Shard):
        return shape
    first, end = placement.bounds(shape[placement.dim], parts, rank)
    return (*shape[: placement.dim], end - first, *shape[placement.dim + 1 :])


def local_part(array: Any, placement: Placement, parts: int, rank: int) -> Any:
    """What ``rank`` holds of a whole array: a view of its rows, or the array itself.

    >>> import numpy as np
    >>> local_part(np.arange(5), Shard(0), parts=2, rank=1)
    array([2, 3, 4])
    """
    if not isinstance(placement, Shard):
        return array
    first, end = placement.bounds(array.shape[placement.dim], parts, rank)
    return array[(slice(None),) * placement.dim + (slice(first, end),)]


def check_placement(placement: Placement, shape: tuple[int, ...], what: str) -> None:
    """Raise PartitionError where ``what`` cannot lie so."""
    if isinstance(placement, Shard) and (
        not 0 <= placement.dim < len(shape) or placement.unit < 1 or shape[placement.dim] % placement.unit
    ):
        raise PartitionError(
            f"{what} has shape {shape} and cannot be placed as {placement}: dim must lie in 0 to {len(shape) - 1}, "
            "and unit must divide its extent; Replicate() always fits"
        )
