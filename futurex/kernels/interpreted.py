"""NumPy in place of code that is not there yet, in little memory: a region some rows at a time, where rows do not meet.

Whole, each operation of a region over large arrays makes an array as large, all of whose pages are new to the process:
a first call took several times the memory that its plan has, and its time went into page faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.sweeps import REDUCTIONS, VIEWS
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param

BLOCK = 1 << 20
"""Bytes of the largest value of a region that are computed at once: it stays in the caches."""


class Interpreted:
    """What a node with a region computes, by NumPy.

    >>> x = param(Aval((1000, 1000), np.dtype("float64")), "x")
    >>> Interpreted(apply("fused", x, graph=Graph([x], [apply("exp", -x)]))).room <= 2 * BLOCK
    True
    """

    def __init__(self, node: Node) -> None:
        graph = node.attrs["graph"]
        self.node, self.graph = node, graph
        stored = node.op == "fused_store"
        self._alone = len(graph.params) == len(node.inputs) - stored  # that of an update begins with a product of two
        cuts = _cuts(graph) if self._alone else None
        self._cut = None if cuts is None else [cuts.get(each, False) for each in graph.params]
        self._blocks: dict[int, Graph] = {}
        self._count: int = 0 if self._cut is None else graph.outs[0].shape[0]
        self._step = 0 if self._cut is None else _step(graph)

    @property
    def room(self) -> int:
        """The most bytes at once in arrays that it makes on its way."""
        graph = self.graph if self._cut is None else self._block(min(self._step, self._count))
        return graph.room() + (0 if self._alone else self.graph.params[0].aval.nbytes)

    def run(self, outs: Sequence[Any], inputs: Sequence[Any], over: Callable[[], bool]) -> bool:
        """Write the results; False if it was ``over()`` before the last operation, and what is written counts for
        nothing. No result that lies on an operand was written then."""
        apart = not any(np.may_share_memory(out, each) for out in outs for each in inputs)
        if not self._alone:
            return _write(outs, self.node.record.run(inputs, self.node.attrs))
        if self._cut is None or self._step >= self._count or not (apart or self._in_place(outs, inputs)):
            return _write(outs, self.graph.run_until(over, inputs))
        for start in range(0, self._count, self._step):
            rows = slice(start, min(start + self._step, self._count))
            block = self._block(rows.stop - start)
            given = [each[rows] if cut else each for each, cut in zip(inputs, self._cut, strict=True)]
            ends = over if apart or not start else _never
            if not _write([out[rows] for out in outs], block.run_until(ends, given)):
                return False
        return True

    def _in_place(self, outs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        """Does a result share memory with no operand but one that is read row by row, and lies where it lies?"""
        assert self._cut is not None
        return all(
            not np.may_share_memory(out, each)
            or (cut and each.strides == out.strides and each.shape == out.shape and _start(each) == _start(out))
            for out in outs
            for each, cut in zip(inputs, self._cut, strict=True)
        )

    def _block(self, rows: int) -> Graph:
        """The region of so many rows."""
        found = self._blocks.get(rows)
        if found is None:
            found = self._blocks[rows] = _of_rows(self.graph, rows)
        return found


def room_of(node: Node) -> int:
    """The most bytes at once in arrays that NumPy makes of a node whose kernel's code is not there yet."""
    if not node.is_static or node.op == "matmul":
        return 0  # of which NumPy writes the result where it belongs
    if "graph" in node.attrs:
        return Interpreted(node).room
    return sum(each.nbytes for each in (node.aval if isinstance(node.aval, tuple) else (node.aval,)))


def _never() -> bool:
    return False


def _start(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _write(outs: Sequence[Any], found: Sequence[Any] | None) -> bool:
    if found is None:
        return False
    own = [np.array(value) if any(np.may_share_memory(value, each) for each in outs) else value for value in found]
    for target, value in zip(outs, own, strict=True):
        np.copyto(target, value)
    return True


def _step(graph: Graph) -> int:
    """Rows of a block."""
    largest = max(node.aval.nbytes for node in graph.nodes)
    return max(1, math.ceil(graph.outs[0].shape[0] * BLOCK / max(largest, 1)))


def _cuts(graph: Graph) -> dict[Node, bool] | None:
    """Which values are cut into rows with the results; None where rows meet, or nobody knows whether they do."""
    outs = graph.outs
    if not all(type(node.aval) is Aval and node.is_static for node in graph.nodes):
        return None
    count = outs[0].shape[0] if outs[0].shape else 0
    if count < 2 or any(not out.shape or out.shape[0] != count for out in outs):
        return None
    cut: dict[Node, bool] = dict.fromkeys(outs, True)
    for node in reversed(graph.nodes):
        if node.op == "param" or node not in cut:
            continue
        wanted = _wanted(node, count) if cut[node] else [False] * len(node.inputs)
        if wanted is None:
            return None
        for source, way in zip(node.inputs, wanted, strict=True):
            if cut.setdefault(source, way) is not way:
                return None
    return cut


def _wanted(node: Node, count: int) -> Iterable[bool] | None:
    """Which inputs rows of a result are made of rows of; None where they are made of more."""
    if node.record.elementwise or node.op == "broadcast_to":
        return [len(each.shape) == len(node.shape) and each.shape[0] == count for each in node.inputs]
    (source,) = node.inputs if len(node.inputs) == 1 else (None,)
    if source is None or not source.shape or source.shape[0] != count:
        return None
    if node.op in REDUCTIONS:
        axes = node.attrs["axis"]
        pieces = node.op in ("sum", "prod") and node.dtype != source.dtype  # NumPy converts across rows, piece by piece
        return None if axes is None or 0 in axes or pieces else [True]
    return [True] if node.op == "reshape" else None


def _of_rows(graph: Graph, rows: int) -> Graph:
    """The same of so many rows."""
    cuts = _cuts(graph)
    assert cuts is not None
    count = graph.outs[0].shape[0]
    known: dict[Node, Node] = {
        node: param(Aval((rows, *node.shape[1:]), node.dtype, node.aval.weak), node.attrs["name"])
        if cuts.get(node)
        else node
        for node in graph.params
    }
    for node in graph.nodes:
        if node in known:
            continue
        if not cuts.get(node):
            known[node] = node
            continue
        inputs = [known[source] for source in node.inputs]
        attrs = dict(node.attrs)
        if node.op in VIEWS:  # where the same is in every row, none of the inputs is cut
            assert attrs["shape"][0] == count
            attrs["shape"] = (rows, *attrs["shape"][1:])
        known[node] = apply(node.op, *inputs, **attrs)
    return Graph([known[node] for node in graph.params], [known[node] for node in graph.outs], graph.name)
