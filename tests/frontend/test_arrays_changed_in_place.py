"""An array from outside whose shape or dtype is set in place, or that is resized, is another input from then on."""

import warnings

import numpy as np
import pytest

import futurex as fx

WEIGHTS = np.arange(6.0)


class Holder:
    def __init__(self, weights):
        self.weights = weights


def of_a_global(x, holder):
    for k in range(3):
        x = x + np.tanh(WEIGHTS) * k
    return x


def of_an_attribute(x, holder):
    return x * holder.weights + holder.weights.sum()


def of_two_names(x, holder):
    return (x * holder.weights if holder.weights is WEIGHTS else x) + WEIGHTS.sum()


def shaped(array, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # setting a shape is deprecated
        array.shape = shape


CHANGES = {
    "shape": lambda array: shaped(array, (6, 1)),
    "dtype": lambda array: setattr(array, "dtype", np.int64),
    "smaller": lambda array: array.resize(1, refcheck=False),
    "back": lambda array: array.resize(6, refcheck=False),
}


@pytest.mark.parametrize("calls", [1, 3, 40])
@pytest.mark.parametrize("function", [of_a_global, of_an_attribute, of_two_names])
def test_an_array_that_is_changed_in_place_is_another_input(function, calls, monkeypatch):
    monkeypatch.setitem(globals(), "WEIGHTS", np.arange(6.0))
    f, x, holder = fx.futurize(function), np.ones(6), Holder(WEIGHTS if calls == 3 else np.arange(6.0))
    for change in ("no", *CHANGES):
        for array in {id(each): each for each in (WEIGHTS, holder.weights)}.values():
            CHANGES.get(change, lambda array: None)(array)
        for _ in range(calls):
            found, expected = np.asarray(f(x, holder)), function(x, holder)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert np.allclose(found, expected)


def test_strides_that_are_set_in_place(monkeypatch):
    monkeypatch.setitem(globals(), "WEIGHTS", np.arange(12.0)[::2])
    f, x = fx.futurize(of_a_global), np.ones(3)
    for shape in ((6, 1), (3, 2), (2, 3)):
        shaped(WEIGHTS, shape)
        for _ in range(5):
            if shape == (3, 2):
                with pytest.raises(ValueError, match="broadcast"):
                    f(x, None).result()
            else:
                assert np.allclose(f(x, None), of_a_global(x, None))
