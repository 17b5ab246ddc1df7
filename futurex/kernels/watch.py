"""Have the values of a run moved? Found by machine code that is called with them, right before it makes its steps.

Python takes some 0.5 µs to find where an array lies, several times that where a kernel has used the caches up; the code
reads the same from the object in a few nanoseconds. Numbers, NumPy's scalars and arrays of one element are copied to
where they go, and so are the addresses of arrays that only kernels read which find them in their blocks: those may
move.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import DATA_OFFSET, address_of

AXES = 8
"""Of an array that can be watched."""
_RECORD, _COPY = 4 + AXES, 4
_ANYWHERE, _FIXED, _FOLLOWED = 0, 1, 2  # of an array's memory matters: nothing, where it is, its strides and alignment
_FLOAT_OFFSET = float.__basicsize__ - 8
_NEVER = 0  # no object's type
_IN_ARRAY, _ADDRESS, _IN_SCALAR = 16, 32, 48  # ways to copy; of numbers, with their bytes
_SIZES = (1, 2, 4, 8)
_PLACES = {_IN_ARRAY: "array", _IN_SCALAR: "scalar"}


def _known() -> bool:
    """Are numbers and arrays laid out as the code below reads them?"""
    probe = np.empty((3, 5))[::2]
    axes, strides = (ctypes.c_int64.from_address(id(probe) + DATA_OFFSET + at).value for at in (8, 24))
    number = ctypes.c_double.from_address(id(_PROBE) + _FLOAT_OFFSET).value
    kind = ctypes.c_size_t.from_address(id(_PROBE) + DATA_OFFSET - 8).value
    if (axes & 0xFFFFFFFF, number, kind) != (2, _PROBE, id(float)):
        return False
    scalar = np.float32(_PROBE)
    if ctypes.c_float.from_address(id(scalar) + DATA_OFFSET).value != _PROBE:
        return False
    return tuple((ctypes.c_int64 * 2).from_address(strides)) == probe.strides


_PROBE = 2.5
KNOWN = bool(DATA_OFFSET) and _known()
"""Can values be watched in this Python?"""


Copy = tuple[int, int, int, int]
"""Which value, the address where it goes, the way, and how many bytes are added to an address."""


class Watch:
    """What is known of the values of a run. Numbers and addresses among them go to places that :meth:`copy` names.

    ``words``: what is known of each value, room for those that have moved and how many they are, how many copies are
    made, and which.
    """

    def __init__(self, count: int) -> None:
        self._moved = (ctypes.c_int64 * count)()
        self._seen = np.zeros((count, _RECORD), np.int64)
        self._copies = np.zeros((0, _COPY), np.int64)
        self.words = (ctypes.c_int64 * 5)(address_of(self._seen), ctypes.addressof(self._moved))

    def moved(self) -> list[int]:
        """Which values had moved when they were last looked at."""
        return self._moved[: self.words[2]]

    def note(self, place: int, value: Any, *, number: bool, copied: bool) -> None:
        """Know a value, by where it lies. One that is ``copied`` may lie anywhere: a number, or an array of the same
        strides whose address is copied. What is only read as a number and not copied has moved."""
        record = [_NEVER] * _RECORD
        if number:
            record[:2] = id(type(value)) if copied else _NEVER, _ANYWHERE
        elif type(value) is np.ndarray and value.ndim <= AXES:
            here = (_FOLLOWED, value.dtype.alignment - 1) if copied else (_FIXED, address_of(value))
            record[:4] = id(np.ndarray), *here, value.ndim
            record[4 : 4 + value.ndim] = value.strides
        self._seen[place] = record

    def copy(self, copies: Sequence[Copy]) -> None:
        """Make these copies at every look."""
        self._copies = np.array(copies, np.int64).reshape(-1, _COPY)
        self.words[3], self.words[4] = len(copies), address_of(self._copies)


def address_to(place: int, target: int, offset: int) -> Copy:
    """The copy of the address ``offset`` bytes behind the first element of an array."""
    return place, target, _ADDRESS, offset


def how_to_copy(value: Any, dtype: np.dtype[Any]) -> int:
    """The way in which a number is copied to where it stands in a dtype; 0 for one that Python has to convert."""
    size = dtype.itemsize
    if type(value) is float:
        return size if dtype.kind == "f" and size in (4, 8) else 0
    if size not in _SIZES or dtype.kind not in "biuf" or getattr(value, "dtype", None) != dtype:
        return 0
    if type(value) is dtype.type:
        return size + _IN_SCALAR
    return size + _IN_ARRAY if type(value) is np.ndarray and value.shape == () else 0


def _cases() -> str:
    """Where the code for each way is, by its number."""
    ways = {8: "double", 4: "single", _ADDRESS: "address"}
    ways |= {size + where: f"{name}{size}" for size in _SIZES for where, name in _PLACES.items()}
    return " ".join(f"i64 {way}, label %{name}" for way, name in ways.items())


def _copies() -> str:
    """The code that copies so many bytes of an array, and of a scalar."""
    lines = []
    for size, (where, name) in itertools.product(_SIZES, _PLACES.items()):
        each, kind, source = f"{name}{size}", f"i{8 * size}", "%element.at"
        lines.append(f"{each}:")
        if where == _IN_ARRAY:
            lines.append(f"  %{each}.at = load ptr, ptr {source}, align 8")
            source = f"%{each}.at"
        lines += [
            f"  %{each}.held = load {kind}, ptr {source}, align 1",
            f"  store {kind} %{each}.held, ptr %to, align {size}",
            "  br label %copied",
        ]
    return "\n".join(lines)


# From block %entry on, with so many %values at %objects, and the address of a watch's words in %watch; ends in a block
# that knows how many have %moved.
LOOK = f"""
  %seen = load ptr, ptr %watch, align 8
  %places.at = getelementptr i64, ptr %watch, i64 1
  %places = load ptr, ptr %places.at, align 8
  %moved.at = getelementptr i64, ptr %watch, i64 2
  %numbers.at = getelementptr i64, ptr %watch, i64 3
  %numbers = load i64, ptr %numbers.at, align 8
  %table.at = getelementptr i64, ptr %watch, i64 4
  %table = load ptr, ptr %table.at, align 8
  br label %value
value:
  %v = phi i64 [ 0, %entry ], [ %v.next, %counted ]
  %moved = phi i64 [ 0, %entry ], [ %moved.next, %counted ]
  %v.go = icmp slt i64 %v, %values
  br i1 %v.go, label %look, label %number
look:
  %object.at = getelementptr ptr, ptr %objects, i64 %v
  %object = load ptr, ptr %object.at, align 8
  %record.row = mul nsw i64 %v, {_RECORD}
  %record = getelementptr i64, ptr %seen, i64 %record.row
  %type.at = getelementptr i8, ptr %object, i64 {DATA_OFFSET - 8}
  %type = load i64, ptr %type.at, align 8
  %type.seen = load i64, ptr %record, align 8
  %type.same = icmp eq i64 %type, %type.seen
  br i1 %type.same, label %what, label %counted
what:
  %what.at = getelementptr i64, ptr %record, i64 1
  %fixed = load i64, ptr %what.at, align 8
  %anywhere = icmp eq i64 %fixed, {_ANYWHERE}
  br i1 %anywhere, label %counted, label %lies
lies:
  %data.at = getelementptr i8, ptr %object, i64 {DATA_OFFSET}
  %data = load i64, ptr %data.at, align 8
  %data.seen.at = getelementptr i64, ptr %record, i64 2
  %data.seen = load i64, ptr %data.seen.at, align 8
  %here = icmp eq i64 %data, %data.seen
  %beside = and i64 %data, %data.seen
  %aligned = icmp eq i64 %beside, 0
  %follows = icmp eq i64 %fixed, {_FOLLOWED}
  %data.same = select i1 %follows, i1 %aligned, i1 %here
  %axes.at = getelementptr i8, ptr %object, i64 {DATA_OFFSET + 8}
  %axes32 = load i32, ptr %axes.at, align 4
  %axes = sext i32 %axes32 to i64
  %axes.seen.at = getelementptr i64, ptr %record, i64 3
  %axes.seen = load i64, ptr %axes.seen.at, align 8
  %axes.same = icmp eq i64 %axes, %axes.seen
  %same = and i1 %data.same, %axes.same
  %strides.at = getelementptr i8, ptr %object, i64 {DATA_OFFSET + 24}
  %strides = load ptr, ptr %strides.at, align 8
  br i1 %same, label %stride, label %counted
stride:
  %k = phi i64 [ 0, %lies ], [ %k.next, %step ]
  %k.go = icmp slt i64 %k, %axes
  br i1 %k.go, label %step, label %counted
step:
  %k.next = add nsw i64 %k, 1
  %one.at = getelementptr i64, ptr %strides, i64 %k
  %one = load i64, ptr %one.at, align 8
  %other.at = getelementptr i64, ptr %record, i64 %k
  %other.here = getelementptr i64, ptr %other.at, i64 4
  %other = load i64, ptr %other.here, align 8
  %one.same = icmp eq i64 %one, %other
  br i1 %one.same, label %stride, label %counted
counted:
  %stays = phi i1 [ 0, %look ], [ 1, %what ], [ 0, %lies ], [ 1, %stride ], [ 0, %step ]
  %place.at = getelementptr i64, ptr %places, i64 %moved
  store i64 %v, ptr %place.at, align 8
  %gone = select i1 %stays, i64 0, i64 1
  %moved.next = add nsw i64 %moved, %gone
  %v.next = add nsw i64 %v, 1
  br label %value
number:
  %n = phi i64 [ 0, %value ], [ %n.next, %copied ]
  %n.go = icmp slt i64 %n, %numbers
  br i1 %n.go, label %take, label %looked
take:
  %n.row = mul nsw i64 %n, {_COPY}
  %entry.at = getelementptr i64, ptr %table, i64 %n.row
  %from = load i64, ptr %entry.at, align 8
  %to.at = getelementptr i64, ptr %entry.at, i64 1
  %to = load ptr, ptr %to.at, align 8
  %how.at = getelementptr i64, ptr %entry.at, i64 2
  %how = load i64, ptr %how.at, align 8
  %from.at = getelementptr ptr, ptr %objects, i64 %from
  %source = load ptr, ptr %from.at, align 8
  %source.type.at = getelementptr i8, ptr %source, i64 {DATA_OFFSET - 8}
  %source.type = load i64, ptr %source.type.at, align 8
  %source.row = mul nsw i64 %from, {_RECORD}
  %source.seen.at = getelementptr i64, ptr %seen, i64 %source.row
  %source.seen = load i64, ptr %source.seen.at, align 8
  %float.at = getelementptr i8, ptr %source, i64 {_FLOAT_OFFSET}
  %element.at = getelementptr i8, ptr %source, i64 {DATA_OFFSET}
  %known = icmp eq i64 %source.type, %source.seen
  br i1 %known, label %choose, label %copied
choose:
  switch i64 %how, label %copied [
    {_cases()} ]
double:
  %d = load double, ptr %float.at, align 8
  store double %d, ptr %to, align 8
  br label %copied
single:
  %s = load double, ptr %float.at, align 8
  %s.narrow = fptrunc double %s to float
  store float %s.narrow, ptr %to, align 8
  br label %copied
{_copies()}
address:
  %base = load i64, ptr %element.at, align 8
  %offset.at = getelementptr i64, ptr %entry.at, i64 3
  %offset = load i64, ptr %offset.at, align 8
  %moved.to = add i64 %base, %offset
  store i64 %moved.to, ptr %to, align 8
  br label %copied
copied:
  %n.next = add nsw i64 %n, 1
  br label %number
looked:
  store i64 %moved, ptr %moved.at, align 8
"""
