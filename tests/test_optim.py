"""Optimizers against their published definitions, written out in float64, and against NEP 50."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

STEPS = 7


def gradients(shape, seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for _ in range(STEPS)]


def trained(optimizer, start, grads, stage):
    update = fx.futurize(optimizer.update) if stage else optimizer.update
    params, state = {"a": start}, optimizer.init({"a": start})
    for g in grads:
        params, state = update(params, {"a": g}, state)
    return np.asarray(params["a"])


# The definitions are those of the algorithm boxes in the documentation of torch.optim.SGD, Adam and AdamW.


def sgd_by_hand(p, grads, lr, momentum, nesterov):
    buffer = None
    for g in grads:
        if momentum:
            buffer = g if buffer is None else momentum * buffer + g
            g = g + momentum * buffer if nesterov else buffer
        p = p - lr * g
    return p


def adam_by_hand(p, grads, lr, b1, b2, eps, weight_decay=0.0):
    m = v = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        p = p - lr * weight_decay * p
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p


@settings(max_examples=20)
@given(st.floats(1e-4, 1.0), st.sampled_from([0.0, 0.5, 0.9]), st.booleans(), st.booleans(), st.integers(0, 9))
def test_gradient_descent(lr, momentum, nesterov, stage, seed):
    nesterov = nesterov and momentum > 0
    start, grads = np.ones((2, 3)), gradients((2, 3), seed)
    result = trained(fx.optim.sgd(lr, momentum, nesterov), start, grads, stage)
    np.testing.assert_allclose(result, sgd_by_hand(start, grads, lr, momentum, nesterov), rtol=1e-12)


@settings(max_examples=20)
@given(
    st.floats(1e-4, 1.0), st.sampled_from([0.0, 0.9]), st.sampled_from([0.9, 0.999]), st.sampled_from([1e-8, 1e-2]),
    st.booleans(), st.integers(0, 9),
)  # fmt: skip
def test_adam(lr, b1, b2, eps, stage, seed):
    start, grads = np.ones((2, 3)), gradients((2, 3), seed)
    result = trained(fx.optim.adam(lr, b1, b2, eps), start, grads, stage)
    np.testing.assert_allclose(result, adam_by_hand(start, grads, lr, b1, b2, eps), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("stage", [False, True])
def test_adamw_shrinks_the_parameters_apart_from_the_gradient(stage):
    start, grads = np.full((3,), 2.0), gradients((3,), 1)
    result = trained(fx.optim.adamw(0.01, weight_decay=0.3), start, grads, stage)
    np.testing.assert_allclose(result, adam_by_hand(start, grads, 0.01, 0.9, 0.999, 1e-8, 0.3), rtol=1e-12)
    assert np.abs(result - adam_by_hand(start, grads, 0.01, 0.9, 0.999, 1e-8)).min() > 1e-3


OPTIMIZERS = {
    "sgd": fx.optim.sgd(0.1), "momentum": fx.optim.sgd(0.1, 0.9), "nesterov": fx.optim.sgd(0.1, 0.9, True),
    "adam": fx.optim.adam(0.1), "adamw": fx.optim.adamw(0.1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_changes_its_dtype_and_nothing_is_traced_twice(name, dtype):
    optimizer = OPTIMIZERS[name]
    update = fx.futurize(lambda p, g, s: optimizer.update(p, g, s))
    params, grads = [np.ones(3, dtype)], [np.ones(3, dtype)]
    state = optimizer.init(params)
    for _ in range(5):
        params, state = update(params, grads, state)
    leaves = [params[0], *(leaf[0] for leaf in state.values() if isinstance(leaf, list))]
    assert {np.asarray(leaf).dtype for leaf in leaves} == {np.dtype(dtype)}
    assert "2 trace(s)" in update.explain()  # the first call had floats, all others the results of the one before
    assert "plain NumPy" not in update.explain()


def test_the_learning_rate_can_be_changed_between_steps():
    optimizer = fx.optim.sgd(0.1)
    params, state = optimizer.update(np.zeros(1), np.ones(1), optimizer.init(np.zeros(1)))
    params, _ = optimizer.update(params, np.ones(1), state | {"lr": 1.0})
    np.testing.assert_allclose(params, [-1.1])


def test_a_step_changes_none_of_its_arguments():
    for optimizer in OPTIMIZERS.values():
        params, grads = {"w": np.ones(3)}, {"w": np.ones(3)}
        state = optimizer.init(params)
        optimizer.update(params, grads, state)
        np.testing.assert_array_equal(params["w"], 1.0)
        for leaf in state.values():
            if isinstance(leaf, dict):
                np.testing.assert_array_equal(leaf["w"], 0.0)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fx.optim.sgd(0.0), "lr must be a positive number, not 0.0"),
        (lambda: fx.optim.sgd("0.1"), "lr must be a positive number, not '0.1'"),
        (lambda: fx.optim.sgd(0.1, momentum=None), "momentum must be a number of at least 0 and below 1, not None"),
        (lambda: fx.optim.sgd(float("nan")), "nan"),
        (lambda: fx.optim.sgd(0.1, momentum=1.0), "momentum"),
        (lambda: fx.optim.sgd(0.1, nesterov=True), "give momentum as well"),
        (lambda: fx.optim.adam(b1=1.0), "b1"),
        (lambda: fx.optim.adam(b2=-0.1), "b2"),
        (lambda: fx.optim.adam(eps=0.0), "eps"),
        (lambda: fx.optim.adamw(weight_decay=-1.0), "weight_decay"),
        (lambda: fx.optim.adam().update({"a": np.ones(1)}, {"b": np.ones(1)}, fx.optim.adam().init({"a": np.ones(1)})),
         "differ in structure"),
    ],
)  # fmt: skip
def test_bad_values_are_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize("make", [fx.optim.sgd, fx.optim.adam, fx.optim.adamw])
@pytest.mark.parametrize("stage", [False, True])
def test_the_order_of_other_libraries_is_refused(make, stage):
    optimizer, params = make(1e-2), {"w": np.ones(3)}
    update = fx.futurize(optimizer.update) if stage else optimizer.update
    with pytest.raises(TypeError, match=r"in this order.*a dict with lr"):
        update(params, optimizer.init(params), params)


@pytest.mark.parametrize("make", [fx.optim.adam, fx.optim.adamw])
def test_a_step_writes_over_what_it_is_given_away(make):
    """Nothing in it may have the call run again, for which its arguments would be kept."""
    optimizer = make(1e-3)

    @fx.futurize(donate=("params", "state"))
    def step(params, state, gradient):
        return optimizer.update(params, gradient, state)

    gradient = {"w": np.ones((64, 64), np.float32)}
    params = {"w": np.ones((64, 64), np.float32)}
    state = optimizer.init(params)
    places = []
    for _ in range(6):
        params, state = step(params, state, gradient)
        places.append([np.asarray(each["w"]).ctypes.data for each in (params, state["m"], state["v"])])
    assert places[2:] == places[1:2] * 4
