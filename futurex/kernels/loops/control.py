"""Branches and loops as basic blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise, values
from futurex.kernels.loops.arrays import Array, Extent, Opaque, Place, Size, most, text
from futurex.kernels.loops.order import Placed
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.scalar import memory_type
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Value = Scalar | Array
_BOOL = np.dtype(bool)


def cond(e: Emitter, placed: Placed, inputs: list[Value]) -> list[Value]:
    f, node = e.function, placed.node
    truth = values.converted(f, e.scalar(inputs[0]), _BOOL)
    passed = [
        replace(value, owned=value.owned and k + 1 in placed.consumes) if isinstance(value, Array) else value
        for k, value in enumerate(inputs[1:])
    ]
    labels = f.label(), f.label(), f.label()
    f.branch(truth, labels[0], labels[1])
    pieces, results = [], []
    for name, label in zip(("then", "orelse"), labels, strict=False):
        with f.captured() as lines:
            f.place(label)
            results.append(e.graph(node.attrs[name], passed))
            pieces.append((lines, f.block))
    consumed = {value.place for value in passed if isinstance(value, Array) and value.owned}
    targets = _targets(e, placed, results, consumed)
    for (lines, block), result in zip(pieces, results, strict=True):
        f.lines.extend(lines)
        f.block = block
        for target, value in zip(targets, result, strict=True):
            _deliver(e, target, value)
        f.jump(labels[2])
    f.place(labels[2])
    for value in (value for result in results for value in result):
        e.release(value)
    return [_taken(e, target) for target in targets]


class _Target:
    """Where both branches leave a result: a place on the stack, or an array whose extents stand on the stack."""

    def __init__(self, e: Emitter, one: Value, two: Value, aval: Any, home: Array | None) -> None:
        f = e.function
        if isinstance(one, Opaque) or isinstance(two, Opaque):
            raise Unsupported("a branch that gives objects")
        self.cell = self.array = None
        self.aval = aval
        self.extents: dict[int, str] = {}
        if isinstance(one, Scalar) or isinstance(two, Scalar):
            if not (isinstance(one, Scalar) and isinstance(two, Scalar)):
                raise Unsupported("a number in one branch and an array in the other")
            self.cell = f.variable(memory_type(supported(aval.dtype)))
            return
        if home is not None:
            self.array = home
            return
        shape: list[Size] = []
        for axis, (first, second) in enumerate(zip(one.shape, two.shape, strict=True)):
            if first == second and isinstance(first, int):
                shape.append(first)
                continue
            self.extents[axis] = f.variable("i64")
            shape.append(Extent("", max(most(first), most(second))))
        self.array = e.fresh(tuple(shape), aval.dtype)


def _targets(
    e: Emitter, placed: Placed, results: Sequence[Sequence[Value]], consumed: set[Place]
) -> list[_Target]:
    used: set[Place] = set()
    targets = []
    for aval, one, two in zip(placed.node.aval, *results, strict=True):
        home = None
        if (
            isinstance(one, Array)
            and isinstance(two, Array)
            and one.place == two.place
            and one.place in consumed
            and one.place not in used
            and one.static
            and one.shape == two.shape
            and e.is_home(one)
            and e.is_home(two)
        ):
            used.add(one.place)
            home = replace(one, owned=True)
        targets.append(_Target(e, one, two, aval, home))
    return targets


def _deliver(e: Emitter, target: _Target, value: Value) -> None:
    f = e.function
    if isinstance(value, Scalar):
        assert target.cell is not None
        f.store(value.dtype, value.register, target.cell)
        return
    assert target.array is not None
    if value.place == target.array.place:
        return
    for axis, cell in target.extents.items():
        f.do(f"store i64 {text(value.shape[axis])}, ptr {cell}, align 8")
    elementwise.assign(e, replace(target.array, shape=value.shape, owned=False), value)


def _taken(e: Emitter, target: _Target) -> Value:
    f = e.function
    if target.cell is not None:
        return Scalar(f.load(target.aval.dtype, target.cell), target.aval.dtype, target.aval.weak)
    assert target.array is not None
    shape = list(target.array.shape)
    for axis, cell in target.extents.items():
        shape[axis] = Extent(f.emit(f"load i64, ptr {cell}, align 8"), most(shape[axis]))
    return replace(target.array, shape=tuple(shape))


def loop(e: Emitter, placed: Placed, inputs: list[Value]) -> list[Value]:
    count = len(placed.node.attrs["body"].outs)
    carry = [
        e.owned(value, k in placed.consumes) if isinstance(value, Array) else value
        for k, value in enumerate(inputs[:count])
    ]
    for value in carry:
        e.hold(value)
    results = rounds(e, placed.node, carry, inputs[count:])
    for value in carry:
        if isinstance(value, Array):
            e.memory.settle(value.place)
    return results


def rounds(e: Emitter, node: Node, carry: Sequence[Value], consts: Sequence[Value]) -> list[Value]:
    """The loop itself; array carries are owned, and hold the results in the end."""
    if node.attrs["tape"]:
        raise Unsupported("a loop that keeps every round")
    f = e.function
    shared = [value.borrowed() if isinstance(value, Array) else value for value in consts]
    cells = [f.variable(memory_type(supported(v.dtype))) if isinstance(v, Scalar) else None for v in carry]
    for value, cell in zip(carry, cells, strict=True):
        if cell is not None:
            f.store(value.dtype, e.scalar(value).register, cell)
    head, body, done = f.label(), f.label(), f.label()
    f.jump(head)
    f.place(head)
    now: list[Value] = [
        Scalar(f.load(value.dtype, cell), value.dtype, e.scalar(value).weak) if cell is not None else value
        for value, cell in zip(carry, cells, strict=True)
    ]
    read = [value.borrowed() if isinstance(value, Array) else value for value in now]
    (truth,) = e.graph(node.attrs["test"], [*read, *shared])
    f.branch(values.converted(f, e.scalar(truth), _BOOL), body, done)
    f.place(body)
    results = e.graph(node.attrs["body"], [*now, *shared])
    _move(e, carry, results)
    for value, cell in zip(results, cells, strict=True):
        if cell is not None:
            f.store(value.dtype, e.scalar(value).register, cell)
        e.release(value)
    f.jump(head)
    f.place(done)
    return now


def _move(e: Emitter, carry: Sequence[Value], results: Sequence[Value]) -> None:
    """Every array that a round leaves elsewhere goes to where the next one looks for it."""
    homes = {value.place for value in carry if isinstance(value, Array)}
    moves = []
    for home, value in zip(carry, results, strict=True):
        if isinstance(value, Opaque):
            raise Unsupported("a loop that carries objects")
        if isinstance(home, Scalar) and isinstance(value, Scalar):
            continue
        if not (isinstance(home, Array) and isinstance(value, Array)) or home.shape != value.shape:
            raise Unsupported("an array whose extents change from round to round")
        if home.place != value.place or not e.is_home(value):
            moves.append((home, value))
    staged = [(home, e.copied(value) if value.place in homes else value) for home, value in moves]
    for home, value in staged:
        elementwise.assign(e, home, value)
