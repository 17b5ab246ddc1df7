"""Results that go past the caches: what no cache holds is not read first to be written.

A line that is written is read before, unless the whole of it is stored at once and aside (a non-temporal store). A
kernel with such results writes a piece to a buffer in its nearest cache; a function sends that on. Only results that
the last cache could not keep go this way: who reads them next would not find them there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from futurex.tree.node import Node

_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_LINE = 64

DECLARATIONS = ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", "!0 = !{i32 1}")
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


def sent(target: str, source: str, count: str) -> str:
    """The call that sends bytes on."""
    return f"call void @past(ptr {target}, ptr {source}, i64 {count})"


def outgrows(results: Iterable[Node]) -> bool:
    """Are these together more than the last cache holds?"""
    return sum(node.aval.nbytes for node in results) >= last_cache()


@functools.cache
def last_cache() -> int:
    """Bytes of the cache that the processors share; where the system does not say, more than any result has."""
    try:
        return int(_LAST_CACHE.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 1 << 62
