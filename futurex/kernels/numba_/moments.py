"""Compiled ``moments``: mean and variance of every column in one trip through memory.

Some rows, as many as stay in the nearest cache, are added up, and then the squares of what they differ from their own
mean, while those behind them are asked for; what was found before is joined to it as T. F. Chan, G. H. Golub and R. J.
LeVeque join samples (Updating formulae and a pairwise algorithm for computing sample variances, 1979). So no square of
a large mean is taken off another; and all is counted from the first row on, which leaves numbers as small as they
differ from each other: the variance is as close as that of two trips. Rows are shared in blocks whose number follows
from that of the rows alone: results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of, on_lines
from futurex.kernels.numba_ import nearest
from futurex.kernels.numba_.channels import TYPES, VECTOR, Writer, Written, splat, threads_for
from futurex.kernels.numba_.code import module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.crossings import blocks_of
from futurex.kernels.numba_.pairwise import PREFETCH, prefetch
from futurex.kernels.steps import Step
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

_NEAR = 16 * 1024
"""Bytes of rows that stay in the nearest cache, beside what comes next."""
_FEWEST = 8
"""Rows that are joined at once: joining takes about as long as four."""
_VECTORS = (8, 4, 2, 1)
"""Of a row that are added up side by side: an addition waits for the one before it."""
_NUMBERS = ("blocks", "rows", "columns", "span", "near", "stride", "room.held")
_ARRAYS = ("mean", "variance", "x")


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``moments`` node; None for what is not compiled."""
    x = node.inputs[0]
    if not node.is_static or x.aval.weak or x.dtype not in TYPES or not x.size:
        return None
    return Moments(node, threads_for(node, threads))


class Moments(Written):
    """The kernel of one node. Each block has room for its sums and its squares."""

    exclusive = True

    def __init__(self, node: Node, threads: int) -> None:
        x = node.inputs[0]
        rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
        lanes = VECTOR // x.dtype.itemsize
        blocks, span = blocks_of(rows)
        stride = -(-columns // lanes) * lanes
        self.room = on_lines((blocks, 2, stride), x.dtype)
        self.own = self.room.nbytes
        near = max(_FEWEST, _NEAR // (columns * x.dtype.itemsize))
        geometry = (blocks, rows, columns, span, near, stride, address_of(self.room))
        super().__init__(node, threads, _text(x.dtype, may_share()), geometry)
        self.joining = compiled(_joining(x.dtype), wait=False)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        super().prepare(sharing, wait=wait)
        self.joining = compiled(_joining(self.node.inputs[0].dtype), wait=wait)

    @property
    def ready(self) -> bool:
        return self.entry.ready and self.joining.ready

    def run(self, block: bytes) -> None:
        super().run(block)
        self.joining(block)

    def steps(self, block: int) -> list[Step]:
        return [*super().steps(block), (self.joining.address, block, 0, 1, 0, 0)]


class _Writer(Writer):
    """Both kernels: parts of rows as vectors, then one by one."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype, _VECTORS[0])
        self.code.run("%room = inttoptr i64 %room.held to ptr")

    def parts(self) -> Iterator[tuple[int, str]]:
        """Parts of a row: (number of vectors, or 0 for one element; where it begins)."""
        code, begun = self.code, "0"
        for vectors in (*_VECTORS, 0):
            step = max(vectors * self.lanes, 1)
            left = code.do(f"sub nsw i64 %columns, {begun}")
            end = code.add(begun, code.multiply(code.do(f"sdiv i64 {left}, {step}"), str(step)))
            with code.loop(begun, end, str(step)) as (column, _):
                yield vectors, column
            begun = end

    def each(self, vectors: int, operation: str, *operands: Sequence[str]) -> list[str]:
        """An operation on the vectors of some parts, one after the other."""
        kind = self.kind(vectors)
        return [self.code.do(f"{operation} {kind} {', '.join(each)}") for each in zip(*operands, strict=True)]

    def spread(self, vectors: int, value: str) -> list[str]:
        """A number in every place."""
        return [self.code.spread(self.kind(vectors), value)] * max(vectors, 1)

    def one_over(self, count: str) -> str:
        """One over a number of rows."""
        return self.code.do(f"fdiv {self.element} 1.0, {self.number(count)}")

    def number(self, count: str) -> str:
        """A number of rows as an element."""
        return self.code.do(f"sitofp i64 {count} to {self.element}")

    def share(self, before: str, rows: str) -> str:
        """What the square of the difference of two means weighs, where so many rows join those before."""
        each = self.code.do(f"fmul {self.element} {self.number(before)}, {self.number(rows)}")
        return self.code.do(f"fdiv {self.element} {each}, {self.number(self.code.add(before, rows))}")

    def joined(
        self, vectors: int, old: tuple[list[str], list[str]], new: tuple[list[str], list[str]], before: str, rows: str
    ) -> tuple[list[str], list[str]]:
        """Sums and squares of rows joined to those of ``before`` others."""
        means = [
            self.each(vectors, "fmul", sums, self.spread(vectors, self.one_over(count)))
            for (sums, _), count in ((old, before), (new, rows))
        ]
        apart = self.each(vectors, "fsub", means[1], means[0])
        apart = self.each(vectors, "fmul", apart, apart)
        apart = self.each(vectors, "fmul", apart, self.spread(vectors, self.share(before, rows)))
        squares = self.each(vectors, "fadd", self.each(vectors, "fadd", old[1], new[1]), apart)
        return self.each(vectors, "fadd", old[0], new[0]), squares

    def origin(self, vectors: int, column: str) -> list[str]:
        """What a part is counted from: the first row, but zero where that is no finite number."""
        kind, first = self.kind(vectors), self.load(vectors, "%x", column)
        none = splat(kind, "0.0")
        finite = [
            self.code.do(f"fcmp oeq {kind} {self.code.do(f'fsub {kind} {each}, {each}')}, {none}") for each in first
        ]
        truth = self.kind(vectors, "i1")
        return [
            self.code.do(f"select {truth} {holds}, {kind} {each}, {kind} {none}")
            for holds, each in zip(finite, first, strict=True)
        ]

    def moments(self, vectors: int, begin: str, end: str, column: str) -> tuple[list[str], list[str]]:
        """Sums of a part over some rows, and of the squares of what they differ from the mean of these."""
        code, kind, origin = self.code, self.kind(vectors), self.origin(vectors, column)

        def elements(row: str) -> list[str]:
            place = code.add(code.multiply(row, "%columns"), column)
            return self.each(vectors, "fsub", self.load(vectors, "%x", place), origin)

        zeros = [(kind, splat(kind, "0.0"))] * max(vectors, 1)
        with code.loop(begin, end, carried=zeros) as (row, held):
            held[:] = self.each(vectors, "fadd", held, elements(row))
        sums = list(held)
        count = code.do(f"sub nsw i64 {end}, {begin}")
        mean = self.each(vectors, "fmul", sums, self.spread(vectors, self.one_over(count)))
        with code.loop(begin, end, carried=zeros) as (row, held):
            self.ask(vectors, code.add(row, "%near"), column)
            apart = self.each(vectors, "fsub", elements(row), mean)
            held[:] = self.each(vectors, "fadd", held, self.each(vectors, "fmul", apart, apart))
        return sums, list(held)

    def ask(self, vectors: int, row: str, column: str) -> None:
        """Have a part of a row brought to the nearest cache, or to the second one where few lines may be on their way
        to that; there need not be memory."""
        code = self.code
        part = code.at(self.element, "%x", code.add(code.multiply(row, "%columns"), column))
        for k in range(vectors):
            code.run(prefetch(code.at("i8", part, str(k * VECTOR)), second=nearest.small()))

    def places(self, block: str, column: str) -> tuple[str, str]:
        """Where the sums of a block lie, and its squares."""
        sums = self.code.add(self.code.multiply(self.code.multiply(block, "2"), "%stride"), column)
        return sums, self.code.add(sums, "%stride")


def _module(writer: _Writer, threaded: bool) -> str:
    parameters = [("i64", name) for name in _NUMBERS] + [("ptr", name) for name in _ARRAYS]
    return module(parameters, writer.code, threaded, [PREFETCH])


@functools.cache
def _text(dtype: np.dtype[Any], threaded: bool) -> str:
    """The kernel that finds the moments of blocks."""
    writer = _Writer(dtype)
    code = writer.code
    with code.loop("%low", "%high") as (block, _):
        first = code.multiply(block, "%span")
        last = code.least(code.add(first, "%span"), "%rows")
        with code.loop(first, last, "%near") as (begin, _):
            end = code.least(code.add(begin, "%near"), last)
            before, rows = (code.do(f"sub nsw i64 {b}, {a}") for a, b in ((first, begin), (begin, end)))
            begins = code.do(f"icmp eq i64 {before}, 0")
            for vectors, column in writer.parts():
                new = writer.moments(vectors, begin, end, column)
                places = writer.places(block, column)
                old = tuple(writer.load(vectors, "%room", place) for place in places)
                both = writer.joined(vectors, (old[0], old[1]), new, before, rows)
                for place, alone, together in zip(places, new, both, strict=True):
                    kind = writer.kind(vectors)
                    chosen = [
                        code.do(f"select i1 {begins}, {kind} {a}, {kind} {b}")
                        for a, b in zip(alone, together, strict=True)
                    ]
                    writer.store(vectors, chosen, "%room", place)
    return _module(writer, threaded)


@functools.cache
def _joining(dtype: np.dtype[Any]) -> str:
    """The kernel that joins the moments of all blocks, in their order."""
    writer = _Writer(dtype)
    code = writer.code
    for vectors, column in writer.parts():
        kind = writer.kind(vectors)
        first = [each for place in writer.places("0", column) for each in writer.load(vectors, "%room", place)]
        with code.loop("1", "%blocks", carried=[(kind, each) for each in first]) as (block, held):
            half = len(held) // 2
            before = code.multiply(block, "%span")
            rows = code.least("%span", code.do(f"sub nsw i64 %rows, {before}"))
            new = [writer.load(vectors, "%room", place) for place in writer.places(block, column)]
            both = writer.joined(vectors, (held[:half], held[half:]), (new[0], new[1]), before, rows)
            held[:] = [*both[0], *both[1]]
        count = writer.spread(vectors, writer.number("%rows"))
        mean, variance = (writer.each(vectors, "fdiv", values, count) for values in (held[:half], held[half:]))
        writer.store(vectors, writer.each(vectors, "fadd", mean, writer.origin(vectors, column)), "%mean", column)
        writer.store(vectors, variance, "%variance", column)
    return _module(writer, threaded=False)
