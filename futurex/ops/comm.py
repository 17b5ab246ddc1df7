"""Communication between the localities of a mesh, as nodes.

The partitioner inserts them into the graph of one rank after differentiation, so they need no derivative of their
own: the duality of replication and summation is already in the graph that is partitioned. The tags of a graph are
unique and equal on all ranks; they name the exchange and order it. Every rank must start every one of them, so no
pass may drop one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node
from futurex.tree.record import op

COMMUNICATION = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "permute"})
"""The ops whose results come from other ranks: a plan starts them and goes on with what else is ready.

The first three take any number of arrays of one dtype at once; ``axes`` and ``sizes`` then have an entry for each.
"""

REDUCTIONS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""What ``reduce`` means, for two arrays of one dtype."""


def communications(graph: Graph) -> list[Node]:
    """The communication nodes of a rank's graph in the order of their tags, in which every rank starts them."""
    return sorted((node for node in graph.nodes if node.op in COMMUNICATION), key=lambda node: int(node.attrs["tag"]))


def _needs_mesh(*_: Any, tag: int, **__: Any) -> NoReturn:
    raise RuntimeError(
        f"communication {tag} reaches other ranks, and this graph is one rank's part of a program on a mesh: run its "
        "plan with a communicator, or all ranks in one process with futurex.partition.virtual.run"
    )


def _check_reduction(name: str, reduce: str) -> None:
    if reduce not in REDUCTIONS:
        raise ValueError(f"{name} combines by {', '.join(REDUCTIONS)}; {reduce!r} is none of them")


def _all_reduce_aval(*xs: Aval, reduce: str, tag: int, codec: str = "") -> tuple[Aval, ...]:
    _check_reduction("all_reduce", reduce)
    return tuple(Aval(x.shape, x.dtype) for x in xs)


def _all_gather_aval(*xs: Aval, axes: Iterable[int], sizes: Iterable[Iterable[int]], tag: int) -> tuple[Aval, ...]:
    return tuple(_joined(x, axis, tuple(each)) for x, axis, each in zip(xs, axes, sizes, strict=True))


def _joined(x: Aval, axis: int, sizes: tuple[int, ...]) -> Aval:
    if x.shape[axis] not in sizes:
        raise ValueError(
            f"all_gather along axis {axis} joins parts of {sizes} rows; an array of shape {x.shape} is none of them"
        )
    return Aval((*x.shape[:axis], sum(sizes), *x.shape[axis + 1 :]), x.dtype)


def _reduce_scatter_aval(
    *xs: Aval, axes: Iterable[int], sizes: Iterable[Iterable[int]], rank: int, reduce: str, tag: int
) -> tuple[Aval, ...]:
    _check_reduction("reduce_scatter", reduce)
    return tuple(_part(x, axis, tuple(each), rank) for x, axis, each in zip(xs, axes, sizes, strict=True))


def _part(x: Aval, axis: int, sizes: tuple[int, ...], rank: int) -> Aval:
    if x.shape[axis] != sum(sizes):
        raise ValueError(f"reduce_scatter cuts axis {axis} of {x.shape} into parts of {sizes} rows, which do not fit")
    return Aval((*x.shape[:axis], sizes[rank], *x.shape[axis + 1 :]), x.dtype)


def _broadcast_aval(x: Aval, root: int, tag: int) -> Aval:
    return Aval(x.shape, x.dtype)


def _all_to_all_aval(x: Aval, ranks: int, tag: int) -> Aval:
    if not x.shape or x.shape[0] % ranks:
        raise ValueError(f"all_to_all cuts the first axis of {x.shape} into {ranks} equal blocks, which does not fit")
    return Aval(x.shape, x.dtype)


def _permute_aval(x: Aval, pairs: Iterable[tuple[int, int]], tag: int) -> Aval:
    pairs = tuple(pairs)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise ValueError(f"permute sends from and to every rank once at most, not along {tuple(pairs)}")
    return Aval(x.shape, x.dtype)


op("all_reduce", _needs_mesh, aval=_all_reduce_aval)
op("all_gather", _needs_mesh, aval=_all_gather_aval)
op("reduce_scatter", _needs_mesh, aval=_reduce_scatter_aval)
op("broadcast", _needs_mesh, aval=_broadcast_aval)
op("all_to_all", _needs_mesh, aval=_all_to_all_aval)
op("permute", _needs_mesh, aval=_permute_aval)
