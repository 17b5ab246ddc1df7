"""How fast this machine copies memory, in several forms, and reads it: with as many threads as generated kernels."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.pairwise import AHEAD, PREFETCH, prefetch
from futurex.kernels.numba_.team import Share
from futurex.kernels.threads import openmp

_LINE = 64
_VECTORS = 4
_VECTOR = "<16 x float>"
_BLOCK = _LINE * _VECTORS

FORMS = ("memcpy", "vectors", "streaming")
"""The C library's function; vectors of 64 bytes; those with stores that go past the caches."""


def copies(nbytes: int, threads: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """For each form a run of a copy of so many bytes, and the bytes that it moves: read once, written once."""
    source, target = aligned(nbytes, 1), aligned(nbytes, 0)
    block = struct.pack("=3q", nbytes // _BLOCK, address_of(target), address_of(source))
    return {form: (functools.partial(_run, _entry(form), block, threads, source, target), 2 * nbytes) for form in FORMS}


def reading(nbytes: int, threads: int) -> tuple[Callable[[], Any], int]:
    """A run that only reads so many bytes: vectors are added up, in any order, and lines asked for ahead."""
    source, target = aligned(nbytes, 1), aligned(_LINE, 0)
    block = struct.pack("=3q", nbytes // _BLOCK, address_of(target), address_of(source))
    return functools.partial(_run, _reader(), block, threads, source, target), nbytes


def _run(entry: Entry, block: bytes, threads: int, *kept: Any) -> None:
    if threads > 1 and openmp() is not None:
        entry.on_threads(block, Share(threads, threads))
    else:
        entry(block)


def aligned(nbytes: int, fill: int) -> Any:
    """Bytes that begin with a line of the cache, as planned memory and large results do."""
    whole = np.full(nbytes + _LINE, fill, np.uint8)
    first = -address_of(whole) % _LINE
    return whole[first : first + nbytes]


@functools.cache
def _entry(form: str) -> Entry:
    """The kernel: the threads share blocks of four lines."""
    code, declared = Code(), []
    if form == "memcpy":
        declared.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        first, last = (code.multiply(each, str(_BLOCK)) for each in ("%low", "%high"))
        count = code.do(f"sub i64 {last}, {first}")
        target, source = code.at("i8", "%target", first), code.at("i8", "%source", first)
        code.run(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
        return compiled(module(_PARAMETERS, code, openmp() is not None, declared))
    past = ", !nontemporal !0" if form == "streaming" else ""
    with code.loop("%low", "%high") as (number, _):
        begin = code.multiply(number, str(_VECTORS))
        places = [code.add(begin, str(k)) for k in range(_VECTORS)]
        values = [code.do(f"load {_VECTOR}, ptr {code.at(_VECTOR, '%source', at)}, align {_LINE}") for at in places]
        for at, value in zip(places, values, strict=True):
            code.run(f"store {_VECTOR} {value}, ptr {code.at(_VECTOR, '%target', at)}, align {_LINE}{past}")
    code.notes.append("!0 = !{i32 1}")
    return compiled(module(_PARAMETERS, code, openmp() is not None, declared))


@functools.cache
def _reader() -> Entry:
    code = Code()
    with code.loop("%low", "%high", carried=[(_VECTOR, "zeroinitializer")] * _VECTORS) as (number, totals):
        begin = code.multiply(number, str(_VECTORS))
        for k, total in enumerate(totals):
            place = code.at(_VECTOR, "%source", code.add(begin, str(k)))
            code.run(prefetch(code.at("i8", place, str(AHEAD))))
            totals[k] = code.do(f"fadd {_VECTOR} {total}, {code.do(f'load {_VECTOR}, ptr {place}, align {_LINE}')}")
    for total in totals:  # who writes last does not matter, but that somebody does
        code.run(f"store volatile {_VECTOR} {total}, ptr %target, align {_LINE}")
    return compiled(module(_PARAMETERS, code, openmp() is not None, [PREFETCH]))


_PARAMETERS = [("i64", "blocks"), ("ptr", "target"), ("ptr", "source")]
