"""An all-reduce in shared memory as one compiled function: meet the other ranks, add, copy, meet again.

It speaks the protocol of the boards (``futurex/runtime/collectives``), whose places it is given, and leaves wherever it
would have to wait longer than it may: the caller goes on from the stage it wrote down. Large vectors are handled in
blocks, so that what one stage adds is still in the cache when the next one copies it. Vectors are added in the order
of the ranks. A vector that the others cannot see (``SOURCE``) is brought where they do block by block, a stage ahead,
into room for ``RING`` blocks that is used over and over and so stays in the cache.

The only argument is a block of words: see ``Control``.
"""

from __future__ import annotations

import enum
import functools
from typing import Any, NamedTuple

import numpy as np

from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.shared.text import TEXT


class Control:
    """What each word of the argument holds."""

    RANKS, ME, COUNT, CLOSING, BLOCK, STAGES, YIELDS, KIND, DATA, OUT, NBYTES, OFFSET, SCRATCH = range(13)
    NUMBER, STAGE, STEP, TAG, SPINS, WHOLE, STATUS = range(13, 20)
    SOURCE, RING = 20, 21
    BASES = 22


class Status(enum.IntEnum):
    """How far a call came. After RING the peers that sleep are to be woken, and the call repeated."""

    DONE, PENDING, RING, MISMATCH, CROWDED, DONE_RING = range(6)


class Places(NamedTuple):
    """Where things lie on a board, in words but for the last four; ``stage_bits`` is the width of a stage in a stamp.

    A signature is the kind, ``step_factor`` times the step and ``tag_factor`` times the tag.
    """

    oldest: int
    asleep: int
    crowded: int
    first_slot: int
    slot_words: int
    slots: int
    stage_bits: int
    align: int
    eager_start: int
    eager_bytes: int
    step_factor: int
    tag_factor: int


_VECTOR = {"float32": ("float", 16, "fadd"), "float64": ("double", 8, "fadd"), "int32": ("i32", 16, "add"),
           "int64": ("i64", 8, "add"), "uint32": ("i32", 16, "add"), "uint64": ("i64", 8, "add")}  # fmt: skip
SCRATCH_BYTES = 16 << 10
_BETWEEN = 15  # looks between two chances for others to run, less one: a peer may be on the same core


@functools.cache
def kernel(dtype: np.dtype[Any], places: Places) -> Entry | None:
    """The compiled all-reduce (sum) of a dtype; None for one that it does not know."""
    if dtype.name not in _VECTOR or not dtype.isnative:
        return None
    element, lanes, add = _VECTOR[dtype.name]
    words = {f"{name}": getattr(Control, name) for name in vars(Control) if name.isupper()}
    status = {f"S_{each.name}": int(each) for each in Status}
    return compiled(
        _fill(
            TEXT, words | status | places._asdict() | {
                "T": element, "V": f"<{lanes} x {element}>", "lanes": lanes, "add": add, "size": dtype.itemsize,
                "chunk": SCRATCH_BYTES // dtype.itemsize, "between": _BETWEEN,
            },
        )
    )  # fmt: skip


def _fill(text: str, names: dict[str, Any]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f"${name}", str(names[name]))
    return text
