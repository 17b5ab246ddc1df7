"""Memory whose end is one of what may be read."""

import ctypes
import mmap

import numpy as np


def before_a_guard(array):
    """A copy behind which nothing may be read: the next page is protected."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    block = mmap.mmap(-1, size + mmap.PAGESIZE)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(block)) + size
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), mmap.PAGESIZE, 0) == 0
    copy = np.frombuffer(block, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy
