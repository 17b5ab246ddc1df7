"""Jacobi's method for a system of linear equations, until the change is small."""

import numpy as np


def jacobi(a, b, tol=1e-8, max_iter=500):
    d = np.diag(a)
    r = a - np.diagflat(d)
    x = np.zeros_like(b)
    for k in range(max_iter):
        x_new = (b - np.dot(r, x)) / d
        if np.linalg.norm(x_new - x, ord=np.inf) < tol:
            return x_new, k + 1
        x = x_new
    raise RuntimeError("no convergence")


def example(rng):
    n = 40
    a = rng.normal(size=(n, n))
    a[np.arange(n), np.arange(n)] = np.abs(a).sum(axis=1) * 1.5
    return a, rng.normal(size=n)
