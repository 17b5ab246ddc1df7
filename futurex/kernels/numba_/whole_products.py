"""Compiled ``matmul`` of integers and of truth values, which no BLAS multiplies.

NumPy takes a column of the second operand after the other, an element at a time. Here a tile of the result, some rows
by some vectors, stays in registers, and an element of the first operand times a row of the second is added to each. No
order can round what is added, so the last tiles of rows and columns begin early enough to be whole, and make some
elements again.
"""

from __future__ import annotations

import functools
import math

from futurex.kernels.numba_.channels import Written
from futurex.kernels.numba_.code import WRITTEN_OUT, Code, module
from futurex.kernels.numba_.compiler import has_scale
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

_LEAST, _PARALLEL = 1 << 15, 1 << 18
"""Products of elements from which a kernel is worth its call, and another thread."""
_ROWS, _VECTORS = 8, 2
"""Of a tile: in registers beside a row of the second operand."""
_NUMBERS = ("tasks", "rows", "inner", "columns", "groups", "x_step", "y_step")


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a product of matrices, or stacks of them, of one type of integers, or of truth values."""
    if node.dtype.kind not in "iub" or not node.is_static or not node.dtype.isnative:
        return None
    x, y = node.inputs
    if {x.dtype, y.dtype} != {node.dtype} or x.aval.weak or y.aval.weak or min(x.ndim, y.ndim) < 2:
        return None
    (rows, inner), columns = x.shape[-2:], y.shape[-1]
    count = math.prod(node.shape[:-2])
    stacks = [math.prod(each.shape[:-2]) for each in (x, y)]
    if count * rows * inner * columns < _LEAST or any(each not in (1, count) for each in stacks):
        return None
    lanes, vectors = _across(columns, node.dtype.itemsize)
    tall = min(_ROWS, rows)
    groups = -(-rows // tall)
    steps = (rows * inner if stacks[0] > 1 else 0, inner * columns if stacks[1] > 1 else 0)
    text = _text(8 * node.dtype.itemsize, node.dtype.kind == "b", tall, lanes, vectors, may_share())
    threads = threads if may_share() and count * rows * inner * columns >= _PARALLEL else 1
    return Written(node, threads, text, (count * groups, rows, inner, columns, groups, *steps))


def _across(columns: int, size: int) -> tuple[int, int]:
    """Elements of a vector, of so many bytes each, and vectors of a tile.

    >>> _across(3, 8)
    (3, 1)
    """
    lanes = (64 if has_scale() else 32) // size
    return (lanes, min(_VECTORS, columns // lanes)) if columns >= lanes else (columns, 1)


@functools.cache
def _text(bits: int, truth: bool, tall: int, lanes: int, vectors: int, threaded: bool) -> str:
    """The kernel: it is called with :data:`_NUMBERS`, then the addresses of the result and the operands, all dense.
    A task is ``tall`` rows of one product; ``x_step``, ``y_step``: elements from one matrix to the next."""
    code, element = Code(), f"i{bits}"
    kind, align = (f"<{lanes} x {element}>" if lanes > 1 else element), bits // 8
    times, plus = ("and", "or") if truth else ("mul", "add")
    with code.loop("%low", "%high") as (task, _):
        place = code.do(f"sdiv i64 {task}, %groups")
        group = code.multiply(code.do(f"srem i64 {task}, %groups"), str(tall))
        first = code.least(group, code.do(f"sub nsw i64 %rows, {tall}"))
        above = code.add(code.multiply(place, "%rows"), first)
        start = code.add(code.multiply(place, "%x_step"), code.multiply(first, "%inner"))
        lines = [code.at(element, "%x", code.add(start, code.multiply("%inner", str(r)))) for r in range(tall)]
        matrix = code.at(element, "%y", code.multiply(place, "%y_step"))
        out = code.at(element, "%out", code.multiply(above, "%columns"))
        with code.loop("0", "%columns", str(lanes * vectors)) as (column, _):
            left = code.least(column, code.do(f"sub nsw i64 %columns, {lanes * vectors}"))
            begun = [(kind, "zeroinitializer" if lanes > 1 else "0")] * (tall * vectors)
            with code.loop("0", "%inner", carried=begun) as (k, sums):
                row = code.at(element, matrix, code.add(code.multiply(k, "%columns"), left))
                others = [
                    code.do(f"load {kind}, ptr {code.at(element, row, str(v * lanes))}, align {align}")
                    for v in range(vectors)
                ]
                for r, line in enumerate(lines):
                    factor = code.do(f"load {element}, ptr {code.at(element, line, k)}, align {align}")
                    every = code.spread(kind, factor)
                    for v, other in enumerate(others):
                        n = r * vectors + v
                        sums[n] = code.do(f"{plus} {kind} {sums[n]}, {code.do(f'{times} {kind} {every}, {other}')}")
            for r in range(tall):
                target = code.at(element, out, code.add(code.multiply("%columns", str(r)), left))
                for v in range(vectors):
                    to = code.at(element, target, str(v * lanes))
                    code.run(f"store {kind} {sums[r * vectors + v]}, ptr {to}, align {align}")
    parameters = [*(("i64", name) for name in _NUMBERS), *(("ptr", name) for name in ("out", "x", "y"))]
    return WRITTEN_OUT + module(parameters, code, threaded)
