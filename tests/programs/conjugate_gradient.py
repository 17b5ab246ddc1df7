"""Conjugate gradients, after J. R. Shewchuk, "An introduction to the conjugate gradient method" (1994)."""

import numpy as np


def conjugate_gradient(A, b, x=None, eps=1e-10):
    n = len(b)
    if x is None:
        x = np.zeros(n)
    r = b - A @ x
    d = r.copy()
    delta_new = r.T @ r
    delta0 = delta_new
    i = 0
    while i < 2 * n and delta_new > eps**2 * delta0:
        q = A @ d
        alpha = delta_new / (d.T @ q)
        x = x + alpha * d
        if i % 50 == 0:
            r = b - A @ x
        else:
            r = r - alpha * q
        delta_old = delta_new
        delta_new = r.T @ r
        beta = delta_new / delta_old
        d = r + beta * d
        i += 1
    return x, i


def example(rng):
    a = rng.normal(size=(60, 60))
    return a @ a.T + 60 * np.eye(60), rng.normal(size=60)
