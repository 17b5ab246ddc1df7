"""Buckets: what is sent together, in which order, and that no bucket waits for itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import (
    F8,
    arguments,
    array,
    assert_equal,
    conv_net,
    mesh,
    mlp,
    rank_graphs,
    run_ranks,
    step_graph,
    total,
)  # fmt: skip

from futurex.ops.comm import communications
from futurex.partition import Replicate, Shard, explain, partition
from futurex.partition.buckets import bucket
from futurex.tree import Graph, apply, item
from futurex.tree.verify import verify

WHOLE = 1 << 40


def deep_mlp(layers: int):
    x = array("x", 6, 4)
    weights = [array(f"w{k}", 4, 4) for k in range(layers)]
    h = x
    for w in weights:
        h = apply("tanh", h @ w)
    return step_graph(weights, [x], total(h))


def test_gradients_are_sent_in_the_order_in_which_they_become_ready():
    """The last layer first; the loss is ready before all of them."""
    graph, placements = deep_mlp(4)
    rank = partition(graph, placements, mesh(2), 0, first_bucket=0, bucket_bytes=0)
    sent = communications(rank)
    order = [next(k for k, out in enumerate(rank.outs) if node in Graph([], [out]).nodes) for node in sent]
    assert order == [0, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "first, rest, arrays",
    [(WHOLE, WHOLE, [5]), (0, 0, [1] * 5), (8 + 128, 256, [2, 2, 1]), (8, WHOLE, [1, 4]), (300, 100, [3, 1, 1])],
)
def test_a_small_bucket_goes_first(first, rest, arrays):
    graph, placements = deep_mlp(4)
    rank = partition(graph, placements, mesh(2), 0, first_bucket=first, bucket_bytes=rest)
    assert [each.arrays for each in explain(rank)] == arrays


@pytest.mark.parametrize("limit", [0, 40, 200, WHOLE])
@pytest.mark.parametrize("make", [lambda: mlp(5), lambda: conv_net(5, True), lambda: deep_mlp(3)])
def test_bucketing_changes_no_bit_and_agrees_on_all_ranks(make, limit):
    graph, placements = make()
    args = arguments(graph)
    alone = run_ranks(rank_graphs(graph, placements, 3, first_bucket=0, bucket_bytes=0), placements, args)
    graphs = rank_graphs(graph, placements, 3, first_bucket=limit, bucket_bytes=limit)
    for ours, theirs in zip(run_ranks(graphs, placements, args), alone, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len({tuple(map(str, explain(each))) for each in graphs}) == 1
    assert [node.attrs["tag"] for node in communications(graphs[0])] == list(range(len(communications(graphs[0]))))


def test_ranks_without_rows_exchange_the_same():
    """Tiles of no rows or of one must not change what is merged, or some rank would wait for ever."""
    graph, placements = conv_net(2, True)
    graphs = rank_graphs(graph, placements, 5)
    assert len({tuple(map(str, explain(each))) for each in graphs}) == 1


def test_dtypes_and_reductions_are_kept_apart():
    x = array("x", 4, 2)
    low = apply("cast", x, dtype=np.dtype("float32"))
    outs = [total(x, (0,)), total(low, (0,)), total(x), apply("max", x, axis=(0,), keepdims=False), total(low)]
    sent = communications(partition(Graph([x], outs), [Shard(0)], mesh(2), 0))
    kinds = sorted((str(node.inputs[0].dtype), node.attrs["reduce"], len(node.inputs)) for node in sent)
    assert kinds == [("float32", "sum", 2), ("float64", "max", 1), ("float64", "sum", 2)]


def test_an_exchange_that_another_waits_for_goes_alone():
    x = array("x", 4, 2)
    mean = total(x) / 8.0
    outs = [total(x, (0,)), total(apply("square", x - mean)), mean]
    sent = explain(partition(Graph([x], outs), [Shard(0)], mesh(2), 0))
    assert [each.arrays for each in sent] == [1, 2]


def test_a_bucket_goes_before_those_that_wait_for_any_of_it():
    """Two statistics of one round are sent together, also if one of them is late and the other is waited for."""
    x = array("x", 5, 2)
    late = x
    for _ in range(9):
        late = apply("tanh", late)
    first, slow = total(x), total(late)
    second = total(apply("sin", x + first))
    outs = [total(apply("cos", x + second)), total(apply("exp", x * slow))]
    graph = Graph([x], outs)
    graphs = rank_graphs(graph, [Shard(0)], 2)
    assert [each.arrays for each in explain(graphs[0])] == [2, 1, 2]
    for results in run_ranks(graphs, [Shard(0)], arguments(graph)):
        assert_equal(results, graph(*arguments(graph)))


@settings(max_examples=60)
@given(st.data())
def test_random_exchanges_never_wait_in_a_circle(data):
    """Chains of statistics that cross each other: every rank graph runs to its end, whatever the bucket size."""
    x = array("x", 5, 2)
    values, sums = [x], []
    for _ in range(data.draw(st.integers(1, 8))):
        base = data.draw(st.sampled_from(values))
        sums.append(total(apply("tanh", base), data.draw(st.sampled_from([None, (0,)]))))
        values.append(base + apply("sin", data.draw(st.sampled_from(sums))))
    outs = [*data.draw(st.permutations(sums)), values[-1]]
    graph, placements = Graph([x], outs), [Shard(0)]
    args = arguments(graph)
    limit = data.draw(st.sampled_from([0, 16, 24, WHOLE]))
    for results in run_ranks(
        rank_graphs(graph, placements, 3, first_bucket=limit, bucket_bytes=limit), placements, args
    ):
        assert_equal(results, graph(*args))


def test_a_graph_without_exchanges_stays():
    x = array("x", 3)
    graph = Graph([x], [x * 2.0])
    assert verify(bucket(graph)).hash == graph.hash


def test_gathers_are_numbered_among_reductions():
    x, y = array("x", 4, 2), array("y", 4, dtype=F8)
    graph = Graph([x, y], [apply("cumsum", x, axis=0, dtype=None), total(x), y])
    rank = verify(partition(graph, [Shard(0), Shard(0)], mesh(2), 1))
    assert {node.op: len(node.inputs) for node in communications(rank)} == {"all_gather": 2, "all_reduce": 1}
    assert [node.attrs["tag"] for node in communications(rank)] == [0, 1]


def test_buckets_collect_reductions_of_several_arrays():
    x = array("x", 3)
    first = apply("all_reduce", x, x * 2.0, reduce="sum", tag=0)
    second = apply("all_reduce", x * 3.0, reduce="sum", tag=1)
    graph = Graph([x], [item(first, 1), item(second, 0), item(first, 0)])
    (rank,) = [verify(bucket(graph))]
    (node,) = communications(rank)
    assert len(node.inputs) == 3
    (results,) = run_ranks([rank], [Replicate()], [np.ones(3)])
    assert_equal(results, [np.full(3, 2.0), np.full(3, 3.0), np.ones(3)])
