"""Futurized functions that call others, and cannot be staged."""

import numpy as np
from scipy.linalg import sqrtm

import futurex as fx


@fx.futurize
def doubled(x):
    return x * 2


@fx.futurize
def total(x):
    return x.sum(), [x[0], int(x[1])], {"all": x + 1}


@fx.futurize
def first_raised(x):
    x[0] += 1
    return x


@fx.futurize
def refuses(x):
    if x.sum() > 0:
        raise ValueError("positive")
    return x


@fx.futurize
def root(x):
    return sqrtm(x), np.zeros((2, 3))


@fx.futurize
def appends(out, x):
    out.append(doubled(x))
    return out


class Walker:
    def __init__(self):
        self.at, self.seen = np.zeros(3), {}

    @fx.futurize
    def step(self, x):
        self.at = self.at + x
        return self.at.sum()

    @fx.futurize
    def walk(self, x):
        for k in range(4):
            reached = self.step(x + k)
            self.seen[reached] = self.seen.get(reached, 0) + 1
            self.at[0] = k
        return str(x.base), self.at, self.seen


def written(x):
    y = doubled(x)
    kind = type(y).__name__, str(x.base)
    y[0] = 7
    y += 1
    return kind, y, y[1:]


def keys(x):
    number, (first, second), rest = total(x)
    table = {number: 1, first: 2, second: 3}
    rest["all"][1] = 5
    return [table[key] for key in (x.sum(), x[0], int(x[1]))], type(second).__name__, rest, str(x.base)


def caught(x):
    try:
        refuses(x)
    except ValueError as error:
        return str(error), str(x.base)


def a_list_stays(x):
    out = [x]
    same = appends(out, x) is out
    out[1][0] = 9
    return same, out[1], str(x.base)


def beside_a_fragment(x):
    r, z = root(np.diag(x + 1)[:2, :2] + 0.25)
    z[0, 0] = 5
    return first_raised(r[:, 0]), r, z


def in_library(x):
    return sorted([x, -x], key=lambda each: doubled(each).sum())[0], max(map(total, [x]), key=len)[1], str(x.base)


PROGRAMS = [written, keys, caught, a_list_stays, beside_a_fragment, in_library]


class Tree:
    """A recursion over futurized methods that cannot be staged."""

    @fx.futurize
    def fit(self, x):
        self.root = self.built(x, 0)

    @fx.futurize
    def built(self, x, depth):
        best = None
        for k in range(len(x)):
            if x[k] > x.mean() and depth < 3:
                best = {"low": x[:k], "high": x[k:]}
        if best is None:
            return str(x.base), x.sum()
        return self.built(best["low"], depth + 1), self.built(best["high"], depth + 1)
