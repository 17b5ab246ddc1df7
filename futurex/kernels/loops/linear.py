"""Products of matrices, norms, and what LAPACK does, by the loops behind NumPy's own functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, elementwise, products, records, stacked
from futurex.kernels.loops.arrays import Array, Size
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.reductions import reduced
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop, inner_loop
from futurex.kernels.loops.values import Scalar
from futurex.ops import minors
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
DOUBLE = np.dtype(np.float64)
_INVALID = 1  # FE_INVALID of x86-64 and AArch64 C libraries


def matmul(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``matmul``, with the vectors that it takes for matrices."""
    if any(isinstance(value, Scalar) for value in inputs):
        raise Unsupported("a product with a number")
    x, y = (elementwise.operand(e, value, node.dtype) for value in inputs)
    return e.unboxed(product(e, x, y, node.dtype))


def matmul_with_bias(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``matmul`` of matrices and a row that is added to each of the result's."""
    x, y, bias = (elementwise.operand(e, value, node.dtype) for value in inputs)
    out = product(e, x, y, node.dtype)
    elementwise.by_loop(e, np.add, [out, bias], out)
    return out


def product(e: Emitter, x: Array, y: Array, dtype: Dtype) -> Array:
    """``x @ y`` of arrays: large matrices of single precision by tiles, stacks of small ones by a kernel for these,
    others by NumPy's loop. Matrices of a stack that are multiplied by the same one are one matrix of all their rows."""
    matrices = len(x.shape) >= len(y.shape) == 2 and x.static and y.static and x.shape[-1] == y.shape[0]
    if matrices and products.fits(math.prod(x.capacity[:-1]), x.capacity[-1], y.capacity[1], dtype):
        if len(x.shape) == 2:
            return products.tiled(e, x, y)
        *above, inner = x.capacity
        flat = arrays.reshaped(e.function, x if x.contiguous else e.copied(x), (math.prod(above), inner))
        return arrays.reshaped(e.function, products.tiled(e, flat, y), (*above, y.capacity[1]))
    made = stacked.stacked(e, x, y, dtype)
    if made is not None:
        return made
    loop = inner_loop(np.matmul, (dtype, dtype), dtype)
    if loop is None:
        raise Unsupported(f"products of dtype {dtype}")
    f = e.function
    arrays.broadcast(f, [(x.shape[-1],), (y.shape[-2 if len(y.shape) > 1 else -1],)])
    if (x.shape[-1] == 1) != (y.shape[-2 if len(y.shape) > 1 else -1] == 1):
        raise Unsupported("inner extents of which one is not known")
    rows = x.shape[-2:-1]
    columns = y.shape[-1:] if len(y.shape) > 1 else ()
    stack = arrays.broadcast(f, [x.shape[:-2], y.shape[:-2]])
    out = e.fresh((*stack, *rows, *columns), dtype)
    core: list[Size] = [*(rows or (1,)), x.shape[-1], *(columns or (1,))]
    steps = [
        x.strides[-2] if rows else 0, x.strides[-1], y.strides[-2] if columns else y.strides[-1],
        y.strides[-1] if columns else 0, out.strides[len(stack)] if rows else 0, out.strides[-1] if columns else 0,
    ]  # fmt: skip
    strides = [*(arrays.broadcast_strides(f, _stack(each), stack) for each in (x, y)), out.strides[: len(stack)]]
    records.run_core(e, loop, [x, y, out], stack, strides, core, steps)
    return out


def _stack(array: Array) -> Array:
    """The dimensions before those of a matrix."""
    return replace(array, shape=array.shape[:-2], strides=array.strides[:-2], owned=False)


def norm(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """The norm of all elements, the root of their product with themselves; along an axis, of the sum of squares."""
    (x,) = inputs
    dtype, (ord, axis) = node.dtype, (node.attrs["ord"], node.attrs["axis"])
    if isinstance(x, Scalar) or x.dtype != dtype or dtype.kind != "f" or ord not in (None, 1, 2, np.inf):
        raise Unsupported("a norm of its own kind")
    if ord in (1, np.inf):
        if len(x.shape) != 1 or (axis is not None and node.attrs["keepdims"]):
            raise Unsupported("a norm of matrices")
        sizes = e.fresh(x.shape, dtype)
        elementwise.by_loop(e, np.absolute, [x], sizes)
        return e.unboxed(reduced(e, "sum" if ord == 1 else "max", sizes, (0,), dtype, keepdims=False))
    if axis is None:
        if node.attrs["keepdims"] or (len(x.shape) > 1 and (ord == 2 or not x.contiguous)):
            raise Unsupported("a norm of its own kind")
        x = x if x.contiguous else e.copied(x)
        flat = x if len(x.shape) == 1 else arrays.reshaped(e.function, x, (x.nbytes // dtype.itemsize,))
        squares = product(e, flat, flat, dtype)
    else:
        if isinstance(axis, tuple) and len(axis) != 1:
            raise Unsupported("a norm of matrices")
        along = (axis[0] if isinstance(axis, tuple) else axis) % len(x.shape)
        squared = e.fresh(x.shape, dtype)
        elementwise.by_loop(e, np.multiply, [x, x], squared)
        squares = reduced(e, "sum", squared, (along,), dtype, node.attrs["keepdims"])
    root = e.fresh(squares.shape, dtype)
    elementwise.by_loop(e, np.sqrt, [squares], root)
    return e.unboxed(root)


def solve(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``solve``; like all of LAPACK in double precision, as NumPy calls it."""
    a, b = (double(e, value) for value in inputs)
    vector = len(b.shape) == 1
    loop = lapack("solve1" if vector else "solve", 2, 1)
    stack = arrays.broadcast(e.function, [a.shape[:-2], () if vector else b.shape[:-2]])
    out = e.fresh((*stack, *(b.shape if vector else b.shape[-2:])), DOUBLE)
    wide = 1 if vector else 2
    core = [a.shape[-1]] if vector else [a.shape[-1], b.shape[-1]]
    steps = [*a.strides[-2:], *b.strides[-wide:], *out.strides[-wide:]]
    checked(e, loop, [a, b, out], stack, [2, wide, wide], core, steps)
    return elementwise.operand(e, out, node.dtype)


def inverse(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``inv``, and ``cholesky`` of the lower triangle."""
    a = double(e, inputs[0])
    if node.attrs.get("upper"):
        raise Unsupported("the upper triangle")
    loop = lapack("inv" if node.op == "inv" else "cholesky_lo", 1, 1)
    out = e.fresh(a.shape, DOUBLE)
    checked(e, loop, [a, out], a.shape[:-2], [2, 2], [a.shape[-1]], [*a.strides[-2:], *out.strides[-2:]])
    return elementwise.operand(e, out, node.dtype)


def determinant(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``det`` and ``slogdet``."""
    a = double(e, inputs[0])
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    loop = lapack(node.op, 1, len(avals))
    outs = [e.fresh(a.shape[:-2], DOUBLE) for _ in avals]
    strides = [a.strides[:-2], *(out.strides for out in outs)]
    records.run_core(e, loop, [a, *outs], a.shape[:-2], strides, [a.shape[-1]], a.strides[-2:])
    found = [e.unboxed(elementwise.operand(e, out, aval.dtype)) for out, aval in zip(outs, avals, strict=True)]
    return found if isinstance(node.aval, tuple) else found[0]


def cofactor(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``cofactor`` of one little matrix, whose entries are numbers in registers."""
    a = double(e, inputs[0])
    extent = a.capacity[-1]
    if len(a.shape) != 2 or not 0 < extent <= minors.MOST:
        raise Unsupported("cofactors of matrices of their own kind")
    f, out = e.function, e.fresh(a.shape, DOUBLE)
    first, target = a.pointer(f), out.pointer(f)

    def entry(i: int, j: int) -> _Number:
        at = f.emit(f"getelementptr i8, ptr {first}, i64 {i * a.strides[0] + j * a.strides[1]}")
        return _Number(f, f.load(DOUBLE, at))

    for (i, j), value in minors.cofactors(extent, functools.cache(entry), _Number(f, "1.0")).items():
        at = f.emit(f"getelementptr i8, ptr {target}, i64 {i * out.strides[0] + j * out.strides[1]}")
        f.store(DOUBLE, value.register, at)
    return elementwise.operand(e, out, node.dtype)


@dataclass(frozen=True)
class _Number:
    """A double that can be computed with."""

    function: Function
    register: str

    def _made(self, operation: str, *operands: str) -> _Number:
        return _Number(self.function, self.function.emit(f"{operation} double {', '.join(operands)}"))

    def __mul__(self, other: _Number) -> _Number:
        return self._made("fmul", self.register, other.register)

    def __add__(self, other: _Number) -> _Number:
        return self._made("fadd", self.register, other.register)

    def __sub__(self, other: _Number) -> _Number:
        return self._made("fsub", self.register, other.register)

    def __neg__(self) -> _Number:
        return self._made("fneg", self.register)


def singular(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``svd`` with its vectors."""
    a = double(e, inputs[0])
    (m, n), full = a.capacity[-2:], node.attrs["full_matrices"]
    if node.attrs["hermitian"] or not m or not n:
        raise Unsupported("singular values of a matrix of its own kind")
    p, stack = min(m, n), a.shape[:-2]
    loop = lapack("svd_f" if full else "svd_s", 1, 3)
    shapes = (m, m if full else p), (p,), (n if full else p, n)
    outs = [e.fresh((*stack, *shape), DOUBLE) for shape in shapes]
    steps = [step for each, wide in zip((a, *outs), (2, 2, 1, 2), strict=True) for step in each.strides[-wide:]]
    checked(e, loop, [a, *outs], stack, [2, 2, 1, 2], [m, n, p], steps)
    avals: Any = node.aval
    return [elementwise.operand(e, out, aval.dtype) for out, aval in zip(outs, avals, strict=True)]


def double(e: Emitter, value: Any) -> Array:
    """A matrix, or a stack of them, in double precision."""
    if not isinstance(value, Array) or not value.static or value.dtype.kind == "c":
        raise Unsupported("a matrix of its own kind")
    return elementwise.operand(e, value, DOUBLE)


def lapack(name: str, inputs: int, outputs: int) -> InnerLoop:
    """What NumPy's functions call, of so many doubles and with so many results."""
    ufunc = getattr(getattr(np.linalg, "_umath_linalg", None), name, None)
    loop = inner_loop(ufunc, (DOUBLE,) * inputs, *(DOUBLE,) * outputs) if isinstance(ufunc, np.ufunc) else None
    if loop is None:
        raise Unsupported(name)
    return loop


def checked(
    e: Emitter, loop: InnerLoop, operands: list[Array], stack: Sequence[Size], cores: list[int],
    core: Sequence[Size], steps: Sequence[int],
) -> None:  # fmt: skip
    """Run it; a singular matrix shows in the processor's flag, as NumPy's own functions find out."""
    f = e.function
    f.declare("declare i32 @feclearexcept(i32)")
    f.declare("declare i32 @fetestexcept(i32)")
    f.emit(f"call i32 @feclearexcept(i32 {_INVALID})")
    strides = []
    for array, wide in zip(operands, cores, strict=True):
        depth = len(array.shape) - wide
        view = replace(array, shape=array.shape[:depth], strides=array.strides[:depth], owned=False)
        strides.append(arrays.broadcast_strides(f, view, tuple(stack)))
    records.run_core(e, loop, operands, stack, strides, core, steps)
    flag = f.emit(f"call i32 @fetestexcept(i32 {_INVALID})")
    f.fail_if(f.emit(f"icmp ne i32 {flag}, 0"))
