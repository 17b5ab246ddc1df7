"""Stacks of matrices cut along the stack: factorizations and their derivatives work on tiles, and only sums travel."""

import numpy as np
from partition_cases import assert_equal, mesh

import futurex as fx
from futurex.partition import Replicate, Shard, explain, partition, virtual


def loss(w, a, b):
    factor = np.linalg.cholesky(a + np.outer(w, w))
    x = np.linalg.solve(factor, b[..., None])[..., 0]
    u, s, _ = np.linalg.svd(a, full_matrices=False)
    energy = (np.abs(np.fft.rfft(b * w)) ** 2).sum() + np.einsum("bij,bj,i->b", a, b, w).sum()
    norms = np.linalg.norm(b - w, axis=1).sum() + np.linalg.slogdet(a + np.diag(w * w))[1].sum()
    return (x * x).sum() + energy + norms + (u[:, 0, 0] * s[:, 1]).sum() + np.linalg.eigvalsh(a).sum() * w.sum()


def step(w, a, b):
    return fx.value_and_grad(loss)(w, a, b)


def test_factorizations_of_a_sharded_stack_stay_where_they_are():
    rng = np.random.default_rng(0)
    a, b, w = rng.normal(size=(7, 3, 3)), rng.normal(size=(7, 3)), rng.normal(size=3)
    a = a @ a.transpose(0, 2, 1) + np.eye(3)
    graph = fx.lower(step, w, a, b).graph
    placements = [Replicate(), Shard(0), Shard(0)]
    assert [each.op for each in explain(partition(graph, placements, mesh(2), 0))] == ["all_reduce"]
    expected = graph(w, a, b)
    for results in virtual.run(graph, placements, mesh(2), [w, a, b]):
        assert_equal(results, expected)
