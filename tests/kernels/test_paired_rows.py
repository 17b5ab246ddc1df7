"""Short rows of arrays that are broadcast against each other: NumPy's bits, whichever axis sixteen rows lie along."""

import numpy as np
import pytest
import short_rows
from compare import bits
from hypothesis import given, settings
from hypothesis import strategies as st
from short_rows import BACKEND, drawn, p, reduced

import futurex as fx
from futurex.kernels.numba_.pairs import Pairs, axis_of, suits
from futurex.kernels.numba_.sweep import Sweep
from futurex.tree import Graph, apply

pytestmark = pytest.mark.usefixtures("own_cache")


def check(graph, rng):
    """By the kernel and by NumPy; gives the axis along which rows lie side by side."""
    sweep = Sweep(graph)
    assert suits(sweep, sweep.layout.extents[-1])
    short_rows.check(graph, [drawn(rng, each.shape, each.dtype.char) for each in graph.params])
    return axis_of(sweep)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("count", [8, 13, 16, 31, 32])
def test_distances_of_each_to_each(dtype, count):
    rng = np.random.default_rng(count)
    for rows, side, axis in ((70, 45, 1), (70, 20, 0), (3, 64, 1), (50, 5, 0), (33, 16, 1)):
        x, y = p((rows, 1, count), dtype), p((side, count), dtype, "y")
        assert check(Graph([x, y], [reduced("sum", (x - y) * (x - y), keepdims=False)]), rng) == axis


def test_several_axes_and_values_of_rows():
    """What moves along all, some and none of the axes, results of all elements, a second pass."""
    rng = np.random.default_rng(1)
    for shape in ((5, 4, 24, 9), (5, 40, 3, 9), (20, 3, 5, 10), (2, 3, 2, 30, 12)):
        masks = [(1, 0, 1, 1), (0, 1, 1, 1), (0, 0, 0, 1), (1, 1, 0, 0), (0, 1, 1, 0), (1, 1, 1, 1)]
        shapes = [tuple(e if m else 1 for e, m in zip(shape[-4:], mask, strict=True)) for mask in masks]
        x, y, scale, a, b, whole = (p(each, "f8", f"p{k}") for k, each in enumerate(shapes))
        value = (x - y) * scale + a
        apart = value - reduced("max", value * b)
        outs = [reduced("sum", value, keepdims=False), apart, reduced("min", apart + whole), reduced("prod", apart)]
        check(Graph([x, y, scale, a, b, whole], outs), rng)


def test_whole_rows_that_are_long_stay_as_they_lie():
    """To be turned, and turned back, takes longer than what is done with them."""
    for dtype, count, expected in (("f8", 32, True), ("f8", 50, False), ("f4", 50, True)):
        x, mask = p((40, 50, count), dtype), p((50, count), dtype, "mask")
        value = x + mask
        assert suits(Sweep(Graph([x, mask], [value - reduced("max", value)])), count) is expected
    x, y = p((40, 1, 50), "f8"), p((50, 50), "f8", "y")
    assert suits(Sweep(Graph([x, y], [reduced("sum", x * y)])), 50)


def test_axes_around_the_one_side_by_side():
    """Three others, of different lengths, whose place is told by one number."""
    rng = np.random.default_rng(2)
    for shape in ((3, 4, 5, 20, 6), (20, 3, 4, 5, 6), (3, 20, 4, 5, 6)):
        x = p((shape[0], 1, shape[2], 1, 6), "f8", "x")
        y, z = p((1, shape[1], 1, shape[3], 6), "f8", "y"), p((shape[0], 1, 1, shape[3], 6), "f8", "z")
        value = (x - y) * z
        axis = check(Graph([x, y, z], [reduced("sum", value), value]), rng)
        assert axis == shape.index(20)


def test_what_is_left_to_other_kernels():
    """Few rows, axes that are all shorter than the rows side by side, and sums over all rows."""

    def taken(side, other, crossed=False):
        x, y = p((side, 1, 9), "f8"), p((other, 9), "f8", "y")
        outs = [reduced("sum", x * y)]
        if crossed:
            outs.append(apply("free_sum", x * y, axis=(0, 1), keepdims=False))
        return suits(Sweep(Graph([x, y], outs)), 9)

    assert [taken(*sides) for sides in ((16, 4), (4, 16), (15, 15), (3, 16))] == [True, True, False, False]
    assert not taken(40, 40, crossed=True)


@settings(max_examples=25)
@given(st.data())
def test_random_shapes(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    depth, count = data.draw(st.integers(2, 3)), data.draw(st.integers(2, 40))
    extents = [data.draw(st.sampled_from([2, 3, 7, 16, 17, 31, 33])) for _ in range(depth)]
    first = [data.draw(st.booleans()) for _ in extents]
    masks = [[*first, True], [not each for each in first] + [data.draw(st.booleans())]]
    if data.draw(st.booleans()):
        masks.append([data.draw(st.booleans()) for _ in range(depth + 1)])
    shapes = [[e if m else 1 for e, m in zip((*extents, count), mask, strict=True)] for mask in masks]
    params = [p(tuple(shape), "f4", f"p{k}") for k, shape in enumerate(shapes)]
    total = params[0] - params[1]  # of all elements, as every value of a region with reductions
    for other in params[2:]:
        total = total * other - total
    graph = Graph(params, [reduced(data.draw(st.sampled_from(["sum", "max", "min", "prod"])), total)])
    sweep = Sweep(graph)
    if suits(sweep, count):
        check(graph, rng)


def test_integers():
    x, y = p((40, 1, 11), "i4"), p((19, 11), "i4", "y")
    graph = Graph([x, y], [reduced(name, x * y) for name in ("sum", "max", "any")])
    inputs = [np.random.default_rng(0).integers(-3, 4, each.shape).astype("i4") for each in graph.params]
    node = apply("fused_reduction", *graph.params, graph=graph)
    outs = [np.zeros(out.shape, out.dtype) for out in graph.outs]
    BACKEND.claim(node, 2).call(tuple(outs), *inputs)
    for actual, other in zip(outs, graph(*inputs), strict=True):
        np.testing.assert_array_equal(actual, other)


def test_kernels_of_points():
    """As they are written: by this kernel, with NumPy's bits but for the exponentials'."""
    made = []
    original = Pairs.text
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 12)), rng.normal(size=(50, 12))

    def distances(x, y):
        return ((x[:, None] - y[None]) ** 2).sum(axis=-1)

    def kernel(x, y):
        return np.exp(-0.5 * ((x[:, None] - y) ** 2).sum(-1)).sum(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairs, "text", lambda self, threaded: made.append(1) or original(self, threaded))
        f = fx.futurize(distances)
        fx.precompile(f, x, y)
        assert bits(np.asarray(f(x, y))) == bits(distances(x, y))
        g = fx.futurize(kernel)
        fx.precompile(g, x, y)
        np.testing.assert_allclose(g(x, y), kernel(x, y), rtol=1e-13)
    assert len(made) >= 1


def test_what_has_all_rows_is_read_as_it_lies():
    """By one pass, where rows are not the shortest: sixteen that lie apart are no stream."""

    def taken(count, passes=1):
        x, y = p((30, 20, 40, count), "f8"), p((20, 1, count), "f8", "y")
        value = x * y if passes == 1 else x * y - reduced("max", x * y)
        return suits(Sweep(Graph([x, y], [reduced("sum", value)])), count)

    assert [taken(9), taken(16), taken(20), taken(30, passes=2), taken(40)] == [True, True, False, True, False]
