"""Elementwise operations on few elements as one loop: which ones, and that bits are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from futurex.kernels.loops.backend import LoopBackend
from futurex.kernels.numpy_ import NumpyBackend
from futurex.passes.fuse import fuse_small
from futurex.runtime.plan import compile_plan
from futurex.tree import Graph, apply, param
from futurex.tree.aval import aval_of

RNG = np.random.default_rng(2)


def graph_of(function, *arrays):
    params = [param(aval_of(each), f"x{k}") for k, each in enumerate(arrays)]
    found = function(*params)
    return Graph(params, found if isinstance(found, tuple) else (found,), "small")


def by_numpy(graph, *arrays):
    return compile_plan(graph, backends=[NumpyBackend()], optimised=True).run(list(arrays))


def regions(graph):
    return [node for node in graph.nodes if node.op == "fused"]


def test_a_chain_is_one_region_and_what_others_read_is_a_result_of_it():
    x, y = RNG.normal(size=(2, 5))
    fused = fuse_small(graph_of(lambda x, y: ((x * y + x) * 0.5, x * y), x, y))
    (region,) = regions(fused)
    assert isinstance(region.aval, tuple)
    assert len(region.aval) == 2
    assert not [node for node in fused.nodes if node.op in ("add", "multiply")]


def test_functions_numbers_and_complex_numbers_stay_outside():
    x, z, number = RNG.normal(size=5), RNG.normal(size=5) * 1j, np.float64(2.0)
    outside = graph_of(lambda x: apply("exp", apply("exp", x)), x), graph_of(lambda z: z * z + z, z)
    outside += (graph_of(lambda number: number * number + number, number),)
    for graph in outside:
        assert fuse_small(graph) is graph
    around = fuse_small(graph_of(lambda x: apply("exp", x * 2 + 1) * 3 - 1, x))
    assert [node.op for node in around.nodes if node.op in ("exp", "fused")] == ["fused", "exp", "fused"]


def test_a_region_encloses_no_path_through_others():
    x = RNG.normal(size=(4, 4))
    graph = fuse_small(graph_of(lambda x: (x + 1) @ (x + 1) * (x + 1), x))
    assert len(regions(graph)) <= 2
    np.testing.assert_array_equal(by_numpy(graph, x)[0], (x + 1) @ (x + 1) * (x + 1))


def mixed(x, y, n):
    low = apply("where", apply("less", x, y), x, y)
    high = apply("maximum", x, y) - low
    whole = apply("cast", n, dtype=np.dtype(np.float32)) * 0.1
    return high / (low * low + 1), apply("floor_divide", n, 3) + apply("remainder", n, 5), whole - 1, -low


@pytest.mark.parametrize("shape", [(2,), (7,), (3, 5), (2, 1, 4)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bits_are_numpys(shape, kind):
    x, y = (RNG.normal(size=shape).astype(kind) for _ in range(2))
    x.flat[0], y.flat[-1] = np.nan, np.inf
    n = RNG.integers(-50, 50, shape).astype(np.int16)
    graph = graph_of(mixed, x, y, n)
    program = LoopBackend().whole(graph)
    program.prepare([], wait=True)
    for found, expected in zip(program(x, y, n), by_numpy(graph, x, y, n), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_rows_and_columns_of_one_shape_are_one_region():
    x, row = RNG.normal(size=(3, 4)), RNG.normal(size=4)
    graph = graph_of(lambda x, row: (x - row) * (x + row) / 2, x, row)
    assert len(regions(fuse_small(graph))) == 1
    program = LoopBackend().whole(graph)
    program.prepare([], wait=True)
    np.testing.assert_array_equal(program(x, row)[0], (x - row) * (x + row) / 2)
