"""Types of values that come out of one of several graphs, or of any round of a loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Fresh, dims_in, same
from futurex.tree.node import Node, build
from futurex.tree.record import record
from futurex.tree.source import Source


def kind(aval: Aval) -> tuple[Any, ...]:
    """What two values must have in common to stand for each other; of extents only the run need know."""
    return type(aval), aval.dtype, aval.weak, len(aval.extents)


def joined(first: Sequence[Aval], second: Sequence[Aval], outside: Iterable[Aval]) -> tuple[Aval, ...]:
    """What values are that are of the first types or of the second.

    ``outside``: the inputs of the graphs, whose symbols mean the same inside and outside. An extent that differs, or
    that only the inside knows, is open.
    """
    given = {symbol for aval in outside for dim in dims_in(aval.extents) for symbol in dim.symbols}
    numbers = itertools.count()
    out = []
    for a, b in zip(first, second, strict=True):
        others = iter(b.extents)

        def join(extent: Any, others: Any = others) -> Any:
            known = not isinstance(extent, Dim) or extent.symbols <= given
            return extent if same(extent, next(others)) and known else Fresh(next(numbers))

        out.append(a.with_extents(join))
    return tuple(out)


def carried(before: Sequence[Aval], body: Any, name: str) -> tuple[Aval, ...]:
    """The types of what a loop carries, whose body has it as first inputs and outputs.

    Raises TypeError where a round changes a type; an extent that is a symbol of the body may change.
    """
    count = len(before)
    inside, after = ([node.aval for node in nodes[:count]] for nodes in (body.params, body.outs))
    for rows in zip(before, inside, after, strict=True):
        if len({kind(aval) for aval in rows}) > 1 or any(
            not isinstance(mid, Dim) and not (same(mid, start) and same(mid, end))
            for start, mid, end in zip(*(aval.extents for aval in rows), strict=True)
        ):
            raise TypeError(f"the body of a {name} changes the types of what it carries: {before} became {after}")
    return joined(before, joined(inside, after, before), before)


def named(
    name: str, inputs: Sequence[Node], attrs: dict[str, Any], known: Iterable[Any], src: Source | None = None
) -> Node:
    """A branch or loop whose first results are those ``known``, or their tangents: an extent that its rule leaves open
    has the name that it has there. What reads the one reads the other, and they may meet as equals."""
    rec = record(name)
    avals: Any = rec.infer(tuple(node.aval for node in inputs), (), attrs)
    settled = tuple(
        aval if before is None or not any(isinstance(extent, Fresh) for extent in aval.extents) else before
        for aval, before in itertools.zip_longest(avals, known)
    )
    return build(rec, tuple(inputs), attrs, settled, src)
