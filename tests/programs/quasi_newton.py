"""The method of Broyden, Fletcher, Goldfarb and Shanno with a line search; a closure counts calls of the objective."""

import numpy as np


def quasi_newton(start, tol=1e-6):
    calls = 0

    def value(x):
        nonlocal calls
        calls += 1
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def slope(x):
        g = np.zeros_like(x)
        g[:-1] += -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
        g[1:] += 200 * (x[1:] - x[:-1] ** 2)
        return g

    n = len(start)
    x, h, g = start.copy(), np.eye(n), slope(start)
    for it in range(60):
        if np.linalg.norm(g) < tol:
            return x, it, calls
        p = -h @ g
        step, before, m = 1.0, value(x), g @ p
        while value(x + step * p) > before + 1e-4 * step * m and step > 1e-10:
            step /= 2
        s = step * p
        x += s
        new = slope(x)
        y = new - g
        g = new
        rho = y @ s
        if rho > 1e-12:
            v = np.eye(n) - np.outer(s, y) / rho
            h = v @ h @ v.T + np.outer(s, s) / rho
    return x, it, calls


def example(rng):
    return (rng.normal(size=3),)
