"""Sums and products of contiguous numbers in NumPy's order, to the bit.

NumPy adds pairwise: halves of a multiple of eight elements down to 128 at most, and those with eight running sums. The
eight are a vector here. Four of these leaves run side by side, so that no addition waits for the one before, and their
eight sums each are joined together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from futurex.kernels.addresses import LINE
from futurex.kernels.numba_ import nearest
from futurex.kernels.numba_.code import loop_note

BLOCK = 128
AHEAD = 8192
"""Bytes: as far ahead of what it reads a kernel asks for memory. The processor's own guesses end with a page of 4096;
one core then reads memory at twice the rate."""
FARTHER = AHEAD * 3 // 2
"""The same for sums in this order, where the nearest cache is wide."""
PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
_EVEN, _ODD = [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]


def in_turns(number: int) -> tuple[str, list[str]]:
    """What a loop's branch ends with, and what it names, for the compiler to leave the loop as it is written.

    In several rounds at once it would ask for all their lines first, and what is read now would wait behind them.
    """
    return loop_note(100 + 2 * number, '"llvm.loop.unroll.disable"')


def prefetch(pointer: str, write: bool = False, second: bool = False) -> str:
    """The instruction that asks for a line, to be read or to be written; for the ``second`` cache only where many lines
    are asked for that have few places in the first one, because the arrays they begin lie a power of two apart."""
    return f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {2 if second else 3}, i32 1)"


def ahead() -> int:
    """How far ahead kernels that read one operand ask for memory."""
    return FARTHER if nearest.wide() else AHEAD


def named(function: str, kind: str, streams: bool) -> str:
    """The function for numbers of memory that streams by, or for those that lie in a cache."""
    return f"@{function}.{'ahead.' if streams else ''}{kind}"


def declarations(kind: str, size: int, streams: bool) -> list[str]:
    """``@pairwise.<kind>(ptr, count)``; ``streams``: what it reads comes from memory, and is asked for ahead, or read
    in order where the nearest cache is small."""
    vector, own = f"<8 x {kind}>", named("pairwise", kind, streams)
    lanes = [f"  %r{k} = extractelement {vector} %total, i32 {k}" for k in range(8)]
    alone = streams and nearest.small()
    in_order = [
        f"  %four = icmp eq i64 %n, {4 * BLOCK}",
        "  br i1 %four, label %exactly, label %other",
        "exactly:",
        f"  %every = call {kind} {named('whole', kind, streams)}(ptr %p)",
        f"  ret {kind} %every",
    ]
    return [
        *_leaves(kind, size, streams and not alone, named("leaves", kind, streams)),
        *(_blocks_in_order(kind, size, named("whole", kind, streams)) if alone else []),
        f"define internal {kind} {own}(ptr %p, i64 %n) {{",
        "entry:",
        *(in_order if alone else ["  br label %other"]),
        "other:",
        f"  %large = icmp sgt i64 %n, {BLOCK}",
        "  br i1 %large, label %halves, label %leaf",
        "halves:",
        *quartered("%n"),
        "  br i1 %leaves, label %side, label %split",
        "side:",
        f"  %all = call {kind} {named('leaves', kind, streams)}(ptr %p, i64 %a, i64 %b, i64 %c, i64 %d)",
        f"  ret {kind} %all",
        "split:",
        f"  %middle = getelementptr inbounds {kind}, ptr %p, i64 %left",
        f"  %first = call {kind} {own}(ptr %p, i64 %left)",
        f"  %second = call {kind} {own}(ptr %middle, i64 %right)",
        f"  %both = fadd {kind} %first, %second",
        f"  ret {kind} %both",
        "leaf:",
        "  %few = icmp slt i64 %n, 8",
        "  br i1 %few, label %tail, label %eight",
        "eight:",
        "  %rest = and i64 %n, 7",
        "  %whole = sub i64 %n, %rest",
        f"  %start = load {vector}, ptr %p, align {size}",
        "  br label %head",
        "head:",
        "  %i = phi i64 [ 8, %eight ], [ %next, %body ]",
        f"  %total = phi {vector} [ %start, %eight ], [ %more, %body ]",
        "  %go = icmp slt i64 %i, %whole",
        "  br i1 %go, label %body, label %across",
        "body:",
        f"  %at = getelementptr inbounds {kind}, ptr %p, i64 %i",
        f"  %eights = load {vector}, ptr %at, align {size}",
        *(_ask("leaf", "%at", 0) if streams and not nearest.small() else []),
        f"  %more = fadd {vector} %total, %eights",
        "  %next = add nsw i64 %i, 8",
        "  br label %head",
        "across:",
        *lanes,
        f"  %s0 = fadd {kind} %r0, %r1",
        f"  %s1 = fadd {kind} %r2, %r3",
        f"  %s2 = fadd {kind} %r4, %r5",
        f"  %s3 = fadd {kind} %r6, %r7",
        f"  %t0 = fadd {kind} %s0, %s1",
        f"  %t1 = fadd {kind} %s2, %s3",
        f"  %sum = fadd {kind} %t0, %t1",
        "  br label %tail",
        "tail:",
        "  %from = phi i64 [ 0, %leaf ], [ %whole, %across ]",
        f"  %begun = phi {kind} [ -0.0, %leaf ], [ %sum, %across ]",
        *_fold(kind, size, "fadd", "%from", "%begun", "tail"),
        "}",
    ]


def product(kind: str, size: int) -> list[str]:
    """``@product.<kind>(ptr, count, first)``."""
    fold = _fold(kind, size, "fmul", "0", "%begun", "entry")
    return [f"define internal {kind} @product.{kind}(ptr %p, i64 %n, {kind} %begun) {{", "entry:", *fold, "}"]


def _ask(name: str, pointer: str, offset: int) -> list[str]:
    """The line so far ahead of an address."""
    place = f"  %ask.{name} = getelementptr inbounds i8, ptr {pointer}, i64 {ahead() + offset}"
    return [place, "  " + prefetch(f"%ask.{name}")]


def quartered(count: str) -> list[str]:
    """``%left`` and ``%right`` of a number of elements, their halves ``%a`` to ``%d``, and ``%leaves``: are these four
    leaves of NumPy's tree, and all of multiples of eight elements?"""
    return [
        *_halved(count, "%left", "%right"),
        *_halved("%left", "%a", "%b"),
        *_halved("%right", "%c", "%d"),
        f"  %beyond = and i64 {count}, 7",
        "  %even = icmp eq i64 %beyond, 0",
        f"  %deep = icmp sgt i64 %left, {BLOCK}",
        f"  %b.leaf = icmp sle i64 %b, {BLOCK}",
        f"  %d.leaf = icmp sle i64 %d, {BLOCK}",
        "  %some = and i1 %even, %deep",
        "  %both.leaves = and i1 %b.leaf, %d.leaf",
        "  %leaves = and i1 %some, %both.leaves",
    ]


def _halved(count: str, left: str, right: str) -> list[str]:
    """How NumPy halves a number of elements: the left part is a multiple of eight."""
    return [
        f"  {left}.half = lshr i64 {count}, 1",
        f"  {left}.odd = and i64 {left}.half, 7",
        f"  {left} = sub i64 {left}.half, {left}.odd",
        f"  {right} = sub i64 {count}, {left}",
    ]


def _leaves(kind: str, size: int, asks: bool, name: str) -> list[str]:
    """The sum of four leaves of multiples of eight elements, the first of which is none longer than the others.

    ``asks``: what lies ahead is asked for, in lines in their order.
    """
    vector = f"<8 x {kind}>"
    lines = [f"define internal {kind} {name}(ptr %p, i64 %a, i64 %b, i64 %c, i64 %d) {{", "entry:"]
    lines += ["  %ab = add i64 %a, %b", "  %abc = add i64 %ab, %c"]
    for k, start in enumerate(("0", "%a", "%ab", "%abc")):
        lines.append(f"  %p{k} = getelementptr inbounds {kind}, ptr %p, i64 {start}")
        lines.append(f"  %first{k} = load {vector}, ptr %p{k}, align {size}")
    asked = range(0, 32 * size if asks else 0, LINE)
    for byte in asked:
        lines += _ask(f"first{byte}", "%p", byte)
    lines += ["  br label %body", "body:", "  %i = phi i64 [ 8, %entry ], [ %next, %body ]"]
    lines += [f"  %total{k} = phi {vector} [ %first{k}, %entry ], [ %more{k}, %body ]" for k in range(4)]
    for k in range(4):
        lines += [
            f"  %at{k} = getelementptr inbounds {kind}, ptr %p{k}, i64 %i",
            f"  %eight{k} = load {vector}, ptr %at{k}, align {size}",
            f"  %more{k} = fadd {vector} %total{k}, %eight{k}",
        ]
    if asks:
        lines += ["  %four = shl i64 %i, 2", f"  %ahead = getelementptr inbounds {kind}, ptr %p, i64 %four"]
        for byte in asked:
            lines += _ask(str(byte), "%ahead", byte)
    lines += ["  %next = add nsw i64 %i, 8", "  %go = icmp slt i64 %next, %a"]
    turns, notes = in_turns(size) if asks else ("", [])
    lines += [f"  br i1 %go, label %body, label %longer1{turns}"]
    before = "body"
    for k, count in enumerate(("%b", "%c", "%d"), 1):
        lines += [
            f"longer{k}:",
            f"  %j{k} = phi i64 [ %a, %{before} ], [ %after{k}, %once{k} ]",
            f"  %sum{k} = phi {vector} [ %more{k}, %{before} ], [ %added{k}, %once{k} ]",
            f"  %left{k} = icmp slt i64 %j{k}, {count}",
            f"  br i1 %left{k}, label %once{k}, label %{f'longer{k + 1}' if k < 3 else 'join'}",
            f"once{k}:",
            f"  %place{k} = getelementptr inbounds {kind}, ptr %p{k}, i64 %j{k}",
            f"  %last{k} = load {vector}, ptr %place{k}, align {size}",
            f"  %added{k} = fadd {vector} %sum{k}, %last{k}",
            f"  %after{k} = add nsw i64 %j{k}, 8",
            f"  br label %longer{k}",
        ]
        before = f"longer{k}"
    return [*lines, "join:", *_joined(kind, ["%more0", "%sum1", "%sum2", "%sum3"]), "}", *notes]


def _blocks_in_order(kind: str, size: int, name: str) -> list[str]:
    """The sum of four leaves of 128 elements, read in memory's order, which the processor foresees: no addition of a
    leaf waits for those of the one before, which go on beside it."""
    vector = f"<8 x {kind}>"
    lines = [f"define internal {kind} {name}(ptr %p) {{", "entry:"]
    for k in range(4):
        for i in range(0, BLOCK, 8):
            sum_name = f"%more{k}" if i == BLOCK - 8 else f"%total{k}.{i}"
            value = sum_name if i == 0 else f"%eight{k}.{i}"
            lines.append(f"  %at{k}.{i} = getelementptr inbounds {kind}, ptr %p, i64 {k * BLOCK + i}")
            lines.append(f"  {value} = load {vector}, ptr %at{k}.{i}, align {size}")
            if i:
                lines.append(f"  {sum_name} = fadd {vector} %total{k}.{i - 8}, {value}")
        lines.append('  call void asm sideeffect "", "~{memory}"()')  # LLVM would read them side by side again
    return [*lines, *_joined(kind, [f"%more{k}" for k in range(4)]), "}"]


def _joined(kind: str, sums: list[str]) -> list[str]:
    """The eight sums of each of four leaves joined to one, and returned."""
    lines: list[str] = []

    def do(text: str) -> str:
        lines.append(f"  %t{len(lines)} = {text}")
        return f"%t{len(lines) - 1}"

    total = joined(do, kind, sums)
    return [*lines, f"  ret {kind} {total}"]


def joined(do: Callable[[str], str], kind: str, sums: Sequence[str]) -> str:
    """The eight sums of each of four leaves joined to one as NumPy does; ``do`` writes an instruction."""
    vector, (a, b, c, d) = f"<8 x {kind}>", sums

    def neighbours(x: str, y: str) -> str:
        halves = []
        for places in (_EVEN, _ODD):
            mask = ", ".join(f"i32 {place}" for place in places)
            halves.append(do(f"shufflevector {vector} {x}, {vector} {y}, <8 x i32> <{mask}>"))
        return do(f"fadd {vector} {halves[0]}, {halves[1]}")

    every = neighbours(neighbours(a, b), neighbours(c, d))
    each = [do(f"extractelement {vector} {every}, i32 {k}") for k in range(8)]
    leaves = [do(f"fadd {kind} {each[k]}, {each[k + 4]}") for k in range(4)]
    left, right = (do(f"fadd {kind} {x}, {y}") for x, y in (leaves[:2], leaves[2:]))
    return do(f"fadd {kind} {left}, {right}")


def _fold(kind: str, size: int, word: str, low: str, first: str, before: str) -> list[str]:
    """One element after the other."""
    return [
        "  br label %ahead",
        "ahead:",
        f"  %j = phi i64 [ {low}, %{before} ], [ %after, %each ]",
        f"  %result = phi {kind} [ {first}, %{before} ], [ %joined, %each ]",
        "  %left.over = icmp slt i64 %j, %n",
        "  br i1 %left.over, label %each, label %end",
        "each:",
        f"  %where = getelementptr inbounds {kind}, ptr %p, i64 %j",
        f"  %element = load {kind}, ptr %where, align {size}",
        f"  %joined = {word} {kind} %result, %element",
        "  %after = add nsw i64 %j, 1",
        "  br label %ahead",
        "end:",
        f"  ret {kind} %result",
    ]
