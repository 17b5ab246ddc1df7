"""Cofactors of little matrices as sums of products: of arrays, which hold an entry of each matrix of a stack, or of
what generated code has for numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

MOST = 4
"""Rows up to which there are few enough of them."""


def cofactors(extent: int, entry: Callable[[int, int], Any], one: Any) -> dict[tuple[int, int], Any]:
    """Of every place of a matrix whose entries can be multiplied, added and negated.

    >>> cofactors(2, lambda i, j: [[1, 2], [3, 4]][i][j], 1)
    {(0, 0): 4, (0, 1): -3, (1, 0): -2, (1, 1): 1}
    """
    every, known = tuple(range(extent)), dict[Any, Any]()

    def minor(rows: tuple[int, ...], columns: tuple[int, ...]) -> Any:
        """The determinant of these rows and columns, expanded along the first row."""
        if not rows:
            return one
        if (rows, columns) not in known:
            total = None
            for k, column in enumerate(columns):
                inner = minor(rows[1:], columns[:k] + columns[k + 1 :])
                term = entry(rows[0], column) * inner if rows[1:] else entry(rows[0], column)
                total = term if total is None else total - term if k % 2 else total + term
            known[rows, columns] = total
        return known[rows, columns]

    found = {}
    for i, j in itertools.product(every, every):
        inner = minor(every[:i] + every[i + 1 :], every[:j] + every[j + 1 :])
        found[i, j] = -inner if (i + j) % 2 else inner
    return found
