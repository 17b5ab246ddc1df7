"""The hash of a graph is that of what it means: the same before and after it travels."""

import pickle

import numpy as np

from futurex.ops.control import Failure
from futurex.tree import Aval, Graph, apply, param
from futurex.tree.node import interning_scope


def test_equal_nodes_count_once():
    x = param(Aval((3,), np.dtype(float)), "x")
    first = apply("sin", x)
    with interning_scope(fresh=True):
        second = apply("sin", x)
    assert first is not second
    graph = Graph([x], [first + second])
    again = pickle.loads(pickle.dumps(graph))
    assert len(again.nodes) < len(graph.nodes)
    assert again.hash == graph.hash == Graph([x], [first + first]).hash


def test_effects_count_every_time():
    x = param(Aval((), np.dtype(bool)), "x")
    failure = Failure(ValueError, ("no",))
    one, two = (apply("check", x, failure=failure) for _ in range(2))
    assert one is not two
    assert Graph([x], [one]).hash != Graph([x], [one, two]).hash
