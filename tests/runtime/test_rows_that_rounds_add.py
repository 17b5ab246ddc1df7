"""Lists that outgrow the memory which compiled loops have for them: their loops go round by round, and add rows to what
is there without copying it."""

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.structured import _adding_rows

ROW = 3000


def kept(x, end):
    t, path = 0.0, []
    while t < end:
        x = x * 0.999 + t
        path.append(x)
        t += 1.0
    return np.array(path), len(path)


def several(x, end):
    t, path, speeds = 0.0, [x], [x * 2, x]
    while t < end:
        path.append(path[-1] * 0.5 + speeds[0])
        speeds.append(path[len(path) // 2])
        speeds.append(x + t)
        t += 1.0
    path[3] = x
    return np.stack(path), np.stack(speeds), path[3].sum()


def until_long(x, end):
    path = [x]
    while len(path) < end:
        path.append(path[-1] + 1.0)
    last = path[-1] * 1.0
    return np.array(path).sum(axis=1), last


def pairs(x, end):
    t, path = 0.0, []
    while t < end:
        path.append((x * t, t))
        t += 1.0
    return np.array([a for a, _ in path]).sum(axis=0), sum(b for _, b in path)


def again_and_again(x, end):
    totals = []
    for k in range(3):
        t, path = 0.0, [x * k]
        while t < end:
            path.append(path[0] * t)
            t += 1.0
        totals.append(np.array(path).sum())
    return totals


def in_a_branch(x, end):
    t, path = 0.0, [x]
    while t < end:
        if x[0] * t > 3 * t - 2:
            path.append(x + t)
        t += 1.0
    return np.array(path)


def _arrays(result):
    return [np.asarray(each) for each in (result if isinstance(result, tuple | list) else (result,))]


@pytest.mark.parametrize("function", [kept, several, until_long, pairs, again_and_again, in_a_branch])
def test_they_hold_what_python_lists_hold(function):
    staged, found = fx.futurize(function), []
    for k, end in enumerate((5.0, 120.0, 130.0, 120.0)):
        x = np.linspace(0.0, 1.0 + k, ROW)
        found.append((_arrays(staged(x, end)), _arrays(function(x.copy(), end))))
    for mine, theirs in found:  # later calls have left the earlier results alone
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_derivatives():
    def loss(x, end):
        return (kept(x, end)[0] ** 2).sum()

    x, step = np.linspace(0.0, 1.0, ROW), np.eye(1, ROW)[0] * 1e-4
    slope = (loss(x + step, 100.0) - loss(x - step, 100.0)) / 2e-4
    assert float(fx.grad(loss)(x, 100.0)[0]) == pytest.approx(slope, rel=1e-5)


def test_plans_of_rounds_give_the_rows_alone():
    staged, x = fx.futurize(kept), np.ones(ROW)
    for _ in range(2):
        staged(x, 5.0)
    (loop,) = [node for node in staged.graph(x, 5.0).nodes if node.op == "loop"]
    body, growing = _adding_rows(loop.attrs["body"], ())
    assert len(growing) == 1
    assert not [node for node in body.nodes if node.op == "concatenate"]
    assert _adding_rows(loop.attrs["body"], tuple(growing)) == (loop.attrs["body"], frozenset())
