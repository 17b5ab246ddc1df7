"""Expectation maximisation for a mixture of Gaussians with full covariances, in the log domain."""

import numpy as np


def log_density(x, mean, cov):
    d = x.shape[1]
    chol = np.linalg.cholesky(cov)
    z = np.linalg.solve(chol, (x - mean).T)
    return -0.5 * (z**2).sum(axis=0) - np.log(np.diag(chol)).sum() - 0.5 * d * np.log(2 * np.pi)


def logsumexp(a, axis):
    top = a.max(axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.exp(a - top).sum(axis=axis))


def gaussian_mixture(x, means, max_iter=30, tol=1e-6):
    n, d = x.shape
    k = len(means)
    means = means.copy()
    covs = np.tile(np.cov(x.T), (k, 1, 1))
    weights = np.full(k, 1 / k)
    before = -np.inf
    for _ in range(max_iter):
        logp = np.column_stack([np.log(weights[j]) + log_density(x, means[j], covs[j]) for j in range(k)])
        norm = logsumexp(logp, axis=1)
        resp = np.exp(logp - norm[:, None])
        total = resp.sum(axis=0)
        weights = total / n
        means = (resp.T @ x) / total[:, None]
        for j in range(k):
            diff = x - means[j]
            covs[j] = (resp[:, j, None] * diff).T @ diff / total[j] + 1e-6 * np.eye(d)
        ll = norm.sum()
        if ll - before < tol:
            break
        before = ll
    return weights, means, covs, ll


def example(rng):
    x = np.vstack([rng.normal(size=(50, 2)) + 2, rng.normal(size=(60, 2)) * [1, 0.3] - 2])
    return x, np.array([[1.0, 1.0], [-1.0, -1.0]])
