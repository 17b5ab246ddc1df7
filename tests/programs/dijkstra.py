"""Dijkstra's algorithm on a dense matrix of distances."""

import numpy as np


def dijkstra(weights, source):
    n = weights.shape[0]
    dist = np.full(n, np.inf)
    dist[source] = 0.0
    previous = np.full(n, -1)
    done = np.zeros(n, dtype=bool)
    for _ in range(n):
        u = np.argmin(np.where(done, np.inf, dist))
        if not np.isfinite(dist[u]):
            break
        done[u] = True
        candidate = dist[u] + weights[u]
        closer = candidate < dist
        dist = np.minimum(dist, candidate)
        previous[closer & ~done] = u
    return dist, previous


def example(rng):
    n = 30
    return np.where(rng.random((n, n)) < 0.15, rng.random((n, n)), np.inf), 3
