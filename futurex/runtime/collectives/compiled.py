"""The compiled sum of one vector: its control block, and calls that go as far as the peers allow."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from futurex.kernels.shared import SCRATCH_BYTES, Control, Status, kernel
from futurex.runtime.collectives.board import NOWHERE, ORDERED, PLACES, Board

RING = 3  #: blocks: one that is copied to, one that is added up, and one of which the sums are collected
_NAMES = tuple(Status)
_CALL = struct.Struct("=6Q")  # the words from NUMBER to WHOLE


class CompiledSum:
    """Sums over the ranks of what lies in ``data``, with the results in ``out``; ``kind`` is what it says on the board.

    ``closing``: the peers read ``data`` itself, in ``stages`` with blocks of ``block`` elements. ``source``: where the
    operand lies instead, in which case ``data`` is room for ``RING`` blocks through which it passes.
    """

    def __init__(
        self, boards: list[Board], rank: int, data: np.ndarray, out: np.ndarray, *, closing: bool, stages: int,
        block: int, kind: int, yields: bool, source: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        found = kernel(data.dtype, PLACES)
        assert found is not None
        self._entry = found
        self._scratch = np.empty(SCRATCH_BYTES, np.uint8)
        self.data, self.out, self.source = data, out, source
        self._control = np.zeros(Control.BASES + len(boards), np.uint64)
        self._block = (ctypes.c_char * self._control.nbytes).from_buffer(self._control.data)
        self._words = words = memoryview(self._block).cast("B").cast("Q")
        words[Control.RANKS], words[Control.ME], words[Control.COUNT] = len(boards), rank, out.size
        words[Control.CLOSING], words[Control.BLOCK], words[Control.STAGES] = closing, block, stages
        words[Control.YIELDS], words[Control.NBYTES] = yields, out.nbytes
        words[Control.SOURCE] = 0 if source is None else _address(source)
        words[Control.RING] = NOWHERE if source is None else RING
        words[Control.KIND] = kind
        words[Control.DATA], words[Control.OUT] = _address(data), _address(out)
        words[Control.OFFSET] = boards[rank].memory.offset(data) or 0
        words[Control.SCRATCH] = _address(self._scratch)
        for peer, board in enumerate(boards):
            words[Control.BASES + peer] = board.memory.address

    @property
    def stage(self) -> int:
        """The stage that the last call came to."""
        return self._words[Control.STAGE]

    def call(self, number: int, stage: int, step: int, tag: int, spins: int, whole: bool) -> Status:
        """Go on with exchange ``number`` from ``stage``, 0 for its beginning; ``whole``: nothing else is under way."""
        _CALL.pack_into(self._block, 8 * Control.NUMBER, number, stage, step, tag, spins, whole)
        self._entry(self._block)
        return _NAMES[self._words[Control.STATUS]]


def compilable(array: np.ndarray) -> bool:
    """Whether there is a compiled sum for vectors like this one."""
    return ORDERED and kernel(array.dtype, PLACES) is not None


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
