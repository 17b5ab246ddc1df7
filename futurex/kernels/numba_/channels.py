"""What hand-written kernels on channels-last arrays share: tasks, blocks of channels as vectors, and the call."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.arriving import Arriving
from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.team import Share
from futurex.kernels.steps import Bound, Places, Step, Workspace
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

PARALLEL_BYTES = 256 * 1024
"""Bytes moved below which one thread is done before a second has started."""
VECTOR = 64  # bytes
TYPES = {np.dtype("f4"): ("float", "i32"), np.dtype("f8"): ("double", "i64")}
TASKS = ["tasks", "channels", "chunk", "chunks"]
"""The first parameters of a kernel: a task is one example and ``chunk`` of its channels."""


def threads_for(node: Node, threads: int) -> int:
    """How many of the threads a node is worth."""
    outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    moved = sum(aval.nbytes for aval in outs) + sum(each.aval.nbytes for each in node.inputs)
    return threads if may_share() and moved >= PARALLEL_BYTES else 1


def tasks(examples: int, channels: int, block: int, threads: int) -> tuple[int, int, int, int]:
    """The integers of :data:`TASKS`: channels are shared, in whole blocks, where there are fewer examples than
    threads."""
    share = -(-threads // examples)
    chunk = math.ceil(channels / (share * block)) * block
    chunks = -(-channels // chunk)
    return examples * chunks, channels, chunk, chunks


class Written(Arriving):
    """The kernel of one node; until it is compiled, and where LLVM refuses it, NumPy computes it. ``exclusive``: one
    call at a time; ``own``: bytes that it keeps between calls; ``inplace``: inputs in whose memory the result may
    be written."""

    exclusive, own = False, 0
    inplace: tuple[int, ...] = ()

    def __init__(self, node: Node, threads: int, text: str, geometry: Sequence[int]) -> None:
        super().__init__(text)
        self.node = node
        self.threads = threads
        self.several = isinstance(node.aval, tuple)
        outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        arrays = (*outs, *(each.aval for each in node.inputs))
        self.checks = tuple((each.shape, each.dtype) for each in arrays)
        pieces = geometry[0] if geometry else outs[0].size
        self.share = Share.of(threads, sum(each.nbytes for each in arrays), pieces)
        self.fixed = struct.pack(f"={len(geometry)}q", *geometry)
        self.pack = struct.Struct(f"={len(arrays)}q").pack

    @property
    def bind(self) -> Callable[[Workspace], Bound] | None:
        """The kernel as steps."""
        return lambda _: _BoundWritten(self)

    def __call__(self, out: Any, *inputs: Any) -> Any:
        if not self.found(out, *inputs):
            return self.interpret(out, *inputs)
        outs = out if self.several else (out,)
        self.run(self.fixed + self.pack(*map(address_of, (*outs, *inputs))))
        return out

    def found(self, out: Any, *inputs: Any) -> bool:
        """Is the code there? Raises ValueError for arrays that it is not built for."""
        for array, (shape, dtype) in zip((*(out if self.several else (out,)), *inputs), self.checks, strict=True):
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise ValueError(
                    f"{self.node.op} kernel: built for a C-contiguous {dtype} array of shape {shape}, got "
                    f"{array.dtype} {array.shape} with strides {array.strides}"
                )
        return self.is_there()

    def interpret(self, out: Any, *inputs: Any) -> Any:
        """NumPy computes the node; as compiled code it says nothing of floating-point errors."""
        self.interpreted += 1
        with np.errstate(all="ignore"):
            found = self.node.record.run(inputs, self.node.attrs)
        for target, value in zip(out if self.several else (out,), found if self.several else (found,), strict=True):
            np.copyto(target, value)
        return out

    def steps(self, block: int) -> list[Step]:
        """The same as steps, of a block at a fixed address."""
        return [self.entry.step(block, self.share)]

    def run(self, block: bytes) -> None:
        """Run the code on a block of parameters."""
        self.play(block, self.share)


class _BoundWritten:
    """A kernel whose block says where arrays lie."""

    def __init__(self, kernel: Written) -> None:
        self.kernel = kernel
        fixed = np.frombuffer(kernel.fixed, np.int64)
        self.words = np.concatenate([fixed, np.zeros(len(kernel.checks), np.int64)])
        self.first = len(fixed)
        self.steps: list[Step] = []

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]:
        """Where it stands where arrays lie: results, and inputs by position."""
        first = address_of(self.words) + 8 * self.first
        words = [[(place, 0)] for place in range(first, address_of(self.words) + self.words.nbytes, 8)]
        inputs = len(self.kernel.node.inputs)
        return words[:-inputs], dict(enumerate(words[-inputs:]))

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where one does not lie as the code wants it, or the code is not there."""
        arrays = (*(out if self.kernel.several else (out,)), *inputs)
        for array, (shape, dtype) in zip(arrays, self.kernel.checks, strict=True):
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                return None
        if not self.kernel.ready:
            return None
        self.words[self.first :] = [address_of(array) for array in arrays]
        if not self.steps:
            self.steps = self.kernel.steps(address_of(self.words))
        return self.steps


class Writer:
    """Writes the body of a kernel: over tasks, over blocks of channels as vectors and over what is left one by one;
    ``masked``: by vectors of which a part is read and written."""

    _masked, _mask = False, ""

    def __init__(self, dtype: np.dtype[Any], vectors: int, masked: bool = False) -> None:
        self.code = Code()
        self.declared: set[str] = set()
        self._masked = masked
        self.element, self.index = TYPES[dtype]
        self.align = dtype.itemsize
        self.lanes = VECTOR // dtype.itemsize
        self.vectors = vectors

    @contextlib.contextmanager
    def tasks(self) -> Iterator[tuple[str, str, str]]:
        """For each task its example and its first and last channel."""
        code = self.code
        with code.loop("%low", "%high") as (task, _):
            example = code.do(f"sdiv i64 {task}, %chunks")
            begin = code.multiply(code.do(f"srem i64 {task}, %chunks"), "%chunk")
            yield example, begin, code.least(code.add(begin, "%chunk"), "%channels")

    @contextlib.contextmanager
    def nest(self, extents: Sequence[str], reverse: bool = False) -> Iterator[list[str]]:
        """Nested loops over extents, forwards or backwards; gives the positions."""
        with contextlib.ExitStack() as stack:
            at = []
            for extent in extents:
                counter, _ = stack.enter_context(self.code.loop("0", extent))
                if reverse:
                    counter = self.code.do(f"sub i64 {self.code.do(f'sub i64 {extent}, 1')}, {counter}")
                at.append(counter)
            yield at

    def channels(self, begin: str, end: str) -> Iterator[tuple[int, str]]:
        """Blocks of several vectors, then single ones or elements: (number of vectors, first channel)."""
        code, block = self.code, self.lanes * self.vectors
        room = code.do(f"sub i64 {end}, {begin}")
        whole = code.add(begin, code.multiply(code.do(f"sdiv i64 {room}, {block}"), str(block)))
        with code.loop(begin, whole, str(block)) as (channel, _):
            yield self.vectors, channel
        if not self._masked:
            with code.loop(whole, end) as (channel, _):
                yield 0, channel
            return
        with code.loop(whole, end, str(self.lanes)) as (channel, _):
            left = code.do(f"trunc i64 {code.do(f'sub i64 {end}, {channel}')} to i32")
            counted = f"<{', '.join(f'i32 {k}' for k in range(self.lanes))}>"
            many = self.kind(1, "i32")
            self._mask = code.do(f"icmp slt {many} {counted}, {code.spread(many, left)}")
            yield 1, channel
            self._mask = ""

    def kind(self, vectors: int, element: str = "") -> str:
        """The type of a vector, or of one element for none, of the kernel's own elements or others."""
        element = element or self.element
        return f"<{self.lanes} x {element}>" if vectors else element

    def load(self, vectors: int, array: str, offset: str, element: str = "") -> list[str]:
        """The vectors, or the one element, that begin at an offset; ``element``: if they have a type of their own."""
        kind, align = self._held(vectors, element)
        places = [self._place(array, offset, k, element) for k in range(max(vectors, 1))]
        if not self._mask:
            return [self.code.do(f"load {kind}, ptr {place}, align {align}") for place in places]
        name, truth = f"@llvm.masked.load.v{self.lanes}{self._short(element)}.p0", self.kind(1, "i1")
        self.declared.add(f"declare {kind} {name}(ptr, i32, {truth}, {kind})")
        how = f"i32 {align}, {truth} {self._mask}, {kind} zeroinitializer"
        return [self.code.do(f"call {kind} {name}(ptr {place}, {how})") for place in places]

    def store(self, vectors: int, values: Sequence[str], array: str, offset: str, element: str = "") -> None:
        """The reverse of :meth:`load`."""
        kind, align = self._held(vectors, element)
        places = [self._place(array, offset, k, element) for k in range(len(values))]
        name, truth = f"@llvm.masked.store.v{self.lanes}{self._short(element)}.p0", self.kind(1, "i1")
        for place, value in zip(places, values, strict=True):
            if not self._mask:
                self.code.run(f"store {kind} {value}, ptr {place}, align {align}")
                continue
            self.declared.add(f"declare void {name}({kind}, ptr, i32, {truth})")
            self.code.run(f"call void {name}({kind} {value}, ptr {place}, i32 {align}, {truth} {self._mask})")

    def _short(self, element: str) -> str:
        """An element as the names of functions have it."""
        element = element or self.element
        return {"half": "f16", "float": "f32", "double": "f64"}.get(element, element)

    def _held(self, vectors: int, element: str) -> tuple[str, int]:
        if not element:
            return self.kind(vectors), self.align
        return self.kind(vectors, element), int(self._short(element)[1:]) // 8

    def _place(self, array: str, offset: str, k: int, element: str) -> str:
        at = self.code.add(offset, str(k * self.lanes)) if k else offset
        return self.code.at(element or self.element, array, at)


def splat(kind: str, value: str) -> str:
    """A constant of a scalar or vector type."""
    if not kind.startswith("<"):
        return value
    count, element = kind[1:-1].split(" x ")
    return f"<{', '.join([f'{element} {value}'] * int(count))}>"
