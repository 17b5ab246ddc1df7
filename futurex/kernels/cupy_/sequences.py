"""Convolution of two sequences by a kernel written by hand: a thread adds up one element, in double precision.

CuPy goes by way of Fourier transforms: one NaN is in every element then, and what is small beside other elements lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cuda_.scalar import c_type
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, blocks_for, compiled
from futurex.tree.node import Node

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_KERNEL = """extern "C" __global__ void region(long long n, long long start, long long size, long long taps,
    @* __restrict__ o, const @* __restrict__ a, const @* __restrict__ v) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        long long at = i + start, first = at < size ? 0 : at - size + 1, last = at < taps ? at : taps - 1;
        double sum = 0;
        for (long long k = first; k <= last; k++) sum += (double)a[at - k] * (double)v[k];
        o[i] = (@)sum;
    }
}
"""


def source(dtype: np.dtype[Any]) -> str:
    """The kernel of elements ``start`` to ``start + n`` of the whole convolution of ``size`` elements with ``taps``."""
    return _KERNEL.replace("@", c_type(dtype))


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """The kernel of a convolution, or None for another op or dtype."""
    if node.op != "convolve" or not node.is_static or node.dtype not in DTYPES:
        return None
    xp, dtype, (n,), mode = device.xp, node.dtype, node.shape, node.attrs["mode"]

    def call(*inputs: Any) -> tuple[Any, ...]:
        v, a = sorted((xp.ascontiguousarray(x.astype(dtype, copy=False)) for x in inputs), key=lambda x: x.size)
        start = {"full": 0, "same": (v.size - 1) // 2, "valid": v.size - 1}[mode]
        out = xp.empty(n, dtype)
        args = (*map(np.int64, (n, start, a.size, v.size)), out, a, v)
        compiled(device, source(dtype))((blocks_for(device, n),), (THREADS,), args)
        return (out,)

    return call
