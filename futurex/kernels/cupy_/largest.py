"""The elements of an array that are largest in magnitude, found on the device by kernels written by hand.

The bits of positive floats order as the floats do: four passes count the values of eight bits each (radix selection)
and find the smallest magnitude that is kept, a fifth collects. Nothing waits for the device, and all sizes are known
before. Lin et al., *Deep gradient compression* (2018), send gradients so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, blocks_for, compiled

_EACH = """
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned int magnitude = bits[i] & 0x7fffffffu;
        %s
    }
}
"""
_COUNT = """extern "C" __global__ void region(long long n, unsigned int shift, const unsigned int* state,
    unsigned int* counts, const unsigned int* bits) {""" + _EACH % (
    "if ((magnitude & state[1]) == state[0]) atomicAdd(&counts[(magnitude >> shift) & 255u], 1u);"
)
_CHOOSE = """extern "C" __global__ void region(unsigned int shift, unsigned int* state, unsigned int* counts) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    unsigned int digit = 255u, left = state[2];
    for (; counts[digit] < left; digit--) left -= counts[digit];
    state[0] |= digit << shift; state[1] |= 255u << shift; state[2] = left;
    for (int k = 0; k < 256; k++) counts[k] = 0u;
}
"""
_COLLECT = """extern "C" __global__ void region(long long n, const unsigned int* state, unsigned int* cursors,
    unsigned int* places, unsigned int* values, const unsigned int* bits) {""" + _EACH % (
    "bool taken = magnitude > state[0];\n"
    "        if (magnitude == state[0]) taken = atomicAdd(&cursors[1], 1u) < state[2];\n"
    "        if (taken) { unsigned int at = atomicAdd(&cursors[0], 1u); places[at] = (unsigned int)i;"
    " values[at] = bits[i]; }"
)
SOURCES = (_COUNT, _CHOOSE, _COLLECT)
"""CUDA C++: ``state`` is the magnitude found so far, which of its bits that are, and how many are to come of it."""


def largest(device: Device, x: Any, k: int) -> tuple[Any, Any]:
    """Places (uint32) and values of the ``k`` elements of a flat float32 array that are largest, in any order.

    Of equal ones any are taken; NaN counts as largest. Raises ValueError for a ``k`` that does not fit, TypeError for
    another dtype.

    >>> from futurex.kernels.cupy_.emulated import NAMESPACE
    >>> emulated = Device(NAMESPACE, "emulated")
    >>> places, values = largest(emulated, emulated.to_device(np.array([1, -5, 2], np.float32)), 1)
    >>> places, values
    (array([1], dtype=uint32), array([-5.], dtype=float32))
    """
    if x.dtype != np.float32:
        raise TypeError(f"the largest are found of float32, not of {x.dtype}")
    if not 1 <= k <= x.size < 2**32:
        raise ValueError(f"{k} of {x.size} elements: it must be between 1 and {x.size}")
    xp, grid = device.xp, (blocks_for(device, x.size),)
    state, counts = device.to_device(np.array([0, 0, k], np.uint32)), xp.zeros(256, np.uint32)
    count, choose, collect = (compiled(device, text) for text in SOURCES)
    for shift in (24, 16, 8, 0):
        count(grid, (THREADS,), (np.int64(x.size), np.uint32(shift), state, counts, x))
        choose((1,), (32,), (np.uint32(shift), state, counts))
    places, values = xp.empty(k, np.uint32), xp.empty(k, np.float32)
    collect(grid, (THREADS,), (np.int64(x.size), state, xp.zeros(2, np.uint32), places, values, x))
    return places, values
