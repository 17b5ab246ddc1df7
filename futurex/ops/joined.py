"""``fused_join``: an array put together of blocks, each of which a region computes, or copies, right where it belongs.

A concatenation writes its parts one after the other, and what reads it computes with them: both are one node, whose
graph has a result for each block. Blocks do not meet, and cover the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.views import view
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Cost, Sample, op

Index = tuple[tuple[Any, ...], ...]
"""The entries of the index of a block, as in :mod:`futurex.ops.views`: slices, and integers where it has no axis."""


def block_of(array: Any, index: Index) -> Any:
    """The view of an array that is one of its blocks."""
    return view(array, (("index", index),), ())


def columns_of(shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The blocks that are an array's columns: of its last axis one place each, of the others all.

    >>> columns_of((9, 2))
    ((('s', 0, 9, None), ('i', 0)), (('s', 0, 9, None), ('i', 1)))
    """
    whole = tuple(("s", 0, extent, None) for extent in shape[:-1])
    return tuple((*whole, ("i", k)) for k in range(shape[-1]))


def are_columns(shape: tuple[int, ...], blocks: Sequence[Index]) -> bool:
    """Are the blocks an array's columns, several, in their order?"""
    return len(blocks) > 1 and tuple(blocks) == columns_of(shape)


def write_blocks(out: Any, blocks: Sequence[Index], values: Sequence[Any]) -> None:
    """Write every value to its block."""
    for index, value in zip(blocks, values, strict=True):
        block_of(out, index)[...] = value


def _kernel(*inputs: Any, graph: Graph, blocks: tuple[Index, ...], shape: tuple[int, ...]) -> Any:
    out = np.empty(shape, graph.outs[0].dtype)
    write_blocks(out, blocks, graph(*inputs))
    return out


def _aval(*inputs: Aval, graph: Graph, blocks: tuple[Index, ...], shape: tuple[int, ...]) -> Aval:
    if list(inputs) != [each.aval for each in graph.params]:
        raise TypeError(f"fused_join: {graph!r} wants {[each.aval for each in graph.params]}, got {list(inputs)}")
    dtype = graph.outs[0].dtype
    whole = np.broadcast_to(np.zeros((), dtype), shape)
    for index, each in zip(blocks, graph.outs, strict=True):
        if (block_of(whole, index).shape, dtype) != (each.shape, each.dtype):
            raise ValueError(f"fused_join: {each.aval!r} is not what lies at {index} of {dtype}{list(shape)}")
    return Aval(shape, dtype)


def stored(made: Node, blocks: Sequence[Index], values: Sequence[Node]) -> Node:
    """An array into which the blocks are written one after the other."""
    for index, value in zip(blocks, values, strict=True):
        made = apply("store", made, value, chain=(("index", index),), mode="set")
    return made


def _decompose(*inputs: Node, graph: Graph, blocks: tuple[Index, ...], shape: tuple[int, ...]) -> Node:
    return stored(apply("room", shape=shape, dtype=graph.outs[0].dtype, number=0), blocks, graph.inline(inputs))


def _cost(*inputs: Aval, graph: Graph, blocks: tuple[Index, ...], shape: tuple[int, ...]) -> Cost:
    flops = sum(node.size for node in graph.nodes if node.inputs)
    return Cost(float(flops), float(sum(each.nbytes for each in (*inputs, Aval(shape, graph.outs[0].dtype)))))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y = param(Aval((2, 3), np.dtype(float)), "x"), param(Aval((3,), np.dtype(float)), "y")
    graph = Graph([x, y], [x * y + 1.5, apply("broadcast_to", 2.0, shape=(2, 2)), y], "join")
    rows = ("s", 0, 2, None)
    blocks = ((rows, ("s", 2, 5, None)), (rows, ("s", 0, 2, None)), (("i", 2), ("s", 0, 3, None)))
    rest = ((("s", 2, 3, None), ("s", 3, 5, None)),)
    graph = Graph(graph.params, [*graph.outs, apply("broadcast_to", -1.0, shape=(1, 2))], "join")
    yield Sample(
        (rng.normal(size=(2, 3)), rng.normal(size=3)), {"graph": graph, "blocks": blocks + rest, "shape": (3, 5)}
    )


op("fused_join", _kernel, aval=_aval, decompose=_decompose, cost=_cost, samples=_samples)
