"""All shortest paths (Floyd and Warshall), with predecessors, and one path read back."""

import numpy as np


def floyd_warshall(dist):
    dist = dist.copy()
    n = dist.shape[0]
    follow = np.where(np.isfinite(dist), np.arange(n)[None, :], -1)
    for k in range(n):
        through = dist[:, k, None] + dist[None, k, :]
        better = through < dist
        dist[better] = through[better]
        follow = np.where(better, follow[:, k][:, None], follow)
    return dist, follow, path(follow, 0, n - 1)


def path(follow, start, end):
    nodes = np.full(len(follow), -1)
    at, count = start, 0
    while at != end and at >= 0 and count < len(follow) - 1:
        nodes[count] = at
        at = follow[at, end]
        count += 1
    nodes[count] = at
    return nodes


def example(rng):
    n = 25
    d = np.where(rng.random((n, n)) < 0.2, rng.integers(1, 20, (n, n)), np.inf)
    np.fill_diagonal(d, 0)
    return (d,)
