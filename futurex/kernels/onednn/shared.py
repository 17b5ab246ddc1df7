"""Primitives of one thread each, which the team of generated kernels runs beside each other.

oneDNN would cut a primitive among OpenMP's threads, and each of them waits for all others: where one has lost its
processor to somebody else, the call lasts until it has it back, five to forty times as long as a small one takes. What
is cut here becomes *tickets*, each a primitive on a part of the arrays; a thread that is free takes the next one
(:mod:`futurex.kernels.numba_.team`), and nobody waits for one that has not come.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.team import Share
from futurex.kernels.steps import WALK, Step

_SET, _GET, _TICKETS = 1, 2, 3
"""Words of a block, whose first says what went wrong, where those lie that say how OpenMP's functions are called, and
the tickets' two each: where its steps lie, and how many there are."""

# OpenMP's number of threads is the calling thread's, and somebody else's too: it is one for as long as this takes.
_RUN = f"""{WALK}define void @region(ptr %block, i64 %ticket, i64 %tickets) {{
entry:
  %get.at = getelementptr i64, ptr %block, i64 {_GET}
  %get = load ptr, ptr %get.at
  %set.at = getelementptr i64, ptr %block, i64 {_SET}
  %set = load ptr, ptr %set.at
  %before = call i32 %get()
  call void %set(i32 1)
  %twice = shl i64 %ticket, 1
  %place = add i64 %twice, {_TICKETS}
  %steps.at = getelementptr i64, ptr %block, i64 %place
  %steps = load ptr, ptr %steps.at
  %count.at = getelementptr i64, ptr %steps.at, i64 1
  %count = load i64, ptr %count.at
  %made = call i64 @walk(ptr %steps, i64 %count, ptr %block)
  call void %set(i32 %before)
  ret void
}}
"""
_ASK = """define i32 @region(ptr %block) {
entry:
  %status = load i64, ptr %block
  store i64 0, ptr %block
  %short = trunc i64 %status to i32
  ret i32 %short
}
"""
_ADD = """define i32 @region(ptr %base.at, i64 %target.at, i64 %source.at, i64 %lines) {
entry:
  %base = load ptr, ptr %base.at
  %target = getelementptr i8, ptr %base, i64 %target.at
  %source = getelementptr i8, ptr %base, i64 %source.at
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %lines
  br i1 %more, label %body, label %leave
body:
  %to = getelementptr <16 x float>, ptr %target, i64 %i
  %from = getelementptr <16 x float>, ptr %source, i64 %i
  %a = load <16 x float>, ptr %to, align 64
  %b = load <16 x float>, ptr %from, align 64
  %sum = fadd <16 x float> %a, %b
  store <16 x float> %sum, ptr %to, align 64
  %next = add i64 %i, 1
  br label %head
leave:
  ret i32 0
}
"""
_GEMM = """define i32 @region(ptr %record) {
entry:
""" + "".join(
    f"""  %w{k}.at = getelementptr i64, ptr %record, i64 {k}
  %w{k} = load i64, ptr %w{k}.at
"""
    for k in range(12)
) + """  %function = inttoptr i64 %w0 to ptr
  %turned.x = trunc i64 %w1 to i8
  %turned.y = trunc i64 %w2 to i8
  %x = inttoptr i64 %w9 to ptr
  %y = inttoptr i64 %w10 to ptr
  %out = inttoptr i64 %w11 to ptr
  %status = call i32 %function(i8 signext %turned.x, i8 signext %turned.y, i64 %w3, i64 %w4, i64 %w5, float 1.0, ptr %x,
    i64 %w6, ptr %y, i64 %w7, float 0.0, ptr %out, i64 %w8)
  ret i32 %status
}
"""
OPERANDS = 9
"""The word of a record from which on it says where x, y and the result lie."""
LINE = 64
"""Bytes of which :func:`adding` takes so many at once."""


def adding(base: int, target: int, source: int, lines: int) -> Step:
    """Add numbers in single precision to others: the word at ``base`` says from where on ``target`` and ``source``
    count, in bytes."""
    return compiled(_ADD).address, base, target, source, lines, 0


def multiplying(record: int) -> Step:
    """A product by ``dnnl_sgemm``, of which a record tells: that function, whether x and y are transposed, as letters,
    rows, columns and inner size, the rows of x, y and the result in memory, and where these lie."""
    return compiled(_GEMM).address, record, 0, 0, 0, 1


@functools.cache
def _code() -> tuple[Entry, Entry]:
    """What runs a ticket, and what tells whether one has failed."""
    return compiled(_RUN), compiled(_ASK)


class Phase:
    """Tickets that may run beside each other, as steps of the whole."""

    def __init__(self, tickets: Sequence[Sequence[Step]], share: Share, functions: Sequence[int]) -> None:
        """``functions``: where those lie that set and tell OpenMP's number of threads."""
        rows = [np.array(steps, np.int64) for steps in tickets]
        words = [0, *functions, *(word for each in rows for word in (address_of(each), len(each)))]
        block = np.array(words, np.int64)
        self._keep: list[Any] = [*rows, block]
        run, ask = _code()
        begin = address_of(block)
        self.steps = [run.step(begin, share), (ask.address, begin, 0, 0, 0, 1)]


@functools.cache
def _callable(address: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 4)(address)


def play(steps: Sequence[Step]) -> int:
    """Make the steps, from Python; the status of the first that failed, or zero."""
    for address, first, second, third, fourth, checked in steps:
        status = _callable(address)(first, second, third, fourth)
        if checked and status:
            return int(status)
    return 0
