"""Compiled transforms around the products of a fast convolution, with what is done before and behind them: a vector of
columns at a time, in straight code.

The map is part of the text. For 71 positions and 107 products a matrix product takes ten times the arithmetic.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import Written, splat, threads_for
from futurex.kernels.numba_.code import WRITTEN_OUT, Code, module
from futurex.kernels.numba_.element import computed, helds_of
from futurex.kernels.numba_.linear import Map, Program, Term, negative
from futurex.kernels.numba_.pairwise import LINE, PREFETCH, prefetch
from futurex.kernels.numba_.scalar import memory_type, operate, register_type
from futurex.kernels.numba_.wide import Wide
from futurex.kernels.threads import may_share
from futurex.ops.spectra import period_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param

LANES = 16
_KIND = f"<{LANES} x float>"
LONGEST = 3000
"""Steps of a program that are worth compiling: long ones come of periods with a large prime factor."""
_GATHER = f"@llvm.masked.gather.v{LANES}f32.v{LANES}p0"
_SINGLE = np.dtype(np.float32)


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``spectral_map`` or a ``spectral_region``, or None for what is not compiled."""
    if not node.is_static or any(not each.size for each in node.inputs):
        return None
    graph = node.attrs["graph"] if "graph" in node.attrs else _alone(node)
    maps = [each for each in graph.nodes if each.op == "spectral_map"]
    columns = math.prod(maps[0].shape[1:])
    if columns < LANES or any(each.dtype != _SINGLE or steps_of(each) > LONGEST for each in maps):
        return None
    writer = _Writer(graph, columns)
    text = writer.text(may_share())
    return Written(node, threads_for(node, threads), text, (-(-columns // writer.width), columns, *writer.periods))


def _alone(node: Node) -> Graph:
    x = param(node.inputs[0].aval, "x")
    return Graph([x], [apply(node.op, x, **node.attrs)])


def steps_of(node: Node) -> int:
    """How many steps the program of a ``spectral_map`` has."""
    return len(_map(tuple(sorted(node.attrs.items()))).live())


@functools.lru_cache(maxsize=64)
def _map(attrs: tuple[tuple[str, Any], ...]) -> Map:
    return map_of(**dict(attrs))


def map_of(which: str, back: bool, outputs: int, taps: int, length: int, low: int) -> Map:
    """The program of :func:`~futurex.ops.spectra.matrix_of`."""
    period = period_of(outputs, taps)
    first, count = {"weights": (0, taps), "positions": (low, length), "results": (0, outputs)}[which]
    program = Program()
    inside = [program.input(number) for number in range(count)]
    x: list[Term] = [*[None] * first, *inside, *[None] * (period - first - count)]
    rows: list[Term] = []
    for k, (real, imaginary) in enumerate(program.transform([(each, None) for each in x])[: period // 2 + 1]):
        single = 2 * k in (0, period)
        if which == "results":
            real, imaginary = (program.scale((1 if single else 2) / period, each) for each in (real, imaginary))
        rows += [real] if single else _row(program, which, real, negative(imaginary))
    found = Map(program, tuple(rows), count)
    return found.transpose if back else found


def _row(program: Program, which: str, c: Term, s: Term) -> list[Term]:
    """What is multiplied for a complex coefficient, of its sums with cosines and with sines: see Algorithm."""
    if which == "weights":
        return [c, program.sub(s, c), program.add(c, s)]
    return [program.sub(c, s), *((negative(s), c) if which == "results" else (c, s))]


def _positions(node: Node) -> int:
    """The positions of a value, which come first, or behind the one example of a pooling; a sum has none."""
    if node.op == "sum":
        return 1
    return node.shape[1] if node.shape[0] == 1 and node.op != "spectral_map" else node.shape[0]


class _Writer:
    """The code of a region: a task is a vector of columns; the last one begins earlier, where it would not be full.

    Values are those of one position: maps are made one after the other, and what follows a position alone with it.
    """

    def __init__(self, graph: Graph, columns: int) -> None:
        self.graph, self.columns, self.code = graph, columns, Code()
        self.body = Wide(self.code, LANES)
        self.result = {node: k for k, node in enumerate(graph.outs)}
        self.small = [node for node in graph.outs if node.dtype.itemsize == 1 and columns >= LINE]
        self.width = LINE if self.small else LANES
        self.held: dict[tuple[Node, int], Any] = {}
        self.begun: set[tuple[Node, int]] = set()
        self.steps: dict[tuple[Node, int], str] = {}
        self.behind: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            if node.op == "reshape" or node.record.elementwise:
                for source in [each for each in node.inputs if each.size >= node.size]:
                    self.behind.setdefault(source, []).append(node)
        self.repeated = [node for node in graph.params if 1 < node.size < columns]
        self.periods = [node.size for node in self.repeated]

    def text(self, threaded: bool) -> str:
        code, graph = self.code, self.graph
        numbers = ["tasks", "columns", *(f"period{k}" for k in range(len(self.repeated)))]
        arrays = [*(f"o{k}" for k in range(len(graph.outs))), *(f"a{k}" for k in range(len(graph.params)))]
        rooms = {node: code.do(f"alloca [{LINE * _positions(node)} x i8], align {LINE}") for node in self.small}
        with code.loop("%low", "%high") as (task, _):
            begin = code.least(code.multiply(task, str(self.width)), code.do(f"sub i64 %columns, {self.width}"))
            with code.loop("0", str(self.width), str(LANES)) as (lane, _):
                self.column = code.add(begin, lane)
                self.rooms = {node: code.at("i8", room, lane) for node, room in rooms.items()}
                self._vector()
            for node, room in rooms.items():
                with code.loop("0", str(_positions(node))) as (row, _):
                    place = code.at("i8", f"%o{self.result[node]}", code.add(code.multiply("%columns", row), begin))
                    code.run(prefetch(code.at("i8", place, str(LINE)), second=True))
                    source = code.at("i8", room, code.multiply(row, str(LINE)))
                    line = code.do(f"load <{LINE} x i8>, ptr {source}, align {LINE}")
                    code.run(f"store <{LINE} x i8> {line}, ptr {place}, align 1")
        parameters = [*(("i64", name) for name in numbers), *(("ptr", name) for name in arrays)]
        gather = f"declare {_KIND} {_GATHER}(<{LANES} x ptr>, i32, <{LANES} x i1>, {_KIND})"
        declared = [PREFETCH, *sorted(self.body.intrinsics), *([gather] if self.repeated else [])]
        return WRITTEN_OUT + module(parameters, code, threaded, declared)

    def _vector(self) -> None:
        for node in self.graph.nodes:
            if node.op == "spectral_map":
                self._drive(node)
        for node in self.graph.outs:
            for row in range(_positions(node)):
                self.value(node, row)

    def _drive(self, node: Node) -> None:
        """All that follows from a map, in the order of its program."""
        found = _map(tuple(sorted(node.attrs.items())))
        rows: dict[int, list[int]] = {}
        for row, term in enumerate(found.results):
            if term is None:
                self.value(node, row)
            else:
                rows.setdefault(term[1], []).append(row)
        for step in found.live():
            if found.program.steps[step].kind != "input" or step in rows:
                self._step(node, found, step)
                for row in rows.get(step, ()):
                    self.value(node, row)

    def value(self, node: Node, row: int) -> Any:
        """The register of a node's vector at a position."""
        here = node, row
        if here not in self.held:
            self.begun.add(here)
            found = self.held[here] = self._made(node, row)
            if node in self.result:
                self._store(node, row, found)
            for user in self.behind.get(node, ()):
                if (user, row) not in self.begun:
                    self.value(user, row)
        return self.held[here]

    def _made(self, node: Node, row: int) -> Any:
        code = self.code
        match node.op:
            case "param":
                return self._read(node, row)
            case "spectral_map":
                found = _map(tuple(sorted(node.attrs.items())))
                term = found.results[row]
                if term is None:
                    return self.body.constant("float", "0.0")
                value = self._step(node, found, term[1])
                return value if term[0] > 0 else code.do(f"fneg {_KIND} {value}")
            case "item":
                return self.value(node.inputs[0], row)[node.attrs["index"]]
            case "reshape":
                return self.value(node.inputs[0], row)
            case "sum":
                source = node.inputs[0]
                total = self.body.constant("float", "0.0")
                for each in range(_positions(source)):
                    total = code.do(f"fadd {_KIND} {total}, {self.value(source, each)}")
                return total
            case "max_pool":
                return self._pooled(node, row)[0]
            case "max_pool_places":
                return self._pooled(node, row)
            case "max_pool_spread":
                return self._spread(node, row)
        values = {}
        for source, held in zip(node.inputs, helds_of(node), strict=True):
            if source.op == "const":
                number = held.type(np.asarray(source.value).item())
                values[source, held] = self.body.constant(register_type(held), _literal(number))
            else:
                values[source, held] = self.value(source, row if source.size >= node.size else 0)
        return computed(self.body, node, values)

    def _pooled(self, node: Node, row: int) -> tuple[str, str]:
        """The maximum of a window and the number of its first place, as :mod:`~futurex.ops.pool` says them."""
        (window,), (stride,) = node.attrs["window"], node.attrs["stride"]
        best, place = self.value(node.inputs[0], row * stride), self.body.constant("i8", "0")
        for number in range(1, window):
            here = self.value(node.inputs[0], row * stride + number)
            known = self.body.emit(f"fcmp ord float {best}, {best}")
            better = self.body.emit(f"and i1 {known}, {self.body.emit(f'fcmp ugt float {here}, {best}')}")
            place = self.body.emit(f"select i1 {better}, i8 {number}, i8 {place}")
            best = operate(self.body, "maximum", _SINGLE, [best, here])
        return best, place

    def _spread(self, node: Node, row: int) -> str:
        """The sum of the gradients of the windows that have their maximum here, from the last to the first."""
        (window,), (stride,) = node.attrs["window"], node.attrs["stride"]
        gradient, places = node.inputs
        total = self.body.constant("float", "0.0")
        for at in reversed(range(_positions(gradient))):
            number = row - at * stride
            if 0 <= number < window:
                chosen = self.body.emit(f"icmp eq i8 {self.value(places, at)}, {number}")
                part = self.body.emit(f"select i1 {chosen}, float {self.value(gradient, at)}, float 0.0")
                total = self.body.emit(f"fadd float {total}, {part}")
        return total

    def _step(self, node: Node, found: Map, step: int) -> str:
        """The register of a step of a map's program; positions are read where they are needed first."""
        if (node, step) not in self.steps:
            self.steps[node, step] = self._of_step(node, found, step)
        return self.steps[node, step]

    def _of_step(self, node: Node, found: Map, step: int) -> str:
        each, code = found.program.steps[step], self.code
        if each.kind == "input":
            return str(self.value(node.inputs[0], each.first))
        first = self._step(node, found, each.first)
        if each.kind == "scale":
            return code.do(f"fmul contract {_KIND} {first}, {splat(_KIND, _literal(each.constant))}")
        return code.do(f"f{each.kind} contract {_KIND} {first}, {self._step(node, found, each.second)}")

    def _read(self, node: Node, row: int) -> str:
        array, kind = f"%a{self.graph.params.index(node)}", memory_type(node.dtype)
        if node in self.repeated:
            return self._gathered(array, self.repeated.index(node))
        place = self._place(array, kind, row)
        wide = self.body.kind(kind)
        value = self.code.do(f"load {wide}, ptr {place}, align {node.dtype.itemsize}")
        return self.body.emit(f"icmp ne i8 {value}, 0") if node.dtype.kind == "b" else value

    def _gathered(self, array: str, number: int) -> str:
        """The elements of a row that repeats itself along the columns."""
        code = self.code
        lanes = ", ".join(f"i64 {k}" for k in range(LANES))
        wide = f"<{LANES} x i64>"

        def everywhere(value: str) -> str:
            one = code.do(f"insertelement {wide} poison, i64 {value}, i64 0")
            return code.do(f"shufflevector {wide} {one}, {wide} poison, <{LANES} x i32> zeroinitializer")

        columns = code.do(f"add {wide} {everywhere(self.column)}, <{lanes}>")
        places = code.do(f"urem {wide} {columns}, {everywhere(f'%period{number}')}")
        pointers = code.do(f"getelementptr float, ptr {array}, {wide} {places}")
        mask = splat(f"<{LANES} x i1>", "true")
        return code.do(
            f"call {_KIND} {_GATHER}(<{LANES} x ptr> {pointers}, i32 4, <{LANES} x i1> {mask}, {_KIND} poison)"
        )

    def _store(self, node: Node, row: int, value: str) -> None:
        kind = memory_type(node.dtype)
        if node.dtype.kind == "b":
            value = self.body.emit(f"zext i1 {value} to i8")
        if node in self.rooms:
            place = self.code.at("i8", self.rooms[node], str(row * LINE))
        else:
            place = self._place(f"%o{self.result[node]}", kind, row)
        self.code.run(f"store {self.body.kind(kind)} {value}, ptr {place}, align {node.dtype.itemsize}")

    def _place(self, array: str, kind: str, row: int) -> str:
        """Where the vector lies; asks for the line behind it: a hundred rows are more streams than a processor
        foresees."""
        offset = self.code.add(self.code.multiply("%columns", str(row)), self.column)
        place = self.code.at(kind, array, offset)
        self.code.run(prefetch(self.code.at("i8", place, str(LINE)), second=True))
        return place


def _literal(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    return f"0x{struct.unpack('=Q', struct.pack('=d', value))[0]:016X}"
