"""Compiled kernels as the backend calls them: the block of numbers, addresses and scalars that a text of IR wants."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.kernels.numba_ import crossings, narrow, nearest, pairs, past, row_blocks
from futurex.kernels.numba_.columns import LANES, MOST_COLUMNS, Columns, in_blocks, in_registers
from futurex.kernels.numba_.emit import emit, height
from futurex.kernels.numba_.functions import FUNCTIONS
from futurex.kernels.numba_.layout import MOST_LOOPS, Layout, collapse
from futurex.kernels.numba_.places import in_order
from futurex.kernels.numba_.region import Scalar, analyse
from futurex.kernels.numba_.rowwise import PIECES, Rows
from futurex.kernels.numba_.staggered import Staggered
from futurex.kernels.numba_.staggered import suits as staggers
from futurex.kernels.numba_.sweep import Sweep
from futurex.kernels.numba_.team import Share
from futurex.kernels.threads import may_share
from futurex.ops.fusion import function_of
from futurex.ops.strides import (
    LEAST_ROW,
    Lie,
    LongRows,
    dense_axes,
    lies_in_short_rows,
    step_of,
    together,
    turned_along,
)
from futurex.ops.sweeps import Level
from futurex.tree.graph import Graph
from futurex.tree.node import Node

PARALLEL_BYTES = 512 * 1024
"""Bytes moved below which one thread is done before a second has started."""
LONG, _LONG_OF_FUNCTIONS = 128 * 1024, 16 * 1024
"""Elements of a single row that the threads share."""
_FUNCTION = 2
"""Times the bytes of a function's results, what is moved in the time that it takes."""
_TOGETHER, _NARROW = 2, 2048
"""Threads, and bytes of rows in memory, of which one thread adds up the columns where few lines may be on their way to
the nearest cache: 41 GB/s of 64 columns, and 14 by two threads, which both have what lies between their columns brought
along."""


@dataclass(frozen=True)
class Program:
    """What one kernel is called with, in the order of its block.

    ``numbers`` come first, then addresses of results and of the inputs ``arrays``, ``steps`` in elements along the
    axes of inputs with gaps between their rows (input -1: of the result), ``scalars``, and the address of ``scratch``
    bytes, of which the head is zeros. ``rows``: those that have gaps, and how they lie. ``text`` is the IR for operands
    that share memory with results (-1: with none). ``inplace``: may they? ``guarded``: the scratch memory tells of
    arguments beyond an approximation's bounds.
    """

    numbers: tuple[int, ...]
    arrays: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    rows: Mapping[int, Lie]
    scalars: tuple[Scalar, ...]
    text: Callable[[tuple[int, ...]], str]
    share: Share
    scratch: int
    approximate: bool
    inplace: bool
    guarded: bool


def _share(node: Node, threads: int, pieces: int) -> Share:
    outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    views = (step_of(source) or together(source) for source in node.inputs)  # which overlap
    sources = {source.inputs[0] if view else source for source, view in zip(node.inputs, views, strict=True)}
    moved = sum(aval.nbytes for aval in outs) + sum(source.aval.nbytes for source in sources)
    functions = (each for each in node.attrs["graph"].nodes if function_of(each) in FUNCTIONS)
    moved += _FUNCTION * sum(each.aval.nbytes for each in functions)
    threads = min(threads, pieces) if may_share() and moved >= PARALLEL_BYTES else 1
    return Share.of(threads, moved, pieces)


def _laid_out(shape: tuple[int, ...], operands: Sequence[tuple[int, ...]], lies: Mapping[int, Lie]) -> Layout:
    """The loops over arrays that lie so."""
    gaps = {k: lie if isinstance(lie, int) else int(isinstance(lie, LongRows)) for k, lie in lies.items()}
    axes = {k: lie.axes if isinstance(lie, LongRows) else lie for k, lie in lies.items() if not isinstance(lie, int)}
    return collapse(shape, operands, gaps, axes)


def elementwise(
    node: Node, threads: int, target: np.ndarray[Any, Any] | None = None, least: int = LEAST_ROW,
    written: Sequence[Node] = (), columns: bool = False,
) -> Program:  # fmt: skip
    """The kernel of a ``fused`` node. ``target``: an array that lies as its one result does, where that has gaps
    between its rows; ``least``: elements of a row from which operands with gaps are read where they lie; ``written``:
    the array of which the result is a part, if it is one; ``columns``: the results are all columns of one array. Raises
    ValueError if there is none."""
    graph = node.attrs["graph"]
    shape = graph.outs[0].shape
    operands = [*(source.shape for source in graph.params), shape]
    result = {} if target is None else {len(graph.params): LongRows(tuple(dense_axes(target.shape, target.strides)))}
    views: dict[int, Lie] = {k: step for k, source in enumerate(node.inputs) if (step := step_of(source, least))}
    turned = {k: found for k, source in enumerate(node.inputs) if (found := turned_along(source))}
    short: dict[int, Lie] = {
        k: 1 for k, source in enumerate(node.inputs) if k not in views and lies_in_short_rows(source)
    }
    joined = {k: lie for k, source in enumerate(node.inputs) if k not in turned and (lie := together(source))}
    region = analyse(graph)
    ways = [views | {k: lie for k, (_, lie) in turned.items()}, views, {}]
    if columns:
        ways = [views, {}]
    elif short and not turned:
        ways.insert(0, views | short)
    if joined and not columns:
        ways.insert(0, ways[0] | joined)
    for lies in ways:
        layout = _laid_out(shape, operands, lies | result)
        blocks = not columns and row_blocks.suits(region, layout)
        long = joined.keys() <= lies.keys() and layout.extents[-1:] >= (LEAST_ROW,)
        if len(layout.extents) <= MOST_LOOPS and (blocks or long or lies.keys().isdisjoint(short)):
            break
    if not 1 <= len(layout.extents) <= MOST_LOOPS or 0 in layout.extents:
        raise ValueError(f"{graph!r} needs {len(layout.extents)} loops")
    steps = tuple((k, axis) for k in region.arrays for axis in layout.axes[k] if axis)
    steps += tuple((-1, axis) for axis in layout.axes[-1] if axis)
    across = None
    if squares := lies.keys() & turned.keys():
        most = max(squares, key=lambda k: node.inputs[k].size)
        across = layout.axes[most].index(turned[most][0])
    if target is not None or columns:
        lies = lies | {-1: 1 if target is not None else len(graph.outs)}
    pieces = layout.extents[0] if across != 0 else math.ceil(layout.extents[0] / height(region, layout))
    return Program(
        layout.extents, region.arrays, steps, lies, region.scalars,
        lambda aliases: row_blocks.emit(region, layout, aliases, may_share(), written)
        if blocks
        else emit(region, layout, aliases, may_share(), written, across, columns),
        _share(node, threads, pieces), 0, region.approximate,
        inplace=not (region.guarded or columns),  # whose operands must outlive the loop
        guarded=False,
    )  # fmt: skip


def reducing(node: Node, threads: int) -> Program:
    """The kernel of a ``fused_reduction`` node. Raises ValueError if there is none."""
    program = _reducing(node.attrs["graph"], threads, may_share())
    return replace(program, share=_share(node, threads, program.numbers[0]))


@functools.lru_cache(maxsize=256)
def _reducing(graph: Graph, threads: int, threaded: bool) -> Program:
    """The kernel for one thread. Layers of a network have equal regions, whose code is written once."""
    sweep = Sweep(graph)
    extents = sweep.layout.extents
    kernel: Rows | Columns | narrow.Narrow
    scratch = crossings.HEAD
    full = [each for each in sweep.graph.outs if sweep.level[each] is Level.FULL]
    moved = past.weight([*full, *sweep.graph.params])
    distant = nearest.small() and moved >= past.last_cache()
    if not sweep.rows:
        *outer, count, columns = extents
        shares = math.prod(outer)
        row = columns * max(each.node.dtype.itemsize for each in sweep.operands)
        alone = distant and threads <= _TOGETHER and row <= _NARROW
        ranges = 1 if alone else math.ceil(threads / shares)
        tile = min(MOST_COLUMNS, math.ceil(columns / ranges / LANES) * LANES)
        tiles = math.ceil(columns / tile)
        numbers = (shares * tiles, count, columns, tile, tiles, *outer)
        even = columns % tile == 0 or tiles == 1
        blocks, span = crossings.blocks_of(count) if in_blocks(sweep) else (1, count)
        if blocks > 1:
            tile, even = columns, True
            numbers = (blocks, count, columns, columns, 1, span)
            scratch += crossings.room([node for node in sweep.graph.outs if node.op == "free_sum"], blocks, columns)
        width = min(tile, columns) if even and in_registers(sweep, tile) else 0
        kernel = Columns(sweep, width, blocks > 1, distant, parts=tiles > 1 and blocks == 1)
    else:
        *outer, count = extents
        ordered_products = any(node.op == "prod" and in_order(node) for node in sweep.nodes)
        long = _LONG_OF_FUNCTIONS if sweep.approximate else LONG
        whole = not outer and count >= long and sweep.stages == 1 and not ordered_products
        rows = math.prod(outer)
        short, paired = narrow.suits(sweep, count), pairs.suits(sweep, count)
        if short:
            numbers = narrow.numbers(sweep, rows)
        elif paired:
            numbers = pairs.numbers(sweep)
        elif sweep.crossed:
            blocks, span = crossings.blocks_of(rows)
            numbers = (blocks, count, *outer, rows, span)
        else:
            numbers = (PIECES, count) if whole else (rows, count, *outer)
        if sweep.crossed:
            scratch += crossings.room(sweep.crossed, numbers[0], count)
        aside = not whole and past.outgrows(full, sweep.graph.params)
        if short:
            kernel = narrow.Narrow(sweep, count)
        elif paired:
            kernel = pairs.Pairs(sweep, count)
        elif staggers(sweep, count):
            kernel = Staggered(sweep, count, aside, nearest.small() and 2 * moved >= past.last_cache())
        else:
            kernel = Rows(sweep, whole, aside, distant)
        if whole:
            scratch += PIECES * 8 * (len(sweep.reductions(0)) + 1)
    text = kernel.text(threaded=threaded)
    return Program(
        numbers, sweep.arrays, (), {}, sweep.scalars, lambda aliases: text, Share(1, 1), scratch, sweep.approximate,
        inplace=False, guarded=sweep.guarded,
    )  # fmt: skip
