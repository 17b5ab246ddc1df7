"""From a region to LLVM IR: loops over collapsed dimensions, all loads of an element before its stores.

The kernel takes one pointer to a block of 8-byte slots: loop extents, addresses of results, addresses of array
operands, the steps of those with gaps between their rows, then of a result with gaps, scalars. Neither extents nor
scalar values, but for what integers are divided by, are part of the text, so one compiled kernel serves all shapes of a
pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.numba_ import nearest, past, squares
from futurex.kernels.numba_.code import ENTRY, loop_note, share
from futurex.kernels.numba_.compiler import has_masks
from futurex.kernels.numba_.element import computed
from futurex.kernels.numba_.layout import Axes, Layout
from futurex.kernels.numba_.nests import Nest
from futurex.kernels.numba_.pairwise import AHEAD, LINE, PREFETCH, prefetch
from futurex.kernels.numba_.region import Region
from futurex.kernels.numba_.scalar import Body, joined, memory_type
from futurex.tree.node import Node

Dtype = np.dtype[Any]


_NOTHING = [
    "  %hidden = alloca i64, align 8", "  store volatile i64 0, ptr %hidden, align 8",
    "  %nothing8 = load volatile i64, ptr %hidden, align 8", "  %nothing4 = trunc i64 %nothing8 to i32",
]  # fmt: skip
"""Zeros of which the compiler knows nothing."""
PIECE = 64
"""Elements of a result that goes past the caches, a piece at a time: whole lines, held in registers."""
_LEAST_ASIDE = 1024
"""Elements of rows that are not whole pieces: what lies beside these is stored apart."""
_FOUR_ABREAST, LEAST_ABREAST = '"llvm.loop.interleave.count", i32 4', 256
"""Vectors side by side, in rows of so many elements, where there are functions or a long chain of operations: left
alone, LLVM keeps to one vector or two, whose steps wait for each other. Four, part of which may lie on the stack, take
0.6 to 0.95 of the time."""
_LONG_CHAIN, _BROAD = 16, 4
"""Operations that wait for each other from which that holds without functions, and how many there are for each of a
chain where one vector keeps the processor busy, and four would lie on the stack."""
_MASKED = '"llvm.loop.vectorize.predicate.enable", i1 true'
"""The elements of a short row that are no whole vector are one with a mask: one by one, their divisions take as long as
many rows. With divisions 0.3 to 0.6 of the time; without, what is read through a mask takes longer."""
_ONE_BY_ONE = '"llvm.loop.vectorize.enable", i1 false'
"""Of elements whose functions the library computes: a vector of these would be as many calls, and more code."""
_NOTE = re.compile(r"!(\d{3}\b)")
_FIRST_NOTE = 500
"""The number of the first note of a loop: others that a module has begin elsewhere."""


def emit(
    region: Region, layout: Layout, aliases: Sequence[int], threaded: bool, written: Sequence[Node] = (),
    across: int | None = None, columns: bool = False,
) -> str:
    """The IR of the kernel ``@region``; array operand j shares memory with result ``aliases[j]`` (-1: with none).
    ``across``: the loop along which operands that are read in squares are dense; ``columns``: results are those of one
    array, which lie side by side.

    Results that the last cache cannot hold go past it, unless one is written over an operand, whose lines are there.
    ``written``: arrays of which results are parts that are written one after the other, if they are.
    """
    whole = layout.extents[-1] >= _LEAST_ASIDE or layout.extents[-1] % PIECE == 0
    aside = whole and goes_aside(region, aliases, written)
    if columns:
        return _Columns(region, layout, aliases, aside=False).module(threaded)
    return Emitter(region, layout, aliases, aside, across).module(threaded)


def goes_aside(region: Region, aliases: Sequence[int], written: Sequence[Node]) -> bool:
    """Do results go past the caches? That is so where the last one cannot hold them, and no operand lies there."""
    return all(alias < 0 for alias in aliases) and past.outgrows(written or region.graph.outs, region.graph.params)


def height(region: Region, layout: Layout) -> int:
    """How many rows the tiles have in which operands are turned."""
    return _tile(region, layout)[0][0]


def _tile(region: Region, layout: Layout) -> tuple[tuple[int, int], int]:
    turned = (region.graph.params[k] for k in region.arrays if not layout.apart[k])
    size = max(node.dtype.itemsize for node in turned)
    return squares.sides(size), squares.block(size)


@dataclass(frozen=True)
class Inner:
    """A region as a function of another kernel's module, for the rows from 0 to what it is given second; ``given``:
    type and name of everything else."""

    lines: list[str]
    given: list[tuple[str, str]]
    declarations: list[str]


def inner(region: Region, layout: Layout, aliases: Sequence[int], name: str) -> Inner:
    """The region as a function of this name; aliases as in :func:`emit`."""
    emitter = Emitter(region, layout, aliases, aside=False)
    lines = [line.replace("@part(", f"@{name}(") for line in emitter.part()]
    return Inner(lines, emitter.passed(), sorted(emitter.body.intrinsics))


class Emitter:
    """``layout``: of the operands, and last of the results."""

    def __init__(
        self, region: Region, layout: Layout, aliases: Sequence[int], aside: bool, across: int | None = None
    ) -> None:
        self.region = region
        self.across = across
        self.tile, self.block = ((0, 0), 0) if across is None else _tile(region, layout)
        self.aside = aside
        self.layout = layout
        self.aliases = aliases
        self.outs = region.graph.outs
        self.depth = len(layout.extents)
        self.length = layout.extents[-1]
        """Elements of the innermost loop."""
        self.array_nodes = [region.graph.params[k] for k in region.arrays]
        self.axes = [layout.axes[k] for k in region.arrays]
        self.steps = [layout.apart[k] for k in region.arrays]
        self.body = Body()
        self.index = f"%i{self.depth - 1}"
        self.targets: list[str] = []
        """Where the elements of results go, if not to the results."""
        self.notes: list[str] = []

    def module(self, threaded: bool) -> str:
        part, declared = self.part(), self.body.intrinsics
        if self.region.guarded:
            twin = type(self)(self.region, self.layout, self.aliases, False, self.across)
            twin.body.by_library = True
            part += [_NOTE.sub(r"!1\1", line.replace("@part(", "@exactly(")) for line in twin.part()]
            declared |= twin.body.intrinsics
        declarations = sorted(declared)
        if self.aside:
            declarations += past.DECLARATIONS
        functions = past.FUNCTION if self.aside and self.sends_rows else []
        for size in sorted({self.array_nodes[j].dtype.itemsize for j in self._turned()}):
            functions = [*functions, *squares.function(size)]
        return "\n".join([*declarations, *functions, *part, *self._entry(threaded)]) + "\n"

    @property
    def _watches(self) -> bool:
        """Are there functions by formulas that hold up to a bound?"""
        return self.region.guarded and not self.body.by_library

    @property
    def sends_rows(self) -> bool:
        """Do results that go past the caches go there row by row?"""
        return self.across is not None

    def _room(self) -> int:
        """Elements of a result that wait to go past the caches, at most."""
        return PIECE if self.across is None else self.tile[1]

    def _turned(self) -> list[int]:
        """The operands that are read in squares."""
        return [j for j, step in enumerate(self.steps) if not step]

    def _parameters(self) -> list[tuple[str, str]]:
        """Type and name of every slot of the block, in order; operands shared with results have a slot, unread."""
        own = [("i64", f"%n{d}") for d in range(self.depth)]
        own += [("ptr", f"%o{k}") for k in range(len(self.outs))]
        own += [("ptr", f"%a{j}") for j in range(len(self.array_nodes))]
        moving = [*((f"%t{j}", axes) for j, axes in enumerate(self.axes)), ("%t", self.layout.axes[-1])]
        own += [("i64", f"{name}.{d}") for name, axes in moving for d, axis in enumerate(axes) if axis]
        return [*own, *((memory_type(scalar.slot), f"%s{k}") for k, scalar in enumerate(self.region.scalars))]

    def passed(self) -> list[tuple[str, str]]:
        shared = {f"%a{j}" for j, alias in enumerate(self.aliases) if alias >= 0}
        return [(kind, name) for kind, name in self._parameters() if name not in shared]

    def _entry(self, threaded: bool) -> list[str]:
        """Unpack the block, take the ticket's share of the outermost loop, run it."""
        lines = [f"{ENTRY} {{", "entry:"]
        for slot, (kind, name) in enumerate(self._parameters()):
            lines.append(f"  {name}.at = getelementptr i64, ptr %block, i64 {slot}")
            lines.append(f"  {name} = load {kind}, ptr {name}.at, align 8")
        low, high = "0", "%n0"
        if threaded:
            lines += share("%n0", PIECE if self.depth == 1 else self.tile[0] if self.across == 0 else 1)
            low, high = "%low", "%high"
        arguments = ", ".join(f"{kind} {name}" for kind, name in self.passed())
        return [*lines, f"  call void @part(i64 {low}, i64 {high}, {arguments})", "  ret void", "}"]

    def part(self) -> list[str]:
        parameters = ", ".join(f"{'ptr noalias' if kind == 'ptr' else kind} {name}" for kind, name in self.passed())
        # what registers cannot hold lies on the stack: vectors on whole lines, which the compiler does not see to
        lines = [f"define internal void @part(i64 %low, i64 %high, {parameters}) noinline alignstack(64) {{", "entry:"]
        if self._watches:
            lines += ["  %flag = alloca i32, align 4", "  store i32 0, ptr %flag, align 4"]
        if any(abs(step) > 1 for step in self.steps):
            lines += _NOTHING
        for k, node in enumerate(self.outs if self.aside else ()):
            lines.append(f"  %w{k} = alloca [{self._room()} x {memory_type(node.dtype)}], align 64")
        values = self._scalars()
        lines += self._loops(values) if self.across is None else self._in_tiles(self.across, values)
        lines += [f"  {past.FENCE}"] if self.aside else []
        return [*lines, *self._anew(), "  ret void", "}", *self.notes]

    def _loops(self, values: dict[tuple[Node, Dtype], str]) -> list[str]:
        """One loop in the other."""
        if self.depth == 1:
            self._first_rows()
        lines, before = self._flush(), "entry"
        for d in range(self.depth):
            low, high = ("%low", "%high") if d == 0 else ("0", f"%n{d}")
            if self.aside and d == self.depth - 1:
                lines += self._pieces(low, high, before, values)
                low, before = "%whole", "over"
            lines += [f"  br label %head{d}", f"head{d}:"]
            lines += [
                f"  %i{d} = phi i64 [ {low}, %{before} ], [ %next{d}, %end{d} ]",
                f"  %go{d} = icmp slt i64 %i{d}, {high}",
                f"  br i1 %go{d}, label %body{d}, label %done{d}",
                f"body{d}:",
            ]
            before = f"body{d}"
            if d == self.depth - 2:
                self._rows(values)
                lines += self._flush()
        self._element(values)
        lines += self._flush()
        for d in reversed(range(self.depth)):
            again = f"br label %head{d}{self._noted() if d == self.depth - 1 else ''}"
            lines += [f"  br label %end{d}", f"end{d}:", f"  %next{d} = add nsw i64 %i{d}, 1", f"  {again}"]
            lines.append(f"done{d}:")
        return lines

    def _noted(self) -> str:
        """What the vectoriser is told of a loop along rows."""
        region, chain = self.region, self.region.chain
        word: str | None
        if self.body.by_library:
            word = _ONE_BY_ONE
        elif self.length >= LEAST_ABREAST:
            busy = chain >= _LONG_CHAIN and len(region.graph.nodes) > _BROAD * chain
            word = _FOUR_ABREAST if (region.approximate or chain >= _LONG_CHAIN) and not busy else None
        else:
            word = _MASKED if has_masks() and region.divides and self.length % self._lanes() else None
        if word is None:
            return ""
        mark, lines = loop_note(_FIRST_NOTE + len(self.notes), word)
        self.notes += lines
        return mark

    def _lanes(self) -> int:
        """Elements of the widest type in a register, which is a line long."""
        return LINE // max(node.dtype.itemsize for node in self.region.graph.nodes)

    def _in_tiles(self, across: int, values: dict[tuple[Node, Dtype], str]) -> list[str]:
        """All loops, in tiles of the rows along loop ``across`` and the columns: of each, operands that lie the other
        way round are turned into buffers, then its rows are computed."""
        last, (tall, wide) = self.depth - 1, self.tile
        lines = [
            f"  %b{j} = alloca i8, i64 {tall * wide * self.array_nodes[j].dtype.itemsize}, align 64"
            for j in self._turned()
        ] + self._flush()
        loops = Nest(lines, "entry")
        for d in range(last):
            low, high = ("%low", "%high") if d == 0 else ("0", f"%n{d}")
            loops.enter(f"%block{d}" if d == across else f"%i{d}", low, high, self.block if d == across else 1)
        end, columns = "%high" if across == 0 else f"%n{across}", f"%n{last}"
        loops.enter("%columns", "0", columns, self.block)
        loops.enter(f"%from{across}", f"%block{across}", loops.least(f"%block{across}", self.block, end), tall)
        loops.enter("%column", "%columns", loops.least("%columns", self.block, columns), wide)
        until = loops.least(f"%from{across}", tall, end)
        lines += [
            f"  %count = sub nsw i64 {until}, %from{across}",
            f"  %wide = sub nsw i64 {loops.least('%column', wide, columns)}, %column",
        ]
        for j in self._turned():
            self._turn(j, across, wide)
        lines += self._flush()
        loops.enter(f"%i{across}", f"%from{across}", until)
        self._rows_of_tile(across, values)
        lines += self._flush()
        self.targets = [f"%w{k}" for k in range(len(self.outs))] if self.aside else []
        loops.enter("%within", "0", "%wide")
        lines.append(f"  %i{last} = add nsw i64 %within, 0")
        self._element(values)
        lines += self._flush()
        loops.leave()
        for k, node in enumerate(self.outs if self.aside else ()):
            lines += [
                f"  %bytes{k} = mul nsw i64 %wide, {node.dtype.itemsize}",
                f"  {past.row_sent(self.rows[f'%o{k}'], f'%w{k}', f'%bytes{k}')}",
            ]
        while loops.open:
            loops.leave()
        return lines

    def _turn(self, j: int, across: int, wide: int) -> None:
        """Have the tile of an operand turned into its buffer."""
        dtype, axes = self.array_nodes[j].dtype, self.axes[j]
        offset, steps = "0", [f"%t{j}.{d}" if axis else "0" for d, axis in enumerate(axes)]
        places = [f"%from{d}" if d == across else f"%i{d}" for d in range(self.depth - 1)]
        for place, step in zip([*places, "%column"], steps, strict=True):
            if step != "0":
                offset = self.body.emit(f"add nsw i64 {offset}, {self.body.emit(f'mul nsw i64 {place}, {step}')}")
        source = self.body.emit(f"getelementptr inbounds {memory_type(dtype)}, ptr %a{j}, i64 {offset}")
        pitch = wide * dtype.itemsize
        self.body.lines.append(
            squares.call(dtype.itemsize, f"%b{j}", pitch, source, "%count", steps[across], "%wide", steps[-1])
        )

    def _rows_of_tile(self, across: int, values: dict[tuple[Node, Dtype], str]) -> None:
        """Where a row of a tile begins in each array, and in each buffer."""
        self._rows(values)
        for name, dtype, mask in self._pointers():
            if mask[-1] and self._step(name):
                step = self._step(name)
                place = "%column" if step == 1 else self.body.emit(f"mul nsw i64 %column, {step}")
                self.rows[name] = self.body.emit(
                    f"getelementptr inbounds {memory_type(dtype)}, ptr {self.rows[name]}, i64 {place}"
                )
        row = self.body.emit(f"sub nsw i64 %i{across}, %from{across}")
        for j in self._turned():
            place = self.body.emit(f"mul nsw i64 {row}, {self.tile[1]}")
            kind = memory_type(self.array_nodes[j].dtype)
            self.rows[f"%a{j}"] = self.body.emit(f"getelementptr inbounds {kind}, ptr %b{j}, i64 {place}")

    def _pieces(self, low: str, high: str, before: str, values: dict[tuple[Node, Dtype], str]) -> list[str]:
        """A loop over the pieces of a row that are whole lines of the first result, which asks for what operands hold
        ahead of a piece. Where a row begins within a line, what comes before the first whole one is made with what
        follows, and what comes behind the last with what lies before: only that of it is stored. The one row of what
        has no others begins with a line mostly, and what is left of it is made one by one."""
        last, rows = self.depth - 1, self.depth > 1
        self.index, self.targets = f"%at{last}", [f"%w{k}" for k in range(len(self.outs))]
        asked = self._asked()
        self._element(dict(values))
        element = self._flush()
        self.index, self.targets = f"%i{last}", []
        lines = self._of_rows(high) if rows else [
            f"  %span = sub i64 {high}, {low}",
            f"  %covered = and i64 %span, -{PIECE}",
            f"  %whole = add i64 {low}, %covered",
        ]  # fmt: skip
        lines += [
            "  br label %ahead",
            "ahead:",
            f"  %place = phi i64 [ {'%start' if rows else low}, %{before} ], [ %following, %sent ]",
            "  %more = icmp slt i64 %place, %whole",
            "  br i1 %more, label %pieces, label %over",
            "pieces:",
        ]
        if rows:
            lines += [
                "  %early = icmp slt i64 %place, %final",
                "  %earlier = select i1 %early, i64 %place, i64 %final",
                "  %inside = icmp sgt i64 %earlier, 0",
                "  %piece = select i1 %inside, i64 %earlier, i64 0",
            ]
        else:
            lines.append("  %piece = add i64 %place, 0")
        lines += [
            *asked,
            "  br label %each",
            "each:",
            "  %within = phi i64 [ 0, %pieces ], [ %onward, %each ]",
            f"  %at{last} = add nsw i64 %piece, %within",
            *element,
            "  %onward = add nsw i64 %within, 1",
            f"  %again = icmp slt i64 %onward, {PIECE}",
            f"  br i1 %again, label %each, label %gone{self._noted()}",
            "gone:",
        ]
        if rows:
            lines += ["  %all = icmp eq i64 %place, %piece", "  br i1 %all, label %lines, label %some", "lines:"]
        for k, node in enumerate(self.outs):
            target = f"getelementptr inbounds {memory_type(node.dtype)}, ptr {self.rows[f'%o{k}']}, i64 %piece"
            lines += past.sent(str(k), target, f"%w{k}", PIECE * node.dtype.itemsize)
        if rows:
            lines += ["  br label %sent", *self._some(high)]
        return [
            *lines, "  br label %sent", "sent:", f"  %following = add nsw i64 %place, {PIECE}", "  br label %ahead",
            "over:",
        ]  # fmt: skip

    def _asked(self) -> list[str]:
        """Requests for what operands hold ahead of a piece, so far in all: what is there and not read yet has to stay
        in the nearest cache. Views with gaps between their rows are mostly those of one array, some shifted against
        others: new is what the one that lies furthest reads, and the rows of the others stay there, too."""
        operands = [
            (name, dtype)
            for name, dtype, mask in self._pointers()[len(self.outs) :]
            if mask[-1] and (self.depth == 1 or any(mask[:-1]))  # a row that all others share stays where it is
        ]
        lying = [(self.rows[name], dtype, self._step(name), bool(self._axes(name))) for name, dtype in operands]
        asked = [(row, dtype, step) for row, dtype, step, gaps in lying if not gaps and step > 0]
        views = [(row, dtype, step) for row, dtype, step, gaps in lying if gaps and step > 0]
        most = AHEAD // 2 if nearest.small() else AHEAD
        ahead = most // max(1, len(asked) + 2 * bool(views))
        if views:
            furthest, dtype, step = views[0]
            for row, *_ in views[1:]:
                beyond = self.body.emit(f"icmp ugt ptr {row}, {furthest}")
                furthest = self.body.emit(f"select i1 {beyond}, ptr {row}, ptr {furthest}")
            asked.append((furthest, dtype, step))
        for row, dtype, step in asked:
            place = "%piece" if step == 1 else self.body.emit(f"mul nsw i64 %piece, {step}")
            start = self.body.emit(f"getelementptr inbounds {memory_type(dtype)}, ptr {row}, i64 {place}")
            for byte in range(ahead, ahead + PIECE * dtype.itemsize * step, LINE):
                self.body.lines.append(prefetch(self.body.emit(f"getelementptr i8, ptr {start}, i64 {byte}")))
            self.body.intrinsics.add(PREFETCH)
        return self._flush()

    def _of_rows(self, high: str) -> list[str]:
        """Where the pieces of a row begin: as far before it as the first line of its result that is whole lies behind
        its beginning, less a piece."""
        size = self.outs[0].dtype.itemsize
        return [
            f"  %row.at = ptrtoint ptr {self.rows['%o0']} to i64",
            "  %row.past = sub i64 0, %row.at",
            f"  %gap.bytes = and i64 %row.past, {LINE - 1}",
            f"  %gap = udiv i64 %gap.bytes, {size}",
            "  %even = icmp eq i64 %gap, 0",
            f"  %sooner = sub nsw i64 %gap, {PIECE}",
            "  %start = select i1 %even, i64 0, i64 %sooner",
            f"  %final = sub nsw i64 {high}, {PIECE}",
            f"  %whole = add i64 {high}, 0",
        ]

    def _some(self, high: str) -> list[str]:
        """The part of a piece that lies before the first whole line, or behind the last."""
        lines = [
            "some:",
            "  %head = icmp slt i64 %place, 0",
            "  %from = select i1 %head, i64 0, i64 %place",
            f"  %first.line = add nsw i64 %place, {PIECE}",
            f"  %to = select i1 %head, i64 %first.line, i64 {high}",
            "  %some.count = sub nsw i64 %to, %from",
            "  %left.out = sub nsw i64 %from, %piece",
        ]
        for k, node in enumerate(self.outs):
            kind = memory_type(node.dtype)
            lines += [
                f"  %some.to{k} = getelementptr inbounds {kind}, ptr {self.rows[f'%o{k}']}, i64 %from",
                f"  %some.from{k} = getelementptr inbounds {kind}, ptr %w{k}, i64 %left.out",
                f"  %some.bytes{k} = mul nsw i64 %some.count, {node.dtype.itemsize}",
                f"  call void @llvm.memcpy.p0.p0.i64(ptr %some.to{k}, ptr %some.from{k}, i64 %some.bytes{k}, i1 false)",
            ]
        return lines

    def _anew(self) -> list[str]:
        """Where an argument was beyond what a formula holds for, the rows are computed anew without it."""
        if not self._watches:
            return []
        given = ", ".join(f"{kind} {name}" for kind, name in self.passed())
        return [
            "  %seen = load i32, ptr %flag, align 4",
            "  %any = icmp ne i32 %seen, 0",
            "  br i1 %any, label %anew, label %leave",
            "anew:",
            f"  call void @exactly(i64 %low, i64 %high, {given})",
            "  br label %leave",
            "leave:",
        ]

    def _flush(self) -> list[str]:
        """Take the instructions collected since; registers keep counting."""
        fresh = [f"  {line}" for line in self.body.lines if line]
        self.body.lines = [""] * len(self.body.lines)
        return fresh

    def _scalars(self) -> dict[tuple[Node, Dtype], str]:
        values: dict[tuple[Node, Dtype], str] = {}
        for k, scalar in enumerate(self.region.scalars):
            value = scalar.read(k, self.body, self.region.graph.nodes)
            held = scalar.node, scalar.dtype
            values[held] = joined(values[held], value) if scalar.part == "imag" else value
        return values

    def _pointers(self) -> list[tuple[str, Dtype, tuple[bool, ...]]]:
        """Name, dtype and mask of every array, results first."""
        whole = (True,) * self.depth
        outs = [(f"%o{k}", node.dtype, whole) for k, node in enumerate(self.outs)]
        masks = [mask for mask in self.layout.masks[:-1] if mask]
        arrays = zip(self.array_nodes, masks, self.aliases, strict=True)
        return outs + [(f"%a{j}", node.dtype, mask) for j, (node, mask, alias) in enumerate(arrays) if alias < 0]

    def _first_rows(self) -> None:
        self.rows = {name: name for name, _, _ in self._pointers()}

    def _rows(self, values: dict[tuple[Node, Dtype], str]) -> None:
        """Before the innermost loop: where each array's row begins; what does not move along the row is loaded here."""
        self.rows = {}
        for name, dtype, mask in self._pointers():
            if not self._step(name):
                continue
            offset = self._before_row(name, mask)
            pointer = self.body.emit(f"getelementptr inbounds {memory_type(dtype)}, ptr {name}, i64 {offset}")
            if mask[-1]:
                self.rows[name] = pointer
            else:
                values[self.array_nodes[int(name[2:])], dtype] = self.body.load(dtype, pointer)

    def _before_row(self, name: str, mask: tuple[bool, ...]) -> str:
        """How many elements lie from where an array begins to the row that the loops have come to."""
        return self._over_gaps(name) if self._axes(name) else self._densely(mask)

    def _densely(self, mask: tuple[bool, ...]) -> str:
        """How many elements lie before a row of a dense array."""
        offset = "0"
        for d in range(self.depth - 1):
            if mask[d]:
                scaled = offset if offset == "0" else self.body.emit(f"mul nsw i64 {offset}, %n{d}")
                offset = f"%i{d}" if scaled == "0" else self.body.emit(f"add nsw i64 {scaled}, %i{d}")
        return offset if offset == "0" or not mask[-1] else self.body.emit(f"mul nsw i64 {offset}, %n{self.depth - 1}")

    def _axes(self, name: str) -> Axes:
        """Those along which an operand, or the result, has gaps between its rows."""
        return self.axes[int(name[2:])] if name.startswith("%a") else self.layout.axes[-1]

    def _over_gaps(self, name: str) -> str:
        """How many elements lie from where an array begins to a row of it."""
        offset, steps = "0", f"%t{name[2:]}" if name.startswith("%a") else "%t"
        for d, axis in enumerate(self._axes(name)):
            if axis:
                step = self.body.emit(f"mul nsw i64 %i{d}, {steps}.{d}")
                offset = step if offset == "0" else self.body.emit(f"add nsw i64 {offset}, {step}")
        return offset

    def _step(self, name: str) -> int:
        """How many elements lie from one to the next in a row of an operand, or a result; 0 for what is turned."""
        return self.steps[int(name[2:])] if name.startswith("%a") else 1

    def _at(self, name: str, dtype: Dtype) -> str:
        step = self._step(name)
        place = self.index if step in (0, 1) else self.body.emit(f"mul nsw i64 {self.index}, {step}")
        return self.body.emit(f"getelementptr inbounds {memory_type(dtype)}, ptr {self.rows[name]}, i64 {place}")

    def _load(self, name: str, dtype: Dtype) -> str:
        """An element of an array. Of vectors of which every third number, say, is meant, the compiler would compute
        all, and choose among the results: so bits are changed, by nothing, that it has to choose before."""
        value, size = self.body.load(dtype, self._at(name, dtype)), dtype.itemsize
        if abs(self._step(name)) <= 1 or dtype.kind != "f" or size == 2:
            return value
        kind = memory_type(dtype)
        bits = self.body.emit(f"bitcast {kind} {value} to i{8 * size}")
        changed = self.body.emit(f"xor i{8 * size} {bits}, %nothing{size}")
        return self.body.emit(f"bitcast i{8 * size} {changed} to {kind}")

    def _element(self, values: dict[tuple[Node, Dtype], str]) -> None:
        for j, (node, alias) in enumerate(zip(self.array_nodes, self.aliases, strict=True)):
            if (node, node.dtype) not in values:
                name = f"%a{j}" if alias < 0 else f"%o{alias}"
                values[node, node.dtype] = self._load(name, node.dtype)
        for node in self.region.graph.nodes:
            if node.inputs:
                values[node, node.dtype] = computed(self.body, node, values)
        for k, node in enumerate(self.outs):
            if self.targets:
                kind = memory_type(node.dtype)
                place = self.body.emit(f"getelementptr inbounds {kind}, ptr {self.targets[k]}, i64 %within")
            else:
                place = self._at(f"%o{k}", node.dtype)
            self.body.store(node.dtype, values[node, node.dtype], place)


class _Columns(Emitter):
    """Results are the columns of one array: the compiler writes what is computed of neighbouring rows as whole vectors
    where all addresses are seen to be some steps from one."""

    def _at(self, name: str, dtype: Dtype) -> str:
        if not name.startswith("%o"):
            return super()._at(name, dtype)
        place = self.body.emit(f"mul nsw i64 {self.index}, {len(self.outs)}")
        place = self.body.emit(f"add nsw i64 {place}, {name[2:]}")
        return self.body.emit(f"getelementptr inbounds {memory_type(dtype)}, ptr {self.rows['%o0']}, i64 {place}")

    def _before_row(self, name: str, mask: tuple[bool, ...]) -> str:
        offset = super()._before_row(name, mask)
        return self.body.emit(f"mul nsw i64 {offset}, {len(self.outs)}") if name.startswith("%o") else offset
