"""Programs: flat graphs of a function and its arguments."""

from __future__ import annotations

import os

import numpy as np
import pytest

import futurex as fx

OUTSIDE = np.ones(3)
GENERATOR = np.random.default_rng(0)


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

    said = r"test_program\.py.*writes into its argument x\n +x\[0\] = 1\.0\n.*\n.*copy"
    with pytest.raises(fx.StagingError, match=said):
        fx.lower(writes, np.ones(3))
    with pytest.raises(fx.StagingError, match=r"test_program\.py.*writes into an array from outside\n.*np\.add"):
        fx.lower(lambda x: np.add(x, OUTSIDE, out=OUTSIDE), np.ones(3))
    with pytest.raises(fx.StagingError, match=r"test_program\.py.*a random generator.*\n.*noise.*\n.*\n.*key"):
        fx.lower(lambda x: x + GENERATOR.normal(size=3), np.ones(3))  # noise
    with pytest.raises(fx.StagingError, match=r"test_program\.py.*the text of a value"):
        fx.lower(lambda x: x * len(str(x.sum())), np.ones(3))
    with pytest.raises(fx.StagingError, match=r"nothing returns None\n.*\n.*\n.*does a `return` lack"):
        fx.lower(nothing, np.ones(3))
    with pytest.raises(fx.StagingError, match=r"<lambda> returns 'tanh'\n.*\n.*\n.*leave it out"):
        fx.lower(lambda x: {"kind": "tanh", "y": np.tanh(x)}, np.ones(3))


def nothing(x):
    x + 1


def test_arrays_from_outside_are_constants_of_a_program(monkeypatch):
    weights = fx.futurize(np.exp)(np.arange(3.0))  # of a closure, and a future

    def weighted(x):
        kept = x[OUTSIDE > 0]
        return (kept * weights + OUTSIDE).sum() + kept.size

    x = np.arange(3.0)
    program = fx.lower(weighted, x)
    assert [node.aval.shape for node in program.graph.params] == [(3,)]
    assert program.graph(x)[0] == weighted(x)
    assert program.valid()
    monkeypatch.setattr(__import__(__name__, fromlist=["x"]), "OUTSIDE", np.array([1.0, 0.0, 1.0]))
    assert not program.valid()


def test_what_an_outside_array_holds_is_looked_at():
    held = np.ones(3)
    program = fx.lower(lambda x: x * held, np.ones(3))
    assert program.valid()
    held[1] = 2.0
    assert not program.valid()
    np.testing.assert_array_equal(program.graph(np.ones(3))[0], np.ones(3))


FACTOR = 1.0


def test_a_bound_function_sees_globals_that_change(monkeypatch):
    from futurex.runtime.group import SoloGroup

    bound = fx.futurize(lambda x: x * FACTOR).on(SoloGroup())
    assert float(bound(np.float64(2.0))) == 2.0
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert float(bound(np.float64(2.0))) == 10.0


def test_the_environment_is_read_at_every_call(monkeypatch):
    scaled = fx.futurize(lambda x: x * float(os.environ.get("FUTUREX_TEST_SCALE", "1")))
    got = fx.futurize(lambda x: x * float(os.getenv("FUTUREX_TEST_SCALE", "1")))
    assert (float(scaled(1.0)), float(got(1.0))) == (1.0, 1.0)
    monkeypatch.setenv("FUTUREX_TEST_SCALE", "7")
    assert (float(scaled(1.0)), float(got(1.0))) == (7.0, 7.0)


def test_a_boolean_choice_may_overwrite_its_condition():
    x = np.arange(4)
    np.testing.assert_array_equal(fx.futurize(lambda x: np.where(x > 1, True, False))(x), x > 1)

    def mask(x):
        x[x > 2] = 0
        return x.sum()

    flags = np.array([False, True, True])
    expected = flags.copy()
    assert int(fx.futurize(mask)(flags)) == int(mask(expected))
    np.testing.assert_array_equal(flags, expected)


def test_switched_off_futurex_is_plain_numpy():
    x, y = np.ones((4, 3), np.float32), np.array([0, 1, 2, 0])
    with fx.disable():
        loss = fx.nn.softmax_cross_entropy(x, y).mean()
        assert abs(float(loss) - np.log(3)) < 1e-6
        assert float((fx.grad(lambda w: (w * w).sum())(x) + 1).sum()) == 36.0


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def halved(x):
    parts = []
    while x > 1:
        parts.append(x)
        x = x / 2
    return np.array(parts)


@pytest.mark.parametrize("function, value", [(fibonacci, 7.0), (halved, 20.0)])
def test_recursions_and_lists_that_grow_by_data_are_lowered_as_they_are_futurized(function, value):
    program = fx.lower(function, value)
    np.testing.assert_array_equal(program.unflatten(program.graph(*program.flatten(value))), function(value))
