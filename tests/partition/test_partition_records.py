"""Every record's tiling rule: each legal tiling of each sample gives what the untiled op gives."""

from collections.abc import Iterator

import numpy as np
import pytest
from partition_cases import assert_equal, mesh, rank_graphs, run_ranks

import futurex.ops  # noqa: F401  (registers the records)
from futurex.partition import Replicate, Shard, explain, partition
from futurex.partition.factors import recipe_of
from futurex.partition.rules import LOCAL
from futurex.tree import Aval, Graph, Node, apply, item, param, record, records
from futurex.tree.aval import aval_of

WITH_RULES = [rec.name for rec in records() if rec.factors is not None and rec.samples is not None]
RULED = [name for name in WITH_RULES if name not in LOCAL]  # those take statistics of each part: other numbers


def sample_graphs(name: str) -> Iterator[tuple[Graph, list]]:
    for sample in record(name).samples(np.random.default_rng(3)):
        avals = [aval_of(value) for value in sample.inputs]
        params = [None if aval.weak else param(aval, f"a{k}") for k, aval in enumerate(avals)]
        inputs = [value if node is None else node for node, value in zip(params, sample.inputs, strict=True)]
        if not any(isinstance(each, Node) for each in inputs):
            continue
        out = apply(name, *inputs, **sample.attrs)
        outs = [item(out, k) for k in range(len(out.aval))] if isinstance(out.aval, tuple) else [out]
        args = [value for node, value in zip(params, sample.inputs, strict=True) if node is not None]
        yield Graph([node for node in params if node is not None], outs, name), args


def tilings(graph: Graph) -> Iterator[list]:
    """Inputs sharded along one factor, or one input alone along a dimension that its rule may want whole."""
    node = graph.outs[0].inputs[0] if graph.outs[0].op == "item" else graph.outs[0]
    recipe = recipe_of(node)
    terms = {source: names for source, names in zip(node.inputs, recipe.inputs, strict=True) if source.op == "param"}
    for factor in sorted({name for names in terms.values() for name in names}):
        lie = {source: Shard(names.index(factor)) for source, names in terms.items() if factor in names}
        yield [lie.get(source, Replicate()) for source in graph.params]
    for source in graph.params:
        for dim in range(source.ndim):
            yield [Shard(dim) if each is source else Replicate() for each in graph.params]


@pytest.mark.parametrize("name", RULED)
def test_every_legal_tiling_equals_untiled(name):
    compared = 0
    arrays = False
    for graph, args in sample_graphs(name):
        arrays |= any(node.shape for node in graph.params)
        expected = graph(*args)
        for placements in tilings(graph):
            for size in (2, 3):
                for outs in run_ranks(rank_graphs(graph, placements, size), placements, args):
                    assert_equal(outs, expected)
                compared += 1
    assert compared or not arrays


REDUCED = {
    "matmul": ([0, 0], [(6, 8), (6, 5)], {}),
    "sum": ([0], [(6, 5)], {"axis": (0,), "keepdims": False, "dtype": None}),
    "max": ([0], [(6, 5)], {"axis": (0,), "keepdims": False}),
    "any": ([0], [(6, 5)], {"axis": None, "keepdims": True}),
}


@pytest.mark.parametrize("name", REDUCED)
def test_results_over_a_sharded_factor_are_combined_not_gathered(name):
    dims, shapes, attrs = REDUCED[name]
    params = [param(Aval(shape, np.dtype(float))) for shape in shapes]
    inputs = [apply("transpose", params[0], axes=(1, 0)), params[1]] if name == "matmul" else params
    graph = Graph(params, [apply(name, *inputs, **attrs)])
    sent = explain(partition(graph, [Shard(dim) for dim in dims], mesh(2), 0))
    assert [(each.op, each.nbytes) for each in sent] == [("all_reduce", graph.outs[0].aval.nbytes)]
