"""``dot`` and ``inner`` of arrays with more than two dimensions, which NumPy sums in another order than ``matmul``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.shape import dims
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op


def _as_matmul(x: Node, y: Node, axis: int) -> Node:
    """The product over the last axis of ``x`` and ``axis`` of ``y`` as one of matrices."""
    axis %= y.ndim
    rest = [k for k in range(y.ndim) if k != axis]
    rows, columns = x.shape[:-1], tuple(y.shape[k] for k in rest)
    a = apply("reshape", x, shape=(math.prod(rows), x.shape[-1]))
    b = apply("reshape", apply("transpose", y, axes=(axis, *rest)), shape=(y.shape[axis], math.prod(columns)))
    return apply("reshape", apply("matmul", a, b), shape=rows + columns)


def _aval(x: Aval, y: Aval, axis: int) -> Aval:
    inner = (x.shape[-1], y.shape[axis])
    if is_static(inner) and inner[0] != inner[1]:
        raise ValueError(
            f"shapes {x.shape} and {y.shape} not aligned: {x.shape[-1]} (dim {x.ndim - 1}) != {y.shape[axis]} "
            f"(dim {axis % y.ndim})"
        )
    dtype = np.dot(np.zeros((0, 0), x.dtype), np.zeros((0, 0), y.dtype)).dtype
    return Aval(x.shape[:-1] + tuple(n for k, n in enumerate(y.shape) if k != axis % y.ndim), dtype)


def _factors(x: Aval, y: Aval, axis: int) -> str:
    left, right = dims(x.ndim - 1, "i"), dims(y.ndim, "j")
    right[axis] = "k"
    return f"{' '.join([*left, 'k'])}, {' '.join(right)} -> {' '.join(left + [j for j in right if j != 'k'])}"


def _cost(x: Aval, y: Aval, axis: int) -> Cost:
    out = _aval(x, y, axis)
    return Cost(2.0 * out.size * x.shape[-1], x.nbytes + y.nbytes + out.nbytes)


def _define(name: str, function: Any, axis: int) -> None:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        inner = (4, 3) if axis == -2 else (3, 4)
        yield Sample((rng.normal(size=(2, 3, 4)), rng.normal(size=inner)))
        yield Sample((rng.normal(size=(2, 4)), rng.normal(size=(2, *inner))))
        yield Sample((rng.normal(size=(2, 3, 4)), rng.normal(size=4)))

    def summed(y: Any) -> int:
        return max(axis, -y.ndim)

    op(
        name, function, aval=lambda x, y: _aval(x, y, summed(y)), factors=lambda x, y: _factors(x, y, summed(y)),
        decompose=lambda x, y: _as_matmul(x, y, summed(y)), cost=lambda x, y: _cost(x, y, summed(y)), samples=samples,
    )  # fmt: skip


_define("dot", np.dot, -2)
_define("inner", np.inner, -1)
