"""Structured control flow: ``cond``, ``loop`` and staged checks. Sub-graphs are closed: outside values are inputs.

``loop`` is ``while test(*carry, *consts): carry = body(*carry, *consts)``; a range loop carries its counter. With
``tape`` it also returns the carries that every iteration started from, which is what its derivative replays backwards.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import zeros_like
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, build, item, param
from futurex.tree.record import Sample, op, record

Pullback = Callable[[Graph, Sequence[int]], Graph]
TAPE = Aval((), np.dtype(object))


def _cond(pred: Any, *inputs: Any, then: Graph, orelse: Graph) -> tuple[Any, ...]:
    return tuple((then if bool(pred) else orelse)(*inputs))


def _cond_aval(pred: Aval, *inputs: Aval, then: Graph, orelse: Graph) -> tuple[Aval, ...]:
    first, second = ([node.aval for node in graph.outs] for graph in (then, orelse))
    if first != second:
        raise TypeError(f"the branches of an if give different types: {first} and {second}")
    return tuple(first)


def _inexact(graph: Graph) -> list[int]:
    return [k for k, node in enumerate(graph.outs) if node.aval.inexact]


def _seeds(g: Sequence[Node | None], outs: Sequence[Node]) -> list[Node]:
    """Cotangents of the inexact outputs, zeros where nobody read one."""
    return [
        zeros_like(Aval(node.shape, node.dtype)) if ct is None else ct
        for ct, node in zip(g, outs, strict=True)
        if node.aval.inexact
    ]


def _cond_rule(
    g: Sequence[Node | None], out: Node, pred: Node, *inputs: Node, then: Graph, orelse: Graph, pullback: Pullback,
    needed: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    wrt = [k for k, node in enumerate(inputs) if node.aval.inexact and needed[k + 1]]
    back = {"then": pullback(then, wrt), "orelse": pullback(orelse, wrt)}
    result = apply("cond", pred, *inputs, *_seeds(g, then.outs), **back)
    cots: list[Any] = [None] * (len(inputs) + 1)
    for position, k in enumerate(wrt):
        cots[k + 1] = item(result, position)
    return tuple(cots)


def _branch(function: Callable[..., Any], name: str) -> Graph:
    x, y = param(Aval((3,), np.dtype(float)), "x"), param(Aval((), np.dtype(float)), "y")
    return Graph([x, y], function(x, y), name)


def _cond_samples(rng: np.random.Generator) -> Iterable[Sample]:
    then = _branch(lambda x, y: [x * y, apply("sin", y)], "then")
    orelse = _branch(lambda x, y: [x + y, y * y], "orelse")
    for pred in (np.bool_(True), np.bool_(False)):
        yield Sample((pred, rng.normal(size=3), rng.normal()), {"then": then, "orelse": orelse})


op("cond", _cond, aval=_cond_aval, vjp=_cond_rule, structured=True, samples=_cond_samples)


def _loop(*inputs: Any, test: Graph, body: Graph, tape: bool) -> tuple[Any, ...]:
    n = len(body.outs)
    carry, consts = list(inputs[:n]), inputs[n:]
    record_: list[list[Any]] = []
    while bool(test(*carry, *consts)[0]):
        if tape:
            record_.append(carry)
        carry = body(*carry, *consts)
    return (*carry, record_) if tape else tuple(carry)


def _loop_aval(*inputs: Aval, test: Graph, body: Graph, tape: bool) -> tuple[Aval, ...]:
    carry = tuple(node.aval for node in body.outs)
    if carry != inputs[: len(carry)]:
        before = inputs[: len(carry)]
        raise TypeError(f"the body of a loop changes the types of what it carries: {before} became {carry}")
    return (*carry, TAPE) if tape else carry


def _loop_rule(
    g: Sequence[Node | None], out: Node, *inputs: Node, test: Graph, body: Graph, tape: bool, pullback: Pullback,
    needed: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    """Replay with a tape, then run the body's pullback over it backwards."""
    n = len(body.outs)
    rec = record("loop")
    attrs: dict[str, Any] = {"test": test, "body": body, "tape": True}
    taped = build(rec, inputs, attrs, _loop_aval(*(node.aval for node in inputs), **attrs), out.src)
    wrt = [k for k, node in enumerate(inputs) if node.aval.inexact]
    back = pullback(body, wrt)
    cots: list[Any] = [None] * len(inputs)
    result = apply("loop_pullback", item(taped, n), *inputs[n:], *_seeds(g[:n], body.outs), back=back, n_carry=n)
    for position, k in enumerate(wrt):
        cots[k] = item(result, position)
    return tuple(cots)


def _loop_samples(rng: np.random.Generator) -> Iterable[Sample]:
    f8 = np.dtype(float)
    x, i, scale = param(Aval((3,), f8), "x"), param(Aval((), np.dtype(np.int64)), "i"), param(Aval((), f8), "scale")
    body = Graph([x, i, scale], [apply("sin", x) * scale, i + 1], "body")
    test = Graph([x, i, scale], [i < 3], "test")
    yield Sample((rng.normal(size=3), np.int64(0), rng.normal()), {"test": test, "body": body, "tape": False}, order=1)
    yield Sample((rng.normal(size=3), np.int64(5), rng.normal()), {"test": test, "body": body, "tape": False}, order=1)


op("loop", _loop, aval=_loop_aval, vjp=_loop_rule, structured=True, samples=_loop_samples)


def _loop_pullback(tape: Any, *rest: Any, back: Graph, n_carry: int) -> tuple[Any, ...]:
    n_consts = len(back.params) - n_carry - _n_seeds(back, n_carry)
    consts, carried = rest[:n_consts], list(rest[n_consts:])
    n_carried = len(carried)
    sums: list[Any] = [np.zeros(node.shape, node.dtype) for node in back.outs[n_carried:]]
    for carry in reversed(tape):
        cots = back(*carry, *consts, *carried)
        carried = cots[:n_carried]
        sums = [total + ct for total, ct in zip(sums, cots[n_carried:], strict=True)]
    return (*carried, *sums)


def _n_seeds(back: Graph, n_carry: int) -> int:
    return sum(node.aval.inexact for node in back.params[:n_carry])


def _loop_pullback_aval(tape: Aval, *rest: Aval, back: Graph, n_carry: int) -> tuple[Aval, ...]:
    return tuple(Aval(node.shape, node.dtype) for node in back.outs)


op("loop_pullback", _loop_pullback, aval=_loop_pullback_aval)


class Failure:
    """An exception that a staged ``raise`` or ``assert`` carries: its type and message, and a stable text."""

    __slots__ = ("args", "kind")

    def __init__(self, kind: type[BaseException], args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.args = args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure) and (self.kind, self.args) == (other.kind, other.args)

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.args)))

    def __repr__(self) -> str:
        """Text that printed graphs are executed with."""
        return f"ops.control.failure({self.kind.__module__!r}, {self.kind.__qualname__!r}, {self.args!r})"

    def __stable__(self) -> str:
        return f"{self.kind.__module__}.{self.kind.__qualname__}{self.args!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (self.kind, self.args)


def failure(module: str, name: str, args: tuple[Any, ...]) -> Failure:
    """The failure that raises the exception type ``module.name``."""
    return Failure(operator.attrgetter(name)(importlib.import_module(module)), args)


def _check(ok: Any, *before: Any, failure: Failure) -> Any:
    if not bool(ok):
        raise failure.kind(*failure.args)
    return np.True_


op(
    "check", _check, aval=lambda ok, *before, failure: Aval((), np.dtype(bool)), effect=True, fails=True,
    samples=lambda rng: [Sample((np.bool_(True),), {"failure": Failure(ValueError, ("no",))}, order=0)],
)  # fmt: skip
