"""Tapes whose length only the run knows are arrays with room in compiled code: the same bits as with lists."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.loops import LoopBackend
from futurex.kernels.loops.looking import SOON, looks
from futurex.passes import stack_tapes
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan
from futurex.tree.verify import verify

RNG = np.random.default_rng(8)
A, B = 2.0 + RNG.random(6), 1.0 + RNG.random(6)


def newton(a, b):
    x = b[0]
    while abs(x * x * x - a[0]) > 1e-12:
        x = x - (x * x * x - a[0]) / (3 * x * x)
    return x * a[1]


def iterated(a, b):
    rounds = 0
    while (a * a).sum() > 0.1:
        a = np.sin(a) * b * 0.4
        rounds += 1
    return (a * b).sum() * rounds


def ended(a, b):
    total = 0.0
    for k in range(40):
        if total > 60.0:
            break
        total = total + a[k % 6] * b[k % 6]
    return total * total


def never(a, b):
    x = a[0]
    while x < 0:
        x = x * b[0]
    return x * x


def inner(a, b):
    total = 0.0
    for k in range(30):
        y, z = a[k % 6] + k, b[k % 6]
        while abs(z * z - y) > 1e-10:
            z = 0.5 * (z + y / z)
        total = total + z
    return total


def within(a, b):
    total, x = 0.0, a[0]
    while x > 0.1:
        y = x
        while y > 0.05:
            y = y * 0.3 * b[0]
            total += y * y
        x = x * 0.7
    return total + x


def triangle(a, b):
    n, total = 0, 0.0
    while total < 40.0:
        for j in range(n):
            total = total + a[j % 6] * b[n % 6]
            b = b * 0.99
        n += 1
    return total * b[0]


def single(a, b):
    x, k = a.astype(np.float32), 0
    while x[0] > 0.01:
        x = x * np.float32(0.5) + x * x * np.float32(0.05)
        k += 1
    return x.sum() * b[0]


def counted(a, b):
    """What second derivatives keep of a round is larger than what the first ones do."""
    x, j = a * b[0], 0
    while j < 25 and b[1] > j * 0.01:
        x[(j + 1) % 6] = np.sin(x[j % 6]) * x[(j + 1) % 6] + b[2]
        j += 1
    return (x * x).sum()


def checked(a, b):
    """Python's integers are looked at."""
    x, k = a.copy(), 0
    while x.max() > 0.5:
        i = int(np.argmax(x))
        x[(i + 1) % 6] += 0.1 * x[i] * b[k % 6]
        x[i] = 0.4
        k += 1
    return (x * x).sum()


UNTIL = [newton, iterated, ended, never, inner, within, triangle, single, checked, counted]


def second(function):
    return lambda a, b: fx.grad(lambda a: (fx.grad(function)(a, b) ** 2).sum())(a)


def gradient(function, order):
    graph = fx.lower(fx.grad(function, argnums=(0, 1)) if order == 1 else second(function), A, B).graph
    return optimise(graph, check=True)


def tapes(graph):
    inside = [value for node in graph.nodes for value in node.attrs.values() if hasattr(value, "nodes")]
    own = [node for node in graph.nodes if node.op == "scan" or (node.op == "loop" and node.attrs["tape"])]
    return own + [each for value in inside for each in tapes(value)]


@pytest.mark.parametrize("function", UNTIL)
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_loops_of_any_length_are_compiled(function, order):
    graph = gradient(function, order)
    assert tapes(graph)
    after = stack_tapes.open_tapes(graph)
    assert not tapes(after)
    verify(after)
    expected = compile_plan(graph, optimised=True).run([A, B])
    program = LoopBackend().whole(graph)
    assert not program.calls
    program.prepare((), wait=True)
    for found in (program(A, B), program(A, B), after(A, B)):
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other, strict=True)


@pytest.mark.parametrize("function", [newton, iterated, inner, within, triangle])
def test_gradients_are_those_of_differences(function):
    slopes = [np.asarray(each) for each in fx.grad(function, argnums=(0, 1))(A, B)]
    for number, slope in enumerate(slopes):
        for k in range(2):
            moved = np.zeros(6)
            moved[k] = 1e-6
            ends = [[x + sign * moved if n == number else x for n, x in enumerate((A, B))] for sign in (1, -1)]
            difference = (function(*ends[0]) - function(*ends[1])) / 2e-6
            np.testing.assert_allclose(slope[k], difference, rtol=1e-4, atol=1e-5)


def test_code_gives_up_where_there_is_no_more_room(monkeypatch):
    monkeypatch.setattr(stack_tapes, "ROOM", 40)
    graph = gradient(iterated, 1)
    assert not stack_tapes._rooms(graph)
    graph = gradient(newton, 1)
    program = LoopBackend().whole(graph)
    program.prepare((), wait=True)
    near, far = (A, B), (np.full(6, 1e-5), np.full(6, 1e9))
    for mine, other in zip(program(*near), compile_plan(graph, optimised=True).run(near), strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)
    assert program(*far) is None


def test_gradients_are_right_when_code_gives_up(monkeypatch):
    monkeypatch.setattr(stack_tapes, "ROOM", 40)
    slope = fx.grad(newton)
    for k in range(60):
        start = B * 1e9 if k % 3 == 2 else B + k
        found, root = np.asarray(slope(A + k, start)), np.cbrt(A[0] + k)
        np.testing.assert_allclose(found[:2], [(A[1] + k) / (3 * root**2), root], rtol=1e-6)


def test_room_is_memory_by_name_only():
    program = LoopBackend().whole(gradient(newton, 1))
    assert program.scratch >= stack_tapes.ROOM * 8 > 100 * program.own


def test_rounds_that_keep_a_number_do_not_ask_each_time():
    after = stack_tapes.open_tapes(gradient(newton, 1))
    loops = [node for node in after.nodes if node.op == "loop"]
    assert len(loops) == 2
    assert all(0 < looks(node) < 100 < SOON for node in loops)


def linear(a, b):
    """Its tape only counts the rounds: it holds the smallest of what they carry, which none of them reads."""
    last = 5.0 * b[0]
    while a.sum() < 0:
        last = a.sum() * b[1]
        a = a + 1.0
    return a.sum() * 2.0 + last


def test_what_a_loop_without_rounds_gives_is_what_it_began_with():
    graph = optimise(fx.lower(fx.value_and_grad(linear), A, B).graph, check=True)
    after = stack_tapes.open_tapes(graph)
    assert tapes(graph)
    assert not tapes(after)
    program = LoopBackend().whole(graph)
    program.prepare((), wait=True)
    for a in (np.abs(A) + 1.0, -np.abs(A), np.abs(A) + 2.0):
        for value, _ in (program(a, B), after(a, B)):
            assert value == pytest.approx(linear(a, B), rel=1e-12)
