"""Reductions of what is stacked for them are elementwise, with NumPy's bits."""

import numpy as np
import pytest
from compare import bits
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes import stacks
from futurex.passes.pipeline import optimise

RNG = np.random.default_rng(3)
WHOLE = RNG.integers(-4, 5, (16, 130, 170)).astype(float)
WHOLE[RNG.random(WHOLE.shape) < 0.1] = -0.0
WHOLE[RNG.random(WHOLE.shape) < 0.01] = np.nan
WHOLE[:, :3] = -0.0
NUMBERS = RNG.standard_normal((16, 130, 170)) * 10.0 ** RNG.integers(-6, 6, (16, 130, 170))


def of(dtype, count):
    source = NUMBERS if dtype in ("f4", "f8") else np.nan_to_num(WHOLE)
    return [each.astype(dtype) for each in source[:count]]


def ops(function, *args):
    plan = fx.futurize(function).trace(*args).plan
    plan.prepare(wait=True)
    return {each.node.op for each in plan.instructions} - {"load"}, plan.run(list(args))[0]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?", "i8"])
@pytest.mark.parametrize("reduce", [np.sum, np.mean, np.max, np.min, np.prod, np.any, np.all, np.maximum.reduce])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_stack_is_not_made(dtype, reduce, keepdims):
    parts = of(dtype, 5)

    def f(*parts):
        return reduce(np.stack(parts), axis=0, keepdims=keepdims)

    made, found = ops(f, *parts)
    assert made <= {"fused", "reshape", "divide"}
    assert bits(found) == bits(f(*parts))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_nor_is_one_of_a_few_thousand_elements(dtype):
    """The largest of four rows of 4000 numbers took 1.4 of NumPy's time, neighbours in the rounds of a loop 1.5 of
    jax.jit's: as they are written, the parts are copied twice."""
    parts = [each[:40, :40].astype(dtype) for each in NUMBERS[:4]]

    def largest(*parts):
        return np.max(parts, axis=0)

    made, found = ops(largest, *parts)
    assert made <= {"fused", "reshape"}
    assert bits(found) == bits(largest(*parts))

    def spread(x):
        for _ in range(90):
            p = np.pad(x, 1)
            x = np.maximum.reduce([p[1:-1, 1:-1], p[:-2, 1:-1], p[2:, 1:-1], p[1:-1, :-2], p[1:-1, 2:]])
        return x

    graph = optimise(fx.futurize(spread).graph(parts[0]))
    (loop,) = (node for node in graph.nodes if node.op == "loop")
    assert "max" not in {node.op for node in loop.attrs["body"].nodes}
    assert bits(np.asarray(fx.futurize(spread)(parts[0]))) == bits(spread(parts[0]))


@given(
    st.integers(3, 18), st.sampled_from(["f4", "f8", "i2", "u4", "?"]), st.sampled_from([0, 1]),
    st.sampled_from(["sum", "max", "min", "prod", "any", "all", "mean"]), st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_any_number_of_parts_along_any_axis(count, dtype, axis, name, computed):
    parts = of(dtype, min(count, 16))

    def f(*parts):
        each = [part + part for part in parts] if computed else parts
        return getattr(np, name)(np.stack(each, axis), axis)

    _, found = ops(f, *parts)
    assert bits(found) == bits(f(*parts))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "any", "all"])
def test_zeros_with_signs_and_nan(dtype, name):
    parts = [each.astype(dtype) for each in WHOLE[:4]]

    def f(*parts):
        return getattr(np, name)(parts, axis=0)

    made, found = ops(f, *parts)
    expected = f(*parts)
    assert made <= {"fused", "reshape"}
    np.testing.assert_array_equal(found, expected)
    if name in ("sum", "prod"):
        np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)]))


def test_windows_of_one_array():
    a = np.ascontiguousarray(NUMBERS[0])

    def mean(a):
        return np.mean([a[i : 128 + i, j : 168 + j] for i in range(3) for j in range(3)], axis=0)

    def least(a):
        return np.minimum.reduce([a[i : 128 + i, j : 168 + j] for i in range(3) for j in range(3)])

    for f in (mean, least):
        made, found = ops(f, a)
        assert made <= {"fused", "reshape"}
        assert bits(found) == bits(f(a))


def others():
    a = NUMBERS[:8, :128, :128].copy()
    return [
        (lambda a: np.stack(list(a), -1).sum(-1), a),  # rows of NumPy's are added up pairwise
        (lambda a: np.concatenate([a[:4], a[4:]]).sum(0), a),
        (lambda a: np.stack(list(a)).sum((0, 1)), a),
        (lambda a: np.stack([a[k // 2] for k in range(2 * len(a))] + [a[0]]).sum(0), a),  # too many
        (lambda a: np.stack([each[:4, :4] for each in a]).sum(0), a),  # small
    ]


@pytest.mark.parametrize("number", range(5))
def test_others_are_left(number):
    f, a = others()[number]
    graph = fx.lower(f, a).graph
    before = [node.op for node in graph.nodes]
    assert [node.op for node in stacks.reduce_stacks(graph).nodes] == before
    assert bits(np.asarray(fx.futurize(f)(a))) == bits(f(a))


def test_derivatives_through_a_stack():
    a, b = NUMBERS[0] / 1e3, NUMBERS[1] / 1e3

    def f(a, b):
        return np.sum(np.mean(np.stack([a * b, a, np.sin(b), a + b]), 0) ** 2)

    step = 1e-6
    for k, slope in enumerate(fx.grad(f, argnums=(0, 1))(a, b)):
        far = [x + step * (n == k) for n, x in enumerate((a, b))]
        near = [x - step * (n == k) for n, x in enumerate((a, b))]
        np.testing.assert_allclose(np.sum(np.asarray(slope)), (f(*far) - f(*near)) / (2 * step), rtol=1e-4)


def test_a_join_beside_a_reduction_with_a_mask():
    x = np.abs(NUMBERS[:4].reshape(-1))

    def f(x, mask):
        return np.concatenate([x, x]), np.max(x, where=mask, initial=-3), np.std(x, where=mask)

    joined, most, spread = fx.futurize(f)(x, x > 1)
    assert (np.asarray(joined) == np.concatenate([x, x])).all()
    assert float(most) == x[x > 1].max()
    assert np.isclose(spread, x[x > 1].std())
