"""Compiled maximum pooling and its gradient, channels-last, with the bits of the reference kernels.

One text serves all sizes of a dtype. A task is one example and a range of channels; a block of
channels stays in registers while a window is walked through. The gradient of an element is gathered from the windows
that it lies in, in the order in which the reference kernel adds them up: nothing is written twice.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import TASKS, TYPES, VECTOR, Writer, Written, splat, tasks, threads_for
from futurex.kernels.numba_.code import module
from futurex.kernels.numba_.compiler import has_masks
from futurex.kernels.threads import may_share
from futurex.ops.pool import place_dtype
from futurex.ops.window import Sizes
from futurex.tree.node import Node

_VECTORS = 4  # that a block of channels has
_LOWEST = "0xFFF0000000000000"  # minus infinity, as LLVM writes it in either type
_RANK = 3
_MOST_PLACES = 2**31
_GEOMETRY = [
    *TASKS, *(f"{name}{axis}" for name in ("in", "out", "window", "stride", "pad") for axis in range(_RANK)),
]  # fmt: skip
_ARRAYS = {"max_pool": ("y", "x"), "max_pool_places": ("y", "places", "x"), "max_pool_spread": ("dx", "g", "places")}

Span = tuple[str, str, str]


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``max_pool``, ``max_pool_places`` or ``max_pool_spread`` node; None for what is not compiled."""
    source, window = node.inputs[0], node.attrs["window"]
    spread = node.op == "max_pool_spread"
    x = node.attrs["input_shape"] if spread else source.shape
    if not node.is_static or source.dtype not in TYPES or not math.prod(x) or not math.prod(source.shape):
        return None
    if not 1 <= source.ndim - 2 <= _RANK or math.prod(window) >= _MOST_PLACES:
        return None
    threads = threads_for(node, threads)
    pooled = source.shape if spread else (node.aval[0] if isinstance(node.aval, tuple) else node.aval).shape
    block = _VECTORS * VECTOR // source.dtype.itemsize
    geometry = (
        *tasks(x[0], x[-1], block, threads), *_three(x[1:-1], 1), *_three(pooled[1:-1], 1),
        *_three(window, 1), *_three(node.attrs["stride"], 1), *_three([low for low, _ in node.attrs["padding"]], 0),
    )  # fmt: skip
    number = f"i{8 * place_dtype(window).itemsize}"
    text = _text(node.op, source.dtype, number, may_share(), spread and _lie_apart(node))
    return Written(node, threads, text, geometry)


def _three(values: Sequence[int], fill: int) -> Sizes:
    return (fill,) * (_RANK - len(values)) + tuple(values)


def _lie_apart(node: Node) -> bool:
    """Does every element lie in one window, and no window beyond them?"""
    window, stride, padding = (node.attrs[name] for name in ("window", "stride", "padding"))
    sizes = zip(node.attrs["input_shape"][1:-1], node.inputs[0].shape[1:-1], window, strict=True)
    whole = all(size == count * extent for size, count, extent in sizes)
    return whole and tuple(stride) == tuple(window) and not any(map(any, padding))


@functools.cache
def _text(op: str, dtype: np.dtype[Any], place: str, threaded: bool, apart: bool) -> str:
    writer = _Writer(dtype, place)
    if op == "max_pool_spread":
        writer.spread_apart() if apart else writer.spread()
    else:
        writer.pool(places=op == "max_pool_places")
    parameters = [("i64", name) for name in _GEOMETRY] + [("ptr", name) for name in _ARRAYS[op]]
    return module(parameters, writer.code, threaded, sorted(writer.declared))


class _Writer(Writer):
    """The kernels; ``place`` is the type of the number of a position inside a window."""

    def __init__(self, dtype: np.dtype[Any], place: str) -> None:
        super().__init__(dtype, _VECTORS, has_masks())
        self.place = place

    def pool(self, places: bool) -> None:
        """y = the maximum of each window, and perhaps the number of its first place in it."""
        code = self.code
        with self.tasks() as (example, begin, end), self.nest(_axes("out")) as at:
            windows = [self._window(axis, here) for axis, here in enumerate(at)]
            y = code.multiply(self._row("out", example, at), "%channels")
            begun, start = self._begun(windows, example)
            for vectors, channel in self.channels(begin, end):
                kind, count = self.kind(vectors), max(vectors, 1)
                lowest, target = splat(kind, _LOWEST), code.add(y, channel)
                if not places:
                    visit = functools.partial(self._maxima, vectors)
                    best = self._walk(windows, [(kind, lowest)] * count, visit, example, channel)
                    self.store(vectors, best, "%y", target)
                    continue
                integer = self.kind(vectors, self.index)
                values = self.load(vectors, "%x", code.add(start, channel))
                first = [(kind, code.do(f"select i1 {begun}, {kind} {lowest}, {kind} {value}")) for value in values]
                first += [(integer, splat(integer, "0"))] * count
                found = self._walk(windows, first, functools.partial(self._first_maxima, vectors), example, channel)
                self.store(vectors, found[:count], "%y", target)
                numbers = [
                    code.do(f"trunc {integer} {each} to {self.kind(vectors, self.place)}") for each in found[count:]
                ]
                self.store(vectors, numbers, "%places", target, self.place)

    def spread(self) -> None:
        """dx = the sum of the gradients of the windows that have their maximum there."""
        code = self.code
        with self.tasks() as (example, begin, end), contextlib.ExitStack() as nest:
            at, spans = [], []
            for axis, extent in enumerate(_axes("in")):
                at.append(nest.enter_context(code.loop("0", extent))[0])
                spans.append(self._cover(axis, at[-1]))  # divisions, which nobody moves out of a loop
            dx = code.multiply(self._row("in", example, at), "%channels")
            for vectors, channel in self.channels(begin, end):
                total = self._gather(spans, vectors, example, channel)
                self.store(vectors, total, "%dx", code.add(dx, channel))

    def spread_apart(self) -> None:
        """The same where each element lies in one window: what is known of a window is read once."""
        code = self.code
        with self.tasks() as (example, begin, end), self.nest(_axes("out")) as at:
            pooled = code.multiply(self._row("out", example, at), "%channels")
            first = [code.multiply(here, f"%window{axis}") for axis, here in enumerate(at)]
            for vectors, channel in self.channels(begin, end):
                kind, number = self.kind(vectors), self.kind(vectors, self.place)
                source = code.add(pooled, channel)
                gradient = self.load(vectors, "%g", source)
                places = self.load(vectors, "%places", source, self.place)
                with self.nest(_axes("window")) as inside:
                    row, here = example, "0"
                    for axis, (start, step) in enumerate(zip(first, inside, strict=True)):
                        row = code.add(code.multiply(row, f"%in{axis}"), start, step)
                        here = code.add(code.multiply(here, f"%window{axis}"), step)
                    wanted, zero = self._number(here, vectors, self.place), splat(kind, "0.0")
                    parts = []
                    for share, place in zip(gradient, places, strict=True):
                        chosen = code.do(f"icmp eq {number} {place}, {wanted}")
                        part = self._select(kind, chosen, share, zero, vectors)
                        parts.append(code.do(f"fadd {kind} {part}, {zero}"))  # of zeros the sum is the positive one
                    self.store(vectors, parts, "%dx", code.add(code.multiply(row, "%channels"), channel))

    def _cover(self, axis: int, here: str) -> Span:
        """The first and the last window that an element lies in, along one axis, and its place in the window at 0."""
        code = self.code
        reach = code.add(here, f"%pad{axis}")
        last = code.least(code.do(f"sdiv i64 {reach}, %stride{axis}"), code.do(f"sub i64 %out{axis}, 1"))
        missing = code.do(f"sub i64 {code.add(reach, f'%stride{axis}')}, %window{axis}")
        return code.most(code.do(f"sdiv i64 {missing}, %stride{axis}"), "0"), last, reach

    def _gather(self, spans: list[Span], vectors: int, example: str, channel: str) -> list[str]:
        """The sum over the windows from the last one to the first: the numbers of the places ascend."""
        code, kind = self.code, self.kind(vectors)

        def axis(k: int, row: str, number: str, held: list[str]) -> list[str]:
            first, last, reach = spans[k]
            count = code.add(code.do(f"sub i64 {last}, {first}"), "1")
            with code.loop("0", count, carried=[(kind, value) for value in held]) as (back, total):
                at = code.do(f"sub i64 {last}, {back}")
                inner = code.add(code.multiply(row, f"%out{k}"), at)
                place = code.do(f"sub i64 {reach}, {code.multiply(at, f'%stride{k}')}")
                found = code.add(code.multiply(number, f"%window{k}"), place)
                if k + 1 < _RANK:
                    total[:] = axis(k + 1, inner, found, list(total))
                else:
                    source = code.add(code.multiply(inner, "%channels"), channel)
                    total[:] = self._add(vectors, total, source, found)
            return total

        return axis(0, example, "0", [splat(kind, "0.0")] * max(vectors, 1))

    def _add(self, vectors: int, total: Sequence[str], source: str, number: str) -> list[str]:
        code, kind = self.code, self.kind(vectors)
        here = self._number(number, vectors, self.place)
        gradient = self.load(vectors, "%g", source)
        places = self.load(vectors, "%places", source, self.place)
        found = []
        for value, share, place in zip(total, gradient, places, strict=True):
            chosen = code.do(f"icmp eq {self.kind(vectors, self.place)} {place}, {here}")
            part = self._select(kind, chosen, share, splat(kind, "0.0"), vectors)
            found.append(code.do(f"fadd {kind} {value}, {part}"))
        return found

    def _begun(self, windows: list[Span], example: str) -> tuple[str, str]:
        """Does a window begin in the padding, whose minus infinity is then the first maximum, at place 0? And where
        does its first element lie?"""
        code, row = self.code, example
        for axis, (low, _, start) in enumerate(windows):
            row = code.add(code.multiply(row, f"%in{axis}"), start, low)
        outside = code.add(*(low for low, _, _ in windows))
        return code.do(f"icmp sgt i64 {outside}, 0"), code.multiply(row, "%channels")

    def _window(self, axis: int, here: str) -> Span:
        """The first and last position inside the array along one axis, and where the window begins."""
        code = self.code
        start = code.do(f"sub i64 {code.multiply(here, f'%stride{axis}')}, %pad{axis}")
        low = code.most(code.do(f"sub i64 0, {start}"), "0")
        return low, code.least(code.do(f"sub i64 %in{axis}, {start}"), f"%window{axis}"), start

    def _walk(
        self, windows: list[Span], carried: list[tuple[str, str]], visit: Callable[..., list[str]], example: str,
        channel: str,
    ) -> list[str]:  # fmt: skip
        """Visit each position of a window in row-major order: ``visit(values, offset in x, number)``."""
        code = self.code

        def axis(k: int, row: str, number: str, values: list[str]) -> list[str]:
            low, high, start = windows[k]
            kinds = [kind for kind, _ in carried]
            with code.loop(low, high, carried=list(zip(kinds, values, strict=True))) as (at, held):
                inner = code.add(code.multiply(row, f"%in{k}"), start, at)
                count = code.add(code.multiply(number, f"%window{k}"), at)
                if k + 1 < _RANK:
                    held[:] = axis(k + 1, inner, count, held)
                else:
                    held[:] = visit(held, code.add(code.multiply(inner, "%channels"), channel), count)
            return held

        return axis(0, example, "0", [first for _, first in carried])

    def _row(self, which: str, example: str, at: list[str]) -> str:
        row = example
        for axis, here in enumerate(at):
            row = self.code.add(self.code.multiply(row, f"%{which}{axis}"), here)
        return row

    def _number(self, number: str, vectors: int, integer: str) -> str:
        value = number if integer == "i64" else self.code.do(f"trunc i64 {number} to {integer}")
        if not vectors:
            return value
        kind = self.kind(vectors, integer)
        one = self.code.do(f"insertelement {kind} poison, {integer} {value}, i64 0")
        return self.code.do(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")

    def _select(self, kind: str, condition: str, first: str, second: str, vectors: int) -> str:
        return self.code.do(f"select {self.kind(vectors, 'i1')} {condition}, {kind} {first}, {kind} {second}")

    def _maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """NumPy's maximum of what was found and what lies here: a NaN stays, of equal ones the second is taken."""
        return [value for value, _, _ in self._larger(vectors, held, position)]

    def _first_maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """The maximum so far and the number of the first place that attains it, which for a NaN is its own."""
        code, count, integer = self.code, max(vectors, 1), self.kind(vectors, self.index)
        kind, truth = self.kind(vectors), self.kind(vectors, "i1")
        here_number = self._number(number, vectors, self.index)
        values, places = [], []
        larger = self._larger(vectors, held[:count], position)
        for (value, here, nan), best, place in zip(larger, held[:count], held[count:], strict=True):
            better = code.do(f"fcmp ugt {kind} {here}, {best}")
            taken = code.do(f"select {truth} {nan}, {truth} {splat(truth, 'false')}, {truth} {better}")
            values.append(value)
            places.append(self._select(integer, taken, here_number, place, vectors))
        return values + places

    def _larger(self, vectors: int, held: Sequence[str], position: str) -> list[tuple[str, str, str]]:
        """The maximum, what lies here, and whether what was found is a NaN."""
        kind, code = self.kind(vectors), self.code
        found = []
        for best, here in zip(held, self.load(vectors, "%x", position), strict=True):
            nan = code.do(f"fcmp uno {kind} {best}, {best}")
            larger = self._select(kind, code.do(f"fcmp ogt {kind} {best}, {here}"), best, here, vectors)
            found.append((self._select(kind, nan, best, larger, vectors), here, nan))
        return found


def _axes(name: str) -> list[str]:
    return [f"%{name}{axis}" for axis in range(_RANK)]
