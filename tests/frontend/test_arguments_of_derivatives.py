"""What a function finds in its arguments while derivatives and maps are taken of it: copies that lie as they lie."""

import numpy as np
import pytest

import futurex as fx

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 3)), RNG.normal(size=3)
WEIGHTS = np.arange(6.0)


def scaled(a, b):
    a[0] *= b[0]
    b[1:] += a[0, 1:]
    return (a @ b).sum()


def counted(x, n):
    n[0] += 2
    return (x * n).sum()


def along(function, args, number, direction, step=1e-6):
    def at(h):
        moved = [a.copy() for a in args]
        moved[number] += h * direction
        return function(*moved)

    return (at(step) - at(-step)) / (2 * step)


@pytest.mark.parametrize("number", [0, 1])
def test_other_arguments_are_copies_too(number):
    given, direction = (X.copy(), Y.copy()), (X, Y)[number] * 0.5
    value, gradient = fx.value_and_grad(scaled, argnums=number)(*given)
    row = fx.jacobian(scaled, argnums=number)(*given)
    assert float(value) == scaled(X.copy(), Y.copy())
    for found in (gradient, row):
        expected = along(scaled, (X, Y), number, direction)
        np.testing.assert_allclose((np.asarray(found) * direction).sum(), expected, rtol=1e-8)
    for mine, before in zip(given, (X, Y), strict=True):
        assert mine.tobytes() == before.tobytes()


def test_the_caller_in_staged_code_sees_no_write_either():
    @fx.futurize
    def step(x, n):
        gradient = fx.grad(counted)(x, n)
        return gradient, n.sum(), fx.vjp(counted, x, n)[1](1.0)[0]

    n = np.ones(3)
    gradient, total, pulled = step(Y, n)
    assert np.asarray(gradient).tolist() == np.asarray(pulled).tolist() == [3, 1, 1]
    assert (float(total), n.tolist()) == (3, [1, 1, 1])


def test_a_pullback_of_a_function_that_counts():
    n = np.ones(3, int)
    value, pullback = fx.vjp(counted, Y, n)
    assert float(value) == (Y * [3, 1, 1]).sum()
    assert np.asarray(pullback(1.0)[0]).tolist() == [3, 1, 1]
    assert n.tolist() == [1, 1, 1]


def test_one_array_that_is_two_arguments_stays_one():
    def f(x, a, b):
        return (x * a).sum() * (3 if a is b else 1)

    assert float(fx.grad(f)(1.0, Y, Y)) == 3 * Y.sum()
    assert float(fx.grad(f)(1.0, Y, Y.copy())) == Y.sum()


def in_memory(x):
    return (x.ravel("K") * WEIGHTS).sum()


def as_fortran_has_it(x):
    return (x.reshape(3, 2, order="A") * WEIGHTS.reshape(3, 2)).sum()


def copied(x):
    y = np.zeros_like(x) + x * x
    return (y.flatten("A") * WEIGHTS).sum()


def writes_through_a_reshape(x):
    x.reshape(-1)[0] = 7
    return (x * x).sum()


def asks(x):
    return x.sum() * (2 if x.flags.f_contiguous else 3)


LAYOUTS = {
    "C": lambda a: a.copy(),
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
}
FUNCTIONS = [in_memory, as_fortran_has_it, copied, writes_through_a_reshape, asks]


TRACED = [(f, name) for f in FUNCTIONS for name in LAYOUTS if (f, name) != (in_memory, "reversed")]


@pytest.mark.parametrize("function, layout", TRACED)
def test_arguments_lie_as_the_caller_s_do(function, layout):
    lay, a, direction = LAYOUTS[layout], RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
    expected = function(lay(a))
    moved = (function(lay(a + 1e-6 * direction)) - function(lay(a - 1e-6 * direction))) / 2e-6

    value, gradient = fx.value_and_grad(function)(lay(a))
    pushed_value, pushed = fx.jvp(function, (lay(a),), (direction,))
    also = fx.value_and_grad(lambda s, x: s * function(x))(1.0, lay(a))[0]
    saved = fx.futurize(fx.checkpoint(function))(lay(a))
    for found in (value, pushed_value, also, saved):
        np.testing.assert_allclose(float(found), expected, rtol=1e-14)
    for found in ((np.asarray(gradient) * direction).sum(), float(pushed)):
        np.testing.assert_allclose(found, moved, rtol=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
def test_examples_lie_as_in_a_loop(function, axis, order):
    many = np.array(np.moveaxis(RNG.normal(size=(4, 2, 3)), 0, axis), order=order)
    expected = [function(np.moveaxis(many.copy("K"), axis, 0)[k]) for k in range(4)]
    mapped = fx.vmap(function, in_axes=axis)
    np.testing.assert_allclose(np.asarray(mapped(many)), expected, rtol=1e-14)
    assert "plain NumPy" not in mapped.explain()
