"""Batch normalisation by each locality's own statistics: what it means, what it exchanges, and what it refuses."""

import numpy as np
import pytest
from partition_cases import assert_equal, rank_graphs, run_ranks

import futurex as fx
from futurex.frontend import lower
from futurex.ops.comm import communications
from futurex.partition import Replicate, Shard, local_part
from futurex.tree.record import NotDifferentiable

C = 3
PLACES = [Replicate()] * 3 + [Shard(0)]


def _arguments(n, dtype=np.float64):
    rng = np.random.default_rng(n)
    shapes = (C,), (C,), (C, 2), (n, 4, C)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def _sum(scale, shift, w, x, local):
    y, *_ = fx.nn.batch_norm(x, scale, shift, local=local)
    return (np.tanh(y) @ w).sum()


def _step(n, dtype=np.float64):
    def step(scale, shift, w, x):
        return fx.value_and_grad(lambda *weights: _sum(*weights, x, True), (0, 1, 2))(scale, shift, w)

    return lower(step, *_arguments(n, dtype)).graph


def _expected(args, size):
    """Value and gradients, added up over the shares, each of which is normalised on its own."""
    found = [np.zeros(())] + [np.zeros_like(each) for each in args[:3]]
    for rank in range(size):
        share = local_part(args[3], Shard(0), size, rank)
        if len(share):
            value, grads = fx.value_and_grad(_sum, (0, 1, 2))(*args[:3], share, False)
            found = [total + np.asarray(part) for total, part in zip(found, (value, *grads), strict=True)]
    return found


@pytest.mark.parametrize("n", [8, 7, 2, 1])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_locality_normalises_its_own_share(n, size):
    args = _arguments(n)
    want = _expected(args, size)
    if size == 1:
        assert_equal(_step(n)(*args), want)
        return
    for outs in run_ranks(rank_graphs(_step(n), PLACES, size), PLACES, args):
        assert_equal(outs, want)


def test_nothing_is_exchanged_but_the_sums_at_the_end():
    [sent] = communications(rank_graphs(_step(8), PLACES, 2)[0])
    assert len(sent.inputs) == 4


def test_the_statistics_that_it_returns_are_those_of_the_whole_batch():
    def statistics(x):
        return fx.nn.batch_norm(x, np.ones(C), np.zeros(C), local=True)[1:]

    x = _arguments(7)[3]
    graph = lower(statistics, x).graph
    want = x.mean(axis=(0, 1)), x.var(axis=(0, 1))
    for outs in run_ranks(rank_graphs(graph, [Shard(0)], 3), [Shard(0)], [x]):
        assert_equal(outs, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_one_locality_it_is_batch_normalisation(dtype):
    args = _arguments(64, dtype)
    functions = [fx.futurize(lambda *args, local=local: _sum(*args, local)) for local in (True, False)]
    mine, theirs = (np.asarray(function(*args)) for function in functions)
    assert mine.dtype == theirs.dtype == dtype
    np.testing.assert_array_equal(mine, theirs)
    tangents = [np.ones_like(each) for each in args]
    moved = [np.asarray(fx.jvp(function, args, tangents)[1]) for function in functions]
    np.testing.assert_allclose(*moved, rtol=1e-3 if dtype == np.float32 else 1e-9)


def test_examples_of_a_vmap_keep_their_own_statistics():
    scale, shift, _, x = _arguments(6)
    stacked = np.stack([x, 2 * x + 1])
    found = fx.vmap(lambda x: fx.nn.batch_norm(x, scale, shift, local=True)[0])(stacked)
    for got, each in zip(np.asarray(found), stacked, strict=True):
        np.testing.assert_allclose(got, fx.nn.batch_norm(each, scale, shift)[0], rtol=1e-12, atol=1e-12)


def test_a_second_derivative_is_refused():
    scale, shift, w, x = _arguments(6)
    twice = fx.grad(lambda x: (fx.grad(lambda x: _sum(scale, shift, w, x, True))(x) ** 2).sum())
    with pytest.raises(NotDifferentiable, match="local_batch_norm_grad has no derivative"):
        twice(x)
