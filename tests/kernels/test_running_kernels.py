"""Running sums, products and extremes, and places of extremes: NumPy's bits along every axis."""

import numpy as np
import pytest
from compare import bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, compiler, nearest, past, running
from futurex.tree import Aval, apply, param

SHAPES = [((40, 700), 1), ((43, 701), 1), ((40, 700), 0), ((19, 1100), 0), ((3, 70, 130), 1), ((9, 17, 190), 2),
          ((4, 5000), 0), ((600, 33), 0)]  # fmt: skip

pytestmark = pytest.mark.usefixtures("compiled_at_once")


def draw(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype.kind == "u":
        return rng.integers(0, 2**64 - 1, shape, dtype)
    if dtype.kind == "i":
        return rng.integers(-6, 7, shape).astype(dtype)
    x = rng.integers(-6, 7, shape).astype(dtype) / 3  # equal extremes, zeros
    x[x == 0] = -0.0
    flat = x.reshape(-1)
    flat[::5] *= 0
    flat[:: flat.size // 7] = np.nan
    flat[3 :: flat.size // 5] = np.inf
    flat[4 :: flat.size // 5] = -np.inf
    flat[11] = 1e-310 if dtype.itemsize == 8 else 1e-42
    return x


def run(node, threads, *inputs):
    kernel = NumbaBackend().claim(node, threads)
    assert kernel is not None
    out = np.full(node.shape, 77, node.dtype)
    with np.errstate(all="ignore"):
        kernel.call(out, *inputs)
    assert kernel.late.interpreted == 0
    return out


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name, shape, axis, dtype, threads):
    x = draw(shape, np.dtype(dtype))
    for keepdims in (False, True):
        node = apply(name, param(Aval(shape, x.dtype)), axis=axis, keepdims=keepdims)
        assert bits(run(node, threads, x)) == bits(getattr(np, name)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_running_sums_and_products(shape, axis, dtype, threads, wide, monkeypatch):
    monkeypatch.setattr(compiler, "has_scale", lambda: wide)
    x = draw(shape, np.dtype(dtype))
    source = param(Aval(shape, x.dtype))
    with np.errstate(all="ignore"):
        found = run(apply("cumsum", source, axis=axis, dtype=None), threads, x)
        assert bits(found) == bits(np.cumsum(x, axis=axis))
        for ufunc in (np.add, np.multiply):
            node = apply("accumulate", source, ufunc=ufunc.__name__, axis=axis, dtype=None, out=None)
            assert bits(run(node, threads, x)) == bits(ufunc.accumulate(x, axis=axis))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("shape", [(64, 1024), (37, 1000), (16, 1027), (9, 4096), (8, 63), (300, 64)], ids=str)
def test_totals_of_rows_that_go_past_the_caches(shape, dtype, small, monkeypatch):
    monkeypatch.setattr(nearest, "small", lambda: small)
    monkeypatch.setattr(past, "outgrows", lambda results, operands: True)
    monkeypatch.setattr(running, "FEWEST_ELEMENTS", 0)
    x = draw(shape, np.dtype(dtype))
    with np.errstate(all="ignore"):
        for ufunc in (np.add, np.multiply):
            node = apply("accumulate", param(Aval(shape, x.dtype)), ufunc=ufunc.__name__, axis=1, dtype=None, out=None)
            for threads in (1, 2):
                assert bits(run(node, threads, x)) == bits(ufunc.accumulate(x, axis=1))


def test_what_goes_past_the_caches_is_said_in_the_code(monkeypatch):
    node = apply("cumsum", param(Aval((4096, 1024), np.dtype("f4"))), axis=1, dtype=None)
    for outgrown in (False, True):
        monkeypatch.setattr(past, "outgrows", lambda results, operands, outgrown=outgrown: outgrown)
        assert ("!nontemporal" in running.claim(node, 2).text) == outgrown


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u8"])
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((20_011,), 0), ((3000, 7), 1), ((2, 8200), 1)], ids=str)
@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_running_extremes(ufunc, shape, axis, dtype, threads):
    x = draw(shape, np.dtype(dtype))
    node = apply("accumulate", param(Aval(shape, x.dtype)), ufunc=ufunc.__name__, axis=axis, dtype=None, out=None)
    assert bits(run(node, threads, x)) == bits(ufunc.accumulate(x, axis=axis))


@given(
    rows=st.integers(1, 30), axis=st.sampled_from([0, 1]), seed=st.integers(0, 999), inner=st.integers(8, 90),
    dtype=st.sampled_from(["f4", "f8", "i4", "i8", "u8"]), ufunc=st.sampled_from([np.maximum, np.minimum]),
    wider=st.booleans(), kind=st.sampled_from(["zeros", "NaN", "infinite", "all"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_of_equal_extremes_and_the_first_that_is_no_number(rows, axis, seed, inner, dtype, ufunc, wider, kind):
    """Zeros of both signs are equal, and what is no number comes in several."""
    shape = (rows, 16384 // rows + inner) if axis else (16384 // inner + rows, inner)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3 if kind == "zeros" else 2**31, shape).astype(dtype)
    if dtype[0] == "f":
        x *= rng.choice([-1, 1], shape)
        values = {"NaN": [np.nan, -np.nan], "infinite": [np.inf, -np.inf], "all": [np.inf, -np.inf, np.nan, -0.0]}
        odd = rng.random(shape) < 3 / shape[axis]
        x[odd] = rng.choice(values.get(kind, [0.0, -0.0]), odd.sum())
    elif kind == "infinite":
        x[rng.random(shape) < 0.1] = rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max])
    dtype = np.dtype(f"{dtype[0]}8") if wider else None
    node = apply("accumulate", param(Aval(shape, x.dtype)), ufunc=ufunc.__name__, axis=axis, dtype=dtype, out=None)
    assert bits(run(node, 2, x)) == bits(ufunc.accumulate(x, axis=axis, dtype=dtype))


@given(
    data=st.data(), outer=st.integers(1, 20), inner=st.sampled_from([1, 1, 3, 17, 70]),
    source=st.sampled_from(["?", "i1", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]), threads=st.sampled_from([1, 2]),
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_totals_of_any_dtype_and_of_one_long_row(data, outer, inner, source, threads):
    """In another dtype than the operand's, too; what no kernel takes is none of those that are named below."""
    count = 16384 // (outer * inner) + data.draw(st.integers(1, 90), "more")
    default = np.cumsum(np.ones(1, source)).dtype
    dtype = data.draw(st.sampled_from([None, f"{default.kind}8"]), "dtype")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    x = (rng.normal(size=(outer, count, inner)) * 100).astype(source)
    node = apply("cumsum", param(Aval(x.shape, x.dtype)), axis=1, dtype=None if dtype is None else np.dtype(dtype))
    kernel = NumbaBackend().claim(node, threads)
    assert (kernel is not None) == (inner == 1 or outer * inner >= 8)
    if kernel is not None:
        assert bits(run(node, threads, x)) == bits(np.cumsum(x, axis=1, dtype=dtype))


@given(
    rows=st.integers(12, 16), threads=st.sampled_from([1, 2]),
    count=st.one_of(st.integers(1400, 1600), st.integers(4090, 4100), st.integers(8185, 9000)),
    dtype=st.sampled_from(["f4", "f8", "i4", "i8"]), name=st.sampled_from(["argmax", "argmin"]),
    kind=st.sampled_from(["few values", "falling", "NaN", "all infinite", "late"]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_places_in_rows_of_several_blocks(rows, count, dtype, name, seed, kind, threads):
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (rows, count)).astype(dtype)
    if kind == "falling":
        x = np.sort(rng.permutation(rows * count).reshape(rows, count).astype(dtype), axis=1)[:, ::-1].copy()
    elif kind == "late":
        x[:, -1] = 9 if name == "argmax" else -9
    elif dtype[0] == "f":
        x[rng.integers(0, rows, 6), rng.integers(0, count, 6)] = np.nan if kind == "NaN" else 0
        if kind == "all infinite":
            x[:] = -np.inf if name == "argmax" else np.inf
    else:
        x[:] = np.iinfo(dtype).min if name == "argmax" else np.iinfo(dtype).max
    node = apply(name, param(Aval(x.shape, x.dtype)), axis=1, keepdims=False)
    assert bits(run(node, threads, x)) == bits(getattr(np, name)(x, axis=1))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_in_short_rows(name, dtype, wide, monkeypatch):
    """With rows of one value, of the worst one and of what is no number; a row is a lane where there is AVX-512."""
    if wide and not compiler.has_scale():
        pytest.skip("rows are lanes with AVX-512")
    monkeypatch.setattr(compiler, "has_scale", lambda: wide)
    for count in (2, 3, 7, 8, 10, 15, 16, 17, 20, 31, 33, 50, 63, 64, 65, 100, 4095, 4097):
        rows = 16384 // count + 9
        rng = np.random.default_rng(count)
        x = rng.integers(-9, 9, (rows, count)).astype(dtype)
        worst = (np.iinfo if dtype[0] == "i" else np.finfo)(dtype)
        x[1], x[2] = worst.min, worst.max
        if dtype[0] == "f":
            x[rng.random(x.shape) < 0.01] = np.nan
            x[3], x[-1], x[-2], x[0] = -np.inf, np.inf, np.nan, -0.0
        node = apply(name, param(Aval(x.shape, x.dtype)), axis=1, keepdims=False)
        if not wide and count * x.itemsize < 64:
            assert NumbaBackend().claim(node, 2) is None
            continue
        for threads in (1, 2):
            assert bits(run(node, threads, x)) == bits(getattr(np, name)(x, axis=1)), (count, threads)


@pytest.mark.parametrize(("shape", "axis", "dtype", "attrs"), [
    ((40, 40), 1, "f4", {}), ((7, 4000), 0, "f4", {"dtype": np.dtype("f2")}), ((40, 700), 1, "c8", {}),
    ((40, 700), 1, "f8", {"dtype": np.dtype("f4")}), ((40, 700), 1, "i8", {"dtype": np.dtype("f8")}),
    ((40, 700), 1, "i8", {"dtype": np.dtype("i4")}), ((1, 10000, 4), 1, "f4", {}),
], ids=str)  # fmt: skip
def test_what_stays_with_numpy(shape, axis, dtype, attrs):
    node = apply("cumsum", param(Aval(shape, np.dtype(dtype))), axis=axis, **{"dtype": None, **attrs})
    assert NumbaBackend().claim(node, 1) is None


@pytest.mark.parametrize("attrs", [
    {"dtype": np.dtype("f8"), "out": np.dtype("f4")}, {"dtype": np.dtype("i8")},
], ids=str)  # fmt: skip
def test_totals_kept_in_another_dtype_stay_with_numpy(attrs):
    kept = {"ufunc": "add", "axis": 1, "dtype": None, "out": None, **attrs}
    assert NumbaBackend().claim(apply("accumulate", param(Aval((40, 700), np.dtype("f4"))), **kept), 1) is None


def test_in_a_function():
    @fx.futurize
    def f(x):
        extremes = np.maximum.accumulate(x, axis=1), np.minimum.accumulate(x)
        return np.cumsum(x, axis=1), np.cumprod(x, axis=0), x.argmax(axis=1), np.argmin(x, axis=0), *extremes

    x = draw((50, 800), np.dtype("f4"), 5)
    with np.errstate(all="ignore"):
        assert bits([np.asarray(each) for each in f(x)]) == bits(list(f.plain(x)))
        turned = np.asfortranarray(x)
        assert bits([np.asarray(each) for each in f(turned)]) == bits(list(f.plain(turned)))
