"""What one node does to placements: which inputs it needs in order to work on tiles, and what it then gives.

A step is a pair (placement each input must have, placement of the result). Along which dimension to work is decided
here, on one mesh axis, from the op's record; where inputs must move for it is decided by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from futurex.ops.random import COUNTER_OPS
from futurex.partition.factors import Recipe, recipe_of
from futurex.partition.indexing import adds_rows
from futurex.partition.mesh import REPLICATE, Partial, Placement, Shard
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Made = Placement | tuple[Placement, ...]
Demands = tuple[Placement, ...]
Step = tuple[Demands, Made]

# Ops that mean each locality's own part, whatever they would be of the whole: no dimension must be whole for them.
LOCAL = frozenset({"local_batch_norm", "local_batch_norm_grad"})
# Ops whose decomposition serves their derivatives alone: it rounds, overflows and meets NaN otherwise than they do.
DIFFERENTIATED = frozenset({"quantile"})
# Ops that only move elements of their first input: they commute with every combination of partial results.
MOVES = frozenset({"reshape", "transpose", "load", "flip", "stop_gradient", "contiguous"})
# Ops that are additive in all their inputs together.
ADDITIVE = frozenset({"add", "subtract", "negative", "positive", "conjugate", "real", "imag", "sum"})


def step(node: Node, ins: Sequence[Placement]) -> Step:
    """How a node works on inputs that lie as ``ins`` says; what it cannot use as it lies it demands replicated."""
    result: Step | None = None
    if not node.is_static:
        return whole(node)  # what only the run knows cannot be cut beforehand
    if node.op == "after":
        return tuple(ins), ins[0]  # the others are waited for, wherever they lie
    if any(isinstance(placement, Shard) for placement in ins):
        result = _reshape(node, ins[0]) if node.op == "reshape" else _tiles(node, ins)
    elif any(isinstance(placement, Partial) for placement in ins):
        result = _partials(node, ins)
    return result or whole(node)


def whole(node: Node) -> Step:
    """The step that needs everything and gives everything."""
    made: Made = (REPLICATE,) * len(node.aval) if isinstance(node.aval, tuple) else REPLICATE
    return (REPLICATE,) * len(node.inputs), made


def must_decompose(node: Node, ins: Sequence[Placement]) -> bool:
    """True where an op cannot work on tiles but the simpler ops that it stands for can.

    A sharded dimension must be whole for it, or it holds sub-graphs, whose shapes are those of whole arrays.
    """
    sharded = any(isinstance(placement, Shard) for placement in ins)
    if node.record.decompose is None or node.op in DIFFERENTIATED or not node.is_static or not sharded:
        return False
    if any(isinstance(value, Graph) for value in node.attrs.values()):
        return True
    recipe = recipe_of(node)
    return recipe is None or any(
        not recipe.shardable(names[placement.dim])
        for names, placement in zip(recipe.inputs, ins, strict=True)
        if isinstance(placement, Shard)
    )


def _tiles(node: Node, ins: Sequence[Placement]) -> Step | None:
    """Work along the factor that leaves most bytes where they are."""
    recipe = adds_rows(node) or recipe_of(node)
    if recipe is None:
        return None
    if node.op in LOCAL:
        recipe = replace(recipe, whole=frozenset())
    weights: dict[tuple[str, int], int] = {}
    for source, names, placement in zip(node.inputs, recipe.inputs, ins, strict=True):
        if isinstance(placement, Shard) and recipe.shardable(names[placement.dim]):
            key = names[placement.dim], placement.unit
            weights[key] = weights.get(key, 0) + source.aval.nbytes
    if not weights:
        return None
    name, unit = max(weights, key=lambda key: weights[key])
    made = tuple(_along(names, name, unit) or Partial(node.record.reduce) for names in recipe.outs)
    if any(isinstance(placement, Partial) for placement in made) and not _combines(node):
        return None
    demands = tuple(_along(names, name, unit) or REPLICATE for names in recipe.inputs)
    return demands, made if isinstance(node.aval, tuple) else made[0]


def _along(names: Sequence[str], name: str, unit: int) -> Shard | None:
    return Shard(names.index(name), unit) if name in names else None


def _combines(node: Node) -> bool:
    """True where results of tiles combine to the whole result (complex numbers have no maximum elementwise)."""
    outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    kinds = "biuf" if node.record.reduce in ("max", "min") else "biufc"
    return all(aval.dtype.kind in kinds for aval in outs)


def _reshape(node: Node, placement: Placement) -> Step | None:
    assert isinstance(placement, Shard)  # the only input is sharded
    moved = regroup(node.inputs[0].shape, placement, node.shape)
    return None if moved is None else ((placement,), moved)


def regroup(shape: tuple[int, ...], shard: Shard, into: tuple[int, ...]) -> Shard | None:
    """Where a shard lies after a reshape in C order, None where its parts are not tiles of the new shape.

    >>> regroup((8, 3), Shard(0), (24,))
    Shard(dim=0, unit=3)
    """
    if 0 in shape:
        return None
    before = math.prod(shape[: shard.dim])
    group = shard.unit * math.prod(shape[shard.dim + 1 :])
    for dim in range(len(into)):
        behind = math.prod(into[dim + 1 :])
        if math.prod(into[:dim]) == before and group % behind == 0:
            return Shard(dim, group // behind)
    return None


def _partials(node: Node, ins: Sequence[Placement]) -> Step | None:
    """Stay partial where the op commutes with the combination; never on more bytes than came in."""
    if isinstance(node.aval, tuple) or node.dtype.kind not in "iufc":
        return None
    partial = [source for source, placement in zip(node.inputs, ins, strict=True) if isinstance(placement, Partial)]
    if node.aval.nbytes > max(source.aval.nbytes for source in partial):
        return None
    if node.op in MOVES and partial == [node.inputs[0]]:
        return tuple(ins), ins[0]
    sums = all(_wraps_alike(source, node) for source in partial) and {*ins} <= {Partial("sum"), REPLICATE}
    if sums and (scales(node, partial) or (node.op in ADDITIVE and len(partial) == len(ins))):
        return tuple(ins), Partial("sum")
    return None


def _wraps_alike(term: Node, node: Node) -> bool:
    """Does what overflows in a rank's term overflow in what the node makes of it? In a wider dtype it would not."""
    return term.dtype == node.dtype or (term.dtype.kind == "c" and node.op in ("real", "imag"))


def scales(node: Node, partial: Sequence[Node]) -> bool:
    """True for a product with, or a quotient by, a finite constant that is not zero.

    Any other factor might make NaN of the part of one rank alone.
    """
    if node.op == "multiply" and len(partial) == 1:
        factor = node.inputs[0] if node.inputs[1] is partial[0] else node.inputs[1]
    elif node.op == "divide" and partial == [node.inputs[0]]:
        factor = node.inputs[1]
    else:
        return False
    return factor.op == "const" and bool(np.all(np.isfinite(factor.value) & (factor.value != 0)))


def sliced(node: Node, wanted: Placement) -> Demands | None:
    """What a replicated node needs in order to make just the wanted tile; None where cutting the result is as good."""
    if not isinstance(wanted, Shard):
        return None
    if node.op == "iota":
        return None if node.attrs["axis"] == wanted.dim else ()
    if node.op == "full":
        return (REPLICATE,) if node.inputs[0].size == 1 else None
    if node.op == "reshape":
        moved = regroup(node.shape, wanted, node.inputs[0].shape)
        return None if moved is None else (moved,)
    if node.record.elementwise or node.op in COUNTER_OPS or node.op in ("broadcast_to", "transpose"):
        return _sliced_inputs(recipe_of(node), wanted)
    return None


def _sliced_inputs(recipe: Recipe | None, wanted: Shard) -> Demands | None:
    if recipe is None or not recipe.shardable(name := recipe.outs[0][wanted.dim]):
        return None
    return tuple(_along(names, name, wanted.unit) or REPLICATE for names in recipe.inputs)
