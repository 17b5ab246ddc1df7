"""Cholesky's factorisation written out with loops over scalars and slices, and the two triangular solutions."""

import numpy as np


def factor(a):
    n = a.shape[0]
    low = np.zeros((n, n))
    for j in range(n):
        d = a[j, j] - low[j, :j] @ low[j, :j]
        if d <= 0:
            raise ValueError("the matrix is not positive definite")
        low[j, j] = np.sqrt(d)
        for i in range(j + 1, n):
            low[i, j] = (a[i, j] - np.dot(low[i, :j], low[j, :j])) / low[j, j]
    return low


def cholesky_factor(a, b):
    low = factor(a)
    n = len(b)
    y = np.zeros(n)
    for i in range(n):
        y[i] = (b[i] - low[i, :i] @ y[:i]) / low[i, i]
    x = np.zeros(n)
    for i in reversed(range(n)):
        x[i] = (y[i] - low[i + 1 :, i] @ x[i + 1 :]) / low[i, i]
    return low, x


def example(rng):
    a = rng.normal(size=(15, 15))
    return a @ a.T + np.eye(15), rng.normal(size=15)
