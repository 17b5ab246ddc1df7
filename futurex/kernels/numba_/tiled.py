"""Compiled ``rank_update`` of many rows: what elementwise operations make of a product, tile by tile.

A product's code (:mod:`.products`) hands each tile, as soon as it is made, to the region's code, a function beside it:
the product itself is never written but to a few lines of the nearest cache, and while a tile is multiplied, what the
region will read of other matrices is on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from futurex.kernels.numba_ import matrix_unit, panels, unit_parts
from futurex.kernels.numba_.emit import Inner, inner
from futurex.kernels.numba_.layout import Layout, collapse
from futurex.kernels.numba_.panels import Form, Panel, Steps
from futurex.kernels.numba_.products import Writer
from futurex.kernels.numba_.program import Program
from futurex.kernels.numba_.region import Region, analyse
from futurex.kernels.numba_.scalar import memory_type
from futurex.kernels.numba_.vectors import LANES, VECTOR
from futurex.kernels.threads import may_share
from futurex.ops.low_rank import NONE
from futurex.tree.node import Node

_FLOAT32 = np.dtype(np.float32)


def updating(node: Node, threads: int) -> Program:
    """The kernel of a ``rank_update`` node without ``back``. Raises ValueError if there is none."""
    x, g = node.inputs[:2]
    graph = node.attrs["graph"]
    if node.attrs["back"] != NONE or any(each.dtype != _FLOAT32 for each in (x, g, graph.params[0])):
        raise ValueError(f"{node.op}: no tiles of single precision")
    region = analyse(graph)
    shape = graph.outs[0].shape
    operands = [*(each.shape for each in graph.params), shape]
    layout = collapse(shape, operands, dict.fromkeys(range(len(operands)), 1))
    if len(layout.extents) != 2 or region.guarded or not region.arrays or region.arrays[0]:
        raise ValueError(f"{node.op}: the region is not a loop over the tiles of a product")
    inner_size, columns = g.shape
    sizes = 1, x.shape[1], inner_size, columns
    form, count = panels.form_of(sizes, (True, False), bias=False, shared=False, unit=matrix_unit.is_used(), once=True)
    if form.deep:
        raise ValueError(f"{node.op}: sums in several parts")
    if not panels.reads(x.shape[1], True):
        raise ValueError(f"{node.op}: fewer rows than a register holds")
    threads = threads if may_share() else 1
    numbers = panels.numbers(sizes, form, count, threads, Steps(x.shape[1]), Steps(columns), Steps(columns))
    return Program(
        numbers, (0, 1, *(k + 1 for k in region.arrays[1:])), (), {},
        tuple(replace(each, position=None if each.position is None else each.position + 1) for each in region.scalars),
        lambda aliases: _Writer(form, may_share(), region, layout, aliases).text(),
        panels.share_of(sizes, form.unit, numbers[0], threads), 0, region.approximate, inplace=True, guarded=False,
    )  # fmt: skip


class _Writer(Writer):
    """``aliases``: of the two factors, and of the matrices that the region reads."""

    def __init__(self, form: Form, threaded: bool, region: Region, layout: Layout, aliases: Sequence[int]) -> None:
        super().__init__(form, threaded)
        self.region = region
        tiles = dict.fromkeys(tile for each in (form.whole, form.end) if each for tile, _, _ in each.tiles)
        self.height = max(tile.rows for tile in tiles)
        self.names = {tile: f"update{k}" for k, tile in enumerate(tiles)}
        self.functions = {tile: inner(region, layout, (-1, *aliases[2:]), name) for tile, name in self.names.items()}
        self.matrices = {f"%o{k}": each.dtype for k, each in enumerate(region.graph.outs)}
        """Those that tiles go to, and are read from where they are not the same."""
        for j, (k, alias) in enumerate(zip(region.arrays[1:], aliases[2:], strict=True), 1):
            if alias < 0:
                self.matrices[f"%a{j}"] = region.graph.params[k].dtype

    def text(self) -> str:
        self.tile = self.code.do(f"alloca i8, i64 {4 * self.form.whole.width * self.height}, align 64")
        text = super().text()
        lines = [line for each in self.functions.values() for line in each.lines]
        declared = {line for each in self.functions.values() for line in each.declarations if line not in text}
        return "\n".join([*sorted(declared), text, *lines]) + "\n"

    def arrays(self) -> list[tuple[str, str]]:
        region = self.region
        names = [*(f"o{k}" for k in range(len(region.graph.outs))), "x", "y"]
        names += [f"a{j}" for j in range(1, len(region.arrays))]
        scalars = [(memory_type(each.slot), f"s{k}") for k, each in enumerate(region.scalars)]
        return [*(("ptr", name) for name in names), *scalars]

    def expected(self, height: int) -> int:
        """The first rows of each matrix, as many lines in all as a tile has: those of three matrices at once keep a
        core waiting, while the update, once it has begun, finds what follows in time."""
        return -(-height // len(self.matrices))

    def expect(self, panel: Panel, place: str) -> None:
        """A row of each matrix."""
        code = self.code
        for name, dtype in self.matrices.items():
            row = code.at(memory_type(dtype), name, place)
            for byte in range(0, panel.width * dtype.itemsize, 64):
                self._fetch(code.at("i8", row, str(byte)), write=name[1] == "o")

    def deliver(self, panel: Panel, places: list[str], count: str, begin: str, values: list[str]) -> None:
        """Have the region's code read a tile from the stack, and write what it makes of it."""
        code, width = self.code, panel.width
        for number, value in enumerate(values):
            row, vector = divmod(number, panel.vectors)
            place = code.at("float", self.tile, str(row * width + vector * LANES))
            code.run(f"store {VECTOR} {value}, ptr {place}, align 64")
        columns = (panel.vectors - 1) * LANES + panel.last
        self._update(self.names[panel], self.functions[panel], self.tile, width, places[0], count, str(columns))

    def deliver_thirds(self, tile: str, place: str, column: str, height: str, width: str, begin: str) -> None:
        """The same of a tile that lies in memory."""
        panel = self.form.whole.tiles[0][0]
        self._update(self.names[panel], self.functions[panel], tile, unit_parts.SIDE, place, height, width)

    def _update(
        self, name: str, function: Inner, tile: str, pitch: int, place: str, count: str, columns: str
    ) -> None:
        """Call the region's code: for ``count`` rows and some columns, from a place in the matrices on."""
        code = self.code
        given = {"%n0": count, "%n1": columns, "%a0": tile, "%t0.0": str(pitch)}
        for matrix, dtype in self.matrices.items():
            given[matrix] = code.at(memory_type(dtype), matrix, place)
        passed = ", ".join(
            f"{kind} {given.get(each, '%out_row' if each.startswith('%t') else each)}" for kind, each in function.given
        )
        code.run(f"call void @{name}(i64 0, i64 {count}, {passed})")
