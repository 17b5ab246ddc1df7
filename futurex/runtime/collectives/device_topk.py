"""Sums of the largest elements of gradients that lie on a GPU: what is left out stays there, and little travels.

The mathematics is that of :mod:`futurex.runtime.collectives.compression`; only places and values go through the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.largest import largest
from futurex.runtime.collectives.codecs import SMALLEST, TopK, codec_of
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.runtime.collectives.communicator import Communicator


def codec_for(node: Node) -> TopK | None:
    """The codec of a sum that is made so, the same on every rank."""
    name = node.attrs.get("codec")
    codec = codec_of(name.partition("#")[0]) if name else None
    return codec if isinstance(codec, TopK) and all(s.dtype == np.float32 for s in node.inputs) else None


class Largest:
    """One rank's sums in one generation, and what they have left out so far."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._left: dict[tuple[str, int, int], Any] = {}

    def all_reduce(self, communicator: Communicator, codec: TopK, node: Node, arrays: Sequence[Any]) -> list[Any]:
        """The sums over the ranks; small arrays are sent whole."""
        flat = [self.device.to_device(array).reshape(-1) for array in arrays]
        large = [k for k, array in enumerate(flat) if array.size >= SMALLEST]
        parts = [self._taken(codec, (node.attrs["codec"], node.attrs["tag"], k), flat[k]) for k in large]
        whole = [k for k in range(len(flat)) if k not in large]
        sent = [part for pair in parts for part in pair] + [flat[k].view(np.uint32) for k in whole]
        letter = np.concatenate([self.device.to_host(each) for each in sent])
        cuts = np.cumsum([each.size for each in sent])[:-1]
        communicator.exchanged(letter.nbytes)
        everyone = [self.device.to_device(each) for each in communicator.gathered(letter)]
        totals = [self.device.xp.zeros(array.size, np.float32) for array in flat]
        for theirs in everyone:
            pieces = [theirs[a:b] for a, b in zip((0, *cuts), (*cuts, letter.size), strict=True)]
            for number, k in enumerate(large):
                places, values = pieces[2 * number : 2 * number + 2]
                totals[k][places.astype(np.int64)] += values.view(np.float32)
            for values, k in zip(pieces[2 * len(large) :], whole, strict=True):
                totals[k] += values.view(np.float32)
        return [total.reshape(array.shape) for total, array in zip(totals, arrays, strict=True)]

    def _taken(self, codec: TopK, state: tuple[str, int, int], array: Any) -> tuple[Any, Any]:
        """Places and bits of what is sent of an array and of what was left out before; the rest is kept."""
        xp = self.device.xp
        vector = array + self._left[state] if state in self._left else array.copy()
        places, values = largest(self.device, vector, codec.count(vector.size))
        vector[places.astype(np.int64)] = xp.float32(0)
        self._left[state] = xp.where(xp.isfinite(vector), vector, xp.float32(0))
        return places, values.view(np.uint32)
