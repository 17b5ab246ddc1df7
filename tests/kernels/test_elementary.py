"""Exponentials, logarithms and trigonometric functions of compiled regions are within 2.5 units in the last place.

The reference is NumPy's ``longdouble``, whose 64 bits leave 11 for the error of a double.
"""

import itertools
import math

import llvmlite.binding as llvm
import numpy as np
import pytest

from futurex.kernels.numba_ import NumbaBackend, compiler, real
from futurex.kernels.numba_.functions import FUNCTIONS, GUARDED
from futurex.ops.fusion import APPROXIMATE, OF_COMPLEX, OF_TWO, loop_of
from futurex.tree import Aval, Graph, apply, param

BOUND = 2.5
N = 1 << 16
DTYPES = [np.dtype("f4"), np.dtype("f8")]
LARGEST = {4: 1e5, 8: 1e9}  # what formulas of sin, cos and tan hold for
pytestmark = [
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="longdouble is no wider than double here"),
    pytest.mark.usefixtures("own_cache"),
]


def node_of(name, x):
    return apply("ufunc_call", x, ufunc=f"scipy.special.{name}") if name in ("expit", "erf") else apply(name, x)


def compute(name, values):
    x = param(Aval(values.shape, values.dtype))
    graph = Graph([x], [node_of(name, x)], "region")
    kernel = NumbaBackend().claim(apply("fused", param(x.aval), graph=graph), 1)
    assert kernel is not None
    return kernel.call(np.full(values.shape, 77, graph.outs[0].dtype), values)


def true_values(name, values):
    if name == "erf":
        return error_function(values)
    wide = values.astype(np.longdouble)
    with np.errstate(all="ignore"):
        return 1 / (1 + np.exp(-wide)) if name == "expit" else getattr(np, name)(wide)


def error_function(values):
    """By a series of positive terms up to 3.5 and, above, the continued fraction of what is left of one."""
    x = np.abs(values.astype(np.longdouble))
    near, term = x.copy(), x.copy()
    with np.errstate(all="ignore"):
        for n in range(1, 120):
            term = np.where(x < 3.5, term * (2 * x * x) / (2 * n + 1), 0)
            near = near + term
        rest = np.zeros_like(x)
        for n in range(120, 0, -1):
            rest = (np.longdouble(n) / 2) / (x + rest)
        root = np.sqrt(4 * np.arctan(np.longdouble(1)))
        far = 1 - np.exp(-x * x) / ((x + rest) * root)
    found = np.where(x < 3.5, near * 2 * np.exp(-x * x) / root, np.where(np.isinf(x), 1, far))
    return np.copysign(found, values.astype(np.longdouble))


def units(actual, true):
    """Distance in units in the last place of ``actual``'s type; infinite where one alone is NaN or infinite."""
    limits = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = true.astype(actual.dtype)
        exponent = np.floor(np.log2(np.maximum(np.abs(true), np.longdouble(limits.smallest_normal))))
        distance = np.abs(actual.astype(np.longdouble) - true) / np.exp2(exponent - limits.nmant)
    same = (np.isnan(actual) & np.isnan(rounded)) | (actual == rounded)
    odd = ~np.isfinite(actual) | ~np.isfinite(rounded)
    return np.where(odd, np.where(same, 0, np.inf), distance)


def everywhere(dtype, rng):
    """Every binade, signs and specials; the ranges in which the functions do most of their work."""
    every = rng.integers(0, 2 ** (8 * dtype.itemsize), N // 2, dtype=f"u{dtype.itemsize}").view(dtype)
    near = [rng.uniform(-1.5, 1.5, N // 8), rng.uniform(-100, 100, N // 8), rng.normal(size=N // 8) * 300]
    around = 1 + rng.normal(size=N // 8) * 0.05
    return np.concatenate([every, *(part.astype(dtype) for part in (*near, around))])


def specials(dtype):
    limits = np.finfo(dtype)
    ends = [limits.max, limits.tiny, limits.smallest_subnormal, limits.eps, 1.0, 0.625, math.inf, 0.0]
    edges = [88.72283, 88.72284, 89.41, 89.42, 103.97, 103.98, 709.78, 709.79, 710.47, 710.48, 745.13, 745.14]
    return np.array([sign * each for each in (*ends, *edges) for sign in (1, -1)] + [math.nan], dtype)


def test_every_function_that_may_be_in_a_region_can_be_generated():
    assert set(FUNCTIONS) == APPROXIMATE | OF_TWO | OF_COMPLEX
    assert GUARDED < APPROXIMATE | OF_COMPLEX


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(APPROXIMATE))
def test_error_bound(name, dtype):
    values = np.concatenate([specials(dtype), everywhere(dtype, np.random.default_rng(3))])
    if name in GUARDED:
        largest = LARGEST[dtype.itemsize]
        values = np.where(np.abs(values) > largest, np.sign(values) * np.abs(values) % largest, values).astype(dtype)
        values = values[np.isfinite(values)]
    actual, true = compute(name, values), true_values(name, values)
    distance = units(actual, true)
    worst = int(np.argmax(distance))
    assert distance[worst] <= BOUND, (values[worst], actual[worst], true[worst])
    zero = true == 0
    assert np.array_equal(np.signbit(actual[zero]), np.signbit(true[zero]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_error_bound_of_the_logistic_function(dtype):
    """Below zero, where an exponential, which was rounded, is rounded twice more, and each time counts double."""
    values = np.linspace(-9, 0, 300_000).astype(dtype)
    assert units(compute("expit", values), true_values("expit", values)).max() <= BOUND


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_of_tanh_meet(dtype):
    """With AVX-512 single precision has a polynomial for each of 32 parts, none of which leads beyond one."""
    values = np.linspace(0, 10, 200_001).astype(dtype)
    actual = compute("tanh", values)
    assert units(actual, true_values("tanh", values)).max() <= BOUND
    assert np.array_equal(compute("tanh", -values), -actual)
    assert actual.max() <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_error_bound_of_the_sum_of_exponentials(name, dtype):
    """In units of the larger of result and operands: where the result is near zero NumPy's formula cancels, too."""
    rng = np.random.default_rng(5)
    x, y = (np.concatenate([np.repeat(specials(dtype), 8), everywhere(dtype, rng)]) for _ in range(2))
    rng.shuffle(x)
    y = np.where(rng.random(y.size) < 0.5, y, x + rng.normal(size=x.size) * 10).astype(dtype)
    a, b = (param(Aval(x.shape, dtype), name) for name in "ab")
    graph = Graph([a, b], [apply(name, a, b)], "region")
    kernel = NumbaBackend().claim(apply("fused", a, b, graph=graph), 1)
    actual = kernel.call(np.full(x.shape, 77, dtype), x, y)
    true = getattr(np, name)(*(np.longdouble(v) for v in (x, y)))
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(true), np.maximum(np.abs(x), np.abs(y)))
        distance = np.abs(actual - true) / (np.finfo(dtype).eps * scale)
    same = (np.isnan(actual) & np.isnan(true)) | (actual == true.astype(dtype))
    assert np.where(same, 0, np.where(np.isfinite(distance), distance, np.inf)).max() <= BOUND


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_error_bound_of_angles(dtype):
    rng = np.random.default_rng(6)
    few = np.array([0.0, 1.0, 2.5, np.inf, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal, np.nan], dtype)
    few = np.concatenate([few, -few])
    pairs = np.stack(np.meshgrid(few, few)).reshape(2, -1)
    near = rng.normal(size=(2, N)).astype(dtype)
    y, x = np.concatenate([pairs, near, [everywhere(dtype, rng), everywhere(dtype, rng)[::-1]]], axis=1)
    a, b = (param(Aval(x.shape, dtype), name) for name in "ab")
    graph = Graph([a, b], [apply("arctan2", a, b)], "region")
    kernel = NumbaBackend().claim(apply("fused", a, b, graph=graph), 1)
    actual = kernel.call(np.full(x.shape, 77, dtype), y, x)
    true = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    distance = units(actual, true)
    worst = int(np.argmax(distance))
    assert distance[worst] <= BOUND, (y[worst], x[worst], actual[worst], true[worst])
    zero = true == 0
    assert np.array_equal(np.signbit(actual[zero]), np.signbit(true[zero]))


def compute_pairs(name, x, y):
    """``y``: an array, or a number that is known when the kernel is made."""
    known = not isinstance(y, np.ndarray)
    params = [param(Aval(each.shape, each.dtype)) for each in ((x,) if known else (x, y))]
    graph = Graph(params, [apply(name, params[0], y if known else params[1])], "region")
    kernel = NumbaBackend().claim(apply("fused", *map(param, (each.aval for each in params)), graph=graph), 1)
    assert kernel is not None
    return kernel.call(np.full(x.shape, 77, graph.outs[0].dtype), *((x,) if known else (x, y)))


def pairs_of(dtype, rng):
    """All pairs of special values, of bit patterns, and those whose power is within the range of numbers."""
    few = np.concatenate([specials(dtype), np.array([2, 3, -3, 2.5, -2.5, 4, -7, 1e30, -1e30, 0.1, -0.1], dtype)])
    pairs = np.stack(np.meshgrid(few, few)).reshape(2, -1)
    every = np.stack([everywhere(dtype, rng), everywhere(dtype, rng)[::-1]])
    high = 88 if dtype.itemsize == 4 else 709
    wide = np.exp(rng.uniform(-high, high, N)).astype(dtype)
    near = (1 + rng.normal(size=N) * 1e-3).astype(dtype)
    inside = [np.stack([x, (high / np.log(np.float64(x)) * rng.uniform(-1.08, 1.02, N)).astype(dtype)])
              for x in (wide, near)]  # fmt: skip
    whole = np.stack([-np.exp(rng.normal(size=N)), rng.integers(-30, 30, N)]).astype(dtype)
    return np.concatenate([pairs, every, *inside, whole], axis=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "dtype"), [*itertools.product(["power", "hypot"], DTYPES), ("float_power", np.dtype("f8"))], ids=str
)
def test_error_bound_of_powers(name, dtype):
    x, y = np.ascontiguousarray(pairs_of(dtype, np.random.default_rng(8)))
    actual, true = compute_pairs(name, x, y), getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
    distance = units(actual, true)
    worst = int(np.argmax(distance))
    assert distance[worst] <= BOUND, (x[worst], y[worst], actual[worst], true[worst])
    if dtype.itemsize == 4:  # which is computed in double
        assert distance[worst] <= 0.75
    own = getattr(np, name)(x, y)
    assert np.array_equal(np.isnan(actual), np.isnan(own))
    assert np.array_equal(np.signbit(actual[~np.isnan(own)]), np.signbit(own[~np.isnan(own)]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_powers_that_are_numbers_are_met(dtype):
    bases, exponents = map(np.ravel, np.meshgrid(np.arange(-40.0, 41.0), np.arange(0.0, 40.0)))
    true = [int(x) ** int(y) for x, y in zip(bases, exponents, strict=True)]
    exact = np.array([int(dtype.type(each)) == each if abs(each) < 1 << 100 else False for each in true])
    assert exact.sum() > 300
    actual = compute_pairs("power", bases.astype(dtype), exponents.astype(dtype))
    assert [int(each) for each in actual[exact]] == [each for each, met in zip(true, exact, strict=True) if met]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("exponent", [-3.0, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 5, math.inf, math.nan])
def test_a_single_exponent(exponent, dtype):
    """Known before or in the run: exact where NumPy has another way than by logarithms."""
    x = np.concatenate([specials(dtype), everywhere(dtype, np.random.default_rng(9))])
    own = np.power(x, dtype.type(exponent))
    true = np.power(x.astype(np.longdouble), np.longdouble(exponent))
    for actual in (compute_pairs("power", x, exponent), compute_pairs("power", x, np.array(exponent, dtype))):
        if exponent in (-1, 0, 0.5, 1, 2):
            assert np.array_equal(actual, own, equal_nan=True)
        else:
            assert units(actual, true).max() <= BOUND
        assert np.array_equal(np.signbit(actual[~np.isnan(own)]), np.signbit(own[~np.isnan(own)]))


@pytest.mark.parametrize("code", "bhilBHIL")
def test_powers_of_integers_wrap_as_numpys(code):
    dtype = np.dtype(code)
    x = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 500, dtype=dtype)
    for exponent in (0, 1, 2, 3, 7, 10, 100):
        assert np.array_equal(compute_pairs("power", x, exponent), np.power(x, exponent))
    a = param(Aval(x.shape, dtype))
    for exponent in (param(a.aval), param(Aval((), np.dtype(int), weak=True)), -1):
        if not (dtype.kind == "u" and exponent == -1):  # which does not fit
            assert loop_of(apply("power", a, exponent)) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(GUARDED - OF_COMPLEX))
def test_arguments_beyond_the_bound_are_the_librarys(name):
    rng = np.random.default_rng(8)
    for dtype in DTYPES:
        values = np.linspace(-2 * LARGEST[dtype.itemsize], LARGEST[dtype.itemsize], 1000).astype(dtype)
        assert units(compute(name, values), true_values(name, values)).max() <= BOUND
        values = (10.0 ** rng.uniform(0, 37, 3000) * rng.choice([-1, 1], 3000)).astype(dtype)
        assert units(compute(name, values), true_values(name, values)).max() <= BOUND
        values = np.linspace(-1, 0.5, 1000).astype(dtype) * LARGEST[dtype.itemsize]
        values[:3] = np.inf, -np.inf, np.nan
        assert np.isnan(compute(name, values)[:3]).all()


@pytest.mark.filterwarnings("ignore")
def test_error_bound_on_a_processor_with_shorter_vectors(monkeypatch, tmp_path):
    """The same text, compiled for AVX2."""
    if "+fma" not in compiler.features() or not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("the processor has no AVX2")
    target = compiler._target()
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "_entries", {})
    monkeypatch.setattr(compiler, "_machine", lambda: target.create_target_machine(cpu="haswell", opt=3, jit=True))
    monkeypatch.setattr(real, "has_scale", lambda: False)
    rng = np.random.default_rng(4)
    for name in sorted(APPROXIMATE):
        for dtype in DTYPES:
            values = np.concatenate([rng.uniform(-80, 80, 1000).astype(dtype), specials(dtype)])
            values = values[np.abs(values) < LARGEST[4]] if name in GUARDED else values
            assert units(compute(name, values), true_values(name, values)).max() <= BOUND, name
    for dtype in DTYPES:
        x, y = np.ascontiguousarray(pairs_of(dtype, rng)[:, ::7])
        for name in ("power", "hypot"):
            true = getattr(np, name)(x.astype(np.longdouble), y.astype(np.longdouble))
            assert units(compute_pairs(name, x, y), true).max() <= BOUND, name


@pytest.mark.skipif(not compiler.has_half(), reason="the processor converts no halves")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(APPROXIMATE - {"expit", "erf"}))
def test_halves_are_single_precision_rounded(name):
    """All of them: no further from the true value than half a unit, and what single precision is off."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    actual, true = compute(name, values), true_values(name, values)
    assert units(actual, true).max() <= 0.501
    zero = true == 0
    assert np.array_equal(np.signbit(actual[zero]), np.signbit(true[zero]))


def test_other_types_are_left_to_numpy():
    for dtype in ("c16", "g", ">f8", ">i4"):
        x = param(Aval((300,), np.dtype(dtype)))
        assert loop_of(apply("log1p", x)) is None


def integers(kind, rng):
    """Of all sizes, and small ones."""
    if kind == "?":
        return rng.random(400) > 0.5
    limits = np.iinfo(kind)
    every = rng.integers(limits.min, limits.max, 200, dtype=kind, endpoint=True)
    return np.concatenate([every, rng.integers(0, 20, 200).astype(kind)])


@pytest.mark.skipif(not compiler.has_half(), reason="the processor converts no halves")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(APPROXIMATE))
def test_functions_of_integers_are_those_of_the_floats_they_become(name):
    rng = np.random.default_rng(5)
    for kind in "?bBhHiIlLqQ":
        values = integers(kind, rng)
        dtype = node_of(name, param(Aval((1,), values.dtype))).dtype
        assert dtype.kind == "f"
        assert compute(name, values).tobytes() == compute(name, values.astype(dtype)).tobytes()


@pytest.mark.skipif(not compiler.has_half(), reason="the processor converts no halves")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(OF_TWO))
def test_pairs_are_converted_to_the_format_of_the_result(name):
    rng = np.random.default_rng(6)
    for kinds in ("id", "di", "fi", "fh", "Hf", "ef", "ee", "BB", "eb", "?d", "LL"):
        pair = [integers(kind, rng) if kind not in "efd" else rng.normal(size=400).astype(kind) for kind in kinds]
        dtype = getattr(np, name)(*pair).dtype
        if dtype.kind == "f":
            found = compute_pairs(name, *pair)
            wide = compute_pairs(name, *(each.astype(np.float32 if dtype == np.float16 else dtype) for each in pair))
            assert found.dtype == dtype
            assert found.tobytes() == wide.astype(dtype).tobytes()


def test_no_region_without_fused_multiply_add(monkeypatch):
    monkeypatch.setattr(compiler, "has_fma", lambda: False)
    x = param(Aval((300,), np.dtype("f4")))
    for name, claimed in (("exp", False), ("sqrt", True)):
        graph = Graph([x], [apply(name, x)], "region")
        assert (NumbaBackend().claim(apply("fused", param(x.aval), graph=graph), 1) is not None) == claimed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(GUARDED - OF_COMPLEX))
def test_an_element_is_the_same_whatever_stands_beside_it(name):
    """A large argument in one thread's part changes no bit of the others."""
    for dtype in DTYPES:
        values = np.random.default_rng(3).uniform(-50, 50, 4000).astype(dtype)
        alone = compute(name, values)
        values[1234] = 1e15
        beside = compute(name, values)
        assert units(beside[1234:1235], true_values(name, values[1234:1235])).max() <= BOUND
        beside[1234] = alone[1234]
        assert beside.tobytes() == alone.tobytes()
