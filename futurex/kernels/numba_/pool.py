"""Compiled maximum pooling and its gradient, channels-last, with the bits of the reference kernels.

One text serves all sizes of a dtype. A task is one example and a range of channels; a block of channels stays in
registers while the window is walked through. The gradient goes backwards over the results, so that where windows
overlap it adds up in the order of the reference kernel.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.threads import openmp
from futurex.tree.node import Node

PARALLEL_BYTES = 256 * 1024
_BYTES = 64  # of one vector
_VECTORS = 4  # that a block of channels has
_TYPES = {np.dtype("f4"): ("float", "i32"), np.dtype("f8"): ("double", "i64")}
_LOWEST = "0xFFF0000000000000"  # minus infinity, as LLVM writes it in either type
_RANK = 3
_NOWHERE = 2**31 - 1
_GEOMETRY = [
    "tasks", "channels", "chunk", "chunks",
    *(f"{name}{axis}" for name in ("in", "out", "window", "stride", "pad") for axis in range(_RANK)),
]  # fmt: skip


def claim(node: Node, threads: int) -> Pooling | None:
    """The kernel of a ``max_pool`` or ``max_pool_grad`` node, or None for what is not compiled."""
    x = node.inputs[-1]
    if not node.is_static or any(each.dtype not in _TYPES or each.dtype != node.dtype for each in node.inputs):
        return None
    if not 1 <= x.ndim - 2 <= _RANK or not math.prod(x.shape) or not math.prod(node.inputs[0].shape):
        return None
    return Pooling(node, threads)


class Pooling:
    """The kernel of one node; until it is compiled, and where LLVM refuses it, NumPy computes it."""

    def __init__(self, node: Node, threads: int) -> None:
        self.node = node
        self.wait = not is_behind()
        self.interpreted = 0
        arrays = (node, *node.inputs)
        moved = sum(each.aval.nbytes for each in arrays)
        self.threads = threads if openmp() is not None and moved >= PARALLEL_BYTES else 1
        self.checks = tuple((each.shape, each.dtype) for each in arrays)
        geometry = _geometry(node, self.threads)
        self.fixed = struct.pack(f"={len(geometry)}q", *geometry)
        self.pack = struct.Struct(f"={len(arrays)}q").pack
        self.text = _text(node.dtype, node.op == "max_pool_grad", openmp() is not None)
        self.entry = compiled(self.text, wait=False)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the kernel compiled."""
        self.entry = compiled(self.text, wait=wait)

    @property
    def ready(self) -> bool:
        return self.entry.ready

    def __call__(self, out: Any, *inputs: Any) -> Any:
        arrays = (out, *inputs)
        for array, (shape, dtype) in zip(arrays, self.checks, strict=True):
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise ValueError(f"pooling kernel: built for C-contiguous {dtype} of shape {shape}, got {array.shape}")
        if not self.entry.ready:
            self.entry = compiled(self.text, wait=self.wait)
        if not self.entry.ready:
            self.interpreted += 1
            np.copyto(out, self.node.record.run(inputs, self.node.attrs))
            return out
        block = self.fixed + self.pack(*map(address_of, arrays))
        if self.threads > 1:
            self.entry.on_threads(block, self.threads)
        else:
            self.entry(block)
        return out


def _geometry(node: Node, threads: int) -> tuple[int, ...]:
    """The integers of :data:`_GEOMETRY`."""
    x, attrs = node.inputs[-1], node.attrs
    pooled = node.inputs[0].shape if node.op == "max_pool_grad" else node.shape
    channels, block = x.shape[-1], _VECTORS * _BYTES // x.dtype.itemsize
    share = -(-threads // x.shape[0])  # parts of the channels, so that every thread has a task
    chunk = math.ceil(channels / (share * block)) * block
    chunks = -(-channels // chunk)

    def three(values: Sequence[int], fill: int) -> tuple[int, ...]:
        return (fill,) * (_RANK - len(values)) + tuple(values)

    return (
        x.shape[0] * chunks, channels, chunk, chunks, *three(x.shape[1:-1], 1), *three(pooled[1:-1], 1),
        *three(attrs["window"], 1), *three(attrs["stride"], 1), *three([low for low, _ in attrs["padding"]], 0),
    )  # fmt: skip


@functools.cache
def _text(dtype: np.dtype[Any], backward: bool, threaded: bool) -> str:
    writer = _Writer(dtype)
    (writer.backward if backward else writer.forward)()
    arrays = ["dx", "g", "x"] if backward else ["y", "x"]
    parameters = [("i64", name) for name in _GEOMETRY] + [("ptr", name) for name in arrays]
    return module(parameters, writer.code, threaded)


class _Writer:
    """Writes the body of a kernel: over tasks, over blocks of channels as vectors and over what is left one by one."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.code = Code()
        self.element, self.index = _TYPES[dtype]
        self.lanes = _BYTES // dtype.itemsize

    def forward(self) -> None:
        """y = the maximum of each window."""
        with self._tasks() as (example, begin, end), self._outputs(False) as at:
            windows = self._windows(at)
            y = self.code.add(self.code.multiply(self._row("out", example, at), "%channels"))
            for vectors, channel in self._channels(begin, end):
                kind = self._kind(vectors)
                first = [(kind, _splat(kind, _LOWEST))] * max(vectors, 1)
                best = self._walk(windows, first, functools.partial(self._maxima, vectors), example, channel)
                self._store(vectors, best, "%y", self.code.add(y, channel))

    def backward(self) -> None:
        """dx = the gradient of each window, where it has its first maximum or NaN; zero elsewhere."""
        code = self.code
        with self._tasks() as (example, begin, end):
            with self._inside(example) as row:
                for vectors, channel in self._channels(begin, end):
                    nothing = [_splat(self._kind(vectors), "0.0")] * max(vectors, 1)
                    self._store(vectors, nothing, "%dx", code.add(row, channel))
            with self._outputs(True) as at:
                windows = self._windows(at)
                g = code.multiply(self._row("out", example, at), "%channels")
                for vectors, channel in self._channels(begin, end):
                    self._give(windows, vectors, example, channel, code.add(g, channel))

    def _give(self, windows: list[Any], vectors: int, example: str, channel: str, source: str) -> None:
        """Find the first maxima of one window, then add to what lies there."""
        kind, count = self._kind(vectors), max(vectors, 1)
        integer = f"<{self.lanes} x {self.index}>" if vectors else self.index
        nowhere = self._number(self._before(windows), vectors)
        first = [(kind, _splat(kind, _LOWEST))] * count + [(integer, nowhere)] * count
        found = self._walk(windows, first, functools.partial(self._first_maxima, vectors), example, channel)[count:]
        gradient = self._load(vectors, "%g", source)

        def give(held: list[str], position: str, number: str) -> None:
            here = self._number(number, vectors)
            old = self._load(vectors, "%dx", position)
            new = []
            for place, share, before in zip(found, gradient, old, strict=True):
                chosen = self.code.do(f"icmp eq {integer} {place}, {here}")
                part = self._select(kind, chosen, share, _splat(kind, "0.0"), vectors)
                new.append(self.code.do(f"fadd {kind} {before}, {part}"))
            self._store(vectors, new, "%dx", position)

        self._walk(windows, [], give, example, channel)

    def _before(self, windows: list[Any]) -> str:
        """The number of no position: -1 where the first one is still to come, another where it lies in the padding."""
        outside = self.code.add(*(low for low, _, _ in windows))
        begun = self.code.do(f"icmp sgt i64 {outside}, 0")
        return self.code.do(f"select i1 {begun}, i64 {_NOWHERE}, i64 -1")

    # loops

    def _tasks(self) -> Any:
        return _Tasks(self)

    def _outputs(self, reverse: bool) -> Any:
        return _Nest(self.code, [f"%out{axis}" for axis in range(_RANK)], reverse)

    def _inside(self, example: str) -> Any:
        return _Rows(self, example)

    def _channels(self, begin: str, end: str) -> Iterator[tuple[int, str]]:
        """Blocks of several vectors, then single elements: (number of vectors, first channel)."""
        code = self.code
        block = self.lanes * _VECTORS
        room = code.do(f"sub i64 {end}, {begin}")
        whole = code.add(begin, code.multiply(code.do(f"sdiv i64 {room}, {block}"), str(block)))
        with code.loop(begin, whole, str(block)) as (channel, _):
            yield _VECTORS, channel
        with code.loop(whole, end) as (channel, _):
            yield 0, channel

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

    # elements

    def _kind(self, vectors: int) -> str:
        return f"<{self.lanes} x {self.element}>" if vectors else self.element

    def _number(self, number: str, vectors: int) -> str:
        value = number if self.index == "i64" else self.code.do(f"trunc i64 {number} to {self.index}")
        if not vectors:
            return value
        kind = f"<{self.lanes} x {self.index}>"
        one = self.code.do(f"insertelement {kind} poison, {self.index} {value}, i64 0")
        return self.code.do(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")

    def _load(self, vectors: int, array: str, offset: str) -> list[str]:
        kind, code = self._kind(vectors), self.code
        return [
            code.do(f"load {kind}, ptr {self._place(array, offset, k)}, align {4 if self.element == 'float' else 8}")
            for k in range(max(vectors, 1))
        ]

    def _store(self, vectors: int, values: list[str], array: str, offset: str) -> None:
        kind, align = self._kind(vectors), 4 if self.element == "float" else 8
        for k, value in enumerate(values):
            self.code.run(f"store {kind} {value}, ptr {self._place(array, offset, k)}, align {align}")

    def _place(self, array: str, offset: str, k: int) -> str:
        return self.code.at(self.element, array, self.code.add(offset, str(k * self.lanes)) if k else offset)

    def _select(self, kind: str, condition: str, first: str, second: str, vectors: int) -> str:
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        return self.code.do(f"select {truth} {condition}, {kind} {first}, {kind} {second}")

    def _maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """NumPy's maximum of what was found and what lies here: a NaN stays, of equal ones the second is taken."""
        kind, code = self._kind(vectors), self.code
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        found = []
        for best, here in zip(held, self._load(vectors, "%x", position), strict=True):
            greater, nan = code.do(f"fcmp ogt {kind} {best}, {here}"), code.do(f"fcmp uno {kind} {best}, {best}")
            found.append(self._select(kind, code.do(f"or {truth} {greater}, {nan}"), best, here, vectors))
        return found

    def _first_maxima(self, vectors: int, held: list[str], position: str, number: str) -> list[str]:
        """The best so far and the number of its position; the first position of all is taken whatever it holds."""
        kind, code, count = self._kind(vectors), self.code, max(vectors, 1)
        truth = f"<{self.lanes} x i1>" if vectors else "i1"
        integer = f"<{self.lanes} x {self.index}>" if vectors else self.index
        values, places = [], []
        here_number = self._number(number, vectors)
        for best, place, here in zip(held[:count], held[count:], self._load(vectors, "%x", position), strict=True):
            better = code.do(f"fcmp ugt {kind} {here}, {best}")
            settled = code.do(f"fcmp ord {kind} {best}, {best}")
            fresh = code.do(f"icmp slt {integer} {place}, {_splat(integer, '0')}")
            taken = code.do(f"or {truth} {code.do(f'and {truth} {better}, {settled}')}, {fresh}")
            values.append(self._select(kind, taken, here, best, vectors))
            places.append(self._select(integer, taken, here_number, place, vectors))
        return values + places


class _Tasks:
    """``for task``: gives its example and its range of channels."""

    def __init__(self, writer: _Writer) -> None:
        self.code = writer.code
        self.loop = self.code.loop("%low", "%high")

    def __enter__(self) -> tuple[str, str, str]:
        task, _ = self.loop.__enter__()
        code = self.code
        example = code.do(f"sdiv i64 {task}, %chunks")
        begin = code.multiply(code.do(f"srem i64 {task}, %chunks"), "%chunk")
        return example, begin, code.least(code.add(begin, "%chunk"), "%channels")

    def __exit__(self, *error: Any) -> None:
        self.loop.__exit__(None, None, None)


class _Nest:
    """Nested loops over extents, forwards or backwards; gives the list of positions."""

    def __init__(self, code: Code, extents: list[str], reverse: bool) -> None:
        self.code, self.extents, self.reverse = code, extents, reverse
        self.loops: list[Any] = []

    def __enter__(self) -> list[str]:
        at = []
        for extent in self.extents:
            self.loops.append(self.code.loop("0", extent))
            counter, _ = self.loops[-1].__enter__()
            if self.reverse:
                counter = self.code.do(f"sub i64 {self.code.do(f'sub i64 {extent}, 1')}, {counter}")
            at.append(counter)
        return at

    def __exit__(self, *error: Any) -> None:
        for loop in reversed(self.loops):
            loop.__exit__(None, None, None)


class _Rows(_Nest):
    """Over all positions of the array before pooling; gives where its row of channels begins."""

    def __init__(self, writer: _Writer, example: str) -> None:
        super().__init__(writer.code, [f"%in{axis}" for axis in range(_RANK)], False)
        self.writer, self.example = writer, example

    def __enter__(self) -> Any:
        at = super().__enter__()
        return self.code.multiply(self.writer._row("in", self.example, at), "%channels")


def _splat(kind: str, value: str) -> str:
    """A constant of a scalar or vector type."""
    if not kind.startswith("<"):
        return value
    count, element = kind[1:-1].split(" x ")
    return f"<{', '.join([f'{element} {value}'] * int(count))}>"
