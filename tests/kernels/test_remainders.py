"""``%``, ``//`` and ``fmod`` of floats in generated code: NumPy's bits, and the exact remainder."""

import fractions
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, compiler
from futurex.ops.fusion import REMAINDERS
from futurex.passes.fuse import FEWEST_ELEMENTS, fuse
from futurex.tree import Aval, Graph, apply, param

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.filterwarnings("ignore::RuntimeWarning")]
NAMES = sorted(REMAINDERS)
DTYPES = [np.dtype(code) for code in "efd"]
N = 1 << 17


def region(name, *avals):
    params = [param(aval) for aval in avals]
    graph = Graph(params, [apply(name, *params)], "region")
    return NumbaBackend().claim(apply("fused", *map(param, avals), graph=graph), 1)


def compute(name, x, y):
    return region(name, Aval(x.shape, x.dtype), Aval(y.shape, y.dtype)).call(np.full(x.shape, 77, x.dtype), x, y)


def equal_bits(actual, expected):
    assert actual.dtype == expected.dtype
    word = f"u{actual.dtype.itemsize}"
    return (actual.view(word) == expected.view(word)) | (np.isnan(actual) & np.isnan(expected))


def pairs(dtype, rng):
    """Operands of all kinds: any bits, quotients of every size, quotients beside integers, and few digits."""
    limits = np.finfo(dtype)

    def bits():
        return rng.integers(0, 256, N * dtype.itemsize, dtype=np.uint8).view(dtype)

    def near():
        return (rng.normal(size=N) * 10).astype(dtype)

    ends = np.array(
        [0, 1, 3, 7, 0.5, 2 * np.pi, np.inf, np.nan, limits.tiny, limits.smallest_subnormal, limits.max, limits.eps,
         1 + limits.eps, 1 - limits.epsneg], dtype,
    )  # fmt: skip
    ends = np.concatenate([ends, -ends])
    yield tuple(each.ravel().copy() for each in np.meshgrid(ends, ends))
    yield bits(), bits()
    yield near(), near()
    yield bits(), near()
    y = near()
    top = 9 if dtype.itemsize == 2 else limits.nmant + 3
    multiple = (y.astype("f8") * rng.integers(-(2**top), 2**top, N)).astype(dtype)
    yield multiple, y
    yield np.nextafter(multiple, rng.choice(np.array([-np.inf, np.inf], dtype), N)), y
    wide = 12 if dtype.itemsize == 2 else 90
    yield (near() * np.exp2(rng.integers(-wide // 2, wide, N))).astype(dtype), y
    yield rng.integers(-300, 300, N).astype(dtype), rng.integers(-30, 30, N).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_are_numpys(name, dtype):
    rng = np.random.default_rng(0)
    for x, y in pairs(dtype, rng):
        actual, expected = compute(name, x, y), getattr(np, name)(x, y)
        for k in np.flatnonzero(~equal_bits(actual, expected))[:1]:
            raise AssertionError(f"{name}({x[k]!r}, {y[k]!r}) is {expected[k]!r}, not {actual[k]!r}")


@settings(max_examples=200, deadline=None)
@given(x=st.floats(), y=st.floats(), where=st.integers(0, 36))
def test_one_odd_element_among_others(x, y, where):
    """Its place in the vector does not matter, and the others are what they were."""
    xs, ys = np.linspace(-20, 20, 37), np.full(37, 0.7)
    xs[where], ys[where] = x, y
    for name in NAMES:
        assert equal_bits(compute(name, xs, ys), getattr(np, name)(xs, ys)).all(), name


@settings(max_examples=200, deadline=None)
@given(
    x=st.floats(allow_nan=False, allow_infinity=False), y=st.floats(allow_nan=False, allow_infinity=False).filter(bool)
)
def test_the_remainder_is_exact(x, y):
    xs, ys = np.full(5, x), np.full(5, y)
    assert compute("fmod", xs, ys)[3] == math.fmod(x, y)
    exact = fractions.Fraction(x) % fractions.Fraction(y)
    assert compute("remainder", xs, ys)[3] == float(exact)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 31, 32, 33, 100])
@pytest.mark.parametrize("code", "fd")
def test_a_divisor_that_is_one_number(width, code):
    x = (np.random.default_rng(1).normal(size=width) * 100).astype(code)
    for name in NAMES:
        kernel = region(name, Aval(x.shape, x.dtype), Aval((), x.dtype))
        if kernel is None:
            continue
        expected = getattr(np, name)(x, x.dtype.type(2 * np.pi))
        assert equal_bits(kernel.call(np.empty_like(x), x, x.dtype.type(2 * np.pi)), expected).all()


@pytest.mark.parametrize("code", "ilILbB")
def test_fmod_of_integers_has_the_sign_of_the_dividend(code):
    limits, rng = np.iinfo(code), np.random.default_rng(2)
    x = rng.integers(limits.min, limits.max, 1000, dtype=code, endpoint=True)
    y = rng.integers(max(-9, limits.min), 9, 1000).astype(code)
    x[:4] = limits.min
    assert (compute("fmod", x, y) == np.fmod(x, y)).all()


@pytest.mark.parametrize("code", "fd")
def test_loops_take_whole_vectors_and_one_branch(code):
    if not compiler.has_scale():
        pytest.skip("the processor has no AVX-512")
    aval = Aval((5000,), np.dtype(code))
    machine, module = compiler.optimised(region("remainder", aval, aval).call.text)
    text = machine.emit_assembly(module)
    assert re.search(rf"vdivp{'s' if code == 'f' else 'd'}.*%zmm", text)
    assert not re.search(rf"call\w*\s+.*fx_rest_\w+_{16 if code == 'f' else 8}\b", text)


def test_a_lone_remainder_is_a_region():
    """NumPy takes as long for one element as a kernel does for a vector."""
    for size, expected in ((FEWEST_ELEMENTS, "fused"), (FEWEST_ELEMENTS - 1, "remainder")):
        x = param(Aval((size,), np.dtype("f4")))
        graph = fuse(Graph([x], [apply("remainder", x, 0.7)]))
        assert [node.op for node in graph.nodes if node.inputs] == [expected]


@pytest.mark.parametrize("code", "efd")
def test_divmod_is_taken_apart(code, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    x = (np.random.default_rng(5).normal(size=(40, 50)) * 9).astype(code)
    x[0, :4] = np.inf, np.nan, -0.0, 0.0
    staged = fx.futurize(lambda x: divmod(x, 0.7))
    for actual, expected in zip(staged(x), divmod(x, 0.7), strict=True):
        assert equal_bits(np.asarray(actual), expected).all()
    assert "divmod" not in {each.node.op for each in staged.trace(x).plan.instructions}


def in_a_loop(x, y):
    total = x % y
    for k in range(1, 40):
        total = total + (x * k) % y + (x // (y * k)) + np.fmod(x, y * k)
    return total


def numbers_in_a_loop(x, y):
    a, b = 0.0, 0.0
    for k in range(len(x)):
        a += float(x[k]) % float(y[k])
        b += float(x[k]) // float(y[k])
    return a, b


@pytest.mark.parametrize("function", [in_a_loop, numbers_in_a_loop])
def test_compiled_loops_agree(function):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=300) * 1e3, rng.normal(size=300)
    futurized, expected = fx.futurize(function), function(x, y)
    for _ in range(3):
        assert np.array_equal(np.asarray(futurized(x, y)), np.asarray(expected))
