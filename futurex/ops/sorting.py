"""Sorting: its derivative puts every cotangent back where its element came from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.counted import stable_order
from futurex.ops.reduce import along
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op


def _cost(x: Aval, axis: int, **_: Any) -> Cost:
    return Cost(x.size * math.log2(max(x.shape[axis], 2)), 2.0 * x.nbytes)


def _ranked(values: Node, axis: int) -> Node:
    return apply("argsort", values, axis=axis, kind="stable")


def _sort_rule(g: Node, out: Node, x: Node, axis: int, kind: str | None) -> tuple[Node]:
    return (apply("add_along_axis", g, _ranked(x, axis), input_shape=x.shape, axis=axis),)


def _partition_rule(g: Node, out: Node, x: Node, axis: int, kth: tuple[int, ...]) -> tuple[Node]:
    """The result holds the elements of the input in another order: both are matched by rank."""
    in_order = apply("take_along_axis", g, _ranked(out, axis), axis=axis)
    return (apply("add_along_axis", in_order, _ranked(x, axis), input_shape=x.shape, axis=axis),)


def _samples(order: int, **attrs: Any) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample((rng.normal(size=(3, 5)),), {"axis": 1, **attrs}, order=order)
        yield Sample((rng.normal(size=(4, 2)),), {"axis": 0, **attrs}, order=order)
        yield Sample((rng.integers(0, 3, (3, 4)),), {"axis": 1, **attrs}, order=0)

    return samples


def _argsort(x: Any, axis: int, kind: Any) -> Any:
    found = stable_order(x, axis) if kind in ("stable", "mergesort") else None
    return np.argsort(x, axis, kind) if found is None else found


op(
    "sort", lambda x, axis, kind: np.sort(x, axis, kind), aval=lambda x, axis, kind: x, vjp=_sort_rule,
    factors=along, cost=_cost, samples=_samples(2, kind=None),
)  # fmt: skip
op(
    "argsort", _argsort,
    aval=lambda x, axis, kind: Aval(x.shape, np.dtype(np.intp)), factors=along, cost=_cost,
    samples=_samples(0, kind="stable"),
)  # fmt: skip
op(
    "partition", lambda x, axis, kth: np.partition(x, kth, axis), aval=lambda x, axis, kth: x, vjp=_partition_rule,
    factors=along, samples=_samples(2, kth=(1,)),
)  # fmt: skip
