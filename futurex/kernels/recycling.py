"""Memory of large arrays, used again when the arrays that held it are gone.

The C library gives blocks above 32 MB back to the system at once, and several smaller ones once they are free together;
every page of the next one is a fault: for a result of 40 MB that takes as long as a sum of two such arrays, on virtual
machines much longer. NumPy lets
a library allocate what arrays own (``PyDataMem_SetHandler``, NEP 49), so that results are arrays like all others: they
own their data, and can be resized. Sixteen blocks are kept; the system may take their pages while nobody uses them
(``MADV_FREE``), but for those of a few: telling it interrupts every other processor of the process, and takes longer
than small kernels do.

The functions are machine code, since arrays die in any thread and while Python ends. Some of NumPy's own functions ask
for memory without the interpreter's lock, so the table of blocks has a lock of its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.numba_.compiler import compiled

LEAST_BYTES = 1 << 20
"""Smaller blocks are the C library's."""
KEPT = 16
"""Blocks that are kept at most; the one kept longest gives way."""
_SHARE = 64  # a block above this part of the machine's memory is not kept
_WARM = 128 << 20
"""Bytes of kept blocks whose pages the system may not take, but a quarter of the largest block that is kept."""
_PAGE = 2 << 20
_MADV_FREE, _MADV_HUGEPAGE = 8, 14
_SET_HANDLER = 304  # its place in NumPy's table of C functions
_NAME = b"mem_handler\0"
_HANDLER = "futurex"
"""What NumPy calls the one of these functions."""

Empty = Callable[[tuple[int, ...], Any], Any]


def _rounded(name: str) -> list[str]:
    """A size in whole pages."""
    return [f"  %more = add i64 %size, {_PAGE - 1}", f"  %{name} = and i64 %more, -{_PAGE}"]


_LOCK = [
    f"  %lock = getelementptr i64, ptr %state, i64 {2 * KEPT + 2}",
    "  br label %try",
    "try:",
    "  %others = atomicrmw xchg ptr %lock, i64 1 acquire",
    "  %busy = icmp ne i64 %others, 0",
    "  br i1 %busy, label %try, label %locked",
    "locked:",
]


def _cooled(held: str, size: str) -> list[str]:
    """What a place held is kept no more: its size, and a bit that says whether the system was not told."""
    return [
        f"  %warm.at = getelementptr i64, ptr %state, i64 {2 * KEPT + 3}",
        f"  %was.warm = and i64 %{held}, 1",
        f"  %warm.bytes = mul i64 %was.warm, %{size}",
        "  %warm.before = atomicrmw sub ptr %warm.at, i64 %warm.bytes monotonic",
    ]


_UNLOCK = "  store atomic i64 0, ptr %lock release, align 8"
_TAKE = [
    "declare ptr @aligned_alloc(i64, i64)",
    "declare i32 @madvise(ptr, i64, i32)",
    "define internal ptr @take(ptr %state, i64 %size) {",
    "entry:",
    *_rounded("bytes"),
    *_LOCK,
    "  br label %head",
    "head:",
    "  %k = phi i64 [ 0, %locked ], [ %after, %next ]",
    f"  %any = icmp ult i64 %k, {KEPT}",
    "  br i1 %any, label %look, label %fresh",
    "look:",
    "  %slot = getelementptr {ptr, i64}, ptr %state, i64 %k",
    "  %place = getelementptr {ptr, i64}, ptr %slot, i64 0, i32 1",
    "  %held = load i64, ptr %place",
    "  %holds = and i64 %held, -2",
    "  %fits = icmp eq i64 %holds, %bytes",
    "  br i1 %fits, label %found, label %next",
    "next:",
    "  %after = add i64 %k, 1",
    "  br label %head",
    "found:",
    "  %block = load ptr, ptr %slot",
    "  store i64 0, ptr %place",
    *_cooled("held", "holds"),
    _UNLOCK,
    "  ret ptr %block",
    "fresh:",
    _UNLOCK,
    f"  %new = call ptr @aligned_alloc(i64 {_PAGE}, i64 %bytes)",
    f"  %told = call i32 @madvise(ptr %new, i64 %bytes, i32 {_MADV_HUGEPAGE})",
    "  ret ptr %new",
    "}",
]
_BY_SIZE = [
    f"  %few = icmp ult i64 %size, {LEAST_BYTES}",
    "  br i1 %few, label %small, label %large",
]
_MALLOC = [
    *_TAKE,
    "declare ptr @malloc(i64)",
    "define ptr @region(ptr %state, i64 %size) {",
    *_BY_SIZE,
    "small:",
    "  %own = call ptr @malloc(i64 %size)",
    "  ret ptr %own",
    "large:",
    "  %block = call ptr @take(ptr %state, i64 %size)",
    "  ret ptr %block",
    "}",
]
_CALLOC = [
    *_TAKE,
    "declare ptr @calloc(i64, i64)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "define ptr @region(ptr %state, i64 %count, i64 %each) {",
    "  %size = mul i64 %count, %each",
    *_BY_SIZE,
    "small:",
    "  %own = call ptr @calloc(i64 %count, i64 %each)",
    "  ret ptr %own",
    "large:",
    "  %block = call ptr @take(ptr %state, i64 %size)",
    "  %none = icmp eq ptr %block, null",
    "  br i1 %none, label %end, label %fill",
    "fill:",
    "  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %size, i1 false)",
    "  br label %end",
    "end:",
    "  ret ptr %block",
    "}",
]
_REALLOC = [
    "declare ptr @realloc(ptr, i64)",
    "define ptr @region(ptr %state, ptr %block, i64 %size) {",
    *_BY_SIZE,
    "small:",
    "  %own = call ptr @realloc(ptr %block, i64 %size)",
    "  ret ptr %own",
    "large:",
    *_rounded("bytes"),
    "  %new = call ptr @realloc(ptr %block, i64 %bytes)",
    "  ret ptr %new",
    "}",
]
_FREE = [
    "declare void @free(ptr)",
    "declare i64 @malloc_usable_size(ptr)",
    "declare i32 @madvise(ptr, i64, i32)",
    "define void @region(ptr %state, ptr %block, i64 %size) {",
    f"  %few = icmp ult i64 %size, {LEAST_BYTES}",
    "  %none = icmp eq ptr %block, null",  # as sorting frees the buffers that it did not need
    "  %apart = or i1 %few, %none",
    "  br i1 %apart, label %small, label %large",
    "small:",
    "  call void @free(ptr %block)",
    "  ret void",
    "large:",
    *_rounded("said"),
    "  %usable = call i64 @malloc_usable_size(ptr %block)",  # NumPy may say more than it has asked for
    f"  %held = and i64 %usable, -{_PAGE}",
    "  %less = icmp ult i64 %held, %said",
    "  %bytes = select i1 %less, i64 %held, i64 %said",
    f"  %clock = getelementptr {{ptr, i64}}, ptr %state, i64 {KEPT}",
    "  %limit.at = getelementptr i64, ptr %clock, i64 1",
    "  %limit = load i64, ptr %limit.at",
    "  %nothing = icmp eq i64 %bytes, 0",
    "  %huge = icmp ugt i64 %bytes, %limit",
    "  %odd.size = or i1 %nothing, %huge",
    "  %address = ptrtoint ptr %block to i64",
    f"  %odd = and i64 %address, {_PAGE - 1}",
    "  %moved = icmp ne i64 %odd, 0",  # by realloc
    "  %drop = or i1 %odd.size, %moved",
    "  br i1 %drop, label %end, label %keep",
    "keep:",
    f"  %all.at = getelementptr i64, ptr %state, i64 {2 * KEPT + 3}",
    "  %most.at = getelementptr i64, ptr %all.at, i64 1",
    "  %most = load i64, ptr %most.at",
    "  %all = atomicrmw add ptr %all.at, i64 %bytes monotonic",
    "  %together = add i64 %all, %bytes",
    "  %much = icmp ugt i64 %together, %most",
    "  br i1 %much, label %tell, label %put",
    "tell:",
    "  %taken.back = atomicrmw sub ptr %all.at, i64 %bytes monotonic",
    f"  %told = call i32 @madvise(ptr %block, i64 %bytes, i32 {_MADV_FREE})",  # while nobody else can take it
    "  br label %put",
    "put:",
    "  %warm = phi i64 [ 0, %tell ], [ 1, %keep ]",
    "  %marked = or i64 %bytes, %warm",
    *_LOCK,
    "  %turn = load i64, ptr %clock",
    "  %following = add i64 %turn, 1",
    "  store i64 %following, ptr %clock",
    f"  %k = urem i64 %turn, {KEPT}",
    "  %slot = getelementptr {ptr, i64}, ptr %state, i64 %k",
    "  %place = getelementptr {ptr, i64}, ptr %slot, i64 0, i32 1",
    "  %kept = load i64, ptr %place",
    "  %kept.bytes = and i64 %kept, -2",
    *_cooled("kept", "kept.bytes"),
    "  %before = load ptr, ptr %slot",
    "  store ptr %block, ptr %slot",
    "  store i64 %marked, ptr %place",
    _UNLOCK,
    "  %empty = icmp eq i64 %kept, 0",
    "  br i1 %empty, label %done, label %end",
    "end:",
    "  %gone = phi ptr [ %block, %large ], [ %before, %locked ]",
    "  call void @free(ptr %gone)",
    "  br label %done",
    "done:",
    "  ret void",
    "}",
]

_TEXTS = ["\n".join(lines) + "\n" for lines in (_MALLOC, _CALLOC, _REALLOC, _FREE)]


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """``numpy.empty`` for an array of :data:`LEAST_BYTES` or more, whose memory is kept when it is gone."""
    return kept(np.empty, shape, dtype)


def kept(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``; the memory of large arrays that NumPy makes meanwhile is kept when they are gone.

    Until the functions are compiled, behind the first calls, it is NumPy's own.
    """
    handler = _handler()
    if handler is None:
        return function(*args)
    set_handler, capsule = handler
    before = set_handler(capsule)
    try:
        return function(*args)
    finally:
        set_handler(before)


def is_kept(array: np.ndarray) -> bool:
    """Does an array that owns its data lie in such memory, as far as it is large?"""
    if array.nbytes < LEAST_BYTES or not _made:
        return True
    from numpy._core.multiarray import get_handler_name

    return bool(get_handler_name(array) == _HANDLER)


def settled() -> bool:
    """Is there such memory by now, or is it known that there will be none?"""
    if _handler() is not None or _set_handler() is None:
        return True
    return any(compiled(text, wait=False).error is not None for text in _TEXTS)


def prepare() -> bool:
    """Have the functions compiled; False where arrays are NumPy's own for good."""
    for text in _TEXTS:
        compiled(text)
    return _handler() is not None


def maker(nbytes: int) -> Empty:
    """What makes an array of so many bytes."""
    return empty if nbytes >= LEAST_BYTES else np.empty


_made: list[tuple[Callable[[Any], Any], Any]] = []


def _table(limit: int) -> bytes:
    """What the functions share: places for blocks, whose turn it is, the bytes of the largest that is kept, a lock, the
    bytes of blocks whose pages the system may not take, and how many these may be."""
    return struct.pack(f"={2 * KEPT + 5}q", *[0] * (2 * KEPT + 1), limit, 0, 0, min(_WARM, limit // 4))


def _forever(content: bytes) -> int:
    """The address of a copy that nobody frees: arrays may outlive all objects of this module while Python ends."""
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address: int = allocate(len(content))
    ctypes.memmove(address, content, len(content))
    return address


def _handler() -> tuple[Callable[[Any], Any], Any] | None:
    """NumPy's function, and a capsule of its ``PyDataMem_Handler``, once that can be made."""
    if _made:
        return _made[0]
    set_handler = _set_handler()
    entries = [compiled(text, wait=False) for text in _TEXTS] if set_handler is not None else []
    if set_handler is None or not all(entry.ready for entry in entries):
        return None
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _SHARE
    state = _forever(_table(limit))
    functions = [entry.address for entry in entries]
    handler = _forever(struct.pack("@127sB5P", _HANDLER.encode(), 1, state, *functions))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    capsule = new(handler, _forever(_NAME), None)
    if hasattr(os, "register_at_fork"):  # a thread that is not in the child may have held the lock
        os.register_at_fork(after_in_child=lambda: ctypes.memset(state + 8 * (2 * KEPT + 2), 0, 8))
    _made.append((set_handler, capsule))
    return _made[0]


@functools.cache
def _set_handler() -> Callable[[Any], Any] | None:
    """NumPy's function; None where there is none like it, or no such memory."""
    try:
        from numpy._core import _multiarray_umath as umath

        if os.uname().sysname != "Linux" or not hasattr(umath, "get_handler_name"):
            return None
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = ctypes.cast(pointer(umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
        return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    except (ImportError, AttributeError, TypeError):
        return None
