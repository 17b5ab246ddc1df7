"""Explicit finite differences for the heat equation on a plate with fixed edges."""

import numpy as np


def step(u, kappa, dt, h):
    lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    u[1:-1, 1:-1] += kappa * dt / h**2 * lap
    return u


def heat_equation(u, kappa, steps):
    """The plate after ``steps`` steps, and the heat in it at every step."""
    h = 1.0 / (u.shape[0] - 1)
    dt = 0.2 * h**2 / kappa
    u = u.copy()
    total = np.zeros(steps)
    for n in range(steps):
        u = step(u, kappa, dt, h)
        total[n] = u.sum() * h**2
    return u, total


def example(rng):
    u = rng.random((64, 64))
    u[0, :] = 1.0
    u[-1, :] = 0.0
    return u, 0.5, 50
