"""Programs: flat graphs of a function and its arguments."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx

OUTSIDE = np.ones(3)


def subtract(x, y):
    return x - 2 * y


def test_arguments_that_were_one_array_may_be_two_later():
    a, b = np.arange(3.0), np.ones(3)
    program = fx.lower(subtract, a, a)
    np.testing.assert_array_equal(program.graph(*program.flatten(a, b))[0], subtract(a, b))


def test_inputs_bear_the_names_of_the_parameters():
    def predict(params, x, *, scale):
        return (x @ params["layers"][0]["w"]) * scale

    params = {"layers": [{"w": np.ones((3, 2))}]}
    program = fx.lower(predict, params, np.ones((4, 3)), scale=2.0)
    assert program.paths == ("params/layers/0/w", "x", "scale")
    assert [node.attrs["name"] for node in program.graph.params] == ["params_layers_0_w", "x", "scale"]
    result = program.unflatten(program.graph(*program.flatten(params, np.ones((4, 3)), scale=3.0)))
    np.testing.assert_array_equal(result, np.full((4, 2), 9.0))


def test_another_structure_is_refused():
    program = fx.lower(subtract, np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="lowered for other arguments"):
        program.flatten(np.ones(3), [np.ones(3)])


def test_what_a_program_cannot_be():
    def writes(x):
        x[0] = 1.0
        return x.sum()

    with pytest.raises(fx.StagingError, match="writes into its argument x"):
        fx.lower(writes, np.ones(3))
    with pytest.raises(fx.StagingError, match="from outside its arguments"):
        fx.lower(lambda x: x + OUTSIDE, np.ones(3))
    with pytest.raises(fx.StagingError, match=r"test_program\.py.*boolean mask"):
        fx.lower(lambda x: x[x > 0].sum(), np.ones(3))
