"""How a product of matrices is divided: panels of columns, tiles of rows and vectors, packings, and threads' tasks."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from futurex.kernels.numba_ import nearest, unit_parts
from futurex.kernels.numba_.compiler import has_fma, has_scale
from futurex.kernels.numba_.team import BRIEF_PRODUCT, Share
from futurex.kernels.numba_.vectors import LANES, SINGLE, Kind

ROWS = {1: 16, 2: 12, 3: 8, 4: 6, 5: 5}
"""Rows of a tile by its vectors: as many as leave registers for a row of the panel."""
NARROW_ROWS, HALF = 6, 8
"""Rows of a tile of one vector, which is two registers where processors have sixteen of half its length."""
WIDEST, _NARROW_WIDEST = 4, 8
WHOLE = WIDEST * LANES
"""Vectors of a panel, and columns; five where those make no odd panel at the end."""
DEEPEST, _NARROW_DEEPEST, _DEEPEST_TURNED = 1024, 512, 512
"""Inner elements that are packed at once: a panel of 64 columns then takes a quarter of the second-level cache, from
which it is read as fast; results that are read and written again for every packing cost more. What narrow tiles read
of it, a vector of each row, is to stay in the nearest cache: they read it twice as often. Of a turned first operand
every tile reads as many lines, a row apart: those of more do not stay in a second cache of 1 MB until the next tile."""
_WIDENED = 4
"""How many times wider, and shallower, the panels of narrow tiles are at most for a first operand that is turned: its
rows are packed anew for each panel."""
TALL = 64
"""Rows of one product of a stack that are worth a packing for themselves."""
_WASTE = 0.02
_MIXED = 256
"""Inner elements from which tiles have two heights; stacks of products with 100 took up to a seventh longer so."""
LONG_TURNED = 512
"""Inner elements of a turned first operand from which its lines are asked for where the nearest cache is small: a tile
reads as many, which rows of a power of two drive out. In shorter ones most that is asked for lies behind the last."""
_TASKS, _SHORTEST, _LONG = 8, 48, 240
"""Tasks for each thread that are enough, rows of one that are worth the packing, and so many that it hardly costs,
unless the inner axis is long: then the second operand comes from memory again."""


def is_made() -> bool:
    """Is there code for this processor's products?"""
    return has_scale() or (platform.machine() in ("x86_64", "AMD64") and has_fma())


def is_narrow() -> bool:
    """Has this processor half as many registers of half the length?"""
    return not has_scale()


def reads(rows: int, turned: bool) -> bool:
    """Is there code for a first operand of so many rows that lies so? Narrow tiles pack whole registers of a turned
    one."""
    return rows >= HALF or not turned or not is_narrow()


class Steps(NamedTuple):
    """Elements from one row of a matrix to the next, from one matrix of a stack to the next, and from one to that with
    the same number in the next stack of stacks: heads of attention lie side by side in the rows of one example."""

    row: int
    step: int = 0
    outer: int = 0


@dataclass(frozen=True)
class Panel:
    """Columns of the result that are made together: whole vectors, the last of which has only ``last`` columns.

    They are made in tiles of ``rows`` rows; ``mixed``: the last tiles have one row fewer, so that no row is made twice.
    ``narrow``: tiles have one vector, whose elements of the panel lie behind those of the vector before.
    """

    vectors: int
    last: int
    rows: int
    mixed: bool
    narrow: bool = False
    lanes: int = field(default=LANES, repr=False)

    @property
    def tiles(self) -> list[tuple[Panel, int, int]]:
        """The tiles that stand side by side, as panels of their own: which they are the first of, and which not."""
        if not self.narrow or self.vectors == 1:
            return [(self, 0, 1)]
        whole, end = (replace(self, vectors=1, last=last) for last in (self.lanes, self.last))
        parted = self.vectors - (whole != end)
        return [(whole, 0, parted), (end, parted, self.vectors)][: 1 + (whole != end)]

    @property
    def width(self) -> int:
        """In columns, those of the last vector that are not there included."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Form:
    """What the code of a product depends on: all else are numbers that it is given.

    ``whole``: the panel that most columns are made in; ``end``: the last one, if it is another. ``x_turned``,
    ``y_turned``: the operand lies with its axes swapped; ``deep``: the inner axis takes several packings; ``bias``: a
    vector is added to each row; ``shared``: all products of the batch have one second operand, and so few rows that
    its panels are packed once for all of them; ``x_long``: the first operand is turned, and its lines are asked for;
    ``deepest``: inner elements that are packed at once, at most; ``unit``: it is made in the matrix unit,
    but for what would not be exact there; ``kind``: its numbers, which are of single precision in narrow tiles and in
    the matrix unit.
    """

    whole: Panel
    end: Panel | None
    x_turned: bool
    y_turned: bool
    deep: bool
    bias: bool
    shared: bool
    x_long: bool
    deepest: int
    unit: bool = False
    kind: Kind = SINGLE


def form_of(
    sizes: tuple[int, int, int, int], turned: tuple[bool, bool], *, bias: bool, shared: bool,
    narrow: bool | None = None, unit: bool = False, once: bool = False, kind: Kind = SINGLE,
) -> tuple[Form, int]:  # fmt: skip
    """The form of a product of these sizes (batch, rows, inner size and columns), and how many panels it has;
    ``shared``: of a stack and one matrix; ``narrow``: with narrow tiles, as this processor's registers say if None;
    ``unit``: in the matrix unit, if that pays; ``once``: sums are to be made in one part.

    >>> form_of((64, 32, 256, 1024), (False, False), bias=False, shared=True, narrow=False)[1]
    16
    """
    batch, rows, inner, columns = sizes
    narrow = is_narrow() if narrow is None else narrow
    widest, most = _extent(inner, turned[0]) if narrow else (WIDEST, _depth(turned[0] and not once))
    unit = unit and not narrow and unit_parts.pays(sizes, turned)
    most = unit_parts.depth(rows) if unit and not once else most
    whole, end, count = panels_of(rows, inner, columns, narrow, widest, kind.lanes)
    deep = inner > most
    packed_once = shared and batch > 1 and rows < TALL and not deep
    x_long = turned[0] and inner > LONG_TURNED and nearest.small() and not narrow
    return Form(whole, end, *turned, deep, bias, packed_once, x_long, most, unit and not packed_once, kind), count


def _extent(inner: int, x_turned: bool) -> tuple[int, int]:
    """Vectors of a panel of narrow tiles, and inner elements that are packed at once, at most: of either as many more
    as of the other fewer.

    >>> _extent(128, x_turned=True), _extent(512, x_turned=True), _extent(128, x_turned=False)
    ((32, 128), (8, 512), (8, 512))
    """
    # a long axis takes several packings anyway
    times = next((k for k in (_WIDENED, 2, 1) if inner * k <= _NARROW_DEEPEST), 2) if x_turned else 1
    return _NARROW_WIDEST * times, _NARROW_DEEPEST // times


def _depth(x_turned: bool) -> int:
    """Inner elements that are packed at once, at most."""
    return _DEEPEST_TURNED if x_turned and nearest.wide() else DEEPEST


def panels_of(
    rows: int, inner: int, columns: int, narrow: bool, most: int | None = None, lanes: int = LANES
) -> tuple[Panel, Panel | None, int]:
    """The panel that most columns are made in, of ``most`` vectors at most, the one at the end if that is another, and
    how many there are.

    >>> panels_of(128, 512, 100, narrow=False)[0]
    Panel(vectors=4, last=16, rows=6, mixed=True, narrow=False)
    """
    vectors = -(-columns // lanes)
    most = most or (_NARROW_WIDEST if narrow else WIDEST)
    widest = most + 1 if vectors % (most + 1) == 0 and vectors % most else most
    count = -(-vectors // widest)
    width = -(-vectors // count)
    rest = vectors - (count - 1) * width
    end, whole = (
        Panel(number, last, *_height(rows, inner, NARROW_ROWS if narrow else ROWS[number]), narrow, lanes)
        for number, last in ((rest, columns - (vectors - 1) * lanes), (width, lanes))
    )
    if count == 1:
        return end, None, 1
    return whole, end if end != whole else None, count


NUMBERS = 18
"""Of what :func:`numbers` gives."""


def numbers(
    sizes: tuple[int, int, int, int], form: Form, count: int, threads: int, x: Steps, y: Steps, out: Steps,
    together: int = 0,
) -> tuple[int, ...]:  # fmt: skip
    """What the code of a form is given for ``threads`` threads and matrices that lie so; ``together``: as many are in
    one stack of a stack of stacks (0: all)."""
    batch, rows, inner, _ = sizes
    height = unit_parts.height(sizes, (form.x_turned, form.y_turned), form.deepest, threads) if form.unit else rows
    # each thread takes as many tasks, one after the other
    if not form.unit and threads > 1 and batch * count < _TASKS * threads:
        unit = math.lcm(form.whole.rows, form.end.rows if form.end is not None else 1)
        parts = threads // math.gcd(batch * count, threads)
        enough = 1 if form.deep else -(-_TASKS * threads // (batch * count * parts))
        parts *= max(1, min(enough, rows // (_LONG * parts)))
        height = -(-max(_SHORTEST, -(-rows // parts)) // unit) * unit
    chunks = -(-rows // height)
    depth = -(-inner // -(-inner // form.deepest))
    depth = -(-depth // form.kind.lanes) * form.kind.lanes  # what is turned while it is packed are squares
    steps = zip(*((each.step, each.outer, each.row) for each in (x, y, out)), strict=True)
    return (
        batch * count * chunks, rows, inner, depth, height, chunks, count, together or batch,
        *(number for kind in steps for number in kind), threads - 1,
    )  # fmt: skip


def share_of(sizes: tuple[int, int, int, int], unit: bool, tasks: int, threads: int) -> Share:
    """How the tasks of a product are shared: in several parts for each thread, because one may come late; but in few
    where each packs its rows for the matrix unit."""
    each = unit_parts.TICKETS if unit else _TASKS
    return Share(threads, min(tasks, each * threads), math.prod(sizes) < BRIEF_PRODUCT)


def _height(rows: int, inner: int, most: int) -> tuple[int, bool]:
    """Rows of a tile, at best ``most``, and whether the last ones have one fewer: any number from
    ``most * (most - 1)`` on is made of both. For few rows, and a short inner axis, somewhat lower tiles, where the last
    would be nearly empty."""
    heights = range(most, most * 2 // 3 - 1, -1)
    wasted = {height: (-rows % height) / rows for height in heights}
    if inner >= _MIXED and rows >= most * (most - 1) and wasted[most] > _WASTE:
        return most, True
    return next((height for height in heights if wasted[height] <= _WASTE), min(heights, key=wasted.__getitem__)), False
