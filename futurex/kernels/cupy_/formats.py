"""Conversions between single precision and formats that CUDA's arrays have no type for, one by one.

Between other elementwise operations they are part of a generated region.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import Operand, region_source
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, blocks_for, compiled
from futurex.ops.precision import STORAGE
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param

CONVERSIONS = (("narrow", "bfloat16"), ("narrow", "tfloat32"), ("widen", "bfloat16"))
"""What CuPy's casts do not do."""


@functools.cache
def source(name: str, to: str) -> str:
    """CUDA C++ of an op in :mod:`futurex.ops.precision`, for arrays of any size."""
    x = param(Aval((2,), np.dtype(np.float32) if name == "narrow" else STORAGE[to]))
    return region_source(Graph([x], [apply(name, x, to=to)]), [Operand.DENSE], 1)


def convert(device: Device, name: str, to: str, x: Any) -> Any:
    """``narrow`` or ``widen`` of an array of the device."""
    xp = device.xp
    out = xp.empty(x.shape, STORAGE[to] if name == "narrow" else np.float32)
    if x.size:
        args = np.int64(x.size), out, xp.ascontiguousarray(x)
        compiled(device, source(name, to))((blocks_for(device, x.size),), (THREADS,), args)
    return out


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """The kernel of a conversion, or None for another op or format."""
    name, to = node.op, node.attrs.get("to", "")
    if (name, to) not in CONVERSIONS or not node.ndim:
        return None
    return lambda x: (convert(device, name, to, x),)
