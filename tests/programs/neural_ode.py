"""A small network as the right-hand side of an ordinary differential equation, Heun steps, a loss over the path."""

import numpy as np


def rhs(y, w1, b1, w2):
    return np.tanh(y @ w1 + b1) @ w2


def neural_ode(w1, b1, w2, y0, target, dt=0.1):
    y = y0
    loss = 0.0
    for k in range(target.shape[0]):
        k1 = rhs(y, w1, b1, w2)
        k2 = rhs(y + dt * k1, w1, b1, w2)
        y = y + dt * (k1 + k2) / 2
        loss += np.mean((y - target[k]) ** 2)
    return loss / target.shape[0]


def example(rng):
    return (
        0.5 * rng.normal(size=(2, 8)), np.zeros(8), 0.5 * rng.normal(size=(8, 2)),
        rng.normal(size=(10, 2)), rng.normal(size=(20, 10, 2)),
    )  # fmt: skip
