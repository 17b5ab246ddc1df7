"""Products of matrices in compiled loops, and loops whose rows threads share: beside NumPy."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.loops import LoopBackend, backend
from futurex.kernels.loops.products import LEAST_PRODUCT
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numba_.compiler import has_fma
from futurex.passes.counters import refilled
from futurex.passes.pipeline import optimise
from futurex.runtime import structured
from futurex.runtime.plan import compile_plan
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import apply, const, item, param

pytestmark = pytest.mark.onednn

RNG = np.random.default_rng(35)


def single(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def loop_of(function, *args):
    """The outermost loop of a function's tree."""
    graph = fx.lower(fx.futurize(function, escape="error"), *args).graph
    return next(node for node in graph.nodes if node.op == "loop")


def inputs_of(loop, args):
    """What a loop reads, where that is constants, arguments and zeros alone."""
    given = iter(args)
    found = []
    for source in loop.inputs:
        if source.op == "const":
            found.append(source.value)
        elif source.op == "full":
            found.append(np.zeros(source.shape, source.dtype))
        else:
            assert source.op == "param"
            found.append(next(given))
    return found


def recurrent(x, w):
    kept = np.zeros((40, *x.shape), x.dtype)
    for step in range(40):
        x = np.tanh(x @ w) + kept[step]
        kept[step] = x
    return x, kept


@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [(8, 192, 192), (16, 256, 1024), (2, 600, 600), (13, 130, 161), (33, 97, 97), (64, 512, 31), (300, 64, 65),
     (16, 17, 18), (3, 70, 20), (64, 4, 17)],
)
@pytest.mark.parametrize("lies", ["plain", "part", "turned", "steps"])
def test_products_in_loops(rows, inner, columns, lies):
    def rounds(x, y):
        total = np.zeros((rows, columns), np.float32)
        for step in range(6):
            total = total + (x * np.float32(step)) @ y
        return total

    x = single(rows, inner)
    y = {
        "plain": single(inner, columns), "part": single(inner, columns + 3), "turned": single(columns, inner),
        "steps": single(inner, 2 * columns),
    }[lies]  # fmt: skip
    view = {
        "plain": lambda y: y, "part": lambda y: y[:, 1:-2], "turned": lambda y: y.T, "steps": lambda y: y[:, ::2],
    }[lies]  # fmt: skip
    assert rows * inner * columns > LEAST_PRODUCT
    staged = fx.futurize(lambda x, y: rounds(x, view(y)), escape="error")
    wanted = 15.0 * (x.astype(np.float64) @ view(y).astype(np.float64))
    scale = 15.0 * (np.abs(x).astype(np.float64) @ np.abs(view(y)).astype(np.float64))
    assert (np.abs(np.asarray(staged(x, y)) - wanted) <= 2e-7 * inner**0.5 * scale).all()
    assert {row.backend for row in staged.profile() if row.op == "loop"} <= {"loops"}


def test_a_row_that_is_added_to_a_product_is_compiled_with_it():
    def rounds(x, w, b):
        for _ in range(20):
            x = np.tanh((x @ w + b)[:, :80])
        return x

    x, w, b = single(64, 80), np.float32(0.1) * single(80, 160), single(160)
    staged = fx.futurize(rounds, escape="error")
    (loop,) = (node for node in optimise(fx.lower(staged, x, w, b).graph).nodes if node.op == "loop")
    assert any(node.op == "matmul_epilogue" for node in loop.attrs["body"].nodes)
    assert not LoopBackend().whole(optimise(fx.lower(staged, x, w, b).graph)).calls
    wanted = rounds(*(each.astype(np.float64) for each in (x, w, b)))
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(staged(x, w, b)), wanted, atol=2e-6)


@pytest.mark.parametrize("extents", [(6, 40), (1, 1)])
def test_what_is_broadcast_inside_of_a_region_calls_no_python(extents):
    """As zeros are that slices are added to, and numbers that gradients of means begin with."""
    x, row, one = (param(Aval(shape, np.dtype(np.float64))) for shape in (extents, extents[1:], ()))
    wide = apply("broadcast_to", apply("multiply", row, one), shape=extents)
    inside = Graph([x, row, one], [x + wide, apply("broadcast_to", const(np.float64(0.5)), shape=extents), wide])
    graph = Graph([x, row, one], [item(apply("fused", x, row, one, graph=inside), k) for k in range(3)])
    arrays = RNG.normal(size=extents), RNG.normal(size=extents[1:]), np.float64(3.0)
    program = LoopBackend().whole(graph)
    assert not program.calls
    program.prepare((), wait=True)
    for mine, other in zip(program(*arrays), graph(*arrays), strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)


def test_a_region_of_numbers_may_be_an_array():
    one = param(Aval((), np.dtype(np.float64)))
    inside = Graph([one], [apply("broadcast_to", one * 2.0, shape=(3, 4))])
    program = LoopBackend().whole(Graph([one], [apply("fused", one, graph=inside)]))
    program.prepare((), wait=True)
    np.testing.assert_array_equal(program(np.float64(1.5))[0], np.full((3, 4), 3.0), strict=True)


def test_a_matrix_that_changes_from_round_to_round_is_packed_in_each():
    def rounds(x, ws):
        for step in range(5):
            x = x @ ws[step] * np.float32(0.1)
        return x

    x, ws = single(16, 160), single(5, 160, 160)
    wanted = x.astype(np.float64)
    for w in ws.astype(np.float64):
        wanted = wanted @ w * 0.1
    np.testing.assert_allclose(np.asarray(fx.futurize(rounds, escape="error")(x, ws)), wanted, rtol=0, atol=1e-3)


def test_inner_loops_and_branches_find_their_matrices():
    def rounds(x, w, u):
        for i in range(40):
            v = u * np.float32(i)
            for _ in range(20):
                x = np.tanh(x @ v)
            if i % 2 == 1:
                x = x @ w
        return x

    x, w, u = single(24, 144), single(144, 144) / 12, single(144, 144) / 12
    assert loop_of(rounds, x, w, u) is not None
    np.testing.assert_allclose(np.asarray(fx.futurize(rounds, escape="error")(x, w, u)), rounds(x, w, u), atol=2e-4)


@pytest.mark.parametrize(("rows", "parts"), [(32, 2), (31, 1), (2, 1)])
def test_threads_share_rows_and_change_no_bit(rows, parts):
    x, w = single(rows, 256), single(256, 256) / 16
    loop = loop_of(recurrent, x, w)
    one, two = (LoopBackend().claim(loop, threads) for threads in (1, 2))
    alone = compile_plan(loop.attrs["body"], optimised=True), compile_plan(loop.attrs["test"], optimised=True)
    assert two.late.threads == (parts if rows > 2 else two.late.threads)
    args = inputs_of(loop, [x, w])
    first, second = one.call(None, *args), two.call(None, *args)
    third = structured._loop(alone[1], alone[0], (), {}, ())(None, None, *args)
    for a, b, c in zip(first, second, third, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, atol=1e-5)


def gates(w, u, bias, rows):
    h = c = np.zeros((32, 128), np.float32)
    for row in rows:
        made = h @ w + row @ u + bias
        opened = 1 / (1 + np.exp(-made[:, :384]))
        c = opened[:, :128] * c + opened[:, 128:256] * np.tanh(made[:, 384:])
        h = opened[:, 256:] * np.tanh(c)
    return (h * h).mean()


def beside(w, u, bias, rows):
    """Examples that are columns."""
    h, first, second = np.zeros((128, 32), np.float32), w[:, :128], u[:, :128].T
    for row in rows:
        h = np.tanh(first @ h + second @ row.T + bias[:128, None])
    return (h * h).mean()


@pytest.mark.skipif(not has_fma(), reason="products in loops are NumPy's")
@pytest.mark.parametrize("layer", [gates, beside])
def test_recurrent_layers_are_two_loops_whose_rows_threads_share(layer):
    weights, rows = (0.1 * single(128, 512), 0.1 * single(64, 512), 0.1 * single(512)), single(20, 32, 64)
    gradient = fx.grad(layer, argnums=(0, 1, 2))
    loops = [node for node in optimise(fx.lower(gradient, *weights, rows).graph).nodes if node.op == "loop"]
    assert [LoopBackend().claim(loop, 2).late.threads for loop in loops] == [2, 2]
    moved = [RNG.normal(size=each.shape) for each in weights]
    ends = [
        layer(*(each + sign * 1e-4 * step for each, step in zip(weights, moved, strict=True)), rows.astype(float))
        for sign in (1, -1)
    ]
    for _ in range(3):
        slopes = zip(gradient(*weights, rows), moved, strict=True)
        found = sum((np.asarray(slope) * step).sum() for slope, step in slopes)
        assert found == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3)


def test_a_loop_whose_parts_are_refused_is_compiled_as_it_is(monkeypatch):
    asked, make = [], backend._kernel

    def kernel(node, split, threads):
        asked.append(split)
        if split is not None:
            raise Unsupported("parts")
        return make(node, split, threads)

    monkeypatch.setattr(backend, "_kernel", kernel)
    claimed = LoopBackend().claim(loop_of(recurrent, single(32, 256), single(256, 256) / 16), 2)
    assert claimed is not None
    assert claimed.late.threads == 1
    assert len(asked) == 2  # nobody asks for any other number of parts
    assert asked[1] is None


def mandelbrot(cr, ci):
    zr, zi = np.zeros_like(cr), np.zeros_like(ci)
    count = np.zeros(cr.shape, np.int32)
    for _ in range(30):
        inside = zr * zr + zi * zi <= 4.0
        zr, zi = np.where(inside, zr * zr - zi * zi + cr, zr), np.where(inside, 2.0 * zr * zi + ci, zi)
        count = count + inside
    return count, zr


def middle(x, w):
    out = np.zeros((40, *x.shape))
    for i in range(40):
        x = x * w[:, None] + out[i]
        out[i] = x
    return out


def columns(x, w):
    for i in range(40):
        x = x * w + i
    return x.T


def neighbours(x):
    for _ in range(40):
        x = x * 0.5 + np.concatenate([x[1:], x[:1]])
    return x


def shared_row(x):
    kept = np.zeros(x.shape[1:])
    for _ in range(40):
        kept[:] = x[3]
        x = x * 0.5 + kept
    return x, kept


def sums_of_columns(x):
    for _ in range(40):
        x = x * 0.5 + x.sum(axis=0) * 0.001
    return x


def sums_of_rows(x):
    for _ in range(40):
        x = (x - x.max(axis=1, keepdims=True)) * 0.5 + x.sum(axis=1, keepdims=True) * 0.001
    return x


def filled(x):
    for _ in range(40):
        y = np.full((300, 310), 0.5)
        y[0:300, 5:305] = x
        y[:, 300:] += 0.25
        x = y[:, 10:] * x + 0.5
    return x


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (mandelbrot, (RNG.normal(size=(300, 400)), RNG.normal(size=(300, 400)))),
        (middle, (RNG.normal(size=(96, 512)), RNG.normal(size=96))),
        (columns, (RNG.normal(size=(3, 40_000)), RNG.normal(size=40_000))),
        (columns, (RNG.normal(size=(40_000, 3)), RNG.normal(size=3))),
        (neighbours, (RNG.normal(size=(300, 300)),)),
        (shared_row, (RNG.normal(size=(300, 300)),)),
        (sums_of_columns, (RNG.normal(size=(300, 300)),)),
        (sums_of_rows, (RNG.normal(size=(300, 300)),)),
        (filled, (RNG.normal(size=(300, 300)),)),
    ],
)
def test_loops_over_points_run_in_parts_with_numpys_bits(function, args):
    loop = loop_of(function, *args)
    assert LoopBackend().claim(loop, 2).late.threads == 2
    wanted = function(*args)
    for one, two in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, fx.futurize(function)(*args))),
                        strict=True):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(two), one)


def sums(x):
    for _ in range(40):
        x = x * 0.5 + x.sum(axis=0) + x.sum(axis=1, keepdims=True)
    return x


def outer(x):
    for _ in range(40):
        x = x * 0.5 + x.T
    return x


@pytest.mark.parametrize("function", [sums, outer])
def test_rows_that_meet_are_not_split(function):
    x = RNG.normal(size=(300, 300))
    claimed = LoopBackend().claim(loop_of(function, x), 2)
    assert claimed is None or claimed.late.threads == 1
    wanted, found = function(x.copy()), fx.futurize(function)(x.copy())
    for one, two in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, found)), strict=True):
        np.testing.assert_array_equal(np.asarray(two), one)


# -- memory ----------------------------------------------------------------------------------------------------------


def stored(n):
    kept = np.zeros((n, 50))
    row = np.ones(50)
    for i in range(n):
        row = row * 1.01 + i
        kept[i] = row
    return kept


def test_a_loop_writes_into_arrays_that_nobody_reads_again():
    function = fx.futurize(lambda x: stored(400) + x, escape="error")
    graph = fx.lower(function, np.zeros(50)).graph
    plan = compile_plan(graph)
    (draft,) = [draft for draft in plan.low.drafts if draft.node.op == "loop"]
    taken = [k for k, out in enumerate(draft.outs) if out in plan.layout.shared]
    assert any(draft.node.aval[k].shape == (400, 50) for k in taken)
    np.testing.assert_array_equal(plan.run([np.full(50, 2.0)])[0], stored(400) + 2.0)


def test_what_is_read_again_stays():
    def both(x):
        first = x * 2.0
        second = first
        for i in range(30):
            second = second + first * i
        return first, second

    x = RNG.normal(size=(20, 20))
    for one, two in zip(both(x), fx.futurize(both, escape="error")(x), strict=True):
        np.testing.assert_array_equal(np.asarray(two), one)


def test_arrays_that_a_loop_exchanges():
    def exchange(x, y):
        a, b = x * 2.0, y * 3.0
        for _ in range(31):
            a, b = b, a + 1.0
        return a, b

    x, y = RNG.normal(size=(20, 20)), RNG.normal(size=(20, 20))
    for one, two in zip(exchange(x, y), fx.futurize(exchange, escape="error")(x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(two), one)


def test_a_loop_that_fails_leaves_what_it_started_from():
    def risky(x, positions):
        kept = x * 2.0
        for i in range(20):
            kept[positions[i]] = kept[i] + 1.0
        return kept

    staged = fx.futurize(risky, escape="error")
    x = np.arange(20.0)
    good, bad = np.arange(20)[::-1].copy(), np.arange(20)
    bad[15] = 99
    np.testing.assert_array_equal(np.asarray(staged(x, good)), risky(x, good))
    with pytest.raises(IndexError):
        staged(x, bad).result()
    np.testing.assert_array_equal(np.asarray(staged(x, good)), risky(x, good))
    np.testing.assert_array_equal(x, np.arange(20.0))


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 12, 1), (11, -1, -1), (1, 12, 3), (3, 3, 1), (11, 2, -4)])
def test_counters_in_bounds_need_no_check(start, stop, step):
    def count(x):
        total = np.zeros(13)
        for i in range(start, stop, step):
            total[i + 1] = total[i] + x[i]
        return total

    def beyond(x):
        total = 0.0
        for i in range(start, stop + step, step):
            total += x[i + 4]
        return total

    x = RNG.normal(size=12)
    np.testing.assert_array_equal(np.asarray(fx.futurize(count, escape="error")(x)), count(x))
    try:
        wanted = beyond(x)
    except IndexError:
        with pytest.raises(IndexError):
            fx.futurize(beyond, escape="error")(x).result()
    else:
        assert float(fx.futurize(beyond, escape="error")(x)) == wanted


# -- results made where they are wanted ------------------------------------------------------------------------------


def kept_and_carried(x):
    kept = np.zeros((40, 30))
    for i in range(40):
        x = x * 0.5 + i
        kept[i] = x
    return x, kept


def read_after(x):
    kept, other = np.zeros((41, 30)), np.zeros((40, 30))
    for i in range(40):
        y = x * 0.5 + i
        kept[i + 1] = y
        x = y * 0.25 - x
        other[i] = np.abs(y) + x
    return x, kept, other


def kept_twice(x):
    one, two = np.zeros((40, 30)), np.zeros((30, 40))
    for i in range(40):
        x = x * 0.5 + i
        one[i] = x
        two[:, i] = x
    return one, two


def old_rows(x):
    kept = np.ones((41, 30))
    for i in range(40):
        kept[i + 1] = kept[i] * 0.5 + x
    return kept


def own_row(x):
    kept = np.ones((40, 30))
    for i in range(40):
        kept[i] = kept[i] * 0.5 + x
        kept[i] = kept[i] + kept[0]
    return kept


def shifted(x):
    kept = np.zeros((3, 31))
    for i in range(40):
        kept[i % 3, 1:] = kept[i % 3, :-1] * 0.5 + x
    return kept


def parts(x):
    kept = np.zeros((40, 2, 60))
    total = np.zeros((2, 30))
    x = np.stack([x, x + 1.0])
    for i in range(40):
        a, b = x * 0.5 + i, x - 0.25
        kept[i] = np.concatenate([a, b], axis=1)
        total = total + a * b
        x = b * 0.5 + a * 0.25
    return kept, total


def same_parts(x):
    kept = np.zeros((40, 90))
    for i in range(40):
        y = x * 0.5 + i
        kept[i] = np.concatenate([y, x, y])
        x = y
    return kept


def spread(x):
    kept = np.zeros((40, 4, 30))
    for i in range(40):
        x = x * 0.5 + i
        kept[i] = x
    return kept


def from_behind(x):
    kept = np.zeros((40, 2, 30))
    for i in range(40):
        x = x * 0.5 + i
        kept[-1 - i, i % 2, ::-1] = x
    return kept


def narrower(x):
    kept = np.zeros((40, 30), np.float32)
    for i in range(40):
        x = x * 0.5 + i
        kept[i] = x
    return kept, x


def index_of_result(x):
    kept = np.zeros((64, 30))
    for i in range(40):
        x = x * 0.5 + i
        kept[int(x[3]) % 64] = x
    return kept, x


DELIVERED = [
    kept_and_carried, read_after, kept_twice, old_rows, own_row, shifted, parts, same_parts, spread, from_behind,
    narrower, index_of_result,
]  # fmt: skip


@pytest.mark.parametrize("function", DELIVERED)
def test_results_made_where_they_are_stored(function):
    staged = fx.futurize(function, escape="error")
    x = RNG.normal(size=30)
    wanted, found = function(x.copy()), staged(x.copy())
    for one, two in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, found)), strict=True):
        assert np.asarray(two).dtype == one.dtype
        np.testing.assert_array_equal(np.asarray(two), one)
    assert {row.backend for row in staged.profile() if row.op == "loop"} == {"loops"}


@pytest.mark.parametrize(
    ("start", "stop", "step", "moved", "every"),
    [(0, 64, 1, 0, True), (63, -1, -1, 0, True), (0, 64, 1, -64, False), (1, 65, 1, -1, True), (0, 63, 1, 0, False),
     (0, 64, 2, 0, False), (0, 63, 1, 1, False), (64, 64, 1, 0, False)],
)  # fmt: skip
def test_what_an_array_held_that_is_filled_anew_does_not_matter(start, stop, step, moved, every):
    def fill(x):
        base = np.full((64, 300), 7.0)
        first, second = base, base
        for i in range(start, stop, step):
            x = x * 0.5 + i
            first[i + moved] = x
        second = np.full((64, 300), 7.0)
        for i in range(start, stop, step):
            x = x * 0.5 + i
            second[i + moved] = x
        return first, second, x

    x = RNG.normal(size=300)
    graph = fx.lower(fx.futurize(fill, escape="error"), x).graph
    loops = [node for node in graph.nodes if node.op == "loop"]
    filled = [[node.aval[k].shape for k in refilled(node)] for node in loops]
    assert filled == [[(64, 300)] if every else []] * len(loops)
    for one, two in zip(fill(x), fx.futurize(fill, escape="error")(x), strict=True):
        np.testing.assert_array_equal(np.asarray(two), one)


def test_a_row_that_is_read_is_not_filled_anew():
    def fill(x):
        base = np.full((64, 300), 7.0)
        for i in range(64):
            x = x * 0.5 + base[63 - i]
            base[i] = x
        return base

    x = RNG.normal(size=300)
    loop = loop_of(fill, x)
    assert not refilled(loop)
    np.testing.assert_array_equal(np.asarray(fx.futurize(fill, escape="error")(x)), fill(x))


def test_explain_says_how_loops_run(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    shared, alone, apart = (fx.futurize(each, escape="error") for each in (recurrent, kept_and_carried, sums))
    shared(single(32, 256), single(256, 256) / 16)[0].result()
    alone(RNG.normal(size=30))[0].result()
    apart(RNG.normal(size=(300, 300))).result()
    assert "is compiled whole" in shared.explain()
    assert "is compiled whole\n" in f"{alone.explain()}\n"
    assert "runs round by round" in apart.explain()
