"""The graph of one rank: local shapes, its share of replicated arrays, and the exchanges that a tiling asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.ops.random import COUNTER_OPS
from futurex.partition.factors import where
from futurex.partition.mesh import REPLICATE, Partial, PartitionError, Placement, Shard, local_shape
from futurex.partition.propagate import Made, Tiling
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, build, const, item, param
from futurex.tree.source import at


def lower(tiling: Tiling, parts: int, rank: int) -> Graph:
    """What ``rank`` of ``parts`` runs.

    Raises PartitionError where an op gives another shape than its tiling rule says.
    """
    return _Lowering(tiling, parts, rank).graph()


class _Lowering:
    """Values of one rank, by node of the whole graph and placement."""

    def __init__(self, tiling: Tiling, parts: int, rank: int) -> None:
        self.tiling, self.parts, self.rank = tiling, parts, rank
        self.local: dict[tuple[Node, Made], Node] = {}

    def graph(self) -> Graph:
        whole = self.tiling.graph
        params = [self._param(node) for node in whole.params]
        # Ids grow with creation: inputs come before users, and effects stay in program order.
        for node in sorted(whole.nodes, key=lambda node: node.id):
            for made in self.tiling.versions[node]:
                if (node, made) not in self.local:
                    with at(node.src):
                        self.local[node, made] = self._make(node, made)
        outs = [self._value(node, placement) for node, placement in zip(whole.outs, self.tiling.outs, strict=True)]
        return Graph(params, outs, f"{whole.name}_{self.rank}_of_{self.parts}")

    def _param(self, node: Node) -> Node:
        aval = self._local_aval(node.aval, self.tiling.made[node])
        made = node if aval == node.aval else param(aval, node.attrs["name"])
        self.local[node, self.tiling.made[node]] = made
        return made

    def _local_aval(self, aval: Any, made: Made) -> Any:
        if isinstance(made, tuple):
            return tuple(self._local_aval(each, placement) for each, placement in zip(aval, made, strict=True))
        shape = local_shape(aval.shape, made, self.parts, self.rank)
        return aval if shape == aval.shape else Aval(shape, aval.dtype, aval.weak)

    def _make(self, node: Node, made: Made) -> Node:
        if node.op == "item":
            source = node.inputs[0]
            return item(self.local[source, self.tiling.made[source]], node.attrs["index"])
        demands = self.tiling.versions[node][made]
        inputs = [self._value(source, placement) for source, placement in zip(node.inputs, demands, strict=True)]
        aval = self._local_aval(node.aval, made)
        if (
            all(source.aval == local.aval for source, local in zip(node.inputs, inputs, strict=True))
            and aval == node.aval
        ):
            return build(node.record, tuple(self._shifted(node, made, inputs)), node.attrs, aval, node.src)
        return self._tile(node, made, self._shifted(node, made, inputs), aval)

    def _tile(self, node: Node, made: Made, inputs: list[Node], aval: Any) -> Node:
        attrs = dict(node.attrs)
        shape_attr = "shape" if node.op == "iota" else node.record.shape_attr
        if shape_attr:
            attrs[shape_attr] = aval.shape
        over = self.tiling.versions[node][made][0] if inputs else REPLICATE
        if node.op in ("max", "min") and isinstance(made, Partial) and isinstance(over, Shard):
            inputs = [_not_empty(inputs[0], over.dim, node.op)]
        try:
            local = apply(node.op, *inputs, **attrs)
        except (TypeError, ValueError, IndexError) as error:
            raise PartitionError(
                f"{node.op} cannot run on the tile that rank {self.rank} of {self.parts} has of its inputs: {error}"
                f"{where(node)}; the tiling rule in the op's record does not fit"
            ) from error
        if local.aval != aval:
            raise PartitionError(
                f"the tiling rule of {node.op} says that rank {self.rank} of {self.parts} makes {aval!r}, and it makes "
                f"{local.aval!r}{where(node)}; the rule in the op's record does not fit"
            )
        return local

    def _shifted(self, node: Node, made: Made, inputs: list[Node]) -> list[Node]:
        """Random numbers belong to global rows: a tile of them starts where the rank's rows start."""
        if node.op not in COUNTER_OPS or not isinstance(made, Shard):
            return inputs
        first, _ = made.bounds(node.shape[0], self.parts, self.rank)
        return [*inputs[:-1], inputs[-1] + first] if first else inputs

    def _value(self, node: Node, placement: Placement) -> Node:
        """The node's value in a placement; exchanged once and cut where it is not computed so."""
        found = self.local.get((node, placement))
        if found is None:
            with at(node.src):
                if isinstance(placement, Shard):
                    scatters = self.tiling.scattered.get(node) == placement
                    found = self._scatter(node, placement) if scatters else self._cut(node, placement)
                else:
                    found = self._exchange(node) if placement == REPLICATE else self._term(node)
            self.local[node, placement] = found
        return found

    def _cut(self, node: Node, placement: Shard) -> Node:
        first, end = placement.bounds(node.shape[placement.dim], self.parts, self.rank)
        entries = ((("s", None, None, None),) * placement.dim) + (("s", first, end, None),)
        return apply("load", self._value(node, REPLICATE), chain=(("index", entries),))

    def _term(self, node: Node) -> Node:
        """A replicated value as the term of a sum over the ranks: the first one's counts."""
        value = self._value(node, REPLICATE)
        if self.rank == 0:
            return value
        nothing = apply("full", const(node.dtype.type(0)), shape=node.shape, dtype=node.dtype)
        return apply("after", nothing, value)  # every rank takes part in the exchanges that lead to the value

    def _exchange(self, node: Node) -> Node:
        made = self.tiling.made[node]
        local, tag = self.local[node, made], self.tiling.tags[node]
        if isinstance(made, Partial):
            return item(apply("all_reduce", local, reduce=made.reduce, tag=tag), 0)
        assert isinstance(made, Shard)
        sizes = made.sizes(node.shape[made.dim], self.parts)
        return item(apply("all_gather", local, axes=(made.dim,), sizes=(sizes,), tag=tag), 0)

    def _scatter(self, node: Node, placement: Shard) -> Node:
        """The rank's part of a value that is partial, where no rank reads more of it."""
        made = self.tiling.made[node]
        assert isinstance(made, Partial)
        sizes = placement.sizes(node.shape[placement.dim], self.parts)
        return item(
            apply(
                "reduce_scatter", self.local[node, made], axes=(placement.dim,), sizes=(sizes,), rank=self.rank,
                reduce=made.reduce, tag=self.tiling.tags[node],
            ), 0,
        )  # fmt: skip


def _not_empty(x: Node, dim: int, op_name: str) -> Node:
    """A tile without rows has no maximum: give it one of the value that changes no maximum."""
    if x.shape[dim]:
        return x
    low = op_name == "max"
    if x.dtype.kind == "f":
        bound: Any = x.dtype.type(-np.inf if low else np.inf)
    elif x.dtype.kind == "b":
        bound = np.bool_(not low)
    else:
        bound = x.dtype.type(np.iinfo(x.dtype).min if low else np.iinfo(x.dtype).max)
    row = apply("full", const(bound), shape=(*x.shape[:dim], 1, *x.shape[dim + 1 :]), dtype=x.dtype)
    return apply("concatenate", x, row, axis=dim)
