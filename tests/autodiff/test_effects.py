"""Prints and checks inside differentiated functions run once, in order, and errors name the user's line."""

import traceback

import numpy as np
import pytest
from effect_cases import (
    Recorder,
    Weights,
    branching,
    caller,
    keep_in_dict,
    keep_in_list,
    keep_in_object,
    keep_inside,
    looping,
    mapped,
    recording,
    talkative,
)

import futurex as fx
from futurex.tree.pytree import flatten

X = np.array([1.0, 2.0, 3.0])
PRINTED = "sum 6.0\nsquares [1. 4. 9.]\n"


@pytest.mark.parametrize(
    "derivative, expected",
    [
        (fx.grad(talkative), 3 * X**2),
        (lambda x: fx.value_and_grad(talkative)(x)[1], 3 * X**2),
        (fx.grad(lambda x: fx.grad(talkative)(x).sum()), 6 * X),
    ],
)
def test_effects_run_once_and_in_order(derivative, expected, capsys):
    result = derivative(X)
    assert capsys.readouterr().out == PRINTED
    np.testing.assert_allclose(np.asarray(result), expected)


def test_effects_keep_their_place_among_those_of_the_caller(capsys):
    np.testing.assert_allclose(np.asarray(caller(X)), 3 * X**2)
    assert capsys.readouterr().out == f"begin\n{PRINTED}end\n"


@pytest.mark.parametrize(
    "x, error, line",
    [([-1.0, 2.0], AssertionError, "assert x[0] > 0"), ([1.0, 7.0], ValueError, "raise ValueError")],
)
def test_an_error_names_the_line_of_the_check(x, error, line):
    with pytest.raises(error) as caught:
        np.asarray(fx.grad(talkative)(np.array(x)))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert line in last.line
    assert last.filename.endswith("effect_cases.py")


def pulled(function):
    return lambda x: fx.vjp(function, x)[1](1.0)[0]


def pushed(function):
    def gradient(x):
        _, linear = fx.linearize(function, x)
        return [linear(unit) for unit in np.eye(3)]

    return gradient


@pytest.mark.parametrize("derivative", [fx.grad, pulled, pushed, fx.jacobian, lambda f: fx.grad(fx.checkpoint(f))])
@pytest.mark.parametrize(
    "function, printed", [(looping, "round 0\nround 1\n"), (branching, "in a branch\nin a branch\n")]
)
def test_what_runs_again_for_a_derivative_prints_once(derivative, function, printed, capsys):
    np.testing.assert_allclose(np.asarray(derivative(function)(X)), 2 * 16 * X)
    assert capsys.readouterr().out == printed


def test_a_check_in_a_loop_fails_under_a_derivative():
    with pytest.raises(AssertionError, match="too many"):
        np.asarray(fx.grad(looping)(X * 0.01))


@pytest.mark.parametrize("derivative", [fx.grad, pulled, pushed, fx.jacobian, lambda f: fx.grad(fx.checkpoint(f))])
def test_a_list_elsewhere_that_grows_at_every_call_is_refused_at_its_line(derivative):
    recorder = Recorder()
    with pytest.raises(fx.StagingError, match=r"effect_cases.py:\d+: changing how long a list is(.|\n)*x\.sum\(\)"):
        derivative(recorder.entry)(X)
    assert (recorder.last, recorder.history, recorder.named) == (0.0, [], {})


@pytest.mark.parametrize("derivative", [fx.grad, pulled, pushed, fx.jacobian, lambda f: fx.grad(fx.checkpoint(f))])
def test_what_a_differentiated_function_records_elsewhere_is_recorded(derivative):
    recorder = Recorder()
    for k in range(1, 4):
        derivative(recorder.attribute)(k * X)
        derivative(recorder.key)(k * X)
        assert (recorder.last, recorder.history, recorder.named) == (6.0 * k, [], {"sum": 6.0 * k})


def test_so_it_is_in_what_its_caller_made():
    for k in range(3):
        slope, count = recording(X + k)
        np.testing.assert_allclose(np.asarray(slope), 2 * (X + k))
        assert count == 1


def test_what_each_example_records_is_recorded():
    recorder = Recorder()
    fx.vmap(recorder.entry)(np.stack([X, 2 * X]))
    assert recorder.history == [6.0, 12.0]
    assert mapped(np.stack([X, 2 * X]))[1] == 2


@pytest.mark.parametrize(
    "keeping, given", [(keep_in_dict, {"w": X}), (keep_in_list, [X]), (keep_in_object, Weights(X)),
                       (keep_inside, {"all": [{"w": X}]})],
)  # fmt: skip
def test_nests_of_arguments_are_copies_and_may_be_changed(keeping, given):
    """The caller's see nothing of it."""
    before = repr(given)
    for derivative in (fx.grad(keeping), fx.grad(fx.checkpoint(keeping)), fx.futurize(fx.grad(keeping))):
        for _ in range(2):
            slope = derivative(given, X)
            assert type(slope) is type(given)
            np.testing.assert_allclose(np.asarray(flatten(slope)[0][0]), 2 * X**3)
            assert repr(given) == before
