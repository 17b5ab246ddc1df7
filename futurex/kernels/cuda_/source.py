"""From a fused region to a CUDA kernel: one thread an element, in strides of the whole grid.

Neither extents and strides nor the values of scalars are part of the text, so one compiled kernel serves every shape of
a pattern. Each operand comes in one of four forms (:class:`Operand`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from futurex.kernels.cuda_.scalar import (
    EXPRESSIONS,
    HALF,
    PRELUDE,
    c_type,
    cast,
    convert,
    loaded,
    memory_type,
    rounded,
    stored,
)  # fmt: skip
from futurex.ops.fusion import FORMATS, function_of, real_loop_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Dtype = np.dtype[Any]
_SINGLE = np.dtype(np.float32)
OPTIONS = ("--fmad=false",)
"""What the text must be compiled with."""
_FEW = 2**30
"""Elements up to which their numbers, and those of the next ones of a thread, fit 32 bits."""
_NARROW = "#define INDEX signed int\n"


def numbered(text: str, elements: int) -> str:
    """The text of a kernel for so many elements: division, and with it every operand with strides, is several times
    faster in 32 bits, and has no branches that keep the compiler from asking for several elements at once.

    >>> numbered("...", 100).splitlines(), numbered("...", 2**40).splitlines()
    (['#define INDEX signed int', '...'], ['...'])
    """
    return _NARROW + text if elements < _FEW else text


class Operand(Enum):
    """How an input reaches the kernel: by value; as the address of one element, of elements that lie as the result's
    do, or of elements with strides of their own; or the kernel has computed it itself, for the whole row."""

    VALUE = "value"
    ELEMENT = "element"
    DENSE = "dense"
    STRIDED = "strided"
    ROW = "row"


def uses_of(graph: Graph) -> dict[Node, list[Dtype]]:
    """The dtypes in which each leaf of a region enters; a Python scalar has none of its own.

    Raises ValueError if an operation of the region cannot be generated.
    """
    uses: dict[Node, list[Dtype]] = {}
    for node in graph.nodes:
        if not node.inputs:
            continue
        if node.op == "broadcast_to":  # every element is computed for itself: nothing to do but to read its source
            source = node.inputs[0]
            if not source.inputs:
                uses.setdefault(source, [source.dtype])
            continue
        loop = real_loop_of(node)
        known = node.op == "cast" or node.op in FORMATS or function_of(node) in EXPRESSIONS
        if loop is None or not known:
            raise ValueError(f"{node!r} cannot be part of a generated kernel")
        for source, dtype in zip(node.inputs, loop[0], strict=True):
            if not source.inputs:
                held = dtype if source.aval.weak else source.dtype
                if held not in uses.setdefault(source, []):
                    uses[source].append(held)
    for node in graph.outs:
        if not node.inputs:
            uses.setdefault(node, [node.dtype])
    return uses


class Body:
    """The declarations and statements of one element of a region.

    ``loops``: how many extents the element's number ``i`` is taken apart into for strided operands. Values by value are
    the leaves of ``scalars``, in the order of the kernel's parameters. ``over``: dense operands that results overwrite.
    ``rows``: the variables of operands that the kernel has computed; ``prefix``: of all names of parameters.
    """

    def __init__(
        self, graph: Graph, operands: Sequence[Operand], loops: int, over: Sequence[int] = (), *,
        rows: Mapping[int, str] | None = None, prefix: str = "",
    ) -> None:  # fmt: skip
        self.graph, self.operands, self.loops, self.over = graph, tuple(operands), loops, frozenset(over)
        self.rows, self.prefix = dict(rows or {}), prefix
        self.uses = uses_of(graph)
        self.scalars = [
            (node, dtype) for node, dtypes in self.uses.items() for dtype in dtypes
            if node.op == "const" or self.operands[graph.params.index(node)] is Operand.VALUE
        ]  # fmt: skip
        self._names: dict[tuple[Node, Dtype], str] = {each: f"{prefix}s{k}" for k, each in enumerate(self.scalars)}

    @property
    def strided(self) -> list[int]:
        return [k for k, operand in enumerate(self.operands) if operand is Operand.STRIDED]

    def parameters(self) -> Iterator[str]:
        """Extents, addresses of operands, their strides, scalars."""
        if self.strided:
            yield from (f"long long {self.prefix}n{d}" for d in range(1, self.loops))
        for k, (node, operand) in enumerate(zip(self.graph.params, self.operands, strict=True)):
            if operand not in (Operand.VALUE, Operand.ROW):
                restricted = "" if k in self.over else " __restrict__"
                yield f"const {memory_type(node.dtype)}*{restricted} {self.prefix}a{k}"
        for k in self.strided:
            yield from (f"long long {self.prefix}t{k}_{d}" for d in range(self.loops))
        yield from (f"{c_type(dtype)} {self.prefix}s{k}" for k, (_, dtype) in enumerate(self.scalars))

    def element(self, number: str) -> Iterator[str]:
        """Statements that compute the element; afterwards :meth:`value` names what any node is."""
        if self.strided:
            yield f"Count rest = {number};"
            for d in reversed(range(1, self.loops)):
                extent = f"(Count){self.prefix}n{d}"
                yield f"Count i{d} = rest % {extent}; rest /= {extent};"
            yield "Count i0 = rest;"
        for k, (node, operand) in enumerate(zip(self.graph.params, self.operands, strict=True)):
            if operand is Operand.VALUE or node not in self.uses:
                continue
            place = {
                Operand.ELEMENT: "0", Operand.DENSE: number, Operand.ROW: "",
                Operand.STRIDED: " + ".join(f"(long long)i{d} * {self.prefix}t{k}_{d}" for d in range(self.loops)),
            }[operand]  # fmt: skip
            lying = self.rows.get(k) or loaded(node.dtype, f"{self.prefix}a{k}[{place}]")
            for dtype in (node.dtype, *self.uses[node]):  # a Python number that lies on the device has several
                self._names[node, dtype] = cast(f"x{k}", node.dtype, dtype)
            yield f"{c_type(node.dtype)} x{k} = {lying};"
        for number_, node in enumerate(each for each in self.graph.nodes if each.inputs):
            if node.op == "broadcast_to":
                self._names[node, node.dtype] = self._names[node.inputs[0], node.dtype]
                continue
            self._names[node, node.dtype] = f"v{number_}"
            yield f"{c_type(node.dtype)} v{number_} = {self._expression(node)};"

    def value(self, node: Node) -> str:
        """The variable that holds a node's element."""
        return self._names[node, node.dtype]

    def _expression(self, node: Node) -> str:
        loop = real_loop_of(node)
        assert loop is not None  # uses_of() refused such regions
        operands = []
        for source, dtype in zip(node.inputs, loop[0], strict=True):
            held = dtype if source.aval.weak else source.dtype
            operands.append(cast(self._names[source, held], held, dtype))
        if node.op == "cast":
            return cast(operands[0], loop[0][0], loop[1])
        if node.op in FORMATS:
            return convert(node.op, node.attrs["to"], operands[0])
        names = [f"({each})" if " " in each else each for each in operands]
        computed_in = _SINGLE if loop[0][-1] == HALF else loop[0][-1]
        value = EXPRESSIONS[function_of(node)](computed_in, *names)
        return rounded(HALF, value) if loop[1] == HALF else value


def region_source(
    graph: Graph, operands: Sequence[Operand], loops: int, over: Sequence[tuple[int, int]] = ()
) -> str:  # fmt: skip
    """The kernel ``region(n, extents..., results..., operands..., strides..., scalars...)`` of an elementwise region.

    ``over`` are pairs of a result and the dense operand that it is written over: a thread reads an element before it
    writes it, and no other thread does either. Raises ValueError if an operation of the region cannot be generated.

    >>> from futurex.tree import Aval, param
    >>> x = param(Aval((8,), np.dtype("float32")), "x")
    >>> "float v0 = (x0 + s0);" in region_source(Graph([x], [x + 1.0]), [Operand.DENSE], 1)
    True
    """
    body = Body(graph, operands, loops, [operand for _, operand in over])
    written = {result for result, _ in over}
    results = [
        f"{memory_type(node.dtype)}*{'' if k in written else ' __restrict__'} o{k}" for k, node in enumerate(graph.outs)
    ]
    extents, others = _split(body)
    parameters = ", ".join(["long long n", *extents, *results, *others])
    lines = [
        f'extern "C" __global__ void region({parameters}) {{',
        "    INDEX step = (INDEX)gridDim.x * blockDim.x;",
        "    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < (INDEX)n; i += step) {",
        *(f"        {line}" for line in body.element("i")),
        *(f"        o{k}[i] = {stored(node.dtype, body.value(node))};" for k, node in enumerate(graph.outs)),
        "    }",
        "}",
    ]
    return PRELUDE + "\n".join(lines) + "\n"


def _split(body: Body) -> tuple[list[str], list[str]]:
    parameters = list(body.parameters())
    count = body.loops - 1 if body.strided else 0
    return parameters[:count], parameters[count:]
