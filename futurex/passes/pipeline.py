"""The passes in the order in which they run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from futurex.passes.assemble import assemble
from futurex.passes.columns import order_columns
from futurex.passes.common import share
from futurex.passes.contractions import lower_contractions
from futurex.passes.dead import prune
from futurex.passes.dear_tapes import tape_dear_values
from futurex.passes.epilogue import join_epilogues
from futurex.passes.expand import expand
from futurex.passes.fuse import fuse
from futurex.passes.gather_sums import gather_sums
from futurex.passes.hoist import hoist
from futurex.passes.joins import join_in_place
from futurex.passes.loop_inputs import give_loops
from futurex.passes.low_rank import join_updates
from futurex.passes.masked import compute_everywhere
from futurex.passes.nested_joins import flatten_joins
from futurex.passes.orders import keep_orders, turn_first
from futurex.passes.picked_joins import pick_joins
from futurex.passes.pooling import keep_places
from futurex.passes.recompute import recompute
from futurex.passes.reductions import arrange_reductions
from futurex.passes.regions import inline_regions
from futurex.passes.repeats import repeat_elements
from futurex.passes.rewrite import map_subgraphs, rewrite
from futurex.passes.rows import join_row_products
from futurex.passes.shared_factors import factorise_once
from futurex.passes.short_rows import write_out_short_rows
from futurex.passes.siblings import join_siblings
from futurex.passes.simplify import simplify
from futurex.passes.spectral import transform_convolutions
from futurex.passes.spectral_regions import join_maps
from futurex.passes.stack_tapes import has_tapes, stack_tapes
from futurex.passes.stacks import reduce_stacks
from futurex.passes.strided_sums import gather_strides
from futurex.passes.thin_tapes import thin_tapes
from futurex.passes.triangles import substitute
from futurex.passes.turns import copy_turned
from futurex.passes.winograd import tile_convolutions
from futurex.passes.writes import write_through
from futurex.tree.graph import Graph, same_lines
from futurex.tree.verify import verify

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    tape_dear_values, thin_tapes, stack_tapes, expand, simplify, repeat_elements, substitute, share, factorise_once,
    compute_everywhere, prune, lower_contractions, transform_convolutions, tile_convolutions, keep_places,
    join_epilogues, join_row_products, join_maps, write_out_short_rows, reduce_stacks, arrange_reductions, turn_first,
    keep_orders, gather_strides, flatten_joins, pick_joins, assemble, give_loops, order_columns, join_in_place, fuse,
    join_updates, recompute, join_siblings, write_through, copy_turned,
)  # fmt: skip
"""Every pass takes and gives a graph of the same values, bit for bit unless its module says otherwise."""

_TAPES = (tape_dear_values, thin_tapes, stack_tapes)
"""Those that the whole graph has been through, the innermost loops first, before any of the others."""

_OUTSIDE = (factorise_once, flatten_joins, pick_joins, assemble, give_loops, copy_turned)
"""Those that bodies of loops do without: they begin with arrays of their own."""

_INSIDE: dict[Pass, Pass] = {
    join_in_place: functools.partial(join_in_place, inside=True),
    fuse: functools.partial(fuse, inside=True),
    arrange_reductions: functools.partial(arrange_reductions, inside=True),
}
"""What bodies of loops have in the place of others."""

VERIFY = os.environ.get("FUTUREX_VERIFY", "") not in ("", "0")


DEVICE_PASSES: tuple[Pass, ...] = (
    functools.partial(expand, free=False), simplify, substitute, compute_everywhere, prune,
    functools.partial(lower_contractions, free=False), functools.partial(fuse, few=2)
)  # fmt: skip
"""Those for graphs that run on a GPU, whose kernels other forms suit: there a launch costs more than a small array."""


def optimise(graph: Graph, *, passes: Sequence[Pass] | None = None, check: bool = VERIFY) -> Graph:
    """The graph after all ``passes`` (default: :data:`PASSES`), its sub-graphs included.

    Inputs, outputs and their abstract values stay.

    With ``check`` (default: the environment variable FUTUREX_VERIFY) every pass ends in the verifier, which raises
    MalformedGraph.

    >>> from futurex.tree import Aval, Graph, apply, param
    >>> import numpy as np
    >>> x = param(Aval((2, 3), np.dtype("float32")), "x")
    >>> turned = apply("transpose", apply("transpose", x, axes=(1, 0)), axes=(1, 0))
    >>> optimise(Graph([x], [turned])).outs[0] is x
    True
    """
    chosen = PASSES if passes is None else passes
    inside = [_INSIDE.get(each, each) for each in chosen if each not in (*_TAPES, *_OUTSIDE)]
    graph, tapes = gather_sums(graph), [each for each in chosen if each in _TAPES]
    if tapes and has_tapes(graph):
        graph = _laid(graph, tapes, _Inside(lambda graph, within: _laid(graph, tapes, within)))
    within = _Inside(lambda graph, within: _optimised(graph, inside, within, check))
    return _optimised(graph, [each for each in chosen if each not in _TAPES], within, check)


def _laid(graph: Graph, tapes: Sequence[Pass], inside: Pass) -> Graph:
    """The graph after the passes on tapes, which read what bodies of loops do before that is joined to regions."""
    graph = rewrite(graph, map_subgraphs(inside))
    for each in (simplify, share, prune, *(tapes if has_tapes(graph) else ())):
        graph = each(graph)
    return graph


def _optimised(graph: Graph, passes: Sequence[Pass], inside: Pass, check: bool) -> Graph:
    graph = rewrite(hoist(inline_regions(graph)), map_subgraphs(inside))
    for each in passes:
        graph = each(graph)
        if check:
            verify(graph)
    return graph


class _Inside:
    """What is done with the graphs inside of one, once with each: rounds that are written out hold equal ones, and
    those inside of others are met again whenever what stands around them has changed. ``work`` is given the pass for
    those inside of its graph."""

    def __init__(self, work: Callable[[Graph, Pass], Graph]) -> None:
        self._work = work
        self._done: dict[int, tuple[Graph, Graph]] = {}  # by identity, with what has it
        self._equal: dict[str, list[tuple[Graph, Graph]]] = {}

    def __call__(self, graph: Graph) -> Graph:
        if id(graph) not in self._done:
            equal = self._equal.setdefault(graph.hash, []) if _is_alone(graph) else []
            found = next((after for before, after in equal if same_lines(before, graph)), None)
            if found is None:
                found = self._work(graph, self)
                equal.append((graph, found))
            self._done[id(graph)] = graph, found
        return self._done[id(graph)][1]


def _is_alone(graph: Graph) -> bool:
    """Does it name nothing that stands around it, and do nothing that others see? Then an equal one can replace it."""
    inner = [value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph)]
    return not graph.acts and all(node.is_static for node in graph.nodes) and all(map(_is_alone, inner))
