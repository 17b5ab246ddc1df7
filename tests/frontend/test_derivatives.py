"""Derivatives through views, writes, branches and loops on data agree with differences."""

import gc
import weakref

import numpy as np
import pytest
from derivative_cases import X, cases

import futurex as fx
from futurex.tree.record import NotDifferentiable


def slope(function, x, step=1e-6):
    """Central differences."""
    out = np.zeros_like(x)
    for k in range(x.size):
        ahead, behind = x.copy(), x.copy()
        ahead.flat[k] += step
        behind.flat[k] -= step
        out.flat[k] = (float(function(ahead)) - float(function(behind))) / (2 * step)
    return out


@pytest.mark.parametrize("function", cases)
def test_gradients(function):
    value, gradient = fx.value_and_grad(function)(X)
    assert float(value) == float(function(X.copy()))
    np.testing.assert_allclose(np.asarray(gradient), slope(function, X), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("function", cases)
def test_second_derivatives(function):
    def along(x):
        return (fx.grad(function)(x) * np.cos(X)).sum()

    expected = slope(lambda x: (np.asarray(fx.grad(function)(x)) * np.cos(X)).sum(), X, 1e-5)
    np.testing.assert_allclose(np.asarray(fx.grad(along)(X)), expected, rtol=5e-4, atol=5e-4)


def test_complex_step_agrees_to_the_last_digits():
    def f(x):
        y = x.copy()
        for i in range(1, 6):
            y[i] = y[i - 1] * np.sin(y[i]) + y[i] ** 2
        return (y * y).sum()

    step = 1e-30
    expected = [f(X + 1j * step * np.eye(6)[k]).imag / step for k in range(6)]
    np.testing.assert_allclose(np.asarray(fx.grad(f)(X)), expected, rtol=1e-13)


def energy(params, x, scale=1.0):
    return ((x @ params["w"] + params["b"]) ** 2).sum() * scale


def test_structures_and_argument_numbers():
    params = {"w": np.ones((3, 2)), "b": np.zeros(2)}
    x = np.arange(6.0).reshape(2, 3)
    both = fx.grad(energy, argnums=(0, 1))(params, x)
    assert set(both[0]) == {"w", "b"}
    np.testing.assert_allclose(np.asarray(both[1]), 2 * (x @ params["w"]) @ params["w"].T)
    by_x = fx.grad(energy, argnums=1)(params, x, scale=2.0)
    np.testing.assert_allclose(np.asarray(by_x), 2 * np.asarray(both[1]))


def with_aux(x):
    y = x * x
    return y.sum(), {"y": y, "n": 3}


def test_auxiliary_results():
    gradient, aux = fx.grad(with_aux, has_aux=True)(X)
    np.testing.assert_allclose(np.asarray(gradient), 2 * X)
    np.testing.assert_allclose(np.asarray(aux["y"]), X * X)
    (value, aux), gradient = fx.value_and_grad(with_aux, has_aux=True)(X)
    assert float(value) == (X * X).sum()
    assert int(aux["n"]) == 3


def test_gradients_inside_futurized_functions_and_of_them():
    inner = fx.futurize(lambda x: (x**3).sum())

    @fx.futurize
    def step(x, rate):
        if x.sum() > 0:
            return x - rate * fx.grad(inner)(x)
        return x

    assert np.asarray(step(X, 0.1)).tobytes() == (X - 0.1 * np.asarray(fx.grad(inner)(X))).tobytes()
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: fx.grad(inner)(x).sum())(X)), 6 * X)


def test_python_floats_have_gradients():
    assert float(fx.grad(lambda a: a * a * 3)(2.0)) == 12.0


def test_single_precision_stays_single():
    gradient = fx.grad(lambda x: (x * 2.5).sum())(X.astype(np.float32))
    assert gradient.dtype == np.float32


def test_the_argument_keeps_its_contents():
    def f(x):
        y = x
        y = y * 2
        y[0] = 0
        return y.sum()

    x = X.copy()
    assert np.asarray(fx.grad(f)(x)).tolist() == [0, 2, 2, 2, 2, 2]
    assert x.tobytes() == X.tobytes()


class Table:
    """An array to NumPy, as pandas has them, with a long repr."""

    def __array__(self, dtype=None, copy=None):
        return np.ones(3)

    def __repr__(self):
        return "two\n   lines"


class Row(np.ndarray):
    pass


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: fx.grad(energy)({"w": np.ones((3, 2), int), "b": np.zeros(2)}, np.ones((2, 3))),
            TypeError,
            "argument 0/w",
        ),
        (lambda: fx.grad(lambda n: n * 2.0)(3), TypeError, "argument 0"),
        (lambda: fx.grad(lambda x: x * 2)(X), TypeError, r"real scalar; .*float64\[.*Reduce it \(`.sum\(\)`"),
        (lambda: fx.grad(lambda x: None)(X), TypeError, "real scalar; .* returns None. Does a `return` lack"),
        (lambda: fx.grad(lambda x: (x * 1j).sum())(X), TypeError, "complex128.*`.real` or `abs`, .*`holomorphic=True`"),
        (lambda: fx.grad(lambda x: x.argmax())(X), TypeError, "int64.*Return a float"),
        (lambda: fx.grad(lambda x: x.sum(), argnums=2)(X), TypeError, "argnums=2"),
        (lambda: fx.grad(lambda x: x.sum(), argnums="x"), TypeError, "argnums='x' is neither"),
        (lambda: fx.grad(lambda x: x.sum(), has_aux=True)(X), TypeError, "has_aux"),
        (lambda: fx.grad(lambda x: (x.sum(), x))(X), TypeError, "returns a tuple. Return one number; with has_aux"),
        (lambda: fx.grad(lambda x: {"loss": x.sum()})(X), TypeError, "real scalar; .* returns a dict"),
        (lambda: fx.grad(lambda x: ([x.sum()], x), has_aux=True)(X), TypeError, "real scalar; .* returns a list"),
        (lambda: fx.grad(lambda x: (None, x.sum()), has_aux=True)(X), TypeError, "returns None. Does a `return` lack"),
        (lambda: fx.grad(lambda x: x.sum())(X.astype(int)), TypeError, r"of int64; .* floats \(`.astype\(float\)`"),
        (lambda: fx.grad(lambda x: x.sum())(X.view(Row)), fx.StagingError, r"type Row(.|\n)* np\.asarray of it"),
        (lambda: fx.grad(3), TypeError, "function"),
        (lambda: fx.grad(energy({"w": X, "b": X}, X)), TypeError, r"give it f itself, not what f\(x\) returned"),
        (lambda: fx.grad(lambda t: t.sum())(Table()), TypeError, r"a Table \(two lines\); .* Pass np\.asarray of it"),
        (lambda: fx.grad(lambda x: np.spacing(x).sum())(X), NotDifferentiable, "spacing has no derivative"),
        (lambda: fx.grad(lambda x: np.histogramdd(x, 3)[1][0].sum())(X), NotDifferentiable, "no derivative"),
    ],
)
def test_refusals_name_the_culprit(call, error, text):
    with pytest.raises(error, match=text):
        call()


def doubled_constant(x):
    constant = fx.stop_gradient(x)
    constant *= 2
    return (constant * x).sum()


def constant_nest(x):
    kept = fx.stop_gradient({"parts": [x, 2.0], "name": "kept", "none": None})
    kept["parts"][0][0] = 5.0
    return (kept["parts"][0] * x).sum() * kept["parts"][1]


@pytest.mark.parametrize(
    "function, slope", [(doubled_constant, 2 * X), (constant_nest, 2 * np.concatenate([[5.0], X[1:]]))]
)
def test_what_counts_as_constant_is_a_copy(function, slope):
    x = X.copy()
    assert float(fx.futurize(function, escape="error")(x)) == function(x)
    np.testing.assert_array_equal(np.asarray(fx.grad(function)(x)), slope)
    np.testing.assert_array_equal(x, X)


def test_numbers_of_arguments_may_be_those_of_numpy():
    first, second = fx.grad(lambda x, y: x @ y, argnums=tuple(np.arange(2)))(X, 2 * X)
    np.testing.assert_array_equal(np.asarray(first), 2 * X)
    np.testing.assert_array_equal(np.asarray(second), X)
    np.testing.assert_array_equal(np.asarray(fx.grad(lambda x, y: x @ y, np.int64(1))(X, 2 * X)), X)


WRITTEN = np.zeros(6)


def writes_outside(x):
    WRITTEN[:2] = x[:2] * 2
    return (x * WRITTEN).sum()


def test_a_write_into_an_array_from_outside_is_made_and_has_a_derivative():
    for k in range(3):
        WRITTEN[:] = 5
        np.testing.assert_array_equal(np.asarray(fx.grad(writes_outside)(X + k)), [*(4 * (X + k)[:2]), 5, 5, 5, 5])
        np.testing.assert_array_equal(WRITTEN, [*(2 * (X + k)[:2]), 5, 5, 5, 5])


def test_it_is_refused_where_the_array_is_the_argument():
    WRITTEN[:] = 5
    with pytest.raises(fx.StagingError, match="shares memory"):
        fx.grad(writes_outside)(WRITTEN)
    assert WRITTEN.tolist() == [5] * 6


def test_a_derivative_that_is_taken_again_is_traced_once():
    """``fx.grad(f)(x)`` in a loop of Python's; a lambda that holds something is another one every time."""

    def cube(x):
        return (x**3).sum()

    x = np.array([1.0, 2.0])
    for _ in range(5):
        assert np.asarray(fx.grad(cube)(x)).tolist() == [3, 12]
    assert "1 trace(s)" in fx.grad(cube).explain()
    assert fx.grad(cube) is fx.grad(cube, 0)
    for other in (fx.value_and_grad(cube), fx.grad(cube, [0]), fx.grad(cube, (0,)), fx.grad(cube, holomorphic=True)):
        assert other is not fx.grad(cube)
    assert fx.jacobian(cube) is fx.jacobian(cube)
    assert fx.hessian(cube) is fx.hessian(cube)
    assert fx.vmap(cube) is fx.vmap(cube) is not fx.vmap(cube, in_axes=1)
    assert np.asarray(fx.vmap(cube, in_axes=[1])(np.ones((2, 3)))).tolist() == [2, 2, 2]

    def scaled(factor):
        return fx.grad(lambda x: (factor * x).sum())

    assert [float(scaled(k)(np.float64(1.0))) for k in (1.0, 2.0, 3.0)] == [1, 2, 3]

    def differentiated():
        held = np.ones(3)
        fx.grad(lambda x: (held * x).sum())(np.ones(3)).result()
        return weakref.ref(held)

    gone = differentiated()
    gc.collect()
    assert gone() is None


class Scaled:
    def __init__(self, factor):
        self.factor = np.full(3, factor)

    def loss(self, x):
        return (self.factor * x).sum()


def test_few_functions_that_hold_something_are_held_by_their_derivatives():
    models = [Scaled(float(k)) for k in range(8)]
    for model in models:
        for _ in range(2):
            assert np.asarray(fx.grad(model.loss)(np.ones(3))).tolist() == model.factor.tolist()
        assert fx.grad(model.loss) is fx.grad(model.loss)
    gone = [weakref.ref(each) for each in models]
    del models, model
    gc.collect()
    assert sum(each() is not None for each in gone) <= 4


@pytest.mark.parametrize(
    "function, at, expected",
    [
        (np.prod, [0.0, 2.0, 3.0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]]),
        (np.prod, [0.0, 0.0, 5.0], [[0, 5, 0], [5, 0, 0], [0, 0, 0]]),
        (lambda x: np.cumprod(x)[-1], [0.0, 2.0, 0.0], [[0, 0, 2], [0, 0, 0], [2, 0, 0]]),
        (lambda x: np.multiply.reduce(x, initial=2.0), [0.0, 3.0], [[0, 2], [2, 0]]),
        (lambda x: x[0] ** x[1], [1.0, 0.0], [[0, 1], [1, 0]]),
        (lambda x: np.power(x[:1], x[1:]).sum(), [2.0, 0.0], [[0, 0.5], [0.5, np.log(2) ** 2]]),
    ],
)
def test_second_derivatives_of_products_and_powers_at_zero(function, at, expected):
    found = fx.hessian(lambda x: function(x))(np.array(at))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: np.hypot(x[0], x[1]), lambda x: np.hypot.reduce(x), np.std, lambda x: np.std(x[:1]),
        lambda x: np.sqrt(np.sum(x * x)), lambda x: np.sqrt(x[0] ** 2 + x[1] ** 2), lambda x: np.sqrt(np.mean(x**2)),
        np.linalg.norm,
    ],
)  # fmt: skip
def test_norms_are_flat_at_zero(norm):
    """A root of squares has a corner there, and the derivative that autograd multiplies by zero is infinite."""
    zero = np.zeros(2)
    np.testing.assert_array_equal(np.asarray(fx.grad(norm)(zero)), zero)
    np.testing.assert_array_equal(np.asarray(fx.jvp(norm, (zero,), (np.array([1.0, -2.0]),))[1]), 0)
    x = np.array([0.3, -0.4])
    expected = [(norm(x + step) - norm(x - step)) / 2e-6 for step in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(np.asarray(fx.grad(norm)(x)), expected, atol=1e-8)


def test_a_root_of_anything_else_is_steep_at_zero():
    assert np.isinf(np.asarray(fx.grad(lambda x: np.sqrt(x))(0.0)))
    assert np.isinf(np.asarray(fx.grad(lambda x: np.sqrt(x + x))(0.0)))
    assert np.isinf(np.asarray(fx.grad(lambda x: np.sqrt(x**1))(0.0)))
