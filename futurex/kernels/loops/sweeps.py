"""Regions with reductions in generated code: the kernels that plans have for them, called by their addresses.

A row's exponentials, their sum and what is made of it are one trip, where a loop for each operation is a trip each: a
step of a hidden Markov model over 16 states takes half the time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise, values
from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.crossings import HEAD
from futurex.kernels.numba_.program import Program, reducing
from futurex.kernels.numba_.region import slot_format
from futurex.ops.fusion import COMPLEX, HALF
from futurex.tree.aval import Aval
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_BYTE = np.dtype(np.uint8)
_word = struct.Struct("=q").unpack


def program_of(node: Node) -> Program | None:
    """The kernel of a region with reductions that generated code can call; None where it is taken apart."""
    if node.op != "fused_reduction" or not node.is_static:
        return None
    avals = [node.aval] if isinstance(node.aval, Aval) else [*node.aval]
    avals += [source.aval for source in node.inputs if isinstance(source.aval, Aval)]
    if len(avals) < len(node.inputs) or not all(aval.static and not aval.weak for aval in avals if aval.shape):
        return None
    if any(each.dtype == HALF or each.dtype in COMPLEX for each in node.attrs["graph"].nodes):
        return None
    try:
        program = reducing(node, 1)
    except ValueError:
        return None
    if program.guarded or program.steps or program.rows or (program.approximate and not has_fma()):
        return None
    return program if all(not scalar.part for scalar in program.scalars) else None


def region(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """The call of the kernel, with a block of words of its own (:class:`futurex.kernels.numba_.program.Program`)."""
    program, f, memory = program_of(node), e.function, e.memory
    assert program is not None
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    outs = [e.fresh(aval.shape, aval.dtype) for aval in avals]
    operands = [_dense(e, inputs[k], node.inputs[k]) for k in program.arrays]
    arrays = [*outs, *operands]
    word = memory.word(len(program.numbers) + len(arrays) + len(program.scalars) + 2)
    for k, number in enumerate(program.numbers, word + 1):
        memory.fixed[k] = number
    first = word + 1 + len(program.numbers)
    for k, array in enumerate(arrays, first):
        if not memory.point(k, array):
            f.do(f"store ptr {array.pointer(f)}, ptr {_at(e, k)}, align 8")
    for k, scalar in enumerate(program.scalars, first + len(arrays)):
        if scalar.position is None:
            packed = struct.pack(f"={slot_format(scalar.slot)}", scalar.number(scalar.node.value))
            (memory.fixed[k],) = _word(packed)
            continue
        value = inputs[scalar.position]
        if isinstance(value, Array):
            value = Scalar(f.load(value.dtype, value.pointer(f)), value.dtype, False)
        f.store(scalar.dtype, values.converted(f, value, scalar.dtype), _at(e, k))
    if program.scratch:
        scratch = e.fresh((program.scratch,), _BYTE)
        memory.point(first + len(arrays) + len(program.scalars), scratch)
        for begin in range(0, HEAD, 8):
            place = f.emit(f"getelementptr i8, ptr {scratch.pointer(f)}, i64 {begin}")
            f.do(f"store i64 0, ptr {place}, align 8")
    e.regions.append((word, program.text((-1,) * len(program.arrays))))
    called = f.emit(f"load ptr, ptr {_at(e, word)}, align 8")
    f.do(f"call void {called}(ptr {_at(e, word + 1)}, i64 0, i64 1)")
    made = [e.unboxed(out) for out in outs]
    return made if isinstance(node.aval, tuple) else made[0]


def _dense(e: Emitter, value: Any, source: Node) -> Array:
    """An operand as the kernel reads it: side by side in C order."""
    array = elementwise.operand(e, value, source.dtype)
    if array.shape != source.shape:
        raise Unsupported("a part of what a region reads")
    return array if array.contiguous else e.copied(array)


def _at(e: Emitter, word: int) -> str:
    return e.function.emit(f"getelementptr i64, ptr %block, i64 {word}")
