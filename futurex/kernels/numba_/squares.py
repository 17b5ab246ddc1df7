"""Operands that lie the other way round are read in squares: a tile is turned into a buffer of the nearest cache.

Neighbours along the rows of such an operand lie far apart, those along another axis side by side. Of so many rows of
memory whole lines are loaded, squares of them turned in registers, and stored as rows of the buffer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from futurex.kernels.numba_.code import Code

_LANES = {1: 16, 2: 8, 4: 8, 8: 4, 16: 1}
"""Elements of so many bytes in one side of a square: vectors of 16 or 32 bytes, which sixteen registers hold."""
_PARTS = {"i8": 16, "i16": 8, "half": 8, "i32": 4, "float": 4, "i64": 2, "double": 2, "<2 x i64>": 1}
"""Elements of a part inside which one instruction interleaves two vectors."""
_KINDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<2 x i64>"}
_SIDES = {1: (128, 256), 2: (128, 128), 4: (64, 128), 8: (64, 64), 16: (32, 32)}
"""Rows and columns of a tile: some lines of memory in each row, and no more than the nearest cache holds."""
_BLOCKS = {1: 512, 2: 512, 4: 256, 8: 128, 16: 128}
"""Rows, and columns, of a block whose tiles follow each other: the second table of pages has one for each row of it, in
all arrays."""


def turned(emit: Callable[[str], str], rows: Sequence[str], element: str = "float") -> list[str]:
    """A square of registers with rows and columns exchanged: parts of 16 bytes first, by levels at which off-diagonal
    halves of pairs change, then elements inside of them, by levels at which pairs of rows are interleaved.

    ``emit`` writes an instruction and returns its register.
    """
    held, lanes = list(rows), len(rows)
    kind, part = f"<{lanes} x {element}>", min(lanes, _PARTS[element])

    def shuffled(first: str, second: str, order: Sequence[int]) -> str:
        mask = f"<{lanes} x i32> <{', '.join(f'i32 {j}' for j in order)}>"
        return emit(f"shufflevector {kind} {first}, {kind} {second}, {mask}")

    half = lanes // 2
    while half >= part:
        for k in range(lanes):
            if not k & half:
                low = [j if not j & half else lanes + j - half for j in range(lanes)]
                high = [j + half if not j & half else lanes + j for j in range(lanes)]
                first, second = held[k], held[k + half]
                held[k], held[k + half] = shuffled(first, second, low), shuffled(first, second, high)
        half //= 2
    for _ in range(part.bit_length() - 1):
        pairs = [(begin + k, begin + k + part // 2) for begin in range(0, lanes, part) for k in range(part // 2)]
        held = [
            shuffled(held[a], held[b], [
                each
                for begin in range(first, lanes, part)
                for j in range(part // 2)
                for each in (begin + j, lanes + begin + j)
            ])
            for a, b in pairs
            for first in (0, part // 2)
        ]  # fmt: skip
    return held


def sides(size: int) -> tuple[int, int]:
    """How many rows, a power of two, and columns a tile has, whose largest elements have so many bytes."""
    return _SIDES[size]


def block(size: int) -> int:
    """How many rows and columns of the same have tiles that follow each other: whole tiles."""
    return _BLOCKS[size]


def call(size: int, to: str, pitch: int, source: str, count: str, step: str, rows: str, apart: str) -> str:
    """Has a tile turned: element (k, j) goes to byte ``k * pitch + j * size`` behind ``to`` from where ``k * step + j *
    apart`` elements lie behind ``source``, of ``count`` and ``rows``."""
    passed = f"ptr {to}, i64 {pitch}, ptr {source}, i64 {count}, i64 {step}, i64 {rows}, i64 {apart}"
    return f"call void @turn{size}({passed})"


@functools.cache
def function(size: int) -> list[str]:
    """The function of :func:`call`. Steps of one element, forwards or backwards, are turned in squares, of which the
    last overlap those before them; others, and what is smaller than a square, go one by one."""
    code, lanes = Code(), _LANES[size]
    kind = f"<{lanes} x {_KINDS[size]}>" if lanes > 1 else _KINDS[size]
    forwards = code.do("icmp eq i64 %step, 1")
    straight = code.do(f"or i1 {forwards}, {code.do('icmp eq i64 %step, -1')}")
    room = code.do(f"and i1 {code.do(f'icmp sge i64 %rows, {lanes}')}, {code.do(f'icmp sge i64 %count, {lanes}')}")
    apart = code.multiply("%apart", str(size))
    code.run(f"br i1 {code.do(f'and i1 {straight}, {room}')}, label %squares, label %single")
    code.label("squares")
    final = code.add("%count", "-1")
    lowest = code.at("i8", "%from", code.multiply(final, str(-size)))
    source = code.do(f"select i1 {forwards}, ptr %from, ptr {lowest}")
    target = code.do(f"select i1 {forwards}, ptr %to, ptr {code.at('i8', '%to', code.multiply(final, '%pitch'))}")
    pitch = code.do(f"select i1 {forwards}, i64 %pitch, i64 {code.do('sub i64 0, %pitch')}")
    last_row, last = code.add("%rows", str(-lanes)), code.add("%count", str(-lanes))
    with code.loop("0", "%rows", str(lanes)) as (each, _):
        column = code.least(each, last_row)
        begin = code.at("i8", source, code.multiply(column, apart))
        starts = [begin]
        for _ in range(lanes - 1):
            starts.append(code.at("i8", starts[-1], apart))
        out = code.at("i8", target, code.multiply(column, str(size)))
        with code.loop("0", "%count", str(lanes)) as (each, _):
            k = code.least(each, last)
            place = code.multiply(k, str(size))
            lines = [code.do(f"load {kind}, ptr {code.at('i8', start, place)}, align 1") for start in starts]
            pointer = code.at("i8", out, code.multiply(k, pitch))
            for line in turned(code.do, lines, _KINDS[size]):
                code.run(f"store {kind} {line}, ptr {pointer}, align {size}")
                pointer = code.at("i8", pointer, pitch)
    code.run("ret void")
    code.label("single")
    with code.loop("0", "%count") as (k, _):
        begin = code.at("i8", "%from", code.multiply(code.multiply(k, "%step"), str(size)))
        row = code.at("i8", "%to", code.multiply(k, "%pitch"))
        with code.loop("0", "%rows") as (j, _):
            value = code.do(f"load {_KINDS[size]}, ptr {code.at('i8', begin, code.multiply(j, apart))}, align 1")
            place = code.at("i8", row, code.multiply(j, str(size)))
            code.run(f"store {_KINDS[size]} {value}, ptr {place}, align {size}")
    parameters = "ptr noalias %to, i64 %pitch, ptr noalias %from, i64 %count, i64 %step, i64 %rows, i64 %apart"
    return [f"define internal void @turn{size}({parameters}) noinline {{", *code.lines, "  ret void", "}"]
