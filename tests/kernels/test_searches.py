"""Compiled searches find what NumPy finds, count what it counts, and raise what it raises."""

import numpy as np
import pytest
from compare import bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import compiling
from futurex.kernels.numba_ import NumbaBackend, compiler, searches
from futurex.tree import Aval, apply, param

RNG = np.random.default_rng(3)
COUNT = searches.FEWEST + 13
LARGE = searches.SHARED // searches.QUICK + 37
pytestmark = pytest.mark.usefixtures("compiled_at_once")
some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOURCES = ["f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8"]


def node_of(call, *inputs):
    params = [param(Aval(np.shape(each), np.asarray(each).dtype)) for each in inputs]
    return apply("interp", *params) if call == "interp" else apply("native", *params, call=call)


def outcome(function):
    """What a call gives, or how it fails."""
    try:
        found = function()
    except Exception as error:
        return type(error), str(error)
    return bits(list(found) if isinstance(found, tuple) else found)


def same(call, *inputs, threads=1, by_numpy=False):
    """The kernel gives NumPy's bits, by itself or not; twice, since nothing may be left behind."""
    node = node_of(call, *inputs)
    kernel = NumbaBackend().claim(node, threads)
    assert kernel is not None
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    for _ in range(2):
        outs = tuple(np.full(each.shape, 77, each.dtype) for each in avals)
        before = kernel.late.interpreted
        found = outcome(lambda outs=outs: kernel.call(outs if isinstance(node.aval, tuple) else outs[0], *inputs))
        assert found == outcome(lambda: node.record.run(inputs, node.attrs))
        if by_numpy is not None:
            assert (kernel.late.interpreted > before) == by_numpy


def numbers(rng, dtype, count, among=()):
    """Some of those given and their neighbours, some others, and what compares in its own way."""
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        x = rng.integers(max(limits.min, -40), min(limits.max, 40), count).astype(dtype)
        x[::31] = rng.choice([limits.min, limits.max, 0], len(x[::31]))
        return x
    x = (rng.normal(size=count) * 9).astype(dtype)
    if len(among):
        near = rng.choice(np.asarray(among, dtype), len(x[::3]))
        x[::3] = np.nextafter(near, rng.choice([-1, 1], len(near)).astype(dtype) * np.inf)
        x[::4] = rng.choice(np.asarray(among, dtype), len(x[::4]))
    tiny = np.finfo(dtype).smallest_subnormal
    x[::17] = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny, -tiny], dtype), len(x[::17]))
    return x


def table(rng, dtype, count, odd=False):
    """A sorted one, with equal neighbours, zeros of both signs and, if asked for, what is no number at its end."""
    x = numbers(rng, dtype, count)
    x[rng.integers(0, count, count // 3)] = x[0]
    if x.dtype.kind == "f" and not odd:
        x[np.isnan(x)] = 0
    return np.sort(x)


@given(
    seed=st.integers(0, 10**6), side=st.sampled_from(["left", "right"]), held=st.sampled_from(["f4", "f8", "i4", "i8"]),
    source=st.sampled_from(SOURCES), count=st.sampled_from([1, 2, 3, 5, 8, 9, 31, 33, 64, 65, 128, 129, 1000, 5000]),
    threads=st.sampled_from([1, 3]), odd=st.booleans(),
)  # fmt: skip
@some
def test_places(seed, side, held, source, count, threads, odd):
    rng = np.random.default_rng(seed)
    x = table(rng, held, count, odd)
    keys = numbers(rng, source, COUNT if threads == 1 else LARGE, x)
    if np.promote_types(x.dtype, keys.dtype) not in map(np.dtype, ("f4", "f8", "i4", "i8")):
        return
    same(f"np.searchsorted(_0, _1, side='{side}')", x, keys, threads=threads)
    order = rng.permutation(count)
    back = np.argsort(order)
    same(f"np.searchsorted(_0, _1, '{side}', sorter=_2)", x[order], keys, back, threads=threads)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_no_number_comes_last(dtype, side):
    keys = numbers(RNG, dtype, COUNT, [1.0, 2.0])
    assert np.isnan(keys).sum() > 9
    for count in (0, 1, 2, 3, 200):
        for odd in (1, 2, 150):
            x = np.append(np.arange(count), np.full(odd, np.nan)).astype(dtype)
            same(f"np.searchsorted(_0, _1, '{side}')", x, keys)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_tables_that_are_not_sorted_are_numpys(dtype, side):
    """What it finds there depends on what it looked for before."""
    keys = numbers(RNG, dtype, COUNT)
    call = f"np.searchsorted(_0, _1, '{side}')"
    for count in (2, 40, 3000):
        x = table(RNG, dtype, count)
        x[0], x[-1] = 5, 3
        same(call, x, keys, by_numpy=True)
    if dtype[0] == "f":
        for x in ([np.nan, 1.0], [1.0, np.nan, 2.0, np.nan], [2.0, 1.0, np.nan], [np.nan, 1.0, np.nan]):
            same(call, np.array(x, dtype), keys, by_numpy=True)
    same("np.searchsorted(_0, _1, sorter=_2)", np.arange(3.0), keys, np.array([0, 1, -1]), by_numpy=True)
    same("np.searchsorted(_0, _1, sorter=_2)", np.arange(3.0), keys, np.array([0, 1, 3]), by_numpy=True)


def test_a_table_is_looked_at_to_its_end():
    for kind in (np.float64, np.int64):
        x = np.arange(200_000).astype(kind)
        assert searches.ordered(x) == 200_000
        for place in (1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 199_999):
            y = x.copy()
            y[place] = -1
            assert searches.ordered(y) == -1
            if kind is np.float64:
                y[place] = np.nan
                assert searches.ordered(y) == (199_999 if place == 199_999 else -1)
                y[place:] = np.nan
                assert searches.ordered(y) == place
                y[-1] = 3
                assert searches.ordered(y) == -1


@given(
    seed=st.integers(0, 10**6), right=st.booleans(), held=st.sampled_from(["f4", "f8", "i4", "i8"]),
    source=st.sampled_from(["f4", "f8", "i2", "u4", "i8"]), count=st.sampled_from([1, 2, 3, 4, 8, 9, 100, 1000]),
    way=st.sampled_from(["rising", "falling", "level", "odd", "mixed"]), threads=st.sampled_from([1, 2]),
)  # fmt: skip
@some
def test_bins(seed, right, held, source, count, way, threads):
    rng = np.random.default_rng(seed)
    bins = table(rng, held, count, way == "odd")
    bins = {"falling": bins[::-1].copy(), "level": np.full_like(bins, bins[0]), "mixed": rng.permutation(bins)}.get(
        way, bins
    )
    x = numbers(rng, source, COUNT if threads == 1 else LARGE, bins)
    if np.promote_types(bins.dtype, x.dtype) in map(np.dtype, ("f4", "f8", "i4", "i8")):
        told = way in ("rising", "falling", "level")
        same(f"np.digitize(_0, _1, right={right})", x, bins, threads=threads, by_numpy=False if told else None)


@pytest.mark.parametrize("right", [False, True])
def test_bins_that_are_no_numbers_are_numpys(right):
    """It takes some of them for falling ones."""
    x = numbers(RNG, "f8", COUNT, [1.0, 2.0])
    for bins in ([1.0, np.nan], [np.nan, 1.0], [np.nan], [np.nan, np.nan], [1.0, 2.0, np.nan], [2.0, 1.0, np.nan]):
        same(f"np.digitize(_0, _1, {right})", x, np.array(bins), by_numpy=True)


def test_integers_that_are_equal_as_floats_do_not_fall():
    """NumPy compares bins as floats, and looks for integers among integers."""
    x = numbers(RNG, "i8", COUNT) + 2**53
    for bins in ([2**53 + 1, 2**53], [2**53 + 3, 2**53 + 1, 2**53], [2**53, 2**53 + 1]):
        for right in (False, True):
            same(f"np.digitize(_0, _1, {right})", x, np.array(bins), by_numpy=None)


def test_bins_that_stand_in_the_call():
    x = numbers(RNG, "f4", COUNT, [0.5, 1.0])
    same("np.digitize(_0, [0.0, 0.5, 1.0], right=True)", x)
    same("np.digitize(_0, (3, 2, 0))", x)


@given(
    seed=st.integers(0, 10**6), source=st.sampled_from(SOURCES), count=st.sampled_from([2, 3, 4, 5, 6, 9, 100, 1500]),
    kinds=st.tuples(*[st.sampled_from(["f4", "f8", "i4"])] * 2), threads=st.sampled_from([1, 2]),
    ends=st.sampled_from([(), (-7.5, np.inf), (np.nan, 3)]), infinite=st.booleans(),
)  # fmt: skip
@some
def test_lines(seed, source, count, kinds, threads, ends, infinite):
    rng = np.random.default_rng(seed)
    xs, fs = table(rng, kinds[0], count), numbers(rng, kinds[1], count)
    if kinds[1][0] == "f":
        fs[np.isnan(fs)] = np.nan  # of one sign: which of two survives a sum is up to NumPy's compiler
        if not infinite:
            fs[np.isinf(fs)] = 1.5
    if kinds[0][0] == "f" and not infinite:
        xs = np.sort(np.where(np.isinf(xs), xs.dtype.type(0.5), xs))
    x = numbers(rng, source, COUNT if threads == 1 else LARGE, xs)
    params = [param(Aval(each.shape, each.dtype)) for each in (x, xs, fs)]
    node = apply("interp", *params, *ends)
    kernel = NumbaBackend().claim(node, threads)
    out = np.full(x.shape, 77.0)
    kernel.call(out, x, xs, fs, *ends)
    assert kernel.late.interpreted == 0
    assert bits(out) == bits(np.interp(x, xs, fs, *ends))


def test_lines_to_points_that_are_infinitely_far_away():
    x = numbers(RNG, "f8", COUNT, [0.0, 1.0])
    inf, nan = np.inf, np.nan
    for xs in ([-inf, inf], [-inf, 0.0], [0.0, inf], [-inf, 0.0, 0.0, 1.0, inf], [-inf, -inf, inf, inf], [inf, inf]):
        for fs in ([3.0, 3.0, 4.0, 4.0, 4.0], [1.0, 3.0, inf, inf, -inf], [inf, inf, nan, 2.0, 1.0]):
            same("interp", x, np.array(xs), np.array(fs[: len(xs)]))


def test_lines_between_points_that_are_not_sorted_are_numpys():
    x = numbers(RNG, "f8", COUNT)
    for xs in ([0.0, 2.0, 1.0], [0.0, np.nan], [0.0, 3.0, 2.0, 5.0, 4.0, 9.0]):
        same("interp", x, np.array(xs), np.arange(len(xs)) * 1.0, by_numpy=True)


RANGES = [None, (-3, 4), (-3.3, 4.7), (0, 0), (0.1, 0.9), (0, 2.5), (-1e-3, 1e-3), [0.0, 1.0]]


@given(
    seed=st.integers(0, 10**6), source=st.sampled_from(SOURCES), threads=st.sampled_from([1, 2]), density=st.booleans(),
    bins=st.sampled_from([1, 2, 3, 7, 10, 64, 100, 251]), span=st.sampled_from(RANGES),
)  # fmt: skip
@some
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of densities of nothing
def test_counts_in_bins_of_one_width(seed, source, threads, density, bins, span):
    """Numbers on the edges, and next to them."""
    rng = np.random.default_rng(seed)
    edges = np.histogram_bin_edges([-3.3, 8.1], bins, span)
    x = numbers(rng, source, COUNT if threads == 1 else LARGE, edges)
    if x.dtype.kind == "f" and span is None:
        x[~np.isfinite(x)] = edges[-1]
    call = f"np.histogram(_0, {bins}, {span}, {density})"
    same(call, x, threads=threads)


@pytest.mark.parametrize(
    ("x", "rest"),
    [
        (np.full(COUNT, np.nan), ""),
        (np.full(COUNT, np.inf), ", 3"),
        (np.arange(COUNT), ", 3, (0, 2**60)"),  # larger integers than floats are exact to
        (np.where(np.arange(COUNT) % 2, -1.7e308, 1.7e308), ", 3"),
        (np.full(COUNT, 1e300), ", 10"),  # no room for so many bins
        (np.float32(1) + np.arange(COUNT, dtype="f4") % 2 * np.float32(1e-7), ", 100"),
    ],
    ids=range(6),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_has_no_bins_of_one_width_is_numpys(x, rest):
    same(f"np.histogram(_0{rest})", x, by_numpy=True)


def test_integers_of_all_sizes_lie_in_bins():
    x = np.array([-(2**63), 2**63 - 1, 2**53 + 1, 2**53 - 1, 0] * COUNT)
    for rest in ("", ", 4", ", 3, (-5, 2**53 - 1)", ", 3, (-5.0, 2.0**53)"):
        same(f"np.histogram(_0{rest})", x, by_numpy=None)
    for dtype in ("i1", "u1", "i4"):
        x = np.linspace(np.iinfo(dtype).min, np.iinfo(dtype).max, COUNT).astype(dtype)
        same("np.histogram(_0)", x)
        same("np.histogram(_0, 256, (0, 256))", x)
        same("np.histogram(_0, 256, (0, 255))", x)


@given(
    seed=st.integers(0, 10**6), source=st.sampled_from(SOURCES), threads=st.sampled_from([1, 2]), density=st.booleans(),
    held=st.sampled_from(["f4", "f8", "i4", "i8"]), count=st.sampled_from([2, 3, 4, 5, 20, 33, 64, 65, 128]),
)  # fmt: skip
@some
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_counts_between_edges(seed, source, threads, density, held, count):
    rng = np.random.default_rng(seed)
    edges = table(rng, held, count)
    x = numbers(rng, source, COUNT if threads == 1 else LARGE, edges)
    if np.promote_types(edges.dtype, x.dtype) in map(np.dtype, ("f4", "f8", "i4", "i8")):
        same(f"np.histogram(_0, _1, density={density})[0]", x, edges, threads=threads)


def test_edges_that_are_not_sorted_are_numpys():
    x = numbers(RNG, "f8", COUNT)
    for edges in ([0.0, 2.0, 1.0], [0.0, np.nan], [np.nan, 1.0, 2.0], [1.0, 2.0, np.nan]):
        same("np.histogram(_0, _1)[0]", x, np.array(edges), by_numpy=True)
    same("np.histogram(_0, [0, 1.5, 2])", x)


@pytest.mark.parametrize(
    ("call", "inputs"),
    [
        ("np.searchsorted(_0, _1)", (np.arange(9.0), np.arange(100.0))),  # little
        ("np.searchsorted(_0, _1)", (np.arange(COUNT * 17.0), np.arange(COUNT * 1.0))),  # a large table
        ("np.searchsorted(_0, _1)", (np.arange(9, dtype="u8"), np.arange(COUNT, dtype="u8"))),
        ("np.searchsorted(_0, _1)", (np.arange(9) * 1j, np.arange(COUNT) * 1.0)),
        ("np.searchsorted(_0, _1)", (np.zeros(0), np.arange(COUNT) * 1.0)),
        ("np.digitize(_0, _1)", (np.arange(COUNT) > 3, np.arange(3))),
        ("np.digitize(_0, _1)", (np.arange(COUNT).astype("f2"), np.arange(3))),
        ("np.histogram(_0, 10, None, False, _1)", (np.arange(COUNT) * 1.0, np.arange(COUNT) * 1.0)),
        ("np.histogram(_0, 2000)", (np.arange(COUNT) * 1.0,)),
        ("np.histogram(_0, 10, (0, 2**62))", (np.arange(COUNT) * 1.0,)),
        ("np.histogram(_0, _1)[0]", (np.arange(COUNT) * 1.0, np.zeros(1))),
        ("np.median(_0)", (np.arange(COUNT) * 1.0,)),
        ("interp", (np.arange(COUNT) * 1.0, np.zeros(1), np.zeros(1))),
        ("interp", (np.arange(COUNT) * 1.0, np.arange(3.0), np.arange(3.0) * 1j)),
    ],
    ids=range(14),
)
def test_the_rest_is_numpys(call, inputs):
    assert NumbaBackend().claim(node_of(call, *inputs), 2) is None


def test_many_edges_are_numpys_which_sorts():
    x = np.arange(COUNT * 9)
    for dtype, most in (("f4", 128), ("i4", 128), ("f8", 2048), ("i8", 2048)):
        same("np.histogram(_0, _1)[0]", x.astype(dtype), np.arange(most, dtype=dtype))
        node = node_of("np.histogram(_0, _1)[0]", x.astype(dtype), np.arange(most + 1, dtype=dtype))
        assert NumbaBackend().claim(node, 1) is None


def test_many_bins_leave_a_call_to_one_thread():
    x = numbers(RNG, "f8", LARGE)
    x[~np.isfinite(x)] = 0
    few = NumbaBackend().claim(node_of("np.histogram(_0, 10)", x), 2).call
    many = NumbaBackend().claim(node_of("np.histogram(_0, 5000)", x), 2).call
    assert (few.threads, many.threads, many.share.tickets) == (2, 1, 1)
    same("np.histogram(_0, 5000)", x, threads=2)


def test_in_a_function():
    @fx.futurize
    def f(x, xs, fs):
        found = np.searchsorted(xs, x), xs.searchsorted(x, "right"), np.digitize(x, xs), np.interp(x, xs, fs)
        return *found, np.interp(x, xs, fs, left=0.0), *np.histogram(x), np.histogram(x[::2], xs)[0]

    x, xs = RNG.normal(size=(30, 700)), np.linspace(-2.0, 2.0, 50)
    plan = f.trace(x, xs, xs**2).plan
    assert all(each.kernel.backend == "numba" for each in plan.instructions if each.node.op in ("native", "interp"))
    for y in (x, np.asfortranarray(x), x):
        assert bits([np.asarray(each) for each in f(y, xs, xs**2)]) == bits(list(f.plain(y, xs, xs**2)))
    with pytest.raises(ValueError, match="bins must be monotonically"):
        [each.result() for each in f(x, xs**2, xs)]
    with pytest.raises(ValueError, match=r"autodetected range of \[nan, nan\] is not finite"):
        [each.result() for each in f(x * np.nan, xs, xs)]


def test_derivatives_of_lines():
    x, xs = RNG.normal(size=3 * COUNT), np.linspace(-2.0, 2.0, 50)
    slopes = fx.grad(lambda x, xs, fs: np.interp(x, xs, fs).sum())(x, xs, np.sin(xs))
    inside = np.diff(np.sin(xs)) / np.diff(xs)
    k = np.searchsorted(xs, x, side="right") - 1
    expected = np.where((k < 0) | (k > 48), 0.0, inside[np.clip(k, 0, 48)])
    np.testing.assert_allclose(np.asarray(slopes), expected, rtol=1e-12)


def test_nobody_waits_for_the_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "_entries", {})
    x, xs = RNG.normal(size=COUNT), np.sort(RNG.normal(size=11))
    with compiling.behind(True), monkeypatch.context() as patch:
        patch.setattr(compiling.background, "submit", lambda build: None)
        kernel = NumbaBackend().claim(node_of("np.searchsorted(_0, _1)", xs, x), 1)
        out = np.zeros(x.shape, np.int64)
        kernel.call(out, xs, x)
        assert kernel.late.interpreted == 1
        assert bits(out) == bits(np.searchsorted(xs, x))
