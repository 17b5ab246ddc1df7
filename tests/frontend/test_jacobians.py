"""``jacobian`` in both modes against differences, ``hessian`` against its own symmetry and differences."""

import numpy as np
import pytest
from derivative_cases import X, cases

import futurex as fx


def columns(function, x, step=1e-6):
    """Central differences of an array function, by the last axes."""
    unit = np.eye(x.size).reshape(x.size, *x.shape)
    moved = [(np.asarray(function(x + step * u)) - np.asarray(function(x - step * u))) / (2 * step) for u in unit]
    return np.moveaxis(np.array(moved), 0, -1).reshape(*np.shape(moved[0]), *x.shape)


def rotate(x):
    y = np.zeros((2, 3))
    y[0] = np.sin(x[:3]) * x[3:]
    y[1] = x[::2] ** 2
    while np.abs(y).max() < 5:
        y = y * 1.5 + x[0]
    return y


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
def test_both_modes_are_the_differences(mode):
    got = np.asarray(fx.jacobian(rotate, mode=mode)(X))
    assert got.shape == (2, 3, 6)
    np.testing.assert_allclose(got, columns(rotate, X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("function", cases)
def test_hessians_are_symmetric_and_the_differences_of_gradients(function):
    got = np.asarray(fx.hessian(function)(X))
    np.testing.assert_allclose(got, got.T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got, columns(fx.grad(function), X, 1e-5), rtol=5e-4, atol=5e-4)


def pair(params, y, n):
    return {"z": params["a"] * y, "label": "z", "total": params["b"].sum() * n}


PARAMS = {"a": np.array([1.0, 2.0]), "b": np.ones((2, 2))}


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_nests_of_arguments_and_results(mode):
    y = np.array([3.0, 4.0])
    both = fx.jacobian(pair, argnums=(0, 1), mode=mode)(PARAMS, y, 2)
    assert both["label"] is None
    by_params, by_y = both["z"]
    np.testing.assert_array_equal(np.asarray(by_params["a"]), np.diag(y))
    np.testing.assert_array_equal(np.asarray(by_params["b"]), np.zeros((2, 2, 2)))
    np.testing.assert_array_equal(np.asarray(by_y), np.diag(PARAMS["a"]))
    np.testing.assert_array_equal(np.asarray(both["total"][0]["b"]), np.full((2, 2), 2.0))
    curvature = fx.hessian(lambda a, y: (a * y**2).sum(), argnums=(0, 1))(PARAMS["a"], y)
    np.testing.assert_array_equal(np.asarray(curvature[0][1]), np.diag(2 * y))
    np.testing.assert_array_equal(np.asarray(curvature[1][1]), np.diag(2 * PARAMS["a"]))


def test_complex_jacobians():
    z = np.array([1 + 2j, 0.5 - 1j])
    analytic = fx.jacobian(lambda z: z**2 * z[0], holomorphic=True)
    np.testing.assert_allclose(np.asarray(analytic(z)), [[3 * z[0] ** 2, 0], [z[1] ** 2, 2 * z[0] * z[1]]])
    turned = fx.jacobian(lambda x: np.exp(1j * x))(X)
    np.testing.assert_allclose(np.asarray(turned), np.diag(1j * np.exp(1j * X)))
    with pytest.raises(TypeError, match="holomorphic"):
        fx.jacobian(np.abs)(z)
    with pytest.raises(TypeError, match="forward"):
        fx.jacobian(lambda x: x * 1j, mode="reverse")(X)


def test_composition_with_vmap_and_grad():
    xs = np.stack([X, 2 * X])
    mapped = np.asarray(fx.vmap(fx.hessian(cases[0]))(xs))
    np.testing.assert_allclose(mapped, [np.asarray(fx.hessian(cases[0])(x)) for x in xs], rtol=1e-10)
    trace = fx.grad(lambda x: np.trace(fx.hessian(lambda x: (x**4).sum())(x)))(X)
    np.testing.assert_allclose(np.asarray(trace), 24 * X)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'forward', 'reverse'"):
        fx.jacobian(np.sin, mode="backward")


@pytest.mark.parametrize("derived", [fx.jacobian, fx.grad, fx.hessian])
def test_a_result_of_two_types_has_the_derivatives_of_the_one_it_is(derived):
    def of_two_types(x):
        if x[0] > 0:
            return (x**3).sum()
        return 0

    for x in (X, -X):
        expected = derived(lambda x: np.sum(np.where(x[0] > 0, x**3, 0 * x)))(x)
        np.testing.assert_allclose(np.asarray(derived(of_two_types)(x)), np.asarray(expected))
