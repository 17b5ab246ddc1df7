"""Lists of numbers in a result that a loop of known length made: one output has them all, none is picked by itself.

Each would be a result of the run otherwise, of which hundreds take longer than the loop.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.control.collected import blocks
from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import Entry, Tuple, apart, fitted, is_mixed, joined, parts_of
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, entered, strong
from futurex.tree.node import Node
from futurex.tree.pytree import leaf, opened, unflatten

_FEWEST, _OTHERS, _PARTS = 8, 2, 4
"""Entries of such a list, how many at most are others (the first one, often), and of how many parts it consists."""


@leaf
class Gathered:
    """Stands for a list in a result: its entries are of this ``kind``, the rows of these arrays. ``length``: how many
    there are; None where each of them waits for the run, which tells its type."""

    def __init__(self, kind: Entry | Tuple, columns: Sequence[Node], length: int | None) -> None:
        self.kind, self.columns, self.length = kind, columns, length


def gathered(result: Any) -> Any:
    """The result with Gathered for such lists."""
    found = opened(result)
    if found is None:
        return result
    structure, entries = found
    if structure.kind is list and (made := _made(entries)) is not None:
        return made
    inner = list(map(gathered, entries))
    return result if all(map(operator.is_, inner, entries)) else unflatten(structure, inner)


def _made(entries: list[Any]) -> Gathered | None:
    if len(entries) < _FEWEST:
        return None
    entries = list(map(apart, entries))
    rows = list(map(parts_of, entries))
    if not all(map(_may_be_one, (part for row in rows for part in row))):
        return None
    if sum(not all(map(_is_row, row)) for row in rows) > _OTHERS:
        return None
    kind = joined(entries)
    if kind is None or any(part.loose or part.is_array or part.aval.ndim for part in parts_of(kind)):
        return None
    rows = [parts_of(fitted(entry, kind)) for entry in entries]
    columns = [_column(nodes, part) for nodes, part in zip(zip(*rows, strict=True), parts_of(kind), strict=True)]
    return None if None in columns else Gathered(kind, columns, None if is_mixed(kind) else len(rows))  # type: ignore[arg-type]


def _may_be_one(value: Any) -> bool:
    return type(value) is Tracer or type(value) in SCALARS or isinstance(value, np.generic)


def _is_row(value: Any) -> bool:
    return type(value) is Tracer and value._node in current().gathered


def _column(numbers: Sequence[Any], kind: Entry) -> Node | None:
    """An array of these numbers, which are neighbouring rows of few arrays and few others."""
    parts = blocks([raw(entered(number)) for number in numbers], lambda node: emit("reshape", strong(node), shape=(1,)))
    if len(parts) > _PARTS or any(part.dtype != kind.aval.dtype for part in parts):
        return None
    return parts[0] if len(parts) == 1 else emit("concatenate", *parts, axis=0)
