"""What a differentiated function changes outside of itself is changed once, to what the plain call leaves there."""

import copy

import change_cases as cases
import numpy as np
import pytest
from change_cases import METHODS, Model

import futurex as fx


def grad(f, w, x):
    return fx.grad(f)(w, x)


def value_and_grad(f, w, x):
    return fx.value_and_grad(f)(w, x)[1]


def jacobian(f, w, x):
    return fx.jacobian(f)(w, x)


def vjp(f, w, x):
    return fx.vjp(f, w, x)[1](1.0)[0]


def checkpoint(f, w, x):
    return fx.grad(fx.checkpoint(f))(w, x)


def jvp(f, w, x):
    return fx.jvp(f, (w, x), (np.ones(3), np.zeros(3)))[1]


def linearize(f, w, x):
    return fx.linearize(f, w, x)[1](np.ones(3), np.zeros(3))


def hessian(f, w, x):
    fx.hessian(f)(w, x)


def grad_of_grad(f, w, x):
    fx.grad(lambda w: (fx.grad(f)(w * 1, x) ** 2).sum())(w)


def slopes(method, model, w, x):
    """By differences."""
    steps = 1e-6 * np.eye(3)
    values = [[getattr(copy.deepcopy(model), method)(each, x) for each in (w + step, w - step)] for step in steps]
    return np.array([(a - b) / 2e-6 for a, b in values])


def assert_same(found, expected, path="model"):
    assert type(found) is type(expected), (path, type(found))
    if isinstance(expected, dict | list | tuple):
        pairs = expected.items() if isinstance(expected, dict) else enumerate(expected)
        assert list(found) == list(expected) if isinstance(expected, dict) else len(found) == len(expected)
        for key, each in pairs:
            assert_same(found[key], each, f"{path}/{key}")
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=path)
        assert (found.dtype, found.strides) == (expected.dtype, expected.strides), path
    else:
        assert found == pytest.approx(expected), path


DERIVATIVES = [grad, value_and_grad, jacobian, vjp, checkpoint, jvp, linearize, hessian, grad_of_grad]


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("method", METHODS)
def test_what_the_plain_call_leaves_is_left(derivative, method, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    if (derivative, method) == (grad_of_grad, "argument"):
        pytest.skip("the argument there is what the function around makes")
    mine, theirs = Model(), Model()
    for k in range(4):
        w, x = np.array([1.0, 2.0, 3.0]) * (k + 1) * (-1) ** k, np.array([0.1, 0.2, 0.4]) + k
        expected = slopes(method, theirs, w, x)
        getattr(theirs, method)(w, x)
        found = derivative(getattr(mine, method), w, x)
        if found is not None:
            along = derivative in (jvp, linearize)
            np.testing.assert_allclose(np.asarray(found), expected.sum() if along else expected, rtol=1e-4, atol=1e-6)
        assert_same(vars(mine), vars(theirs))
        if method == "entry":
            assert mine.same is mine.cache["x"] is mine.view.base
        if method == "argument":
            assert mine.last is w is mine.view.base
        if method == "nest":
            assert mine.cache["y"] is mine.cache["pair"][0] is mine.cache["rows"][0]
            assert mine.cache["rows"][1]["x"] is x or derivative is grad_of_grad


def test_what_is_returned_beside_the_value_is_the_array_that_is_kept():
    model = Model()
    gradient = fx.grad(cases.with_aux(model), has_aux=True)
    for k in range(3):
        slope, h = gradient(np.arange(3.0) + k, np.ones(3))
        assert h is model.h
        np.testing.assert_allclose(np.asarray(slope), 2 * (np.arange(3.0) + k))


def test_so_is_one_from_outside():
    model = Model()
    running, gradient = model.running, fx.grad(cases.with_aux_from_outside(model), has_aux=True)
    for k in range(1, 4):
        slope, (kept, _) = gradient(np.ones(3), np.ones(3) * k)
        assert kept is model.h is model.running is running
        assert running.tolist() == [5, 0, 0]
        np.testing.assert_allclose(np.asarray(slope), [5 * k, 0, 0])


def test_a_dict_that_is_changed_and_returned_is_one_dict():
    model = Model()
    cache, gradient = model.cache, fx.grad(cases.with_aux_dicts(model), has_aux=True)
    for k in range(1, 4):
        _, (returned, (inner,)) = gradient(np.ones(3), np.ones(3) * k)
        assert returned is model.cache is cache
        assert cache["x"].tolist() == [k, k, k]
        assert inner["y"] is cache["x"]
    same, length, slope = cases.outer_with_a_dict(np.ones(3), {})
    assert (bool(same), int(length), np.asarray(slope).tolist()) == (True, 2, [2, 2, 2])


def test_a_function_around_sees_the_changes():
    w = np.arange(6.0)
    for k in range(4):
        gradient, u, h = map(np.asarray, cases.outer(w, k))
        expected = w * 3
        np.testing.assert_allclose(gradient, 2 * expected[1:])
        np.testing.assert_allclose(h, expected[1:] ** 2)
        expected[1 + k] = 100.0
        np.testing.assert_allclose(u, expected)
        assert np.shares_memory(u, cases.model.view)


def test_lists_and_dicts_of_the_function_around_are_changed_at_each_step():
    for k in range(1, 4):
        w, history, best = cases.recording(np.arange(3.0) * k, 0.1)
        np.testing.assert_allclose(np.asarray(w), np.arange(3.0) * k * 0.8**3)
        np.testing.assert_allclose([float(each) for each in history], [5 * k**2 * 0.8 ** (2 * n) for n in range(3)])
        assert best["n"] == 3
        np.testing.assert_allclose(np.asarray(best["w"]), np.arange(3.0) * k * 0.8**2)


def test_rounds_around_the_derivative_carry_the_changes():
    for k in range(1, 4):
        found = cases.recording_in_rounds(np.arange(3.0) * k, 0.1)
        for mine, theirs in zip(found, cases.recorded_in_rounds(np.arange(3.0) * k, 0.1), strict=True):
            np.testing.assert_allclose(np.asarray(mine), theirs)


@pytest.mark.parametrize(
    "call, line",
    [
        (lambda: fx.grad(cases.writes_its_argument)(np.ones(3), np.ones(3)), "model.last = w"),
        (lambda: fx.grad(cases.keeps_a_function)(np.ones(3), np.ones(3)), "model.h = lambda: w"),
        (lambda: fx.grad(cases.in_rounds)(np.ones(3), np.ones(3)), "model.running = model"),
        (lambda: fx.grad(cases.appends)(np.ones(3), np.ones(3)), "history.append"),
        (lambda: fx.grad(lambda w: fx.vmap(lambda v: cases.own_rule(v).sum())(w).sum())(np.eye(3)), "model.h = x"),
        (lambda: fx.grad(lambda w: fx.vmap(lambda v: cases.in_rounds(v, v))(w).sum())(np.eye(3)), "model.running = "),
        (lambda: fx.grad(lambda w: cases.own_rule(w).sum())(np.ones(3)), "model.h = x \\* 2"),
    ],
)
def test_what_cannot_be_done_as_the_function_does_it_is_refused_at_its_line(call, line):
    model = cases.model
    model.h, model.last, model.running = before = None, None, np.zeros(3)
    with pytest.raises(fx.StagingError, match=line):
        call()
    assert all(a is b for a, b in zip((model.h, model.last, model.running), before, strict=True))
    assert not cases.history


def test_an_argument_that_is_changed_by_another_name_is_refused():
    with pytest.raises(fx.StagingError, match="shares memory"):
        fx.grad(cases.through_another_name)(np.ones(3), cases.model.cache)
    assert "y" not in cases.model.cache
