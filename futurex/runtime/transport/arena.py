"""Anonymous memory that the processes of one host share: each rank writes its own, and the others read it.

An arena is a sealed memory file without a name, as large as the machine's memory, where no limit of the process
(`ulimit`) forbids it, and as sparse as its use. It is mapped by its owner for writing and by those who are given its
descriptor for reading, so nothing that hangs, or belongs to an ended generation, can ever write to another rank's
arrays. The kernel frees it with the last process that maps it.
"""

from __future__ import annotations

import bisect
import fcntl
import math
import mmap
import os
import resource
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from futurex.runtime.transport.errors import TransportError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_PAGE = mmap.PAGESIZE
_ALIGNMENT = 128
_ADDRESSES = 1 << 46  # of the 2**47 bytes that a process has names for
_LEAST = 32 << 20  # with less than that an arena is of no use


class ArenaFull(TransportError):
    """There is no room for another array in the shared memory of this rank."""


def room(ranks: int = 1) -> tuple[int, str]:
    """Return how many bytes an arena may have where every rank maps those of so many, and what bounds them, if it is
    less than the machine's memory.

    A limit on addresses leaves half of what is left of it to everything else.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE
    bounds = [(machine, ""), (_ADDRESSES // ranks, "as many ranks as share this machine")]
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if longest != resource.RLIM_INFINITY:
        bounds.append((longest, "this process's limit on the size of files (ulimit -f)"))
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
        bounds.append((max(0, addresses - used) // (2 * ranks), "this process's limit on addresses (ulimit -v)"))
    nbytes, why = min(bounds)
    return nbytes // _PAGE * _PAGE, why


class Mapping:
    """Shared memory as one of its users maps it, and arrays on it."""

    def __init__(self, descriptor: int, access: int) -> None:
        self.nbytes = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, self.nbytes, flags=mmap.MAP_SHARED, prot=access)
        self.view = memoryview(self._map)
        self._whole = np.frombuffer(self._map, np.uint8)
        self.address = int(self._whole.__array_interface__["data"][0])

    def array(self, offset: int, dtype: Any, count: int) -> Any:
        """Return `count` elements that begin at `offset`. Raises ValueError where that is out of bounds."""
        return np.frombuffer(self._map, dtype, count, offset) if count else np.empty(0, dtype)

    def offset(self, array: np.ndarray) -> int | None:
        """Return where a contiguous array lies in this memory, None if it lies elsewhere."""
        offset = int(array.__array_interface__["data"][0]) - self.address
        inside = 0 <= offset <= self.nbytes - array.nbytes and array.flags.c_contiguous
        return offset if inside else None


class PeerMemory(Mapping):
    """Another rank's arena, for reading. Raises TransportError for a descriptor that its owner could still shrink."""

    def __init__(self, descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise TransportError("the shared memory that a peer handed over is not sealed")
        super().__init__(descriptor, mmap.PROT_READ)


class _Block:
    """The owner of one allocation: arrays made from it keep it, and it gives the memory back when it goes."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}


class Arena(Mapping):
    """This rank's shared memory: `reserved` bytes at its beginning for the caller, then whatever is allocated.

    Each of `ranks` maps the arenas of all. Raises TransportError where limits of the process leave next to nothing.

    >>> arena = Arena(4096)
    >>> array = arena.empty((2, 3), np.float32)
    >>> array.shape, arena.offset(array), arena.offset(np.empty(3))
    ((2, 3), 4096, None)
    """

    def __init__(self, reserved: int, ranks: int = 1) -> None:
        nbytes, self._bound = room(ranks)
        if nbytes < reserved + _LEAST:
            raise TransportError(
                f"{self._bound or 'the memory of this machine'} leaves {nbytes} bytes for arrays that {ranks} ranks "
                "share: raise it, or use transport='tcp'"
            )
        self.descriptor = os.memfd_create("futurex", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, nbytes)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
        super().__init__(self.descriptor, mmap.PROT_READ | mmap.PROT_WRITE)
        self._lock = threading.Lock()
        self._given: deque[tuple[int, int]] = deque()  # free again, and not in the list below yet
        first = -(-reserved // _PAGE) * _PAGE
        self._free: list[tuple[int, int]] = [(first, self.nbytes - first)]  # (offset, bytes), in order

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """Return an uninitialised array in this memory; it is given back when nothing refers to it any more."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return np.empty(shape, dtype)
        offset, taken = self._take(nbytes)
        block = _Block(self.address + offset, nbytes)
        # Where garbage is collected a block may go in the middle of an allocation, also of this thread: that takes no
        # lock, and leaves the list alone that is looked through.
        weakref.finalize(block, self._given.append, (offset, taken)).atexit = False
        return np.asarray(block).view(dtype).reshape(shape)

    def close(self) -> None:
        """Close the descriptor; the memory lives on while arrays use it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _take(self, nbytes: int) -> tuple[int, int]:
        unit = _PAGE if nbytes >= _PAGE else _ALIGNMENT
        needed = -(-nbytes // unit) * unit
        with self._lock:
            self._gather()
            for index, (offset, room) in enumerate(self._free):
                start = -(-offset // unit) * unit
                if start + needed <= offset + room:
                    left = [(offset, start - offset), (start + needed, offset + room - start - needed)]
                    self._free[index : index + 1] = [each for each in left if each[1]]
                    return start, needed
        bound = f", which is bound by {self._bound}" if self._bound else ""
        raise ArenaFull(f"no {nbytes} contiguous bytes are free in the shared memory of {self.nbytes} bytes{bound}")

    def _gather(self) -> None:
        """Put what was given back among what is free."""
        while self._given:
            self._insert(*self._given.popleft())

    def _insert(self, offset: int, nbytes: int) -> None:
        index = bisect.bisect(self._free, (offset, 0))
        self._free.insert(index, (offset, nbytes))
        for at in (index, index - 1):  # join with the neighbours that follow and go before
            if 0 <= at < len(self._free) - 1 and sum(self._free[at]) == self._free[at + 1][0]:
                self._free[at : at + 2] = [(self._free[at][0], self._free[at][1] + self._free[at + 1][1])]
