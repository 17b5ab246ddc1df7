"""Compiled ``gather`` and ``take_along_axis``: what an array of places picks along one axis, each place looked at in
the trip that reads it.

NumPy's indexing looks at all places first, and its result is memory of its own. Here threads share the work, and the
result lies where the plan wants it, so that what follows may be written over it.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.arriving import Arriving
from futurex.kernels.numba_.channels import PARALLEL_BYTES, Written, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.team import Share
from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.node import Node

LEAST_BYTES = 64 * 1024
"""Smaller results stay with NumPy."""
_ALL, _PICKED = ("s", None, None, None), ("d", 0)
SHORT_ROW = 128
"""Bytes of a row up to which its length is part of the text: to copy it is a few instructions then, and no call."""
_WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}


def claim(node: Node, threads: int, backend: str) -> Kernel | None:
    """The kernel of a ``gather`` by one array of places, all of the other axes; None for another."""
    if not isinstance(node.aval, Aval) or len(node.inputs) != 2:
        return None
    source, places = node.inputs
    pattern = node.attrs["pattern"]
    others = [entry for entry in pattern if entry != _PICKED]
    if len(others) != len(pattern) - 1 or any(entry != _ALL for entry in others) or source.aval.weak:
        return None
    word, kind = _WORDS.get(node.dtype.itemsize), places.dtype
    if word is None or node.dtype.hasobject or not (source.dtype.isnative and kind.isnative):
        return None
    if kind.kind not in "iu" or places.aval.weak:
        return None
    axis = pattern.index(_PICKED)
    if not node.is_static:
        several = PickedOfAny(node, threads if may_share() else 1, axis, word)
        return Kernel(several, backend, contiguous=True, threads=several.threads, late=several)
    if node.aval.nbytes < LEAST_BYTES or not source.size:
        return None
    outer, extent, inner = math.prod(source.shape[:axis]), source.shape[axis], math.prod(source.shape[axis + 1 :])
    length = inner * node.dtype.itemsize
    short = length if inner > 1 and length <= SHORT_ROW else 0
    text = _text(word, kind.itemsize, _is_signed(kind), outer > 1, inner > 1, may_share(), short)
    shared, each = (outer, places.size) if outer > 1 else (places.size, 1)
    call = Picked(node, threads_for(node, threads), text, (shared, each, extent, inner))
    return Kernel(call, backend, into=True, contiguous=True, late=call)


def claim_along(node: Node, threads: int, backend: str) -> Kernel | None:
    """The kernel of a ``take_along_axis`` whose arrays have the same other extents; None for another."""
    source, places = node.inputs
    if not isinstance(node.aval, Aval) or not node.is_static or source.aval.weak or places.aval.weak:
        return None
    axis, word, kind = node.attrs["axis"], _WORDS.get(node.dtype.itemsize), places.dtype
    before, behind = source.shape[:axis], source.shape[axis + 1 :]
    if word is None or node.dtype.hasobject or not (source.dtype.isnative and kind.isnative) or kind.kind not in "iu":
        return None
    if (places.shape[:axis], places.shape[axis + 1 :]) != (before, behind):
        return None
    if node.aval.nbytes < LEAST_BYTES or not source.size:
        return None
    inner = math.prod(behind)
    text = _text_along(word, kind.itemsize, _is_signed(kind), inner > 1, may_share())
    geometry = math.prod(before), places.shape[axis], source.shape[axis], inner
    call = Picked(node, threads_for(node, threads), text, geometry)
    return Kernel(call, backend, into=True, contiguous=True, late=call)


def _is_signed(places: np.dtype[Any]) -> bool:
    return places.kind == "i" or places.itemsize == 8  # NumPy takes 64 bits for a signed number's


class Picked(Written):
    """The kernel of one node; NumPy says what is wrong with a place that is outside."""

    bind = None

    def __call__(self, out: Any, source: Any, places: Any) -> Any:
        if not self.found(out, source, places):
            return self.interpret(out, source, places)
        outside = np.zeros(1, np.int64)
        self.run(self.fixed + self.pack(*map(address_of, (out, source, places))) + _slot(address_of(outside)))
        return self.interpret(out, source, places) if outside[0] else out


class PickedOfAny(Arriving):
    """The kernel of one node of which the run says how many elements there are."""

    def __init__(self, node: Node, threads: int, axis: int, word: str) -> None:
        self.node, self.threads, self.axis, self.blocks = node, threads, axis, axis > 0
        source, places = (each.aval for each in node.inputs)
        signed, rows = _is_signed(places.dtype), source.ndim > axis + 1
        super().__init__(_text(word, places.dtype.itemsize, signed, self.blocks, rows, may_share()))

    def __call__(self, out: None, source: Any, places: Any) -> Any:
        shape = (*source.shape[: self.axis], *places.shape, *source.shape[self.axis + 1 :])
        count = math.prod(shape)
        if count * source.itemsize < LEAST_BYTES:
            return self.node.record.run([source, places], self.node.attrs)
        if not (self.is_there() and source.flags.c_contiguous and places.flags.c_contiguous):
            self.interpreted += 1
            return self.node.record.run([source, places], self.node.attrs)
        found = maker(count * source.itemsize)(shape, source.dtype)
        outer, inner = math.prod(source.shape[: self.axis]), math.prod(source.shape[self.axis + 1 :])
        shared, each = (outer, places.size) if self.blocks else (places.size, 1)
        outside = np.zeros(1, np.int64)
        numbers = shared, each, source.shape[self.axis], inner
        block = _geometry(*numbers, *map(address_of, (found, source, places, outside)))
        moved = 2 * found.nbytes + places.nbytes
        self.play(block, Share.of(self.threads if moved >= PARALLEL_BYTES else 1, moved, shared))
        return self.node.record.run([source, places], self.node.attrs) if outside[0] else found


_slot, _geometry = struct.Struct("=q").pack, struct.Struct("=8q").pack


@functools.cache
def _text(word: str, size: int, signed: bool, blocks: bool, rows: bool, threaded: bool, short: int = 0) -> str:
    """``size``: bytes of a place, which is counted from the end if it is ``signed`` and below zero; ``blocks``: the
    axis is not the first; ``rows``: it is not the last, so that a place stands for several elements, of so many bytes
    where these are few and known (``short``)."""
    code = Code()
    width = int(word[1:]) // 8
    with code.loop("%low", "%high", carried=[("i1", "false")]) as (task, outside):
        if blocks:
            source = code.multiply(code.multiply(task, "%extent"), "%inner")
            target = code.multiply(code.multiply(task, "%each"), "%inner")
            with code.loop("0", "%each", carried=[("i1", outside[0])]) as (number, held):
                held[0] = _element(code, word, size, signed, rows, width, number, (source, target), held[0], short)
            outside[0] = held[0]
        else:
            outside[0] = _element(code, word, size, signed, rows, width, task, None, outside[0], short)
    copy = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] if rows else []
    return _told(code, outside[0], threaded, copy)


@functools.cache
def _text_along(word: str, size: int, signed: bool, rows: bool, threaded: bool) -> str:
    """The same of an array of places that has as many elements along all other axes, with a place for each result."""
    code, align = Code(), min(int(word[1:]) // 8, 8)
    with code.loop("%low", "%high", carried=[("i1", "false")]) as (task, outside):
        first = code.multiply(code.multiply(task, "%extent"), "%inner")
        begun = code.multiply(task, code.multiply("%each", "%inner"))
        with code.loop("0", "%each", carried=[("i1", outside[0])]) as (number, held):
            row = code.add(begun, code.multiply(number, "%inner"))
            with code.loop("0", "%inner" if rows else "1", carried=[("i1", held[0])]) as (column, inside):
                target = code.add(row, column)
                place, wrong = _place(code, size, signed, target)
                source = code.add(first, code.add(code.multiply(place, "%inner") if rows else place, column))
                read = code.do(f"load {word}, ptr {code.at(word, '%source', source)}, align {align}")
                code.run(f"store {word} {read}, ptr {code.at(word, '%out', target)}, align {align}")
                inside[0] = code.do(f"or i1 {inside[0]}, {wrong}")
            held[0] = inside[0]
        outside[0] = held[0]
    return _told(code, outside[0], threaded, [])


def _told(code: Code, outside: str, threaded: bool, declared: list[str]) -> str:
    """The kernel that ends by telling whether a place was outside."""
    code.run(f"br i1 {outside}, label %tell, label %end")
    code.insert(["tell:", "  store atomic i64 1, ptr %outside monotonic, align 8", "  br label %end", "end:"])
    names = [("i64", name) for name in ("shared", "each", "extent", "inner")]
    names += [("ptr", name) for name in ("out", "source", "places", "outside")]
    return module(names, code, threaded, declared)


def _place(code: Code, size: int, signed: bool, number: str) -> tuple[str, str]:
    """A place, 0 for one that is outside, and whether it is."""
    place = code.do(f"load i{8 * size}, ptr {code.at(f'i{8 * size}', '%places', number)}, align {size}")
    counted = place if size == 8 else code.do(f"{'sext' if signed else 'zext'} i{8 * size} {place} to i64")
    if signed:
        behind = code.do(f"icmp slt i64 {counted}, 0")
        counted = code.do(f"select i1 {behind}, i64 {code.add(counted, '%extent')}, i64 {counted}")
    wrong = code.do(f"icmp uge i64 {counted}, %extent")
    return code.do(f"select i1 {wrong}, i64 0, i64 {counted}"), wrong


def _element(
    code: Code, word: str, size: int, signed: bool, rows: bool, width: int, number: str,
    starts: tuple[str, str] | None, outside: str, short: int,
) -> str:  # fmt: skip
    """Copy what one place picks; whether it, or one before it, is outside."""
    (source, wrong), target = _place(code, size, signed, number), number
    if rows:
        inner = str(short // width) if short else "%inner"
        source, target = code.multiply(source, inner), code.multiply(target, inner)
    if starts is not None:
        source, target = code.add(starts[0], source), code.add(starts[1], target)
    read, written = code.at(word, "%source", source), code.at(word, "%out", target)
    if rows:
        length = str(short) if short else code.multiply("%inner", str(width))
        code.run(f"call void @llvm.memcpy.p0.p0.i64(ptr {written}, ptr {read}, i64 {length}, i1 false)")
    else:
        align = min(width, 8)
        code.run(f"store {word} {code.do(f'load {word}, ptr {read}, align {align}')}, ptr {written}, align {align}")
    return code.do(f"or i1 {outside}, {wrong}")
