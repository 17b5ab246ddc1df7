"""Branches and loops run as plans of their own, in memory of their own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import F8, inputs, matrix

import futurex as fx
from futurex.autodiff import pullback
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, Graph, apply, item, param

NUMPY = (NumpyBackend(),)
I8 = np.dtype(np.int64)


def swapping_loop(tape=()):
    """x, y = y + step, x @ step while i < n; i counts: carries that change places, and a constant."""
    x, y, step = matrix("x"), matrix("y"), matrix("step")
    i, n = param(Aval((), I8), "i"), param(Aval((), I8), "n")
    params = [x, y, i, step, n]
    body = Graph(params, [y + step, apply("tanh", x @ step), i + 1], "body")
    test = Graph(params, [apply("less", i, n)], "test")
    outer = [matrix("x"), matrix("y"), param(Aval((), I8), "i"), matrix("step"), param(Aval((), I8), "n")]
    return outer, apply("loop", *outer, test=test, body=body, tape=tape)


def args(rounds, seed=0):
    x, y, step = inputs(seed, 3)
    return [x, y, np.int64(0), step, np.int64(rounds)]


@given(st.integers(0, 6))
@settings(max_examples=10)
def test_a_loop_equals_its_reference_and_keeps_its_inputs(rounds):
    params, loop = swapping_loop()
    graph = Graph(params, [item(loop, 0), item(loop, 1), item(loop, 2), apply("tanh", params[0])])
    plan = compile_plan(graph, backends=NUMPY)
    for seed in range(3):
        values, untouched = args(rounds, seed), args(rounds, seed)
        results = plan.run(values)
        for got, want in zip(results, graph(*untouched), strict=True):
            np.testing.assert_allclose(got, want)
        for value, before in zip(values, untouched, strict=True):
            np.testing.assert_array_equal(value, before)
        assert not any(np.may_share_memory(result, value) for result in results for value in values)


def test_a_loop_that_does_not_turn_gives_copies():
    params, loop = swapping_loop()
    plan = compile_plan(Graph(params, [item(loop, 0)]), backends=NUMPY, optimised=True)
    values = args(0)
    [x] = plan.run(values)
    np.testing.assert_array_equal(x, values[0])
    x[:] = 7.0
    np.testing.assert_array_equal(values[0], args(0)[0])


def test_iterations_use_two_sets_of_buffers():
    x, i = matrix("x"), param(Aval((), I8), "i")
    seen = []

    class Watching(NumpyBackend):
        def claim(self, node, threads):
            kernel = super().claim(node, threads)
            if node.op != "tanh":
                return kernel

            def call(out, value):
                seen.append(out.ctypes.data)
                return kernel.call(out, value)

            return type(kernel)(call, "watching", into=True)

    body = Graph([x, i], [apply("tanh", x), i + 1], "body")
    test = Graph([x, i], [apply("less", i, 9)], "test")
    start, zero = matrix("start"), param(Aval((), I8), "zero")
    loop = apply("loop", start, zero, test=test, body=body, tape=())
    plan = compile_plan(Graph([start, zero], [item(loop, 0)]), backends=(Watching(),))
    plan.run([*inputs(n_params=1), np.int64(0)])
    assert len(seen) == 9
    assert len(set(seen)) == 2


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_the_pullback_of_a_loop_reads_a_tape_that_owns_its_arrays(rounds):
    params, loop = swapping_loop()
    graph = Graph(params, [item(loop, 0) * item(loop, 1)])
    back = pullback(graph, [0, 1, 3])
    seed = np.ones((3, 3))
    plan = compile_plan(back, backends=NUMPY)
    for number in range(3):
        values = [*args(rounds, number), seed]
        for got, want in zip(plan.run(values), back(*values), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_branch_may_give_back_what_it_got(sign):
    x, y, a, b = matrix("x"), matrix("y"), matrix("a"), matrix("b")
    then = Graph([a, b], [a, a], "then")
    orelse = Graph([a, b], [b, apply("tanh", b)], "orelse")
    total = apply("sum", x, axis=None, keepdims=False, dtype=None)
    result = apply("cond", apply("greater", total, 0.0), apply("tanh", x), y, then=then, orelse=orelse)
    graph = Graph([x, y], [item(result, 0), item(result, 1)])
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    values = [np.full((3, 3), sign), np.ones((3, 3))]
    first = plan.run(values)
    for got, want in zip(first, graph(*values), strict=True):
        np.testing.assert_allclose(got, want)
    first[0][:] = 5.0
    assert not np.any(first[1] == 5.0)
    assert not np.any(values[1] == 5.0)


def test_an_exception_inside_a_loop_names_both_lines():
    from futurex.ops.control import Failure

    i = param(Aval((), I8), "i")
    failing = apply("check", apply("less", i, 2), failure=Failure(OverflowError, ("too far",)))
    body = Graph([i], [apply("where", failing, i + 1, i)], "body")
    test = Graph([i], [apply("less", i, 5)], "test")
    start = param(Aval((), I8), "start")
    loop = apply("loop", start, test=test, body=body, tape=())
    plan = compile_plan(Graph([start], [item(loop, 0)]), backends=NUMPY, optimised=True)
    with pytest.raises(OverflowError, match="too far") as caught:
        plan.run([np.int64(0)])
    inner, outer = caught.value.__notes__
    assert f"test_structured.py:{failing.src.line}: failing =" in inner
    assert f"test_structured.py:{loop.src.line}: loop = apply" in outer
    assert plan.run([np.int64(5)]) == [5]


def test_a_cond_of_vectors_inside_a_loop_carries_weak_scalars():
    a, i = param(Aval((), F8, weak=True), "a"), param(Aval((), I8), "i")
    body = Graph([a, i], [a * 0.5, i + 1], "body")
    test = Graph([a, i], [apply("less", i, 3)], "test")
    start, zero = param(Aval((), F8, weak=True), "start"), param(Aval((), I8), "zero")
    loop = apply("loop", start, zero, test=test, body=body, tape=())
    [result] = compile_plan(Graph([start, zero], [item(loop, 0)]), backends=NUMPY).run([8.0, np.int64(0)])
    assert type(result) is float
    assert result == 1.0




def rounds(x, w, out, n):
    h = x
    for k in range(n):
        h = np.tanh(h @ w)
        out[k] = h
    return out, h


def rounds_that_look_back(x, w, out, n):
    h = x
    for k in range(n):
        before = out[k] + out[0]
        out[k] = h @ w
        h = out[k] - before
    return out, h


def rounds_with_two_names(x, w, out, n):
    other = out
    for k in range(n):
        x = x @ w
        out[k] = x
        x = x + other[0]
    return out, x


@pytest.mark.parametrize("n", [0, 1, 7, 40])
@pytest.mark.parametrize("program", [rounds, rounds_that_look_back, rounds_with_two_names])
def test_large_arrays_that_a_loop_stores_into_are_what_numpy_makes_of_them(program, n):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(64, 256)) * 0.1, rng.normal(size=(256, 256)) * 0.06
    out = rng.normal(size=(40, 64, 256))
    staged = fx.futurize(lambda x, w, out: program(x, w, out.copy(), n))
    for _ in range(3):
        kept = out.copy()
        found, expected = staged(x, w, out), program(x, w, out.copy(), n)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(out, kept)


def test_the_derivative_of_a_loop_that_stores_into_a_large_array_keeps_what_it_needs():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(16, 256)) * 0.1, rng.normal(size=(256, 256)) * 0.06

    def loss(w):
        out = np.zeros((20, 16, 256))
        return (rounds(x, w, out, 20)[0] ** 2).sum()

    direction = rng.normal(size=w.shape)
    slope = (loss(w + 1e-6 * direction) - loss(w - 1e-6 * direction)) / 2e-6
    for _ in range(2):
        np.testing.assert_allclose((np.asarray(fx.grad(loss)(w)) * direction).sum(), slope, rtol=1e-5)
