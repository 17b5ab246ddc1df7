"""Random numbers by key in terms of integer operations, for code that is one function: Philox in one region.

They have the bits of the reference kernels (:mod:`futurex.ops.random`), which say where the generator is from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.random import COUNTER_OPS, MULTIPLIERS, STREAMS, WEYL, least_kept
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const, item, param

LARGEST = 1 << 15
"""Elements from which kernels of their own, and threads, do as well."""
Words = Sequence[Node]
_LOW = const(np.uint64(0xFFFFFFFF))
_WHOLE = np.dtype(np.float64)


def from_words(node: Node) -> Node | None:
    """A random array in simpler terms; None for others, large ones, and tiles that begin behind the first row."""
    if node.op not in COUNTER_OPS:
        return None
    key, start = node.inputs[-2:]
    if start.op != "const" or int(start.value) or key.dtype != np.uint64 or key.shape:
        return None
    if not 0 < node.size <= LARGEST or node.dtype.char not in "fdILQ":
        return None
    return _MADE[node.op](key, node)


def _bits(key: Node, node: Node) -> Node:
    if node.dtype.itemsize == 4:
        return _laid_out(key, node, "bits", lambda words: [_cast(word, node.dtype) for word in words])
    return _laid_out(
        key, node, "bits", lambda words: [_cast(_or(low, _left(high, 32)), node.dtype) for low, high in _pairs(words)]
    )


def _uniform(key: Node, node: Node) -> Node:
    if node.dtype == _WHOLE:
        return _laid_out(key, node, "uniform", lambda words: [_unit(*pair) for pair in _pairs(words)])
    bits = np.finfo(node.dtype).nmant + 1

    def numbers(words: Words) -> list[Node]:
        return [_cast(_cast(_right(word, 32 - bits), _WHOLE) * 2.0**-bits, node.dtype) for word in words]

    return _laid_out(key, node, "uniform", numbers)


def _normal(key: Node, node: Node) -> Node:
    made = _region(key, node.size, "normal", lambda words: [_unit(*pair) for pair in _pairs(words)])
    first, second = (item(made, k) for k in range(2))
    radius = apply("sqrt", apply("log1p", -first) * -2.0)
    return apply("reshape", _cast(radius * apply("cos", second * (2.0 * np.pi)), node.dtype), shape=node.shape)


def _dropout(key: Node, node: Node) -> Node:
    x, rate = node.inputs[0], node.attrs["rate"]
    least = np.uint64(least_kept(rate))
    kept = _laid_out(key, node, "dropout", lambda words: [apply("greater_equal", word, const(least)) for word in words])
    return where(kept, x * const(x.dtype.type(1.0 / (1.0 - rate))), const(x.dtype.type(0)))


def _laid_out(key: Node, node: Node, stream: str, numbers: Callable[[Words], Sequence[Node]]) -> Node:
    """An array of the node's shape of the numbers that each block of four words gives, one after the other."""
    each = 4 if stream == "dropout" else 16 // node.dtype.itemsize
    blocks = -(-node.size // each)
    made = _region(key, blocks, stream, numbers)
    columns = [apply("reshape", item(made, k), shape=(blocks, 1)) for k in range(each)]
    flat = apply("reshape", apply("concatenate", *columns, axis=1), shape=(blocks * each,))
    if blocks * each != node.size:
        flat = apply("load", flat, chain=(("index", (("s", None, node.size, None),)),))
    return apply("reshape", flat, shape=node.shape)


def _region(key: Node, blocks: int, stream: str, numbers: Callable[[Words], Sequence[Node]]) -> Node:
    """What is computed of the words of the first ``blocks`` blocks of a stream, in one loop over the blocks."""
    counted = const(np.arange(blocks, dtype=np.uint64))
    block, whole = param(counted.aval), param(Aval((), key.dtype))
    words = _philox(block, const(np.uint64(STREAMS[stream])), whole)
    graph = Graph([block, whole], list(numbers(words)), "philox")
    made: Node = apply("fused", counted, key, graph=graph)
    return made


def _philox(block: Node, stream: Node, key: Node) -> Words:
    """Ten rounds on the counter (block, 0, stream, 0), of which there are less than 2**32."""
    c0, c1, c2, c3 = block, const(np.uint64(0)), stream, const(np.uint64(0))
    k0, k1 = _and(key, _LOW), _right(key, 32)
    for _ in range(10):
        p0, p1 = c0 * const(MULTIPLIERS[0]), c2 * const(MULTIPLIERS[1])
        c0, c1 = _xor(_xor(_right(p1, 32), c1), k0), _and(p1, _LOW)
        c2, c3 = _xor(_xor(_right(p0, 32), c3), k1), _and(p0, _LOW)
        k0, k1 = (_and(k + const(np.uint64(weyl)), _LOW) for k, weyl in zip((k0, k1), WEYL, strict=True))
    return c0, c1, c2, c3


def _pairs(words: Words) -> list[tuple[Node, Node]]:
    return [(words[0], words[1]), (words[2], words[3])]


def _unit(high: Node, low: Node) -> Node:
    """53 of 64 random bits as multiples of 2**-53 in [0, 1)."""
    return _cast(_left(_right(high, 5), 26) + _right(low, 6), _WHOLE) * 2.0**-53


def _left(x: Node, by: int) -> Node:
    made: Node = apply("left_shift", x, const(np.uint64(by)))
    return made


def _right(x: Node, by: int) -> Node:
    made: Node = apply("right_shift", x, const(np.uint64(by)))
    return made


def _and(x: Node, y: Node) -> Node:
    made: Node = apply("bitwise_and", x, y)
    return made


def _or(x: Node, y: Node) -> Node:
    made: Node = apply("bitwise_or", x, y)
    return made


def _xor(x: Node, y: Node) -> Node:
    made: Node = apply("bitwise_xor", x, y)
    return made


def _cast(x: Node, dtype: np.dtype[Any]) -> Node:
    made: Node = apply("cast", x, dtype=dtype)
    return made


_MADE: dict[str, Callable[[Node, Node], Node]] = {
    "random_bits": _bits, "random_uniform": _uniform, "random_normal": _normal, "dropout": _dropout
}  # fmt: skip
