"""Triangular systems in compiled loops, by substitution: of so few rows that a call of a library takes longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from futurex.kernels.loops import elementwise
from futurex.kernels.loops.arrays import Array, plus, times
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numba_.scalar import register_type
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_MOST = 64
"""Rows; of more, substitution one by one would take longer than LAPACK's blocks."""


def solve(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """``solve_triangular`` of one matrix: what becomes known is taken off the rest."""
    if any(not isinstance(value, Array) or not value.static or len(value.shape) != 2 for value in inputs):
        raise Unsupported("a triangle of its own kind")
    if node.dtype.kind != "f" or node.dtype.itemsize < 4 or inputs[0].capacity[0] > _MOST:
        raise Unsupported("a triangle of its own kind")
    a = elementwise.operand(e, inputs[0], node.dtype)
    f, lower, size, dtype = e.function, node.attrs["lower"], a.capacity[0], node.dtype
    out = e.fresh(inputs[1].shape, dtype)
    elementwise.assign(e, out, inputs[1])
    matrix, steps, (rows, columns) = a.strides, out.strides, out.capacity
    if node.attrs["right"]:
        matrix, steps, lower, columns = matrix[::-1], steps[::-1], not lower, rows
    kind, first, target = register_type(dtype), a.pointer(f), out.pointer(f)

    def at(base: str, strides: Sequence[int], row: str, column: str) -> str:
        offset = plus(f, times(f, row, str(strides[0])), times(f, column, str(strides[1])))
        return f.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def place(step: str) -> str:
        return step if lower else f.emit(f"sub i64 {size - 1}, {step}")

    def pivot_of(row: str) -> str:
        found = f.load(dtype, at(first, matrix, row, row))
        f.fail_if(f.emit(f"fcmp oeq {kind} {found}, 0.0"))
        return found

    def divided(row: str, column: str, pivot: str) -> str:
        goal = at(target, steps, row, column)
        quotient = f.emit(f"fdiv {kind} {f.load(dtype, goal)}, {pivot}")
        f.store(dtype, quotient, goal)
        return quotient

    def taken_off(row: str, column: str, factor: str, known: str) -> None:
        goal = at(target, steps, row, column)
        term = f.emit(f"fmul {kind} {factor}, {known}")
        f.store(dtype, f.emit(f"fsub {kind} {f.load(dtype, goal)}, {term}"), goal)

    @contextmanager
    def others(step: str) -> Iterator[str]:
        """What is not known yet behind a step."""
        with f.counted(f.emit(f"sub i64 {size - 1}, {step}")) as further:
            yield place(f.emit(f"add i64 {f.emit(f'add i64 {step}, 1')}, {further}"))

    if node.attrs["right"]:  # rows of the result one after the other: each lies side by side
        with f.counted(columns) as column, f.counted(size) as step:
            row = place(step)
            known = divided(row, column, pivot_of(row))
            with others(step) as other:
                taken_off(other, column, f.load(dtype, at(first, matrix, other, row)), known)
        return out
    with f.counted(size) as step:
        row = place(step)
        pivot = pivot_of(row)
        with f.counted(columns) as column:
            divided(row, column, pivot)
        with others(step) as other:
            factor = f.load(dtype, at(first, matrix, other, row))
            with f.counted(columns) as column:
                taken_off(other, column, factor, f.load(dtype, at(target, steps, row, column)))
    return out
