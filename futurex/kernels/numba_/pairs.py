"""Short rows of arrays that are broadcast against each other: distances of each point to each, kernels of both.

``((x[:, None] - y) ** 2).sum(-1)`` reads an operand's row for many of the other's. As in :mod:`.narrow` sixteen rows
lie side by side, neighbours along one of the axes: an operand that moves along no other is turned once, and serves for
some tens of rounds of the others; one that does not move along it is laid down as often as there are lanes.
"""

from __future__ import annotations

import math

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.narrow import FEWEST, LANES, MadePass, Narrow, OfRows, fits
from futurex.kernels.numba_.places import Values, parameters_of
from futurex.kernels.numba_.sweep import Sweep
from futurex.ops.sweeps import Level
from futurex.tree.node import Node

_ROUNDS = 32
"""Rows of results that are written in turn, sixteen of each: each is a page of its own where they are long."""
_WASTE, _WASTE_OF_WHOLE = 1.25, 1.6
"""Lanes that are computed twice, where sixteen divide no axis, up to which results lie side by side; and the same where
whole rows are written, or read of arrays that have all of them, which lie far apart along another axis."""
_LONGEST_WRITTEN = 256
"""Bytes of a row up to which whole rows are written so: longer ones take longer to be turned and turned back than they
take as they lie (softmax of 50 x 50 doubles with a mask 1.2 to 1.4 of the time, of 32 x 32 0.7 to 0.9)."""

_LONGEST_IN_PLACE = 18
"""Elements of a row from which an operand that has all rows is rather read as it lies, by a single pass: sixteen rows
along another axis than the last, or a few more of it, are no stream that memory foresees (40 x 40 matrices of 40 x 40
doubles, times one of these for each: 0.25 of the time; of 22 x 22 0.7, of 16 x 16 1.5)."""


def axis_of(sweep: Sweep) -> int | None:
    """The loop along which sixteen rows are neighbours: the last one whose results they are, unless another one wastes
    fewer lanes; None if all are shorter."""
    extents = sweep.layout.extents[:-1]
    waste = {axis: -(-extent // LANES) * LANES / extent for axis, extent in enumerate(extents) if extent >= LANES}
    if not waste:
        return None
    last = len(extents) - 1
    whole = bool(_written(sweep)) or any(all(sweep.mask(operand)) for operand in sweep.operands)
    if waste.get(last, math.inf) <= (_WASTE_OF_WHOLE if whole else _WASTE):
        return last
    return min(waste, key=lambda axis: (waste[axis], -axis))


def _written(sweep: Sweep) -> list[Node]:
    """The results that are whole rows."""
    return [node for node in sweep.graph.outs if sweep.level[node] is Level.FULL]


def suits(sweep: Sweep, count: int) -> bool:
    """Does a kernel gain by this? Its rows are many and short, and some operands have fewer of them."""
    kept = sweep.layout.extents[:-1]
    if len(kept) < 2 or not sweep.rows or sweep.crossed or math.prod(kept) < FEWEST or axis_of(sweep) is None:
        return False
    if count >= _LONGEST_IN_PLACE and sweep.stages == 1 and any(all(sweep.mask(each)) for each in sweep.operands):
        return False
    short = all(count * node.dtype.itemsize <= _LONGEST_WRITTEN for node in _written(sweep))
    return short and fits(sweep, count)


def numbers(sweep: Sweep) -> tuple[int, ...]:
    """The numbers of a kernel: what threads share first, groups of sixteen rows, rounds, and all extents."""
    kept, axis = sweep.layout.extents[:-1], axis_of(sweep)
    side = kept[axis or 0]
    groups, rounds = -(-side // LANES), math.prod(kept) // side
    return -(-rounds // _ROUNDS) * groups, groups, rounds, *kept


class _Rows(OfRows):
    """Sixteen neighbours along one axis, at one place along the others."""

    def __init__(
        self, sweep: Sweep, code: Code, shared: Values, joined: dict[Node, str], places: list[str], axis: int
    ) -> None:
        super().__init__(sweep, code, shared, joined, places[axis])
        self.places, self.axis = places, axis
        self._found: dict[tuple[bool, ...], tuple[str, str]] = {}
        for mask in (*map(sweep.mask, sweep.operands), (True,) * len(places)):  # here, where all that follows sees it
            self._of(mask)

    def _of(self, mask: tuple[bool, ...]) -> tuple[str, str]:
        """The first lane's row of an array that moves along these loops, and how many rows lie between two lanes'."""
        kept = mask[: len(self.places)]
        if kept not in self._found:
            row, step = "0", "1" if kept[self.axis] else "0"
            for d, place in enumerate(self.places):
                if kept[d]:
                    row = place if row == "0" else self.code.add(self.code.multiply(row, f"%e{d}"), place)
                    if d > self.axis and step != "0":
                        step = f"%e{d}" if step == "1" else self.code.multiply(step, f"%e{d}")
            self._found[kept] = row, step
        return self._found[kept]

    def row(self, mask: tuple[bool, ...], lane: str) -> str:
        row, step = self._of(mask)
        if step == "0":
            return row
        return self.code.add(row, lane if step == "1" else self.code.multiply(lane, step))


class Pairs(Narrow):
    """The text of one kernel for rows of ``count`` elements along several axes."""

    def __init__(self, sweep: Sweep, count: int) -> None:
        super().__init__(sweep, count)
        self.axis = axis_of(sweep) or 0
        extents = [f"e{d}" for d in range(len(sweep.layout.extents) - 1)]
        self.parameters = parameters_of(sweep, ["units", "groups", "rounds", *extents])

    def _groups(self, passes: list[MadePass]) -> Code:
        sweep, code, operands = self.sweep, Code(), self.buffers.operands
        joined, shared = self._begun(code, passes)
        along = {each: sweep.mask(each)[self.axis] for each in operands}
        others = {each: any(sweep.mask(each)[: self.axis] + sweep.mask(each)[self.axis + 1 : -1]) for each in operands}
        depth = len(sweep.layout.extents) - 1
        for operand in operands:
            if not along[operand] and not others[operand]:
                self._spread(code, operand)
        with code.loop("%low", "%high") as (unit, _):
            part = code.do(f"udiv i64 {unit}, %groups")
            group = code.do(f"sub nsw i64 {unit}, {code.multiply(part, '%groups')}")
            last = code.do(f"sub nsw i64 %e{self.axis}, {LANES}")
            first = code.least(code.multiply(group, str(LANES)), last)
            here = ["0"] * depth
            here[self.axis] = first
            for operand in operands:
                if along[operand] and not others[operand]:
                    self._turn(code, operand, _Rows(sweep, code, shared, joined, here, self.axis))
            begin = code.multiply(part, str(_ROUNDS))
            end = code.least(code.add(begin, str(_ROUNDS)), "%rounds")
            with code.loop(begin, end) as (place, _):
                rows = _Rows(sweep, code, shared, joined, self._places(code, place, first), self.axis)
                for operand in operands:
                    if along[operand] and others[operand]:
                        self._turn(code, operand, rows)
                    elif others[operand]:
                        self._spread(code, operand, rows.row(sweep.mask(operand), "0"))
                self._done(code, rows, passes, "")
        return self._ended(code, rows)

    def _places(self, code: Code, place: str, first: str) -> list[str]:
        """Where all loops are in one round of the others."""
        found, others = [first] * (len(self.sweep.layout.extents) - 1), [*range(len(self.sweep.layout.extents) - 1)]
        others.remove(self.axis)
        for d in reversed(others[1:]):
            found[d] = code.do(f"urem i64 {place}, %e{d}")
            place = code.do(f"udiv i64 {place}, %e{d}")
        found[others[0]] = place
        return found
