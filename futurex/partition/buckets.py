"""Buckets: exchanges that are sent as one, in the order in which their values become ready.

An all-reduce whose result leads to no other exchange (a gradient, the loss) may wait for its neighbours: such are
collected into buckets of a first small one, so that communication starts early, and then larger ones, as Li et al.
describe it (*PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, VLDB 2020). One that other
exchanges wait for (statistics of a batch) is collected only with others of the same round, so no bucket waits for
itself. Sharded state has reduce-scatters, which only last gathers wait for: both are collected like the last ones.

What lies before a step as terms of sums (gradients of the step before) is all ready at its beginning: it is exchanged
in the order in which the step needs it, in small buckets, because whoever needs a part of one waits for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from futurex.ops.comm import communications
from futurex.tree.graph import Graph, rebuilt, topological
from futurex.tree.node import Node, apply, item
from futurex.tree.source import at

FIRST_BUCKET = 1 << 20
BUCKET = 25 << 20


@dataclass
class _Bucket:
    limit: int
    members: list[Node] = field(default_factory=list)
    nbytes: int = 0
    ready: int = 0

    def takes(self, nbytes: int) -> bool:
        return not self.members or self.nbytes + nbytes <= self.limit

    def add(self, node: Node, nbytes: int, place: int) -> None:
        self.members.append(node)
        self.nbytes += nbytes
        self.ready = place


def bucket(graph: Graph, first: int = FIRST_BUCKET, limit: int = BUCKET) -> Graph:
    """The graph of a rank with its all-reduces collected into buckets of about ``first`` and then ``limit`` bytes.

    Tags are numbered anew, in an order that the data flow allows. What is collected depends only on tags, sizes and
    on which exchange leads to which, so every rank gets the same buckets.
    """
    comms = _by_need(graph, communications(graph))
    behind = _behind(graph, comms)
    order = _in_order(_collect(comms, behind, set(graph.params), first, limit), comms, behind)
    tags = {member: tag for tag, each in enumerate(order) for member in each.members}
    # Reaching the inputs of one bucket before those of the next leaves every bucket with its inputs before it.
    roots = [source for each in order for member in each.members for source in member.inputs]
    known = {node: node for node in graph.params}
    for node in topological((*roots, *graph.outs), graph.params):
        if node in known:
            continue
        if node in tags:
            _fuse(order[tags[node]].members, tags[node], known)
        elif node.op == "item" and node.inputs[0] in tags:
            known[node] = _item(node, order[tags[node.inputs[0]]].members, known)
        else:
            known[node] = rebuilt(node, [known[source] for source in node.inputs])
    return Graph(graph.params, [known[node] for node in graph.outs], graph.name)


def _behind(graph: Graph, comms: Sequence[Node]) -> dict[Node, int]:
    """For every node the set of exchanges it depends on, as bits in the order of ``comms``."""
    bit = {node: 1 << k for k, node in enumerate(comms)}
    behind: dict[Node, int] = {}
    for node in graph.nodes:
        behind[node] = 0
        for source in node.inputs:
            behind[node] |= behind[source] | bit.get(source, 0)
    return behind


def _by_need(graph: Graph, comms: Sequence[Node]) -> list[Node]:
    """What can be exchanged at once comes first, in the order of how much of the graph comes after it."""
    after: dict[Node, int] = {}
    for node in reversed(topological((*comms, *graph.outs), graph.params)):
        for source in node.inputs:
            after[source] = max(after.get(source, 0), after.get(node, 0) + 1)
    params = set(graph.params)
    prompt = {node for node in comms if params.issuperset(node.inputs)}
    return sorted(comms, key=lambda node: -after.get(node, 0) if node in prompt else 1)


def _collect(
    comms: Sequence[Node], behind: dict[Node, int], params: set[Node], first: int, limit: int
) -> list[_Bucket]:
    awaited = 0
    for node in comms:
        awaited |= behind[node]
    rounds: list[int] = []
    closing = _closing(comms, behind, awaited)
    buckets: list[_Bucket] = []
    filling: dict[object, _Bucket] = {}
    for k, node in enumerate(comms):
        rounds.append(1 + max((rounds[j] for j in range(k) if behind[node] >> j & 1), default=-1))
        last = not awaited >> k & 1 or closing >> k & 1
        together: object = node
        if node.op == "all_reduce" or (node.op in ("all_gather", "reduce_scatter") and last):
            together = node.op, node.attrs.get("reduce"), node.inputs[0].dtype, "last" if last else rounds[k]
        nbytes = sum(source.aval.nbytes for source in node.inputs)
        if together not in filling or not filling[together].takes(nbytes):
            early = together not in filling if last else params.issuperset(node.inputs)
            filling[together] = _Bucket(first if early else limit)
            buckets.append(filling[together])
        filling[together].add(node, nbytes, k)
    return buckets


def _closing(comms: Sequence[Node], behind: dict[Node, int], awaited: int) -> int:
    """The reduce-scatters, as bits, that none waits for but gathers that themselves are last."""
    found = sum(1 << k for k, node in enumerate(comms) if node.op == "reduce_scatter")
    for k, node in enumerate(comms):
        if node.op != "all_gather" or awaited >> k & 1:
            found &= ~behind[node]
    return found


def _in_order(buckets: Sequence[_Bucket], comms: Sequence[Node], behind: dict[Node, int]) -> list[_Bucket]:
    """As soon as ready, but never before a bucket that it depends on."""
    bit = {node: 1 << k for k, node in enumerate(comms)}
    waiting = sorted(buckets, key=lambda each: each.ready)
    done, order = 0, []
    while waiting:
        chosen = next(each for each in waiting if not any(behind[node] & ~done for node in each.members))
        waiting.remove(chosen)
        order.append(chosen)
        for node in chosen.members:
            done |= bit[node]
    return order


def _fuse(members: Sequence[Node], tag: int, known: dict[Node, Node]) -> None:
    head = members[0]
    inputs = [known[source] for member in members for source in member.inputs]
    cut: dict[str, tuple[Any, ...]] = {
        name: tuple(each for member in members for each in member.attrs[name])
        for name in ("axes", "sizes")
        if name in head.attrs
    }
    with at(head.src):
        fused = apply(head.op, *inputs, **{**head.attrs, **cut, "tag": tag})
    known.update((member, fused) for member in members)


def _item(node: Node, members: Sequence[Node], known: dict[Node, Node]) -> Node:
    reduced = node.inputs[0]
    before = sum(len(member.inputs) for member in members[: members.index(reduced)])
    return item(known[reduced], before + node.attrs["index"])
