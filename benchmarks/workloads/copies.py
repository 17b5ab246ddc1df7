"""How fast this machine copies memory, in several forms, and reads it: with as many threads as generated kernels."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.pairwise import AHEAD, PREFETCH, prefetch
from futurex.kernels.numba_.team import Share
from futurex.kernels.threads import may_share

_LINE = 64
_VECTORS = 4
_VECTOR = "<16 x float>"
_BLOCK = _LINE * _VECTORS
_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")

FORMS = ("memcpy", "vectors", "streaming")
"""The C library's function; vectors of 64 bytes; those with stores that go past the caches."""
AHEAD_TOO = ("vectors", "streaming", "vectors, ahead", "streaming, ahead")
"""Forms of a loop over several arrays: those of a copy, and with lines of the operands asked for ahead."""

Form = dict[str, tuple[Callable[[], Any], int]]


def told_cache() -> int:
    """Bytes of the last cache as the system says; a virtual machine is told of all that it shares with others."""
    try:
        return int(_LAST_CACHE.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0


def laps(nbytes: int) -> int:
    """How many sets of operands of so many bytes, taken in turns, no cache holds when the first one comes again."""
    return max(1, -(-2 * told_cache() // nbytes))


def copies(nbytes: int, threads: int, sets: int = 1) -> Form:
    """For each form a run of a copy of so many bytes, and the bytes that it moves: read once, written once."""
    return _runs(FORMS, 1, 1, nbytes, threads, sets)


def streams(reads: int, writes: int, nbytes: int, threads: int, sets: int = 1) -> Form:
    """For each form a run that adds up so many operands into each of so many results, of these bytes each: the least
    that a kernel with as many could do. Without results vectors are added up, in any order."""
    return _runs(AHEAD_TOO if writes else AHEAD_TOO[::2], reads, writes, nbytes, threads, sets)


def _runs(forms: Sequence[str], reads: int, writes: int, nbytes: int, threads: int, sets: int) -> Form:
    results = [aligned(nbytes if writes else _LINE, 0) for _ in range(writes or 1)]
    places, blocks = [address_of(each) for each in results], []
    operands = [[aligned(nbytes, 1) for _ in range(reads)] for _ in range(sets)]
    for each in operands:
        blocks.append(
            struct.pack(f"={1 + len(places) + reads}q", nbytes // _BLOCK, *places, *(address_of(one) for one in each))
        )

    def run(form: str) -> Callable[[], Any]:
        entry = _entry(form, reads, writes)
        return functools.partial(_run, entry, itertools.cycle(blocks), threads, operands, results)

    return {form: (run(form), (reads + writes) * nbytes) for form in forms}


def _run(entry: Entry, blocks: Iterator[bytes], threads: int, *kept: Any) -> None:
    if threads > 1 and may_share():
        entry.on_threads(next(blocks), Share(threads, threads))
    else:
        entry(next(blocks))


def aligned(nbytes: int, fill: int) -> Any:
    """Bytes that begin with a line of the cache, as planned memory and large results do."""
    whole = np.full(nbytes + _LINE, fill, np.uint8)
    first = -address_of(whole) % _LINE
    return whole[first : first + nbytes]


@functools.cache
def _entry(form: str, reads: int, writes: int) -> Entry:
    """The kernel: the threads share blocks of four lines."""
    code, declared = Code(), [PREFETCH]
    sources, targets = [f"a{k}" for k in range(reads)], [f"o{k}" for k in range(writes or 1)]
    parameters = [("i64", "blocks"), *(("ptr", name) for name in (*targets, *sources))]
    if form == "memcpy":
        declared = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
        first, last = (code.multiply(each, str(_BLOCK)) for each in ("%low", "%high"))
        count = code.do(f"sub i64 {last}, {first}")
        target, source = code.at("i8", "%o0", first), code.at("i8", "%a0", first)
        code.run(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
        return compiled(module(parameters, code, may_share(), declared))
    past = ", !nontemporal !0" if form.startswith("streaming") else ""
    carried = [] if writes else [(_VECTOR, "zeroinitializer")] * _VECTORS
    with code.loop("%low", "%high", carried=carried) as (number, totals):
        begin = code.multiply(number, str(_VECTORS))
        for k in range(_VECTORS):
            at, total = code.add(begin, str(k)), "" if writes else totals[k]
            for name in sources:
                place = code.at(_VECTOR, f"%{name}", at)
                if form.endswith("ahead") or not writes:
                    code.run(prefetch(code.at("i8", place, str(AHEAD // reads))))
                value = code.do(f"load {_VECTOR}, ptr {place}, align {_LINE}")
                total = code.do(f"fadd {_VECTOR} {total}, {value}") if total else value
            if writes:
                for name in targets:
                    place = code.at(_VECTOR, f"%{name}", at)
                    code.run(f"store {_VECTOR} {total}, ptr {place}, align {_LINE}{past}")
            else:
                totals[k] = total
    for total in totals:  # who writes last does not matter, but that somebody does
        code.run(f"store volatile {_VECTOR} {total}, ptr %o0, align {_LINE}")
    code.notes.append("!0 = !{i32 1}")
    return compiled(module(parameters, code, may_share(), declared))
