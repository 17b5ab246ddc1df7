"""Training steps: every rank computes what one locality computes, with the communication that it should cost."""

import numpy as np
import pytest
from partition_cases import (
    F8,
    arguments,
    array,
    assert_equal,
    assert_partitions,
    conv_net,
    cross_entropy,
    mesh,
    mlp,
    rank_graphs,
    run_ranks,
    step_graph,
    total,
)  # fmt: skip

import futurex as fx
from futurex.autodiff.reverse import value_and_grad
from futurex.ops.comm import communications
from futurex.partition import Replicate, Shard, explain, partition, virtual
from futurex.tree import Graph, apply, const, item


@pytest.mark.parametrize("n", [8, 7, 1])
def test_mlp_step_equals_one_locality(n):
    graph, placements = mlp(n)
    assert_partitions(graph, placements, arguments(graph), (1, 2, 3, 4))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("n", [6, 5, 2])
def test_conv_step_equals_one_locality(n, normalise):
    graph, placements = conv_net(n, normalise)
    assert_partitions(graph, placements, arguments(graph), (2, 3, 4))


def test_mlp_sends_one_all_reduce_of_the_gradients_and_the_loss():
    graph, placements = mlp(9)
    weights = sum(node.aval.nbytes for node in graph.params[:4])
    for rank in rank_graphs(graph, placements, 4):
        (sent,) = explain(rank)
        assert (sent.op, sent.arrays, sent.nbytes) == ("all_reduce", 5, weights + 8)


def test_momentum_of_adam_does_not_double_the_communication():
    """A gradient is read twice, for both moments: it is combined once, before either."""
    x, w, b = array("x", 6, 4), array("w", 4, 2), array("b", 2)
    state = [array(name, *node.shape) for node in (w, b) for name in ("m", "v")]
    loss = total(apply("tanh", x @ w + b)) / 6.0
    outs = value_and_grad(Graph([w, b, x], [loss]), [0, 1]).outs
    news = []
    for weight, g, m, v in zip((w, b), outs[1:], state[::2], state[1::2], strict=True):
        m2, v2 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * apply("square", g)
        news += [m2, v2, weight - 1e-3 * m2 / (apply("sqrt", v2) + 1e-8)]
    graph = Graph([w, b, *state, x], [outs[0], *news], "adam")
    placements = [Replicate()] * 6 + [Shard(0)]
    args = arguments(graph)
    args[3], args[5] = np.abs(args[3]), np.abs(args[5])
    assert_partitions(graph, placements, args, (2, 3, 8))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert sent.nbytes == w.aval.nbytes + b.aval.nbytes + 8


def test_shared_weight_is_combined_once():
    x, w = array("x", 6, 4), array("w", 4, 4)
    graph, placements = step_graph([w], [x], total(apply("tanh", (2.0 * (x @ w)) @ w)))
    assert_partitions(graph, placements, arguments(graph), (3,))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert sent.arrays == 2  # the loss, and the sum of both gradients


def test_batch_norm_statistics_are_those_of_the_whole_batch():
    graph, placements = conv_net(5, normalise=True)
    args = arguments(graph)
    for outs in run_ranks(rank_graphs(graph, placements, 4), placements, args):
        assert_equal(outs[1:3], graph(*args)[1:3])
    rank = partition(graph, placements, mesh(4), 0)
    assert not any(node.op.startswith("batch_norm") for node in rank.nodes)
    assert {node.op for node in communications(rank)} == {"all_reduce"}


def test_statistics_go_ahead_of_gradients():
    """Statistics are exchanged in both passes as they come, gradients and loss in one bucket at the end."""
    graph, placements = conv_net(5, normalise=True)
    sent = explain(partition(graph, placements, mesh(2), 0))
    assert [(each.arrays, each.nbytes) for each in sent[:2]] == [(1, 32), (1, 32)]
    gradients = sum(node.aval.nbytes for node in graph.params[:4]) + 8
    assert sum(each.nbytes for each in sent) <= gradients + 6 * 32


def test_dropout_masks_belong_to_rows_not_to_ranks():
    x, key = array("x", 7, 6), array("key", dtype=np.uint64)
    masked = apply("dropout", x, key, const(np.int64(0)), rate=0.5)
    graph = Graph([x, key], [masked, total(masked)])
    placements = [Shard(0), Replicate()]
    args = [np.ones((7, 6)), np.uint64(5)]
    assert_partitions(graph, placements, args, (2, 3, 9))
    rank = partition(graph, placements, mesh(2), 1, [Shard(0), Replicate()])
    (drop,) = [node for node in rank.nodes if node.op == "dropout"]
    assert drop.shape == (4, 6)


def test_noise_for_a_sharded_array_is_drawn_by_tiles():
    x, key = array("x", 7, 3), array("key", dtype=np.uint64)
    noise = apply("random_normal", key, const(np.int64(0)), shape=(7, 3), dtype=F8)
    graph = Graph([x, key], [total(x * noise, (0,))])
    assert_partitions(graph, [Shard(0), Replicate()], arguments(graph), (2, 3))
    rank = partition(graph, [Shard(0), Replicate()], mesh(3), 0)
    assert [node.shape for node in rank.nodes if node.op == "random_normal"] == [(2, 3)]


def test_constants_that_meet_shards_are_made_or_cut_locally():
    x = array("x", 6, 3)
    table = const(np.arange(18.0).reshape(6, 3))
    ones = apply("full", 1.5, shape=(6, 3), dtype=F8)
    places = apply("iota", shape=(6, 3), axis=0, dtype=F8)
    graph = Graph([x], [total(x * table + ones * places, (0,))])
    assert_partitions(graph, [Shard(0)], arguments(graph), (2, 4))
    rank = partition(graph, [Shard(0)], mesh(2), 0)
    assert {node.shape for node in rank.nodes if node.op == "full"} == {(3, 3)}
    assert [node.op for node in communications(rank)] == ["all_reduce"]


def test_language_model_shape_keeps_rows_together_when_flattened():
    """(batch, time, features) -> (batch * time, features) -> back, without an exchange in the forward pass."""
    n, t, d = 5, 3, 4
    x, y = array("x", n, t, d), array("y", n, t, dtype=np.int64)
    w = array("w", d, 3)
    flat = apply("reshape", x, shape=(n * t, d)) @ w
    logits = apply("reshape", flat, shape=(n, t, 3))
    loss = total(apply("softmax_cross_entropy", logits, y)) / float(n * t)
    graph, placements = step_graph([w], [x, y], loss)
    assert_partitions(graph, placements, arguments(graph), (2, 3, 4))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert sent.op == "all_reduce"


def test_attention_step():
    n, t, d = 3, 4, 4
    x, y = array("x", n, t, d), array("y", n, dtype=np.int64)
    weights = [array(name, d, d) for name in "qkv"] + [array("scale", d), array("shift", d), array("head", d, 3)]
    q, k, v = (x @ w for w in weights[:3])
    scores = apply("softmax", q @ apply("transpose", k, axes=(0, 2, 1)) / 2.0, axis=2)
    h = apply("layer_norm", x + scores @ v, weights[3], weights[4], eps=1e-5)
    pooled = total(h, (1,)) / float(t)
    graph, placements = step_graph(weights, [x, y], cross_entropy(pooled @ weights[5], y))
    assert_partitions(graph, placements, arguments(graph), (2, 4))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert sent.arrays == 1 + len(weights)


@pytest.mark.parametrize("rows", ["const", "iota"])
def test_picking_the_label_of_every_row_needs_no_logits_of_others(rows):
    """``-log_softmax(logits)[np.arange(n), y].mean()``, as NumPy users write it."""
    n = 7
    x, y, w = array("x", n, 4), array("y", n, dtype=np.int64), array("w", 4, 3)
    numbers = const(np.arange(n)) if rows == "const" else apply("iota", shape=(n,), axis=0, dtype=np.dtype(np.int64))
    picked = apply("gather", apply("log_softmax", x @ w, axis=1), numbers, y, pattern=(("d", 0), ("d", 1)))
    graph, placements = step_graph([w], [x, y], -total(picked) / float(n))
    assert_partitions(graph, placements, arguments(graph), (2, 3, 9))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert (sent.op, sent.arrays) == ("all_reduce", 2)


def test_picking_in_another_order_is_right_too():
    n = 5
    x, y, w = array("x", n, 4), array("y", n, dtype=np.int64), array("w", 4, 3)
    picked = apply("gather", x @ w, const(np.arange(n)[::-1].copy()), y, pattern=(("d", 0), ("d", 1)))
    graph, placements = step_graph([w], [x, y], total(apply("square", picked)))
    assert_partitions(graph, placements, arguments(graph), (2, 3))


def test_picking_elements_whose_number_is_not_known_before_the_run():
    def picked(x):
        rows, columns = np.nonzero(x > 0)
        return x[rows, columns], fx.grad(lambda x: (x[rows, columns] ** 2).sum())(x)

    x = np.random.default_rng(0).normal(size=(5, 4))
    graph = fx.lower(picked, x).graph
    for placement in (Replicate(), Shard(0), Shard(1)):
        for outs in virtual.run(graph, [placement], mesh(2), [x]):
            np.testing.assert_array_equal(outs[0], x[x > 0])
            np.testing.assert_array_equal(outs[1], np.where(x > 0, 2 * x, 0))


@pytest.mark.parametrize("shape", [(6,), (5, 2)])
def test_embeddings_sum_their_gradient_over_the_batch(shape):
    tokens, table = array("tokens", *shape, dtype=np.int64), array("table", 3, 4)
    rows = apply("gather", table, tokens, pattern=(("d", 0), ("s", None, None, None)))
    graph, placements = step_graph([table], [tokens], total(apply("tanh", rows)))
    assert_partitions(graph, placements, arguments(graph), (2, 4))
    (sent,) = explain(partition(graph, placements, mesh(2), 0))
    assert (sent.op, sent.nbytes) == ("all_reduce", table.aval.nbytes + 8)


@pytest.mark.parametrize("base", [0.0, 1.0])
def test_rows_added_to_a_table_count_the_table_once(base):
    value, rows = array("value", 5, 2), array("rows", 5, dtype=np.int64)
    table = apply("full", base, shape=(3, 2), dtype=F8)
    pattern = (("d", 0), ("s", None, None, None))
    graph = Graph([value, rows], [apply("scatter", table, value, rows, pattern=pattern, mode="add")])
    assert_partitions(graph, [Shard(0), Shard(0)], arguments(graph), (2, 3))


def test_accuracy_over_the_batch():
    logits, y = array("logits", 7, 3), array("y", 7, dtype=np.int64)
    right = apply("equal", apply("argmax", logits, axis=1, keepdims=False), y)
    graph = Graph([logits, y], [total(right), total(right) / 7.0, total(apply("cast", right, dtype=F8))])
    assert_partitions(graph, [Shard(0)] * 2, arguments(graph), (2, 3, 9))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions_over_the_batch(name):
    x = array("x", 7, 3)
    graph = Graph([x], [apply(name, x, axis=0, keepdims=False)])
    assert_partitions(graph, [Shard(0)], arguments(graph), (2, 9))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_over_a_batch_with_fewer_rows_than_ranks(name, dtype):
    x = array("x", 3, 2, dtype=dtype)
    graph = Graph([x], [apply(name, x, axis=(0,), keepdims=False), apply(name, x, axis=None, keepdims=True)])
    values = np.array([[0, 3], [1, 2], [1, 1]]).astype(dtype)
    assert_partitions(graph, [Shard(0)], [values], (2, 5))


def test_not_a_number_reaches_every_rank():
    x = array("x", 4)
    graph = Graph([x], [apply("max", x, axis=None, keepdims=False), total(x)])
    assert_partitions(graph, [Shard(0)], [np.array([1.0, np.nan, 3.0, 0.0])], (2, 4))


def test_control_flow_sees_whole_arrays():
    x, inner = array("x", 5), [array("a", 5), array("s")]
    then, orelse = Graph(inner, [inner[0] * 2.0]), Graph(inner, [inner[0] - inner[1]])
    s = total(x)
    out = item(apply("cond", apply("greater", s, 0.0), x, s, then=then, orelse=orelse), 0)
    graph = Graph([x], [out * x])
    assert_partitions(graph, [Shard(0)], [np.arange(5.0)], (2, 3))
    assert_partitions(graph, [Shard(0)], [-np.arange(5.0)], (2, 3))


def test_outputs_may_stay_sharded():
    graph, placements = Graph([x := array("x", 5, 2)], [x * 2.0, total(x)]), [Shard(0)]
    value = arguments(graph)[0]
    outs = [Shard(0), Replicate()]
    parts = run_ranks(rank_graphs(graph, placements, 3, out_placements=outs), placements, [value])
    assert_equal([np.concatenate([part[0] for part in parts])], [value * 2.0])
    assert [part[0].shape for part in parts] == [(1, 2), (2, 2), (2, 2)]
