"""Arrays that lie on a cluster: one shard a locality, resident in Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.errors import whole_number
from futurex.partition.mesh import Shard, local_part
from futurex.runtime import config
from futurex.runtime.cluster.errors import ClusterUnreachable
from futurex.tree.aval import Aval


class Tiled:
    """An array cut along one axis over the localities of a cluster.

    ``shape`` and ``dtype`` are those of the whole; ``np.asarray`` gathers it. ``device`` is where what is computed with
    it runs on every locality.
    """

    __fx_tiled__ = True

    def __init__(
        self, shards: Sequence[Any], addresses: Sequence[str], shape: tuple[int, ...], dtype: np.dtype[Any], axis: int,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        self.shards = list(shards)
        self.addresses = list(addresses)  # where they lie, by rank
        self.shape = shape
        self.dtype = dtype
        self.axis = axis
        self.device = device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        try:
            whole = np.concatenate([shard.result(config.deadline()) for shard in self.shards], self.axis)
        except Exception as error:  # Dask has many names for it
            raise ClusterUnreachable(
                f"{self!r} cannot be gathered ({error!r}): its cluster has been closed, or has lost a worker; gather "
                "tiles before that, or cut the array again for a new cluster"
            ) from None
        return whole if dtype is None else whole.astype(dtype)

    def __repr__(self) -> str:
        extents = ",".join(map(str, self.shape))
        where = "" if self.device == "cpu" else f" on {self.device}"
        return f"<Tiled {self.dtype.name}[{extents}] along axis {self.axis} over {len(self.shards)} localities{where}>"


def cut(array: np.ndarray, axis: int, parts: int) -> list[np.ndarray]:
    """The shards of an array, one a rank. Raises ValueError for an axis that it does not have, TypeError for what is
    no array of numbers, or no axis."""
    axis = whole_number("axis", axis)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"tile takes an array of numbers, not {array.dtype} of shape {array.shape}")
    if not -array.ndim <= axis < array.ndim:
        choices = ", ".join(map(str, range(array.ndim))) or "none: it is a scalar"
        raise ValueError(f"cannot tile an array of shape {array.shape} along axis {axis}; its axes are {choices}")
    shard = Shard(axis % array.ndim)
    return [np.ascontiguousarray(local_part(array, shard, parts, rank)) for rank in range(parts)]
