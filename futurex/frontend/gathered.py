"""Lists of numbers in a result that a loop of known length made: one output has them all, none is picked by itself.

Each would be a result of the run otherwise, of which hundreds take longer than the loop.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from futurex.frontend.lists import Entry, Tuple, joined, parts_of
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, new_array
from futurex.tree.node import Node
from futurex.tree.pytree import leaf, opened, unflatten

_FEWEST = 8
"""Entries of such a list."""


@leaf
class Gathered:
    """Stands for a list in a result: its entries are of this ``kind``, the rows of these arrays."""

    def __init__(self, kind: Entry | Tuple, columns: Sequence[Node], length: int) -> None:
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
    rows = [parts_of(entry) for entry in entries]
    if len(rows) < _FEWEST or not all(_is_number(part) for row in rows for part in row):
        return None
    kind = joined(entries)
    if kind is None or any(part.loose for part in parts_of(kind)):
        return None
    columns = [_column(nodes, part) for nodes, part in zip(zip(*rows, strict=True), parts_of(kind), strict=True)]
    return None if None in columns else Gathered(kind, columns, len(rows))  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return type(value) is Tracer and value.is_scalar and value._node in current().gathered


def _column(numbers: Sequence[Tracer], kind: Entry) -> Node | None:
    """The array of which these are neighbouring rows."""
    places = [current().gathered[number._node] for number in numbers]
    array, first = places[0]
    if array.ndim != 1 or array.dtype != kind.aval.dtype:
        return None
    if any(base is not array or place != first + k for k, (base, place) in enumerate(places)):
        return None
    whole = (first, len(places)) == (0, array.shape[0])
    return array if whole else new_array(array)[first : first + len(places)]._node
