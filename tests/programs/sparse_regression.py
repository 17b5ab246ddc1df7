"""Statistics: the lasso by coordinate descent, a bootstrap of a median, a permutation test, ranks with ties."""

import numpy as np


def soft(value, limit):
    if value > limit:
        return value - limit
    if value < -limit:
        return value + limit
    return 0.0


def lasso(x, y, penalty, sweeps=100, tolerance=1e-8):
    n, p = x.shape
    beta = np.zeros(p)
    residual = y - x @ beta
    norms = (x**2).sum(axis=0)
    for sweep in range(sweeps):  # noqa: B007
        largest = 0.0
        for j in range(p):
            if norms[j] == 0:
                continue
            old = beta[j]
            rho = x[:, j] @ residual + norms[j] * old
            beta[j] = soft(rho, penalty * n) / norms[j]
            if beta[j] != old:
                residual -= (beta[j] - old) * x[:, j]
                largest = max(largest, abs(beta[j] - old))
        if largest < tolerance:
            break
    return beta, sweep


def ranks(values):
    order = np.argsort(values)
    ordered = values[order]
    out = np.empty(len(values))
    i = 0
    while i < len(values):
        j = i
        while j + 1 < len(values) and ordered[j + 1] == ordered[i]:
            j += 1
        out[order[i : j + 1]] = 0.5 * (i + j) + 1
        i = j + 1
    return out


def spearman(a, b):
    ra, rb = ranks(a), ranks(b)
    return np.corrcoef(ra, rb)[0, 1]


def bootstrap(sample, draws):
    medians = np.median(sample[draws], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return medians.std(), low, high


def permutation_test(a, b, shuffles):
    observed = a.mean() - b.mean()
    pooled = np.concatenate([a, b])
    count = 0
    for order in shuffles:
        mixed = pooled[order]
        difference = mixed[: len(a)].mean() - mixed[len(a) :].mean()
        if abs(difference) >= abs(observed):
            count += 1
    return observed, (count + 1) / (len(shuffles) + 1)


def sparse_regression(x, y, draws, shuffles):
    beta, sweeps = lasso(x, y, 0.1)
    half = len(y) // 2
    return (
        beta, sweeps, spearman(np.round(x[:, 0], 1), y), bootstrap(y, draws),
        permutation_test(y[:half], y[half:], shuffles),
    )  # fmt: skip


def example(rng):
    x = rng.normal(size=(60, 8))
    y = x @ np.array([2.0, 0, -1.5, 0, 0, 0.7, 0, 0]) + rng.normal(0, 0.3, 60)
    shuffles = np.argsort(rng.random((50, 60)), axis=1)
    return x, y, rng.integers(0, 60, (100, 60)), shuffles
