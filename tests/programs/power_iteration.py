"""The largest eigenvalues of a symmetric matrix, one by one, by power iteration and deflation."""

import numpy as np


def dominant(a, v, tol):
    value = 0.0
    while True:
        w = a @ v
        new = v @ w
        v = w / np.linalg.norm(w)
        if abs(new - value) <= tol * abs(new):
            break
        value = new
    return new, v


def power_iteration(a, count=3, tol=1e-12):
    a = np.array(a)
    n = a.shape[0]
    values, vectors = np.zeros(count), np.zeros((n, count))
    for k in range(count):
        start = np.ones(n) / np.sqrt(n)
        values[k], vectors[:, k] = dominant(a, start, tol)
        a -= values[k] * np.outer(vectors[:, k], vectors[:, k])
    return values, vectors


def example(rng):
    q, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    return ((q * np.linspace(1, 9, 30) ** 2) @ q.T,)
