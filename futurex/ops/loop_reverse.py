"""Reverse mode through loops: a scan over what the rounds started from, in the other direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.ops.elementwise import zeros_like
from futurex.ops.joins import named
from futurex.ops.tapes import added, element, plain
from futurex.tree.activity import active_outs
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, new_symbol, nominal, same
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, dimensions_of, item, param

Pullback = Callable[..., Graph]
Indices = tuple[int, ...]


def _reads(graph: Graph) -> set[Node]:
    return {source for node in graph.nodes for source in node.inputs} | set(graph.outs)


def active_inputs(body: Graph, n_carry: int, needed: Sequence[bool]) -> list[int]:
    """The inputs of a body with a derivative: those needed from outside and what they reach in any round."""
    active = {k for k, node in enumerate(body.params) if node.aval.inexact and needed[k]}
    while True:
        reached = {k for k, is_active in enumerate(active_outs(body, active)[:n_carry]) if is_active}
        if reached <= active:
            return sorted(active)
        active |= reached


@dataclass
class _Backward:
    """The scan that runs a loop's rounds backwards: its parts, by position in the body."""

    body: Graph
    n_carry: int
    n_xs: int
    length: int | None
    reverse: bool
    back: Graph
    active: list[int]
    seeded: list[int]

    @property
    def reads(self) -> list[int]:
        """Inputs of the body that its pullback reads."""
        used = _reads(self.back)
        return [k for k in range(len(self.body.params)) if self.back.params[k] in used]

    @property
    def tape(self) -> Indices:
        """What of the carry must be on tape; of a ``while`` something, because a tape knows how many rounds ran."""
        found = tuple(k for k in self.reads if k < self.n_carry)
        if found or self.length is not None or self.n_xs:
            return found
        return (min(range(self.n_carry), key=lambda k: nominal(self.body.params[k].aval.nbytes)),)

    def run(
        self, sequences: dict[int, Node], consts: Sequence[Node], g: Sequence[Node | None], taped: dict[int, Node],
        results: Sequence[Any],
    ) -> dict[int, Node]:
        """Cotangents of the body's inputs from those of its outputs ``g`` (carry, then sequences) and of tapes.

        ``results``: what the loop's results are; extents that change from round to round end as theirs.
        """
        first_const = self.n_carry + self.n_xs
        carried = [k for k in self.active if k < self.n_carry]
        over = [k for k in self.active if self.n_carry <= k < first_const]
        summed = [k for k in self.active if k >= first_const]
        params = self.back.params
        seeds = dict(zip(self.seeded, params[len(self.body.params) :], strict=True))
        arguments: dict[Node, Node] = {}

        def stand_in(node: Node, aval: Aval | None = None) -> Node:
            arguments[node] = param(aval or node.aval, node.attrs["name"])
            return arguments[node]

        def cotangent(k: int) -> Node:
            """What a round is given: as large as what the round gave, but the first and the last may be of others."""
            seed = seeds[k]
            ends = zip(seed.aval.shape, results[k].shape, self.body.params[k].aval.shape, strict=True)
            shape = tuple(
                n if isinstance(n, Dim) or (same(n, last) and same(n, first)) else Dim.of(new_symbol())
                for n, last, first in ends
            )
            if same(shape, seed.aval.shape):
                return stand_in(seed)
            entry = param(Aval(shape, seed.dtype), "g")
            with dimensions_of([entry]):
                arguments[seed] = apply("reshape", entry, shape=seed.aval.shape)
            return entry

        cts = [cotangent(k) for k in carried]
        sums = [param(plain(params[k].aval), "sum") for k in summed]
        on_tape = [(k, stand_in(params[k], _of_a_round(element(sequences[k].aval), params[k].aval))) for k in sequences]
        ys = [(k, stand_in(seeds[k])) for k in self.seeded if k >= self.n_carry]
        more = [(k, param(element(node.aval), "g")) for k, node in taped.items() if k in carried]
        read = [k for k in self.reads if k >= first_const]
        kept = [stand_in(params[k]) for k in read]
        cots = dict(zip(self.active, self.back.inline([arguments.get(node, node) for node in params]), strict=True))
        for k, extra in more:
            cots[k] = added(cots[k], extra)
        totals = [added(total, cots[k]) for total, k in zip(sums, summed, strict=True)]
        rounds = [node for _, node in (*on_tape, *ys, *more)]
        body = Graph(
            [*cts, *sums, *rounds, *kept],
            [*(cots[k] for k in carried), *totals, *(cots[k] for k in over)],
            f"{self.body.name}_pullback",
        )
        starts = [_or_zeros(g[k], results[k]) for k in carried]
        starts += [zeros_like(plain(consts[k - first_const].aval)) for k in summed]
        inputs = [sequences[k] for k, _ in on_tape]
        inputs += [g_k for k, _ in ys if (g_k := g[k]) is not None]
        inputs += [taped[k] for k, _ in more]
        result = apply(
            "scan", *starts, *inputs, *(consts[k - first_const] for k in read), body=body,
            n_carry=len(starts), n_xs=len(inputs), length=self.length, reverse=not self.reverse, tape=(),
        )  # fmt: skip
        return {k: item(result, place) for place, k in enumerate((*carried, *summed, *over))}


def _of_a_round(held: Aval, inside: Aval) -> Aval:
    """What a tape holds, with the names that its extents have in a round: the tape's own are no other value's."""
    names = iter(inside.extents)

    def of_round(extent: Any) -> Any:
        name = next(names)
        return name if isinstance(name, Dim) and isinstance(extent, Dim) else extent

    return held.with_extents(of_round)


def _or_zeros(g: Node | None, aval: Aval) -> Node:
    return zeros_like(plain(aval)) if g is None else g


def _backward(
    g: Sequence[Node | None], body: Graph, n_carry: int, n_xs: int, length: int | None, reverse: bool,
    pullback: Pullback, needed: Sequence[bool],
) -> _Backward:  # fmt: skip
    active = active_inputs(body, n_carry, needed)
    outs = active_outs(body, active)
    seeded = [k for k in active if k < n_carry]
    seeded += [k for k in range(n_carry, len(outs)) if outs[k] and g[k] is not None]
    return _Backward(body, n_carry, n_xs, length, reverse, pullback(body, active, seeded), active, seeded)


def pull_loop(
    g: Sequence[Node | None], out: Node, *inputs: Node, test: Graph, body: Graph, tape: Indices, pullback: Pullback,
    needed: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    n = len(body.outs)
    back = _backward(g, body, n, 0, None, False, pullback, needed)
    taped = _taped(out, back.tape)
    tapes = {k: item(taped, n + place) for place, k in enumerate(taped.attrs["tape"]) if k in back.tape}
    cots = back.run(tapes, inputs[n:], g[:n], _tape_seeds(g[n:], tape), out.aval)
    return tuple(cots.get(k) if needed[k] else None for k in range(len(inputs)))


def pull_scan(
    g: Sequence[Node | None], out: Node, *inputs: Node, body: Graph, n_carry: int, n_xs: int, length: int | None,
    reverse: bool, tape: Indices, pullback: Pullback, needed: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    n_outs = len(body.outs)
    back = _backward(g, body, n_carry, n_xs, length, reverse, pullback, needed)
    sequences = {k: inputs[k] for k in back.reads if n_carry <= k < n_carry + n_xs}
    if back.tape:
        taped = _taped(out, back.tape)
        sequences |= {k: item(taped, n_outs + place) for place, k in enumerate(taped.attrs["tape"]) if k in back.tape}
    if not sequences and length is None:
        sequences = {n_carry: inputs[n_carry]}
    consts = inputs[n_carry + n_xs :]
    cots = back.run(sequences, consts, g[:n_outs], _tape_seeds(g[n_outs:], tape), out.aval)
    return tuple(cots.get(k) if needed[k] else None for k in range(len(inputs)))


def _tape_seeds(g: Sequence[Node | None], tape: Indices) -> dict[int, Node]:
    return {k: seed for k, seed in zip(tape, g, strict=True) if seed is not None}


def _taped(node: Node, tape: Indices) -> Node:
    """The same loop with more of its carry on tape (a pass merges the two); its results keep their names."""
    attrs = {**node.attrs, "tape": tuple(sorted({*node.attrs["tape"], *tape}))}
    results = node.aval[: len(node.aval) - len(node.attrs["tape"])]
    return named(node.op, node.inputs, attrs, results, node.src)
