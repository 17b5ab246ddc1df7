"""Compiled ``scatter`` that adds: rows of a table each get what stands for them, as gradients of looked-up rows do. The
same for extremes (``np.maximum.at``), of which one of two equal ones is the second, as everywhere in NumPy.

``np.add.at`` goes through an array element by element, at 10 to 30 ns each. Here a row is added as vectors. Rows come
in NumPy's order, so that sums have its bits; each thread has a part of the table, or of what lies in front of the axis,
and adds there what all places have for it; short rows are one thread's. Places are looked at before the first addition:
where one is outside, nothing has been written, and NumPy says which. A number, or a few that stand for many, are laid
down for all places first. Places along several axes (a matrix assembled of
those of elements, an image's gradient at pixels) are counted together by NumPy first.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.channels import VECTOR, Written, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.picked import SHORT_ROW
from futurex.kernels.numba_.team import Share
from futurex.kernels.recycling import maker
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.node import Node

LEAST_ELEMENTS = 64
"""Fewer stay with NumPy; ..."""
LEAST_JOINED = 1024
"""... of those at places along several axes, which NumPy counts together first, in some microseconds."""
_ALL, _INT = ("s", None, None, None), np.dtype(np.int64)
_TYPES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "u4": "i32", "u8": "i64"}
_WORDS = {"add": "", "maximum": "gt", "minimum": "lt"}
"""How what is there compares to what comes if it stays; nothing where they are added."""
_SIGNS = {"i": "s", "u": "u"}
_QUARTER = VECTOR // 4
_SHORT = 64
"""Bytes of a row up to which one thread adds them all: whose part of the table a place lies in nobody foresees, and a
wrong guess takes longer than the addition (single doubles: on two threads 5.5 times as long as on one)."""


def claim(node: Node, threads: int) -> Added | None:
    """The kernel of a ``scatter`` that adds at one array of places, or at several for axes that are neighbours, all of
    the other axes, or of ``ufunc_at`` that does so or keeps extremes; None for another."""
    word = _WORDS.get(node.attrs["mode"] if node.op == "scatter" else node.attrs["ufunc"])
    if not node.is_static or word is None or len(node.inputs) < 3 or not isinstance(node.aval, Aval):
        return None
    base, value, *places = node.inputs
    pattern, picked = node.attrs["pattern"], [("d", k) for k in range(len(places))]
    axis, behind = (pattern.index(picked[0]), len(places)) if picked[0] in pattern else (0, 0)
    if [*pattern[axis : axis + behind]] != picked or any(x != _ALL for x in pattern[:axis] + pattern[axis + behind :]):
        return None
    element = _TYPES.get(node.dtype.str[1:])
    if element is None or not node.dtype.isnative or base.dtype != node.dtype or base is value or base.aval.weak:
        return None
    if any(each.dtype.kind != "i" or not each.dtype.isnative or each.aval.weak for each in places):
        return None
    behind += axis
    spread = np.broadcast_shapes(*(each.shape for each in places))
    wanted = Aval((*base.shape[:axis], *spread, *base.shape[behind:]), node.dtype)
    alike = value.aval == wanted
    if not alike and not _spreads(value.aval, wanted):
        return None
    size = places[0].dtype.itemsize if len(places) == 1 else _INT.itemsize
    least = LEAST_ELEMENTS if len(places) == 1 and alike else LEAST_JOINED
    if size not in (4, 8) or wanted.size < least or not base.size:
        return None
    outer, inner = math.prod(base.shape[:axis]), math.prod(base.shape[behind:])
    extents = base.shape[axis:behind]
    blocks = outer > 1 or inner * node.dtype.itemsize <= _SHORT
    relation = word and f"{'fcmp o' if node.dtype.kind == 'f' else f'icmp {_SIGNS[node.dtype.kind]}'}{word}"
    short = inner if 1 < inner <= SHORT_ROW // node.dtype.itemsize else 0
    text = _text(element, node.dtype.itemsize, size, relation, blocks, inner > 1, may_share(), short)
    shared = outer if blocks else math.prod(extents)
    geometry = shared, math.prod(spread), math.prod(extents), inner
    return Added(node, min(shared, threads_for(node, threads)), text, geometry, extents, None if alike else wanted)


def _spreads(value: Aval, wanted: Aval) -> bool:
    """Is it a number, or has it fewer elements or a narrower type, and does NumPy add it as what is wanted? Python's
    numbers are doubles and integers of 64 bits there, whatever they are added to."""
    kind, own = value.dtype.kind, wanted.dtype
    if not value.static or kind not in "biuf" or np.broadcast_shapes(value.shape, wanted.shape) != wanted.shape:
        return False
    if value.weak:
        return own.kind == "f" or (kind != "f" and own != np.uint64)
    return np.result_type(value.dtype, own) == own


def _exactly(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value as an array of a type; None for a Python number that it does not hold: NumPy adds that in a wider one."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value, dtype)
    try:
        with np.errstate(over="ignore"):
            one = np.asarray(value, dtype)
    except OverflowError:
        return None
    return one if one.item() == value else None


def _joined(places: Sequence[Any], extents: Sequence[int]) -> Any:
    """Places along several axes as such along all of them together; None where one is outside."""
    total: Any = None
    for each, extent in zip(places, extents, strict=True):
        low, high = each.min(), each.max()
        if low < -extent or high >= extent:
            return None
        counted = each.astype(_INT, copy=False)
        counted = np.where(counted < 0, counted + extent, counted) if low < 0 else counted
        total = counted if total is None else total * extent + counted
    return np.ascontiguousarray(total)


class Added(Written):
    """The kernel of one node; NumPy says what is wrong with a place that is outside."""

    bind = None
    inplace = (0,)

    def __init__(
        self, node: Node, threads: int, text: str, geometry: Sequence[int], extents: Sequence[int], spread: Aval | None
    ) -> None:
        super().__init__(node, threads, text, geometry)
        self.extents, self.spread = extents, spread
        if spread is not None:
            self.checks = (*self.checks[:2], (spread.shape, spread.dtype), *self.checks[3:])
        read = sum(each.aval.nbytes for each in self.node.inputs)
        self.share = Share.each(self.threads, read)  # all places are read for each ticket

    def __call__(self, out: Any, base: Any, value: Any, *given: Any) -> Any:
        if self.spread is not None:
            one = _exactly(value, self.spread.dtype)
            if one is None:
                return self.interpret(out, base, value, *given)
            value = maker(self.spread.nbytes)(self.spread.shape, self.spread.dtype)
            np.copyto(value, one)
        if not self.found(out, base, value, *given):
            return self.interpret(out, base, value, *given)
        into, rows = address_of(out), address_of(value)
        if into < rows + value.nbytes and rows < into + out.nbytes:  # the table is added to itself
            return self.interpret(out, base, value, *given)
        places = given[0] if len(given) == 1 else _joined(given, self.extents)
        if places is None:
            return self.interpret(out, base, value, *given)
        if out is not base:
            np.copyto(out, base)
        outside = np.zeros(1, np.int64)
        self.run(self.fixed + _addresses(into, rows, address_of(places), address_of(outside)))
        return self.interpret(out, base, value, *given) if outside[0] else out


_addresses = struct.Struct("=qqqq").pack


@functools.cache
def _text(
    element: str, width: int, size: int, relation: str, blocks: bool, rows: bool, threaded: bool, short: int = 0
) -> str:
    """``relation``: what compares two elements of which one stays, if they are not added; ``blocks``: threads share
    what lies in front of the axis, which is all of the table where that is the first; ``rows``: it is not the last, so
    that a place stands for several elements, so many where these are few (``short``)."""
    code, inner = Code(), str(short) if short else "%inner" if rows else ""
    with code.loop("0", "%each", carried=[("i1", "false")]) as (number, outside):
        wrong = code.do(f"icmp uge i64 {_place(code, size, number)}, %extent")
        outside[0] = code.do(f"or i1 {outside[0]}, {wrong}")
    code.run(f"br i1 {outside[0]}, label %tell, label %all")
    code.insert(["tell:", "  store atomic i64 1, ptr %outside monotonic, align 8", "  br label %end", "all:"])
    if blocks:
        with code.loop("%low", "%high") as (task, _):
            table = code.at(element, "%out", code.multiply(code.multiply(task, "%extent"), "%inner"))
            given = code.at(element, "%value", code.multiply(code.multiply(task, "%each"), "%inner"))
            with code.loop("0", "%each") as (number, _):
                _add(code, element, width, relation, inner, table, _place(code, size, number), given, number)
    else:
        length = code.do("sub i64 %high, %low")
        with code.loop("0", "%each") as (number, _):
            place = _place(code, size, number)
            own = code.do(f"icmp ult i64 {code.do(f'sub i64 {place}, %low')}, {length}")
            code.run(f"br i1 {own}, label %own, label %others")
            code.label("own")
            _add(code, element, width, relation, inner, "%out", place, "%value", number)
            code.run("br label %others")
            code.label("others")
    code.run("br label %end")
    code.label("end")
    names = [("i64", name) for name in ("shared", "each", "extent", "inner")]
    names += [("ptr", name) for name in ("out", "value", "places", "outside")]
    return module(names, code, threaded)


def _place(code: Code, size: int, number: str) -> str:
    """A place, counted from the front."""
    place = code.do(f"load i{8 * size}, ptr {code.at(f'i{8 * size}', '%places', number)}, align {size}")
    place = place if size == 8 else code.do(f"sext i{8 * size} {place} to i64")
    behind = code.do(f"icmp slt i64 {place}, 0")
    return code.do(f"select i1 {behind}, i64 {code.add(place, '%extent')}, i64 {place}")


def _add(
    code: Code, element: str, width: int, relation: str, inner: str, table: str, place: str, given: str, number: str
) -> None:
    """Add what is given for a place to its row of so many elements of the table: as vectors, a quarter of one, and one
    by one."""
    if not inner:
        _join(code, element, width, relation, code.at(element, table, place), code.at(element, given, number))
        return
    target = code.at(element, table, code.multiply(place, inner))
    source = code.at(element, given, code.multiply(number, inner))
    begin = "0"
    for lanes in (VECTOR // width, _QUARTER // width, 1):
        kind = element if lanes == 1 else f"<{lanes} x {element}>"
        end = code.do(f"and i64 {inner}, {-lanes}")
        with code.loop(begin, end, str(lanes)) as (column, _):
            _join(code, kind, width, relation, code.at(element, target, column), code.at(element, source, column))
        begin = end


def _join(code: Code, kind: str, width: int, relation: str, target: str, source: str) -> None:
    real = "float" in kind or "double" in kind
    held, given = (code.do(f"load {kind}, ptr {each}, align {width}") for each in (target, source))
    if relation:
        stays = code.do(f"{relation} {kind} {held}, {given}")
        truth = kind.replace(kind.strip("<>").split()[-1], "i1")
        if real:  # a NaN that is there
            stays = code.do(f"or {truth} {stays}, {code.do(f'fcmp uno {kind} {held}, {held}')}")
        joined = code.do(f"select {truth} {stays}, {kind} {held}, {kind} {given}")
    else:
        joined = code.do(f"{'fadd' if real else 'add'} {kind} {held}, {given}")
    code.run(f"store {kind} {joined}, ptr {target}, align {width}")
