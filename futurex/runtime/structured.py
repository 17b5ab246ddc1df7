"""Structured control flow as instructions: the kernels of ``cond``, ``loop`` and ``loop_pullback`` run plans of their
sub-graphs.
 They are called as ``call(None, communicator, *inputs)``, so that collectives inside a branch or a body find their
group. Their results are arrays of their own: never an input, never memory of the plan that is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from futurex.kernels.registry import Kernel
from futurex.tree.graph import Graph
from futurex.tree.node import Node

STRUCTURED = frozenset({"cond", "loop", "loop_pullback"})


class Runnable(Protocol):
    """A compiled sub-graph."""

    graph: Graph

    def run(self, args: Sequence[Any], communicator: Any = None, *, outs: Sequence[Any] | None = None) -> list[Any]:
        """Results for ``args``; ``outs`` are arrays that may be overwritten with them."""
        ...


def structured_kernel(node: Node, compile_sub: Callable[[Graph], Runnable]) -> Kernel:
    """The kernel of a structured node; its sub-graphs are compiled once, here."""
    plans = {name: compile_sub(value) for name, value in node.attrs.items() if isinstance(value, Graph)}
    if node.op == "cond":
        return Kernel(_cond(plans["then"], plans["orelse"]), "structured")
    if node.op == "loop":
        return Kernel(_loop(plans["test"], plans["body"], node.attrs["tape"]), "structured")
    return Kernel(_loop_pullback(plans["back"], node.attrs["n_carry"]), "structured")


def _cond(then: Runnable, orelse: Runnable) -> Callable[..., tuple[Any, ...]]:
    def call(out: None, communicator: Any, pred: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple((then if bool(pred) else orelse).run(inputs, communicator))

    return call


class _Carry:
    """What a loop carries, double-buffered: a step reads one set of arrays and writes the other."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = list(values)
        self._mine = False  # the first set belongs to the caller
        self._spare: list[Any] | None = None

    def step(self, plan: Runnable, args: Sequence[Any], communicator: Any, *, keep: bool) -> list[Any]:
        """Run ``plan``; its first results become the carry, the rest is returned. ``keep``: the old carry lives on."""
        n = len(self.values)
        results = plan.run(args, communicator, outs=self._spare)
        self._spare = self.values if self._mine and not keep else None
        self.values, self._mine = results[:n], True
        return results[n:]

    def owned(self) -> list[Any]:
        """The carry in arrays that nobody else holds."""
        return self.values if self._mine else [_own(value) for value in self.values]


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _loop(test: Runnable, body: Runnable, tape: bool) -> Callable[..., tuple[Any, ...]]:
    n = len(body.graph.outs)

    def call(out: None, communicator: Any, *inputs: Any) -> tuple[Any, ...]:
        consts = inputs[n:]
        carry = _Carry(inputs[:n])
        if tape:
            carry.values = carry.owned()
        steps: list[list[Any]] = []
        while bool(test.run((*carry.values, *consts), communicator)[0]):
            if tape:
                steps.append(carry.values)
            carry.step(body, (*carry.values, *consts), communicator, keep=tape)
        final = carry.owned()
        return (*final, steps) if tape else tuple(final)

    return call


def _loop_pullback(back: Runnable, n_carry: int) -> Callable[..., tuple[Any, ...]]:
    params, outs = back.graph.params, back.graph.outs
    n_carried = sum(node.aval.inexact for node in params[:n_carry])
    n_consts = len(params) - n_carry - n_carried

    def call(out: None, communicator: Any, tape: list[list[Any]], *rest: Any) -> tuple[Any, ...]:
        consts = rest[:n_consts]
        carried = _Carry(rest[n_consts:])
        sums = [np.zeros(node.shape, node.dtype) for node in outs[n_carried:]]
        for step in reversed(tape):
            terms = carried.step(back, (*step, *consts, *carried.values), communicator, keep=False)
            for total, term in zip(sums, terms, strict=True):
                np.add(total, term, out=total)
        return (*carried.owned(), *sums)

    return call
