"""A long short-term memory over a sequence in float32 (Hochreiter and Schmidhuber 1997)."""

from dataclasses import dataclass

import numpy as np


@dataclass
class State:
    h: np.ndarray
    c: np.ndarray


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(params, x, state):
    z = x @ params["wx"] + state.h @ params["wh"] + params["b"]
    i, f, g, o = np.split(z, 4, axis=-1)
    c = sigmoid(f + 1) * state.c + sigmoid(i) * np.tanh(g)
    return State(sigmoid(o) * np.tanh(c), c)


def lstm(params, xs):
    n = params["wh"].shape[0]
    state = State(np.zeros((xs.shape[1], n), xs.dtype), np.zeros((xs.shape[1], n), xs.dtype))
    outputs = []
    for x in xs:
        state = cell(params, x, state)
        outputs.append(state.h)
    return np.stack(outputs) @ params["out"], state.c


def example(rng):
    n, d = 12, 5
    shapes = {"wx": (d, 4 * n), "wh": (n, 4 * n), "b": (4 * n,), "out": (n, 2)}
    params = {name: (0.3 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    return params, rng.normal(size=(10, 8, d)).astype(np.float32)
