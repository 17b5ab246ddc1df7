"""Functions that change what they did not make, to be differentiated."""

import numpy as np

import futurex as fx


class Model:
    def __init__(self):
        self.h, self.last, self.view, self.same, self.n = None, None, None, None, 0
        self.running = np.zeros(3)
        self.cache = {"x": np.zeros(3)}

    def attribute(self, w, x):
        self.h = np.tanh(x * w)
        return (self.h**2).sum()

    def moving_average(self, w, x):
        self.running = 0.9 * self.running + 0.1 * (x * w)
        return (self.running**2).sum()

    def moving_average_in_place(self, w, x):
        self.running *= 0.9
        self.running += 0.1 * (x * w)
        return (self.running**2).sum()

    def count(self, w, x):
        self.n += 1
        return (w * x).sum() * self.n

    def entry(self, w, x):
        self.cache["x"] = self.same = w * x
        self.view = self.same[1:]
        return (self.same**2).sum()

    def argument(self, w, x):
        self.last, self.view = w, w[::-1]
        return (w * x).sum()

    def nest(self, w, x):
        y = w * x
        self.cache = {"y": y, "pair": (y, y[0], 3), "rows": [y, {"x": x}]}
        return (y**2).sum()

    def branch(self, w, x):
        if (w * x).sum() > 0:
            self.h = w * 2
        else:
            self.h = w * 3
        return (self.h**2).sum()

    def delete(self, w, x):
        self.cache["new"] = w * x
        del self.cache["new"]
        self.h = np.float32(2) * np.float32(w[0])
        return (w * x).sum()


METHODS = (
    "attribute", "moving_average", "moving_average_in_place", "count", "entry", "argument", "nest", "branch", "delete",
)  # fmt: skip


def with_aux(model):
    def loss(w, x):
        model.h = h = w * x
        return (h * h).sum(), h

    return loss


def with_aux_from_outside(model):
    def loss(w, x):
        model.h = model.running
        model.h[0] = 5.0
        return (w * x * model.h).sum(), (model.running, w * 1)

    return loss


def with_aux_dicts(model):
    def loss(w, x):
        model.cache["x"] = w * x
        inner = {"y": model.cache["x"]}
        return (w * w).sum(), (model.cache, [inner])

    return loss


@fx.futurize
def outer_with_a_dict(w, d):
    def loss(w):
        d["inner"] = inner = {"y": w * 2}
        return (w * w).sum(), inner

    gradient, inner = fx.grad(loss, has_aux=True)(w)
    inner["z"] = gradient
    return inner is d["inner"], len(d["inner"]), gradient


model, history = Model(), []


def through_another_name(w, given):
    model.cache["y"] = w * 2
    return (w * given["x"]).sum()


def writes_its_argument(w, x):
    w[0] = 5.0
    model.last = w
    return (w * x).sum()


def keeps_a_function(w, x):
    model.h = lambda: w
    return (w * x).sum()


def appends(w, x):
    history.append((w * x).sum())
    return (w * x).sum()


def in_rounds(w, x):
    while (w * w).sum() < 100:
        w = w * 2
        model.running = model.running + w
    return (w * w).sum()


@fx.custom_vjp
def own_rule(x):
    model.h = x * 2
    return x


own_rule.defvjp(lambda x: (x, None), lambda residuals, g: (g,))


@fx.futurize
def outer(w, k):
    u = w * 3

    def loss(w):
        model.view = w[k : k + 2]
        model.h = w * w
        return (w * w).sum()

    gradient = fx.grad(loss)(u[1:])
    model.view[0] = 100.0
    return gradient, u, model.h


@fx.futurize
def recording(w, rate):
    history, best = [], {"n": 0}

    def loss(w):
        history.append((w * w).sum())
        best["n"] += 1
        best["w"] = w * 1
        return (w * w).sum()

    for _ in range(3):
        w = w - rate * fx.grad(loss)(w)
    return w, history, best


@fx.futurize
def recording_in_rounds(w, rate):
    best = {"n": 0, "loss": np.float64(0)}

    def loss(w):
        best["loss"] = (w * w).sum()
        best["n"] += 1
        return (w * w).sum()

    while (w * w).sum() > 0.01:
        w = w - rate * fx.grad(loss)(w)
    return w, best["n"], best["loss"]


def recorded_in_rounds(w, rate):
    n, loss = 0, 0.0
    while (w * w).sum() > 0.01:
        n, loss = n + 1, (w * w).sum()
        w = w - rate * 2 * w
    return w, n, loss
