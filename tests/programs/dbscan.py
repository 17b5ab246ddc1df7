"""Density-based clustering (Ester et al. 1996) with a distance matrix and an explicit stack."""

import numpy as np


def dbscan(points, eps, min_points):
    n = len(points)
    d2 = np.sum((points[:, np.newaxis] - points) ** 2, axis=-1)
    near = d2 <= eps * eps
    core = near.sum(axis=1) >= min_points
    labels = -np.ones(n, dtype=int)
    cluster = 0
    for i in range(n):
        if labels[i] != -1 or not core[i]:
            continue
        stack = [i]
        labels[i] = cluster
        while stack:
            j = stack.pop()
            if not core[j]:
                continue
            for m in np.flatnonzero(near[j] & (labels == -1)):
                labels[m] = cluster
                stack.append(m)
        cluster += 1
    return labels, np.bincount(labels + 1)


def example(rng):
    a = rng.normal(size=(30, 2)) * 0.3
    b = rng.normal(size=(30, 2)) * 0.3 + 3
    return np.vstack([a, b, rng.uniform(-2, 5, (10, 2))]), 0.6, 5
