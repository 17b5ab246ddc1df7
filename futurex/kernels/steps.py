"""Kernels as calls of machine code at fixed addresses: a row of them runs without Python in between.

A Python call of a kernel checks arrays and finds their addresses, which are the same from run to run for what lies in
the memory of a plan. A bound kernel does that once, and leaves calls that need nothing but the processor.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from futurex.kernels.addresses import DATA_OFFSET, address_of, address_of_function
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


Places = Sequence[tuple[int, int]]
"""Addresses of words that say where an array lies, each with the bytes from its first element to what is meant."""


@runtime_checkable
class Following(Protocol):
    """A kernel whose steps find arrays by addresses in a block, and may be given others there, as long as strides and
    alignment stay, and no result comes to lie on an operand or leaves one.

    ``places``: the words that say where results lie, and where an input does.
    """

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]: ...


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


WALK = f"""define internal i64 @walk(ptr %steps, i64 %count, ptr %status.at) noinline {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %passed ]
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
  %d.at = getelementptr i64, ptr %step.at, i64 4
  %d = load i64, ptr %d.at, align 8
  %checked.at = getelementptr i64, ptr %step.at, i64 5
  %checked = load i64, ptr %checked.at, align 8
  %status = call i32 %function(i64 %a, i64 %b, i64 %c, i64 %d)
  %matters = icmp ne i64 %checked, 0
  %failed = icmp ne i32 %status, 0
  %stop = and i1 %matters, %failed
  br i1 %stop, label %fail, label %passed
passed:
  %next = add nsw i64 %i, 1
  br label %head
fail:
  %wide = sext i32 %status to i64
  store atomic i64 %wide, ptr %status.at monotonic, align 8
  br label %leave
leave:
  ret i64 %i
}}
"""
"""The text of a function that makes steps up to the first that fails, whose status it tells: how many went well."""
PLAYER = f"""{WALK}define ptr @region(ptr %self, ptr %objects, i64 %values) {{
entry:
  %block.at = getelementptr i8, ptr %self, i64 {DATA_OFFSET}
  %block = load ptr, ptr %block.at, align 8
  %count = load i64, ptr %block, align 8
  %steps.at = getelementptr i64, ptr %block, i64 1
  %steps = load ptr, ptr %steps.at, align 8
  %watch.at = getelementptr i64, ptr %block, i64 4
  %watch = load ptr, ptr %watch.at, align 8
{LOOK}
  %nothing.moved = icmp eq i64 %moved, 0
  %aimed = icmp sge i64 %count, 0
  %goes.on = and i1 %nothing.moved, %aimed
  br i1 %goes.on, label %begin, label %leave
begin:
  %release.at = getelementptr i64, ptr %block, i64 5
  %release = load ptr, ptr %release.at, align 8
  %thread = call ptr %release()
  %status.at = getelementptr i64, ptr %block, i64 3
  %first = call i64 @walk(ptr %steps, i64 %count, ptr %status.at)
  %first.at = getelementptr i64, ptr %block, i64 2
  store i64 %first, ptr %first.at, align 8
  %all = icmp eq i64 %first, %count
  %well = zext i1 %all to i64
  %acquire.at = getelementptr i64, ptr %block, i64 6
  %acquire = load ptr, ptr %acquire.at, align 8
  call void %acquire(ptr %thread)
  br label %leave
leave:
  %made = phi i64 [ 0, %looked ], [ %well, %begin ]
  %truth.at = getelementptr i64, ptr %block, i64 7
  %truth = load ptr, ptr %truth.at, align 8
  %result = call ptr %truth(i64 %made)
  ret ptr %result
}}
"""
"""The text of a function of Python's own kind, a row's (``METH_FASTCALL``): called with the values of a run it looks
whether one has moved, makes one step after the other, and tells whether it has made all of them."""


@functools.cache
def _player() -> Any:
    """The code that makes one step after the other, or None where it cannot be compiled or called."""
    if importlib.util.find_spec("llvmlite") is None or not DATA_OFFSET:
        return None
    from futurex.kernels.numba_.compiler import compiled

    return compiled(PLAYER)


def ready() -> bool:
    """Can steps be made?"""
    player = _player()
    return player is not None and bool(player.ready)


class _Method(ctypes.Structure):
    """What Python's C interface calls ``PyMethodDef``."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_FASTCALL = 0x80
_FUNCTIONS = "PyEval_SaveThread", "PyEval_RestoreThread", "PyBool_FromLong"
"""Of Python's C interface, which a row calls."""
_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


@functools.cache
def _native() -> tuple[_Method, list[int]]:
    """What a row's function is made of, and what it calls."""
    functions = [address_of_function(getattr(ctypes.pythonapi, name)) for name in _FUNCTIONS]
    return _Method(b"row", _player().address, _FASTCALL), functions


class Row:
    """Steps that are made one after the other, without the interpreter's lock.

    ``play(*values)`` makes them all if no watched value has moved, and is true if it did. It costs Python what any
    function of its own does: a call by ``ctypes`` takes 15 µs where a kernel has used the caches up.
    """

    def __init__(self, steps: Sequence[Step], watch: Watch | None = None) -> None:
        method, functions = _native()
        self._watch = Watch(0) if watch is None else watch
        self._words = np.array([0, 0, 0, 0, ctypes.addressof(self._watch.words), *functions], np.int64)
        self.play: Callable[..., bool] = _builtin(ctypes.addressof(method), self._words, None)
        self.aim(steps)
        self.arm(True)

    def aim(self, steps: Sequence[Step]) -> None:
        """Let these be the steps."""
        self._table = np.array(steps, np.uint64).view(np.int64).reshape(-1, _WIDTH)
        self._words[1] = address_of(self._table)

    def arm(self, on: bool) -> None:
        """Shall they be made? Else a row does nothing but look."""
        self._words[0] = len(self._table) if on else -1

    def run(self, values: Sequence[Any] = ()) -> bool:
        """Make all steps; False if one of the ``values`` has moved, and nothing was done. Raises StepFailed, also for
        steps that were played."""
        if not self._words[3] and self.play(*values):
            return True
        if status := int(self._words[3]):
            self._words[3] = 0
            raise StepFailed(int(self._words[2]), status)
        return False
