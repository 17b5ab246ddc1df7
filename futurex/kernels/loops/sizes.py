"""Arrays whose size the run tells, made of numbers: ``np.arange(i)``, ``np.zeros(i + 1)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise, values
from futurex.kernels.loops.arrays import Array, Extent, Size
from futurex.kernels.loops.calls import guessed
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numba_.scalar import operate
from futurex.tree.dims import same
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_INT = np.dtype(np.int64)
_MOST = 1 << 12
"""Numbers that are kept beside the code."""


def arange(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Of integers: others round in NumPy's own way."""
    numbers = [e.scalar(value) for value in inputs]
    if node.dtype != _INT or any(value.dtype.kind not in "iu" for value in numbers):
        raise Unsupported(f"arange of dtype {node.dtype}")
    f = e.function
    start, stop, step = (values.converted(f, value, _INT) for value in numbers)
    f.fail_if(f.emit(f"icmp eq i64 {step}, 0"))
    # Rounded up: less one of the step's sign, rounded down, and one.
    way = f.emit(f"or i64 {f.emit(f'ashr i64 {step}, 63')}, 1")
    most = values.checked(f, "ssub", values.checked(f, "ssub", stop, start), way)
    count = f.emit(f"add i64 {operate(f, 'floor_divide', _INT, [most, step])}, 1")
    count = f.select(f.emit(f"icmp sgt i64 {count}, 0"), "i64", count, "0")
    made = _made(e, node, [count])
    first = made.pointer(f)
    with f.counted(count) as index:
        value = f.emit(f"add i64 {start}, {f.emit(f'mul i64 {index}, {step}')}")
        f.store(_INT, value, f.emit(f"getelementptr i64, ptr {first}, i64 {index}"))
    return made


def iota(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Numbers of rows, or of what lies along another axis: they are there when the code is."""
    e.known(node.shape)
    if not node.size or node.size > _MOST or node.dtype != _INT:
        raise Unsupported("as many numbers")
    return e.memory.constant(node.record.run((), node.attrs))


def full(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """One number everywhere."""
    f = e.function
    told = [values.converted(f, e.scalar(value), _INT) for value in inputs[1:]]
    sizes = []
    for extent in node.attrs["shape"]:
        if type(extent) is not int:
            found = [size for size, dim in zip(told, node.attrs["dims"], strict=True) if same(dim, extent)]
            if not found:
                raise Unsupported("an extent that has to be computed")
            sizes.append(found[0])
            f.fail_if(f.emit(f"icmp slt i64 {sizes[-1]}, 0"))
    made = _made(e, node, sizes)
    elementwise.assign(e, made, e.scalar(inputs[0]))
    return made


def room(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Memory that is written before it is read, the first part of it alone."""
    before = e.memory.scratch
    made = e.fresh(e.shape_of(node), node.dtype)
    e.memory.room += e.memory.scratch - before
    return made


def _made(e: Emitter, node: Node, sizes: Sequence[str]) -> Array:
    """Room for the array; where it is not enough the code gives up. ``sizes``: of what the run tells, none negative."""
    rest, shape = iter(sizes), list[Size]()
    for room, extent in zip(guessed(e, node.aval), node.shape, strict=True):
        if type(extent) is int:
            shape.append(extent)
            continue
        size = next(rest)
        e.function.fail_if(e.function.emit(f"icmp ugt i64 {size}, {room}"))
        shape.append(Extent(size, room))
    return e.fresh(tuple(shape), node.dtype)
