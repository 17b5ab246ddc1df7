"""Systems of equations whose matrix is a triangle: what derivatives of factorizations are made of.

The other half of the matrix is not read. The right side is a stack of matrices, of columns where the triangle stands on
the left of the unknown, of rows where it stands on the right. A backend that finds the function in BLAS solves them by
substitution; the reference takes NumPy's general solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import unbroadcast
from futurex.ops.matrices import element_bytes, matrix, part, stacks, swap_last
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op


def solve_triangular(a: Node, b: Node, *, lower: bool, right: bool = False) -> Node:
    """``inv(triangle of a) @ b``, or ``b @ inv(triangle of a)`` if ``right``."""
    return apply("solve_triangular", a, b, lower=lower, right=right)


def half_of(x: Node) -> bool | None:
    """Is it the lower triangle of a factor that holds its numbers? None where both may."""
    if x.op == "cholesky":
        return not x.attrs["upper"]
    if x.op == "item" and x.inputs[0].op == "qr" and x.inputs[0].attrs["mode"] != "raw":
        return False if x.attrs["index"] == 1 else None
    if x.op == "conjugate":
        return half_of(x.inputs[0])
    half = half_of(x.inputs[0]) if is_turned(x) else None
    return None if half is None else not half


def is_turned(x: Node) -> bool:
    """Is it a transpose of matrices?"""
    axes = x.attrs["axes"] if x.op == "transpose" else None
    if x.op == "load" and len(x.inputs) == 1 and [step[0] for step in x.attrs["chain"]] == ["transpose"]:
        axes = x.attrs["chain"][0][1]
    return axes is not None and x.ndim > 1 and tuple(axes) == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def _solved(a: Any, b: Any, lower: bool, right: bool) -> Any:
    half = np.tril(a) if lower else np.triu(a)
    if right:
        return np.swapaxes(np.linalg.solve(np.swapaxes(half, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)
    return np.linalg.solve(half, b)


def _aval(a: Aval, b: Aval, lower: bool, right: bool) -> Aval:
    inner = b.shape[-1 if right else -2]
    if a.shape[-1] != a.shape[-2] or inner != a.shape[-1]:
        raise ValueError(f"a triangle of {a.shape[-2:]} and a right side of {b.shape[-2:]} do not match")
    dtype = np.linalg.solve(np.ones((1, 1), a.dtype), np.ones((1, 1), b.dtype)).dtype
    return Aval((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), dtype)


def _rule(g: Node, out: Node, a: Node, b: Node, lower: bool, right: bool) -> tuple[Node, Node]:
    db = solve_triangular(swap_last(a), g, lower=not lower, right=right)
    da = swap_last(out) @ db if right else db @ swap_last(out)
    return unbroadcast(part(-da, lower), a.aval), unbroadcast(db, b.aval)


def _batch(size: int, batched: Sequence[bool], a: Node, b: Node, **attrs: Any) -> Node:
    stack = max(x.ndim - has for x, has in zip((a, b), batched, strict=True))
    a, b = (batching.widened(x, stack) if has else x for x, has in zip((a, b), batched, strict=True))
    return apply("solve_triangular", a, b, **attrs)


def _factors(a: Aval, b: Aval, lower: bool, right: bool) -> str:
    first, second, out = stacks(a, b)
    return f"{first} !m !n, {second} k !m -> {out} k !n" if right else f"{first} !m !n, {second} !n k -> {out} !m k"


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for lower in (True, False):
        for right in (False, True):
            for a, b in (((3, 3), (3, 2)), ((2, 3, 3), (1, 3, 2)), ((2, 2), (3, 2, 4)), ((20, 2, 2), (20, 2, 2))):
                shape = (*b[:-2], b[-1], b[-2]) if right else b
                sides = rng.normal(size=shape)
                yield Sample((matrix(rng, *a), sides), {"lower": lower, "right": right}, order=2 if len(a) == 2 else 1)
            attrs = {"lower": lower, "right": right}
            yield Sample((matrix(rng, 2, 2, dtype=np.complex128), matrix(rng, 2, 2, dtype=np.complex128)), attrs)
            yield Sample((matrix(rng, 2, 2, dtype=np.float32), matrix(rng, 2, 2, dtype=np.float32)), attrs, order=0)
            yield Sample((matrix(rng, 2, 2), matrix(rng, 2, 2, dtype=np.complex64)), attrs, order=0)
            yield Sample((np.zeros((0, 0)), np.zeros((0, 0))), attrs, order=0)


op(
    "solve_triangular", _solved, aval=_aval, vjp=_rule, factors=_factors, fails=True, batch=_batch, samples=_samples,
    room=lambda a, b, **_: element_bytes(a) * (2 * a.shape[-1] ** 2 + math.prod(b.shape[-2:])),
)  # fmt: skip
