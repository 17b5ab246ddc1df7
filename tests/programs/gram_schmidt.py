"""Classical and modified Gram-Schmidt, and least squares with them."""

import numpy as np


def classical(a):
    q = np.zeros(a.shape)
    for j in range(a.shape[1]):
        v = a[:, j] - q[:, :j] @ (q[:, :j].T @ a[:, j])
        q[:, j] = v / np.linalg.norm(v)
    return q


def modified(a):
    v = np.array(a, dtype=float, copy=True)
    n = v.shape[1]
    r = np.zeros((n, n))
    for i in range(n):
        r[i, i] = np.linalg.norm(v[:, i])
        v[:, i] /= r[i, i]
        for j in range(i + 1, n):
            r[i, j] = v[:, i].dot(v[:, j])
            v[:, j] -= r[i, j] * v[:, i]
    return v, r


def gram_schmidt(a, b):
    q, r = modified(a)
    x = np.linalg.solve(r, q.T @ b)
    orthogonal = [np.abs(m.T @ m - np.eye(m.shape[1])).max() < 1e-6 for m in (classical(a), q)]
    return q, r, x, orthogonal


def example(rng):
    return np.vander(np.linspace(0.1, 1, 20), 5), rng.normal(size=20)
