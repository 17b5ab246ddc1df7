"""Prints and checks inside differentiated functions run once, in order, and errors name the user's line."""

import numpy as np
import pytest
from effect_cases import caller, talkative

import futurex as fx

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
    [([-1.0, 2.0], AssertionError, "assert x[0] > 0"), ([1.0, 7.0], ValueError, "if x[1] > 5")],
)
def test_an_error_names_the_line_of_the_check(x, error, line):
    with pytest.raises(error) as caught:
        np.asarray(fx.grad(talkative)(np.array(x)))
    assert any(line in note and "effect_cases.py" in note for note in caught.value.__notes__)
