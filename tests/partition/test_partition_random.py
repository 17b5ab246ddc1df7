"""Random programs over every kind of op: partitioned equals unpartitioned, on meshes of one to four ranks."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import F8, arguments, array, assert_partitions, total

from futurex.partition import Replicate, Shard
from futurex.tree import Graph, Node, apply

COLUMNS = 3


class Programs:
    """Draws one program over arrays of ``rows`` rows that are sharded, small arrays and scalars."""

    def __init__(self, data: st.DataObject, rows: int) -> None:
        self.draw, self.rows = data.draw, rows
        self.rowwise = [array("x", rows, COLUMNS), array("y", rows, COLUMNS)]
        self.small = [array("w", COLUMNS, COLUMNS), array("b", COLUMNS), array("s")]
        self.params = [*self.rowwise, *self.small]

    def row(self) -> Node:
        return self.draw(st.sampled_from(self.rowwise))

    def any(self) -> Node:
        return self.draw(st.sampled_from(self.rowwise + [s for s in self.small if s.shape in ((), (COLUMNS,))]))

    def add_node(self) -> None:
        made = KINDS[self.draw(st.sampled_from(sorted(KINDS)))](self)
        (self.rowwise if made.shape == (self.rows, COLUMNS) else self.small).append(made)

    def elementwise(self) -> Node:
        name = self.draw(st.sampled_from(["add", "subtract", "multiply", "maximum", "arctan2"]))
        return apply(name, self.any(), self.any())

    def unary(self) -> Node:
        return apply(self.draw(st.sampled_from(["tanh", "sin", "negative", "absolute"])), self.any())

    def scaled(self) -> Node:
        source = self.draw(st.sampled_from(self.rowwise + self.small))
        return source * 0.5 if self.draw(st.booleans()) else source / 4.0

    def choose(self) -> Node:
        return apply("where", self.row() > self.any(), self.row(), self.any())

    def product(self) -> Node:
        return self.row() @ self.small[0]

    def gradient(self) -> Node:
        return apply("matmul", apply("transpose", self.row(), axes=(1, 0)), self.row())

    def reduced(self) -> Node:
        name = self.draw(st.sampled_from(["sum", "max", "min"]))
        axis = self.draw(st.sampled_from([None, (0,)]))
        extra = {"dtype": None} if name == "sum" else {}
        return apply(name, apply("tanh", self.row()), axis=axis, keepdims=False, **extra)

    def softmax(self) -> Node:
        return apply(
            self.draw(st.sampled_from(["softmax", "log_softmax"])), self.row(), axis=self.draw(st.integers(0, 1))
        )

    def centred(self) -> Node:
        x = self.row()
        return x - apply("broadcast_to", total(x, (0,), keepdims=True) / float(self.rows), shape=x.shape)

    def folded(self) -> Node:
        flat = apply("reshape", self.row(), shape=(self.rows * COLUMNS,))
        return apply("reshape", apply("tanh", flat), shape=(self.rows, COLUMNS))

    def running(self) -> Node:
        return apply("cumsum", self.row(), axis=self.draw(st.integers(0, 1)), dtype=None) * 0.1

    def turned(self) -> Node:
        return apply("flip", self.row(), axis=(self.draw(st.integers(0, 1)),))

    def shifted(self) -> Node:
        """Rows from the second on, written over the first ones: needs whole arrays."""
        x = self.row()
        rest = apply("load", x, chain=(("index", (("s", 1, None, None),)),))
        return apply("store", x, rest, chain=(("index", (("s", 0, self.rows - 1, None),)),), mode="add")


HELPERS = ("row", "any", "add_node")
KINDS = {name: kind for name, kind in vars(Programs).items() if name[0] != "_" and name not in HELPERS}


@settings(max_examples=120)
@given(st.data(), st.integers(1, 7), st.integers(1, 9))
def test_random_programs(data, rows, count):
    programs = Programs(data, rows)
    for _ in range(count):
        programs.add_node()
    outs = [data.draw(st.sampled_from(programs.rowwise)), *programs.small[3:], programs.rowwise[-1]]
    graph = Graph(programs.params, outs, "program")
    placements = [Shard(0), data.draw(st.sampled_from([Shard(0), Replicate(), Shard(1)])), *[Replicate()] * 3]
    assert_partitions(graph, placements, arguments(graph), (1, 2, 3, 4))


@settings(max_examples=40)
@given(st.data(), st.integers(1, 6))
def test_integers_are_exact(data, rows):
    x = array("x", rows, 2, dtype=np.int64)
    values = [x, x * 3, apply("remainder", x, 5), apply("left_shift", x, 2)]
    first, second = (data.draw(st.sampled_from(values)) for _ in range(2))
    outs = [total(first, (0,)) + 2 * total(second, (0,)), apply("prod", first, axis=(0,), keepdims=False, dtype=None)]
    outs += [
        apply("matmul", apply("transpose", first, axes=(1, 0)), second),
        apply("max", second, axis=None, keepdims=False),
    ]
    big = np.random.default_rng(rows).integers(-(2**62), 2**62, (rows, 2))
    assert_partitions(Graph([x], outs), [Shard(0)], [big], (2, 4))


@settings(max_examples=60)
@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
def test_reshapes_of_sharded_arrays(shape, data):
    """Any reshape of any sharded dimension, and back."""
    size = int(np.prod(shape))
    factors = [k for k in range(1, size + 1) if size % k == 0]
    first = data.draw(st.sampled_from(factors))
    second = data.draw(st.sampled_from([k for k in factors if (size // first) % k == 0]))
    into = (first, second, size // first // second)
    x = array("x", *shape)
    turned = apply("reshape", x, shape=into) * 2.0
    graph = Graph([x], [apply("reshape", turned, shape=tuple(shape)) + x, total(turned, (1,))])
    dim = data.draw(st.integers(0, len(shape) - 1))
    assert_partitions(graph, [Shard(dim)], [np.arange(size, dtype=F8).reshape(shape)], (2, 3))
