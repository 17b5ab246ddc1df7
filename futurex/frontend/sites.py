"""What an array is noted with, that whoever writes into it is to tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from futurex.frontend.cells import Cell


@dataclass(frozen=True)
class Collected:
    """That lists have what the rounds of a loop with this body append as rows of an array: no other trace will take it
    so, once somebody was found to write into an entry."""

    body: Any


@dataclass(frozen=True)
class ToldApart:
    """That which of the numbers in such a loop's lists are Python's matters: the rows have that beside each."""

    body: Any


@dataclass(frozen=True)
class MayBeCollected:
    """The same, of an array that a name has behind such a loop and that may be an entry."""

    site: Collected


def may_be_collected(aliases: Iterable[Cell]) -> MayBeCollected | None:
    """What to tell of an array that may be one of these."""
    sites = (cell.site for cell in aliases if isinstance(cell.site, Collected))
    return next(map(MayBeCollected, sites), None)
