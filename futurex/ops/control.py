"""Structured control flow: ``cond`` and staged checks. Sub-graphs are closed: outside values are inputs.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.joins import joined, kind, named
from futurex.ops.loop_batch import batch_cond
from futurex.ops.python import filled
from futurex.ops.tapes import plain
from futurex.tree.activity import active_outs
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item, param
from futurex.tree.record import Sample, op

Pullback = Callable[..., Graph]
Pushforward = Callable[..., Graph]


def _cond(pred: Any, *inputs: Any, then: Graph, orelse: Graph) -> tuple[Any, ...]:
    return tuple((then if bool(pred) else orelse)(*inputs))


def _cond_aval(pred: Aval, *inputs: Aval, then: Graph, orelse: Graph) -> tuple[Aval, ...]:
    first, second = ([node.aval for node in graph.outs] for graph in (then, orelse))
    if [kind(aval) for aval in first] != [kind(aval) for aval in second]:
        raise TypeError(f"the branches of an if give different types: {first} and {second}")
    return joined(first, second, inputs)


def _either(then: Graph, orelse: Graph, wrt: Sequence[int]) -> list[int]:
    """The outputs that have a derivative with respect to inputs in some branch."""
    pairs = zip(active_outs(then, wrt), active_outs(orelse, wrt), strict=True)
    return [k for k, active in enumerate(pairs) if any(active)]


def _cond_rule(
    g: Sequence[Node | None], out: Node, pred: Node, *inputs: Node, then: Graph, orelse: Graph, pullback: Pullback,
    needed: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    wrt = [k for k, node in enumerate(inputs) if node.aval.inexact and needed[k + 1]]
    seeded = [k for k in _either(then, orelse, wrt) if g[k] is not None]
    back = {"then": pullback(then, wrt, seeded), "orelse": pullback(orelse, wrt, seeded)}
    cots: list[Any] = [None] * (len(inputs) + 1)
    if wrt and seeded:
        result = apply("cond", pred, *inputs, *(g[k] for k in seeded), **back)
        for position, k in enumerate(wrt):
            cots[k + 1] = item(result, position)
    return tuple(cots)


def _cond_push(
    tangents: Sequence[Node | None], out: Node, pred: Node, *inputs: Node, then: Graph, orelse: Graph, jvp: Pushforward
) -> tuple[list[Node], list[Node | None]]:
    wrt = [k for k in range(len(inputs)) if tangents[k + 1] is not None]
    moved = _either(then, orelse, wrt)
    branches = {"then": jvp(then, wrt, moved), "orelse": jvp(orelse, wrt, moved)}
    given = (pred, *inputs, *(t for t in tangents[1:] if t is not None))
    result = named("cond", given, branches, (*out.aval, *(plain(out.aval[k]) for k in moved)))
    n = len(then.outs)
    found = {k: item(result, n + place) for place, k in enumerate(moved)}
    return [item(result, k) for k in range(n)], [found.get(k) for k in range(n)]


def _branch(function: Callable[..., Any], name: str) -> Graph:
    x, y = param(Aval((3,), np.dtype(float)), "x"), param(Aval((), np.dtype(float)), "y")
    return Graph([x, y], function(x, y), name)


def _cond_samples(rng: np.random.Generator) -> Iterable[Sample]:
    then = _branch(lambda x, y: [x * y, apply("sin", y)], "then")
    orelse = _branch(lambda x, y: [x + y, y * y], "orelse")
    for pred in (np.bool_(True), np.bool_(False)):
        yield Sample((pred, rng.normal(size=3), np.float64(rng.normal())), {"then": then, "orelse": orelse})


op(
    "cond", _cond, aval=_cond_aval, vjp=_cond_rule, jvp=_cond_push, batch=batch_cond, structured=True,
    samples=_cond_samples,
)  # fmt: skip


class Failure:
    """An exception that a staged ``raise`` or ``assert`` carries: its type and arguments, and a stable text.

    A :class:`~futurex.ops.python.Text` or ``Value`` among the arguments takes its values from the check's inputs. The
    last of them are given by ``names``.
    """

    __slots__ = ("args", "kind", "names")

    def __init__(self, kind: type[BaseException], args: tuple[Any, ...], names: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.args = args
        self.names = names

    def made(self, values: Sequence[Any]) -> BaseException:
        """The exception, with these values in it."""
        args = filled(self.args, iter(values))
        first = len(args) - len(self.names)
        return self.kind(*args[:first], **dict(zip(self.names, args[first:], strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.args), self.names))

    def __repr__(self) -> str:
        """Text that printed graphs are executed with."""
        names = f", {self.names!r}" if self.names else ""
        return f"ops.control.failure({self.kind.__module__!r}, {self.kind.__qualname__!r}, {self.args!r}{names})"

    def __stable__(self) -> str:
        return f"{self.kind.__module__}.{self.kind.__qualname__}{self.args!r}{self.names or ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (self.kind, self.args, self.names)


def failure(module: str, name: str, args: tuple[Any, ...], names: tuple[str, ...] = ()) -> Failure:
    """The failure that raises the exception type ``module.name``."""
    return Failure(operator.attrgetter(name)(importlib.import_module(module)), args, names)


def _check(ok: Any, *values: Any, failure: Failure) -> Any:
    """``values``: those that the exception's message shows, then the effect that comes before."""
    if not bool(ok):
        raise failure.made(values)
    return np.True_


op(
    "check", _check, aval=lambda ok, *values, failure: Aval((), np.dtype(bool)), effect=True, fails=True,
    samples=lambda rng: [Sample((np.bool_(True),), {"failure": Failure(ValueError, ("no",))}, order=0)],
)  # fmt: skip
