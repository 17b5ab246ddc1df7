"""Compiled random numbers with the bits of the reference kernels: a block of Philox4x32-10 is four words.

Of normal numbers each has a block of its own, and two functions, which are within units in the last place as everywhere
in generated code.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_ import channels
from futurex.kernels.numba_.channels import Written, splat
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.logarithms import log1p
from futurex.kernels.numba_.places import InCode
from futurex.kernels.numba_.real import DOUBLE, Real, narrow
from futurex.kernels.numba_.trigonometry import cos
from futurex.kernels.threads import may_share
from futurex.ops.random import MULTIPLIERS, STREAMS, WEYL
from futurex.tree.node import Node

BLOCK = 4
"""Words that are drawn at once."""
_ROUNDS = 10
_LANES = 8
_NUMBERS = {
    ("random_bits", "<u4"): 1, ("random_bits", "<u8"): 2, ("random_uniform", "<f4"): 1, ("random_uniform", "<f8"): 2,
    ("random_normal", "<f4"): 4, ("random_normal", "<f8"): 4,
}  # fmt: skip
"""Words for each number."""


def claim(node: Node, threads: int) -> Drawn | None:
    """The kernel of random bits, uniform or normal numbers; None for what is not compiled."""
    per_number = _NUMBERS.get((node.op, node.dtype.str))
    if not node.is_static or per_number is None or not node.size or (per_number == BLOCK and not has_fma()):
        return None
    several = may_share()
    large = node.size * per_number * 4 >= channels.PARALLEL_BYTES
    return Drawn(node, threads if several and large else 1, _text(node.op, node.dtype.str, several), ())


class Drawn(Written):
    """The kernel of one node; numbers behind the last whole block are picked of one more."""

    bind = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        node = self.node
        self.per_number = _NUMBERS[node.op, node.dtype.str]
        self.checks = self.checks[:1]  # key and start are numbers
        self.row = math.prod(node.shape[1:])
        self.blocks, rest = divmod(node.size * self.per_number, BLOCK)
        self.rest = rest // self.per_number

    def __call__(self, out: Any, key: Any, start: Any) -> Any:
        if not self.found(out):
            return self.interpret(out, key, start)
        first = int(start) * self.row * self.per_number
        if first % BLOCK:
            return self.interpret(out, key, start)
        low, high = int(key) & 0xFFFFFFFF, int(key) >> 32 & 0xFFFFFFFF
        if self.blocks:
            self.run(_block(self.blocks, first // BLOCK, low, high, address_of(out)))
        if self.rest:
            last = np.empty(BLOCK // self.per_number, out.dtype)
            self.entry(_block(1, first // BLOCK + self.blocks, low, high, address_of(last)))
            out.reshape(-1)[-self.rest :] = last[: self.rest]
        return out


_block = struct.Struct("=qqqqq").pack


@functools.cache
def _text(name: str, dtype: str, threaded: bool) -> str:
    code, per_number = Code(), _NUMBERS[name, dtype]
    element = {"<u4": "i32", "<u8": "i64", "<f4": "float", "<f8": "double"}[dtype]
    body = InCode(code)
    with code.loop("%low", "%high", lanes=_LANES) as (number, _):
        at = code.add("%first", number)
        counter = [code.do(f"and i64 {at}, {0xFFFFFFFF}"), code.do(f"lshr i64 {at}, 32")]
        drawn = philox(code, "i64", counter, name.removeprefix("random_"))
        words = [drawn[k : k + per_number] for k in range(0, BLOCK, per_number)]
        offset = code.multiply(number, str(len(words)))
        for k, own in enumerate(words):
            value = _number(body, name, element, own)
            code.run(f"store {element} {value}, ptr {code.at(element, '%out', code.add(offset, str(k)))}, align 4")
    parameters = [*(("i64", name) for name in ("blocks", "first", "key0", "key1")), ("ptr", "out")]
    return module(parameters, code, threaded, sorted(body.intrinsics))


def _number(body: InCode, name: str, element: str, words: Sequence[str]) -> str:
    """The number that words stand for."""
    if name == "random_normal":
        radius = (log1p(-_unit(body, *words[:2])) * -2.0).root()
        value = radius * cos(_unit(body, *words[2:]) * (2.0 * math.pi))
        return (narrow(value) if element == "float" else value).name
    if name == "random_uniform" and element == "float":
        high = body.emit(f"trunc i64 {body.emit(f'lshr i64 {words[0]}, 8')} to i32")
        return body.emit(f"fmul float {body.emit(f'uitofp i32 {high} to float')}, 0x3E70000000000000")  # 2**-24
    if name == "random_uniform":
        return _unit(body, *words).name
    if element == "i32":
        return body.emit(f"trunc i64 {words[0]} to i32")
    return body.emit(f"or i64 {words[0]}, {body.emit(f'shl i64 {words[1]}, 32')}")


def _unit(body: InCode, high: str, low: str) -> Real:
    """53 of 64 random bits as multiples of 2**-53 in [0, 1)."""
    upper = body.emit(f"shl i64 {body.emit(f'lshr i64 {high}, 5')}, 26")
    whole = body.emit(f"add i64 {upper}, {body.emit(f'lshr i64 {low}, 6')}")
    return Real(body, DOUBLE, body.emit(f"uitofp i64 {whole} to double")) * 2.0**-53


def philox(code: Code, kind: str, counter: Sequence[str], stream: str) -> list[str]:
    """The four words of a block, or of as many as a vector has lanes, in 64 bits each; ``counter`` has the two words of
    its number, and ``%key0`` and ``%key1`` are those of the key."""
    c = [*counter, splat(kind, str(STREAMS[stream])), splat(kind, "0")]
    mask, half = splat(kind, str(0xFFFFFFFF)), splat(kind, "32")
    for number in range(_ROUNDS):
        products = [
            code.do(f"mul {kind} {c[2 * k]}, {splat(kind, str(int(factor)))}") for k, factor in enumerate(MULTIPLIERS)
        ]
        keys = []
        for k in range(2):
            moved = code.do(f"add i64 %key{k}, {number * WEYL[k]}")
            keys.append(code.spread(kind, code.do(f"and i64 {moved}, {0xFFFFFFFF}")))
        high = [code.do(f"lshr {kind} {product}, {half}") for product in products]
        low = [code.do(f"and {kind} {product}, {mask}") for product in products]
        mixed = [
            code.do(f"xor {kind} {code.do(f'xor {kind} {high[1 - k]}, {c[2 * k + 1]}')}, {keys[k]}") for k in range(2)
        ]
        c = [mixed[0], low[1], mixed[1], low[0]]
    return c
