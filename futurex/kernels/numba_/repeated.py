"""Compiled ``repeat_each``: every element, or every block of neighbours behind an axis, several times in a row.

Elements are repeated in registers: a vector of them becomes as many vectors as it has copies, each a shuffle of it.
Blocks of a few bytes (a complex number, a pixel) are read once and stored so often; larger ones are copied in pieces
that the nearest cache holds, so that each is read from memory once.
"""

from __future__ import annotations

import functools
import math

from futurex.kernels.numba_.channels import VECTOR, Written, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.node import Node

PIECE = 16 * 1024
"""Bytes of a block that are copied at once."""
_MOST = 16
"""Copies of an element, or of a short block, that are written out."""
_SHORT = 64
"""Bytes of a block that registers hold."""


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a node; None where its elements are objects, or there are none."""
    aval, times = node.aval, node.attrs["times"]
    if not isinstance(aval, Aval) or not node.is_static or node.dtype.hasobject or not node.size:
        return None
    (source,), axis = node.inputs, node.attrs["axis"]
    blocks, width = math.prod(source.shape[: axis + 1]), node.dtype.itemsize
    bytes_ = math.prod(source.shape[axis + 1 :]) * width
    threads, threaded = threads_for(node, threads), may_share()
    if bytes_ in (1, 2, 4, 8) and times <= _MOST:
        lanes = VECTOR // bytes_
        vectors = -(-blocks // lanes)
        return Written(node, threads, _elements(bytes_, times, threaded), (vectors, blocks))
    if bytes_ <= _SHORT and times <= _MOST:
        return Written(node, threads, _short(bytes_, times, threaded), (blocks,))
    pieces = -(-bytes_ // PIECE)
    return Written(node, threads, _blocks(pieces > 1, threaded), (blocks * pieces, pieces, bytes_, times))


@functools.cache
def _elements(width: int, times: int, threaded: bool) -> str:
    """Vectors of elements; of the last one, which may not be whole, one element after the other."""
    code, word, lanes = Code(), f"i{8 * width}", VECTOR // width
    kind = f"<{lanes} x {word}>"
    whole = code.least("%high", code.do(f"sdiv i64 %count, {lanes}"))
    with code.loop("%low", whole) as (number, _):
        first = code.multiply(number, str(lanes))
        held = code.do(f"load {kind}, ptr {code.at(word, '%source', first)}, align {width}")
        target = code.at(word, "%out", code.multiply(first, str(times)))
        for k in range(times):
            places = ", ".join(f"i32 {(k * lanes + lane) // times}" for lane in range(lanes))
            spread = code.do(f"shufflevector {kind} {held}, {kind} poison, <{lanes} x i32> <{places}>")
            code.run(f"store {kind} {spread}, ptr {code.at(word, target, str(k * lanes))}, align {width}")
    end = code.least(code.multiply("%high", str(lanes)), "%count")
    with code.loop(code.multiply(code.most(whole, "%low"), str(lanes)), end) as (place, _):
        held = code.do(f"load {word}, ptr {code.at(word, '%source', place)}, align {width}")
        target = code.at(word, "%out", code.multiply(place, str(times)))
        for k in range(times):
            code.run(f"store {word} {held}, ptr {code.at(word, target, str(k))}, align {width}")
    return module([("i64", "vectors"), ("i64", "count"), ("ptr", "out"), ("ptr", "source")], code, threaded)


@functools.cache
def _short(bytes_: int, times: int, threaded: bool) -> str:
    """Blocks of so many bytes, each held as words."""
    code, width = Code(), math.gcd(bytes_, 8)
    kind = f"<{bytes_ // width} x i{8 * width}>"
    with code.loop("%low", "%high") as (block, _):
        start = code.multiply(block, str(bytes_))
        held = code.do(f"load {kind}, ptr {code.at('i8', '%source', start)}, align {width}")
        target = code.at("i8", "%out", code.multiply(start, str(times)))
        for k in range(times):
            code.run(f"store {kind} {held}, ptr {code.at('i8', target, str(k * bytes_))}, align {width}")
    return module([("i64", "tasks"), ("ptr", "out"), ("ptr", "source")], code, threaded)


@functools.cache
def _blocks(several: bool, threaded: bool) -> str:
    """A task is one block, or one of ``several`` pieces of it."""
    code = Code()
    with code.loop("%low", "%high") as (task, _):
        block, first, length = task, "0", "%bytes"
        if several:
            block = code.do(f"sdiv i64 {task}, %pieces")
            first = code.multiply(code.do(f"srem i64 {task}, %pieces"), str(PIECE))
            length = code.least(code.do(f"sub i64 %bytes, {first}"), str(PIECE))
        start = code.multiply(block, "%bytes")
        source = code.at("i8", "%source", code.add(start, first))
        target = code.at("i8", "%out", code.add(code.multiply(start, "%times"), first))
        with code.loop("0", "%times") as (number, _):
            place = code.at("i8", target, code.multiply(number, "%bytes"))
            code.run(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {source}, i64 {length}, i1 false)")
    names = [("i64", name) for name in ("tasks", "pieces", "bytes", "times")]
    copy = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
    return module([*names, ("ptr", "out"), ("ptr", "source")], code, threaded, copy)
