"""Programs of many fields, plain NumPy without a word of futurex: futurized they mean the same, and most are one graph.

Every module of this folder has a function of its own name, and ``example(rng)`` that makes its arguments.
"""

import copy
import importlib
from pathlib import Path

import numpy as np
import pytest
from compare import agree, is_staged, outcome, plain

import futurex as fx
from futurex.tree.pytree import flatten, unflatten

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if not path.stem.startswith("test_"))

# Programs that are not one graph, and why. They run as plain NumPy, whole or in fragments, and mean the same.
NOT_STAGED: dict[str, str] = {}

# Programs whose sums and products are taken in another order than NumPy's, which follows the layout in memory, and
# those that take exponentials, logarithms or lengths in compiled regions, or multiply singles in compiled loops.
ROUNDED = {
    "attention", "gram_schmidt", "lstm", "matrix_completion", "model_predictive", "molecular_dynamics",
    "option_pricing", "point_in_polygon", "qr_iteration", "sharpening", "spectrogram",
}  # fmt: skip

# Programs whose plans have one instruction, a loop that is compiled itself.
ONE_INSTRUCTION = {"dijkstra", "dithering", "nmf", "red_black"}

# Arguments that a program is differentiated by.
DIFFERENTIABLE = {
    "attention": (0, 1),
    "cholesky_factor": (0, 1),
    "conjugate_gradient": (1,),
    "cubic_spline": (1,),
    "filters": (0,),
    "gram_schmidt": (0, 1),
    "heat_equation": (0, 1),
    "jacobi": (1,),
    "kalman": (0, 6),
    "lorenz": (0,),
    "lu_pivoting": (0,),
    "molecular_dynamics": (0, 1),
    "neural_ode": (0, 1, 2),
    "nmf": (1, 2),
    "quantum_circuit": (0,),
    "red_black": (0,),
    "relaxation": (0, 1),
    "sea_water": (0, 1),
    "spectrogram": (0,),
    "wave_equation": (0, 1),
}


def load(name):
    module = importlib.import_module(name)
    return getattr(module, name), module.example


def known(names, reasons):
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=reasons[name], strict=True)) if name in reasons else name
        for name in names
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_means_the_same(name):
    function, example = load(name)
    futurized = fx.futurize(function)
    for seed in range(3):
        args = example(np.random.default_rng(seed))
        expected, actual = outcome(function, args), outcome(futurized, args)
        assert expected[0][0] == "value", expected
        assert actual == expected or (name in ROUNDED and agree(actual, expected)), futurized.explain()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_STAGED])
def test_compiled_as_one_function_means_the_same(name, at_once):
    function, example = load(name)
    futurized = fx.futurize(function)
    args = example(np.random.default_rng(3))
    expected = outcome(function, args)
    for _ in range(4):
        actual = outcome(futurized, args)
        assert actual == expected or (name in ROUNDED and agree(actual, expected)), futurized.explain()
    assert "runs as one compiled function" in futurized.explain() or name in ONE_INSTRUCTION


@pytest.mark.parametrize("name", known(NAMES, NOT_STAGED))
def test_is_one_graph(name):
    function, example = load(name)
    futurized = fx.futurize(function)
    assert is_staged(futurized, example(np.random.default_rng(0))) is True, futurized.explain()


def weighted(function):
    """A sum of all floating results with fixed weights: a scalar that depends on every one of them."""

    def scalar(*args):
        total = 0.0
        for k, leaf in enumerate(flatten(function(*args))[0]):
            leaf = np.asarray(leaf)
            if leaf.dtype.kind == "f":
                weights = np.cos(np.arange(leaf.size) + k).reshape(leaf.shape)
                total = total + (leaf * weights).sum()
        return total

    return scalar


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", known(DIFFERENTIABLE, NOT_STAGED))
def test_gradient_agrees_with_differences(name):
    """The gradient along random directions, one for each argument."""
    function, example = load(name)
    rng = np.random.default_rng(1)
    args, numbers, scalar = example(rng), DIFFERENTIABLE[name], weighted(function)
    value, gradients = plain(fx.value_and_grad(scalar, argnums=numbers)(*copy.deepcopy(args)))
    np.testing.assert_allclose(value, scalar(*copy.deepcopy(args)), rtol=1e-12)
    for number, gradient in zip(numbers, gradients, strict=True):
        leaves, structure = flatten(args[number])
        direction = [rng.normal(size=np.shape(leaf)) for leaf in leaves]
        expected = 0.0
        for step, weight in ((1e-5, 4 / 3), (2e-5, -1 / 3)):  # differences of fourth order
            ends = []
            for sign in (1, -1):
                moved = [leaf + sign * step * d for leaf, d in zip(leaves, direction, strict=True)]
                there = [*args[:number], unflatten(structure, moved), *args[number + 1 :]]
                ends.append(scalar(*copy.deepcopy(there)))
            expected += weight * (ends[0] - ends[1]) / (2 * step)
        actual = sum((g * d).sum() for g, d in zip(flatten(gradient)[0], direction, strict=True))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-8)
