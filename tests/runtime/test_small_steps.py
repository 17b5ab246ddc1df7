"""Small training steps as one compiled function: losses, norms, windows, results over arguments, and ``fx.fit``."""

from __future__ import annotations

import time
import traceback

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.loops.backend import LoopBackend
from futurex.runtime import whole
from futurex.runtime.plan import compile_plan
from futurex.tree import Graph, apply, const, item, param, record
from futurex.tree.aval import aval_of
from futurex.tree.graph import evaluate

RNG = np.random.default_rng(11)
TO_THE_BIT = (
    "softmax", "softmax_grad", "log_softmax", "log_softmax_grad", "logsumexp", "softmax_cross_entropy",
    "softmax_cross_entropy_grad", "one_hot", "checked_labels", "max_pool", "max_pool_places", "max_pool_spread",
    "max_pool_grad", "avg_pool", "avg_pool_grad", "take_along_axis", "add_along_axis", "pad",
)  # fmt: skip
TO_ROUNDING = (
    "batch_norm", "batch_norm_grad", "layer_norm", "layer_norm_grad", "moments", "conv", "conv_input_grad",
    "conv_weight_grad", "conv_epilogue", "free_sum", "free_max",
)  # fmt: skip


def samples(names):
    rng = np.random.default_rng(3)
    for name in names:
        for number, sample in enumerate(record(name).samples(rng)):
            for kind in ("d", "f"):
                yield pytest.param(name, sample, kind, id=f"{name}-{number}-{kind}")


def in_kind(value, kind):
    return value.astype(kind) if value.dtype == np.float64 else value


def compiled_of(name, sample, kind):
    """The node of a sample with its inputs, and the function that it is compiled to."""
    inputs = [in_kind(np.asarray(value), kind) for value in sample.inputs]
    params = [param(aval_of(value)) for value in inputs]
    node = apply(name, *params, **sample.attrs)
    several = isinstance(node.aval, tuple)
    outs = [item(node, k) for k in range(len(node.aval))] if several else [node]
    return node, inputs, LoopBackend().whole(Graph(params, outs, name))


def results_of(program, inputs):
    program.prepare([], wait=True)
    found = program(*inputs)
    assert found is not None
    return found


def in_pairs(found, expected):
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, two in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == two.dtype
        yield np.asarray(one), two


@pytest.mark.parametrize("name, sample, kind", list(samples(TO_THE_BIT)))
def test_operations_on_rows_and_windows_have_the_bits_of_their_kernels(name, sample, kind):
    node, inputs, program = compiled_of(name, sample, kind)
    for one, two in in_pairs(results_of(program, inputs), evaluate(node, inputs)):
        np.testing.assert_array_equal(one, two)
    assert not program.calls or not all(each.size for each in inputs)


@pytest.mark.parametrize("name, sample, kind", list(samples(TO_ROUNDING)))
def test_norms_and_convolutions_are_those_of_their_kernels(name, sample, kind):
    node, inputs, program = compiled_of(name, sample, kind)
    for one, two in in_pairs(results_of(program, inputs), evaluate(node, inputs)):
        size = max(1.0, float(np.max(np.abs(two), initial=0.0)))
        rounding = 64 * float(np.finfo(two.dtype).eps) if two.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(one, two, rtol=rounding, atol=rounding * size)
    mixed = len({each.dtype for each in inputs}) > 1
    assert not program.calls or sample.attrs.get("groups", 1) > 1 or mixed or not all(each.size for each in inputs)


DRAWS = [
    ("random_bits", np.uint32), ("random_bits", np.uint64), ("random_uniform", np.float32),
    ("random_uniform", np.float64), ("random_normal", np.float32), ("random_normal", np.float64),
]  # fmt: skip


def drawn(node, key, *inputs):
    """What a node gives, by its kernel and by the function that it is compiled to, with a key that the run brings."""
    params = [source for source in node.inputs if source.op == "param"]
    program = LoopBackend().whole(Graph(params, [node * node], node.op))
    assert not program.calls
    (found,) = results_of(program, (*inputs, key))
    expected = evaluate(node, [*inputs, key, np.int64(0)])
    np.testing.assert_array_equal(found, np.asarray(expected) * expected)


@pytest.mark.parametrize("name, dtype", DRAWS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 4), (3, 7, 2)])
@pytest.mark.parametrize("key", [0, 7, 2**63 + 5, 2**64 - 1])
def test_random_numbers_by_key_have_the_bits_of_their_kernels(name, dtype, shape, key):
    key_of = param(aval_of(np.uint64(0)), "key")
    drawn(apply(name, key_of, const(np.int64(0)), shape=shape, dtype=np.dtype(dtype)), np.uint64(key))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.0, 0.25, 0.9])
@pytest.mark.parametrize("shape", [(1,), (9, 5), (2, 3, 4)])
def test_small_dropout_has_the_bits_of_its_kernel(dtype, rate, shape):
    x = RNG.normal(size=shape).astype(dtype)
    params = param(aval_of(x), "x"), param(aval_of(np.uint64(0)), "key")
    drawn(apply("dropout", *params, const(np.int64(0)), rate=rate), np.uint64(12345678901234567890), x)


def test_tiles_that_begin_behind_the_first_row_are_drawn_by_their_kernel():
    key = param(aval_of(np.uint64(0)), "key")
    node = apply("random_uniform", key, const(np.int64(3)), shape=(2, 3), dtype=np.dtype(np.float64))
    (found,) = results_of(LoopBackend().whole(Graph([key], [node], "tile")), [np.uint64(9)])
    longer = apply("random_uniform", key, const(np.int64(0)), shape=(5, 3), dtype=node.dtype)
    np.testing.assert_array_equal(found, evaluate(longer, [np.uint64(9), np.int64(0)])[3:])


SPECIAL = np.array([np.nan, -np.inf, np.inf, -1.0, 0.0, -0.0, 2.0, -0.0])


@pytest.mark.parametrize("name", ["max_pool", "max_pool_places", "max_pool_grad", "avg_pool", "avg_pool_grad"])
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 0), (1, 1))])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("among", [SPECIAL, SPECIAL[-1:]], ids=["special", "zeros"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_small_pooling_of_special_numbers(name, padding, stride, among):
    attrs = {"window": (2, 3), "stride": stride, "padding": padding}
    x = RNG.choice(among, (3, 6, 7, 2))
    pooled = record("max_pool").kernel(x, **attrs).shape
    g = RNG.choice(among, pooled)
    inputs = {"max_pool_grad": [g, x], "avg_pool_grad": [g]}.get(name, [x])
    extra = {"input_shape": x.shape} if name == "avg_pool_grad" else {}
    params = [param(aval_of(each)) for each in inputs]
    node = apply(name, *params, **attrs, **extra)
    outs = [item(node, k) for k in range(2)] if isinstance(node.aval, tuple) else [node]
    program = LoopBackend().whole(Graph(params, outs, name))
    assert not program.calls
    for one, two in in_pairs(results_of(program, inputs), evaluate(node, inputs)):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(np.signbit(one)[one == 0], np.signbit(two)[two == 0])


# -- results over arguments ------------------------------------------------------------------------------------------


def descent(params, x, y):
    def loss(params):
        hidden = np.tanh(x @ params["w"] + params["b"])
        return fx.nn.softmax_cross_entropy(hidden @ params["v"], y).mean()

    value, slope = fx.value_and_grad(loss)(params)
    return {name: params[name] - 0.5 * slope[name] for name in params}, value


def small_net(kind=np.float64):
    params = {"w": RNG.normal(size=(5, 8)), "b": RNG.normal(size=8), "v": RNG.normal(size=(8, 3))}
    x, y = RNG.normal(size=(6, 5)).astype(kind), RNG.integers(0, 3, 6)
    return {name: value.astype(kind) for name, value in params.items()}, x, y


def test_steps_of_a_compiled_function_write_over_what_they_are_given_away(at_once):
    given, x, y = small_net()
    params, plain = given, given
    staged = fx.futurize(descent, donate="params", escape="error")
    kept = {name: value.copy() for name, value in given.items()}
    places = []
    for _ in range(8):
        params, value = staged(params, x, y)
        with fx.disable():
            plain, expected = descent(plain, x, y)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        for name in plain:
            np.testing.assert_allclose(params[name], plain[name], rtol=1e-12, atol=1e-14)
        places.append([np.asarray(each).ctypes.data for each in params.values()])
    assert "runs as one compiled function" in staged.explain()
    assert places[2:] == places[1:2] * 6
    assert any(row.op == "graph" and row.count >= 4 for row in staged.profile())
    for name, value in given.items():
        np.testing.assert_array_equal(value, kept[name])


def test_a_label_that_names_no_class_is_told_of_at_the_users_line(at_once):
    params, x, y = small_net()
    staged = fx.futurize(descent, donate="params", escape="error")
    for _ in range(4):
        params, value = staged(params, x, y)
        value.result()  # what still runs has not been compiled
    assert "runs as one compiled function" in staged.explain()
    for wrong in (3, -1):
        before = {name: np.array(value) for name, value in params.items()}
        labels = y.copy()
        labels[2] = wrong
        with pytest.raises(IndexError, match="do not name the 3 classes") as caught:
            staged(before, x, labels)[1].result()
        lines = [entry.line or "" for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert any("softmax_cross_entropy" in line for line in lines)


def test_arguments_given_away_twice_or_lying_otherwise_are_written_once_each(at_once):
    def both(a, b):
        return a + b, a - b

    params = [param(aval_of(np.ones(3)), name) for name in "ab"]
    outs = [params[0] + params[1], params[0] - params[1]]
    plan = compile_plan(Graph(params, outs, "both"), donate={0: 0, 1: 1})
    plan.decide()
    assert plan.whole.taken
    a, b = np.arange(3.0), np.arange(6.0)[::2]
    expected = both(a.copy(), b.copy())
    found = plan.run([a, b])
    assert found[0] is a
    assert found[1] is b
    np.testing.assert_array_equal(a, expected[0])
    np.testing.assert_array_equal(b, expected[1])


@pytest.mark.parametrize("donate", [{0: 0}, {0: 1}, {0: 0, 2: 1}])
def test_what_is_returned_of_an_argument_is_read_before_it_is_written_over(donate):
    x, y = (param(aval_of(np.ones(3)), name) for name in "xy")
    outs = [apply("exp", x) * y + x, x, y - x, apply("flip", y, axis=(0,)), y]
    graph, given = Graph([x, y], outs, "parts"), (np.arange(3.0), np.arange(3.0) * 10)
    others, args = ([each.copy() for each in given] for _ in range(2))
    expected = compile_plan(graph, donate=donate).run(others)
    plan = compile_plan(graph, donate=donate)
    plan.decide()
    assert plan.whole.taken
    found = plan.run(args)
    for one, two in zip([*found, *args], [*expected, *others], strict=True):
        np.testing.assert_array_equal(one, two)
    for number, place in donate.items():
        assert found[number] is args[place]


# -- one way for all runs --------------------------------------------------------------------------------------------


def test_plans_that_decide_do_not_look_at_the_clock(monkeypatch):
    x = param(aval_of(np.ones((4, 4))))
    plan = compile_plan(Graph([x], [apply("exp", x) * 2 + 1], "native"))
    plan.decide()
    monkeypatch.setattr(whole, "AGAIN", 2)
    for _ in range(9):
        plan.run([np.ones((4, 4))])
    assert plan.whole.runs == 9
    assert plan.whole.text() == "runs as one compiled function"
    parted = apply("native", x, call="np.partition(_0, 2)")  # a call of Python in a compiled function
    calling = compile_plan(Graph([x], [parted * 2 + 1], "calls"))
    calling.decide()
    calling.run([np.ones((4, 4))])
    assert not calling.whole.open
    assert calling.whole.runs == 0


@pytest.mark.parametrize("optimizer", [fx.optim.sgd(0.1), fx.optim.adam(0.01)], ids=["sgd", "adam"])
def test_runs_of_fit_are_one_function_with_the_same_bits(optimizer):
    params, x, y = small_net(np.float32)
    x, y = np.tile(x, (20, 1)), np.tile(y, 20)

    def loss(params, x, y, key):
        return fx.nn.softmax_cross_entropy(np.tanh(x @ params["w"] + params["b"]) @ params["v"], y).mean()

    how = {"optimizer": optimizer, "epochs": 3, "batch_size": 8, "seed": 1, "progress": None}
    runs = [fx.fit(loss, params, (x, y), **how) for _ in range(2)]
    first, second = (run.result(timeout=60) for run in runs)
    for name in params:
        np.testing.assert_array_equal(first[name], second[name])
    assert runs[0].history[-1]["loss"] < runs[0].history[0]["loss"]


# -- small convolutions ----------------------------------------------------------------------------------------------


def network(params, x, y):
    h = np.maximum(fx.nn.conv(x, params["w"], stride=params["stride"]) + params["b"], 0)
    h = fx.nn.max_pool(h, (2,) * (x.ndim - 2))
    return fx.nn.softmax_cross_entropy(h.mean(axis=tuple(range(1, x.ndim - 1))) @ params["v"], y).mean()


@pytest.mark.parametrize("space, window", [((17,), (3,)), ((9, 8), (3, 2)), ((5, 4, 6), (2, 2, 3))])
@pytest.mark.parametrize("stride", [1, 2])
def test_small_convolution_nets_are_one_function(space, window, stride, at_once):
    kind = np.float32
    params = {
        "w": RNG.normal(size=(*window, 3, 4)).astype(kind), "b": RNG.normal(size=4).astype(kind),
        "v": RNG.normal(size=(4, 3)).astype(kind),
    }  # fmt: skip
    x, y = RNG.normal(size=(2, *space, 3)).astype(kind), RNG.integers(0, 3, 2)

    def loss(weights, x, y):
        return network({**weights, "stride": stride}, x, y)

    staged = fx.futurize(fx.value_and_grad(loss), escape="error")
    for _ in range(4):
        value, slopes = staged(params, x, y)
        value.result()
    assert "runs as one compiled function" in staged.explain()
    wide = {name: each.astype(np.float64) for name, each in params.items()}
    with fx.disable():
        expected = loss(wide, x.astype(np.float64), y)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)  # of a certain class it is a last bit, or zero
    for name, each in wide.items():
        direction = RNG.normal(size=each.shape)
        with fx.disable():
            ahead, behind = (
                loss({**wide, name: each + sign * 1e-5 * direction}, x.astype(np.float64), y) for sign in (1, -1)
            )
        along = float((np.asarray(slopes[name]) * direction).sum())
        np.testing.assert_allclose(along, (ahead - behind) / 2e-5, rtol=2e-3, atol=1e-5)


def memory_cells(params, rows):
    h = c = np.zeros((8, 16), np.float32)
    for row in rows:
        made = row @ params["u"] + h @ params["w"] + params["b"]
        i, f, g, o = (made[:, 16 * k : 16 * k + 16] for k in range(4))
        c = fx.nn.sigmoid(f) * c + fx.nn.sigmoid(i) * np.tanh(g)
        h = fx.nn.sigmoid(o) * np.tanh(c)
    return (h * h).sum()


def test_a_product_behind_small_loops_is_compiled_with_them(at_once):
    params = {name: 0.2 * RNG.normal(size=shape) for name, shape in {"u": (8, 64), "w": (16, 64), "b": (64,)}.items()}
    single, rows = {name: each.astype(np.float32) for name, each in params.items()}, RNG.normal(size=(20, 8, 8))
    staged = fx.futurize(fx.grad(memory_cells))
    for _ in range(8):
        slopes = staged(single, rows.astype(np.float32))
        slopes["w"].result()
    assert "runs as one compiled function" in staged.explain()
    expected = fx.grad(memory_cells)(params, rows)
    for name, each in slopes.items():
        np.testing.assert_allclose(each, expected[name], rtol=1e-4, atol=1e-5)


def mixed_rows(params, rows):
    """A stack of matrices by one matrix, large enough for a library, beside many operations of a few elements."""
    h = np.tanh(rows @ params["u"] + params["b"])
    scale = params["s"] * params["s"] / (1 + params["s"])
    return ((h @ params["w"]) * scale).sum(axis=1).std()


def test_products_that_a_library_would_make_are_tiles_of_one_function(at_once):
    sizes = {"u": (8, 64), "b": (64,), "w": (64, 64), "s": (64,)}
    params = {name: 0.5 * RNG.normal(size=shape) ** 2 for name, shape in sizes.items()}
    single, rows = {name: each.astype(np.float32) for name, each in params.items()}, RNG.normal(size=(8, 20, 8))
    for given in (rows, np.asfortranarray(rows)):
        staged = fx.futurize(fx.grad(mixed_rows))
        for _ in range(8):
            slopes = staged(single, given.astype(np.float32))
            slopes["w"].result()
        assert "runs as one compiled function" in staged.explain()
        expected = fx.grad(mixed_rows)(params, given)
        for name, each in slopes.items():
            np.testing.assert_allclose(each, expected[name], rtol=2e-4, atol=1e-5)


def test_a_larger_product_is_compiled_with_what_stands_around_it_but_not_unmeasured():
    def update(w, x):
        return w - 0.01 * fx.grad(lambda w: (np.tanh(x @ w) ** 2).mean())(w)

    x, w = RNG.normal(size=(256, 64)).astype(np.float32), RNG.normal(size=(64, 100)).astype(np.float32)
    for decided in (False, True):
        plan = fx.futurize(update).trace(w, x).plan
        assert plan.whole is not None
        if decided:
            plan.whole.decide()
            assert not plan.whole.open
        else:
            plan.whole.make()
            assert plan.whole.own
        np.testing.assert_allclose(plan.run([w, x])[0], update(w, x), rtol=1e-5)


def test_products_that_no_tiles_are_made_for_are_compiled_where_that_is_measured(at_once):
    """Gram matrices of three colours, which oneDNN or tiles multiply in a plan."""
    def colours(w, x):
        grams = (made := x @ w).swapaxes(-1, -2) @ made
        return (grams * grams).sum()

    w, x = RNG.normal(size=(8, 3)), RNG.normal(size=(4, 256, 8))
    slopes, single = fx.futurize(fx.grad(colours)), [each.astype(np.float32) for each in (w, x)]
    plan = slopes.trace(*single).plan
    plan.whole.decide()
    assert not plan.whole.taken
    for _ in range(20):
        found = np.asarray(slopes(*single))
        np.testing.assert_allclose(found, fx.grad(colours)(w, x), rtol=1e-4, atol=1e-3 * np.abs(found).max())


# -- numbers ---------------------------------------------------------------------------------------------------------


def powers(x, y, t):
    return x**y, 0.9**x, x**0.5, 2**x, x**3, 1 - np.float32(0.999) ** t, x * 2 + y


def test_powers_of_single_precision_have_numpys_bits(at_once):
    staged = fx.futurize(powers, escape="error")
    for x in np.abs(RNG.normal(size=40)).astype(np.float32) * np.float32(5):
        y, t = np.float32(RNG.normal() * 3), np.float32(RNG.integers(1, 50))
        for one, two in zip(staged(x, y, t), powers(x, y, t), strict=True):
            assert np.asarray(one).dtype == two.dtype
            assert np.asarray(one).tobytes() == two.tobytes()
    assert "runs as one compiled function" in staged.explain()
    graphs = [row for row in staged.profile() if row.op == "graph"]
    assert graphs[0].count > 30


def test_recorded_runs_show_every_operation(at_once, tmp_path):
    params, x, y = small_net()
    staged = fx.futurize(descent, donate="params", escape="error")
    for _ in range(6):
        params, value = staged(params, x, y)
        value.result()  # what still runs when a recording starts would be in it
    with fx.trace(tmp_path / "runs.json") as recorded:
        for _ in range(3):
            params, value = staged(params, x, y)
            value.result()
    names = [event["name"] for event in recorded.events if event["name"] == "matmul"]
    assert names
    assert len(names) % 3 == 0


# -- many operations -------------------------------------------------------------------------------------------------


def several(x, y):
    x, y = np.tanh(x * 0.5 + y), np.sin(y - x) * 2
    return np.tanh(x * 0.5 + y), np.sin(y - x) * 3


def test_functions_of_many_operations_are_compiled_when_that_is_worth_it(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    monkeypatch.setattr(whole, "MANY_NODES", 5)
    monkeypatch.setattr(whole, "PER_NODE", 1e9)
    staged, given = fx.futurize(several, escape="error"), (RNG.normal(size=5), RNG.normal(size=5))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        staged(*given)
    (plan,) = (variant.plan for variant in staged._traces())
    assert plan.whole.many
    assert plan.whole.settled  # calls may be compared with plain ones
    assert not any(row.op == "graph" for row in staged.profile())
    monkeypatch.setattr(whole, "PER_NODE", 0.0)
    while "runs as one compiled function" not in staged.explain() and time.monotonic() < end + 60:
        staged(*given)
    for _ in range(3):
        found = staged(*given)
    for one, two in zip(found, several(*given), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    assert any(row.op == "graph" for row in staged.profile())


def test_nobody_waits_for_many_operations(monkeypatch):
    monkeypatch.setattr(whole, "MANY_NODES", 3)
    x = param(aval_of(np.ones((4, 4))))
    plan = compile_plan(Graph([x], [apply("exp", x) * 2 + 1], "many"))
    plan.decide()
    assert not plan.whole.open
    np.testing.assert_array_equal(plan.run([np.ones((4, 4))])[0], np.exp(np.ones((4, 4))) * 2 + 1)
