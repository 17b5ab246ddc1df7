"""Mean and variance of every column in one trip through memory, by a kernel written by hand.

A thread takes every so many rows of its column and keeps how many they were, their sum, their mean and the sum of
squared differences from it, as B. P. Welford has it (1962); threads of a block, and then blocks, join theirs in pairs,
as T. F. Chan, G. H. Golub and R. J. LeVeque do (1979). The mean that is given is the sum over the number, so that
infinities come out as NumPy has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import COLUMNS, numbered
from futurex.kernels.cuda_.scalar import PRELUDE, c_type
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.reductions import FEWEST_COLUMNS, parts_of
from futurex.kernels.cupy_.regions import THREADS, compiled
from futurex.tree.node import Node

JOINING = """
#ifdef EMULATED_
inline float __fdividef(float x, float y) { return x / y; }
#endif
__device__ inline float inverse(float n) { return __fdividef(1.0f, n); }  // without branches, and so several at once
__device__ inline double inverse(double n) { return 1.0 / n; }
template <typename T> struct Moments { T total, mean, apart; unsigned int count; };
template <typename T> __device__ inline void take(Moments<T>& here, T x, T number) {
    T off = x - here.mean;
    here.total += x; here.mean += off * inverse(number); here.apart += off * (x - here.mean); here.count++;
}
template <typename T> __device__ inline void join(Moments<T>& here, const Moments<T>& other) {
    if (!other.count) return;
    if (!here.count) { here = other; return; }
    unsigned int count = here.count + other.count;
    T share = (T)other.count / (T)count, off = other.mean - here.mean;
    here.apart += other.apart + off * off * ((T)here.count * share);
    here.mean += off * share; here.total += other.total; here.count = count;
}
"""
_KERNEL = """extern "C" __global__ void region(long long n, long long columns, long long parts,
    {results}, {operands}) {{
    extern __shared__ double shared_memory[];
    Moments<{kind}>* shared = (Moments<{kind}>*)shared_memory;
    INDEX part = blockIdx.x % (Count)parts, column = blockIdx.x / (Count)parts * @ + threadIdx.x % @;
    INDEX rows = blockDim.x / @, next = (INDEX)parts * rows;
    Moments<{kind}> here = {{0, 0, 0, 0u}};
    if (column < (INDEX)columns) {{
        {kind} number = 1;
        #pragma unroll 4
        for (INDEX row = part * rows + threadIdx.x / @; row < (INDEX)n; row += next) {{
            INDEX i = row * (INDEX)columns + column;
            {take}
            number += 1;
        }}
    }}
    shared[threadIdx.x] = here;
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half >= @; half /= 2) {{
        if (threadIdx.x < half) {{ join(here, shared[threadIdx.x + half]); shared[threadIdx.x] = here; }}
        __syncthreads();
    }}
    if (threadIdx.x < @ && column < (INDEX)columns) {{
        INDEX o = part * (INDEX)columns + column;
        {give}
    }}
}}
""".replace("@", str(COLUMNS))
_PARTS = ("total", "mean", "apart", "count")
_GIVE = """{kind} mean = here.total / ({kind})here.count, variance = here.apart / ({kind})here.count;
        bool outgrown = fabs(mean) == ({kind})INFINITY_ && variance == variance;  // the sum, of numbers that are finite
        means[o] = mean; variances[o] = outgrown ? ({kind})INFINITY_ : variance;"""


def source(dtype: np.dtype[Any], first: bool, last: bool) -> str:
    """The kernel that takes a matrix (``first``) or the moments of parts, and gives mean and variance (``last``) or the
    moments of parts. ``n`` are the rows, or parts; launch ``parts`` blocks for :data:`COLUMNS` columns each."""
    kind = c_type(dtype)
    kinds = {name: "unsigned int" if name == "count" else kind for name in _PARTS}
    results, operands = f"{kind}* __restrict__ means, {kind}* __restrict__ variances", f"const {kind}* __restrict__ x"
    take, give = "take(here, x[i], number);", _GIVE.format(kind=kind)
    if not last:
        results = ", ".join(f"{kinds[name]}* __restrict__ {name}" for name in _PARTS)
        give = " ".join(f"{name}[o] = here.{name};" for name in _PARTS)
    if not first:
        operands = ", ".join(f"const {kinds[name]}* __restrict__ its_{name}" for name in _PARTS)
        members = ", ".join(f"its_{name}[i]" for name in _PARTS)
        take = f"Moments<{kind}> other = {{{members}}}; join(here, other);"
    return PRELUDE + JOINING + _KERNEL.format(kind=kind, results=results, operands=operands, take=take, give=give)


class ColumnMoments:
    """The kernel of a node: called with an array of the device, it gives mean and variance of its columns."""

    def __init__(self, device: Device, node: Node) -> None:
        self.device, self.dtype = device, node.inputs[0].dtype
        self.rows, self.columns = math.prod(node.inputs[0].shape[:-1]), node.inputs[0].shape[-1]

    def __call__(self, x: Any) -> tuple[Any, ...]:
        xp, dtype = self.device.xp, self.dtype
        tiles = -(-self.columns // COLUMNS)
        parts = parts_of(self.device, tiles, self.rows * COLUMNS)
        x, results = xp.ascontiguousarray(x), tuple(xp.empty(self.columns, dtype) for _ in range(2))
        if parts == 1:
            self._launch(True, True, self.rows, 1, (*results, x))
            return results
        shape = (parts, self.columns)
        between = *(xp.empty(shape, dtype) for _ in range(3)), xp.empty(shape, np.uint32)
        self._launch(True, False, self.rows, parts, (*between, x))
        self._launch(False, True, parts, 1, (*results, *between))
        return results

    def _launch(self, first: bool, last: bool, rows: int, parts: int, arrays: tuple[Any, ...]) -> None:
        text = numbered(source(self.dtype, first, last), self.rows * self.columns)
        blocks, room = -(-self.columns // COLUMNS) * parts, THREADS * 4 * self.dtype.itemsize
        sizes = map(np.int64, (rows, self.columns, parts))
        compiled(self.device, text)((blocks,), (THREADS,), (*sizes, *arrays), shared_mem=room)


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """The kernel of mean and variance, or None for another op, dtype or too few columns."""
    if node.op != "moments" or not node.is_static:
        return None
    x = node.inputs[0]
    fits = x.dtype in (np.float32, np.float64) and x.size and x.shape[-1] >= FEWEST_COLUMNS
    return ColumnMoments(device, node) if fits else None
