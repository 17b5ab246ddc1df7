"""From graphs to LLVM IR: a graph, with those of its loops and branches, as one function.

The function takes one block of 8-byte words (:mod:`memory`). It sets the status where an index is out of bounds, a
check does not hold, or a Python number outgrows 64 bits: then nothing outside its own memory has changed and the caller
runs the graph another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from futurex.kernels.loops import (
    complex_mathematics,
    control,
    elementwise,
    factors,
    fourier,
    groups,
    histograms,
    indexing,
    linear,
    lines,
    looking,
    mathematics,
    quantiles,
    reductions,
    searching,
    sizes,
    streams,
    sweeps,
    triangular,
    values,
)
from futurex.kernels.loops.arrays import MOST_ROWS, Array, Extent, Opaque, Place, Shape, is_whole, most
from futurex.kernels.loops.calls import Call, called
from futurex.kernels.loops.delivery import Delivery
from futurex.kernels.loops.function import FAIL, Function
from futurex.kernels.loops.kernels import Kernels
from futurex.kernels.loops.memory import Memory
from futurex.kernels.loops.order import Placed, schedule
from futurex.kernels.loops.records import RUNTIME
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import NUMBERS, Scalar, constant
from futurex.kernels.numba_ import complexes
from futurex.kernels.numba_.scalar import joined
from futurex.passes.expand import by_elements, without_sweeps
from futurex.passes.fuse import fuse_small
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, build
from futurex.tree.record import record

Value = Scalar | Array | streams.Stream
_BOOL = np.dtype(bool)
STORED = NUMBERS
"""What arrays may hold."""
_LARGEST_UNKNOWN = 1 << 18
"""Elements that memory is set aside for where only the run knows how many there are."""


@dataclass
class Entrance:
    """What is done before the first round of a loop: code that ends in ``block``, and what it made, by its source."""

    unchanged: frozenset[Place]
    block: str
    lines: list[str] = field(default_factory=list)
    made: dict[Any, Array] = field(default_factory=dict)


class Emitter:
    """Collects one function and what it needs from outside."""

    def __init__(self, avals: Sequence[Aval] = ()) -> None:
        """``avals``: of what the code is given."""
        self.largest = max((aval.size for aval in avals if aval.static), default=1)
        self.widest = max((extent for aval in avals if aval.static for extent in aval.shape), default=1)
        self.function = Function()
        self.memory = Memory()
        self.kernels = Kernels({}, set())
        self.calls: list[Call] = []
        self.regions: list[tuple[int, str]] = []  # words for the addresses of kernels, and the texts of these
        self.look: int | None = None  # the first of the words of looks
        self.asks = False  # does it call functions of Python's own with numbers?
        self.objects: dict[int, Any] = {}  # opaque constants
        self.draws = 0
        self.drawers: list[streams.Armed] = []
        self.drawn: streams.Drawn = {}
        self.delivery: Delivery | None = None  # of the graph that is being emitted
        self.homes: dict[Place, Array] = {}  # our parts of arrays that are shared
        self.part: Callable[[Node, int], tuple[int, ...]] | None = None  # the shapes of results in these parts
        self.entrances: list[Entrance] = []  # of the loops that are being emitted, the outermost first
        self._opaque = 0
        self._known: dict[Node, Any] = {}

    # -- values ------------------------------------------------------------------------------------------------------

    def fresh(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Scratch memory for one array."""
        if dtype not in STORED or not dtype.isnative:
            raise Unsupported(f"arrays of dtype {dtype}")
        size = math.prod(map(most, shape))
        if size >= MOST_ROWS or (size > _LARGEST_UNKNOWN and any(isinstance(extent, Extent) for extent in shape)):
            raise Unsupported("an array that may become large")
        return self.memory.fresh(shape, dtype)

    def result(self, shape: Shape, dtype: np.dtype[Any], number: int = 0, dense: bool = True) -> Array:
        """Memory for a result of the node that is being emitted, which may be a place where it is wanted; ``dense``:
        side by side in C order."""
        target = self.delivery.target(number, shape, dtype) if self.delivery is not None else None
        return target if target is not None and (target.contiguous or not dense) else self.fresh(shape, dtype)

    def lasting(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Scratch memory for one array that stays as it is until the code ends."""
        return self.memory.fresh(shape, dtype, lasting=True)

    def most_rows(self, row: Sequence[int]) -> int:
        """How many rows of a shape an array may grow to that the run makes longer and longer."""
        return _LARGEST_UNKNOWN // max(math.prod(row), 1)

    def copied(self, source: Array) -> Array:
        made = self.fresh(source.shape, source.dtype)
        elementwise.assign(self, made, source)
        return made

    def owned(self, source: Array, granted: bool) -> Array:
        """The array itself where it may be overwritten, else a copy."""
        return source if granted and source.owned else self.copied(source)

    def shape_of(self, node: Node) -> Shape:
        """The shape of a result that no operand tells, as our part of it has it."""
        return self.known(node.shape if self.part is None else self.part(node, 0))

    def is_home(self, array: Array) -> bool:
        """Does the array fill its place, or our part of it, as what is carried does?"""
        home = self.homes.get(array.place)
        return is_whole(array) if home is None else replace(array, owned=home.owned) == home

    def is_afloat(self, array: Array) -> bool:
        """Does it so but for rows that have been taken out in front, as those of a queue are?"""
        rows = array.static_rows and isinstance(array.shape[0], Extent)
        return self.is_home(replace(array, offset="0") if rows else array)

    def cell(self, value: Scalar) -> Array:
        """A number in memory."""
        made = self.fresh((), value.dtype)
        self.function.store(value.dtype, value.register, made.pointer(self.function))
        return made

    def unboxed(self, array: Array) -> Any:
        """An array without dimensions as a number, where it can be one."""
        if array.shape or array.dtype not in STORED:
            return array
        return Scalar(self.function.load(array.dtype, array.pointer(self.function)), array.dtype, False)

    def scalar(self, value: Any) -> Scalar:
        if not isinstance(value, Scalar):
            raise Unsupported("an array where a number is wanted")
        return value

    def known(self, shape: Sequence[Any]) -> tuple[int, ...]:
        if any(type(extent) is not int for extent in shape):
            raise Unsupported("a shape that is not known")
        return tuple(shape)

    def opaque(self) -> Opaque:
        self._opaque += 1
        return Opaque(self._opaque)

    def _object(self, value: Any) -> Opaque:
        handed = self.opaque()
        self.objects[handed.index] = value
        return handed

    def constant(self, node: Node) -> Any:
        if node not in self._known:
            if not node.shape and node.dtype in STORED:
                value = node.value.item() if isinstance(node.value, np.ndarray | np.generic) else node.value
                try:
                    self._known[node] = constant(value, node.dtype, node.aval.weak)
                except Unsupported:
                    self._known[node] = self._object(node.value)
            elif node.dtype not in STORED:
                self._known[node] = self._object(node.value)
            else:
                value = np.ascontiguousarray(node.value, node.dtype).reshape(node.shape)
                self._known[node] = self.memory.constant(value)
        return self._known[node]

    def hold(self, value: Any) -> None:
        """Keep the memory of a value, until it is released."""
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Array):
                self.memory.hold(each.place)

    def release(self, value: Any) -> None:
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Array):
                self.memory.release(each.place)

    # -- before loops ------------------------------------------------------------------------------------------------

    @contextmanager
    def entering(self, unchanged: Iterable[Place]) -> Iterator[Entrance]:
        """Emit the rounds of a loop that leave these places as they are."""
        entrance = Entrance(frozenset(unchanged), self.function.block)
        self.entrances.append(entrance)
        try:
            yield entrance
        finally:
            self.entrances.pop()

    def entrance_of(self, array: Array) -> Entrance | None:
        """That of the outermost loop in whose rounds the array is always the same."""
        known = not array.place.scratch and array.place.index in self.memory.fixed
        if array.offset[0] == "%":
            return None
        return next((each for each in self.entrances if known or array.place in each.unchanged), None)

    @contextmanager
    def at(self, entrance: Entrance | None) -> Iterator[None]:
        """Emit into the entrance of a loop, or where we are."""
        if entrance is None:
            yield
            return
        f = self.function
        outer = f.lines, f.block
        f.lines, f.block = entrance.lines, entrance.block
        try:
            yield
        finally:
            entrance.block = f.block
            f.lines, f.block = outer

    # -- graphs ------------------------------------------------------------------------------------------------------

    def graph(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """The results of a sub-graph; the caller releases them."""
        graph = by_elements(without_sweeps(graph, self._calls_region))  # other reductions have forms of their own here
        graph = fuse_small(graph, of_complex=complexes.known())
        env: dict[Node, Any] = dict(zip(graph.params, inputs, strict=True))
        scheduled = schedule(graph)
        order, delivery = scheduled.order, Delivery(self, env, scheduled.wanted)
        last: dict[Node, int] = {}
        for k, placed in enumerate(order):
            for source in placed.node.inputs:
                last[source] = k
            last[placed.node] = k
        dying: dict[int, list[Node]] = {}
        for node, k in last.items():
            if node not in env and node.op != "const":
                dying.setdefault(k, []).append(node)
        outs = set(graph.outs)
        for k, placed in enumerate(order):
            for source in placed.node.inputs:
                if source not in env:
                    env[source] = self.constant(source)
            delivery.begin(placed.node)
            outer, self.delivery = self.delivery, delivery
            try:
                env[placed.node] = self._node(placed, [env[source] for source in placed.node.inputs])
            finally:
                self.delivery = outer
            delivery.end(placed.node, env[placed.node])
            self.hold(env[placed.node])
            for node in dying.get(k, ()):
                if node not in outs:
                    self.release(env[node])
        results = [env[node] if node in env else self.constant(node) for node in graph.outs]
        inner = {placed.node for placed in order}
        for k, node in enumerate(graph.outs):
            if node not in inner or node in graph.outs[:k]:
                self.hold(results[k])
        return results

    def _calls_region(self, node: Node) -> bool:
        """Is it a region that a kernel is called for? Not for parts of arrays, of which the kernel knows nothing."""
        return self.part is None and sweeps.program_of(node) is not None

    def _node(self, placed: Placed, inputs: list[Any]) -> Any:
        node = placed.node
        if node.op == "item":
            return inputs[0][node.attrs["index"]]
        if node.op == "check":
            truth = values.converted(self.function, self.scalar(inputs[0]), _BOOL)
            self.function.fail_if(self.function.emit(f"xor i1 {truth}, true"))
            return constant(True, _BOOL, weak=False)
        if node.op in ("cond", "loop"):
            if streams.are_handed(inputs):
                raise Unsupported(f"a {node.op} over objects")
            return (control.cond if node.op == "cond" else control.loop)(self, placed, inputs)
        before = len(self.function.lines), self.function.block
        try:
            if "dims" in node.attrs and node.op not in ("reshape", "full"):
                raise Unsupported("an attribute that the run tells")
            if any(isinstance(value, Opaque) for value in inputs):
                raise Unsupported("a value that is only handed on")
            return self._native(placed, inputs)
        except Unsupported:
            del self.function.lines[before[0] :]
            self.function.block = before[1]
            return called(self, node, inputs)

    def _native(self, placed: Placed, inputs: list[Any]) -> Any:
        node = placed.node
        weak = isinstance(node.aval, Aval) and node.aval.weak
        if node.op == "full" and "dims" in node.attrs:
            return sizes.full(self, node, inputs)
        if node.op in _PLACED:
            return _PLACED[node.op](self, placed, inputs)
        if node.op in _PLAIN:
            return _PLAIN[node.op](self, node, inputs)
        if node.op == "round" and not node.attrs["decimals"] and node.dtype.kind == "f":
            return elementwise.of_node(self, build(record("rint"), node.inputs, {}, node.aval, node.src), inputs)
        if node.op == "element":
            return Scalar(values.element(self.function, self.scalar(inputs[0]), node.dtype), node.dtype, weak)
        if node.op == "python_scalar":
            return values.python_scalar(self.function, self.scalar(inputs[0]), node.attrs["kind"])
        if node.op == "scalar_power":
            base, exponent = map(self.scalar, inputs)
            found = mathematics.power(self.function, base, exponent, node.dtype, node.aval.weak)
            return Scalar(found, node.dtype, node.aval.weak)
        if node.op == "math_call":
            return Scalar(mathematics.of_math(self, node, list(map(self.scalar, inputs))), node.dtype, weak)
        if node.op == "cmath_call":
            found = complex_mathematics.called(self.function, node.attrs["function"], list(map(self.scalar, inputs)))
            return Scalar(found, node.dtype, weak)
        if node.op == "scalar_multiply":
            return Scalar(values.product(self.function, list(map(self.scalar, inputs)), node.dtype), node.dtype, weak)
        if node.op == "scalar_divide":
            return Scalar(values.quotient(self.function, list(map(self.scalar, inputs))), node.dtype, weak)
        if node.op == "scalar_absolute":
            return Scalar(values.absolute(self.function, self.scalar(inputs[0])), node.dtype, weak)
        if node.op == "python_complex":
            real, imag = (values.python_scalar(self.function, self.scalar(value), "f").register for value in inputs)
            return Scalar(joined(real, imag), node.dtype, True)
        if node.op in ("stop_gradient", "after"):
            if isinstance(inputs[0], Array):
                return inputs[0].borrowed() if placed.lazy else self.copied(inputs[0])
            return inputs[0]
        if node.record.elementwise and isinstance(node.aval, Aval):
            return elementwise.of_node(self, node, inputs)
        raise Unsupported(node.op)

    # -- the text ----------------------------------------------------------------------------------------------------

    def text(self, scalars: list[tuple[int, Any]], parts: int = 1, threaded: bool = False) -> str:
        """The module, with the entry that unpacks the block; ``scalars``: words and dtypes of scalars in.

        With several ``parts`` there is a block for each thread, and the threads take parts in turn.
        """
        lines = [
            *sorted(self.function.intrinsics | self.kernels.intrinsics),
            RUNTIME,
            *self.kernels.text(),
            *([looking.TEXT] if self.look is not None else []),
            *([mathematics.TEXT] if self.asks else []),
            "define internal void @part(ptr %block, i64 %part) {",
            "entry:",
            *self.memory.prologue(scalars),
            *(looking.prologue(self.look) if self.look is not None else []),
            *self.function.variables,
            "br label %start",
            "start:",
            *self.function.lines,
            "ret void",
            f"{FAIL}:",
            "store i64 1, ptr %block, align 8",
            "ret void",
            *(["ended:", "ret void"] if self.look is not None else []),
            "}",
            *_region(self.memory.words, parts, threaded),
        ]
        return "\n".join(lines) + "\n"


def _region(words: int, parts: int, threaded: bool) -> list[str]:
    """The entry: one part after the other, those of one ticket in its own block."""
    lines = ["define void @region(ptr %blocks, i64 %t, i64 %c) {", "entry:"]
    number, count = ("%t", "%c") if threaded else ("0", "1")
    return [
        *lines,
        f"%skip = mul i64 {number}, {8 * words}",
        "%block = getelementptr i8, ptr %blocks, i64 %skip",
        "br label %head",
        "head:",
        f"%part = phi i64 [ {number}, %entry ], [ %next, %body ]",
        f"%more = icmp slt i64 %part, {parts}",
        "br i1 %more, label %body, label %done",
        "body:",
        "call void @part(ptr %block, i64 %part)",
        f"%next = add i64 %part, {count}",
        "br label %head",
        "done:",
        "ret void",
        "}",
    ]


_PLACED: dict[str, Callable[[Emitter, Placed, list[Any]], Any]] = {
    "load": indexing.load,
    "store": indexing.store,
    "full": indexing.full,
    "reshape": indexing.reshape,
    "contiguous": indexing.contiguous,
    "transpose": indexing.turn,
    "broadcast_to": indexing.turn,
    "flip": indexing.turn,
    "concatenate": indexing.concatenate,
    "dim": indexing.extent_of,
    "gather": indexing.gather,
    **dict.fromkeys(("scatter", "ufunc_at"), indexing.scatter),
    "nonzero": indexing.nonzero,
    "masked_store": indexing.masked_store,
    "masked": indexing.masked,
}
_PLAIN: dict[str, Callable[[Emitter, Node, list[Any]], Any]] = {
    "fused": elementwise.fused,
    "fused_reduction": sweeps.region,
    **dict.fromkeys(
        ("sum", "free_sum", "prod", "max", "free_max", "min", "any", "all"), reductions.reduction
    ),
    "ufunc_reduce": reductions.of_ufunc,
    **dict.fromkeys(("argmax", "argmin"), reductions.position),
    "cumsum": reductions.cumsum,
    "accumulate": reductions.accumulate,
    "arange": sizes.arange,
    "iota": sizes.iota,
    "room": sizes.room,
    "checked_labels": elementwise.checked_labels,
    "choose": elementwise.choose,
    **dict.fromkeys(("divmod", "modf", "frexp"), elementwise.of_several),
    "matmul": linear.matmul,
    "matmul_epilogue": linear.matmul_with_bias,
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft"), fourier.transform),
    "norm": linear.norm,
    "sort": searching.sort,
    "argsort": searching.argsort,
    "unique": searching.unique,
    **dict.fromkeys(("convolve", "correlate"), searching.convolve),
    "interp": lines.interp,
    "native": histograms.native,
    "reduceat": groups.reduceat,
    "quantile": quantiles.quantile,
    "svd": linear.singular,
    "eigh": factors.eigen,
    "eigvalsh": factors.eigenvalues,
    "svdvals": factors.singular_values,
    "condition_number": factors.condition,
    "qr": factors.orthogonal,
    "lstsq": factors.least_squares,
    "pinv": factors.pseudoinverse,
    "polyfit": factors.polynomial,
    "cofactor": linear.cofactor,
    "solve": linear.solve,
    "solve_triangular": triangular.solve,
    **dict.fromkeys(("inv", "cholesky"), linear.inverse),
    **dict.fromkeys(("det", "slogdet"), linear.determinant),
}
