"""Factor rules, meshes, placements and propagation: what is decided, and what a wrong rule or placement gets."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import F8, arguments, array, assert_equal, assert_partitions, mesh, mlp, run_ranks, total

from futurex.data.sampler import Sampler
from futurex.ops.comm import communications
from futurex.partition import (
    Communication,
    Mesh,
    Partial,
    PartitionError,
    Replicate,
    Shard,
    explain,
    local_part,
    partition,
    tile_sizes,
    virtual,
)  # fmt: skip
from futurex.partition.factors import parse
from futurex.partition.propagate import tile
from futurex.partition.rules import ADDITIVE, MOVES, regroup
from futurex.tree import Aval, Graph, Op, apply, record
from futurex.tree.node import build
from futurex.tree.record import _RECORDS
from futurex.tree.verify import MalformedGraph, verify


def test_a_rule_is_parsed_once_into_names():
    recipe = parse("n !h c, 1 c -> n c,  ")
    assert recipe.inputs == (("n", "h", "c"), ("1", "c"))
    assert recipe.outs == (("n", "c"), ())
    assert recipe.whole == {"h"}
    assert parse("n !h c, 1 c -> n c,  ") is recipe


def test_a_diagonal_must_be_whole():
    assert parse("i i -> i").whole == {"i"}


@pytest.mark.parametrize("rule", ["n k, k m", "n -> m -> k", "n-k -> n", "2 -> n", "!1 -> n", "n ! -> n"])
def test_malformed_rules_are_refused(rule):
    with pytest.raises(PartitionError, match="tiling rule"):
        parse(rule)


def with_rule(monkeypatch, factors, **fields):
    """An op for this test alone, with a wrong rule; its kernel adds up rows in front of each row."""
    rec = Op("wrong", lambda x: np.cumsum(x, 0)[1:], factors=factors, **fields)
    monkeypatch.setitem(_RECORDS, "wrong", rec)
    x = array("x", 6, 2)
    return Graph([x], [apply("wrong", x)])


@pytest.mark.parametrize(
    "factors, message",
    [
        ("a, b -> a b", "names 2 inputs and 1 outputs; it has 1 and 1"),
        ("a -> a", "names 1 dimensions of float64.6,2."),
        ("a b -> a b", "gives one name, 'a', to dimensions of 6 and 5 at test_partition_rules.py"),
        ("a b -> c b", "says that rank 0 of 2 makes float64.5,2., and it makes float64.2,2."),
    ],
)
def test_rules_that_contradict_their_op_are_named(monkeypatch, factors, message):
    graph = with_rule(monkeypatch, factors)
    with pytest.raises(PartitionError, match=message):
        partition(graph, [Shard(0)], mesh(2), 0)


def test_an_op_that_refuses_its_tile_is_named(monkeypatch):
    def picky(x):
        if x.shape[0] != 6:
            raise ValueError("six rows, please")
        return x

    graph = with_rule(monkeypatch, "a b -> a b", aval=picky)
    with pytest.raises(PartitionError, match=r"wrong cannot run on the tile .* six rows, please"):
        partition(graph, [Shard(0)], mesh(2), 0)


@given(st.integers(0, 50), st.integers(1, 8))
def test_tiles_are_the_shares_of_the_sampler(extent, parts):
    batch = np.arange(extent)
    shares = [Sampler.share(batch, rank, parts) for rank in range(parts)]
    assert tile_sizes(extent, parts) == tuple(map(len, shares))
    for rank, share in enumerate(shares):
        np.testing.assert_array_equal(local_part(batch, Shard(0), parts, rank), share)


@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 5))
def test_units_stay_together(groups, unit, parts):
    sizes = Shard(0, unit).sizes(groups * unit, parts)
    assert sum(sizes) == groups * unit
    assert all(size % unit == 0 for size in sizes)


def test_regrouping_keeps_what_can_be_kept():
    assert regroup((6, 4), Shard(0), (24,)) == Shard(0, 4)
    assert regroup((24,), Shard(0, 4), (6, 4)) == Shard(0)
    assert regroup((24,), Shard(0), (6, 4)) is None
    assert regroup((2, 6), Shard(1), (12,)) is None
    assert regroup((5,), Shard(0), (1, 5, 1)) == Shard(1)
    assert regroup((0, 3), Shard(0), (0,)) is None


@pytest.mark.parametrize("axes", [(), (("data", 0),), (("a", 1), ("a", 2))])
def test_a_mesh_needs_named_axes(axes):
    with pytest.raises(ValueError, match="differently named axes"):
        Mesh(axes)


def test_placements_that_do_not_fit_are_named():
    x = array("x", 6, 2)
    graph = Graph([x], [total(x), x], "f")
    with pytest.raises(PartitionError, match=r"input 'x' of f has shape \(6, 2\) and cannot be placed as Shard\(dim=2"):
        partition(graph, [Shard(2)], mesh(2), 0)
    with pytest.raises(PartitionError, match="unit must divide"):
        partition(graph, [Shard(0, 4)], mesh(2), 0)
    with pytest.raises(PartitionError, match="f has 1 inputs; got 2 placements"):
        partition(graph, [Shard(0), Shard(0)], mesh(2), 0)
    with pytest.raises(PartitionError, match="f has 2 outputs; got 1 placements"):
        partition(graph, [Shard(0)], mesh(2), 0, [Replicate()])
    with pytest.raises(PartitionError, match="output 0 of f has shape"):
        partition(graph, [Shard(0)], mesh(2), 0, [Shard(0), Replicate()])
    with pytest.raises(PartitionError, match="output 0 of f can stay a partial sum, not Partial"):
        partition(graph, [Shard(0)], mesh(2), 0, [Partial("max"), Replicate()])
    with pytest.raises(ValueError, match="rank must lie in 0 to 1"):
        partition(graph, [Shard(0)], mesh(2), 2)
    with pytest.raises(PartitionError, match="this mesh has data, model"):
        partition(graph, [Shard(0)], Mesh((("data", 2), ("model", 2))), 0)


def test_one_locality_runs_the_graph_as_it_is():
    graph, placements = mlp(4)
    assert partition(graph, placements, mesh(1), 0) is graph


@pytest.mark.parametrize("name", sorted(ADDITIVE | MOVES))
def test_ops_that_stay_partial_commute_with_sums(name):
    """f(a + b) == f(a) + f(b), on every sample of real or integer numbers."""
    rng = np.random.default_rng(4)
    tried = 0
    for sample in record(name).samples(rng):
        n_parts = len(sample.inputs) if name in ADDITIVE else 1
        inputs = [np.asarray(value) for value in sample.inputs]
        if any(value.dtype.kind not in "iufc" for value in inputs):
            continue
        first = [np.zeros_like(value) + (k < n_parts) for k, value in enumerate(inputs)]
        second = [
            value - part if k < n_parts else value for k, (value, part) in enumerate(zip(inputs, first, strict=True))
        ]
        first[n_parts:] = inputs[n_parts:]
        kernel, attrs = record(name).kernel, sample.attrs
        whole, parts = kernel(*inputs, **attrs), np.add(kernel(*first, **attrs), kernel(*second, **attrs))
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-5)
        tried += 1
    assert tried


def test_a_partial_sum_waits_for_the_last_linear_op():
    x = array("x", 6, 2)
    s = total(x, (0,))
    graph = Graph([x], [apply("reshape", -(s * 0.5), shape=(2, 1))])
    tiling = tile(graph, [Shard(0)])
    assert tiling.made[graph.outs[0]] == Partial("sum")
    assert list(tiling.tags) == [graph.outs[0]]


@pytest.mark.parametrize("factor", [np.inf, np.nan, 0.0])
def test_factors_that_make_nan_of_a_part_are_applied_to_the_whole(factor):
    x = array("x", 4)
    assert_partitions(Graph([x], [total(x) * factor]), [Shard(0)], [np.array([0.0, 0.0, 1.0, 2.0])], (2, 4))


@pytest.mark.parametrize(
    "narrow, values, wider",
    [
        (np.int64, 2**62, lambda s: s / 4),
        (np.int64, 2**62, lambda s: s * 0.5),
        (np.int8, 60, lambda s: apply("sum", s, axis=None, keepdims=False, dtype=np.dtype(np.int64))),
    ],
)
def test_a_sum_that_overflows_is_taken_to_its_end_before_it_is_widened(narrow, values, wider):
    """The sums of all ranks overflow otherwise than the whole, or not at all."""
    x = array("x", 6, 16, dtype=narrow)
    columns = apply("sum", x, axis=(0,), keepdims=False, dtype=np.dtype(narrow))
    assert_partitions(Graph([x], [wider(columns)]), [Shard(0)], [np.full((6, 16), values, narrow)], (2, 3))


@pytest.mark.parametrize("values", [np.array([1.0, np.nan, 3.0, 4.0]), np.array([-(2**15), 2**15 - 1] * 2, np.int16)])
def test_quantiles_along_the_tiled_axis_are_those_of_the_whole(values):
    x = array("x", 4, dtype=values.dtype)
    attrs = {"function": "quantile", "q": 0.4, "axis": (0,), "keepdims": False, "method": "linear"}
    assert_partitions(Graph([x], [apply("quantile", x, **attrs)]), [Shard(0)], [values], (2, 3))


def test_a_partial_sum_is_not_blown_up_before_it_is_sent():
    x = array("x", 6, 50)
    wide = apply("load", total(x), chain=(("broadcast_to", (40, 50)),))
    (sent,) = explain(partition(Graph([x], [wide]), [Shard(0)], mesh(2), 0))
    assert (sent.op, sent.nbytes) == ("all_reduce", 8)


def test_inputs_may_be_partial():
    g, w = array("g", 3), array("w", 3)
    graph = Graph([g, w], [w - 0.5 * g])
    placements = [Partial(), Replicate()]
    graphs = [verify(partition(graph, placements, mesh(2), rank)) for rank in range(2)]
    parts = [[np.arange(3.0), np.ones(3)], [np.full(3, 2.0), np.ones(3)]]
    for outs in virtual.run_ranks(graphs, parts):
        assert_equal(outs, [1 - 0.5 * (np.arange(3.0) + 2.0)])


def test_explain_names_bytes_and_the_lines_of_the_user():
    x = array("x", 6, 2)
    graph = Graph([x], [total(x, (0,)), apply("cumsum", x, axis=0, dtype=None)])
    sent = explain(partition(graph, [Shard(0)], mesh(2), 0))
    assert {(each.op, each.nbytes) for each in sent} == {("all_reduce", 16), ("all_gather", 96)}
    assert all("test_partition_rules.py:" in str(each) or "partition_cases.py:" in str(each) for each in sent)
    assert str(Communication(3, "all_gather", 1, 96, ("a.py:7",))) == "3: all_gather of 1 array, 96 bytes, for a.py:7"


def test_communication_outside_a_mesh_says_what_to_do():
    x = array("x", 6, 2)
    rank = partition(Graph([x], [total(x)]), [Shard(0)], mesh(2), 0)
    with pytest.raises(RuntimeError, match="one rank's part of a program on a mesh: run its plan with a communicator"):
        rank(np.ones((3, 2)))


def test_communication_that_cannot_be_is_refused():
    x = array("x", 3)
    with pytest.raises(ValueError, match="all_reduce combines by sum, prod, max, min; 'mean' is none"):
        apply("all_reduce", x, reduce="mean", tag=0)
    with pytest.raises(ValueError, match=r"joins parts of \(1, 2\) rows"):
        apply("all_gather", x, axes=(0,), sizes=((1, 2),), tag=0)


def test_ranks_that_disagree_are_told_so():
    x = array("x", 3)
    sums = [Graph([x], [apply("item", apply("all_reduce", x, reduce=name, tag=0), index=0)]) for name in ("sum", "max")]
    with pytest.raises(PartitionError, match="ranks disagree on the next communication"):
        virtual.run_ranks(sums, [[np.ones(3)]] * 2)
    with pytest.raises(PartitionError, match="1 of 2 ranks ended while others wait"):
        virtual.run_ranks([sums[0], Graph([x], [x * 2.0])], [[np.ones(3)]] * 2)
    with pytest.raises(TypeError, match="takes 1 arrays, got 2"):
        virtual.run_ranks(sums[:1], [[np.ones(3)] * 2])


def test_rank_graphs_have_equal_hashes_in_another_process_and_differ_between_ranks():
    graph, placements = mlp(5)
    again = pickle.loads(pickle.dumps(graph))
    ranks = [partition(graph, placements, mesh(2), rank) for rank in range(2)]
    assert [partition(again, placements, mesh(2), rank).hash for rank in range(2)] == [rank.hash for rank in ranks]
    assert ranks[0].hash != ranks[1].hash


def test_the_verifier_sees_a_wrong_exchange():
    x = array("x", 3)
    bad = build(record("all_reduce"), (x,), {"reduce": "sum", "tag": 0}, (Aval((2,), F8),))
    with pytest.raises(MalformedGraph):
        verify(Graph([x], [apply("item", bad, index=0)]))


def test_virtual_run_shares_out_whole_arrays():
    graph, placements = mlp(5)
    args = arguments(graph)
    for outs in virtual.run(graph, placements, mesh(3), args):
        assert_equal(outs, graph(*args))


def test_model_parallel_placements_are_right_too():
    """Weights sharded by columns or rows: not only batches may be tiled."""
    graph, _ = mlp(5, width=6)
    by_columns = [Shard(1), Shard(0), Shard(0), Replicate(), Replicate(), Replicate()]
    assert_partitions(graph, by_columns, arguments(graph), (2, 3))
    mixed = [Shard(1), Shard(0), Shard(0), Replicate(), Shard(0), Shard(0)]
    assert_partitions(graph, mixed, arguments(graph), (2, 4))
    rank = partition(graph, by_columns, mesh(2), 0)
    assert any(node.op == "all_reduce" for node in communications(rank))


def test_outputs_may_stay_partial_sums():
    """What the ranks have adds up to the whole; replicated terms count once, and nothing is exchanged for them."""
    x, w = array("x", 7, 3), array("w", 3)
    terms = (total(x, (0,)) + apply("square", w)) * 0.5
    graph = Graph([x, w], [terms, w * 2.0, apply("cumsum", x, axis=0, dtype=None)])
    placements, outs = [Shard(0), Replicate()], [Partial(), Partial(), Partial()]
    args = arguments(graph)
    graphs = [partition(graph, placements, mesh(3), rank, outs) for rank in range(3)]
    parts = run_ranks(graphs, placements, args)
    assert_equal([sum(column) for column in zip(*parts, strict=True)], graph(*args))
    for rank in graphs:
        assert [node.op for node in communications(rank)] == ["all_gather"]  # that of the cumulative sum


def test_partial_sums_are_inputs_too():
    before, x = array("before", 3), array("x", 7, 3)
    graph = Graph([before, x], [before + total(x, (0,))])
    placements, args = [Partial(), Shard(0)], arguments(graph)
    thirds = [[args[0] / 3, shard] for shard in (args[1][:2], args[1][2:4], args[1][4:])]
    parts = virtual.run_ranks([partition(graph, placements, mesh(3), rank) for rank in range(3)], thirds)
    for (whole,) in parts:
        assert_equal([whole], graph(*args))
