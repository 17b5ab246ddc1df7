"""Loops: ``loop``, a ``while`` over what it carries, and ``scan``, a loop over sequences. Sub-graphs are closed.

``loop`` is ``while test(*carry, *consts): carry = body(*carry, *consts)``; a range loop carries its counter.
``scan`` runs ``*carry, *ys = body(*carry, *xs[i], *consts)`` for every element of the sequences ``xs`` and stacks the
``ys``. A sequence is an array cut along axis 0 (``length`` is known) or a :class:`Tape` (``length`` is None).

``tape`` numbers what is carried: the values at the start of every round are results too, as sequences. The derivative
of either loop is a ``scan`` over its tapes in the other direction, so that derivatives of any order exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.joins import carried, kind
from futurex.ops.loop_batch import batch_add_tapes, batch_loop, batch_scan, batch_zero_tape
from futurex.ops.loop_forward import push_loop, push_scan
from futurex.ops.loop_reverse import pull_loop, pull_scan
from futurex.ops.tapes import Tape, collector, element, plain, sequence
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, same
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Sample, op

Indices = tuple[int, ...]


def _loop(*inputs: Any, test: Graph, body: Graph, tape: Indices) -> tuple[Any, ...]:
    n = len(body.outs)
    carry, consts = list(inputs[:n]), inputs[n:]
    tapes: list[list[Any]] = [[] for _ in tape]
    while bool(test(*carry, *consts)[0]):
        for steps, k in zip(tapes, tape, strict=True):
            steps.append(carry[k])
        carry = body(*carry, *consts)
    return (*carry, *tapes)


class _TooLong(Exception):
    pass


def results_now(node: Node, most: int) -> Sequence[Any] | None:
    """The results of a node whose inputs are constants; None of a loop with more than so many operations in its rounds:
    they are made here one by one, those of a run by compiled code."""
    attrs = dict(node.attrs)
    if node.op == "loop":
        nodes = [each for graph in (attrs["test"], attrs["body"]) for each in graph.nodes]
        if any(each.op in ("loop", "scan") for each in nodes):
            return None
        attrs["test"] = _at_most(attrs["test"], most // len(nodes))
    try:
        results: Sequence[Any] = node.record.run([source.value for source in node.inputs], attrs)
    except _TooLong:
        return None
    return results


def _at_most(test: Graph, rounds: int) -> Callable[..., Any]:
    """The test of a loop that goes through so many rounds and no more."""
    left = iter(range(rounds + 1))

    def asked(*values: Any) -> Any:
        if next(left, None) is None:
            raise _TooLong
        return test(*values)

    return asked


def _loop_aval(*inputs: Aval, test: Graph, body: Graph, tape: Indices) -> tuple[Aval, ...]:
    carry = carried(inputs[: len(body.outs)], body, "loop")
    return (*carry, *(sequence(body.params[k].aval, None) for k in tape))


def _scan(
    *inputs: Any, body: Graph, n_carry: int, n_xs: int, length: int | None, reverse: bool, tape: Indices
) -> tuple[Any, ...]:
    carry, xs, consts = list(inputs[:n_carry]), inputs[n_carry : n_carry + n_xs], inputs[n_carry + n_xs :]
    rounds = range(len(xs[0]) if length is None else length)
    sequences = [collector(aval, length, len(rounds)) for aval in _made(body, n_carry, tape)]
    for i in reversed(rounds) if reverse else rounds:
        results = body(*carry, *(x[i] for x in xs), *consts)
        for steps, value in zip(sequences, [*results[n_carry:], *(carry[k] for k in tape)], strict=True):
            steps[i] = value
        carry = results[:n_carry]
    return (*carry, *sequences)


def _made(body: Graph, n_carry: int, tape: Indices) -> list[Aval]:
    return [node.aval for node in (*body.outs[n_carry:], *(body.params[k] for k in tape))]


def _fit(parts: Sequence[Aval], expected: Sequence[Aval]) -> bool:
    """May a body take these? Where it has a symbol of its own for an extent, it takes any."""
    return len(parts) == len(expected) and all(
        kind(part) == kind(mine)
        and all(isinstance(n, Dim) or same(n, m) for n, m in zip(mine.extents, part.extents, strict=True))
        for part, mine in zip(parts, expected, strict=True)
    )


def _scan_aval(
    *inputs: Aval, body: Graph, n_carry: int, n_xs: int, length: int | None, reverse: bool, tape: Indices
) -> tuple[Aval, ...]:
    carry = carried(inputs[:n_carry], body, "scan")
    parts = tuple(element(aval) for aval in inputs[n_carry : n_carry + n_xs])
    expected = tuple(node.aval for node in body.params[n_carry : n_carry + n_xs])
    if not _fit(parts, expected):
        raise TypeError(f"a scan whose body takes {expected} was given sequences of {parts}")
    if any((None if isinstance(aval, Tape) else aval.shape[0]) != length for aval in inputs[n_carry : n_carry + n_xs]):
        raise ValueError(f"a scan of length {length} was given sequences of another length")
    return (*carry, *(sequence(aval, length) for aval in _made(body, n_carry, tape)))


def _params() -> tuple[Node, Node, Node]:
    f8 = np.dtype(float)
    return param(Aval((3,), f8), "x"), param(Aval((), np.dtype(np.int64)), "i"), param(Aval((), f8), "scale")


def _loop_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, i, scale = _params()
    body = Graph([x, i, scale], [apply("sin", x) * scale, i + 1], "body")
    test = Graph([x, i, scale], [i < 3], "test")
    attrs = {"test": test, "body": body, "tape": ()}
    yield Sample((rng.normal(size=3), np.int64(0), np.float64(rng.normal())), attrs)
    yield Sample((rng.normal(size=3), np.int64(5), np.float64(rng.normal())), attrs)


def _scan_samples(rng: np.random.Generator) -> Iterable[Sample]:
    f8 = np.dtype(float)
    total, x, w = param(Aval((), f8), "total"), param(Aval((3,), f8), "x"), param(Aval((3,), f8), "w")
    y = apply("sin", x * w) * total
    after = total * 0.5 + apply("sum", y, axis=None, keepdims=False, dtype=None)
    body = Graph([total, x, w], [after, y], "body")
    for reverse in (False, True):
        attrs = {"body": body, "n_carry": 1, "n_xs": 1, "length": 4, "reverse": reverse, "tape": ()}
        yield Sample((np.float64(rng.normal()), rng.normal(size=(4, 3)), rng.normal(size=3)), attrs)


op(
    "loop", _loop, aval=_loop_aval, vjp=pull_loop, jvp=push_loop, batch=batch_loop, structured=True,
    samples=_loop_samples,
)  # fmt: skip
op(
    "scan", _scan, aval=_scan_aval, vjp=pull_scan, jvp=push_scan, batch=batch_scan, structured=True,
    samples=_scan_samples,
)  # fmt: skip
op(
    "add_tapes", lambda x, y: [a + b for a, b in zip(x, y, strict=True)], aval=lambda x, y: x,
    vjp=lambda g, out, x, y: (g, g), batch=batch_add_tapes,
)  # fmt: skip
op(
    "zero_tape", lambda x: [np.zeros_like(value) for value in x], aval=lambda x: plain(x),
    vjp=lambda g, out, x: (None,), batch=batch_zero_tape,
)  # fmt: skip
