"""From a ``loop`` node to LLVM IR: its sub-graphs, those of nested loops and branches, as one function.

The function takes one block of 8-byte slots: status, address of the scratch area, addresses of arrays and functions,
scalars in, scalars out. It sets the status where an index is out of bounds, a check does not hold, or a Python number
outgrows 64 bits: then nothing outside its own memory has changed and the caller runs the loop another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.loops import arrays, values
from futurex.kernels.loops.arrays import Array, Place, Region, elements, viewed
from futurex.kernels.loops.function import FAIL, Function
from futurex.kernels.loops.order import Placed, is_array, schedule
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop, inner_loop
from futurex.kernels.loops.values import Scalar, constant, supported
from futurex.kernels.numba_.scalar import memory_type, operate, register_type
from futurex.ops.fusion import operand_kind, resolved_loop
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Value = Scalar | Array
Values = dict[Node, Value]
FIRST = 2  # slots 0 and 1: status and scratch area
_ALIGNED = 64


@dataclass(frozen=True)
class Cell:
    """Where an operand of a call lies, and what is there; ``weak``: a Python number."""

    place: Place
    aval: Aval


@dataclass(frozen=True)
class Call:
    """A node that NumPy computes when the generated code asks for it."""

    node: Node
    inputs: tuple[Cell, ...]
    outs: tuple[Cell, ...]


class Emitter:
    """Collects one function and what it needs from outside: constants, NumPy's loops, scratch memory."""

    def __init__(self) -> None:
        self.function = Function()
        self.slots = FIRST
        self.scratch = 0
        self.constants: list[tuple[int, Any]] = []
        self.inner_loops: dict[InnerLoop, int] = {}
        self.calls: list[Call] = []
        self._callback: int | None = None
        self._places: dict[Place, str] = {}
        self._known: dict[Node, Value] = {}

    # -- memory ------------------------------------------------------------------------------------------------------

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def array_slot(self, aval: Aval, owned: bool) -> Array:
        """An array whose address stands in the block."""
        place = Place(self.slot(), scratch=False)
        self._places[place] = f"load ptr, ptr {place.pointer}.at, align 8"
        return Array(place, _fixed(aval.shape), supported(aval.dtype), owned)

    def fresh(self, aval: Aval) -> Array:
        """Scratch memory for one array."""
        place = Place(self.scratch, scratch=True)
        self._places[place] = f"getelementptr i8, ptr %scratch, i64 {self.scratch}"
        made = Array(place, _fixed(aval.shape), supported(aval.dtype), owned=True)
        self.scratch += -(-max(made.nbytes, 1) // _ALIGNED) * _ALIGNED
        return made

    def copy(self, target: Array, source: Array) -> None:
        """The elements of one array into the memory of another."""
        arrays.copy(self.function, target, source)

    def _copied(self, source: Array) -> Array:
        made = self.fresh(Aval(source.shape, source.dtype))
        arrays.copy(self.function, made, source)
        return made

    def _owned(self, source: Array, granted: bool) -> Array:
        return source if granted and source.owned else self._copied(source)

    # -- graphs ------------------------------------------------------------------------------------------------------

    def graph(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """The results of a sub-graph."""
        env: dict[Node, Any] = dict(zip(graph.params, inputs, strict=True))
        for placed in schedule(graph):
            for source in placed.node.inputs:
                if source not in env:
                    env[source] = self._constant(source)
            self._node(placed, env)
        return [env[node] if node in env else self._constant(node) for node in graph.outs]

    def _constant(self, node: Node) -> Value:
        if node not in self._known:
            if not node.shape:
                value = node.value.item() if isinstance(node.value, np.ndarray) else node.value
                self._known[node] = constant(value, node.dtype, node.aval.weak)
            else:
                made = self.array_slot(node.aval, owned=False)
                self.constants.append((made.place.index, np.ascontiguousarray(node.value)))
                self._known[node] = made
        return self._known[node]

    def _node(self, placed: Placed, env: dict[Node, Any]) -> None:
        node = placed.node
        inputs = [env[source] for source in node.inputs]
        if node.op == "item":
            env[node] = inputs[0][node.attrs["index"]]
        elif node.op == "check":
            truth = values.converted(self.function, inputs[0], np.dtype(bool))
            self.function.fail_if(self.function.emit(f"xor i1 {truth}, true"))
            env[node] = constant(True, np.dtype(bool), weak=False)
        elif node.op == "fused":
            env[node] = self._fused(node, inputs)
        elif node.op in _STRUCTURED:
            env[node] = _STRUCTURED[node.op](self, placed, inputs)
        elif node.record.effect:
            raise Unsupported(node.op)
        elif not isinstance(node.aval, Aval) or not self._is_native(node):
            env[node] = self._called(node, inputs)
        elif node.op in _ARRAYS:
            env[node] = _ARRAYS[node.op](self, placed, inputs)
        elif node.op == "python_scalar":
            env[node] = values.python_scalar(self.function, _scalar(inputs[0]), node.attrs["kind"])
        elif node.op == "scalar_power":
            base, exponent = map(_scalar, inputs)
            found = values.power(self.function, base, exponent, node.dtype, node.aval.weak)
            env[node] = Scalar(found, node.dtype, node.aval.weak)
        elif node.op == "stop_gradient":
            env[node] = inputs[0]
        else:
            env[node] = self._elementwise(node, inputs)

    # -- elementwise -------------------------------------------------------------------------------------------------

    def _elementwise(self, node: Node, inputs: list[Value]) -> Value:
        supported(node.dtype)
        if not is_array(node.aval):
            return Scalar(self._compute(node, [_scalar(value) for value in inputs]), node.dtype, node.aval.weak)
        loop = self._inner_loop(node)
        out = self.fresh(node.aval)
        if loop is not None and _is_flat(node, loop):
            self._call(loop, inputs, out, out.shape)
            return out
        self._over_elements(inputs, [out], lambda scalars: [self._compute(node, scalars)])
        return out

    def _compute(self, node: Node, operands: list[Scalar]) -> str:
        """One element of an elementwise node."""
        if node.aval.weak:
            inner = self._inner_loop(node)
            if inner is not None and values.by_numpy(node.op, operands):
                return self._call_once(inner, operands)
            return values.python_number(self.function, node.op, operands, node.dtype)
        loop = resolved_loop(node)
        if loop is not None:
            return values.in_loop(self.function, node.op, operands, *loop)
        if node.op == "cast":
            return values.converted(self.function, operands[0], node.dtype)
        inner = self._inner_loop(node)
        if inner is None:
            raise Unsupported(f"{node.op} of {[str(source.aval) for source in node.inputs]}")
        return self._call_once(inner, operands)

    def _fused(self, node: Node, inputs: list[Value]) -> Any:
        graph = node.attrs["graph"]
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)

        def compute(operands: list[Scalar]) -> list[str]:
            env: dict[Node, Scalar] = dict(zip(graph.params, operands, strict=True))
            for inner in graph.nodes:
                if inner in env:
                    continue
                if inner.op == "const":
                    env[inner] = _scalar(self._constant(inner))
                    continue
                found = self._compute(inner, [env[source] for source in inner.inputs])
                env[inner] = Scalar(found, inner.dtype, inner.aval.weak)
            return [env[each].register for each in graph.outs]

        if not is_array(avals[0]):
            found = compute([_scalar(value) for value in inputs])
            made: list[Value] = [Scalar(each, aval.dtype, aval.weak) for each, aval in zip(found, avals, strict=True)]
        else:
            outs = [self.fresh(aval) for aval in avals]
            self._over_elements(inputs, outs, compute)
            made = list(outs)
        return made if isinstance(node.aval, tuple) else made[0]

    def _over_elements(self, inputs: list[Value], outs: list[Array], compute: Any) -> None:
        """``outs[...] = compute(inputs)``, element by element."""
        regions = [value.region() for value in inputs if isinstance(value, Array)]
        n = len(regions)
        with elements(self.function, outs[0].shape, [*regions, *(out.region() for out in outs)]) as pointers:
            read = iter(zip(regions, pointers[:n], strict=True))
            operands = []
            for value in inputs:
                if isinstance(value, Array):
                    region, pointer = next(read)
                    operands.append(Scalar(self.function.load(region.dtype, pointer), region.dtype, False))
                else:
                    operands.append(value)
            for out, pointer, found in zip(outs, pointers[n:], compute(operands), strict=True):
                self.function.store(out.dtype, found, pointer)

    # -- NumPy's own loops -------------------------------------------------------------------------------------------

    def _inner_loop(self, node: Node) -> InnerLoop | None:
        ufunc = node.record.kernel
        if not isinstance(ufunc, np.ufunc) or node.attrs or resolved_loop(node) is not None:
            return None
        kinds = [source.dtype if node.aval.weak else operand_kind(source.aval) for source in node.inputs]
        *ins, out = ufunc.resolve_dtypes((*kinds, None))
        for dtype in (*ins, out):
            supported(dtype)
        return inner_loop(ufunc, tuple(ins), out) if out == node.dtype else None

    def _call_once(self, loop: InnerLoop, operands: list[Scalar]) -> str:
        f = self.function
        pointers = []
        for value, dtype in zip(operands, loop.inputs, strict=True):
            pointer = f.variable(memory_type(dtype))
            f.store(dtype, values.converted(f, value, dtype), pointer)
            pointers.append(pointer)
        out = f.variable(memory_type(loop.output))
        self._invoke(loop, [*pointers, out], 1, [0] * (len(pointers) + 1))
        return f.load(loop.output, out)

    def _call(self, loop: InnerLoop, inputs: list[Value], out: Array, shape: tuple[int, ...]) -> None:
        """One call for a whole array; scalar operands stay where they are."""
        f = self.function
        pointers, steps = [], []
        for value, dtype in zip(inputs, loop.inputs, strict=True):
            if isinstance(value, Array):
                pointers.append(value.place.pointer)
                steps.append(dtype.itemsize)
            else:
                pointer = f.variable(memory_type(dtype))
                f.store(dtype, values.converted(f, value, dtype), pointer)
                pointers.append(pointer)
                steps.append(0)
        self._invoke(loop, [*pointers, out.place.pointer], math.prod(shape), [*steps, out.dtype.itemsize])

    def _invoke(self, loop: InnerLoop, pointers: list[str], count: int, steps: list[int]) -> None:
        f = self.function
        if loop not in self.inner_loops:
            self.inner_loops[loop] = self.slot()
            self.slot()  # its data stands beside it
        slot = self.inner_loops[loop]
        args, extents, strides = (
            f.variable(f"[{len(pointers)} x ptr]"),
            f.variable("i64"),
            f.variable(f"[{len(steps)} x i64]"),
        )
        for k, (pointer, step) in enumerate(zip(pointers, steps, strict=True)):
            f.do(f"store ptr {pointer}, ptr {f.emit(f'getelementptr ptr, ptr {args}, i64 {k}')}, align 8")
            f.do(f"store i64 {step}, ptr {f.emit(f'getelementptr i64, ptr {strides}, i64 {k}')}, align 8")
        f.do(f"store i64 {count}, ptr {extents}, align 8")
        f.do(f"call void %loop{slot}(ptr {args}, ptr {extents}, ptr {strides}, ptr %loop{slot + 1})")

    # -- calls of Python ---------------------------------------------------------------------------------------------

    def _is_native(self, node: Node) -> bool:
        """Has the operation a form in generated code?"""
        if node.op in _ARRAYS or node.op in ("python_scalar", "scalar_power", "stop_gradient"):
            return True
        if not node.record.elementwise:
            return False
        if node.aval.weak or resolved_loop(node) is not None or self._inner_loop(node) is not None:
            return True
        return node.op == "cast" and not node.shape

    def _called(self, node: Node, inputs: list[Value]) -> Any:
        """The reference kernel of an operation that has no form here, by a call into Python."""
        f = self.function
        if self._callback is None:
            self._callback = self.slot()
        cells = []
        for value, source in zip(inputs, node.inputs, strict=True):
            if isinstance(value, Array):
                cells.append(Cell(value.place, source.aval))
                continue
            cell = self.fresh(Aval((), supported(value.dtype)))
            f.store(value.dtype, value.register, cell.place.pointer)
            cells.append(Cell(cell.place, source.aval))
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        outs = [self.fresh(aval) for aval in avals]
        number = len(self.calls)
        self.calls.append(Call(node, tuple(cells), tuple(map(Cell, (out.place for out in outs), avals))))
        status = f.emit(f"call i32 %callback(i64 {number})")
        f.fail_if(f.emit(f"icmp ne i32 {status}, 0"))
        made = [
            out if aval.shape else Scalar(f.load(out.dtype, out.place.pointer), out.dtype, aval.weak)
            for out, aval in zip(outs, avals, strict=True)
        ]
        return made if isinstance(node.aval, tuple) else made[0]

    @property
    def callback(self) -> int | None:
        """The slot that wants the address of the function for calls; None where there are none."""
        return self._callback

    # -- arrays ------------------------------------------------------------------------------------------------------

    def _dynamic(self, inputs: Sequence[Value]) -> list[str]:
        return [values.converted(self.function, _scalar(value), np.dtype(np.int64)) for value in inputs]

    def _load(self, placed: Placed, inputs: list[Value]) -> Value:
        node = placed.node
        source = _array(inputs[0])
        region = viewed(self.function, source, node.attrs["chain"], self._dynamic(inputs[1:]))
        if not region.shape:
            return Scalar(self.function.load(region.dtype, region.pointer), region.dtype, False)
        return self._gathered(region)

    def _gathered(self, region: Region) -> Array:
        made = self.fresh(Aval(region.shape, region.dtype))
        self._assign(made.region(), region, region.dtype)
        return made

    def _assign(self, target: Region, value: Region | Scalar, dtype: np.dtype[Any], add: bool = False) -> None:
        """``target[...] = value`` or ``target += value``, with NumPy's casts."""
        f = self.function
        if isinstance(value, Region) and not add and value.dtype == dtype and arrays.move(f, target, value):
            return
        regions = [target] + ([value] if isinstance(value, Region) else [])
        if isinstance(value, Scalar):
            value = Scalar(values.converted(f, value, dtype), dtype, False)
        with elements(f, target.shape, regions) as pointers:
            if isinstance(value, Region):
                element = Scalar(f.load(value.dtype, pointers[1]), value.dtype, False)
                register = values.converted(f, element, dtype)
            else:
                register = value.register
            if add:
                register = operate(f, "add", dtype, [f.load(dtype, pointers[0]), register])
            f.store(dtype, register, pointers[0])

    def _store(self, placed: Placed, inputs: list[Value]) -> Value:
        node = placed.node
        base, value = _array(inputs[0]), inputs[1]
        if node.attrs["mode"] == "add" and value.dtype != base.dtype:
            raise Unsupported("an addition in place of another dtype")
        target = viewed(self.function, base, node.attrs["chain"], self._dynamic(inputs[2:]))
        if isinstance(value, Array) and value.place == base.place:
            value = self._copied(value)
        held = self._owned(base, 0 in placed.consumes)
        if held.place != base.place:  # the same view of the copy
            target = viewed(self.function, held, node.attrs["chain"], self._dynamic(inputs[2:]))
        written = value.region() if isinstance(value, Array) else value
        self._assign(target, written, base.dtype, add=node.attrs["mode"] == "add")
        return held

    def _full(self, placed: Placed, inputs: list[Value]) -> Value:
        node = placed.node
        value = _scalar(inputs[0])
        if not is_array(node.aval):
            return Scalar(values.converted(self.function, value, supported(node.dtype)), node.dtype, False)
        made = self.fresh(node.aval)
        self._assign(made.region(), value, made.dtype)
        return made

    def _reshape(self, placed: Placed, inputs: list[Value]) -> Value:
        node, source = placed.node, inputs[0]
        if isinstance(source, Scalar):
            if not node.shape:
                return source
            made = self.fresh(node.aval)
            self._assign(made.region(), source, made.dtype)
            return made
        if not node.shape:
            return Scalar(self.function.load(source.dtype, source.place.pointer), source.dtype, False)
        made = self._copied(source)
        return Array(made.place, _fixed(node.shape), made.dtype, owned=True)

    def _view(self, placed: Placed, inputs: list[Value]) -> Value:
        """``transpose`` and ``broadcast_to``, copied."""
        node, source = placed.node, inputs[0]
        if isinstance(source, Scalar):
            return self._full(placed, inputs) if node.shape else source
        attribute = node.attrs["axes"] if node.op == "transpose" else node.attrs["shape"]
        return self._gathered(viewed(self.function, source, ((node.op, attribute),), ()))

    # -- control flow ------------------------------------------------------------------------------------------------

    def _cond(self, placed: Placed, inputs: list[Value]) -> list[Value]:
        f, node = self.function, placed.node
        truth = values.converted(f, _scalar(inputs[0]), np.dtype(bool))
        passed = [
            Array(value.place, value.shape, value.dtype, value.owned and k + 1 in placed.consumes)
            if isinstance(value, Array) else value
            for k, value in enumerate(inputs[1:])
        ]  # fmt: skip
        labels = f.label(), f.label(), f.label()
        f.branch(truth, labels[0], labels[1])
        pieces, results = [], []
        for name, label in zip(("then", "orelse"), labels, strict=False):
            with f.captured() as lines:
                f.place(label)
                results.append(self.graph(node.attrs[name], passed))
                pieces.append((lines, f.block))
        consumed = {value.place for value in passed if isinstance(value, Array) and value.owned}
        made: list[Value] = []
        targets: list[Any] = []
        used: set[Place] = set()
        for aval, one, two in zip(node.aval, *results, strict=True):
            if not aval.shape:
                targets.append(f.variable(memory_type(supported(aval.dtype))))
            elif (
                isinstance(one, Array)
                and isinstance(two, Array)
                and one.place == two.place
                and (one.place in consumed and one.place not in used)
            ):
                used.add(one.place)
                targets.append(one)
            else:
                targets.append(self.fresh(aval))
        for (lines, block), result in zip(pieces, results, strict=True):
            f.lines.extend(lines)
            f.block = block
            for target, value in zip(targets, result, strict=True):
                if isinstance(target, str):
                    f.store(value.dtype, _scalar(value).register, target)
                elif isinstance(value, Array) and value.place != target.place:
                    arrays.copy(f, target, value)
            f.jump(labels[2])
        f.place(labels[2])
        for aval, target in zip(node.aval, targets, strict=True):
            scalar = isinstance(target, str)
            made.append(Scalar(f.load(aval.dtype, target), aval.dtype, aval.weak) if scalar else target)
        return made

    def _loop(self, placed: Placed, inputs: list[Value]) -> list[Value]:
        count = len(placed.node.attrs["body"].outs)
        carry = [
            self._owned(value, k in placed.consumes) if isinstance(value, Array) else value
            for k, value in enumerate(inputs[:count])
        ]
        return self.loop(placed.node, carry, inputs[count:])

    def loop(self, node: Node, carry: Sequence[Value], consts: Sequence[Value]) -> list[Value]:
        """The loop itself; array carries are owned, and hold the results in the end."""
        if node.attrs["tape"]:
            raise Unsupported("a loop that keeps every round")
        f = self.function
        shared = [_borrowed(value) for value in consts]
        cells = [
            f.variable(memory_type(supported(value.dtype))) if isinstance(value, Scalar) else None for value in carry
        ]
        for value, cell in zip(carry, cells, strict=True):
            if cell is not None:
                f.store(value.dtype, _scalar(value).register, cell)
        head, body, done = f.label(), f.label(), f.label()
        f.jump(head)
        f.place(head)
        now: list[Value] = [
            Scalar(f.load(value.dtype, cell), value.dtype, _scalar(value).weak) if cell is not None else value
            for value, cell in zip(carry, cells, strict=True)
        ]
        (truth,) = self.graph(node.attrs["test"], [*map(_borrowed, now), *shared])
        f.branch(values.converted(f, _scalar(truth), np.dtype(bool)), body, done)
        f.place(body)
        results = self.graph(node.attrs["body"], [*now, *shared])
        self._move(carry, results)
        for value, cell in zip(results, cells, strict=True):
            if cell is not None:
                f.store(value.dtype, _scalar(value).register, cell)
        f.jump(head)
        f.place(done)
        return now

    def _move(self, carry: Sequence[Value], results: Sequence[Value]) -> None:
        """Every array that a round leaves elsewhere goes to where the next one looks for it."""
        homes = {value.place for value in carry if isinstance(value, Array)}
        moves = [
            (home, value) for home, value in zip(carry, results, strict=True)
            if isinstance(home, Array) and isinstance(value, Array) and home.place != value.place
        ]  # fmt: skip
        staged = [(home, self._copied(value) if value.place in homes else value) for home, value in moves]
        for home, value in staged:
            arrays.copy(self.function, home, value)

    # -- the text ----------------------------------------------------------------------------------------------------

    def text(self, block_scalars: Sequence[tuple[int, Any]]) -> str:
        """The module, with the entry that unpacks the block; ``block_scalars``: slots and dtypes of scalars in."""
        entry = ["%scratch.at = getelementptr i64, ptr %block, i64 1", "%scratch = load ptr, ptr %scratch.at, align 8"]
        for place, how in self._places.items():
            if not place.scratch:
                entry.append(f"{place.pointer}.at = getelementptr i64, ptr %block, i64 {place.index}")
            entry.append(f"{place.pointer} = {how}")
        for slot in self.inner_loops.values():
            for k in (slot, slot + 1):
                entry.append(f"%loop{k}.at = getelementptr i64, ptr %block, i64 {k}")
                entry.append(f"%loop{k} = load ptr, ptr %loop{k}.at, align 8")
        if self._callback is not None:
            entry.append(f"%callback.at = getelementptr i64, ptr %block, i64 {self._callback}")
            entry.append("%callback = load ptr, ptr %callback.at, align 8")
        for k, dtype in block_scalars:
            entry.append(f"%in{k}.at = getelementptr i64, ptr %block, i64 {k}")
            entry.append(f"%in{k}.m = load {memory_type(dtype)}, ptr %in{k}.at, align 8")
            if dtype.kind == "b":
                entry.append(f"%in{k} = icmp ne i8 %in{k}.m, 0")
            else:
                entry.append(f"%in{k} = bitcast {register_type(dtype)} %in{k}.m to {register_type(dtype)}")
        lines = [
            *sorted(self.function.intrinsics),
            "define void @region(ptr %block) {",
            "entry:",
            *entry,
            *self.function.variables,
            "br label %start",
            "start:",
            *self.function.lines,
            "ret void",
            f"{FAIL}:",
            "store i64 1, ptr %block, align 8",
            "ret void",
            "}",
        ]
        return "\n".join(lines) + "\n"


def _fixed(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if any(type(extent) is not int for extent in shape):
        raise Unsupported("a shape that is not known")
    return shape


def _scalar(value: Value) -> Scalar:
    if not isinstance(value, Scalar):
        raise Unsupported("an array where a scalar is wanted")
    return value


def _array(value: Value) -> Array:
    if not isinstance(value, Array):
        raise Unsupported("a view of a scalar")
    return value


def _borrowed(value: Value) -> Value:
    return Array(value.place, value.shape, value.dtype, owned=False) if isinstance(value, Array) else value


def _is_flat(node: Node, loop: InnerLoop) -> bool:
    """Do all array operands have the shape of the result and the dtype of the loop?"""
    return all(
        not source.shape or (source.shape == node.shape and source.dtype == dtype)
        for source, dtype in zip(node.inputs, loop.inputs, strict=True)
    )


_STRUCTURED = {"cond": Emitter._cond, "loop": Emitter._loop}
_ARRAYS = {
    "load": Emitter._load,
    "store": Emitter._store,
    "full": Emitter._full,
    "reshape": Emitter._reshape,
    "transpose": Emitter._view,
    "broadcast_to": Emitter._view,
}
