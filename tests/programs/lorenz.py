"""The Lorenz system by the classical Runge-Kutta method, for a batch of starting points."""

import numpy as np


class Lorenz:
    def __init__(self, sigma=10.0, rho=28.0, beta=8.0 / 3.0):
        self.sigma, self.rho, self.beta = sigma, rho, beta

    def __call__(self, t, state):
        x, y, z = state
        return np.array([self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z])


def rk4(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def lorenz(start, steps, h=0.01):
    f = Lorenz()
    path = np.empty((steps + 1, *start.shape))
    path[0] = start
    for k in range(steps):
        path[k + 1] = rk4(f, k * h, path[k], h)
    return path


def example(rng):
    return rng.normal(size=(3, 20)), 60
