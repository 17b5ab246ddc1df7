"""Non-negative matrix factorisation by multiplicative updates (Lee and Seung 2001)."""

import numpy as np


def nmf(v, w, h, rounds=50, eps=1e-9):
    errors = np.empty(rounds)
    w, h = w.copy(), h.copy()
    for i in range(rounds):
        h *= (w.T @ v) / (w.T @ w @ h + eps)
        w *= (v @ h.T) / (w @ (h @ h.T) + eps)
        errors[i] = np.linalg.norm(v - w @ h)
        if i > 0 and errors[i - 1] - errors[i] < 1e-6 * errors[0]:
            errors[i + 1 :] = errors[i]
            break
    return w, h, errors


def example(rng):
    return rng.random((30, 20)), rng.random((30, 4)), rng.random((4, 20))
