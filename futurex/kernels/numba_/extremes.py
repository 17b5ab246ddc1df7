"""The largest or smallest of contiguous floating-point numbers: any order gives it, so four vectors run side by side.

NaN wins, and a zero without sign is above one with it. The processor's instruction knows neither: what is not a number
is looked for beside it, two vectors in one comparison, and where one was met, or the answer is zero, a second loop goes
by the rules.
"""

from __future__ import annotations

from futurex.kernels.numba_ import nearest
from futurex.kernels.numba_.pairwise import AHEAD, LINE, in_turns, named, prefetch

CHAINS = 4


def intrinsics(op: str, kind: str, size: int) -> set[str]:
    """What the function calls."""
    lanes, bits = 64 // size, 8 * size
    return {
        f"declare {kind} @llvm.{op}imum.f{bits}({kind}, {kind})",
        f"declare {kind} @llvm.vector.reduce.f{op}.v{lanes}f{bits}(<{lanes} x {kind}>)",
        f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)",
    }


def declarations(op: str, kind: str, size: int, streams: bool) -> list[str]:
    """``@max.<kind>(ptr, count, first)``, or ``@min``; ``streams``: what it reads is asked for ahead, unless
    the nearest cache is small: so near a processor foresees it."""
    lanes = 64 // size
    vector, step = f"<{lanes} x {kind}>", CHAINS * lanes
    relation = "ogt" if op == "max" else "olt"
    bits, careful = 8 * size, f"{op}imum"
    held = [f"%total{k}" for k in range(CHAINS)]

    def loads(at: str, suffix: str) -> list[str]:
        lines = []
        for k in range(CHAINS):
            lines.append(f"  %at{k}{suffix} = getelementptr inbounds {kind}, ptr {at}, i64 {k * lanes}")
            lines.append(f"  %x{k}{suffix} = load {vector}, ptr %at{k}{suffix}, align {size}")
        return lines

    def better(name: str, x: str, y: str) -> list[str]:
        return [
            f"  {name}.wins = fcmp {relation} {vector} {x}, {y}",
            f"  {name} = select <{lanes} x i1> {name}.wins, {vector} {x}, {vector} {y}",
        ]

    def odd(suffix: str, before: str) -> list[str]:
        lines = []
        for k in range(0, CHAINS, 2):
            lines.append(f"  %odd{k}{suffix} = fcmp uno {vector} %x{k}{suffix}, %x{k + 1}{suffix}")
            lines.append(f"  %met{k}{suffix} = or <{lanes} x i1> {before}, %odd{k}{suffix}")
            before = f"%met{k}{suffix}"
        return lines

    def asked(at: str, suffix: str) -> list[str]:
        lines = []
        for k in range(CHAINS if streams and not nearest.small() else 0):
            lines.append(f"  %ask{k}{suffix} = getelementptr inbounds i8, ptr {at}, i64 {AHEAD + k * LINE}")
            lines.append(f"  {prefetch(f'%ask{k}{suffix}')}")
        return lines

    last = CHAINS - 2
    turns, notes = in_turns(16 + size + (op == "max")) if streams else ("", [])  # sums have up to 8
    return [
        f"define internal {kind} {named(op, kind, streams)}(ptr %p, i64 %n, {kind} %begun) {{",
        "entry:",
        f"  %short = icmp slt i64 %n, {step}",
        "  br i1 %short, label %each, label %first",
        "first:",
        f"  %rest = sub i64 %n, {step}",
        *asked("%p", ".a"),
        *loads("%p", ".a"),
        *odd(".a", "zeroinitializer"),
        "  br label %head",
        "head:",
        f"  %i = phi i64 [ {step}, %first ], [ %next, %body ]",
        *(f"  {name} = phi {vector} [ %x{k}.a, %first ], [ %more{k}, %body ]" for k, name in enumerate(held)),
        f"  %met = phi <{lanes} x i1> [ %met{last}.a, %first ], [ %met{last}.b, %body ]",
        "  %go = icmp slt i64 %i, %rest",
        "  br i1 %go, label %body, label %join",
        "body:",
        f"  %at = getelementptr inbounds {kind}, ptr %p, i64 %i",
        *asked("%at", ".b"),
        *loads("%at", ".b"),
        *odd(".b", "%met"),
        *(line for k, name in enumerate(held) for line in better(f"%more{k}", f"%x{k}.b", name)),
        f"  %next = add nsw i64 %i, {step}",
        f"  br label %head{turns}",
        "join:",  # the last vectors overlap those before them
        f"  %end = getelementptr inbounds {kind}, ptr %p, i64 %rest",
        *asked("%end", ".e"),
        *loads("%end", ".e"),
        *odd(".e", "%met"),
        *(line for k, name in enumerate(held) for line in better(f"%last{k}", f"%x{k}.e", name)),
        *better("%u", "%last0", "%last1"),
        *better("%v", "%last2", "%last3"),
        *better("%w", "%u", "%v"),
        f"  %best = call nnan nsz {kind} @llvm.vector.reduce.f{op}.v{lanes}f{bits}({vector} %w)",
        f"  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %met{last}.e)",
        f"  %zero = fcmp oeq {kind} %best, 0.0",
        "  %careful = or i1 %any, %zero",
        "  br i1 %careful, label %each, label %plain",
        "plain:",
        f"  %found = call {kind} @llvm.{careful}.f{bits}({kind} %begun, {kind} %best)",
        f"  ret {kind} %found",
        "each:",
        "  br label %ahead",
        "ahead:",
        "  %j = phi i64 [ 0, %each ], [ %after, %one ]",
        f"  %total = phi {kind} [ %begun, %each ], [ %joined, %one ]",
        "  %left = icmp slt i64 %j, %n",
        "  br i1 %left, label %one, label %done",
        "one:",
        f"  %where = getelementptr inbounds {kind}, ptr %p, i64 %j",
        f"  %element = load {kind}, ptr %where, align {size}",
        f"  %joined = call {kind} @llvm.{careful}.f{bits}({kind} %total, {kind} %element)",
        "  %after = add nsw i64 %j, 1",
        "  br label %ahead",
        "done:",
        f"  ret {kind} %total",
        "}",
        *notes,
    ]
