"""Lists of numbers that a call returns and of which only the run knows how long they are: a future for each entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import numbers
from futurex.frontend.lists import Entry, Tuple, parts_of
from futurex.frontend.outputs import Output
from futurex.frontend.returned import UNFIT, Looking, fits_in, kind_of


def listed(kind: Entry | Tuple, columns: Iterator[np.ndarray]) -> list[Any]:
    """The list whose entries, which are of this kind, are the rows of these arrays."""
    if isinstance(kind, Tuple):
        return list(zip(*(listed(each, columns) for each in kind.kinds), strict=True))
    rows = next(columns)
    return numbers(rows.tolist() if kind.python else rows, kind.number)


def lists_in(output: Output) -> Callable[[Sequence[Any], Any], list[Any]]:
    """Makes the list of the results of a run."""
    kind, first, end = output.value, output.index, output.index + len(parts_of(output.value))

    def made(results: Sequence[Any], call: Any) -> list[Any]:
        if call is not None:
            call.asked()  # how long the list is nobody knows before
        return listed(kind, iter(results[first:end]))

    return made


class Listed(Looking):
    """A leaf that is such a list, of whatever length."""

    def __init__(self, kind: Entry | Tuple) -> None:
        self._kind = kind

    def fit(self, leaf: Any) -> Any:
        return _fit(self._kind, leaf) if type(leaf) is list else UNFIT

    def columns(self, leaf: Any) -> list[np.ndarray] | None:
        """The arrays whose rows are the entries of a list that a plain call returned; None for anything else."""
        return None if self.fit(leaf) is UNFIT else _columns(self._kind, leaf)


def _fit(kind: Entry | Tuple, values: Sequence[Any]) -> Any:
    if isinstance(kind, Entry):
        if not {kind_of(kind.number)}.issuperset(map(type, values)) or not fits_in(kind.number, values):
            return UNFIT
        return numbers(values, kind.number)
    if not ({tuple}.issuperset(map(type, values)) and {len(kind.kinds)}.issuperset(map(len, values))):
        return UNFIT
    columns = [_fit(each, column) for each, column in zip(kind.kinds, _turned(kind, values), strict=True)]
    return UNFIT if UNFIT in columns else list(zip(*columns, strict=True))


def _columns(kind: Entry | Tuple, values: Sequence[Any]) -> list[np.ndarray]:
    if isinstance(kind, Entry):
        return [np.array(values, kind.aval.dtype)]
    turned = _turned(kind, values)
    return [array for each, column in zip(kind.kinds, turned, strict=True) for array in _columns(each, column)]


def _turned(kind: Tuple, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
    """What stands at each place of tuples."""
    return list(zip(*values, strict=True)) or [()] * len(kind.kinds)
