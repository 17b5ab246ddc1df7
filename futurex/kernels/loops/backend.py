"""Claims ``loop`` nodes, and compiles whole graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.control import rounds
from futurex.kernels.loops.emit import Emitter
from futurex.kernels.loops.program import Program
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numpy_ import uses_blas
from futurex.kernels.registry import Kernel
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LARGEST = 1 << 15
"""Elements of an array operation in a body from which NumPy's kernels, and threads, do as well."""
_MOST_WORK = float(1 << 22)  # operations of a product in a body: the same
_MOST_NODES = 600
_FREE = frozenset(("store", "param", "const", "item", "cond", "loop"))


class LoopBackend:
    """Whole loops, compiled with all that they contain. A kernel's call gives None where the loop has to be run another
    way."""

    name = "loops"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a ``loop`` node, or None where it holds what cannot be compiled."""
        if node.op != "loop" or not 0 < _size(node) <= _MOST_NODES:
            return None
        try:
            program = _loop(node)
        except (Unsupported, RuntimeError):
            return None
        used = threads if uses_blas(node) else 1
        return Kernel(lambda out, *inputs: program(*inputs), self.name, threads=used, late=program)

    refusals = (Unsupported, RuntimeError)

    def whole(self, graph: Graph) -> Program:
        """A graph as one function. Raises one of ``refusals`` where it holds what cannot be compiled."""
        avals = [node.aval for node in graph.params]


        def build(emitter: Emitter, inputs: Sequence[Any]) -> list[Any]:
            results = emitter.graph(graph, inputs)
            kinds = zip(graph.outs, results, strict=True)
            if any(node.aval.weak and isinstance(value, Array) for node, value in kinds):
                raise Unsupported("a complex Python number as a result")
            return results

        return Program(avals, 0, build)


def _loop(node: Node) -> Program:
    count = len(node.attrs["body"].outs)
    avals = [source.aval for source in node.inputs]
    return Program(avals, count, lambda emitter, inputs: rounds(emitter, node, inputs[:count], inputs[count:]))


def _size(node: Node) -> int:
    """How many nodes it has, inner graphs included; 0 if one of them is too large to profit."""
    count = 0
    graphs = [value for value in node.attrs.values() if isinstance(value, Graph)]
    while graphs:
        for each in graphs.pop().nodes:
            count += 1
            graphs += [value for value in each.attrs.values() if isinstance(value, Graph)]
            avals = each.aval if isinstance(each.aval, tuple) else (each.aval,)
            if each.op not in _FREE and (any(map(_is_large, avals)) or _is_work(each)):
                return 0
    return count


def _is_work(node: Node) -> bool:
    sources = tuple(source.aval for source in node.inputs)
    several = any(isinstance(aval, tuple) for aval in sources)
    return not several and node.record.work(sources, node.aval, node.attrs).flops > _MOST_WORK


def _is_large(aval: Aval) -> bool:
    return aval.static and aval.size > LARGEST
