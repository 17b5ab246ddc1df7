"""The memory of one call of generated code: a block of 8-byte words, and scratch for arrays.

The block starts with status and address of the scratch area; then come the inputs, and what the code needs in known
words: addresses of functions, scalars out, and a record for every call of an inner loop.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels.addresses import DATA_OFFSET, address_of
from futurex.kernels.loops.arrays import Array, Place, Shape, most, packed
from futurex.kernels.loops.ufuncs import InnerLoop
from futurex.kernels.numba_.scalar import memory_type, register_type

Dtype = np.dtype[Any]
FIRST = 2  # words 0 and 1: status and scratch area
_ALIGNED = 64


class Memory:
    """Hands out words and scratch memory, and remembers what is to stand in them before the code runs."""

    def __init__(self) -> None:
        self.words = FIRST
        self.scratch = 0
        self.room = 0  # bytes of it of which the run tells how many are touched
        self.fixed: dict[int, int] = {}
        self.in_scratch: list[tuple[int, int]] = []  # words that hold addresses in the scratch area
        self.in_block: list[int] = []  # words that hold the address of the block
        self.kept: dict[int, Any] = {}  # arrays whose addresses stand in ``fixed``, by word
        self.entry: list[str] = []  # instructions at the start of the code
        self._places: dict[Place, str] = {}
        self._objects: set[Place] = set()
        self._steps: dict[Place, int] = {}  # bytes from one part of an array to the next
        self._loops: dict[InnerLoop, int] = {}
        self._holders: dict[Place, int] = {}
        self._sizes: dict[Place, int] = {}
        self._free: dict[int, list[int]] = {}

    def word(self, count: int = 1) -> int:
        """The first of ``count`` new words."""
        self.words += count
        return self.words - count

    # -- arrays ------------------------------------------------------------------------------------------------------

    def slot(self, shape: Shape, dtype: Dtype, owned: bool, given: bool = True) -> Array:
        """An array whose address stands in the block; of one that a caller has ``given`` it is that of the object, if
        the address of the elements stands in there: code reads it in a hundredth of the time that Python takes."""
        place = Place(self.word(), scratch=False)
        if given and DATA_OFFSET:
            self._objects.add(place)
        self._places[place] = f"load ptr, ptr {place.pointer}.at, align 8"
        return Array(place, shape, packed(tuple(map(most, shape)), dtype.itemsize), dtype, owned)

    def share(self, shape: Shape, dtype: Dtype, axis: int, parts: int, owned: bool) -> Array:
        """One of the equal parts of such an array along an axis: that with the number ``%part``."""
        whole = self.slot(shape, dtype, owned)
        count = most(shape[axis]) // parts
        self._steps[whole.place] = count * whole.strides[axis]
        return replace(whole, shape=(*shape[:axis], count, *shape[axis + 1 :]))

    def constant(self, value: Any) -> Array:
        """An array that is known."""
        made = self.slot(value.shape, value.dtype, owned=False, given=False)
        self.kept[made.place.index] = value
        self.fixed[made.place.index] = address_of(value)
        return made

    def fresh(self, shape: Shape, dtype: Dtype, lasting: bool = False) -> Array:
        """Scratch memory for one array, as large as it can become; ``lasting``: for nothing else, before or after."""
        capacity = tuple(map(most, shape))
        size = -(-max(math.prod(capacity) * dtype.itemsize, 1) // _ALIGNED) * _ALIGNED
        if self._free.get(size) and not lasting:
            start = self._free[size].pop()
        else:
            start = self.scratch
            self.scratch += size
        place = Place(start, scratch=True)
        self._places[place] = f"getelementptr i8, ptr %scratch, i64 {start}"
        self._sizes[place] = size
        return Array(place, shape, packed(capacity, dtype.itemsize), dtype, owned=True)

    def hold(self, place: Place) -> None:
        """One more value lies there."""
        self._holders[place] = self._holders.get(place, 0) + 1

    def release(self, place: Place) -> None:
        """One value less lies there; without any the memory is used again."""
        if not place.scratch:
            return
        self._holders[place] -= 1
        if not self._holders[place]:
            self._free.setdefault(self._sizes[place], []).append(place.index)

    def settle(self, place: Place) -> None:
        """One value less lies there, but what comes next holds the memory."""
        self._holders[place] -= 1

    # -- functions and records ---------------------------------------------------------------------------------------

    def loop(self, loop: InnerLoop) -> int:
        """The word with the address of an inner loop; its data stands in the next one."""
        if loop not in self._loops:
            slot = self._loops[loop] = self.word(2)
            self.fixed[slot], self.fixed[slot + 1] = loop.address, loop.data
        return self._loops[loop]

    def point(self, word: int, array: Array) -> bool:
        """Let a word hold the address of an array; False where only the run knows it."""
        if array.offset[0] == "%":
            return False
        place, offset = array.place, int(array.offset)
        if place.scratch:
            self.in_scratch.append((word, place.index + offset))
        elif place.index in self.fixed:
            self.fixed[word] = self.fixed[place.index] + offset
        else:
            self.entry.append(f"%e{word}.p = getelementptr i8, ptr {place.pointer}, i64 {offset}")
            self.enter(word, f"ptr %e{word}.p")
        return True

    def enter(self, word: int, operand: str) -> None:
        """Store an operand in a word when the code starts."""
        self.entry.append(f"%e{word}.at = getelementptr i64, ptr %block, i64 {word}")
        self.entry.append(f"store {operand}, ptr %e{word}.at, align 8")

    def prologue(self, scalars: list[tuple[int, Any]]) -> list[str]:
        """The first instructions: unpack the block. ``scalars``: words and dtypes of scalars in."""
        lines = ["%scratch.at = getelementptr i64, ptr %block, i64 1", "%scratch = load ptr, ptr %scratch.at, align 8"]
        for place, how in self._places.items():
            if not place.scratch:
                word = f"{place.pointer}.{'word' if place in self._objects else 'at'}"
                lines.append(f"{word} = getelementptr i64, ptr %block, i64 {place.index}")
            if place in self._objects:
                lines.append(f"{place.pointer}.object = load ptr, ptr {place.pointer}.word, align 8")
                lines.append(f"{place.pointer}.at = getelementptr i8, ptr {place.pointer}.object, i64 {DATA_OFFSET}")
            if place in self._steps:
                lines.append(f"{place.pointer}.whole = {how}")
                lines.append(f"{place.pointer}.by = mul i64 %part, {self._steps[place]}")
                how = f"getelementptr i8, ptr {place.pointer}.whole, i64 {place.pointer}.by"
            lines.append(f"{place.pointer} = {how}")
        for slot in self._loops.values():
            for k in (slot, slot + 1):
                lines.append(f"%loop{k}.at = getelementptr i64, ptr %block, i64 {k}")
                lines.append(f"%loop{k} = load ptr, ptr %loop{k}.at, align 8")
        for k, dtype in scalars:
            lines.append(f"%in{k}.at = getelementptr i64, ptr %block, i64 {k}")
            lines.append(f"%in{k}.m = load {memory_type(dtype)}, ptr %in{k}.at, align 8")
            if dtype.kind == "b":
                lines.append(f"%in{k} = icmp ne i8 %in{k}.m, 0")
            else:
                lines.append(f"%in{k} = bitcast {register_type(dtype)} %in{k}.m to {register_type(dtype)}")
        return lines + self.entry
