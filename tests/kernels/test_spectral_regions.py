"""Transforms with what lies before, between and behind them: the same bits as one after the other, and NumPy's."""

import numpy as np
import pytest

import futurex.ops  # noqa: F401  (registers the records)
from futurex.autodiff import value_and_grad
from futurex.kernels.numba_ import NumbaBackend, channels
from futurex.kernels.numba_.spectra import LONGEST as MOST_STEPS
from futurex.kernels.numba_.spectra import steps_of
from futurex.ops.fusion import CORRECTLY_ROUNDED
from futurex.ops.spectra import period_of, work_of
from futurex.passes import spectral
from futurex.passes.pipeline import optimise
from futurex.passes.spectral_regions import LONGEST, join_maps
from futurex.tree import Aval, Graph, apply, param

F4 = np.dtype("f4")
SIZES = {"outputs": 4, "taps": 3, "length": 6, "low": 0}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 3e38, 1e-45, -2.5, 1.5], "f4")


@pytest.fixture(autouse=True)
def small_is_worth_it(monkeypatch):
    monkeypatch.setattr(spectral, "LEAST_WORK", 0.0)
    monkeypatch.setattr(channels, "PARALLEL_BYTES", 0)


def p(*shape, dtype=F4):
    return param(Aval(shape, np.dtype(dtype)))


def positions(x, which="positions", back=False, **sizes):
    return apply("spectral_map", x, which=which, back=back, **(sizes or SIZES))


def ops_of(graph):
    return [node.op for node in graph.nodes if node.op not in ("param", "const", "item")]


def total(x, axis=(0, 1)):
    return apply("sum", x, axis=axis, keepdims=False, dtype=None)


def regions_of(graph):
    return [node for node in graph.nodes if node.op == "spectral_region"]


def ran(node, inputs, threads=1):
    """What the kernel of a node gives."""
    kernel = NumbaBackend().claim(node, threads)
    kernel.late.prepare((), wait=True)
    outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    made = tuple(np.full(aval.shape, 77, aval.dtype) for aval in outs)
    kernel.call(made if isinstance(node.aval, tuple) else made[0], *inputs)
    assert not kernel.late.interpreted
    return made


def one_by_one(graph, inputs, maps):
    """NumPy's results, but for transforms, which are those that ``maps`` gives."""
    values = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        if node.op == "const":
            values[node] = node.value
        elif node.op == "spectral_map":
            values[node] = maps(node, values[node.inputs[0]])
        elif node.inputs:
            with np.errstate(all="ignore"):
                values[node] = node.record.run([values[source] for source in node.inputs], node.attrs)
    return [np.asarray(values[node]) for node in graph.outs]


def same_bits(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        if a.dtype == F4:
            known = ~np.isnan(a)
            np.testing.assert_array_equal(a.view("u4")[known], b.view("u4")[known])


def filled(rng, node, special):
    if node.dtype.kind != "f":
        return rng.integers(0, 2, node.shape).astype(node.dtype)
    x = rng.normal(size=node.shape).astype("f4")
    x[rng.random(node.shape) < 0.2] = 0
    return np.where(rng.random(node.shape) < special, rng.choice(SPECIAL, node.shape), x).astype("f4")


def check(graph, special=0.0, threads=(1, 3)):
    """The regions of a graph, each run on random arrays: to the bit behind the transforms that it gives, too."""
    found = regions_of(graph)
    rng = np.random.default_rng(0)
    for node in found:
        region = node.attrs["graph"]
        maps = [each for each in region.nodes if each.op == "spectral_map" and each not in region.outs]
        shown = apply("spectral_region", *node.inputs, graph=Graph(region.params, [*region.outs, *maps]))
        inputs = [filled(rng, each, special) for each in node.inputs]
        first = ran(shown, inputs, threads[0])
        given = dict(zip(shown.attrs["graph"].outs, first, strict=True))
        same_bits(first, one_by_one(shown.attrs["graph"], inputs, lambda each, _, given=given: given[each]))
        for count in threads[1:]:
            same_bits(ran(shown, inputs, count), first)
        if not special:
            expected = one_by_one(region, inputs, lambda each, x: ran(each, [x])[0])
            for got, wanted in zip(ran(node, inputs, threads[-1]), expected, strict=True):
                if got.dtype == F4:
                    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
    return found


def network(x, w1, w2, b1, b2, window=3, stride=3):
    x = apply("maximum", apply("conv", x, w1, stride=(1,), padding=((0, 0),), dilation=(1,), groups=1) + b1, 0)
    x = apply("max_pool", x, window=(window,), stride=(stride,), padding=((0, 0),))
    x = apply("maximum", apply("conv", x, w2, stride=(1,), padding=((2, 2),), dilation=(1,), groups=1) + b2, 0)
    return total(x, (1,))


@pytest.mark.parametrize(
    ("batch", "filters", "pool", "special"),
    [(8, 48, (3, 3), 0.0), (9, 33, (2, 1), 0.05), (8, 40, (3, 2), 0.0), (8, 40, (2, 3), 0.05)],
)
def test_a_network_forward_and_backward(batch, filters, pool, special):
    params = [p(batch, 40, 32), p(10, 32, filters), p(8, filters, 48), p(filters), p(48)]
    graph = value_and_grad(Graph(params, [total(network(*params, *pool), None)]), [1, 2, 3, 4])
    made = optimise(graph)
    assert len(check(made, special=special)) == 3  # the last layer forward and backward is one
    rest = {"spectral_map", "max_pool_places", "max_pool_spread"} & set(ops_of(made))
    assert rest <= {"spectral_map"}  # of weights
    rng = np.random.default_rng(1)
    args = [rng.normal(size=node.shape).astype("f4") for node in params]
    for got, expected in zip(made(*args), graph(*(each.astype(float) for each in args)), strict=True):
        assert np.abs(got - expected).max() <= 5e-6 * np.abs(expected).max()


def test_what_lies_between_two_products_is_one_trip():
    params = [p(8, 40, 32), p(10, 32, 64), p(8, 64, 48), p(64), p(48)]
    made = optimise(Graph(params, [network(*params)]))
    between = [ops_of(node.attrs["graph"]) for node in regions_of(made)]
    bias, pooled = ["spectral_map", "add", "maximum"], ["reshape", "max_pool", "reshape", "spectral_map"]
    assert between == [[*bias, *pooled], [*bias, "sum"]]
    check(made, special=0.1)


ONES = {
    name
    for name in CORRECTLY_ROUNDED
    - {"where", "cast", "floor_divide", "remainder", "fmod", "conjugate", "copysign", "nextafter"}
    if "bitwise" not in name and "shift" not in name and name != "invert"  # which floats do not have
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ONES))
def test_every_operation_is_numpys(name):
    x, y = p(6, 5, 8), p(6, 5, 8)
    made = apply(name, *(x, y)[: getattr(np, name).nin])
    value = made if made.dtype == F4 else apply("where", made, x, y)
    joined = join_maps(Graph([x, y], [positions(value), made]))
    assert len(check(joined, special=0.6)) == 1


@pytest.mark.parametrize(
    "build",
    {
        "a row": lambda x, row, each, mask: x * row,
        "of each example": lambda x, row, each, mask: x - each,
        "of one example": lambda x, row, each, mask: x * apply("reshape", each, shape=(1, 5, 8)),
        "a mask": lambda x, row, each, mask: apply("where", mask, x, 0.1),
        "numbers": lambda x, row, each, mask: apply("where", apply("less", x, 1e-3), -0.0, x * 0.1 + np.float32(7)),
        "truths": lambda x, row, each, mask: apply("cast", apply("logical_and", mask, True), dtype=F4) + x,
    }.values(),
)
def test_operands(build):
    params = [p(6, 5, 8), p(8), p(5, 8), p(6, 5, 8, dtype=bool)]
    value = build(*params)
    joined = join_maps(Graph(params, [positions(value), value, total(value), total(value, (0,))]))
    assert len(regions_of(joined)) == 1
    check(joined, special=0.3)


def test_sums_are_those_of_positions_first():
    x = p(6, 5, 8)
    value = apply("maximum", positions(x), 0)
    joined = join_maps(Graph([x], [total(value)]))
    array = np.random.default_rng(0).normal(size=x.shape).astype("f4")
    (node,) = regions_of(joined)
    assert node.shape == (5, 8)
    np.testing.assert_array_equal(joined(array)[0], node.attrs["graph"](array)[0].sum(axis=0))


def test_views_stand_beside():
    x = p(6, 5, 8)
    value = apply("reshape", apply("maximum", positions(x), 0), shape=(1, -1, 40))
    graph = Graph([x], [value, apply("max_pool", value, window=(2,), stride=(2,), padding=((0, 0),))])
    joined = join_maps(graph)
    (node,) = regions_of(joined)
    assert [out.op for out in node.attrs["graph"].outs] == ["maximum", "max_pool"]
    check(joined)
    array = np.random.default_rng(0).normal(size=x.shape).astype("f4")
    same_bits(joined(array), graph(array))


@pytest.mark.parametrize(
    "build",
    {
        "a map alone": positions,
        "a view": lambda x: apply("reshape", positions(x), shape=(1, -1, 40)),
        "a function": lambda x: positions(apply("tanh", x)),
        "other columns": lambda x: positions(apply("transpose", apply("exp", x), axes=(0, 2, 1))),
        "a sum over columns": lambda x: total(positions(x), (1,)),
        "pooling with padding": lambda x: apply(
            "max_pool", apply("reshape", positions(x), shape=(1, -1, 40)), window=(3,), stride=(2,), padding=((1, 1),)
        ),
    }.values(),
)
def test_what_stays_apart(build):
    x = p(6, 5, 8)
    graph = Graph([x], [build(x)])
    assert join_maps(graph) is graph


@pytest.mark.parametrize(
    "x", [p(6, 5, 3), p(6, 5, 8, dtype="f8"), p(6, 0, 8)], ids=["few columns", "doubles", "nothing"]
)
def test_what_is_not_compiled_is_not_joined(x):
    graph = Graph([x], [positions(x + 1)])
    assert join_maps(graph) is graph


def test_long_chains_are_left_to_loops():
    x = p(6, 5, 8)
    value = x
    for _ in range(300):
        value = value + x
    value = positions(value)
    joined = join_maps(Graph([x], [value]))
    assert all(len(node.attrs["graph"].nodes) < 200 for node in check(joined))


def test_a_cycle_is_never_made():
    """What is computed from the transform on another way does not enter it."""
    x = p(6, 5, 8)
    value = positions(x)
    product = apply("matmul", value, p(8, 8))
    graph = Graph([x, product.inputs[1]], [apply("maximum", value, 0) + product])
    joined = join_maps(graph)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=node.shape).astype("f4") for node in graph.params]
    same_bits(joined(*args), graph(*args))


def test_straight_code_is_never_longer_than_is_compiled():
    sizes = {period_of(n, 10): {"outputs": n, "taps": 10, "length": n + 9, "low": 0} for n in range(2, 150)}
    joined = [each for each in sizes.values() if work_of(each["outputs"], 10) <= LONGEST]
    assert len(joined) > 60
    assert max(steps_of(positions(p(each["length"], 16), **each)) for each in joined) <= MOST_STEPS
