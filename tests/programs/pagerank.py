"""PageRank from an edge list, with dangling nodes, in the manner of the Google paper (Brin and Page 1998)."""

import numpy as np


def pagerank(sources, targets, n, damping=0.85, tol=1e-10):
    degree = np.bincount(sources, minlength=n)
    dangling = degree == 0
    rank = np.full(n, 1.0 / n)
    share = np.zeros(n)
    for iteration in range(200):  # noqa: B007 - it is returned
        np.divide(rank, degree, out=share, where=~dangling)
        new = np.zeros(n)
        np.add.at(new, targets, share[sources])
        new = damping * (new + rank[dangling].sum() / n) + (1 - damping) / n
        delta = np.abs(new - rank).sum()
        rank = new
        if delta < tol:
            break
    order = np.argsort(-rank, kind="stable")
    return rank, order[:10], iteration


def example(rng):
    return rng.integers(0, 40, 200), rng.integers(0, 50, 200), 50
