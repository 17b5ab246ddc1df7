"""Kernels for a GPU written by hand with Numba, where no library has one.

Both work on one flat array that holds many tensors end to end, so that a whole model takes one launch, and on any array
that has ``__cuda_array_interface__``, such as CuPy's. With ``NUMBA_ENABLE_CUDASIM=1`` Numba runs them on the processor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

_THREADS = 256
_BLOCKS = 512


@cuda.jit
def _adam(p: Any, g: Any, m: Any, v: Any, rate: Any, root: Any, b1: Any, b2: Any, eps: Any) -> None:
    for i in range(cuda.grid(1), p.size, cuda.gridsize(1)):
        gradient = g[i]
        first = b1 * m[i] + (1 - b1) * gradient
        second = b2 * v[i] + (1 - b2) * (gradient * gradient)
        m[i] = first
        v[i] = second
        p[i] -= rate * (first / (math.sqrt(second) / root + eps))


@cuda.jit
def _momentum(p: Any, g: Any, velocity: Any, rate: Any, share: Any) -> None:
    for i in range(cuda.grid(1), p.size, cuda.gridsize(1)):
        moved = share * velocity[i] + g[i]
        velocity[i] = moved
        p[i] -= rate * moved


@cuda.jit
def _count(bits: Any, shift: Any, prefix: Any, mask: Any, counts: Any) -> None:
    """How many magnitudes that agree with ``prefix`` where ``mask`` says have each value of the next eight bits."""
    for i in range(cuda.grid(1), bits.size, cuda.gridsize(1)):
        magnitude = bits[i] & 0x7FFFFFFF
        if magnitude & mask == prefix:
            cuda.atomic.add(counts, (magnitude >> shift) & 0xFF, 1)


@cuda.jit
def _gather(x: Any, bits: Any, least: Any, ties: Any, cursors: Any, places: Any, values: Any) -> None:
    """Everything above ``least``, and the first ``ties`` to arrive of what equals it."""
    for i in range(cuda.grid(1), bits.size, cuda.gridsize(1)):
        magnitude = bits[i] & 0x7FFFFFFF
        taken = magnitude > least
        if magnitude == least:
            taken = cuda.atomic.add(cursors, 1, 1) < ties
        if taken:
            at = cuda.atomic.add(cursors, 0, 1)
            places[at] = i
            values[at] = x[i]


def _grid(size: int) -> tuple[int, int]:
    threads = min(_THREADS, -(-size // 32) * 32)
    return min(_BLOCKS, -(-size // threads)), threads


def adam_update(
    params: Any, grads: Any, m: Any, v: Any, *, lr: float, step: float, b1: float = 0.9, b2: float = 0.999,
    eps: float = 1e-8,
) -> None:  # fmt: skip
    """One step of Adam in place, over flat arrays of one dtype: every element is read and written once.

    ``step`` counts from 1. The formula is that of :func:`futurex.optim.adam` (Kingma and Ba, arXiv 1412.6980).
    """
    dtype = np.dtype(params.dtype).type
    rate, root = lr / (1.0 - b1**step), (1.0 - b2**step) ** 0.5
    scalars = (dtype(each) for each in (rate, root, b1, b2, eps))
    _adam[_grid(params.size)](params, grads, m, v, *scalars)


def momentum_update(params: Any, grads: Any, velocity: Any, *, lr: float, momentum: float) -> None:
    """One step of gradient descent with momentum in place, over flat arrays of one dtype.

    The formula is that of :func:`futurex.optim.sgd`.
    """
    dtype = np.dtype(params.dtype).type
    _momentum[_grid(params.size)](params, grads, velocity, dtype(lr), dtype(momentum))


def top_k(x: Any, k: int) -> tuple[Any, Any]:
    """Places and values of the ``k`` elements of a flat float32 array that are largest in magnitude, in any order.

    The bits of positive floats order as the floats do: four passes count the values of eight bits each (radix
    selection) and find the smallest magnitude that is kept, a fifth collects. Of equal ones any are taken; NaN counts
    as largest. Lin et al., *Deep gradient compression* (2018), send gradients so. Raises ValueError for a ``k`` that
    does not fit, and TypeError for another dtype.
    """
    if np.dtype(x.dtype) != np.float32:
        raise TypeError(f"top_k takes float32, not {x.dtype}")
    if not 1 <= k <= x.size:
        raise ValueError(f"top_k of {x.size} elements: k must be between 1 and {x.size}, not {k}")
    grid = _grid(x.size)
    x = cuda.as_cuda_array(x) if hasattr(x, "__cuda_array_interface__") else cuda.to_device(x)
    bits = x.view(np.uint32)
    prefix, mask, left = 0, 0, k
    for shift in (24, 16, 8, 0):
        counts = cuda.to_device(np.zeros(256, np.int32))
        _count[grid](bits, np.uint32(shift), np.uint32(prefix), np.uint32(mask), counts)
        above = np.cumsum(counts.copy_to_host()[::-1])
        digit = 255 - int(np.searchsorted(above, left))
        left -= int(above[254 - digit]) if digit < 255 else 0
        prefix, mask = prefix | digit << shift, mask | 0xFF << shift
    cursors = cuda.to_device(np.zeros(2, np.int32))
    places, values = cuda.device_array(k, np.int64), cuda.device_array(k, np.float32)
    _gather[grid](x, bits, np.uint32(prefix), np.int32(left), cursors, places, values)
    return places, values
