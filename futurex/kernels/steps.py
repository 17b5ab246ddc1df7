"""Kernels as calls of machine code at fixed addresses: a row of them runs without Python in between.

A Python call of a kernel checks arrays and finds their addresses, which are the same from run to run for what lies in
the memory of a plan. A bound kernel does that once, and leaves calls that need nothing but the processor.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.watch import LOOK, Watch

Step = tuple[int, int, int, int, int, int]
"""The address of a C function, four arguments of it, and 1 where a result other than zero is a failure."""
_WIDTH = 6


class Bound(Protocol):
    """One kernel, to be aimed at arrays."""

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """What runs the kernel on these arrays, as long as they live; None where only its own call can.

        The same sequence object as before where nothing changed but what it points to.
        """
        ...


@runtime_checkable
class Numbered(Protocol):
    """A kernel whose steps also hold numbers.

    ``numbers``: for an input the address and dtype of each place that holds it. Inputs in ``copied`` are written there
    before the steps are made; the others the steps fetch themselves.
    """

    numbers: Mapping[int, Sequence[tuple[int, np.dtype[Any]]]]
    copied: frozenset[int]


@runtime_checkable
class Following(Protocol):
    """A kernel whose steps find arrays by addresses in a block, and may be given others there, as long as strides and
    alignment stay, and no result comes to lie on an operand or leaves one.

    ``places``: the addresses of the words that say where results lie, and where an input does.
    """

    @property
    def places(self) -> tuple[Sequence[int], Mapping[int, int]]: ...


class Workspace:
    """Memory that kernels which run one after the other use in turn."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def take(self, size: int) -> int:
        """The address of at least ``size`` bytes, on a boundary of 64."""
        if not self._kept or self._kept[-1].nbytes < size + 64:
            self._kept.append(np.empty(size + 64, np.uint8))
        return -(-address_of(self._kept[-1]) // 64) * 64


class StepFailed(RuntimeError):
    """A step gave a status other than zero; ``number`` says which one, ``part`` whose it was."""

    part = 0

    def __init__(self, number: int, status: int) -> None:
        super().__init__(f"a compiled kernel failed with status {status}")
        self.number = number


@functools.cache
def _libc() -> tuple[int, int]:
    library = ctypes.CDLL(None)
    copy, fill = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("memcpy", "memset"))
    assert copy is not None
    assert fill is not None
    return copy, fill


def copying(target: int, source: int, count: int) -> Step:
    """Copy bytes."""
    return _libc()[0], target, source, count, 0, 0


def clearing(target: int, count: int) -> Step:
    """Make bytes zero."""
    return _libc()[1], target, 0, count, 0, 0


PLAYER = f"""define void @region(ptr %block) {{
entry:
  %count = load i64, ptr %block, align 8
  %steps.at = getelementptr i64, ptr %block, i64 1
  %steps = load ptr, ptr %steps.at, align 8
  %watch.at = getelementptr i64, ptr %block, i64 4
  %watch = load ptr, ptr %watch.at, align 8
{LOOK}
  %go.on = icmp eq i64 %moved, 0
  br i1 %go.on, label %head, label %leave
head:
  %i = phi i64 [ 0, %looked ], [ %next, %passed ]
  %go = icmp slt i64 %i, %count
  br i1 %go, label %body, label %leave
body:
  %row = mul nsw i64 %i, {_WIDTH}
  %step.at = getelementptr i64, ptr %steps, i64 %row
  %function = load ptr, ptr %step.at, align 8
  %a.at = getelementptr i64, ptr %step.at, i64 1
  %a = load i64, ptr %a.at, align 8
  %b.at = getelementptr i64, ptr %step.at, i64 2
  %b = load i64, ptr %b.at, align 8
  %c.at = getelementptr i64, ptr %step.at, i64 3
  %c = load i64, ptr %c.at, align 8
  %d.place = getelementptr i64, ptr %step.at, i64 4
  %fourth = load i64, ptr %d.place, align 8
  %checked.at = getelementptr i64, ptr %step.at, i64 5
  %checked = load i64, ptr %checked.at, align 8
  %status = call i32 %function(i64 %a, i64 %b, i64 %c, i64 %fourth)
  %matters = icmp ne i64 %checked, 0
  %failed = icmp ne i32 %status, 0
  %stop = and i1 %matters, %failed
  br i1 %stop, label %fail, label %passed
passed:
  %next = add nsw i64 %i, 1
  br label %head
fail:
  %place = getelementptr i64, ptr %block, i64 2
  store i64 %i, ptr %place, align 8
  %status.at = getelementptr i64, ptr %block, i64 3
  %wide = sext i32 %status to i64
  store i64 %wide, ptr %status.at, align 8
  br label %leave
leave:
  ret void
}}
"""
"""The text of what makes one step after the other, once it has looked whether values have moved."""


@functools.cache
def _player() -> Any:
    """The function that makes one step after the other, or None where there is no compiler."""
    if importlib.util.find_spec("llvmlite") is None:
        return None
    from futurex.kernels.numba_.compiler import compiled

    return compiled(PLAYER)


def ready() -> bool:
    """Can steps be made?"""
    player = _player()
    return player is not None and bool(player.ready)


class Row:
    """Steps that are made one after the other, without the interpreter's lock; only if no watched value has moved."""

    def __init__(self, steps: Sequence[Step], watch: Watch | None = None) -> None:
        self._table = np.array(steps, np.uint64).view(np.int64).reshape(-1, _WIDTH)
        self._watch = Watch(0) if watch is None else watch
        looked = ctypes.addressof(self._watch.words)
        self._words = (ctypes.c_int64 * 5)(len(steps), address_of(self._table), 0, 0, looked)
        self._block = (ctypes.c_char * 40).from_buffer(self._words)
        self._play = _player()

    def run(self, values: Sequence[Any] = ()) -> bool:
        """Make all steps; False if one of the ``values`` has moved, and nothing was done. Raises StepFailed."""
        watch, words = self._watch, self._words
        watch.take(values)
        self._play(self._block)
        if words[3]:
            status, words[3] = words[3], 0
            raise StepFailed(words[2], status)
        return not watch.words[4]
