"""Reductions of rows and what is computed from them, as one CUDA kernel: a softmax, a layer normalisation, a loss.

A block of threads takes a row at a time. It goes through the row once for each reduction, the first time from memory
and then from the caches, combines in shared memory, and has the result in a variable of every thread for what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from futurex.kernels.cuda_.reduction import REDUCTIONS
from futurex.kernels.cuda_.scalar import EXPRESSIONS, PRELUDE, c_type, cast, literal, memory_type, stored
from futurex.kernels.cuda_.source import Body
from futurex.tree.node import Node


class Does(Enum):
    """What a block of statements does: reduce a value of every element; compute numbers of the row; write elements."""

    REDUCE = "reduce"
    COMPUTE = "compute"
    WRITE = "write"


@dataclass(frozen=True)
class Part:
    """One block of statements: ``body`` computes one element, or one number of the row.

    ``node`` is the reduction. ``names`` are the variables that it makes, or the results that it writes, one for each
    of the body's outs.
    """

    does: Does
    body: Body
    names: Sequence[str]
    node: Node | None = None


@dataclass(frozen=True)
class Written:
    """A number of the row that is a result: the variable, and the result's name."""

    variable: str
    result: str
    node: Node


def rows_source(parts: Sequence[Part], written: Sequence[Written]) -> str:
    """The kernel ``region(rows, count, results..., extents, operands, strides and scalars of each part...)``.

    Results are those of ``written``, then those of the parts that write. Launch any number of blocks with a power of
    two of threads and as many elements of the widest reduction in shared memory.
    """
    results = [f"{memory_type(each.node.dtype)}* __restrict__ {each.result}" for each in written]
    results += [
        f"{memory_type(out.dtype)}* __restrict__ {name}"
        for part in parts if part.does is Does.WRITE
        for name, out in zip(part.names, part.body.graph.outs, strict=True)
    ]  # fmt: skip
    inner = [parameter for part in parts for parameter in part.body.parameters()]
    parameters = ", ".join(["long long rows, long long count", *results, *inner])
    lines = [
        f'extern "C" __global__ void region({parameters}) {{',
        "    extern __shared__ double shared_memory[];",
        "    for (INDEX row = blockIdx.x; row < (INDEX)rows; row += gridDim.x) {",
        *(f"        {line}" for part in parts for line in _statements(part)),
        *(f"        if (threadIdx.x == 0) {each.result}[row] = {stored(each.node.dtype, each.variable)};"
          for each in written),
        "    }",
        "}",
    ]  # fmt: skip
    return PRELUDE + "\n".join(lines) + "\n"


def _statements(part: Part) -> Iterator[str]:
    outs = part.body.graph.outs
    if part.does is Does.COMPUTE:
        yield from (f"{c_type(out.dtype)} {name};" for name, out in zip(part.names, outs, strict=True))
        yield "{"
        yield from (f"    {line}" for line in part.body.element("row"))
        yield from (f"    {name} = {part.body.value(out)};" for name, out in zip(part.names, outs, strict=True))
        yield "}"
        return
    if part.does is Does.REDUCE:
        yield from _reduced(part)
        return
    yield from _elements(part)
    yield from (
        f"    {name}[i] = {stored(out.dtype, part.body.value(out))};"
        for name, out in zip(part.names, outs, strict=True)
    )
    yield "}"


def _elements(part: Part) -> Iterator[str]:
    """The loop of a thread over its elements of the row, up to where each is computed."""
    yield "for (INDEX k = threadIdx.x; k < (INDEX)count; k += blockDim.x) {"
    yield "    INDEX i = row * (INDEX)count + k;"
    yield from (f"    {line}" for line in part.body.element("i"))


def _reduced(part: Part) -> Iterator[str]:
    assert part.node is not None
    (out,), (name,), dtype = part.body.graph.outs, part.names, part.node.dtype
    combine, identity = REDUCTIONS[part.node.op]
    kind, both = c_type(dtype), EXPRESSIONS[combine](dtype, name, "other")
    yield f"{kind} {name} = {literal(identity(dtype), dtype)};"
    yield from _elements(part)
    yield f"    {kind} other = {cast(part.body.value(out), out.dtype, dtype)};"
    yield f"    {name} = {both};"
    yield "}"
    yield "{"
    yield f"    {kind}* shared = ({kind}*)shared_memory;"
    yield f"    shared[threadIdx.x] = {name};"
    yield "    __syncthreads();"
    yield "    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {"
    yield "        if (threadIdx.x < half) {"
    yield f"            {kind} other = shared[threadIdx.x + half];"
    yield f"            {name} = {both};"
    yield f"            shared[threadIdx.x] = {name};"
    yield "        }"
    yield "        __syncthreads();"
    yield "    }"
    yield f"    {name} = shared[0];"
    yield "    __syncthreads();"  # all have read it: the next reduction may write
    yield "}"
