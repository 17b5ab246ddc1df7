"""Reductions of fused regions as CUDA kernels, of rows and of columns.

Of rows: the region's elements are numbered with the kept dimensions outside and the reduced ones inside. A block takes
one kept element and one of its ``parts``: its threads go through the reduced elements in strides, then combine pairwise
in shared memory.

Of columns: some kept dimensions lie inside the reduced ones. A block takes :data:`COLUMNS` neighbouring columns, so
that a warp reads what lies together, and one of their parts: each row of its threads takes every so many of the reduced
elements, then the rows combine pairwise.

Where there are several parts their results are reduced by a second launch of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cuda_.scalar import EXPRESSIONS, PRELUDE, c_type, cast, literal
from futurex.kernels.cuda_.source import Body, Operand
from futurex.tree.graph import Graph
from futurex.tree.node import Node

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
COLUMNS = 32
"""Neighbouring columns that a block takes: as many as a warp has threads."""


def reduction_source(graph: Graph, operands: Sequence[Operand], loops: int, made: Sequence[tuple[str, Dtype]]) -> str:
    """The kernel ``region(kept, reduced, parts, extents..., results..., operands..., strides..., scalars...)``.

    ``graph`` is an elementwise region; ``made`` says of each of its results how its elements are combined, and in which
    dtype. Dimensions that are kept come first. Launch ``kept * parts`` blocks with a power of two of threads and as
    many elements of the widest dtype in shared memory; element ``k`` of a result is that of block ``k``.
    """
    places = [
        "Count row = (Count)blockIdx.x / (Count)parts, part = (Count)blockIdx.x % (Count)parts;",
        "INDEX first = part * blockDim.x + threadIdx.x, next = (Count)parts * blockDim.x;",
    ]
    return _source(
        graph, operands, loops, made, sizes=("kept", "reduced", "parts"), places=places,
        number="(INDEX)row * (INDEX)reduced + k", apart="1", writes="threadIdx.x == 0", target="blockIdx.x",
    )  # fmt: skip


def columns_source(graph: Graph, operands: Sequence[Operand], loops: int, made: Sequence[tuple[str, Dtype]]) -> str:
    """The kernel ``region(kept, reduced, columns, parts, extents..., results..., operands, strides, scalars...)``.

    As :func:`reduction_source`, but the last dimensions of the region are ``columns`` that are kept, the reduced ones
    come before them, and ``kept`` others first. Launch ``kept * ceil(columns / COLUMNS) * parts`` blocks of ``COLUMNS``
    times a power of two of threads; the result has the shape (kept, parts, columns).
    """
    places = [
        "Count tiles = ((Count)columns + @ - 1) / @, block = blockIdx.x, part = block % (Count)parts;",
        "Count tile = block / (Count)parts % tiles, row = block / (Count)parts / tiles, rows = blockDim.x / @;",
        "INDEX column = tile * @ + threadIdx.x % @, next = (Count)parts * rows;",
        "INDEX first = column < (INDEX)columns ? part * rows + threadIdx.x / @ : (Count)reduced;",
    ]
    return _source(
        graph, operands, loops, made, sizes=("kept", "reduced", "columns", "parts"),
        places=[line.replace("@", str(COLUMNS)) for line in places],
        number="((INDEX)row * (INDEX)reduced + k) * (INDEX)columns + column",
        apart=str(COLUMNS), writes=f"threadIdx.x < {COLUMNS} && column < (INDEX)columns",
        target="(row * (Count)parts + part) * (Count)columns + column",
    )  # fmt: skip


def _source(
    graph: Graph, operands: Sequence[Operand], loops: int, made: Sequence[tuple[str, Dtype]], *,
    sizes: Sequence[str], places: Sequence[str], number: str, apart: str, writes: str, target: str,
) -> str:  # fmt: skip
    """``places`` say where a thread begins and how it goes on, ``number`` which element its ``k``-th one is; threads
    whose results are combined lie multiples of ``apart`` from each other."""
    body = Body(graph, operands, loops)
    each = [_Reduced(f"mine{k}", out, *how) for k, (out, how) in enumerate(zip(graph.outs, made, strict=True))]
    parameters = list(body.parameters())
    count = loops - 1 if body.strided else 0
    extents = [*(f"long long {size}" for size in sizes), *parameters[:count]]
    results = [f"{c_type(dtype)}* __restrict__ o{k}" for k, (_, dtype) in enumerate(made)]
    listed = ", ".join([*extents, *results, *parameters[count:]])
    lines = [
        f'extern "C" __global__ void region({listed}) {{',
        "    extern __shared__ double shared_memory[];",
        *(f"    {line}" for line in places),
        *(f"    {one.begin}" for one in each),
        "    for (INDEX k = first; k < (INDEX)reduced; k += next) {",
        f"        INDEX i = {number};",
        *(f"        {line}" for line in body.element("i")),
        *(f"        {{ {one.take(body)} }}" for one in each),
        "    }",
        *(f"    {line}" for one in each for line in one.join(apart)),
        *(f"    if ({writes}) o{k}[{target}] = {one.name};" for k, one in enumerate(each)),
        "}",
    ]
    return PRELUDE + "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _Reduced:
    """What a thread keeps of one result, in the variable ``name``."""

    name: str
    out: Node
    reduce: str
    dtype: Dtype

    @property
    def begin(self) -> str:
        return f"{c_type(self.dtype)} {self.name} = {literal(REDUCTIONS[self.reduce][1](self.dtype), self.dtype)};"

    @property
    def _both(self) -> str:
        return f"{self.name} = {EXPRESSIONS[REDUCTIONS[self.reduce][0]](self.dtype, self.name, 'other')};"

    def take(self, body: Body) -> str:
        """Combine with an element."""
        return f"{c_type(self.dtype)} other = {cast(body.value(self.out), self.out.dtype, self.dtype)}; {self._both}"

    def join(self, apart: str) -> Iterator[str]:
        """Combine those of the threads of a block; the first ones have the result."""
        kind = c_type(self.dtype)
        yield "{"
        yield f"    {kind}* shared = ({kind}*)shared_memory;"
        yield f"    shared[threadIdx.x] = {self.name};"
        yield "    __syncthreads();"
        yield f"    for (unsigned int half = blockDim.x / 2; half >= {apart}; half /= 2) {{"
        yield f"        if (threadIdx.x < half) {{ {kind} other = shared[threadIdx.x + half]; {self._both}"
        yield f"            shared[threadIdx.x] = {self.name}; }}"
        yield "        __syncthreads();"
        yield "    }"
        yield "}"
