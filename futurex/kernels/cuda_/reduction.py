"""Reductions of fused regions as CUDA kernels.

The region's elements are numbered with the kept dimensions outside and the reduced ones inside. A block takes one kept
element and one of its ``parts``: its threads go through the reduced elements in strides, then combine pairwise in
shared memory. Where there are several parts their results are reduced by a second launch of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.cuda_.scalar import EXPRESSIONS, PRELUDE, c_type, cast, literal
from futurex.kernels.cuda_.source import Body, Operand
from futurex.tree.graph import Graph

Dtype = np.dtype[Any]


def _lowest(dtype: Dtype) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: Dtype) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


REDUCTIONS: dict[str, tuple[str, Callable[[Dtype], Any]]] = {
    "sum": ("add", lambda dtype: 0),
    "prod": ("multiply", lambda dtype: 1),
    "max": ("maximum", _lowest),
    "min": ("minimum", _highest),
    "any": ("logical_or", lambda dtype: False),
    "all": ("logical_and", lambda dtype: True),
}
"""The operation that combines two elements, and what it begins with."""


def reduction_source(graph: Graph, operands: Sequence[Operand], loops: int, reduce: str, dtype: Dtype) -> str:
    """The kernel ``region(kept, reduced, parts, extents..., result, operands..., strides..., scalars...)``.

    ``graph`` is an elementwise region with one result, whose elements are cast to ``dtype`` and combined; dimensions
    that are kept come first. Launch ``kept * parts`` blocks with a power of two of threads and as many elements of
    ``dtype`` in shared memory; element ``k`` of the result is that of block ``k``.
    """
    body = Body(graph, operands, loops)
    combine, identity = REDUCTIONS[reduce]
    kind, (out,) = c_type(dtype), graph.outs
    parameters = list(body.parameters())
    count = loops - 1 if body.strided else 0
    listed = ", ".join(
        ["long long kept", "long long reduced", "long long parts", *parameters[:count], f"{kind}* __restrict__ o",
         *parameters[count:]]
    )  # fmt: skip
    both = EXPRESSIONS[combine](dtype, "mine", "other")
    start = literal(identity(dtype), dtype)
    lines = [
        f'extern "C" __global__ void region({listed}) {{',
        "    extern __shared__ double shared_memory[];",
        f"    {kind}* shared = ({kind}*)shared_memory;",
        "    long long row = blockIdx.x / parts, part = blockIdx.x % parts;",
        f"    {kind} mine = {start};",
        "    for (long long k = part * blockDim.x + threadIdx.x; k < reduced; k += parts * blockDim.x) {",
        "        long long i = row * reduced + k;",
        *(f"        {line}" for line in body.element("i")),
        f"        {kind} other = {cast(body.value(out), out.dtype, dtype)};",
        f"        mine = {both};",
        "    }",
        "    shared[threadIdx.x] = mine;",
        "    __syncthreads();",
        "    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {",
        "        if (threadIdx.x < half) {",
        f"            {kind} other = shared[threadIdx.x + half];",
        f"            mine = {both};",
        "            shared[threadIdx.x] = mine;",
        "        }",
        "        __syncthreads();",
        "    }",
        "    if (threadIdx.x == 0) o[blockIdx.x] = mine;",
        "}",
    ]
    return PRELUDE + "\n".join(lines) + "\n"
