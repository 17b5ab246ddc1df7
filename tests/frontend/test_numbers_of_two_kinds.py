"""``max(x[i], 0)`` is a NumPy float or Python's 0: beside floats of its type nobody can tell, elsewhere it shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import futurex as fx


def thresholds(x, w):
    out = np.zeros_like(x)
    for i in range(len(x)):
        out[i] = np.sign(x[i]) * max(abs(x[i]) - w[i], 0) / w[1]
    return out


def clipped(x, w):
    out, total = np.zeros_like(x), x[0]
    for i in range(len(x)):
        share = min(max(x[i], 0), 1)
        out[i] = share
        total = total + share
        total += w[i] * min(1, max(0, x[i] * 2))
        total -= max(x[i], 0)
        if max(x[i], -1) > w[i] or w[i] == min(x[i], 0):
            total -= w[0]
    return out, total


def assigned(x, w):
    out = np.zeros_like(x)
    for i in range(len(x)):
        if x[i] > w[i]:
            step = x[i]
        else:
            step = 0
        out[i] = step * w[i]
    return out


def chosen_twice(x, w):
    out = np.zeros_like(x)
    for i in range(len(x)):
        out[i] = max(x[i], 0) if w[i] > 0 else min(0.5, x[i])
    return out


def of_rows(x, w):
    y = x
    for i in range(len(x)):
        y = y + max(w[i], 0) * x - min(w[i], 0)
    return y


def roots(x, w):
    total = 0.0
    for i in range(len(x)):
        total += math.sqrt(max(x[i], 0)) + float(min(x[i], 1)) * float(np.sqrt(max(0, w[i])))
    return total


STAGED = [thresholds, clipped, assigned, chosen_twice, of_rows, roots]


def outcome(function, *args):
    result = function(*args)
    leaves = result if isinstance(result, tuple) else (result,)
    return [(type(leaf), np.asarray(leaf).dtype, np.asarray(leaf).tobytes()) for leaf in map(_value, leaves)]


def _value(leaf):
    return leaf.result() if hasattr(leaf, "result") else leaf


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", STAGED, ids=lambda each: each.__name__)
def test_it_is_one_number_beside_floats_of_its_type(function, dtype):
    if function is roots and dtype == "f4":
        pytest.skip("in single precision NumPy's root of an int has another type")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=60).astype(dtype), rng.normal(size=60).astype(dtype)
    x[3], x[4], w[5] = np.nan, -0.0, 0.0
    futurized = fx.futurize(function, escape="error")
    with np.errstate(all="ignore"):
        for _ in range(2):
            assert outcome(futurized, x, w) == outcome(function, x, w)
    assert any(node.op == "loop" for node in futurized.graph(x, w).nodes)


def ints(x, k):
    v = max(x[0], 0)
    return v * k, v + 1


def itself(x, k):
    return max(x[0], 0), max(x[1], 0)


def other_precision(x, k):
    return max(x.astype("f4")[0], 0.1) * x, max(x.astype("f4")[1], 0.1) * x


def division(x, k):
    return max(x[0], 0) // 2, max(x[1], 3) % 2, max(x[0], 0) ** 2, max(x[1], 0) ** 2


def written(x, k):
    out = np.zeros(3, int)
    for i in range(3):
        out[i] = max(x[i % 2], 0)
    return out


def large(x, k):
    return max(x[0], 2**53 + 1) * x, max(x[0], 2**53 + 1) - 2**53


@pytest.mark.parametrize(
    "function", [ints, itself, other_precision, division, written, large], ids=lambda each: each.__name__
)
def test_elsewhere_it_is_what_it_is(function):
    futurized = fx.futurize(function)
    for x in (np.array([-1.5, 2.5]), np.array([2.5, -1.5]), np.array([0.05, 0.05])):
        assert outcome(futurized, x, np.arange(3)) == outcome(function, x, np.arange(3))
