"""Successive over-relaxation, which returns from its rounds what they write, and raises where it does not converge."""

import numpy as np


def relaxation(a, b, omega=1.1, tol=1e-10, max_iter=100):
    x = np.zeros_like(b)
    for it in range(max_iter):
        delta = 0.0
        for i in range(len(b)):
            sigma = a[i, :i] @ x[:i] + a[i, i + 1 :] @ x[i + 1 :]
            new = (1 - omega) * x[i] + omega * (b[i] - sigma) / a[i, i]
            delta = max(delta, abs(new - x[i]))
            x[i] = new
        if delta < tol:
            return x, it
    raise np.linalg.LinAlgError("did not converge")


def example(rng):
    return rng.normal(size=(6, 6)) + 10 * np.eye(6), rng.normal(size=6)
