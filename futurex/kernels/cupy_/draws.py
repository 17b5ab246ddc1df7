"""Random numbers by counter as one kernel each: every thread makes the words of its own elements.

The generator is that of :mod:`futurex.ops.random`, bit for bit. Key and start come by value or from the device's
memory, so that one CUDA graph serves every step of a training.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, blocks_for, compiled
from futurex.ops.random import STREAMS
from futurex.tree.node import Node

PHILOX = """__device__ inline void philox(unsigned long long block, unsigned int stream, unsigned long long key,
    unsigned int* words) {
    unsigned int c0 = (unsigned int)block, c1 = (unsigned int)(block >> 32), c2 = stream, c3 = 0u;
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
    for (int round = 0; round < 10; round++) {
        unsigned long long p0 = c0 * 0xD2511F53ULL, p1 = c2 * 0xCD9E8D57ULL;
        c0 = (unsigned int)(p1 >> 32) ^ c1 ^ k0; c1 = (unsigned int)p1;
        c2 = (unsigned int)(p0 >> 32) ^ c3 ^ k1; c3 = (unsigned int)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    words[0] = c0; words[1] = c1; words[2] = c2; words[3] = c3;
}
__device__ inline double unit(unsigned long long high, unsigned int low) {
    return (double)((high >> 5 << 26) + (low >> 6)) * 1.1102230246251565e-16; }
"""
_KERNEL = """extern "C" __global__ void region(long long n, long long row, {kind}* __restrict__ o,
    {key}, {start}{more}) {{
    long long step = (long long)gridDim.x * blockDim.x;
    unsigned long long seed = {read_key};
    long long begin = (long long){read_start} * row;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
        unsigned long long first = (unsigned long long)(begin + i) * {each}u;
        unsigned int made[4];
        philox(first >> 2, {stream}u, seed, made);
        unsigned int* w = made + (first & 3u);
        {statement}
    }}
}}
"""
_NORMAL = "o[i] = ({kind})(sqrt(-2.0 * log1p(-unit(w[0], w[1]))) * cos(6.283185307179586 * unit(w[2], w[3])));"
FORMS = {
    ("random_bits", "uint32"): ("unsigned int", 1, "o[i] = w[0];"),
    ("random_bits", "uint64"): ("unsigned long long", 2, "o[i] = w[0] | (unsigned long long)w[1] << 32;"),
    ("random_uniform", "float32"): ("float", 1, "o[i] = (float)(w[0] >> 8) * 5.9604644775390625e-08f;"),
    ("random_uniform", "float64"): ("double", 2, "o[i] = unit(w[0], w[1]);"),
    ("random_normal", "float32"): ("float", 4, _NORMAL.format(kind="float")),
    ("random_normal", "float64"): ("double", 4, _NORMAL.format(kind="double")),
    ("dropout", "float32"): ("float", 1, "o[i] = w[0] >= threshold ? a[i] * scale : 0.0f;"),
    ("dropout", "float64"): ("double", 1, "o[i] = w[0] >= threshold ? a[i] * scale : 0.0;"),
}
"""C++ type, words an element takes, and what is made of them."""


def source(name: str, dtype: str, key_there: bool, start_there: bool) -> str:
    """The kernel of an op; key and start are ``there`` if they come as addresses."""
    kind, each, statement = FORMS[name, dtype]
    more = f", unsigned int threshold, {kind} scale, const {kind}* __restrict__ a" if name == "dropout" else ""
    return PHILOX + _KERNEL.format(
        kind=kind, each=each, statement=statement, more=more, stream=STREAMS[name.removeprefix("random_")],
        key="const unsigned long long* key" if key_there else "unsigned long long key",
        start="const signed long long* start" if start_there else "signed long long start",
        read_key="key[0]" if key_there else "key", read_start="start[0]" if start_there else "start",
    )  # fmt: skip


class Draw:
    """The kernel of one node: called with its operands, it gives a new array."""

    def __init__(self, device: Device, node: Node) -> None:
        self.device, self.node = device, node
        self.row = math.prod(node.shape[1:])
        self.name, self.dtype = node.op, node.dtype
        self.more: list[Any] = []
        if node.op == "dropout":
            rate = node.attrs["rate"]
            self.more = [np.uint32(min(round(rate * 2**32), 2**32 - 1)), node.dtype.type(1.0 / (1.0 - rate))]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        *arrays, key, start = inputs
        xp, holds = self.device.xp, self.device.holds
        out = xp.empty(self.node.shape, self.dtype)
        if out.size:
            text = source(self.name, str(self.dtype), holds(key), holds(start))
            args = [
                np.int64(out.size), np.int64(self.row), out, key if holds(key) else np.uint64(key),
                start if holds(start) else np.int64(start), *self.more, *map(xp.ascontiguousarray, arrays),
            ]  # fmt: skip
            compiled(self.device, text)((blocks_for(self.device, out.size),), (THREADS,), tuple(args))
        return (out,)


def kernel_for(device: Device, node: Node) -> Draw | None:
    """The kernel of random numbers, or None for another op, dtype or kind of key."""
    if (node.op, str(node.dtype) if not isinstance(node.aval, tuple) else "") not in FORMS or not node.ndim:
        return None
    key, start = node.inputs[-2:]
    return Draw(device, node) if node.is_static and key.dtype == np.uint64 and start.dtype == np.int64 else None
