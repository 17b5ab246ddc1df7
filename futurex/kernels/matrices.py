"""How the matrices of a product lie in memory, and kernels of products, which are called with where they lie."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.panels import Steps
from futurex.kernels.numba_.team import Share
from futurex.kernels.steps import Bound, Places, Step, Workspace
from futurex.tree.dims import is_static
from futurex.tree.node import Node

Turned = tuple[bool, bool]
"""Do both operands lie with their axes swapped?"""
_DENSE_VIEWS = ("transpose", "reshape", "frames")
"""Views whose matrices mostly have a dense axis."""
_WAYS = 16
"""In how many ways operands may lie for which the parameters of a product are kept."""


@dataclass(frozen=True)
class Lie:
    """How matrices lie in memory: are their axes swapped, elements from one row to the next, and of the stack, and of
    the stack of stacks, the elements from one to the next and how many there are."""

    turned: bool
    row: int
    levels: tuple[tuple[int, int], ...]

    def steps(self, together: int) -> Steps | None:
        """For stacks of so many matrices; None where these are others."""
        if len(self.levels) > 1:
            (step, count), (outer, _) = self.levels
            return Steps(self.row, step, outer) if count == together else None
        step = self.levels[0][0] if self.levels else 0
        return Steps(self.row, step, step * together)


def lie(array: Any) -> Lie | None:
    """None where neither axis is dense, or where matrices lie neither in a stack nor in a stack of stacks. A vector is
    dense in any way."""
    return lie_of(array.shape, array.strides, array.itemsize) if array.flags.aligned else None


def lie_of(shape: Sequence[int], steps: Sequence[int], size: int) -> Lie | None:
    """How matrices with elements of so many bytes lie, so many bytes apart along each axis.

    >>> lie_of((5, 3, 3), (72, 8, 24), 8)
    Lie(turned=True, row=3, levels=((9, 5),))
    """
    strides = [each // size for each in steps]
    if any(each % size or each < 0 for each in steps):
        return None
    turned = strides[-1] != 1 and shape[-1] > 1
    if turned and strides[-2] != 1 and shape[-2] > 1:
        return None
    row = strides[-1] if turned else strides[-2]
    levels: list[tuple[int, int]] = []
    for stride, extent in zip(reversed(strides[:-2]), reversed(shape[:-2]), strict=True):
        if levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = levels[-1][0], levels[-1][1] * extent
        elif extent > 1:
            levels.append((stride, extent))
    return Lie(turned, row, tuple(levels)) if len(levels) < 3 else None


def together(lies: Sequence[Lie]) -> int:
    """How many matrices are in one stack, where one of these lies in a stack of stacks; 0 where none does."""
    return max((each.levels[0][1] for each in lies if len(each.levels) > 1), default=0)


Lies = tuple[Lie, Lie, Lie]
"""Of the result and both operands."""


class ProductKernel(ABC):
    """The kernel of one product; until it is compiled NumPy computes it. Operands that lie in other ways are copied."""

    count: int
    """Numbers in its block, before the addresses."""

    def __init__(self, node: Node, likely: Turned, threads: int) -> None:
        self.node, self.likely, self.threads = node, likely, threads
        self.wait = not is_behind()
        self.interpreted = 0
        self.shapes = [each.shape for each in (node, *node.inputs)]
        self.entries: dict[Turned, Entry] = {}
        self.seen: dict[tuple[Any, ...], tuple[Turned, bytes]] = {}
        """What was found for arrays of these strides."""
        self.pack = struct.Struct(f"={len(self.shapes)}q").pack
        self.entry(self.likely, wait=False)

    @abstractmethod
    def text(self, turned: Turned) -> str:
        """The code for operands that lie so."""

    @abstractmethod
    def lies(self, arrays: Sequence[Any]) -> Lies | None:
        """How the result and the operands lie; None where the code cannot read one of them."""

    @abstractmethod
    def numbers(self, lies: Lies) -> Sequence[int]:
        """The parameters before the addresses, for arrays that lie so."""

    @abstractmethod
    def share(self, block: Any) -> Share:
        """How the work of a block is shared."""

    def entry(self, turned: Turned, *, wait: bool) -> Entry:
        """The compiled code for operands that lie so."""
        entry = self.entries.get(turned)
        if entry is None or (wait and not entry.ready and entry.error is None):
            entry = self.entries[turned] = compiled(self.text(turned), wait=wait)
        return entry

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the code compiled for operands as the tree has them."""
        self.entry(self.likely, wait=wait)

    @property
    def ready(self) -> bool:
        return all(entry.ready for entry in list(self.entries.values()))

    def found(self, arrays: Sequence[Any]) -> tuple[Turned, bytes] | None:
        """How the operands lie, and the parameters; None where the code cannot read one of them. A step of training
        has other arrays each time, which lie as those before."""
        dtype = self.node.dtype
        for array, shape in zip(arrays, self.shapes, strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"{self.node.op} kernel: built for {dtype} arrays of shapes {self.shapes} (the result first), got "
                    f"{array.dtype} {array.shape}"
                )
        key = tuple([array.strides if array.flags.aligned else None for array in arrays])
        seen = self.seen.get(key)
        if seen is None and (lies := self.lies(arrays)) is not None:
            seen = (lies[1].turned, lies[2].turned), self._packed(lies) + self.pack(*map(address_of, arrays))
            if len(self.seen) < _WAYS:
                self.seen[key] = seen[0], seen[1][: 8 * self.count]
            return seen
        return seen and (seen[0], seen[1] + self.pack(*map(address_of, arrays)))

    def _packed(self, lies: Lies) -> bytes:
        return struct.pack(f"={self.count}q", *self.numbers(lies))

    def __call__(self, out: Any, *inputs: Any) -> Any:
        found = self.found((out, *inputs))
        if found is None:
            inputs = tuple(np.array(array, order="C") for array in inputs)
            found = self.found((out, *inputs))
            assert found is not None
        turned, block = found
        entry = self.entry(turned, wait=self.wait)
        if not entry.ready:
            self.interpreted += 1
            if self.node.op == "matmul":
                x, y = inputs
                return np.matmul(x, y, out=out)
            np.copyto(out, self.node.record.run(inputs, self.node.attrs))
            return out
        if self.threads > 1:
            entry.on_threads(block, self.share(block))
        else:
            entry(block)
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The product as a step."""
        return BoundProduct(self)


class BoundProduct:
    """A product whose block says where arrays lie."""

    def __init__(self, product: ProductKernel) -> None:
        self.product = product
        self.entry: Entry | None = None
        self.words = np.zeros(product.count + len(product.shapes), np.int64)
        self.steps: list[Step] = []

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]:
        """Where it stands where arrays lie: the result, and inputs by position."""
        first = address_of(self.words) + 8 * self.product.count
        out, *inputs = ([(first + 8 * k, 0)] for k in range(len(self.product.shapes)))
        return [out], dict(enumerate(inputs))

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where they lie otherwise, or the code is not there."""
        found = self.product.found((out, *inputs))
        entry = self.product.entry(found[0], wait=self.product.wait) if found else None
        if found is None or entry is None or not entry.ready:
            return None
        self.words[:] = np.frombuffer(found[1], np.int64)
        if entry is not self.entry:
            self.entry = entry
            self.steps = [entry.step(address_of(self.words), self.product.share(self.words))]
        return self.steps


class OfViews:
    """A kernel that is a product of views of its own arrays."""

    def __init__(self, product: ProductKernel) -> None:
        self.product, self.threads = product, product.threads

    @property
    def interpreted(self) -> int:
        return self.product.interpreted

    @property
    def ready(self) -> bool:
        return self.product.ready

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the product compiled."""
        self.product.prepare((), wait=wait)


def stand_in(node: Node) -> Any:
    """An array, never written, that lies in memory as the node's will; None for views that are rarely dense, or that
    are of arrays whose shapes only the run knows."""
    if not is_static(node.shape):
        return None
    if node.record.view is None or node.op in ("param", "const", "item"):
        return np.empty(node.shape, node.dtype)
    fixed = node.op in _DENSE_VIEWS or (node.op == "load" and len(node.inputs) == 1)
    source = stand_in(node.inputs[node.record.view]) if fixed else None
    return None if source is None else node.record.run([source], node.attrs)
