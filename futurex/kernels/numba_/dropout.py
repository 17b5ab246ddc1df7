"""Compiled dropout with the bits of the reference kernel: Philox4x32-10 for eight blocks of four words at a time."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.channels import TYPES, Written, splat, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.draws import BLOCK, philox
from futurex.kernels.steps import Bound, Step, Workspace
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

_BLOCKS = 8
GROUP = _BLOCKS * BLOCK
"""Elements that are drawn at once."""
_WIDE = f"<{_BLOCKS} x i64>"
_MASK = splat(_WIDE, str(0xFFFFFFFF))
_HALF = splat(_WIDE, "32")


def claim(node: Node, threads: int) -> Dropout | None:
    """The kernel of a ``dropout`` node, or None for what is not compiled."""
    x = node.inputs[0]
    if not node.is_static or x.dtype not in TYPES or x.ndim < 1 or x.size < GROUP:
        return None
    return Dropout(node, threads_for(node, threads), _text(x.dtype, may_share()), ())


class Dropout(Written):
    """The kernel of one node; the last elements, too few for a group, are the reference kernel's."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        rate, dtype = self.node.attrs["rate"], self.node.dtype
        self.row = math.prod(self.node.shape[1:])
        self.groups = self.node.size // GROUP
        self.threshold = min(round(rate * 2**32), 2**32 - 1)
        self.layout = struct.Struct(f"=qqqqq{'f4x' if dtype.itemsize == 4 else 'd'}qq")
        self.scale = 1.0 / (1.0 - rate)

    @property
    def bind(self) -> Callable[[Workspace], Bound] | None:
        """The kernel as a step; what is left beside whole groups is for a call."""
        whole = not self.node.size % GROUP and self.node.inputs[2].op == "const"
        return (lambda _: _BoundDropout(self)) if whole else None

    def block(self, first: int, key: int, addresses: Sequence[int]) -> bytes:
        """The parameters of the code; elements are drawn from number ``first`` on."""
        low, high = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
        return self.layout.pack(self.groups, first // BLOCK, low, high, self.threshold, self.scale, *addresses)

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Are these arrays as the code wants them?"""
        return all(
            array.shape == self.node.shape and array.dtype == self.node.dtype and array.flags.c_contiguous
            for array in arrays
        )

    def __call__(self, out: Any, x: Any, key: Any, start: Any) -> Any:
        if not self.fits((out, x)):
            shapes = f"{out.shape} and {x.shape}"
            raise ValueError(f"dropout kernel: built for a C-contiguous {self.node.aval!r}, got {shapes}")
        if not self.entry.ready:
            self.entry = compiled(self.text, wait=self.wait)
        first = int(start) * self.row
        if not self.entry.ready or first % BLOCK:
            self.interpreted += not self.entry.ready
            np.copyto(out, self.node.record.run((x, key, start), self.node.attrs))
            return out
        block = self.block(first, int(key), (address_of(out), address_of(x)))
        if self.threads > 1:
            self.entry.on_threads(block, self.share)
        else:
            self.entry(block)
        done = self.groups * GROUP
        if done < x.size:
            rest = x.reshape(-1)[done:]
            out.reshape(-1)[done:] = self.node.record.run((rest, key, first + done), self.node.attrs)
        return out


class _BoundDropout:
    """A kernel at fixed addresses; a run with another key writes its block anew."""

    def __init__(self, kernel: Dropout) -> None:
        self.kernel = kernel
        self.words = np.zeros(kernel.layout.size // 8, np.int64)
        self.steps: list[Step] = []

    def aim(self, out: Any, x: Any, key: Any, start: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where one does not lie as the code wants it, or the code is not there."""
        kernel, first = self.kernel, int(start) * self.kernel.row
        computed = isinstance(key, np.ndarray)  # may have another value the next time, in the same place
        if computed or not kernel.ready or first % BLOCK or not kernel.fits((out, x)):
            return None
        self.words[:] = np.frombuffer(kernel.block(first, int(key), (address_of(out), address_of(x))), np.int64)
        if not self.steps:
            self.steps = [kernel.entry.step(address_of(self.words), kernel.share)]
        return self.steps


@functools.cache
def _text(dtype: np.dtype[Any], threaded: bool) -> str:
    element, _ = TYPES[dtype]
    code = Code()
    kind, words = f"<{GROUP} x {element}>", f"<{GROUP} x i32>"
    limit = code.spread(words, code.do("trunc i64 %threshold to i32"))
    scale = code.spread(kind, "%scale")
    with code.loop("%low", "%high") as (group, _):
        drawn = _words(code, code.add("%first", code.multiply(group, str(_BLOCKS))))
        kept = code.do(f"icmp uge {words} {_in_order(code, drawn)}, {limit}")
        offset = code.multiply(group, str(GROUP))
        x = code.do(f"load {kind}, ptr {code.at(element, '%x', offset)}, align {dtype.itemsize}")
        value = code.do(f"fmul {kind} {x}, {scale}")
        chosen = code.do(f"select <{GROUP} x i1> {kept}, {kind} {value}, {kind} zeroinitializer")
        code.run(f"store {kind} {chosen}, ptr {code.at(element, '%out', offset)}, align {dtype.itemsize}")
    names = ("groups", "first", "key0", "key1", "threshold")
    parameters = [*(("i64", name) for name in names), (element, "scale"), ("ptr", "out"), ("ptr", "x")]
    return module(parameters, code, threaded)


def _words(code: Code, first: str) -> list[str]:
    """The four words of each of eight blocks, in 64-bit lanes."""
    steps = ", ".join(f"i64 {k}" for k in range(_BLOCKS))
    counter = code.do(f"add {_WIDE} {code.spread(_WIDE, first)}, <{steps}>")
    low, high = code.do(f"and {_WIDE} {counter}, {_MASK}"), code.do(f"lshr {_WIDE} {counter}, {_HALF}")
    return philox(code, _WIDE, [low, high], "dropout")


def _in_order(code: Code, drawn: list[str]) -> str:
    """The words of the first block, then those of the second, and so on, as 32-bit lanes."""
    half, whole = f"<{_BLOCKS} x i32>", f"<{2 * _BLOCKS} x i32>"
    narrow = [code.do(f"trunc {_WIDE} {word} to {half}") for word in drawn]

    def joined(kind: str, first: str, second: str, order: list[int]) -> str:
        indices = ", ".join(f"i32 {k}" for k in order)
        return code.do(f"shufflevector {kind} {first}, {kind} {second}, <{len(order)} x i32> <{indices}>")

    one_after_the_other = list(range(2 * _BLOCKS))
    first, second = (joined(half, narrow[k], narrow[k + 1], one_after_the_other) for k in (0, 2))
    order = [word * _BLOCKS + block for block in range(_BLOCKS) for word in range(BLOCK)]
    return joined(whole, first, second, order)
