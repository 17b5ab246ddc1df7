"""Results that go past the caches: what no cache holds is not read first to be written.

A line that is written is read before, unless the whole of it is stored at once and aside (a non-temporal store). A
kernel with such results writes a piece to a buffer in its nearest cache; a function sends that on. Only results that
the last cache could not keep go this way: who reads them next would not find them there.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from futurex.kernels.numba_ import nearest
from futurex.tree.node import Node

_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_MOST, _EACH = 32 << 20, 4 << 20
"""Bytes of it that are counted on at most, and for each processor where the system says more than that. A virtual
machine is told of the cache that dozens of others share with it, and the last caches of large processors take long to
reach: on a Xeon that says 260 MB, where two processors have them, reading takes as long from there as from memory.
``x * a + b`` of 41 MB took 1.4 ms past the caches and 2.9 through them, of 8 MB 0.28 and 0.35; what is read by the next
kernel takes 1.1 times as long there."""
_LINE = 64
_UNKNOWN = 1 << 62

MARK = "!0 = !{i32 1}"
DECLARATIONS = ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", MARK)
FENCE = "fence seq_cst"
"""After the last of such stores, which wait in buffers of their own."""

FUNCTION = [
    "define internal void @past(ptr %to, ptr %from, i64 %count) noinline {",
    "entry:",
    "  %address = ptrtoint ptr %to to i64",
    "  %negated = sub i64 0, %address",
    f"  %gap = and i64 %negated, {_LINE - 1}",
    "  %less = icmp slt i64 %gap, %count",
    "  %first = select i1 %less, i64 %gap, i64 %count",
    "  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %first, i1 false)",
    "  %left = sub i64 %count, %first",
    f"  %lines = and i64 %left, -{_LINE}",
    "  %end = add i64 %first, %lines",
    "  br label %head",
    "head:",
    "  %k = phi i64 [ %first, %entry ], [ %next, %body ]",
    "  %go = icmp slt i64 %k, %end",
    "  br i1 %go, label %body, label %rest",
    "body:",
    "  %source = getelementptr inbounds i8, ptr %from, i64 %k",
    "  %target = getelementptr inbounds i8, ptr %to, i64 %k",
    "  %line = load <16 x i32>, ptr %source, align 1",
    f"  store <16 x i32> %line, ptr %target, align {_LINE}, !nontemporal !0",
    f"  %next = add nsw i64 %k, {_LINE}",
    "  br label %head",
    "rest:",
    "  %source.last = getelementptr inbounds i8, ptr %from, i64 %end",
    "  %target.last = getelementptr inbounds i8, ptr %to, i64 %end",
    "  %count.last = sub i64 %count, %end",
    "  call void @llvm.memcpy.p0.p0.i64(ptr %target.last, ptr %source.last, i64 %count.last, i1 false)",
    "  ret void",
    "}",
]
"""``@past(to, from, bytes)``: whole lines aside, what is left of the first and the last one as usual."""


def sent(name: str, target: str, source: str, count: int) -> list[str]:
    """Whole lines sent on, aside if they are lines of ``target``, too, an instruction that gives an address."""
    lines = [
        f"  %to{name} = {target}",
        f"  %place{name} = ptrtoint ptr %to{name} to i64",
        f"  %odd{name} = and i64 %place{name}, {_LINE - 1}",
        f"  %lies{name} = icmp eq i64 %odd{name}, 0",
    ]
    spots = range(0, count, _LINE)
    for byte in spots:
        lines += [
            f"  %from{name}.{byte} = getelementptr inbounds i8, ptr {source}, i64 {byte}",
            f"  %line{name}.{byte} = load <16 x i32>, ptr %from{name}.{byte}, align {_LINE}",
            f"  %to{name}.{byte} = getelementptr inbounds i8, ptr %to{name}, i64 {byte}",
        ]
    lines.append(f"  br i1 %lies{name}, label %aside{name}, label %usual{name}")
    for label, how in (("aside", f"align {_LINE}, !nontemporal !0"), ("usual", "align 1")):
        lines.append(f"{label}{name}:")
        lines += [f"  store <16 x i32> %line{name}.{byte}, ptr %to{name}.{byte}, {how}" for byte in spots]
        lines.append(f"  br label %stored{name}")
    return [*lines, f"stored{name}:"]


def row_sent(target: str, source: str, count: str) -> str:
    """The call that sends bytes on, wherever they lie."""
    return f"call void @past(ptr {target}, ptr {source}, i64 {count})"


def outgrows(results: Sequence[Node], operands: Sequence[Node]) -> bool:
    """Do results find no room in the last cache? That is so where they are more than it holds, or take part in half as
    much again with what is read."""
    return spills(results) or 2 * weight([*results, *operands]) >= 3 * told_cache()


def spills(arrays: Sequence[Node]) -> bool:
    """Are these together more than the last cache holds?"""
    return weight(arrays) >= last_cache()


def weight(arrays: Sequence[Node]) -> int:
    """Bytes of arrays."""
    return sum(node.aval.nbytes for node in arrays)


@functools.cache
def last_cache() -> int:
    """Bytes of the cache that the processors share, as far as a program may count on them."""
    told = told_cache()
    return told if told <= _MOST or told == _UNKNOWN else min(_MOST, _EACH * _processors())


@functools.cache
def told_cache() -> int:
    """The same as the system says; where it does not, more than any result has."""
    told = nearest.size_of(_LAST_CACHE)
    return _UNKNOWN if told is None else told


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
