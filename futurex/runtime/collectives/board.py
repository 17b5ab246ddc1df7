"""What a rank shows its peers in shared memory: how far it is, and where its arrays lie.

One writer, many readers. A word is written after what it announces, and x86 processors keep that order; where it
matters that a write is seen before a read is done, `fence` stands between them.
"""

from __future__ import annotations

import platform
import struct
import threading
from typing import Any, NamedTuple

from futurex.kernels.shared import Places
from futurex.runtime.transport.arena import Mapping

SLOTS = 32  #: exchanges that may be under way at once
EAGER_BYTES = 32 << 10  #: what an exchange may put on the board itself
ORDERED = platform.machine() in ("x86_64", "AMD64", "i686")  #: whether other processors see writes in their order

_GENERATION, _OLDEST, _ASLEEP, _CROWDED, _CORES = 0, 16, 32, 48, 1  # words, each on a cache line of its own
_SLOT_WORDS, _FIRST_SLOT = 16, 64
_EAGER_START = 64 << 10
_FACTS = struct.Struct("<QQqqQQ")  # signature, step, tag, bytes, two places
_barrier = threading.Lock()
STAGE_BITS = 8  #: of a stamp; the bits above are the number of the exchange
ALIGN = 32  #: elements: slices end where cache lines do
_STEP_FACTOR, _TAG_FACTOR = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
PLACES = Places(
    _OLDEST, _ASLEEP, _CROWDED, _FIRST_SLOT, _SLOT_WORDS, SLOTS, STAGE_BITS, ALIGN, _EAGER_START, EAGER_BYTES,
    _STEP_FACTOR, _TAG_FACTOR,
)  # fmt: skip
NOWHERE = _MASK = (1 << 64) - 1  #: the place of what there is not


def signature(kind: int, step: int, tag: int) -> int:
    """Return one word that tells exchanges apart; the same in every process, since it is made of numbers alone."""
    return (kind + step * _STEP_FACTOR + tag * _TAG_FACTOR) & _MASK


class Facts(NamedTuple):
    """What a rank says about an exchange."""

    signature: int
    step: int
    tag: int
    nbytes: int
    first: int
    second: int


def fence() -> None:
    """Have every write before become visible before any read after: taking a lock is an atomic instruction."""
    with _barrier:
        pass


class Board:
    """The board in one rank's memory; only its owner writes to it."""

    def __init__(self, memory: Mapping) -> None:
        self.memory = memory
        self._bytes = memory.view
        self._words = memory.view[:_EAGER_START].cast("Q")

    def stamp(self, slot: int) -> int:
        """Return what the owner has reached in `slot`: the exchange's number, and its stage in the last four bits."""
        return self._words[_FIRST_SLOT + slot * _SLOT_WORDS]

    def set_stamp(self, slot: int, stamp: int) -> None:
        self._words[_FIRST_SLOT + slot * _SLOT_WORDS] = stamp

    def signature(self, slot: int) -> int:
        return self._words[_FIRST_SLOT + slot * _SLOT_WORDS + 1]

    def facts(self, slot: int) -> Facts:
        return Facts._make(_FACTS.unpack_from(self._bytes, 8 * (_FIRST_SLOT + slot * _SLOT_WORDS + 1)))

    def set_facts(self, slot: int, *facts: int) -> None:
        _FACTS.pack_into(self._bytes, 8 * (_FIRST_SLOT + slot * _SLOT_WORDS + 1), *facts)

    def eager(self, slot: int, dtype: Any, count: int) -> Any:
        """Return `count` elements of what the owner put on the board itself."""
        return self.memory.array(_EAGER_START + slot * EAGER_BYTES, dtype, count)

    @property
    def generation(self) -> int:
        """The generation that the owner has entered."""
        return self._words[_GENERATION]

    @generation.setter
    def generation(self, value: int) -> None:
        self._words[_GENERATION] = value

    @property
    def cores(self) -> int:
        """Which processors the owner may use, a bit each; those above the 64th count as one of the first."""
        return self._words[_CORES]

    @cores.setter
    def cores(self, value: int) -> None:
        self._words[_CORES] = value

    @property
    def oldest(self) -> int:
        """The number of the oldest exchange that the owner still reads for, or of its next one."""
        return self._words[_OLDEST]

    @oldest.setter
    def oldest(self, value: int) -> None:
        self._words[_OLDEST] = value

    @property
    def asleep(self) -> bool:
        """Whether the owner must be rung when something changes."""
        return bool(self._words[_ASLEEP])

    @asleep.setter
    def asleep(self, value: bool) -> None:
        self._words[_ASLEEP] = value

    @property
    def crowded(self) -> bool:
        """Whether the owner waits for room: it must be rung when `oldest` changes."""
        return bool(self._words[_CROWDED])

    @crowded.setter
    def crowded(self, value: bool) -> None:
        self._words[_CROWDED] = value
