"""``jvp``, ``vjp`` and ``linearize`` agree with each other, with differences, and inside staged code."""

import dataclasses

import numpy as np
import pytest
from derivative_cases import X, cases

import futurex as fx

V = np.cos(np.arange(6.0))


def difference(function, x, v, step=1e-6):
    return (float(function(x + step * v)) - float(function(x - step * v))) / (2 * step)


@pytest.mark.parametrize("function", cases)
def test_forward_mode_is_the_directional_derivative(function):
    value, moved = fx.jvp(function, (X,), (V,))
    assert float(value) == float(function(X.copy()))
    np.testing.assert_allclose(float(moved), difference(function, X, V), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(float(moved), np.asarray(fx.grad(function)(X)) @ V, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", cases)
def test_maps_kept_for_later_are_the_derivatives(function):
    value, pullback = fx.vjp(function, X)
    same_value, linear = fx.linearize(function, X)
    assert float(value) == float(same_value) == float(function(X.copy()))
    gradient = np.asarray(fx.grad(function)(X))
    for scale in (1.0, -2.5):
        np.testing.assert_allclose(np.asarray(pullback(scale)[0]), scale * gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(float(linear(scale * V)), scale * (gradient @ V), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", cases)
def test_second_derivatives_by_every_order_of_modes(function):
    def reverse(x):
        return (fx.grad(function)(x) * V).sum()

    def forward(x):
        return fx.jvp(function, (x,), (V,))[1]

    expected = np.asarray(fx.grad(reverse)(X))
    np.testing.assert_allclose(np.asarray(fx.jvp(fx.grad(function), (X,), (V,))[1]), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(np.asarray(fx.grad(forward)(X)), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(float(fx.jvp(forward, (X,), (V,))[1]), expected @ V, rtol=1e-8, atol=1e-9)


def layer(x, n, params):
    h = np.tanh(x @ params["w"])
    return {"h": h, "n": n + 1, "label": "tanh", "square": h * h}


RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(6, 3)), "unused": np.arange(3)}


def test_rows_of_which_only_the_run_knows_how_many():
    def picked(x):
        largest = np.abs(np.array([row.max() for row in x if row.sum() < 9]))
        return (largest * np.cos(np.arange(largest.size).reshape(largest.shape) + 0.3)).sum()

    x, direction = np.arange(12.0).reshape(4, 3) - 2, np.cos(np.arange(12.0)).reshape(4, 3)
    _, moved = fx.jvp(picked, (x,), (direction,))
    np.testing.assert_allclose(float(moved), (picked(x + 1e-6 * direction) - picked(x - 1e-6 * direction)) / 2e-6)


@pytest.mark.parametrize(
    "longer",
    [
        lambda k: np.pad(k, (1, 2)),
        lambda k: np.tile(k, 3),
        lambda k: np.concatenate([k[2:], k[:2], k[:1] ** 2]),
        lambda k: np.kron(k, k),
        lambda k: np.stack([np.append(k, k[0]), np.append(k[1], k)]),
    ],
)
def test_lengths_that_are_sums_and_products_of_what_only_the_run_knows(longer):
    """A rule that asks for such a length finds what it is made of, although no array in it is as long as that."""
    def made(x):
        y = longer(x[x > -0.5])
        return (np.sin(y) * np.cumsum(y, axis=-1)).sum()

    for x in (X, X + 0.2, X * 1.5):  # so many numbers that lengths differ
        expected = difference(made, x, V)
        np.testing.assert_allclose(float(fx.jvp(made, (x,), (V,))[1]), expected, rtol=2e-5)
        np.testing.assert_allclose(float(fx.linearize(made, x)[1](V)), expected, rtol=2e-5)
        gradient = fx.grad(made)
        curved = np.asarray(fx.jvp(gradient, (x,), (V,))[1])
        steps = (np.asarray(gradient(x + 1e-6 * V)) - np.asarray(gradient(x - 1e-6 * V))) / 2e-6
        np.testing.assert_allclose(curved, steps, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.asarray(fx.hessian(made)(x)) @ V, steps, rtol=1e-4, atol=1e-6)


def test_nests_with_what_has_no_derivative():
    value, pullback = fx.vjp(layer, X, 3, PARAMS)
    assert value["label"] == "tanh"
    assert int(value["n"]) == 4
    cotangent = {"h": np.ones(3), "n": None, "label": None, "square": np.zeros(3)}
    dx, dn, dparams = pullback(cotangent)
    slope = 1 - np.tanh(X @ PARAMS["w"]) ** 2
    np.testing.assert_allclose(np.asarray(dx), PARAMS["w"] @ slope)
    np.testing.assert_allclose(np.asarray(dparams["w"]), np.outer(X, slope))
    assert dn is None
    assert dparams["unused"] is None
    _, moved = fx.jvp(lambda x: layer(x, 3, PARAMS), (X,), (V,))
    np.testing.assert_allclose(np.asarray(moved["h"]), slope * (V @ PARAMS["w"]))
    assert moved["label"] is None
    assert moved["n"] is None


def test_inside_staged_code_and_under_other_transforms():
    def cubed(x):
        return (x**3).sum()

    @fx.futurize
    def step(x):
        value, pullback = fx.vjp(cubed, x)
        (slope,) = pullback(value * 0 + 1.0)
        _, linear = fx.linearize(fx.grad(cubed), x)
        return slope, linear(V), fx.jvp(cubed, (x,), (V,))[1]

    slope, curvature, moved = step(X)
    np.testing.assert_allclose(np.asarray(slope), 3 * X**2)
    np.testing.assert_allclose(np.asarray(curvature), 6 * X * V)
    np.testing.assert_allclose(float(moved), 3 * X**2 @ V)
    third = fx.grad(lambda x: fx.jvp(fx.grad(cubed), (x,), (V,))[1].sum())(X)
    np.testing.assert_allclose(np.asarray(third), 6 * V)


@dataclasses.dataclass(frozen=True)
class Scale:
    by: object

    def __call__(self, x):
        return x * self.by


def test_equal_callables_are_traced_each_for_itself():
    x = X.astype(np.float32)
    for by, dtype in ((2.0, np.float32), (np.float64(2), np.float64)):
        value, moved = fx.jvp(Scale(by), (x,), (x,))
        assert value.dtype == moved.dtype == dtype
    assert [float(fx.vjp(Scale(by), 1.0)[0]).hex() for by in (0.0, -0.0)] == ["0x0.0p+0", "-0x0.0p+0"]


def test_complex_derivatives():
    z, dz = np.array([1 + 2j, -0.5 + 0.25j]), np.array([0.3 - 1j, 2 + 1j])

    def mixed(z):
        return z**2 * np.conj(z) + np.abs(z) * z.real

    _, moved = fx.jvp(mixed, (z,), (dz,))
    expected = (mixed(z + 1e-6 * dz) - mixed(z - 1e-6 * dz)) / 2e-6
    np.testing.assert_allclose(np.asarray(moved), expected, rtol=1e-8)
    _, pullback = fx.vjp(mixed, z)
    g = np.array([0.7 + 0.1j, -1.2j])
    np.testing.assert_allclose(
        np.real(np.sum(np.asarray(pullback(g)[0]) * dz)), np.real(np.sum(g * np.asarray(moved))), rtol=1e-12
    )


def test_the_gradient_of_a_complex_argument_is_df_dx_minus_i_df_dy():
    z, step = np.array([1 + 2j, -0.5 + 0.25j]), 1e-6

    def real_valued(z):
        return (np.abs(z) ** 3 + (z**2).imag * z.real).sum()

    gradient = np.asarray(fx.grad(real_valued)(z))
    for k, unit in enumerate(np.eye(2)):
        by_x = (real_valued(z + step * unit) - real_valued(z - step * unit)) / (2 * step)
        by_y = (real_valued(z + 1j * step * unit) - real_valued(z - 1j * step * unit)) / (2 * step)
        np.testing.assert_allclose(gradient[k], by_x - 1j * by_y, rtol=1e-8)
    derivative = fx.grad(lambda z: np.sin(z) * z**2, holomorphic=True)(z[0])
    np.testing.assert_allclose(complex(derivative), np.cos(z[0]) * z[0] ** 2 + 2 * z[0] * np.sin(z[0]))
    with pytest.raises(TypeError, match="complex"):
        fx.grad(lambda x: x * 1j, holomorphic=True)(1.0)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: fx.jvp(np.sin, (X,), (np.ones(5),)), ValueError, r"tangents/0 has shape \(5,\)"),
        (lambda: fx.jvp(np.sin, (X,), (V + 0j,)), TypeError, "complex128"),
        (lambda: fx.jvp(np.sin, (np.arange(3),), (np.ones(3),)), TypeError, "argument 0"),
        (lambda: fx.jvp(np.sin, (X,), (V, V)), TypeError, "structure"),
        (lambda: fx.vjp(np.sin, X)[1](np.ones(5)), ValueError, r"\(5,\)"),
        (lambda: fx.vjp(np.sin, X)[1](V, V), TypeError, "one argument"),
        (lambda: fx.linearize(np.sin, X)[1](), TypeError, "structure"),
        (lambda: fx.vjp(3, X), TypeError, "function"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()


TIED = np.array([1.0, 2.0, 2.0, 0.0])


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda x: np.maximum(x, np.array([1.0, 3.0, 1.0, 0.0])).sum(), [0.5, 0.0, 1.0, 0.5]),
        (lambda x: np.minimum(x, np.array([1.0, 3.0, 1.0, 0.0])).sum(), [0.5, 1.0, 0.0, 0.5]),
        (lambda x: np.fmax(x, np.array([np.nan, 2.0, 3.0, -1.0])).sum(), [1.0, 0.5, 0.0, 1.0]),
        (lambda x: x.max(), [0.0, 0.5, 0.5, 0.0]),
        (lambda x: x.min(), [0.0, 0.0, 0.0, 1.0]),
        (lambda x: np.abs(x).sum(), [1.0, 1.0, 1.0, 0.0]),
        (lambda x: np.sort(x)[1:3].sum(), [1.0, 1.0, 0.0, 0.0]),
        (lambda x: (np.sign(x) + np.floor(x)).sum(), [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_choices_where_there_is_no_derivative(function, expected):
    np.testing.assert_array_equal(np.asarray(fx.grad(function)(TIED)), expected)
    basis = [float(fx.jvp(function, (TIED,), (unit,))[1]) for unit in np.eye(4)]
    np.testing.assert_array_equal(basis, expected)


def grown(x):
    y = x
    while (y * y).sum() < 50:
        y = y * 2
    return np.sin(y) * x[x > 0.15].sum()


def test_calls_of_many_sizes():
    for n in range(2, 8):
        x, g = np.linspace(0.1, 1, n), np.cos(np.arange(n))
        unit = 1e-6 * np.eye(n)
        expected = np.stack([(grown(x + e) - grown(x - e)) / 2e-6 for e in unit], axis=-1)
        np.testing.assert_allclose(np.asarray(fx.vjp(grown, x)[1](g)[0]), g @ expected, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(fx.linearize(grown, x)[1](g)), expected @ g, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(fx.jvp(grown, (x,), (g,))[1]), expected @ g, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(fx.jacobian(grown)(x)), expected, rtol=1e-6, atol=1e-8)
