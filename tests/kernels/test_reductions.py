"""Reductions inside compiled regions: NumPy's bits, whatever the axes, dtypes, threads and what stands around them."""

import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest
from compare import agree, bits, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, compiler
from futurex.kernels.numba_.program import LONG, reducing
from futurex.ops.sweeps import LONGEST_ROW, REDUCTIONS, Space, holds_reduction, levels, space_of
from futurex.passes.fuse import fuse
from futurex.passes.pipeline import optimise
from futurex.tree import Aval, Graph, apply, param

BACKEND = NumbaBackend()
SHAPES = [
    ((300,), None), ((37, 129), (1,)), ((37, 129), (0,)), ((5, 7, 33), (1,)), ((5, 7, 33), (0, 1)),
    ((5, 7, 33), (1, 2)), ((1, 400, 1), None), ((2001, 17), (0,)), ((40, 9), (1,)),
    ((128, 7), (0,)), ((200, 10), (0,)), ((1000, 4), (0,)), ((3, 15), (0,)),
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("own_cache")


def reduce(name, x, axis, keepdims=False):
    dtype = {"dtype": None} if name in ("sum", "prod") else {}
    return apply(name, x, axis=axis, keepdims=keepdims, **dtype)


def p(shape, dtype="f4", name=""):
    return param(Aval(shape, np.dtype(dtype)), name)


def draw(rng, shape, dtype):
    if dtype == "?":
        return rng.random(shape) < 0.5
    values = (rng.normal(size=shape) * 3).astype(dtype)
    if dtype in "f4f8" and values.size > 50:
        values.flat[7] = -0.0
    return values


def run(graph, inputs, threads=1):
    kernel = BACKEND.claim(apply("fused_reduction", *(param(each.aval) for each in graph.params), graph=graph), threads)
    assert kernel is not None
    outs = [np.full(out.shape, 77).astype(out.dtype) for out in graph.outs]
    kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
    assert kernel.late.interpreted == 0
    return outs


def check(graph, inputs, threads=(1, 2, 3)):
    with np.errstate(all="ignore"):
        expected = [np.asarray(each) for each in graph(*inputs)]
    for count in threads:
        for actual, other in zip(run(graph, inputs, count), expected, strict=True):
            assert bits(actual) == bits(other), (str(graph), count, actual, other)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
def test_few_columns(dtype):
    """Points of a few coordinates, with what is computed of them; NumPy adds up each column row by row."""
    rng = np.random.default_rng(0)
    for shape, axis in (((1001, 2), 0), ((999, 3), 0), ((64, 4), 0), ((3, 70, 5), 1), ((40, 7, 3), 0), ((77, 15), 0)):
        x = p(shape, dtype)
        names = ("sum", "prod", "max", "min", "any") if dtype != "?" else ("sum", "any", "all")
        values = draw(rng, shape, dtype)
        for name in names:
            check(Graph([x], [reduce(name, x, (axis,))]), [values], threads=(1, 2))
        if dtype != "?":
            check(Graph([x], [reduce("sum", x * x, (axis,)), reduce("max", x + x, (axis,))]), [values], threads=(1, 2))


LENGTHS = [*range(2, 40), *range(250, 300), *range(496, 530), 1000, 1016, 1032, 2047, 2056, 5001, 8200]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_every_length(dtype):
    """Rows whose four leaves are equal or not, with a rest or without; terms that lie in memory, are computed, and are
    results, too; a second pass."""
    rng = np.random.default_rng(0)
    for count in LENGTHS:
        x, y = p((3, count), dtype), p((count,), dtype, "y")
        product = x * y
        mean = reduce("sum", x, (1,), keepdims=True) / count
        apart = x - mean
        values = [draw(rng, each.shape, dtype) for each in (x, y)]
        check(Graph([x, y], [reduce("sum", product, (1,)), reduce("sum", x, (1,)), product]), values, threads=(1,))
        check(Graph([x], [reduce("sum", apart * apart, (1,))]), values[:1], threads=(1,))


@pytest.mark.parametrize("more", [0, 1, 8, 1000, 4097])
def test_a_long_sum_of_terms_in_pieces(more):
    x = p((LONG + more,))
    inputs = [draw(np.random.default_rng(more), x.shape, "f4")]
    check(Graph([x], [reduce("sum", x * x, (0,)), reduce("sum", x + 1.0, (0,))]), inputs)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?", "i2"])
@pytest.mark.parametrize("name", sorted(REDUCTIONS - {"free_sum", "free_max"}))  # those have an order of their own
def test_one_reduction(name, dtype):
    rng = np.random.default_rng(0)
    for (shape, axis), keepdims in itertools.product(SHAPES, (False, True)):
        x = p(shape, dtype)
        check(Graph([x], [reduce(name, x, axis, keepdims)], "region"), [draw(rng, shape, dtype)], (1, 3))


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_nan_infinity_and_zeros(name):
    for special in ([np.nan], [np.inf, -np.inf], [-0.0], [np.inf], [-np.inf]):
        for axis, shape in (((1,), (20, 40)), ((0,), (40, 20)), (None, (800,))):
            values = np.full(shape, -0.0 if special == [-0.0] else 1.0, "f4")
            values.flat[::37] = np.resize(special, values.flat[::37].size)
            x = p(shape)
            with np.errstate(all="ignore"):
                (expected,) = Graph([x], [reduce(name, x, axis)], "region")(values)
            (actual,) = run(Graph([x], [reduce(name, x, axis)], "region"), [values])
            assert np.array_equal(actual, expected, equal_nan=True)


def extreme(name, row):
    """NaN before all, then what is largest or smallest; a zero without sign is above one with it."""
    best = getattr(np, name)(row)
    signs = np.signbit(row[row == 0])
    if best == 0:
        return np.copysign(best, -1.0 if (signs.all() if name == "max" else signs.any()) else 1.0)
    return best


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shorter", [False, True], ids=["as here", "AVX2"])
def test_extremes_are_found_at_every_place(name, dtype, shorter, monkeypatch, tmp_path):
    """Whole rounds of vectors, what is left of them, rows too short for one."""
    if shorter:
        if not llvm.get_host_cpu_features().get("avx2"):
            pytest.skip("the processor has no AVX2")
        target = compiler._target()
        monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
        monkeypatch.setattr(compiler, "_entries", {})
        monkeypatch.setattr(compiler, "_machine", lambda: target.create_target_machine(cpu="haswell", opt=3, jit=True))
    rng = np.random.default_rng(8)
    kinds = [(-1.0, odd) for odd in (np.nan, 5.0, 0.0, -0.0)] + [(1.0, -5.0), (1.0, -0.0), (-0.0, 0.0), (0.0, -0.0)]
    for n in (9, 31, 32, 33, 64, 65, 127, 200, 1000):
        rows = np.array([[rest] * n for rest, _ in kinds for _ in range(n if n < 70 else 40)], dtype)
        places = range(n) if n < 70 else rng.integers(0, n, 40)
        for row, (place, (_, odd)) in zip(rows, ((place, kind) for kind in kinds for place in places), strict=True):
            row[place] = odd
        x = p(rows.shape, dtype)
        for source in (x, x * 1.0):  # as it lies in memory, and computed
            (found,) = run(Graph([x], [reduce(name, source, (1,))], "region"), [rows])
            expected = np.array([extreme(name, row) for row in rows], dtype)
            assert np.array_equal(found, expected, equal_nan=True)
            assert np.array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


def test_a_long_row_is_shared_by_the_threads():
    rng = np.random.default_rng(1)
    for n in (LONG, LONG + 12345):
        for dtype in ("f4", "f8", "i4"):
            x = p((n,), dtype)
            outs = [reduce(name, x * x, None) for name in ("sum", "max", "min")] + [reduce("any", x, None)]
            graph = Graph([x], [*outs, x * x], "region")
            check(graph, [draw(rng, (n,), dtype)], (1, 2, 5))
            assert len(reducing(apply("fused_reduction", p((n,), dtype), graph=graph), 2).numbers) == 2


def test_a_product_of_floats_keeps_its_order():
    x = p((LONG,), "f8")
    values = 1 + np.random.default_rng(2).normal(size=LONG) * 1e-3
    check(Graph([x], [reduce("prod", x, None), reduce("sum", x, None)], "region"), [values], (1, 2))


def test_rows_longer_than_a_buffer():
    rng = np.random.default_rng(3)
    shape = (3, 2 * LONGEST_ROW + 77)
    x, b = p(shape), p(shape[1:])
    outs = [reduce("sum", x * b, (1,)), reduce("prod", x * 0.25, (1,)), reduce("max", x - b, (1,)), x - b]
    check(Graph([x, b], outs, "region"), [draw(rng, shape, "f4"), draw(rng, shape[1:], "f4")])


def normalised(x, axis=1):
    count = float(x.shape[axis])
    centred = x - reduce("sum", x, (axis,), True) / count
    var = reduce("sum", apply("square", centred), (axis,), True) / count
    return centred / apply("sqrt", var + 1e-5)


def test_rows_in_several_passes():
    rng = np.random.default_rng(4)
    long = ((8, LONGEST_ROW + 1000), (3, 2 * LONGEST_ROW + 77))
    for shape in ((64, 100), (9, 1000), (16, LONGEST_ROW), (2, 300), *long):
        x, g = p(shape), p(shape[1:])
        y = normalised(x) * g
        again = normalised(y)  # a fifth pass
        mean = apply("reshape", reduce("sum", y, (1,), True), shape=shape[:1])
        graph = Graph([x, g], [y, again, mean * 2.0], "region")
        check(graph, [draw(rng, shape, "f4"), draw(rng, shape[1:], "f4")])


def test_functions_are_kept_for_later_passes_and_large_angles_given_to_numpy():
    x = p((32, 300), "f8")
    wave = apply("sin", x)
    graph = Graph([x], [wave / reduce("sum", wave, (1,), True)], "region")
    for scale in (1.0, 1e12):
        values = np.random.default_rng(5).normal(size=(32, 300)) * scale
        (expected,) = graph(values)
        kernel = BACKEND.claim(apply("fused_reduction", p((32, 300), "f8"), graph=graph), 1)
        actual = kernel.call(np.empty((32, 300)), values)
        assert np.allclose(actual, expected, rtol=1e-12)
        assert kernel.late.interpreted == (scale > 1)


@pytest.mark.parametrize("shape", [(32, 300), (1, LONG + 1)], ids=str)
def test_angles_that_are_sums_are_computed_and_large_ones_given_to_numpy(shape):
    x = p(shape, "f8")
    total = reduce("sum", x, (1,), True)
    for graph in (Graph([x], [apply("cos", total)], "region"), Graph([x], [x * apply("sin", total), total], "region")):
        for scale in (1.0, 1e12):
            values = np.random.default_rng(6).normal(size=shape) * scale
            expected = graph(values)
            kernel = BACKEND.claim(apply("fused_reduction", x, graph=graph), 2)
            if kernel is None:  # of one long row nothing is computed after its sum
                assert shape[0] == 1
                continue
            actual = [np.empty(out.shape) for out in graph.outs]
            kernel.call(tuple(actual) if len(actual) > 1 else actual[0], values)
            assert all(np.allclose(*pair, rtol=1e-12) for pair in zip(actual, expected, strict=True))
            assert kernel.late.interpreted == (scale > 1)


SOFTMAX, LOG_SOFTMAX = ("softmax", "log_softmax_grad"), ("log_softmax", "softmax_grad")


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "names"),
    [((300, 400), 0, "f4", SOFTMAX), ((3, 200), 1, "f8", LOG_SOFTMAX), ((1, 700), 1, "f4", SOFTMAX),
     ((9, 20011), 1, "f4", SOFTMAX), ((150000,), 0, "f8", LOG_SOFTMAX), ((5, 130, 33), 1, "f4", LOG_SOFTMAX)],
    ids=str,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_softmax_along_any_axis_is_generated(shape, axis, dtype, names):
    """Few rows, long ones and columns, with numbers that are none among them."""
    rng = np.random.default_rng(9)
    values, g = draw(rng, shape, dtype), draw(rng, shape, dtype)
    values.flat[-1] = 40
    if len(shape) > 1 and shape[0] > 2:
        values[(1,) + (0,) * (len(shape) - 1)] = np.nan
    for name in names:
        params = [p(shape, dtype) for _ in range(1 + name.endswith("grad"))]
        whole = Graph(params, [apply(name, *params, axis=axis)])
        graph = optimise(whole)
        assert name not in ops_of(graph)
        assert any(op.startswith("fused") for op in ops_of(graph))
        values.flat[3] = 1 if name.endswith("grad") else -np.inf
        inputs = [values] if len(params) == 1 else [g, values]
        actual, expected = by_kernels(graph, inputs), whole(*inputs)[0]
        assert np.array_equal(np.isnan(actual), np.isnan(expected)), name
        largest = np.abs(expected[np.isfinite(expected)]).max()
        eps = 1e-5 if dtype == "f4" else 1e-12
        np.testing.assert_allclose(actual, expected, rtol=0, atol=eps * largest, err_msg=name)


def by_kernels(graph, inputs):
    """The graph with its regions as generated kernels."""
    values = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        if node in values:
            continue
        sources = [values[source] for source in node.inputs]
        kernel = BACKEND.claim(node, 2) if node.op.startswith("fused") else None
        assert (kernel is not None) == node.op.startswith("fused"), node
        if kernel is None:
            values[node] = node.value if node.op == "const" else node.record.run(sources, node.attrs)
            continue
        outs = tuple(np.full(a.shape, 7, a.dtype) for a in (node.aval if isinstance(node.aval, tuple) else [node.aval]))
        kernel.call(outs if isinstance(node.aval, tuple) else outs[0], *sources)
        values[node] = outs if isinstance(node.aval, tuple) else outs[0]
    return values[graph.outs[0]]


def ops_of(graph):
    return [node.op for node in graph.nodes if node.op not in ("param", "const", "item")]


def test_a_sum_that_would_be_read_along_the_other_axis_stays_outside():
    """In a square a result without its axis looks like a row of the columns."""
    x = p((64, 64))
    row = reduce("sum", x * 2.0, (1,))
    graph = Graph([x], [x * 2.0 - row], "square")
    values = [np.random.default_rng(6).normal(size=(64, 64)).astype("f4")]
    assert bits(optimise(graph)(*values)[0]) == bits(graph(*values)[0])
    assert levels([node for node in graph.nodes if node.inputs], Space((64, 64), (1,))) is None


def test_columns_end_a_region():
    x = p((100, 64))
    y = x * 2.0
    graph = Graph([x], [y - reduce("sum", y, (0,))], "columns")
    after = fuse(graph)
    assert ops_of(after) == ["fused_reduction", "subtract"] or ops_of(after) == ["fused_reduction", "fused"]
    values = [np.random.default_rng(7).normal(size=(100, 64)).astype("f4")]
    assert bits(after(*values)[0]) == bits(graph(*values)[0])


def test_a_small_operation_is_compiled_beside_large_arrays():
    x, large = param(Aval((2, 32, 32), np.dtype("f4"))), param(Aval((300, 300), np.dtype("f4")))
    total = apply("sum", x, axis=(0,), keepdims=False, dtype=None)
    for others, op in (([], "sum"), ([large * 2.0 + 1.0], "fused_reduction")):
        graph = optimise(Graph([x, large] if others else [x], [total, *others]))
        assert graph.outs[0].op == op


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_losses_of_few_classes_are_compiled(classes, dtype):
    rng = np.random.default_rng(classes)
    x, labels = (rng.normal(size=(300, classes)) * 5).astype(dtype), rng.integers(0, classes, 300)
    step = fx.value_and_grad(lambda x: fx.nn.softmax_cross_entropy(x, labels).mean())
    fx.precompile(step, x)
    value, slope = step(x)
    exact = x.astype("f8")
    shares = np.exp(exact - exact.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rows = np.arange(300)
    np.testing.assert_allclose(value, -np.log(shares[rows, labels]).mean(), rtol=1e-5)
    shares[rows, labels] -= 1
    np.testing.assert_allclose(slope, shares / 300, rtol=1e-4, atol=1e-8)
    assert value.dtype == slope.dtype == dtype
    assert not {row.op for row in step.profile()} & {"softmax_cross_entropy", "softmax_cross_entropy_grad"}


def test_softmax_layer_norm_and_cross_entropy_are_one_kernel():
    x, labels = p((64, 100)), p((64,), "i8")
    for made in (
        apply("softmax", x, axis=1), apply("log_softmax", x, axis=1), apply("logsumexp", x, axis=(1,), keepdims=False),
        apply("layer_norm", x, p((100,)), p((100,)), eps=1e-5),
    ):  # fmt: skip
        params = list(dict.fromkeys([x, *(each for each in made.inputs if each.op == "param")]))
        assert ops_of(optimise(Graph(params, [made], "one"))) in (["fused_reduction"], ["fused_reduction", "reshape"])
    loss = optimise(Graph([x, labels], [apply("softmax_cross_entropy", x, labels)], "loss"))
    assert ops_of(loss) == ["checked_labels", "reshape", "fused_reduction"]
    assert [node.dtype for node in loss.nodes if node.op == "checked_labels"] == [np.dtype("i4")]  # half of 64 bits
    slope = apply("softmax_cross_entropy_grad", p((64,)), x, labels)
    params = [slope.inputs[0], x, labels]
    assert "fused_reduction" in ops_of(optimise(Graph(params, [slope], "slope")))


@pytest.mark.parametrize("odd", [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30])
def test_the_loss_of_a_label_is_that_of_its_logit(odd):
    """Whatever stands at the label and elsewhere in its row; a label that names no class is an error."""
    x, labels = p((64, 100)), p((64,), "i8")
    graph = Graph([x, labels], [apply("softmax_cross_entropy", x, labels)], "loss")
    rng = np.random.default_rng(3)
    logits, named = rng.normal(size=(64, 100)).astype("f4"), rng.integers(0, 100, 64)
    logits[np.arange(32), named[:32]] = odd
    logits[40, (named[40] + 1) % 100] = odd
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(optimise(graph)(logits, named)[0], graph(logits, named)[0], rtol=1e-5, atol=1e-6)
    named[7] = 100
    with pytest.raises(IndexError, match="do not name the 100 classes"):
        optimise(graph)(logits, named)


def test_a_label_that_names_no_class_is_an_error_with_the_gradient_alone():
    x, labels = np.zeros((64, 10), "f4"), np.arange(64) % 11
    with pytest.raises(IndexError, match="from 0 to 10 do not name the 10 classes"):
        fx.grad(lambda x: fx.nn.softmax_cross_entropy(x, labels).sum())(x).result()


def test_a_region_with_too_many_sums_for_a_stack_is_numpys():
    x = p((64, 300))
    y = x * 1.5
    sums = [reduce("sum", y + float(k), (1,)) for k in range(20)]
    graph = Graph([x], sums, "many")
    node = apply("fused_reduction", p((64, 300)), graph=graph)
    assert BACKEND.claim(node, 1) is None
    values = np.random.default_rng(11).normal(size=(64, 300)).astype("f4")
    found = fx.runtime.plan.compile_plan(graph).run([values])
    assert [bits(each) for each in found] == [bits(each) for each in graph(values)]


def test_views_in_another_order_are_summed_by_numpy():
    x = p((64, 100))
    for view in (
        apply("transpose", x, axes=(1, 0)), apply("flip", x, axis=(1,)),
        apply("load", x, chain=(("index", (("s", None, None, -1),)),)),
        apply("load", x, chain=(("transpose", (1, 0)),)),
    ):  # fmt: skip
        graph = Graph([x], [reduce("sum", view, (1,)) * 2.0], "turned")
        after = optimise(graph)
        assert "fused_reduction" not in ops_of(after)
        values = [np.random.default_rng(10).normal(size=(64, 100)).astype("f4")]
        assert bits(after(*values)[0]) == bits(graph(*values)[0])
    part = apply("load", x, chain=(("index", (("s", 2, 50, None),)),))
    assert "fused_reduction" in ops_of(optimise(Graph([x], [reduce("sum", part, (1,)) * 2.0], "part")))


def test_views_that_others_read_stay_views():
    x = p((40, 50))
    mean = reduce("sum", x * 3.0, (1,), True)
    wide = apply("broadcast_to", mean, shape=(40, 50))
    graph = Graph([x], [wide * x, apply("transpose", wide, axes=(1, 0))], "views")
    values = [np.random.default_rng(8).normal(size=(40, 50)).astype("f4")]
    after = optimise(graph)
    assert "fused_reduction" in ops_of(after)
    assert [bits(each) for each in after(*values)] == [bits(each) for each in graph(*values)]


def test_what_is_no_space():
    for node in (
        reduce("sum", p((3, 1)), (1,)), reduce("sum", p((30, 4, 50)), (0, 2)),
        apply("sum", p((30, 30)), axis=(0,), keepdims=False, dtype=np.dtype("f8")),
        apply("sum", p((30, 30), "i4"), axis=(0,), keepdims=False, dtype=np.dtype("f8")),
        reduce("sum", p((30,), "c8"), None),
    ):  # fmt: skip
        assert space_of(node) is None
    assert holds_reduction([p((3,)) + 1.0]) is None


PROGRAMS = {
    "standardise": lambda x, y: (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True),
    "columns": lambda x, y: (x * y).sum(axis=0) / np.abs(x).max(axis=0),
    "loss": lambda x, y: np.mean((x - y) ** 2) + 0.1 * np.abs(x).sum(),
    "where": lambda x, y: np.where(x > y, x, 0.0).sum(axis=1) - np.where(x > y, 0, 1).sum(axis=1),
    "any": lambda x, y: (np.any(x > 2.9, axis=1), np.all(x < y, axis=0), np.count_nonzero(x > 0)),
    "middle": lambda x, y: (x.reshape(8, -1, 40) + 1.0).sum(axis=1),
    "distances": lambda x, y: np.sqrt(((x - y) ** 2).sum(axis=1)),
    "argument": lambda x, y: (x.sum(axis=1), x.sum(axis=1)[:, None] * x, y.max()),
    "square": lambda x, y: x[:40] - x[:40].sum(axis=1),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_programs_mean_what_numpy_means(name, dtype):
    rng = np.random.default_rng(9)
    args = [draw(rng, (400, 40), dtype) for _ in range(2)]
    with np.errstate(all="ignore"):
        expected = bits(PROGRAMS[name](*args))
        futurized = fx.futurize(PROGRAMS[name])
        for _ in range(2):
            assert agree(bits(plain(futurized(*args))), expected, {})


@st.composite
def regions(draw_):
    """A graph of elementwise operations, views and reductions of one array shape."""
    shape = tuple(draw_(st.lists(st.sampled_from([1, 2, 5, 16, 33]), min_size=1, max_size=3)))
    shape = shape if np.prod(shape) >= 256 else (*shape, 300)
    rng = np.random.default_rng(draw_(st.integers(0, 2**32)))
    x, y = p(shape, "f8", "x"), p(shape[-1:], "f8", "y")
    pool = [x, y, x * 1.5]
    for _ in range(draw_(st.integers(2, 9))):
        kind = draw_(st.sampled_from(["binary", "binary", "reduce", "reduce", "spread", "cast"]))
        node = draw_(st.sampled_from(pool))
        if kind == "reduce" and node.ndim:
            axes = draw_(st.sets(st.integers(0, node.ndim - 1), min_size=1))
            name = draw_(st.sampled_from(["sum", "max", "min"]))
            pool.append(reduce(name, node, tuple(sorted(axes)), draw_(st.booleans())))
        elif kind == "spread":
            try:
                pool.append(apply("broadcast_to", node, shape=shape))
            except ValueError:
                continue
        elif kind == "cast":
            pool.append(apply("absolute", node))
        else:
            other = draw_(st.sampled_from([*pool, 2.0, 0.3]))
            try:
                pool.append(apply(draw_(st.sampled_from(["add", "multiply", "maximum", "subtract"])), node, other))
            except ValueError:
                continue
    outs = list(dict.fromkeys([pool[-1], *draw_(st.lists(st.sampled_from(pool[2:]), max_size=3))]))
    outs = [out for out in outs if out.inputs]
    graph = Graph([x, y], outs or [x + 1.0], "random")
    return graph, [rng.normal(size=shape), rng.normal(size=shape[-1:])]


@settings(max_examples=60, deadline=None)
@given(regions())
def test_random_graphs_give_the_same_bits_fused(case):
    graph, values = case
    after = optimise(graph)
    expected = [bits(np.asarray(each)) for each in graph(*values)]
    inner = [node for node in after.nodes if node.op == "fused_reduction"]
    assert all(BACKEND.claim(node, 2) is not None for node in inner)
    plan = fx.runtime.plan.compile_plan(graph)
    assert [bits(np.asarray(each)) for each in plan.run(values)] == expected


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_all_that_may_be_asked_of_one_row_is_one_kernel(dtype):
    x = np.random.default_rng(12).standard_normal(1_000_000).astype(dtype)

    def f(x):
        return x.sum(), x.min(), x.max(), (x * x).sum()

    plan = fx.futurize(f).trace(x).plan
    plan.prepare(wait=True)
    results = plan.run([x])
    assert [each.node.op for each in plan.instructions] == ["fused_reduction"]
    assert plan.interpreted == 0
    assert [bits(np.asarray(each)) for each in results] == [bits(each) for each in f(x)]


@pytest.mark.parametrize("name", ["max", "min", "any", "all"])
def test_blocks_of_images_are_regions(name):
    """What pooling by a reshape reduces: two runs of few elements, neither of neighbours, written out or one by one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 8, 2, 8, 2, 32)).astype("f4")
    x[rng.random(x.shape) < 0.01] = np.nan
    images = p(x.shape)
    arranged = optimise(Graph([images], [reduce(name, images, (2, 4))]))
    regions = [node.op for node in arranged.nodes if node.op.startswith("fused")]
    assert regions == (["fused"] if name in ("max", "min") else ["fused_reduction"] * 2)
    (found,) = arranged(x)
    with np.errstate(invalid="ignore"):
        assert bits(np.asarray(found)) == bits(getattr(np, name)(x, axis=(2, 4)))
