"""Half precision in compiled regions: every operation has NumPy's bits."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, compiler
from futurex.ops.precision import STORAGE
from futurex.tree import Aval, Graph, apply, param, record

HALF = np.dtype("f2")
EVERY = np.arange(1 << 16, dtype=np.uint16).view(HALF)
UNARY = ["negative", "positive", "absolute", "sign", "sqrt", "square", "reciprocal", "floor", "ceil", "trunc", "rint",
         "isnan", "isinf", "isfinite", "logical_not"]  # fmt: skip
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal", "less", "less_equal",
          "greater", "greater_equal", "logical_and", "logical_or", "logical_xor"]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(not compiler.has_half(), reason="the processor does not convert half precision"),
    pytest.mark.filterwarnings("ignore"),
]


def computed(graph, *arrays):
    """The graph as one kernel."""
    kernel = NumbaBackend().claim(apply("fused", *(param(each.aval) for each in graph.params), graph=graph), 1)
    assert kernel is not None
    outs = tuple(np.ones(out.shape, out.dtype) for out in graph.outs)
    kernel.call(outs if len(outs) > 1 else outs[0], *arrays)
    assert kernel.late.interpreted == 0
    return outs


def same_bits(found, expected):
    assert found.dtype == expected.dtype
    nan = np.isnan(expected) if expected.dtype.kind == "f" else np.zeros(expected.shape, bool)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[~nan]) if expected.dtype.kind == "f" else 0,
                                  np.signbit(expected[~nan]) if expected.dtype.kind == "f" else 0)  # fmt: skip


def test_operations_of_every_number():
    x = param(Aval(EVERY.shape, HALF))
    graph = Graph([x], [apply(name, x) for name in UNARY])
    for name, found in zip(UNARY, computed(graph, EVERY), strict=True):
        same_bits(found, getattr(np, name)(EVERY))


@pytest.mark.parametrize("to", STORAGE)
def test_formats_of_fewer_bits(to):
    """Rounded to the nearest, ties to even: numbers in the middle of two, all of a format, and any bits."""
    rng = np.random.default_rng(0)
    bits = np.concatenate([np.arange(1 << 16, dtype=np.uint32) << 16, rng.integers(0, 2**32, 1 << 16, dtype=np.uint32)])
    bits = np.concatenate([bits, bits | np.uint32(0x8000), bits & np.uint32(0xFFFFF000), bits | np.uint32(0x1000)])
    x = bits.view(np.float32)
    narrow = record("narrow")(x, to=to)
    p, q = param(Aval(x.shape, x.dtype)), param(Aval(x.shape, narrow.dtype))
    graph = Graph([p, q], [apply("narrow", p, to=to), apply("widen", q, to=to), apply("widen", q, to=to) + p])
    found, wide, total = computed(graph, x, narrow)
    same_bits(found, narrow) if to != "bfloat16" else np.testing.assert_array_equal(found, narrow)
    same_bits(wide, record("widen")(narrow, to=to))
    same_bits(total, record("widen")(narrow, to=to) + x)


def test_operations_of_pairs():
    rng = np.random.default_rng(0)
    zeros = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], HALF)
    pairs = np.stack(np.meshgrid(zeros, zeros)).reshape(2, -1)
    a, b = np.concatenate([pairs, rng.permutation(EVERY)[None, :].repeat(2, 0)], axis=1)
    b = np.concatenate([b[: pairs.shape[1]], rng.permutation(EVERY)])
    x, y = param(Aval(a.shape, HALF), "x"), param(Aval(a.shape, HALF), "y")
    graph = Graph([x, y], [*(apply(name, x, y) for name in BINARY), apply("where", apply("less", x, y), y, x)])
    *found, chosen = computed(graph, a, b)
    for name, each in zip(BINARY, found, strict=True):
        same_bits(each, getattr(np, name)(a, b))
    same_bits(chosen, np.where(a < b, b, a))


def test_conversions():
    rng = np.random.default_rng(1)
    single = np.concatenate([
        rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32),
        (rng.normal(size=1 << 16) * 2.0 ** rng.integers(-26, 17, 1 << 16)).astype(np.float32),
        (EVERY.astype(np.float32) + np.roll(EVERY, 1).astype(np.float32)) / 2,
    ])  # fmt: skip
    x = param(Aval(single.shape, single.dtype))
    same_bits(computed(Graph([x], [apply("cast", x, dtype=HALF)]), single)[0], single.astype(HALF))
    x = param(Aval(EVERY.shape, HALF))
    for target in ("f4", "f8", "?"):
        graph = Graph([x], [apply("cast", x, dtype=np.dtype(target))])
        same_bits(computed(graph, EVERY)[0], EVERY.astype(target))


def test_conversions_of_doubles_round_once():
    """Halves, what lies in the middle of two, and the doubles next to those; every binade of doubles."""
    rng = np.random.default_rng(4)
    wide = EVERY.astype(float)
    middle = (wide + np.nextafter(EVERY, HALF.type(np.inf)).astype(float)) / 2
    places = np.concatenate([wide, middle, rng.integers(0, 1 << 63, 1 << 16, dtype=np.uint64).view(float)])
    places = np.concatenate([places, -places[-(1 << 16) :], [65519.999999999985, 65520.0, 1e300, -1e300, 5e-324]])
    steps = [np.nextafter(places, np.inf), places, np.nextafter(places, -np.inf), places * (1 + 1e-9)]
    values = np.concatenate(steps)
    x = param(Aval(values.shape, values.dtype))
    same_bits(computed(Graph([x], [apply("cast", x, dtype=HALF)]), values)[0], values.astype(HALF))


@pytest.mark.parametrize("code", "bhilqBHILQ")
def test_conversions_of_integers_are_numpys(code):
    """By way of single precision: two roundings. Operations of both kinds convert as NumPy does, too."""
    info = np.iinfo(code)
    rng = np.random.default_rng(5)
    values = np.concatenate([
        rng.integers(info.min, info.max, 1 << 14, dtype=code, endpoint=True),
        rng.integers(max(info.min, -70000), min(info.max, 70000), 1 << 14, dtype=np.int64, endpoint=True).astype(code),
        np.array([info.min, info.max, 0, 1], code),
    ])  # fmt: skip
    halves = rng.permutation(EVERY)[: values.size]
    x, y = param(Aval(values.shape, values.dtype), "x"), param(Aval(halves.shape, HALF), "y")
    graph = Graph([x, y], [apply("cast", x, dtype=HALF), apply("add", x, y), apply("multiply", y, x)])
    found = computed(graph, values, halves)
    for each, expected in zip(found, (values.astype(HALF), values + halves, halves * values), strict=True):
        same_bits(each, expected)


def test_a_function_of_halves_is_one_kernel():
    def f(x, y):
        return np.where(x > 0.5, x * 2 + y, -x) / 3, (x.astype(np.float32) * y).sum(axis=1)

    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(300, 40)).astype(HALF) for _ in range(2))
    futurized = fx.futurize(f, escape="error")
    for found, expected in zip(futurized(x, y), f(x, y), strict=True):
        same_bits(np.asarray(found), expected)
    assert {row.backend for row in futurized.profile()} == {"numba"}
    with np.errstate(all="ignore"):
        same_bits(np.asarray(fx.futurize(lambda x: x * 60000.0)(x)), x * 60000.0)


def test_sums_of_halves_are_numpys():
    x = np.random.default_rng(3).normal(size=(300, 400)).astype(HALF)
    for axis in (None, 0, 1):
        same_bits(np.asarray(fx.futurize(lambda x, axis=axis: (x * 2).sum(axis=axis))(x)), (x * 2).sum(axis=axis))
