"""Compiled products of real matrices: panels of the second operand are packed, tiles of the result stay in registers.

The blocking is that of K. Goto and R. van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008) without
its outer levels: a task is a panel of columns and some rows of one product of the batch. Tiles of a few rows by
a few vectors are accumulated, one element of the first operand times a row of the panel at a time. While the first tile
is made, what the panel needs of the second operand is copied into a buffer, from which the other tiles read it: loads
and stores that the multiplications hide. Only an operand that is turned is packed before, by squares of registers. The
first operand is read as it lies, whichever axis is dense. Where registers are half as many and half as long, a panel is
packed before its tiles are made, of which several stand side by side, and so are the rows of a first operand that is
turned.

Each element is a chain of fused multiply-adds over the inner axis, in its order; what is packed at once is added up
apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from futurex.kernels.numba_ import thirds, unit_parts
from futurex.kernels.numba_.code import WRITTEN_OUT, Code, module
from futurex.kernels.numba_.matrix_unit import SHAPES
from futurex.kernels.numba_.panels import Form, Panel
from futurex.kernels.numba_.squares import turned
from futurex.kernels.numba_.vectors import fma, spread, up_to

_STACKED = 8
"""Narrow tiles of a turned first operand whose rows are packed at once, each for itself: the lines in which they lie
are read once for all of them."""
_LOT = 64
"""Inner elements between two lots of what is asked for ahead: as many lines at once as a core can wait for. All of a
tile's at once stop Intel's cores, which have sixteen places for them, for a quarter of its time."""
_UNROLLED = {False: 4, True: 2}
"""Inner elements of one round, where the first operand is turned or not: counting them is a tenth of a round's
instructions, which is what counts where another program has the other half of a core. Addresses of more that lie apart
find no registers. A first tile, of ten or twenty, whose panel is packed meanwhile, takes one: code that is not made."""
_AHEAD = 20
"""Rows of the second operand between what is packed and what is asked for."""
_NAMES = ("tasks", "rows", "inner", "depth", "height", "chunks", "panels", "together", "x_step", "y_step", "out_step",
          "x_outer", "y_outer", "out_outer", "x_row", "y_row", "out_row", "others")  # fmt: skip


@dataclass(frozen=True)
class _Share:
    """Rows of the second operand that are asked for while a tile is made, counted from ``start`` on."""

    start: str
    low: str
    high: str


class Writer:
    """Writes the code of one form."""

    def __init__(self, form: Form, threaded: bool) -> None:
        self.form, self.code, self.threaded = form, Code(), threaded
        self.narrow, self.deepest = form.whole.narrow, form.deepest
        self.kind = form.kind
        self.element, self.lanes, self.vector, self.size = *form.kind, form.kind.vector, form.kind.size
        self.half = self.lanes // 2
        self.stacked = self.half * self.deepest + self.lanes
        """Elements from the packed rows of one tile to those of the next, which lie in other sets of the cache."""
        self.y_ahead: tuple[str, str] | None = None
        """Where the panel of the next task begins, and 1, or 0 if there is none."""
        self.x_ahead = "%x_step", "1"
        """How far behind the first operand that of the next task lies, and 1, or 0 if it has the same."""

    def name(self, lanes: int = 0) -> str:
        """What intrinsics call a vector of so many lanes, or a line."""
        return f"v{lanes or self.lanes}f{8 * self.size}"

    def text(self) -> str:
        form, code = self.form, self.code
        room = code.do(f"alloca i8, i64 {self.size * form.whole.width * self.deepest}, align 64")
        self.buffer = code.hidden("ptr", room)  # a tenth slower with addresses that begin with the stack's
        if self.narrow and form.x_turned:
            lines = code.do(f"alloca i8, i64 {self.size * _STACKED * self.stacked}, align 64")
            self.x_buffer = code.hidden("ptr", lines)
        self.ahead = code.multiply("%y_row", str(_AHEAD))
        if form.shared:
            self._shared_tasks()
        else:
            with code.loop("%low", "%high") as (task, _):
                place = code.do(f"sdiv i64 {task}, %panels")
                first, last = self.chunk(place)
                number = code.do(f"srem i64 {task}, %panels")
                self._look_ahead(task, place, first)
                self._panels(number, lambda panel: self._panel(panel, first, last))
        declarations = [
            f"declare {self.vector} @llvm.fma.{self.name()}({self.vector}, {self.vector}, {self.vector})",
            *(
                f"declare <{n} x {self.element}> @llvm.masked.load.{self.name(n)}.p0"
                f"(ptr, i32, <{n} x i1>, <{n} x {self.element}>)"
                for n in (self.lanes, self.half)
            ),
            f"declare void @llvm.masked.store.{self.name()}.p0({self.vector}, ptr, i32, <{self.lanes} x i1>)",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        ]
        before = None
        if form.unit:
            before = thirds.Writer(self).written()
            declarations += [*thirds.DECLARATIONS, SHAPES]
        return module([*(("i64", name) for name in _NAMES), *self.arrays()], code, self.threaded, declarations, before)

    def arrays(self) -> list[tuple[str, str]]:
        """Type and name of what comes behind the numbers in the block."""
        return [("ptr", name) for name in ("out", "x", "y", *(("bias",) if self.form.bias else ()))]

    def chunk(self, place: str) -> tuple[str, str]:
        """The first row and the one behind the last, for a number that counts batches and chunks of rows."""
        code = self.code
        chunk = code.do(f"srem i64 {place}, %chunks")
        batch = code.do(f"sdiv i64 {place}, %chunks")
        self.x = code.at(self.element, "%x", self._before("x", batch))
        self.y_batch = code.at(self.element, "%y", self._before("y", batch))
        self.out_batch = self._before("out", batch)
        first = code.multiply(chunk, "%height")
        return first, code.least(code.add(first, "%height"), "%rows")

    def _before(self, name: str, batch: str) -> str:
        """Where the matrix with this number of an operand begins."""
        code = self.code
        outer = code.do(f"sdiv i64 {batch}, %together")
        inner = code.do(f"srem i64 {batch}, %together")
        return code.add(code.multiply(outer, f"%{name}_outer"), code.multiply(inner, f"%{name}_step"))

    def _look_ahead(self, task: str, place: str, first: str) -> None:
        """What the task needs that this thread will probably do next: the one behind this in its ticket; behind the
        last, what comes after the tickets that the other threads take meanwhile."""
        code, form = self.code, self.form
        after = code.add(task, "1")
        at_end = code.do(f"zext i1 {code.do(f'icmp eq i64 {after}, %high')} to i64")
        taken = code.multiply("%others", code.do("sub i64 %high, %low"))
        following = code.add(after, code.multiply(at_end, taken))
        there = code.do(f"icmp slt i64 {following}, %tasks")
        place_there = code.do(f"sdiv i64 {following}, %panels")
        batches = [code.do(f"sdiv i64 {each}, %chunks") for each in (place, place_there)]
        column = code.multiply(code.do(f"srem i64 {following}, %panels"), str(form.whole.width))
        y = code.add(self._before("y", batches[1]), code.multiply(column, "%y_row" if form.y_turned else "1"))
        self.y_ahead = code.at(self.element, "%y", y), code.do(f"zext i1 {there} to i64")
        row = code.multiply(code.do(f"srem i64 {place_there}, %chunks"), "%height")
        rows = code.multiply(code.do(f"sub i64 {row}, {first}"), "1" if form.x_turned else "%x_row")
        steps = code.do(f"sub i64 {self._before('x', batches[1])}, {self._before('x', batches[0])}")
        moves = code.do(f"and i1 {there}, {code.do(f'icmp ne i64 {place_there}, {place}')}")
        self.x_ahead = code.add(rows, steps), code.do(f"zext i1 {moves} to i64")

    def _panels(self, number: str, work: Callable[[Panel], None]) -> None:
        """``work(panel)`` for the panel of this number."""
        code, form = self.code, self.form
        self.column = code.multiply(number, str(form.whole.width))
        first = code.multiply(self.column, "%y_row") if form.y_turned else self.column
        self.y = code.at(self.element, self.y_batch, first)
        self.out = code.add(self.out_batch, self.column)
        if form.end is None:
            work(form.whole)
            return
        following = code.add(number, "1")
        at_end = code.do(f"zext i1 {code.do(f'icmp eq i64 {following}, %panels')} to i64")
        with code.loop(at_end, "1"):
            work(form.whole)
        with code.loop("0", at_end):
            work(form.end)

    def _shared_tasks(self) -> None:
        """A thread's tasks, panel by panel; one that is packed serves all of the batch."""
        code = self.code
        places = code.do("sdiv i64 %tasks, %panels")
        with code.loop("%low", "%high") as (task, _):
            place = code.do(f"srem i64 {task}, {places}")
            first, last = self.chunk(place)
            begins = code.do(f"or i1 {code.do(f'icmp eq i64 {place}, 0')}, {code.do(f'icmp eq i64 {task}, %low')}")
            fresh = code.do(f"zext i1 {begins} to i64")

            def work(panel: Panel) -> None:
                with code.loop("0", fresh):
                    self._pack(panel, first, last, "0", "%inner")
                begin = first if self.packs_apart else code.add(first, code.multiply(fresh, str(panel.rows)))
                self._tiles(panel, begin, last, "0", "%inner")

            self._panels(code.do(f"sdiv i64 {task}, {places}"), work)

    def _panel(self, panel: Panel, first: str, last: str) -> None:
        """The rows of one panel."""
        code = self.code
        following = first if self.packs_apart else code.add(first, str(panel.rows))
        if not self.form.deep:
            self._pack(panel, first, last, "0", "%inner")
            self._tiles(panel, following, last, "0", "%inner")
            return
        with code.loop("0", "%inner", "%depth") as (begin, _):
            count = code.least(code.do(f"sub i64 %inner, {begin}"), "%depth")
            self._pack(panel, first, last, begin, count)
            self._tiles(panel, following, last, begin, count)

    @property
    def packs_apart(self) -> bool:
        """Is the buffer full before the first tile is made?"""
        return self.form.y_turned or self.narrow

    def _pack(self, panel: Panel, first: str, last: str, begin: str, count: str) -> None:
        """Fill the buffer; what is not packed apart is also multiplied with the rows of the first tile."""
        if self.form.y_turned:
            self._pack_turned(panel, begin, count)
            return
        code = self.code
        source = code.at(self.element, self.y, code.multiply(begin, "%y_row"))
        if self.narrow:
            with code.loop("0", count) as (k, _):
                places = [self._packed(panel, k, str(v * self.lanes)) for v in range(panel.vectors)]
                self._copied(panel, code.at(self.element, source, code.multiply(k, "%y_row")), places)
            return
        self._rows_of_tile(panel, panel.rows, first, code.do(f"sub i64 {last}, 1"), begin, count, source)

    def _pack_turned(self, panel: Panel, begin: str, count: str) -> None:
        """Squares of rows of the operand, as large as registers, become rows of the panel; the last row stands in for
        those that are not there."""
        code, lanes, side = self.code, self.lanes, self.half if self.narrow else self.lanes
        most = str((panel.vectors - 1) * lanes + panel.last - 1)
        with code.loop("0", count, str(side)) as (k, _), code.loop("0", str(panel.width), str(lanes)) as (first, _):
            mask = up_to(code, code.do(f"sub i64 {count}, {k}"), side)
            targets = [self._packed(panel, code.add(k, str(j)), first) for j in range(side)]
            for part in range(0, lanes, side):
                square = []
                for n in range(part, part + side):
                    row = code.multiply(code.least(code.add(first, str(n)), most), "%y_row")
                    square.append(self.load(code.at(self.element, self.y, code.add(row, begin, k)), mask, side))
                for target, value in zip(targets, turned(code.do, square, self.element), strict=True):
                    place = code.at(self.element, target, str(part))
                    code.run(f"store <{side} x {self.element}> {value}, ptr {place}, align {self.size * side}")

    def _fetch(self, pointer: str, *, write: bool) -> None:
        """Have a line brought to the second-level cache, or for writing to the first."""
        self.code.run(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {3 if write else 2}, i32 1)")

    def _packed(self, panel: Panel, k: str, column: str) -> str:
        """Where the vector from a column of the panel on lies for an inner element."""
        code = self.code
        if panel.narrow:
            row, column = code.multiply(k, str(self.lanes)), code.multiply(column, str(self.deepest))
        else:
            row = code.multiply(k, str(panel.width))
        return code.at(self.element, self.buffer, code.add(row, column))

    def load(self, pointer: str, mask: str | None, lanes: int = 0) -> str:
        kind = self.kind._replace(lanes=lanes or self.lanes)
        if mask is None:
            return self.code.do(f"load {kind.vector}, ptr {pointer}, align {self.size}")
        return self.code.do(
            f"call {kind.vector} @llvm.masked.load.{self.name(kind.lanes)}.p0(ptr {pointer}, i32 {self.size}, "
            f"<{kind.lanes} x i1> {mask}, {kind.vector} zeroinitializer)"
        )

    def _store(self, value: str, pointer: str, mask: str | None) -> None:
        if mask is None:
            self.code.run(f"store {self.vector} {value}, ptr {pointer}, align {self.size}")
            return
        self.code.run(
            f"call void @llvm.masked.store.{self.name()}.p0({self.vector} {value}, ptr {pointer}, i32 {self.size}, "
            f"<{self.lanes} x i1> {mask})"
        )

    def _tiles(self, panel: Panel, first: str, last: str, begin: str, count: str) -> None:
        """All tiles of some rows, the lower ones last; where there are too few rows for that, the last one stands in
        for those that the last tile lacks, and is made again."""
        code = self.code
        most = code.do(f"sub i64 {last}, 1")
        lower = last
        if panel.mixed:
            left = code.do(f"sub i64 {last}, {code.least(first, last)}")
            fewer = code.do(f"srem i64 {code.multiply(left, str(panel.rows - 1))}, {panel.rows}")
            lower = code.do(f"sub i64 {last}, {code.least(code.multiply(fewer, str(panel.rows - 1)), left)}")
        for height, low, high in ((panel.rows, first, lower), (panel.rows - 1, lower, last))[: 1 + panel.mixed]:
            if self.narrow:
                self._narrow_tiles(panel, height, low, high, most, begin, count)
                continue
            with code.loop(low, high, str(height)) as (row, _):
                share = self._share(panel, height, row, first, last, begin, count)
                self._rows_of_tile(panel, height, row, most, begin, count, None, share)

    def _narrow_tiles(self, panel: Panel, height: int, low: str, high: str, most: str, begin: str, count: str) -> None:
        """The tiles of some rows, some side by side. Of a turned first operand the rows of some are packed before."""
        code, turned = self.code, self.form.x_turned
        out, column, buffer = self.out, self.column, self.buffer
        with code.loop(low, high, str(_STACKED * height) if turned else str(height)) as (stack, _):
            end = code.least(code.add(stack, str(_STACKED * height)), high) if turned else code.add(stack, "1")
            if turned:
                self._pack_rows(height, stack, most, begin, count)
            with code.loop(stack, end, str(height)) as (row, _):
                if turned:
                    number = code.do(f"sdiv i64 {code.do(f'sub i64 {row}, {stack}')}, {height}")
                    self.x_lines = code.at(self.element, self.x_buffer, code.multiply(number, str(self.stacked)))
                for tile, first, last in panel.tiles:
                    with code.loop(str(first), str(last)) as (number, _):
                        before = code.multiply(number, str(self.lanes))
                        self.out, self.column = code.add(out, before), code.add(column, before)
                        self.buffer = code.at(self.element, buffer, code.multiply(before, str(self.deepest)))
                        self._rows_of_tile(tile, height, row, most, begin, count, None)
        self.out, self.column, self.buffer = out, column, buffer

    def _pack_rows(self, height: int, row: str, most: str, begin: str, count: str) -> None:
        """Pack the rows of some tiles, from a row on, of a turned first operand, as many as a register holds for each:
        the last ones where fewer are left."""
        code = self.code
        places = []
        for n in range(_STACKED):
            first = self._first_packed(code.add(row, str(n * height)), most)
            places.append(code.at(self.element, self.x, code.add(code.multiply(begin, "%x_row"), first)))
        with code.loop("0", count) as (k, _):
            line, packed = code.multiply(k, "%x_row"), code.multiply(k, str(self.half))
            target = code.at(self.element, self.x_buffer, packed)
            for n, place in enumerate(places):
                values = self.load(code.at(self.element, place, line), None, self.half)
                to = code.at(self.element, target, str(n * self.stacked))
                code.run(f"store <{self.half} x {self.element}> {values}, ptr {to}, align 32")

    def _first_packed(self, row: str, most: str) -> str:
        """The first of the rows that are packed for the tile that begins with a row."""
        return self.code.least(row, self.code.add(most, str(1 - self.half)))

    def _rows_of_tile(
        self, panel: Panel, height: int, row: str, most: str, begin: str, count: str, source: str | None,
        share: _Share | None = None,
    ) -> None:  # fmt: skip
        """One tile of ``height`` rows from ``row`` on; ``source``: where the panel lies that is packed meanwhile;
        ``share``: what is asked for of the next task's."""
        code = self.code
        rows = [row, *(code.least(code.add(row, str(r)), most) for r in range(1, height))]
        places = [code.add(self.out, code.multiply(each, "%out_row")) for each in rows]

        expected = self.expected(height)
        long = code.do(f"icmp sge i64 {count}, {expected * _LOT}")
        at_once = code.do(f"select i1 {long}, i64 1, i64 {expected}")

        def ask(k: str) -> None:
            low = code.multiply(code.do(f"sdiv i64 {k}, {_LOT}"), at_once)
            with code.loop(low, code.least(code.add(low, at_once), str(expected))) as (number, _):
                target = code.least(code.add(row, number), most)
                self.expect(panel, code.add(self.out, code.multiply(target, "%out_row")))
            if not self.narrow:
                self._ask_rows(height, row, begin, k, count)
            if share is not None:
                self._ask_panel(panel, share, k, count)

        values = self._tile(panel, rows, most, begin, count, source, ask)
        there = code.least(str(height), code.add(code.do(f"sub i64 {most}, {row}"), "1"))
        self.deliver(panel, places, there, begin, values)

    def expected(self, height: int) -> int:
        """Of how many rows of a tile of this height the lines are asked for that it will be written to."""
        return height

    def expect(self, panel: Panel, place: str) -> None:
        """Ask for the lines that a row of a tile will be written to; ``place``: where it begins in the result."""
        for v in range(panel.vectors):
            self._fetch(self.code.at(self.element, "%out", self.code.add(place, str(v * self.lanes))), write=True)

    def deliver(self, panel: Panel, places: list[str], count: str, begin: str, values: list[str]) -> None:
        """Write a tile, row by row; rows from ``count`` on are the last one again."""
        code = self.code
        targets = [
            (code.at(self.element, "%out", code.add(place, str(v * self.lanes))), mask)
            for place in places for v, mask in enumerate(_masks(panel))
        ]  # fmt: skip
        if self.form.deep:
            values = [self._added(begin, *each) for each in zip(values, targets, strict=True)]
        for value, target in zip(values, targets, strict=True):
            self._store(value, *target)

    def deliver_thirds(self, tile: str, place: str, column: str, height: str, width: str, begin: str) -> None:
        """Write a tile that lies in memory: so many rows and columns of it."""
        code = self.code
        masks = [up_to(code, code.add(width, str(-v * self.lanes)), self.lanes) for v in range(2)]
        first = code.do(f"icmp eq i64 {begin}, 0")
        with code.loop("0", height) as (row, _):
            source = code.at(self.element, tile, code.multiply(row, str(unit_parts.SIDE)))
            target = code.at(self.element, "%out", code.add(place, code.multiply(row, "%out_row")))
            for v, mask in enumerate(masks):
                offset = str(v * self.lanes)
                value = code.do(f"load {self.vector}, ptr {code.at(self.element, source, offset)}, align 64")
                to = code.at(self.element, target, offset)
                start = "zeroinitializer"
                if self.form.bias:
                    start = self.load(code.at(self.element, "%bias", code.add(column, offset)), mask)
                if self.form.deep:
                    start = code.do(f"select i1 {first}, {self.vector} {start}, {self.vector} {self.load(to, mask)}")
                if self.form.bias or self.form.deep:
                    value = code.do(f"fadd {self.vector} {start}, {value}")
                self._store(value, to, mask)

    def _share(
        self, panel: Panel, height: int, row: str, first: str, last: str, begin: str, count: str
    ) -> _Share | None:
        """As much of the next task's panel, or of what is packed next of this one's, as a tile is of all rows, of which
        some are done."""
        code, turned = self.code, self.form.y_turned
        if self.y_ahead is None:
            return None
        panel_there, there = self.y_ahead
        if self.form.deep:
            later = code.add(begin, "%depth")
            goes_on = code.do(f"icmp slt i64 {later}, %inner")
            begin = code.do(f"select i1 {goes_on}, i64 {later}, i64 0")
            panel_there = code.do(f"select i1 {goes_on}, ptr {self.y}, ptr {panel_there}")
            there = code.do(f"or i64 {there}, {code.do(f'zext i1 {goes_on} to i64')}")
        done, rows = (code.do(f"sub i64 {each}, {first}") for each in (row, last))
        lines = code.multiply(there, str(panel.width) if turned else count)
        reached = code.least(code.add(done, str(height)), rows)
        low, high = (code.do(f"sdiv i64 {code.multiply(lines, each)}, {rows}") for each in (done, reached))
        start = code.at(self.element, panel_there, begin if turned else code.multiply(begin, "%y_row"))
        return _Share(start, low, high)

    def _ask_rows(self, height: int, row: str, begin: str, k: str, count: str) -> None:
        """Ask for some of the rows of another first operand, where the next task has one; what is turned is dense."""
        code = self.code
        distance, there = self.x_ahead
        x = code.at(self.element, self.x, code.add(distance, begin))
        with code.loop("0", code.multiply(there, str(height))) as (number, _):
            line = code.multiply(code.add(row, number), "%inner" if self.form.x_turned else "%x_row")
            self._ask_along(code.at(self.element, x, line), k, count)

    def _ask_panel(self, panel: Panel, share: _Share, k: str, count: str) -> None:
        """Ask for a part of a share: some of its rows, or of turned ones the next elements of each."""
        code = self.code
        if self.form.y_turned:
            with code.loop(share.low, share.high) as (number, _):
                self._ask_along(code.at(self.element, share.start, code.multiply(number, "%y_row")), k, count)
            return
        low, high = self._part(share.low, share.high, k, count)
        with code.loop(low, high) as (number, _):
            line = code.at(self.element, share.start, code.multiply(number, "%y_row"))
            for v in range(panel.vectors):
                self._fetch(code.at(self.element, line, str(v * self.lanes)), write=False)

    def _ask_along(self, row: str, k: str, count: str) -> None:
        """Ask for what the lot of inner elements from ``k`` on needs of a dense row."""
        code = self.code
        with code.loop(k, code.least(code.add(k, str(_LOT)), count), str(self.lanes)) as (at, _):
            self._fetch(code.at(self.element, row, at), write=False)

    def _part(self, low: str, high: str, k: str, count: str) -> tuple[str, str]:
        """The part of a range that is due with the lot that begins with inner element ``k`` of ``count``."""
        code = self.code
        lots = code.do(f"sdiv i64 {code.add(count, str(_LOT - 1))}, {_LOT}")
        extent = code.do(f"sub i64 {high}, {low}")
        each = code.do(f"sdiv i64 {code.add(extent, lots, '-1')}, {lots}")
        begin = code.add(low, code.multiply(code.do(f"sdiv i64 {k}, {_LOT}"), each))
        return begin, code.least(code.add(begin, each), high)

    def _added(self, begin: str, value: str, target: tuple[str, str | None]) -> str:
        """A value with the sum of the packings before it, which lies in the result."""
        code = self.code
        before = self.load(*target)
        first = code.do(f"icmp eq i64 {begin}, 0")
        old = code.do(f"select i1 {first}, {self.vector} zeroinitializer, {self.vector} {before}")
        return code.do(f"fadd {self.vector} {old}, {value}")

    def _tile(
        self, panel: Panel, rows: list[str], most: str, begin: str, count: str, source: str | None,
        ask: Callable[[str], None],
    ) -> list[str]:  # fmt: skip
        """The sums of one tile, row by row; ``source``: where the panel lies that is packed meanwhile; ``ask``: for
        what comes later, every so many inner elements."""
        code, form = self.code, self.form
        if form.x_turned and self.narrow:
            first = self._first_packed(rows[0], most)
            bases = [code.at(self.element, self.x_lines, code.do(f"sub i64 {row}, {first}")) for row in rows]
        elif form.x_turned:
            line = code.at(self.element, self.x, code.multiply(begin, "%x_row"))
            bases = [code.at(self.element, line, row) for row in rows]
        else:
            bases = [code.at(self.element, self.x, code.add(code.multiply(row, "%x_row"), begin)) for row in rows]
        start = self._start(panel, begin) * len(rows)

        unrolled = 1 if source is not None else _UNROLLED[form.x_turned and not self.narrow]
        with code.loop("0", count, str(_LOT), carried=[(self.vector, value) for value in start]) as (first, sums):
            ask(first)
            end = code.least(code.add(first, str(_LOT)), count)
            whole = code.do(f"and i64 {end}, -{unrolled}")
            for low, high, step in ((first, whole, unrolled), (whole, end, 1))[:unrolled]:
                carried = [(self.vector, value) for value in sums]
                with code.loop(low, high, str(step), carried, hidden=source is None) as (k, held):
                    packed = self._packed(panel, k, "0")
                    for n in range(step):
                        place = code.at(self.element, packed, str(n * panel.width))
                        self._element(panel, bases, code.add(k, str(n)), held, place, source)
                sums[:] = held
        return sums

    def _element(
        self, panel: Panel, bases: list[str], k: str, held: list[str], packed: str, source: str | None
    ) -> None:
        """Add the products of one inner element to the sums of a tile; ``packed``: where its row of the panel lies."""
        code, form = self.code, self.form
        places = [code.at(self.element, packed, str(v * self.lanes)) for v in range(panel.vectors)]
        if source is None:
            y = [code.do(f"load {self.vector}, ptr {place}, align 64") for place in places]
        else:
            y = self._copied(panel, code.at(self.element, source, code.multiply(k, "%y_row")), places)
        step = code.multiply(k, str(self.half) if self.narrow else "%x_row") if form.x_turned else k
        if form.x_long:
            later = code.multiply(code.add(k, str(_LOT)), "%x_row")
            for base in {bases[0]: None, bases[-1]: None}:  # rows of a tile are in one line or in two
                self._fetch(code.at(self.element, base, later), write=False)
        for r, base in enumerate(bases):
            number = code.do(f"load {self.element}, ptr {code.at(self.element, base, step)}, align {self.size}")
            x = spread(code, number, self.kind)
            for v, other in enumerate(y):
                held[r * panel.vectors + v] = fma(code, self.vector, x, other, held[r * panel.vectors + v])

    def _copied(self, panel: Panel, row: str, places: list[str]) -> list[str]:
        """The vectors of a row of the second operand, stored in the buffer; one some rows ahead is asked for."""
        code, values = self.code, []
        later = code.at(self.element, row, self.ahead)
        for v, (mask, place) in enumerate(zip(_masks(panel), places, strict=True)):
            self._fetch(code.at(self.element, later, str(v * self.lanes)), write=False)
            values.append(self.load(code.at(self.element, row, str(v * self.lanes)), mask))
            code.run(f"store {self.vector} {values[-1]}, ptr {place}, align 64")
        return values

    def _start(self, panel: Panel, begin: str) -> list[str]:
        """What the sums of a row begin with: nothing or the bias, that in the first packing alone."""
        code = self.code
        if not self.form.bias:
            return ["zeroinitializer"] * panel.vectors
        bias = code.at(self.element, "%bias", self.column)
        places = [code.at(self.element, bias, str(v * self.lanes)) for v in range(panel.vectors)]
        values = [self.load(*each) for each in zip(places, _masks(panel), strict=True)]
        if not self.form.deep:
            return values
        first = code.do(f"icmp eq i64 {begin}, 0")
        return [code.do(f"select i1 {first}, {self.vector} {value}, {self.vector} zeroinitializer") for value in values]


def _masks(panel: Panel) -> list[str | None]:
    """For each vector of a row of a panel, which of its columns there are: None for all."""
    lanes = ", ".join(f"i1 {int(k < panel.last)}" for k in range(panel.lanes))
    last = None if panel.last == panel.lanes else f"<{lanes}>"
    return [None] * (panel.vectors - 1) + [last]


@functools.lru_cache(maxsize=256)
def text_of(form: Form, threaded: bool) -> str:
    """The module of a form."""
    return WRITTEN_OUT + Writer(form, threaded).text()
