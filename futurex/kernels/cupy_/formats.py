"""Conversions between single precision and formats that CUDA's arrays have no type for: one kernel each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, blocks_for, compiled
from futurex.ops.precision import STORAGE
from futurex.tree.node import Node

_KERNEL = """extern "C" __global__ void region(long long n, {out}* __restrict__ o, const {kind}* __restrict__ a) {{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
        unsigned int bits = a[i];
        {statement}
    }}
}}
"""
_ROUNDED = (
    "bool nan = (bits & 0x7fffffffu) > 0x7f800000u;"
    " unsigned int rounded = nan ? bits | 0x400000u : bits + ({half}u + ((bits >> {dropped}) & 1u));"
)
SOURCES = {
    ("narrow", "bfloat16"): _KERNEL.format(
        out="unsigned short", kind="unsigned int",
        statement=_ROUNDED.format(half="0x7fff", dropped=16) + " o[i] = (unsigned short)(rounded >> 16);",
    ),
    ("narrow", "tfloat32"): _KERNEL.format(
        out="unsigned int", kind="unsigned int",
        statement=_ROUNDED.format(half="0xfff", dropped=13) + " o[i] = rounded & 0xffffe000u;",
    ),
    ("widen", "bfloat16"): _KERNEL.format(
        out="unsigned int", kind="unsigned short", statement="o[i] = bits << 16;",
    ),
}  # fmt: skip
"""CUDA C++ of the ops in :mod:`futurex.ops.precision`, which round to the nearest, ties to even."""


def convert(device: Device, name: str, to: str, x: Any) -> Any:
    """``narrow`` or ``widen`` of an array of the device."""
    xp = device.xp
    out = xp.empty(x.shape, STORAGE[to] if name == "narrow" else np.float32)
    if x.size:
        args = np.int64(x.size), out, xp.ascontiguousarray(x)
        compiled(device, SOURCES[name, to])((blocks_for(device, x.size),), (THREADS,), args)
    return out


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """The kernel of a conversion, or None for another op or format."""
    name, to = node.op, node.attrs.get("to", "")
    if (name, to) not in SOURCES or not node.ndim:
        return None
    return lambda x: (convert(device, name, to, x),)
