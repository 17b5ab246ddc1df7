"""ZeRO: the optimizer's state, and gradients that are summed up, are sharded over the localities instead of repeated.

After Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, SC 2020. Sharding is a
placement: what every locality computes and exchanges (gradients by reduce-scatter, parameters by all-gather) follows
from it as the rest of the program does, and is right for any optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from futurex.partition import Placement, Replicate, Shard
from futurex.partition.mesh import SUM
from futurex.training.strategy.base import Options
from futurex.training.strategy.synchronous import AllReduce

SMALLEST = 1024  # elements: smaller arrays are repeated, which costs less than exchanging their parts
SIZES = (2, 3, 4, 8, 16, 32, 64)  # of groups for which arrays are to be cut evenly


@dataclass(frozen=True)
class Zero(AllReduce):
    """Made by :func:`zero`."""

    stage: int
    name: ClassVar[str] = "zero"
    shards: ClassVar[bool] = True

    def check(self, options: Options) -> None:
        """Sums of gradients are what is compressed, and here no locality has them."""
        if options.compression is not None:
            raise ValueError(
                f"compression={options.compression!r} does not go with strategy zero(stage={self.stage}): gradients "
                "are reduced to shards; use strategy=fx.strategy.all_reduce(), or leave compression out"
            )

    def placements(self, kept: Sequence[Any], n_params: int) -> tuple[Placement, ...]:
        return (*super().placements(kept[:n_params], n_params), *map(_sharded, kept[n_params:]))

    def gradients(self, params: Sequence[Any]) -> tuple[Placement, ...]:
        """In stage 2 every part of a batch is reduced to shards at once; in stage 1 every locality keeps full sums."""
        if self.stage == 1:
            return super().gradients(params)
        return tuple(SUM if found == Replicate() else found for found in map(_sharded, params))


def zero(stage: int = 2) -> Zero:
    """ZeRO: every locality keeps, and updates, its shard of the optimizer's state; parameters are whole everywhere.

    The steps are those of :func:`all_reduce`, up to the order of sums. Arrays of 1024 elements and more are cut along
    the axis that divides best. ``stage`` 1 shards the state, 2 also the gradients that ``fit(accumulate=k)`` sums up:
    less memory, and an exchange for every part; without ``accumulate`` both do the same, since gradients go as they
    come. ``run.memory`` shows what every locality held. Optimizers without state (``sgd`` without momentum) have
    nothing to shard. Raises ValueError for another stage; ``fit(compression=...)`` does not go with it.

    >>> import futurex as fx
    >>> fx.strategy.zero(stage=1)
    Zero(stage=1)
    """
    if stage not in (1, 2):
        raise ValueError(f"stage must be 1 (optimizer state) or 2 (gradients too), not {stage!r}")
    return Zero(stage)


def _sharded(leaf: Any) -> Placement:
    """Along the axis whose parts are most even, however many localities there come to be."""
    shape = getattr(leaf, "shape", ())
    if math.prod(shape) < SMALLEST:
        return Replicate()
    return Shard(min(range(len(shape)), key=lambda axis: sum(-(-shape[axis] // size) / shape[axis] for size in SIZES)))
