"""Many short rows, sixteen side by side: NumPy's bits, whatever a row's length, its reductions and what is around."""

import numpy as np
import pytest
import short_rows
from compare import agree, bits
from hypothesis import given, settings
from hypothesis import strategies as st
from short_rows import BACKEND, drawn, p, reduced

import futurex as fx
from futurex.kernels.numba_.narrow import FEWEST, LONGEST, Narrow, suits
from futurex.kernels.numba_.sweep import Sweep
from futurex.tree import Graph, apply

LENGTHS = [2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 33, 47, 50, 62, 63]

pytestmark = pytest.mark.usefixtures("own_cache")


def check(graph, inputs, threads=(1, 2)):
    assert suits(Sweep(graph), inputs[0].shape[1])
    short_rows.check(graph, inputs, threads)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_every_length(dtype):
    """What lies in memory, what is computed, what is a result, too, and a second pass."""
    rng = np.random.default_rng(0)
    for count in LENGTHS:
        rows = FEWEST + count  # with a group that begins where another ends
        x, scale, shift = p((rows, count), dtype), p((count,), dtype, "scale"), p((rows, 1), dtype, "shift")
        product = x * scale + shift
        apart = x - reduced("max", product)
        outs = [
            reduced("sum", x, keepdims=False), reduced("sum", product), product, reduced("max", x),
            reduced("min", product), apart, reduced("sum", apart * apart, keepdims=False), reduced("prod", apart),
        ]  # fmt: skip
        check(Graph([x, scale, shift], outs), [drawn(rng, each.shape, dtype) for each in (x, scale, shift)])
        check(Graph([x], [reduced("sum", x), reduced("prod", -x)]), [drawn(rng, x.shape, dtype, zeros=True)])


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8", "?"])
def test_integers_and_booleans(dtype):
    rng = np.random.default_rng(1)
    for count in (3, 8, 17, 50):
        x = p((FEWEST + 5, count), dtype)
        found = [reduced(name, x) for name in ("sum", "prod", "max", "min", "any", "all")]
        check(Graph([x], found), [drawn(rng, x.shape, dtype)])


def test_masks_and_mixed_types():
    rng = np.random.default_rng(2)
    x, mask, y = p((90, 21)), p((90, 21), "?"), p((90, 21), "f8", "y")
    kept = apply("where", mask, x, np.float32(-1))
    wide = apply("cast", kept, dtype=np.dtype("f8")) * y
    outs = [
        reduced("max", kept),
        apply("greater", kept, x),
        reduced("sum", wide),
        reduced("any", mask),
        reduced("sum", mask),
    ]
    check(Graph([x, mask, y], outs), [drawn(rng, each.shape, each.dtype.char) for each in (x, mask, y)])


@settings(max_examples=25)
@given(st.data())
def test_random_regions(data):
    """Operations on full and reduced values in any order, with any of them as results."""
    count, rows = data.draw(st.sampled_from(LENGTHS)), data.draw(st.integers(FEWEST, FEWEST + 40))
    dtype = data.draw(st.sampled_from(["f4", "f8"]))
    x, y = p((rows, count), dtype), p(data.draw(st.sampled_from([(rows, count), (count,), (rows, 1)])), dtype, "y")
    full, kept = [x], [reduced("sum", x)]
    for _ in range(data.draw(st.integers(1, 6))):
        one, other = data.draw(st.sampled_from(full)), data.draw(st.sampled_from([*full, *kept, y]))
        word = data.draw(st.sampled_from(["add", "subtract", "multiply", "maximum"]))
        full.append(apply(word, one, other))
        if data.draw(st.booleans()):
            word = data.draw(st.sampled_from(["sum", "prod", "max", "min"]))
            kept.append(reduced(word, full[-1]))
    outs = [full[-1], *data.draw(st.lists(st.sampled_from([*full[1:], *kept]), max_size=3, unique=True)), kept[-1]]
    graph = Graph([x, y], list(dict.fromkeys(outs)))
    if graph.params[1] not in {source for node in graph.nodes for source in node.inputs}:
        graph = Graph([x], graph.outs)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    check(graph, [drawn(rng, each.shape, dtype) for each in graph.params], threads=(1,))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_layers_over_few_features(dtype):
    """Softmax, cross entropy, normalisation, and their derivatives."""
    rng = np.random.default_rng(3)
    for rows, count in ((20000, 10), (30000, 7), (1000, 33)):
        x, labels = rng.normal(size=(rows, count)).astype(dtype), rng.integers(0, count, rows)
        scale, shift = rng.normal(size=(2, count)).astype(dtype)

        def loss(x, scale, shift, labels=labels):
            h = fx.nn.layer_norm(x, scale, shift)
            return fx.nn.softmax_cross_entropy(h, labels).mean() + (fx.nn.softmax(x) ** 2).sum()

        wide = [each.astype("f8") for each in (x, scale, shift)]
        step = fx.value_and_grad(loss, argnums=(0, 1, 2))
        value, grads = step(*wide)  # in double precision
        for _ in range(3):
            own, own_grads = step(x, scale, shift)
        tolerance = 2e-4 if dtype == "f4" else 1e-10
        np.testing.assert_allclose(float(own), float(value), rtol=tolerance)
        for each, other in zip(own_grads, grads, strict=True):
            np.testing.assert_allclose(np.asarray(each), np.asarray(other), rtol=tolerance, atol=tolerance * rows**0.5)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_over_all_rows(dtype):
    """Beside what is done with each row; rows that two groups share count once; all threads give the same bits."""
    rng = np.random.default_rng(5)
    for rows, count in ((64, 17), (77, 20), (2000, 33), (1041, 61)):
        x, scale = p((rows, count), dtype), p((count,), dtype, "scale")
        apart = x - reduced("max", x)
        graph = Graph([x, scale], [
            apply("free_sum", apart * scale, axis=(0,), keepdims=False), reduced("sum", apart), apart,
            apply("free_sum", x, axis=(0,), keepdims=True),
        ])  # fmt: skip
        assert suits(Sweep(graph), count)
        inputs = [rng.normal(size=each.shape).astype(dtype) for each in (x, scale)]
        expected, found = graph(*inputs), []
        node = apply("fused_reduction", x, scale, graph=graph)
        for threads in (1, 2, 3):
            outs = tuple(np.full(out.shape, 77, dtype) for out in graph.outs)
            BACKEND.claim(node, threads).call(outs, *inputs)
            found.append([bits(each) for each in outs])
            for actual, other in zip(outs, expected, strict=True):
                np.testing.assert_allclose(actual, other, rtol=0, atol=np.finfo(dtype).eps * 100 * rows)
        assert found[0] == found[1] == found[2]


def test_arguments_beyond_bounds_are_noticed():
    """Functions that hold up to a bound run as NumPy where a kernel meets more, with results to match."""

    def waves(x):
        return np.sin(x).sum(axis=1), np.cos(x).max(axis=1)

    x = np.random.default_rng(4).normal(size=(8192, 11))
    f = fx.futurize(waves)
    for large in (False, True):
        if large:
            x[4001, 3] = 1e300
        for _ in range(4):
            for actual, expected in zip(f(x), waves(x), strict=True):
                agree(np.asarray(actual), expected)


@pytest.mark.filterwarnings("error:a kernel was not compiled")
@pytest.mark.parametrize("large", [1.0, 1e300, np.inf])
def test_arguments_of_what_is_computed_of_rows_are_watched(large, monkeypatch):
    """Functions of sums: of each row as a result, beside each of its elements, and of what these add up to."""
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")

    def waves(x):
        total = x.sum(axis=1)
        beside = x * np.cos(total)[:, None]
        return np.sin(total), np.tan(beside.max(axis=1)) + total

    x = np.random.default_rng(5).normal(size=(4096, 9))
    x[77, 3] = large
    f = fx.futurize(waves)
    with np.errstate(all="ignore"):
        for _ in range(4):
            for actual, expected in zip(f(x), waves(x), strict=True):
                np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9)


def test_what_is_left_to_other_kernels():
    def region(rows, count):
        x = p((rows, count))
        return Sweep(Graph([x], [reduced("max", x * x)])), count

    assert suits(*region(FEWEST, 10))
    assert not suits(*region(FEWEST - 1, 10))
    assert not suits(*region(1000, LONGEST))
    sweep, count = region(1000, 10)
    assert "@fill0" in Narrow(sweep, count).text(threaded=True)
