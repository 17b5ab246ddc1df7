"""Compiled maximum pooling and its gradient, channels-last, with the bits of the reference kernels.

One text serves all sizes of a dtype. A task is one example and a range of channels; a block of channels stays in
registers while the window is walked through. The gradient goes backwards over the results, so that where windows
overlap it adds up in the order of the reference kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import TASKS, TYPES, VECTOR, Writer, Written, splat, tasks, threads_for
from futurex.kernels.numba_.code import module
from futurex.kernels.threads import openmp
from futurex.tree.node import Node

_VECTORS = 4  # that a block of channels has
_LOWEST = "0xFFF0000000000000"  # minus infinity, as LLVM writes it in either type
_RANK = 3
_NOWHERE = 2**31 - 1
_GEOMETRY = [
    *TASKS, *(f"{name}{axis}" for name in ("in", "out", "window", "stride", "pad") for axis in range(_RANK)),
]  # fmt: skip


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``max_pool`` or ``max_pool_grad`` node, or None for what is not compiled."""
    x = node.inputs[-1]
    if not node.is_static or any(each.dtype not in TYPES or each.dtype != node.dtype for each in node.inputs):
        return None
    if not 1 <= x.ndim - 2 <= _RANK or not math.prod(x.shape) or not math.prod(node.inputs[0].shape):
        return None
    threads = threads_for(node, threads)
    text = _text(node.dtype, node.op == "max_pool_grad", openmp() is not None)
    return Written(node, threads, text, _geometry(node, threads))


def _geometry(node: Node, threads: int) -> tuple[int, ...]:
    """The integers of :data:`_GEOMETRY`."""
    x, attrs = node.inputs[-1], node.attrs
    pooled = node.inputs[0].shape if node.op == "max_pool_grad" else node.shape
    block = _VECTORS * VECTOR // x.dtype.itemsize

    def three(values: Sequence[int], fill: int) -> tuple[int, ...]:
        return (fill,) * (_RANK - len(values)) + tuple(values)

    return (
        *tasks(x.shape[0], x.shape[-1], block, threads), *three(x.shape[1:-1], 1), *three(pooled[1:-1], 1),
        *three(attrs["window"], 1), *three(attrs["stride"], 1), *three([low for low, _ in attrs["padding"]], 0),
    )  # fmt: skip


@functools.cache
def _text(dtype: np.dtype[Any], backward: bool, threaded: bool) -> str:
    writer = _Writer(dtype, _VECTORS)
    (writer.backward if backward else writer.forward)()
    arrays = ["dx", "g", "x"] if backward else ["y", "x"]
    parameters = [("i64", name) for name in _GEOMETRY] + [("ptr", name) for name in arrays]
    return module(parameters, writer.code, threaded)


class _Writer(Writer):
    """The two kernels."""

    def forward(self) -> None:
        """y = the maximum of each window."""
        with self.tasks() as (example, begin, end), self.nest(_axes("out")) as at:
            windows = self._windows(at)
            y = self.code.add(self.code.multiply(self._row("out", example, at), "%channels"))
            for vectors, channel in self.channels(begin, end):
                kind = self.kind(vectors)
                first = [(kind, splat(kind, _LOWEST))] * max(vectors, 1)
                best = self._walk(windows, first, functools.partial(self._maxima, vectors), example, channel)
                self.store(vectors, best, "%y", self.code.add(y, channel))

    def backward(self) -> None:
        """dx = the gradient of each window, where it has its first maximum or NaN; zero elsewhere."""
        code = self.code
        with self.tasks() as (example, begin, end):
            with self.nest(_axes("in")) as at:
                row = code.multiply(self._row("in", example, at), "%channels")
                for vectors, channel in self.channels(begin, end):
                    nothing = [splat(self.kind(vectors), "0.0")] * max(vectors, 1)
                    self.store(vectors, nothing, "%dx", code.add(row, channel))
            with self.nest(_axes("out"), reverse=True) as at:
                windows = self._windows(at)
                g = code.multiply(self._row("out", example, at), "%channels")
                for vectors, channel in self.channels(begin, end):
                    self._give(windows, vectors, example, channel, code.add(g, channel))

    def _give(self, windows: list[Any], vectors: int, example: str, channel: str, source: str) -> None:
        """Find the first maxima of one window, then add to what lies there."""
        kind, count = self.kind(vectors), max(vectors, 1)
        integer = f"<{self.lanes} x {self.index}>" if vectors else self.index
        nowhere = self._number(self._before(windows), vectors)
        first = [(kind, splat(kind, _LOWEST))] * count + [(integer, nowhere)] * count
        found = self._walk(windows, first, functools.partial(self._first_maxima, vectors), example, channel)[count:]
        gradient = self.load(vectors, "%g", source)

        def give(held: list[str], position: str, number: str) -> None:
            here = self._number(number, vectors)
            old = self.load(vectors, "%dx", position)
            new = []
            for place, share, before in zip(found, gradient, old, strict=True):
                chosen = self.code.do(f"icmp eq {integer} {place}, {here}")
                part = self._select(kind, chosen, share, splat(kind, "0.0"), vectors)
                new.append(self.code.do(f"fadd {kind} {before}, {part}"))
            self.store(vectors, new, "%dx", position)

        self._walk(windows, [], give, example, channel)

    def _before(self, windows: list[Any]) -> str:
        """The number of no position: -1 where the first one is still to come, another where it lies in the padding."""
        outside = self.code.add(*(low for low, _, _ in windows))
        begun = self.code.do(f"icmp sgt i64 {outside}, 0")
        return self.code.do(f"select i1 {begun}, i64 {_NOWHERE}, i64 -1")

    def _windows(self, at: list[str]) -> list[tuple[str, str, str]]:
        """For each axis the first and last position inside the array, and where the window begins."""
        code, found = self.code, []
        for axis, here in enumerate(at):
            start = code.do(f"sub i64 {code.multiply(here, f'%stride{axis}')}, %pad{axis}")
            low = code.most(code.do(f"sub i64 0, {start}"), "0")
            high = code.least(code.do(f"sub i64 %in{axis}, {start}"), f"%window{axis}")
            found.append((low, high, start))
        return found

    def _walk(
        self, windows: list[Any], carried: list[tuple[str, str]], visit: Callable[..., list[str] | None],
        example: str, channel: str,
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
                    position = code.add(code.multiply(inner, "%channels"), channel)
                    held[:] = visit(held, position, count) or []
            return held

        return axis(0, example, "0", [first for _, first in carried])

    def _row(self, which: str, example: str, at: list[str]) -> str:
        row = example
        for axis, here in enumerate(at):
            row = self.code.add(self.code.multiply(row, f"%{which}{axis}"), here)
        return row

    def _number(self, number: str, vectors: int) -> str:
        value = number if self.index == "i64" else self.code.do(f"trunc i64 {number} to {self.index}")
        if not vectors:
            return value
        kind = f"<{self.lanes} x {self.index}>"
        one = self.code.do(f"insertelement {kind} poison, {self.index} {value}, i64 0")
        return self.code.do(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")

    def _select(self, kind: str, condition: str, first: str, second: str, vectors: int) -> str:
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        return self.code.do(f"select {truth} {condition}, {kind} {first}, {kind} {second}")

    def _maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """NumPy's maximum of what was found and what lies here: a NaN stays, of equal ones the second is taken."""
        kind, code = self.kind(vectors), self.code
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        found = []
        for best, here in zip(held, self.load(vectors, "%x", position), strict=True):
            greater, nan = code.do(f"fcmp ogt {kind} {best}, {here}"), code.do(f"fcmp uno {kind} {best}, {best}")
            found.append(self._select(kind, code.do(f"or {truth} {greater}, {nan}"), best, here, vectors))
        return found

    def _first_maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """The best so far and the number of its position; the first position of all is taken whatever it holds."""
        kind, code, count = self.kind(vectors), self.code, max(vectors, 1)
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        integer = f"<{self.lanes} x {self.index}>" if vectors else self.index
        values, places = [], []
        here_number = self._number(number, vectors)
        for best, place, here in zip(held[:count], held[count:], self.load(vectors, "%x", position), strict=True):
            better = code.do(f"fcmp ugt {kind} {here}, {best}")
            settled = code.do(f"fcmp ord {kind} {best}, {best}")
            fresh = code.do(f"icmp slt {integer} {place}, {splat(integer, '0')}")
            taken = code.do(f"or {truth} {code.do(f'and {truth} {better}, {settled}')}, {fresh}")
            values.append(self._select(kind, taken, here, best, vectors))
            places.append(self._select(integer, taken, here_number, place, vectors))
        return values + places


def _axes(name: str) -> list[str]:
    return [f"%{name}{axis}" for axis in range(_RANK)]
