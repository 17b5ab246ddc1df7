"""Compiled ``nonzero``: where elements are other than zero.

Threads count those of their parts first, and then each writes the places of its own where they belong. Of eight
elements a table tells which are true; all eight entries are written, and the next ones begin where the true ones end.
NumPy looks at one element after the other, and its processor guesses which way each goes.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.arriving import Arriving
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.team import Share
from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.kernels.threads import may_share
from futurex.ops.dynamic import check_mask
from futurex.tree.aval import Aval
from futurex.tree.node import Node

LEAST, PARALLEL = 16 * 1024, 256 * 1024
"""Elements from which that is faster than NumPy, and from which threads share them."""
_TOGETHER, _ENTRIES = 64, 8
"""Elements that are looked at together, and as many of them as an entry of the table is for."""
_KINDS = {"b1": "i8", "u1": "i8", "i1": "i8", "i2": "i16", "u2": "i16", "i4": "i32", "u4": "i32", "i8": "i64",
          "u8": "i64", "f4": "float", "f8": "double"}  # fmt: skip


def claim(node: Node, threads: int, backend: str) -> Kernel | None:
    """The kernel of a ``nonzero`` of a large array; None for others."""
    x = node.inputs[0].aval
    if len(node.inputs) > 1 or not isinstance(x, Aval) or not x.static or x.weak:  # the run knows what it has to fit
        return None
    if x.size < LEAST or not x.dtype.isnative:
        return None
    if x.dtype.str[1:] not in _KINDS:
        return None
    call = Truths(node, threads if may_share() and x.size >= PARALLEL else 1)
    return Kernel(call, backend, contiguous=True, threads=call.threads, late=call)


class Truths(Arriving):
    """The kernel of one node; until it is compiled NumPy computes it."""

    def __init__(self, node: Node, threads: int) -> None:
        self.node, self.threads = node, threads
        x = node.inputs[0].aval
        self.shape, self.dtype, self.blocks = x.shape, x.dtype, x.size // _TOGETHER
        self.share = Share(threads, threads)
        super().__init__(_text(_KINDS[x.dtype.str[1:]], x.dtype.itemsize, may_share()))

    def __call__(self, out: None, x: Any) -> tuple[Any, ...]:
        fits = x.shape == self.shape and x.dtype == self.dtype and x.flags.c_contiguous
        if not (self.is_there() and fits):
            self.interpreted += 1
            found: tuple[Any, ...] = self.node.record.run([x], self.node.attrs)
            return found
        if self.node.attrs["extents"] is not None:
            check_mask(x.shape, self.node.attrs["extents"], self.node.attrs.get("first", 0))
        places = self._places(x.reshape(-1))
        return (places,) if x.ndim == 1 else np.unravel_index(places, x.shape)

    def _places(self, x: Any) -> Any:
        begun = self.blocks * _TOGETHER
        rest = np.flatnonzero(x[begun:])
        ends = np.zeros(self.threads + 1, np.int64)
        self._run(False, ends[1:], x, x)
        np.cumsum(ends, out=ends)
        count = int(ends[-1]) + len(rest)
        places = maker(count * ends.itemsize)((count,), np.dtype(np.intp))
        self._run(True, ends, places, x)
        np.add(rest, begun, out=places[len(places) - len(rest) :])
        return places

    def _run(self, fill: bool, ends: Any, places: Any, x: Any) -> None:
        self.play(_numbers(self.blocks, fill, *map(address_of, (ends, places, x))), self.share)


_numbers = struct.Struct("=qqqqq").pack


def _entry(mask: int) -> int:
    """The places of a byte's bits, each a byte, the first one lowest."""
    return sum(place << 8 * k for k, place in enumerate(bit for bit in range(_ENTRIES) if mask >> bit & 1))


@functools.cache
def _text(element: str, size: int, threaded: bool) -> str:
    """Counts to ``%ends``, one for each ticket; with ``%fill`` places to ``%places``, from those ends of tickets on."""
    code = Code()
    spilled = code.do(f"alloca [{_ENTRIES} x i64], align 64")
    counted = code.do("sub i64 1, %fill")
    with code.loop("0", counted):
        with code.loop("%low", "%high", carried=[("i64", "0")]) as (block, held):
            held[0] = code.add(held[0], code.do(f"call i64 @llvm.ctpop.i64(i64 {_mask(code, element, size, block)})"))
        code.run(f"store i64 {held[0]}, ptr {code.at('i64', '%ends', '%ticket')}, align 8")
    first, last = (code.do(f"mul i64 {each}, %fill") for each in ("%low", "%high"))
    begin = code.do(f"load i64, ptr {code.at('i64', '%ends', '%ticket')}, align 8")
    end = code.do(f"load i64, ptr {code.at('i64', '%ends', code.add('%ticket', '%fill'))}, align 8")
    with code.loop(first, last, carried=[("i64", begin)]) as (block, held):
        mask = _mask(code, element, size, block)
        some = code.do(f"zext i1 {code.do(f'icmp ne i64 {mask}, 0')} to i64")
        start = code.multiply(block, str(_TOGETHER))
        rounds = code.multiply(some, str(_TOGETHER))
        with code.loop("0", rounds, str(_ENTRIES), carried=[("i64", held[0])]) as (shift, place):
            place[0] = _written(code, mask, shift, code.add(start, shift), place[0], end, spilled)
        held[0] = place[0]
    names = [("i64", "blocks"), ("i64", "fill"), ("ptr", "ends"), ("ptr", "places"), ("ptr", "x")]
    table = ", ".join(f"i64 {_entry(mask)}" for mask in range(1 << _ENTRIES))
    declared = [
        f"@table = internal constant [{1 << _ENTRIES} x i64] [{table}], align 64",
        "declare i64 @llvm.ctpop.i64(i64)",
    ]
    return module(names, code, threaded, declared)


def _mask(code: Code, element: str, size: int, block: str) -> str:
    """Which elements of a block are other than zero, a bit for each."""
    kind, start = f"<{_TOGETHER} x {element}>", code.multiply(block, str(_TOGETHER))
    held = code.do(f"load {kind}, ptr {code.at(element, '%x', start)}, align {size}")
    word = "fcmp une" if element in ("float", "double") else "icmp ne"
    true = code.do(f"{word} {kind} {held}, zeroinitializer")
    return code.do(f"bitcast <{_TOGETHER} x i1> {true} to i64")


def _written(code: Code, mask: str, shift: str, start: str, place: str, end: str, spilled: str) -> str:
    """Write the places of eight elements from ``start`` on; where those that follow belong. Beside the end of the part
    they go another way, since what is behind them is another thread's."""
    kind = f"<{_ENTRIES} x i64>"
    byte = code.do(f"and i64 {code.do(f'lshr i64 {mask}, {shift}')}, {(1 << _ENTRIES) - 1}")
    entry = code.do(f"load i64, ptr {code.at('i64', '@table', byte)}, align 8")
    steps = code.do(f"zext <{_ENTRIES} x i8> {code.do(f'bitcast i64 {entry} to <{_ENTRIES} x i8>')} to {kind}")
    places = code.do(f"add {kind} {steps}, {code.spread(kind, start)}")
    count = code.do(f"call i64 @llvm.ctpop.i64(i64 {byte})")
    room = code.do(f"icmp sle i64 {code.add(place, str(_ENTRIES))}, {end}")
    target = code.at("i64", "%places", place)
    into = code.do(f"select i1 {room}, ptr {target}, ptr {spilled}")
    code.run(f"store {kind} {places}, ptr {into}, align 8")
    with code.loop("0", code.do(f"select i1 {room}, i64 0, i64 {count}")) as (number, _):
        value = code.do(f"load i64, ptr {code.at('i64', spilled, number)}, align 8")
        code.run(f"store i64 {value}, ptr {code.at('i64', target, number)}, align 8")
    return code.add(place, count)
