"""Optimizers that scale their steps, schedules and clipping, against their definitions written out in float64."""

import math
import re
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

STEPS = 9


def gradients(seed):
    rng = np.random.default_rng(seed)
    return [{"a": rng.normal(size=(2, 3)), "b": rng.normal(size=3) * 10} for _ in range(STEPS)]


def start(dtype=np.float64):
    return {"a": np.full((2, 3), 2.0, dtype), "b": np.zeros(3, dtype)}


def trained(optimizer, grads, stage, params=None):
    update = fx.futurize(optimizer.update, escape="error") if stage else optimizer.update
    params = start() if params is None else params
    state = optimizer.init(params)
    for g in grads:
        params, state = update(params, {name: g[name].astype(params[name].dtype) for name in g}, state)
    return {name: np.asarray(value) for name, value in params.items()}


def by_hand(rule, grads):
    """Each array by itself: ``rule(p, g, t, memory)`` gives the next one."""
    params = start()
    memory = {name: {} for name in params}
    for t, g in enumerate(grads, 1):
        params = {name: rule(params[name], g[name], t, memory[name]) for name in params}
    return params


def rmsprop_by_hand(lr, decay, eps, momentum):
    def rule(p, g, t, memory):
        memory["v"] = decay * memory.get("v", 0.0) + (1 - decay) * g**2
        memory["b"] = momentum * memory.get("b", 0.0) + g / (np.sqrt(memory["v"]) + eps)
        return p - lr * memory["b"]

    return rule


def adagrad_by_hand(lr, eps):
    def rule(p, g, t, memory):
        memory["s"] = memory.get("s", 0.0) + g**2
        return p - lr * g / (np.sqrt(memory["s"]) + eps)

    return rule


def lars_by_hand(lr, momentum, decay, trust):
    """Algorithm 1 of arXiv 1708.03888, and the plain step where a norm is zero."""

    def rule(p, g, t, memory):
        size, slope = np.linalg.norm(p), np.linalg.norm(g)
        own = trust * size / (slope + decay * size) if size and slope else 1.0
        memory["v"] = momentum * memory.get("v", 0.0) + lr * own * (g + decay * p)
        return p - memory["v"]

    return rule


def lamb_by_hand(lr, b1, b2, eps, decay):
    """Algorithm 2 of arXiv 1904.00962, with the identity for phi, and Adam's step where a norm is zero."""

    def rule(p, g, t, memory):
        memory["m"] = b1 * memory.get("m", 0.0) + (1 - b1) * g
        memory["v"] = b2 * memory.get("v", 0.0) + (1 - b2) * g**2
        way = (memory["m"] / (1 - b1**t)) / (np.sqrt(memory["v"] / (1 - b2**t)) + eps) + decay * p
        size, length = np.linalg.norm(p), np.linalg.norm(way)
        return p - lr * (size / length if size and length else 1.0) * way

    return rule


def sgd_by_hand(rate):
    return lambda p, g, t, memory: p - rate(t - 1) * g


CASES = {
    "rmsprop": (fx.optim.rmsprop(0.02, 0.9, 1e-6), rmsprop_by_hand(0.02, 0.9, 1e-6, 0.0)),
    "rmsprop with momentum": (fx.optim.rmsprop(0.02, momentum=0.8), rmsprop_by_hand(0.02, 0.99, 1e-8, 0.8)),
    "adagrad": (fx.optim.adagrad(0.3), adagrad_by_hand(0.3, 1e-10)),
    "lars": (fx.optim.lars(2.0, 0.8, 1e-2, 0.05), lars_by_hand(2.0, 0.8, 1e-2, 0.05)),
    "lamb": (fx.optim.lamb(0.05, 0.8, 0.95, 1e-4, 0.1), lamb_by_hand(0.05, 0.8, 0.95, 1e-4, 0.1)),
}


@pytest.mark.parametrize("stage", [False, True], ids=["plain", "staged"])
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_definition(name, stage):
    optimizer, rule = CASES[name]
    grads = gradients(1)
    found, expected = trained(optimizer, grads, stage), by_hand(rule, grads)
    for each in expected:
        np.testing.assert_allclose(found[each], expected[each], rtol=1e-10, atol=1e-14)


SCHEDULES = {
    "stairs": (fx.optim.step_decay(0.5, every=3, factor=0.2), lambda t: 0.5 * 0.2 ** (t // 3)),
    "exponential": (fx.optim.exponential(0.5, every=3, factor=0.2), lambda t: 0.5 * 0.2 ** (t / 3)),
    "line": (fx.optim.polynomial(0.5, steps=6), lambda t: 0.5 * (1 - min(t / 6, 1))),
    "root": (fx.optim.polynomial(0.5, 6, power=0.5, least=0.1), lambda t: 0.1 + 0.4 * (1 - min(t / 6, 1)) ** 0.5),
    "cosine": (fx.optim.cosine(0.5, 6, 0.1), lambda t: 0.1 + 0.2 * (1 + math.cos(math.pi * min(t / 6, 1)))),
    "warm": (
        fx.optim.warmup(fx.optim.cosine(0.5, 6), steps=4, start=0.1),
        lambda t: 0.1 + 0.4 * t / 4 if t < 4 else 0.25 * (1 + math.cos(math.pi * min((t - 4) / 6, 1))),
    ),
}


def of_the_user(step):
    if step < 3:
        return 0.5
    return 0.1 if step < 6 else 0.01


SCHEDULES["the user's own"] = (of_the_user, of_the_user)


@pytest.mark.parametrize("stage", [False, True], ids=["plain", "staged"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_the_rate_of_every_step(name, stage):
    schedule, rate = SCHEDULES[name]
    grads = gradients(2)
    found = trained(fx.optim.scheduled(fx.optim.sgd(9.0), schedule), grads, stage)
    expected = by_hand(sgd_by_hand(rate), grads)
    for each in expected:
        np.testing.assert_allclose(found[each], expected[each], rtol=1e-10, atol=1e-12)


@settings(max_examples=20)
@given(st.floats(0.1, 100.0), st.booleans(), st.integers(0, 9))
def test_clipped_gradients_have_one_factor_and_at_most_the_norm(norm, stage, seed):
    grads = gradients(seed)[:2]

    def shortened(g):
        length = math.sqrt(sum((each**2).sum() for each in g.values()))
        return {name: each * min(1.0, norm / (length + 1e-6)) for name, each in g.items()}

    found = trained(fx.optim.clipped(fx.optim.sgd(1.0), norm), grads, stage)
    expected = by_hand(sgd_by_hand(lambda t: 1.0), [shortened(g) for g in grads])
    for each in expected:
        np.testing.assert_allclose(found[each], expected[each], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("stage", [False, True], ids=["plain", "staged"])
@pytest.mark.parametrize("decay", [0.0, 0.9])
@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: fx.optim.clipped(o, 5.0)], ids=["itself", "clipped"])
def test_an_average_follows_the_parameters(decay, stage, wrap):
    grads = gradients(4)
    inner = wrap(fx.optim.adam(0.1))
    for optimizer in (fx.optim.ema(inner, decay), wrap(fx.optim.ema(fx.optim.adam(0.1), decay))):
        update = fx.futurize(optimizer.update, escape="error") if stage else optimizer.update
        params, plain = start(), start()
        mean, state, plain_state = start(), optimizer.init(params), inner.init(plain)
        assert not any(np.shares_memory(params[name], fx.optim.average(state)[name]) for name in params)
        for g in grads:
            params, state = update(params, g, state)
            plain, plain_state = inner.update(plain, g, plain_state)
            mean = {name: decay * mean[name] + (1.0 - decay) * plain[name] for name in mean}
        for name in mean:
            np.testing.assert_allclose(np.asarray(params[name]), plain[name], rtol=1e-12)
            np.testing.assert_allclose(np.asarray(fx.optim.average(state)[name]), mean[name], rtol=1e-12)


EMA = {
    "here": {}, "scheduled": {"optimizer": fx.optim.scheduled(fx.optim.ema(fx.optim.sgd(1.0), 0.5), lambda step: 0.1)},
    "cluster": {"on": 2}, "shards": {"on": 2, "strategy": fx.strategy.zero()},
}  # fmt: skip


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [*list(EMA)[:2], *(pytest.param(n, marks=pytest.mark.cluster) for n in list(EMA)[2:])])
def test_fit_gives_the_average_with_the_state(name):
    x = np.random.default_rng(0).normal(size=(64, 32, 2))  # large enough to be cut into shards
    data, loss = (x, x.sum((1, 2))), lambda w, x, y: ((x.reshape(-1, 64) @ w).mean(1) - y).mean() ** 2
    options = {"optimizer": fx.optim.ema(fx.optim.sgd(0.1), 0.5), "batch_size": 64, "progress": False, **EMA[name]}
    first = np.ones((64, 40))
    with fx.Cluster(options["on"]) if "on" in options else nullcontext() as cluster:
        run = fx.fit(loss, first, data, epochs=2, **{**options, "on": cluster})
        result = run.result(timeout=60)
    once = fx.fit(loss, first, data, **{**options, "on": None, "strategy": None}).result(timeout=60)
    want = 0.5 * (0.5 * first + 0.5 * once) + 0.5 * result
    np.testing.assert_allclose(fx.optim.average(run.state), want, rtol=1e-9)


WRAPPED = {
    "average": fx.optim.ema(fx.optim.adam(0.1)),
    **{name: optimizer for name, (optimizer, _) in CASES.items()},
    "clipped schedule": fx.optim.clipped(fx.optim.scheduled(fx.optim.adam(), fx.optim.cosine(0.1, 5)), 1.0),
    "clipped by schedule": fx.optim.scheduled(fx.optim.clipped(fx.optim.lamb(), 1.0), fx.optim.exponential(0.1, 5)),
}


@pytest.mark.parametrize("stage", [False, True], ids=["plain", "staged"])
@pytest.mark.parametrize("name", WRAPPED)
def test_single_precision_stays_single(name, stage):
    result = trained(WRAPPED[name], gradients(3), stage, start(np.float32))
    assert {value.dtype for value in result.values()} == {np.dtype(np.float32)}
    assert all(np.isfinite(value).all() for value in result.values())


@pytest.mark.parametrize("name", WRAPPED)
def test_fit_trains_with_it(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3))
    data, loss = (x, x @ np.ones(3)), lambda w, x, y: ((x @ w - y) ** 2).mean()
    run = fx.fit(loss, np.full(3, 0.5), data, optimizer=WRAPPED[name], epochs=3, batch_size=16, progress=False)
    run.result(timeout=100)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda: fx.optim.rmsprop(decay=1.0), ValueError, "decay must be a number of at least 0 and below 1, not 1.0"),
        (lambda: fx.optim.adagrad(-1), ValueError, "lr must be a positive number, not -1"),
        (lambda: fx.optim.lars(0.1, weight_decay=-1), ValueError, "weight_decay must be a number of at least 0"),
        (lambda: fx.optim.lamb(eps=0), ValueError, "eps must be a positive number, not 0"),
        (lambda: fx.optim.clipped(fx.optim.sgd(1.0), 0), ValueError, "norm must be a positive number, not 0"),
        (lambda: fx.optim.clipped(fx.optim.Sgd, 1.0), TypeError, "clipped takes an optimizer, as fx.optim.adam(), not"),
        (lambda: fx.optim.ema(fx.optim.sgd(1.0), 1.0), ValueError, "decay must be a number of at least 0 and below 1"),
        (lambda: fx.optim.ema(0.1), TypeError, "ema takes an optimizer, as fx.optim.adam(), not 0.1"),
        (lambda: fx.optim.average(fx.optim.adam().init({})), TypeError, "average takes the state of an optimizer that"),
        (lambda: fx.optim.ema(fx.optim.adam()).update({}, {}, {}), TypeError, "update takes the parameters"),
        (lambda: fx.optim.scheduled(0.1, fx.optim.cosine(1.0, 2)), TypeError, "scheduled takes an optimizer"),
        (lambda: fx.optim.scheduled(fx.optim.sgd(1.0), 0.1), TypeError, "a schedule is a function of the step"),
        (lambda: fx.optim.warmup(0.1, 5), TypeError, "a schedule is a function of the step"),
        (lambda: fx.optim.cosine(0.1, 0), ValueError, "steps must be a positive number, not 0"),
        (lambda: fx.optim.lamb().update({}, {}, None), TypeError, "update takes the parameters"),
        (lambda: fx.optim.adam().update({}, None, {"m": 1}), TypeError, "update takes the parameters"),
    ],
)
def test_arguments_that_make_no_sense_are_named(call, error, said):
    with pytest.raises(error, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    "optimizer",
    [
        fx.optim.sgd(0.1), fx.optim.sgd(0.1, 0.9, nesterov=True), fx.optim.adamw(0.1), fx.optim.rmsprop(0.1),
        fx.optim.adagrad(0.1), fx.optim.lars(0.1), fx.optim.lamb(0.1),
        fx.optim.clipped(fx.optim.scheduled(fx.optim.sgd(1.0), fx.optim.cosine(0.1, steps=9)), norm=1.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", [False, True])
def test_complex_parameters_go_the_way_of_real_ones_turned(optimizer, stage):
    """A loss that sees distances alone is minimised along the same way in every direction of the plane."""
    def distance(params, target):
        return sum((np.abs(params[name] - target[name]) ** 2).sum() for name in params)

    def way(turn, dtype):
        step = fx.futurize(optimizer.update, escape="error") if stage else optimizer.update
        params = {name: (value + 0.5) * turn for name, value in start(dtype).items()}
        target = {name: value * turn for name, value in gradients(0)[0].items()}
        state = optimizer.init(params)
        for _ in range(STEPS):
            params, state = step(params, fx.grad(distance)(params, target), state)
        return {name: np.asarray(value) for name, value in params.items()}

    real, turn = way(1.0, np.float64), np.complex128(0.6 + 0.8j)
    turned = way(turn, np.complex128)
    for name in real:
        np.testing.assert_allclose(turned[name], real[name] * turn, rtol=1e-9, atol=1e-12)
        assert turned[name].dtype == np.complex128
