"""What the tests of partitioning share: programs, their arguments, and the comparison with the unpartitioned run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.autodiff.reverse import value_and_grad
from futurex.partition import Mesh, Replicate, Shard, local_part, partition, virtual
from futurex.tree import Aval, Graph, Node, apply, item, param
from futurex.tree.verify import verify

F8, I8 = np.dtype(float), np.dtype(np.int64)


def mesh(size: int) -> Mesh:
    return Mesh((("data", size),))


def array(name: str, *shape: int, dtype: Any = F8) -> Node:
    return param(Aval(shape, np.dtype(dtype)), name)


def total(x: Node, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    return apply("sum", x, axis=axis, keepdims=keepdims, dtype=None)


def assert_equal(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Equal shapes and dtypes; floats to rounding, relative to the largest element, and everything else exactly."""
    assert len(actual) == len(expected)
    for a, b in zip(actual, map(np.asarray, expected), strict=True):
        assert np.shape(a) == b.shape
        assert np.asarray(a).dtype == b.dtype
        if b.dtype.kind in "fc" and b.size:
            tolerance = 1e-12 if b.dtype.itemsize >= 8 else 1e-5
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(a, b)


def rank_graphs(graph: Graph, placements: Sequence[Any], size: int, **options: Any) -> list[Graph]:
    """The graph of every rank, each accepted by the verifier."""
    return [verify(partition(graph, placements, mesh(size), rank, **options)) for rank in range(size)]


def run_ranks(graphs: Sequence[Graph], placements: Sequence[Any], args: Sequence[Any]) -> list[list[Any]]:
    size = len(graphs)
    shares = [
        [local_part(value, placement, size, rank) for value, placement in zip(args, placements, strict=True)]
        for rank in range(size)
    ]
    return virtual.run_ranks(graphs, shares)


def assert_partitions(graph: Graph, placements: Sequence[Any], args: Sequence[Any], sizes: Sequence[int]) -> None:
    """All ranks of meshes of all sizes get what the whole graph gives."""
    expected = graph(*args)
    for size in sizes:
        for outs in run_ranks(rank_graphs(graph, placements, size), placements, args):
            assert_equal(outs, expected)


def arguments(graph: Graph, classes: int = 3) -> list[Any]:
    """Random values for inputs: small for weights and state, labels below ``classes``, keys for unsigned integers."""
    rng = np.random.default_rng(11)
    draw = {
        "f": lambda s: rng.normal(size=s) * 0.5,
        "i": lambda s: rng.integers(0, classes, s),
        "u": lambda s: np.full(s, 9),
    }
    values = [draw[node.dtype.kind](node.shape) for node in graph.params]
    return [np.asarray(v).astype(node.dtype)[()] for v, node in zip(values, graph.params, strict=True)]


def sgd(weights: Sequence[Node], grads: Sequence[Node]) -> list[Node]:
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)]


def step_graph(weights: Sequence[Node], batch: Sequence[Node], loss: Node, *extra: Node) -> tuple[Graph, list[Any]]:
    """Loss, extra outputs and weights after one step of gradient descent; and the placements of its inputs."""
    inner = Graph([*weights, *batch], [loss, *extra], "loss")
    outs = value_and_grad(inner, range(len(weights))).outs
    n = 1 + len(extra)
    graph = Graph([*weights, *batch], [*outs[:n], *sgd(weights, outs[n:])], "step")
    return graph, [Replicate()] * len(weights) + [Shard(0) if node.ndim else Replicate() for node in batch]


def cross_entropy(logits: Node, labels: Node) -> Node:
    """The mean over the whole batch."""
    return total(apply("softmax_cross_entropy", logits, labels)) / float(labels.shape[0])


def mlp(n: int, width: int = 7) -> tuple[Graph, list[Any]]:
    x, y = array("x", n, 5), array("y", n, dtype=I8)
    weights = [array("w0", 5, width), array("b0", width), array("w1", width, 3), array("b1", 3)]
    hidden = apply("maximum", x @ weights[0] + weights[1], 0.0)
    return step_graph(weights, [x, y], cross_entropy(hidden @ weights[2] + weights[3], y))


def conv_net(n: int, normalise: bool) -> tuple[Graph, list[Any]]:
    """Convolution, batch norm or not, pooling, a dense layer: the shape of a network for time series."""
    x, y = array("x", n, 8, 2), array("y", n, dtype=I8)
    weights = [array("w0", 3, 2, 4), array("b0", 4), array("w1", 16, 3), array("b1", 3)]
    one = {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    h = apply("conv", x, weights[0], **one) + weights[1]
    extra: list[Node] = []
    if normalise:
        weights += [array("scale", 4), array("shift", 4)]
        norm = apply("batch_norm", h, weights[4], weights[5], eps=1e-5)
        h, extra = item(norm, 0), [item(norm, 1), item(norm, 2)]
    h = apply("max_pool", apply("maximum", h, 0.0), window=(2,), stride=(2,), padding=((0, 0),))
    logits = apply("reshape", h, shape=(n, 16)) @ weights[2] + weights[3]
    return step_graph(weights, [x, y], cross_entropy(logits, y), *extra)
