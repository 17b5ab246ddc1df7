"""Functions with prints and checks, to be differentiated (in test modules pytest rewrites asserts)."""

from dataclasses import dataclass

import numpy as np

import futurex as fx


def talkative(x):
    print("sum", x.sum())
    assert x[0] > 0, "the first must be positive"
    if x[1] > 5:
        raise ValueError("the second is too large")
    print("squares", x * x)
    return (x**3).sum()


@fx.futurize
def caller(x):
    print("begin")
    slope = fx.grad(talkative)(x)
    print("end")
    return slope


def looping(x):
    rounds = 0
    while (x * x).sum() < 60:
        print("round", rounds)
        assert rounds < 3, "too many rounds"
        x = x * 2
        rounds += 1
    return (x * x).sum()


def branching(x):
    if x[0] > 0:
        while (x * x).sum() < 60:
            print("in a branch")
            x = x * 2
    return (x * x).sum()


class Recorder:
    def __init__(self):
        self.last, self.history, self.named = 0.0, [], {}

    def attribute(self, x):
        self.last = x.sum()
        return (x * x).sum()

    def entry(self, x):
        self.history.append(x.sum())
        return (x * x).sum()

    def key(self, x):
        self.named["sum"] = x.sum()
        return (x * x).sum()


@fx.futurize
def recording(x):
    history = []

    def loss(x):
        history.append(x.sum())
        return (x * x).sum()

    return fx.grad(loss)(x), len(history)


@fx.futurize
def mapped(xs):
    history = []

    def loss(x):
        history.append(x.sum())
        return (x * x).sum()

    return fx.vmap(loss)(xs), len(history)


@dataclass
class Weights:
    w: np.ndarray


def keep_in_dict(given, x):
    given["kept"] = given["w"] * x
    return (given["kept"] ** 2).sum()


def keep_in_list(given, x):
    given.append(given[0] * x)
    return (given[-1] ** 2).sum()


def keep_in_object(given, x):
    given.kept = given.w * x
    return (given.kept**2).sum()


def keep_inside(given, x):
    given["all"].append({"kept": given["all"][0]["w"] * x})
    return (given["all"][-1]["kept"] ** 2).sum()
