"""How a product is divided that is made in the matrix unit (:mod:`.thirds`), and where that pays.

To take numbers apart costs as much as 40 to 80 multiply-adds of each: the more rows, the less often is the second
operand taken apart. A thread has few tasks, since each takes its rows apart.
"""

from __future__ import annotations

import math

SIDE = 32
"""Rows, columns and inner elements of what is made at once."""
ROOM = 1 << 17
"""Numbers of the first operand that are packed at once: with what is packed of the second, they stay in the
second-level cache."""
TALLEST = 512
"""Rows of a task."""
TICKETS = 2
"""For each thread."""
_DEEPEST, _SHALLOWEST = 1024, 512
"""Inner elements that are packed at once."""
_UNIT_RATE, _RATE, _BETTER = 80.0, 30.0, 1.2
"""Multiply-adds of a cycle, in the unit and by vectors; how many times faster the former must be."""
_PACKING = {False: 0.8, True: 1.0}
"""Cycles to pack a number that lies as it is needed, and one that does not."""


def pays(sizes: tuple[int, int, int, int], turned: tuple[bool, bool]) -> bool:
    """Is the unit, where it is free, clearly faster than vectors? Sizes: batch, rows, inner size and columns.

    >>> pays((1, 1024, 512, 512), (False, False)), pays((1, 32, 256, 1024), (False, False))
    (True, False)
    """
    _, rows, inner, columns = sizes
    made = math.prod(-(-each // SIDE) * SIDE for each in sizes[1:])
    chunks = -(-rows // _most(inner, depth(rows)))
    packed = rows * inner * _PACKING[turned[0]] + chunks * inner * columns * _PACKING[turned[1]]
    return (made / _UNIT_RATE + packed) * _BETTER < rows * inner * columns / _RATE


def depth(rows: int) -> int:
    """Inner elements that are packed at once, at most: fewer of more rows."""
    return max(_SHALLOWEST, min(_DEEPEST, ROOM // max(rows, 1) // 256 * 256))


def height(sizes: tuple[int, int, int, int], turned: tuple[bool, bool], deepest: int, threads: int) -> int:
    """Rows of a task: the threads have other rows, or other columns, as less is to be packed."""
    batch, rows, inner, columns = sizes
    chunks = -(-rows // _most(inner, deepest))
    if batch == 1 and chunks % threads:
        parted = -(-chunks // threads) * threads
        first, second = rows * _PACKING[turned[0]], columns * _PACKING[turned[1]]
        if first + parted * second < threads * first + chunks * second:
            chunks = parted
    return -(-rows // (chunks * SIDE)) * SIDE


def _most(inner: int, deepest: int) -> int:
    """Rows of a task, at most."""
    packed = -(-min(inner, deepest) // SIDE) * SIDE
    return min(TALLEST, ROOM // packed // SIDE * SIDE)
