"""Functions of arrays inside globals, containers, dataclasses and objects."""

import dataclasses
from collections import namedtuple

import numpy as np
from compare import Cases
from view_cases import N, V, X

cases = Cases()
TABLE = np.arange(4.0)
PAIR = (np.ones(4), np.arange(4.0))
BANK = {"w": np.full(4, 2.0), "rows": [np.ones(4), np.zeros(4)]}


@cases(X)
def global_arrays(x):
    w = BANK["w"]
    a, b = PAIR
    total = x + TABLE + w + a * b
    for row in BANK["rows"]:
        total = total + row * 2 + (row + 1)
    return total, TABLE * 2, [r + 1 for r in BANK["rows"]]


@dataclasses.dataclass
class Weights:
    w: np.ndarray
    b: float


Point = namedtuple("Point", "x y")


class Model:
    def __init__(self):
        self.w = np.arange(4.0)
        self.rate = 0.5

    def __deepcopy__(self, memo):
        other = Model()
        other.w = self.w.copy()
        return other

    def __eq__(self, other):
        return isinstance(other, Model) and np.array_equal(self.w, other.w)

    __hash__ = None

    def step(self, x):
        return x * self.w + self.rate


@cases(X, {"a": V, "b": [N, {"c": 2.0}]})
def containers(x, tree):
    out = {"sum": tree["a"].sum(), "list": [tree["b"][0] * tree["b"][1]["c"], (x[0],)]}
    out["extra"] = x.max()
    return out


@cases(Weights(V.copy(), 2.0))
def dataclasses_are_read_and_written(p):
    p.w[0] = 5.0
    return Weights(p.w * p.b, p.b + 1.0)


@cases(Point(V, N))
def namedtuples(p):
    return Point(p.y, p.x + p.y.sum())


class Sub(Point):
    def total(self):
        return self.x.sum() + self.y.sum()


@cases(Point(V, N), V)
def namedtuples_are_replaced_round_by_round(p, x):
    for t in range(3):
        p = p._replace(x=np.tanh(p.x + x[t]))
        if x[t] > 0:
            p = p._replace(y=p.y * 2)
    return p, Point._make([p.y, x]), Point._make((p.x + 1)[:2]), p._asdict()["x"]


@cases(V, N)
def namedtuples_of_subclasses_are_replaced(x, y):
    p = Sub(x, y)._replace(x=x * 2)
    return p.total(), type(p) is Sub, p


@cases(X, Model())
def objects(x, model):
    return model.step(x) + model.w[0]


@cases(X, Model())
def arrays_of_objects_are_written(x, model):
    model.w[1] = 5.0
    model.w *= 2
    return model.w + x


@cases(X)
def the_same_array_twice_in_a_result(x):
    y = x * 2
    v = y[0]
    return y, v, {"again": y}
