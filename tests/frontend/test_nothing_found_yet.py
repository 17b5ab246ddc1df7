"""``best = None`` before a loop: rounds carry what it may be, None or an array or nest, and flags that say which."""

import numpy as np
import pytest

import futurex as fx
from futurex.tree.node import made_here
from futurex.tree.pytree import flatten

X = np.random.default_rng(0).normal(size=(40, 5))
Y = X @ np.arange(5.0)
N = 30


def _step(w, x, y):
    e = x @ w - y
    return w - 0.1 * x.T @ e / len(y), np.mean(e**2)


def copies_of_an_array(x, y):
    best, least, w = None, np.inf, np.zeros(5)
    for _ in range(N):
        w, loss = _step(w, x, y)
        if loss < least:
            least, best = loss, w.copy()
    return best, least


def a_dict_and_early_stopping(x, y):
    best, least, wait, w, losses = None, np.inf, 0, np.zeros(5), []
    for epoch in range(N):
        w, loss = _step(w, x, y)
        losses.append(loss)
        if loss < least - 1e-2:
            least, wait = loss, 0
            best = {"w": w.copy(), "epoch": epoch, "loss": loss}
        else:
            wait += 1
            if wait > 2:
                break
    return best, least, np.array(losses)


def the_other_branch(x, y):
    best, least, w = None, np.inf, np.zeros(5)
    for _ in range(N):
        w, loss = _step(w, x, y)
        if not loss < least:
            continue
        least, best = loss, (w.copy(), w.sum())
    return best


def asked_behind_the_loop(x, y):
    best, _ = copies_of_an_array(x, y)
    if best is None:
        return np.full(5, -1.0)
    return best * 2


def a_while_loop(x, y):
    best, least, w, k = None, np.inf, np.zeros(5), 0
    while k < N and least > 1e-3:
        w, loss = _step(w, x, y)
        if loss < least:
            least, best = loss, {"w": w.copy()}
        k += 1
    return best, k


def restarts(x, y):
    best, least = None, np.inf
    for seed in range(8):
        w = np.full(5, 1.0 * seed)
        for _ in range(20):
            w, loss = _step(w, x, y)
        if loss < least:
            least, best = loss, {"w": w, "seed": seed}
    return best, least


def in_a_loop_in_a_loop(x, y):
    best, least = None, np.inf
    for seed in range(8):
        w = np.full(5, 1.0 * seed)
        for k in range(20):
            w, loss = _step(w, x, y)
            if loss * (1 + (7 * k) % 5) < least:
                least, best = loss, {"w": w, "seed": seed}
    return best, least


def rows_that_fit(x, y):
    best, most = None, 0
    for k in range(len(x)):
        inside = np.abs(y - x[k].sum()) < 2
        if inside.sum() > most:
            most, best = inside.sum(), inside
    return best, most


def a_grid_of_lists(x, y):
    best, least, found = None, np.inf, {}
    for scale in [0.01, 0.1, 1.0]:
        for degree in [1, 2, 3]:
            z = np.hstack([x**d for d in range(1, degree + 1)])
            w = np.linalg.solve(z.T @ z + scale * np.eye(z.shape[1]), z.T @ y)
            found[scale, degree] = np.mean((z @ w - y) ** 2)
            if found[scale, degree] < least:
                least, best = found[scale, degree], {"scale": scale, "w": z @ w}
    return best, least, found


def in_a_branch_of_a_branch(x, y):
    best, least, w = None, np.inf, np.zeros(5)
    for _ in range(N):
        w, loss = _step(w, x, y)
        if np.isfinite(loss):
            loss = loss + 0.5
            if loss < least:
                least, best = loss, {"how": "smaller", "w": w.copy()}
    return best, least


def a_list_of_layers(x, y):
    layers, history = [{"w": np.ones((5, 3))}, {"w": np.ones(3)}], []
    best, least, since = None, np.inf, 0
    for _ in range(N):
        h = np.tanh(x @ layers[0]["w"])
        e = h @ layers[1]["w"] - y
        g = np.outer(e, layers[1]["w"]) * (1 - h * h)
        steps = [x.T @ g / len(y), h.T @ e / len(y)]
        layers = [{"w": p["w"] - 0.05 * step} for p, step in zip(layers, steps, strict=True)]
        history.append(np.mean(e**2))
        if history[-1] < least - 1e-3:
            least, best, since = history[-1], [{k: v.copy() for k, v in p.items()} for p in layers], 0
        else:
            since += 1
            if since > 2:
                break
    return best, least, history


FUNCTIONS = [
    copies_of_an_array, a_dict_and_early_stopping, the_other_branch, asked_behind_the_loop, a_while_loop, restarts,
    in_a_loop_in_a_loop, rows_that_fit, a_grid_of_lists, in_a_branch_of_a_branch, a_list_of_layers,
]  # fmt: skip


def _assert_same(found, wanted):
    (mine, structure), (theirs, other) = flatten(found), flatten(wanted)
    assert structure == other
    for a, b in zip(mine, theirs, strict=True):
        if b is None or isinstance(b, str):
            assert a is b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
            assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize("function", FUNCTIONS)
def test_is_staged(function):
    f = fx.futurize(function)
    for scale in (1.0, 0.5, 2.0):
        _assert_same(f(X * scale, Y), function(X * scale, Y))
    assert "staged: " in f.explain(), f.explain()
    assert f.trace(X, Y).failed == 0


@pytest.mark.parametrize("function", FUNCTIONS)
def test_where_nothing_is_found(function):
    """Runs whose first rounds find nothing, or find it later, among others that do."""
    f = fx.futurize(function)
    nothing, late = np.full_like(Y, np.nan), Y.copy()
    late[:20] = 1e9
    for y in (Y, nothing, nothing, late, Y, nothing, nothing, nothing, Y, late):
        _assert_same(f(X, y), function(X, y))


def test_derivatives_are_of_what_is_found():
    def loss(w, y):
        best, least = None, np.inf
        for k in range(N):
            value = np.sum((w * k - y) ** 2)
            if value < least:
                least, best = value, w * k
        return np.sum(best**2)

    w = np.array([0.1, 0.2])
    gradient = fx.grad(loss)
    step = 1e-6
    wanted = [(loss(w + step * e, 1.0) - loss(w - step * e, 1.0)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(gradient(w, 1.0), wanted, rtol=1e-6)
    with pytest.raises(TypeError, match="'NoneType' and 'int'"):
        np.asarray(gradient(w, np.nan))


def test_numbers_need_no_such_runs():
    def f(x):
        found, total = None, 0
        for k in range(len(x)):
            total = total + x[k]
            if x[k] > 0.5:
                found = x[k]
        return total if found is None else found * 2

    futurized = fx.futurize(f)
    for x in (X[0], -np.ones(5), X[1]):
        assert float(futurized(np.tile(x, 4))) == f(np.tile(x, 4))
    assert "check" not in {node.op for node in futurized.graph(np.tile(X[0], 4)).nodes}


@pytest.mark.parametrize("scales", [[1.0, -2.0, 0.5], [1.0, -2.0, 0.5, 3.0, -0.5, 0.25]])
def test_in_rounds_of_a_loop_nothing_may_be_found(scales):
    def f(x):
        total = np.float64(0.0)
        for k in range(len(x)):
            best, least = None, np.inf
            for scale in scales:
                if 0.1 < scale * x[k] < least:
                    least, best = scale * x[k], np.array([x[k], scale])
            if best is not None:
                total = total + best.sum()
        return total

    futurized = fx.futurize(f)
    for x in (X[0], np.zeros(5), X[1]):
        x = np.tile(x, 6)
        np.testing.assert_allclose(float(futurized(x)), f(x), rtol=1e-12)
    assert "staged: " in futurized.explain(), futurized.explain()
    assert not futurized.trace(np.tile(X[0], 6)).waits


def test_choices_in_every_round_of_a_long_loop_are_given_up_early():
    def f(x, start):
        best, least, losses = start, np.inf, []
        for k in range(60):
            x = x - 0.1 * x**3
            losses.append(np.sum(x))
            if losses[-1] < least:
                least, best = losses[-1], {"w": x.copy()}
            elif k > 5:
                break
        return best, least, losses

    futurized, before = fx.futurize(f), made_here()
    _assert_same(futurized(X[0], {"w": X[1]}), f(X[0], {"w": X[1]}))
    assert "runs as plain NumPy" in futurized.explain()  # what it returns may be the argument
    assert made_here() - before < 5000


def test_parts_of_other_lengths_in_each_round():
    def f(x):
        found, least = None, np.inf
        for k in range(20):
            if x[k] < least:
                least, found = x[k], x[k:]
        return found

    futurized = fx.futurize(f)
    x = np.random.default_rng(3).normal(size=20)
    np.testing.assert_array_equal(futurized(x), f(x))
    np.testing.assert_array_equal(futurized(-x), f(-x))
