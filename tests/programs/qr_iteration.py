"""Eigenvalues of a symmetric matrix: Householder QR written out, and the QR algorithm with Rayleigh shifts."""

import numpy as np


def householder(a):
    r = a.astype(float)
    m, n = r.shape
    q = np.identity(m)
    for j in range(n - 1):
        x = r[j:, j]
        s = -1.0 if x[0] < 0 else 1.0
        u = x.copy()
        u[0] += s * np.sqrt(x @ x)
        norm = np.sqrt(u @ u)
        if norm == 0:
            continue
        u /= norm
        r[j:] -= 2 * np.outer(u, u @ r[j:])
        q[:, j:] -= 2 * np.outer(q[:, j:] @ u, u)
    return q, r


def qr_iteration(a, rounds=40):
    n = a.shape[0]
    total = np.eye(n)
    for _ in range(rounds):
        shift = a[-1, -1]
        q, r = householder(a - shift * np.eye(n))
        a = r @ q + shift * np.eye(n)
        total = total @ q
    return np.sort(np.diagonal(a)), total


def example(rng):
    a = rng.normal(size=(8, 8))
    return (a + a.T,)
