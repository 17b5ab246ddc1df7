"""Arrays that are put together of parts: zeros that nobody reads are not written, and no bit changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes.assemble import assemble
from futurex.passes.pipeline import PASSES, optimise
from futurex.tree import Aval, Graph, apply, const, param
from futurex.tree.verify import verify

WITHOUT = tuple(each for each in PASSES if each is not assemble)
LARGE = 1 << 16


def zeros(shape, dtype="f4"):
    return apply("full", const(np.zeros((), dtype)[()]), shape=shape, dtype=np.dtype(dtype))


def added(base, value, *entries):
    return apply("store", base, value, chain=(("index", entries),), mode="add")


def part(low, high):
    return ("s", low, high, None)


def ops(graph):
    return [node.op for node in graph.nodes]


def same_bits(graph, *arrays):
    after = optimise(graph)
    verify(after)
    for found, expected in zip(after(*arrays), graph(*arrays), strict=True):
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    return after


def test_zeros_of_which_none_is_left_are_not_written():
    x, y = (param(Aval((300, 250), np.dtype("f4")), name) for name in "xy")
    whole = added(added(zeros((300, 500)), x * 2, part(None, None), part(250, None)), y, part(None, None), part(0, 250))
    rng = np.random.default_rng(0)
    after = same_bits(Graph([x, y], [whole]), *rng.standard_normal((2, 300, 250), dtype="f4"))
    assert "full" not in ops(after)
    assert ops(after).count("room") == 1
    assert ops(after).count("fused_store") == 2


def test_a_zero_with_a_sign_loses_it():
    x = param(Aval((LARGE,), np.dtype("f4")), "x")
    whole = added(added(zeros((2 * LARGE,)), -x, part(0, LARGE)), x, part(LARGE, None))
    given_zeros = np.zeros(LARGE, "f4")
    (found,) = same_bits(Graph([x], [whole]), given_zeros)(given_zeros)
    assert not np.signbit(found).any()


def test_zeros_that_are_left_stay():
    x = param(Aval((300, 250), np.dtype("f4")), "x")
    graph = Graph([x], [added(zeros((302, 250)), x * 3, part(1, -1))])
    after = same_bits(graph, np.random.default_rng(1).standard_normal((300, 250), dtype="f4"))
    assert "room" not in ops(after)
    assert "fused_store" in ops(after)


def test_arrays_of_one_shape_are_apart():
    x, y = (param(Aval((300, 250), np.dtype("f4")), name) for name in "xy")
    wholes = [
        added(added(zeros((2, 300, 250)), a * 2, ("i", 0)), b * 3, ("i", 1)) for a, b in ((x, y), (y + 1, x + 1))
    ]
    after = same_bits(Graph([x, y], wholes), *np.random.default_rng(0).standard_normal((2, 300, 250), dtype="f4"))
    assert ops(after).count("room") == 2


HALVES = (part(None, None), part(0, 250)), (part(None, None), part(250, None))


def _ones(x):
    base = apply("full", const(np.float32(1)), shape=(300, 500), dtype=np.dtype("f4"))
    return [added(added(base, x * 2, *HALVES[0]), x, *HALVES[1])]


def _overlapping(x):
    return [added(added(zeros((300, 500)), x * 2, part(None, None), part(1, 251)), x, *HALVES[1])]


def _read_between(x):
    half = added(zeros((300, 500)), x * 2, *HALVES[0])
    return [added(half, x, *HALVES[1]), apply("sum", half, axis=(0,), keepdims=False, dtype=None)]


def _broadcast(x):
    row = apply("load", x, chain=(("index", (part(0, 1),)),)) * 2
    return [added(added(zeros((300, 500)), row, *HALVES[0]), x, *HALVES[1])]


def _value_read_elsewhere(x):
    twice = x * 2
    whole = added(added(zeros((300, 500)), twice, *HALVES[0]), x, *HALVES[1])
    return [whole, apply("cumsum", twice, axis=0, dtype=None)]


@pytest.mark.parametrize("make", [_ones, _overlapping, _read_between, _broadcast, _value_read_elsewhere])
def test_the_rest_is_left_alone(make):
    x = param(Aval((300, 250), np.dtype("f4")), "x")
    after = same_bits(Graph([x], make(x)), np.random.default_rng(0).standard_normal((300, 250), dtype="f4"))
    assert "room" not in ops(after)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_parts_in_any_order(data):
    """An array cut into boxes: all of them or not, some met twice, added or set."""
    shape = data.draw(st.sampled_from([(70_001,), (260, 300), (3, 150, 160), (2, 3, 120, 110)]))
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "i4", "c16", "f2"])))
    boxes = [tuple((0, extent) for extent in shape)]
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(boxes) - 1))
        axis = data.draw(st.integers(0, len(shape) - 1))
        low, high = boxes[place][axis]
        if high - low > 1:
            cut = data.draw(st.integers(low + 1, high - 1))
            halves = [(*boxes[place][:axis], each, *boxes[place][axis + 1 :]) for each in ((low, cut), (cut, high))]
            boxes[place : place + 1] = halves
    chosen = data.draw(st.permutations(boxes))[data.draw(st.sampled_from([0, 0, 1])) :]
    if chosen and data.draw(st.booleans()):
        chosen = [*chosen, data.draw(st.sampled_from(chosen))]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lies = (*shape[:-2], shape[-2] * shape[-1]) if len(shape) > 1 and data.draw(st.booleans()) else shape
    before = (("reshape", shape),) if lies != shape else ()
    base, params, arrays = zeros(lies, dtype), [], []
    for k, bounds in enumerate(chosen):
        extents = tuple(high - low for low, high in bounds)
        array = (rng.standard_normal(extents) * 40).astype(dtype)
        if dtype.kind == "f":
            array.flat[:: max(array.size // 3, 1)] = data.draw(st.sampled_from([-0.0, np.nan, -np.inf, 5e-324]))
        params.append(param(Aval(extents, dtype), f"x{k}"))
        arrays.append(array)
        value = data.draw(st.sampled_from([params[k], params[k] * 2, apply("negative", params[k])]))
        chain = (*before, ("index", tuple(part(*each) for each in bounds)))
        base = apply("store", base, value, chain=chain, mode=data.draw(st.sampled_from(["add", "add", "set"])))
    same_bits(Graph(params, [base, base * 1]), *arrays)


def test_the_gradient_of_parts_is_written_by_the_products_that_make_it():
    """Queries, keys and values of one product; heads that are put together again."""

    def loss(x, w):
        parts = (x @ w).reshape(4, 96, 3, 4, 48)
        q, k, v = (parts[:, :, n].transpose(0, 2, 1, 3) for n in range(3))
        mixed = (np.tanh(q @ k.transpose(0, 1, 3, 2)) @ v).transpose(0, 2, 1, 3).reshape(4, 96, 192)
        return (mixed * mixed).sum()

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape) / 8 for shape in ((4, 96, 192), (192, 576)))
    gradient = fx.futurize(fx.grad(loss, argnums=(0, 1)))
    plan = gradient.trace(x.astype("f4"), w.astype("f4")).plan
    written = [node.op for node in plan.graph.nodes]
    assert written.count("matmul_store") == 3  # of queries, keys and values; what is mixed stays as its product left it
    assert written.count("room") == 1
    assert not {"full", "store"} & set(written)
    for found, expected in zip(gradient(x.astype("f4"), w.astype("f4")), gradient(x, w), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(("obj", "axis"), [(3, 0), (0, 1), (400, 1), (-1, 0)])
@pytest.mark.parametrize("dtype", ["f4", "i8", "D"])
def test_what_is_inserted_is_broadcast_between_the_parts(obj, axis, dtype):
    def f(x):
        return np.insert(x, obj, 0, axis=axis)

    x = np.random.default_rng(2).integers(-9, 9, (300, 400)).astype(dtype)
    plan = fx.futurize(f).trace(x).plan
    assert "full" not in [each.node.op for each in plan.instructions]
    found, expected = plan.run([x])[0], f(x)
    assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        ((part(0, 4), ("i", 1)), (part(0, 4), ("i", 1)), "value"),
        ((part(0, 4), ("i", 1)), (part(0, 4), ("i", 2)), "full"),
        ((part(0, 2),), (part(2, 4),), "full"),
        ((part(0, 0),), (part(0, 4),), "full"),
        ((part(0, 3),), (part(2, 4),), "store"),  # a part of it
        ((part(1, 2),), (("i", 1),), "store"),  # in another shape
        ((("s", 0, 4, 2),), (("s", 0, 4, 2),), "store"),  # not of neighbours
    ],
)
@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize("elementwise", [True, False])
def test_what_was_written_to_a_view_is_read_in_its_place(written, read, expected, mode, elementwise):
    base = zeros((4, 3), "f8")
    value = param(apply("load", base, chain=(("index", written),)).aval, "value")
    stored = apply("store", base, value, chain=(("index", written),), mode=mode)
    found = apply("load", stored, chain=(("index", read),))
    axes = tuple(range(found.ndim))
    user = apply("negative", found) if elementwise else apply("sum", found, axis=axes, keepdims=False, dtype=None)
    graph = Graph([value], [user])
    after = assemble(graph)
    verify(after)
    if (mode == "add" and expected == "value") or not elementwise:
        expected = "store"
    assert ("store" in ops(after)) == (expected == "store")
    assert ("full" in ops(after)) == (expected != "value")
    given = np.arange(1.0, 1.0 + value.size).reshape(value.shape)
    np.testing.assert_array_equal(after(given)[0], graph(given)[0])


def test_a_view_of_what_was_broadcast_has_its_own_shape():
    value, chain = param(Aval((3,), np.dtype(float)), "value"), (("index", (part(1, 3),)),)
    stored = apply("store", zeros((4, 3), "f8"), value, chain=chain, mode="set")
    graph = Graph([value], [apply("negative", apply("load", stored, chain=chain))])
    np.testing.assert_array_equal(assemble(graph)(np.arange(3.0))[0], [-np.arange(3.0)] * 2)


def test_a_view_of_what_was_filled_with_several_numbers_is_read():
    row, value = (param(Aval((n,), np.dtype(float)), name) for n, name in ((3, "row"), (4, "value")))
    base = apply("full", row, shape=(4, 3), dtype=np.dtype(float))
    stored = apply("store", base, value, chain=(("index", (part(0, 4), ("i", 0))),), mode="set")
    found = apply("negative", apply("load", stored, chain=(("index", (part(0, 4), ("i", 2))),)))
    after = assemble(Graph([row, value], [found]))
    np.testing.assert_array_equal(after(np.arange(3.0), np.ones(4))[0], np.full(4, -2.0))
