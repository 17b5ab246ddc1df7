"""Lloyd's algorithm with farthest-point seeds, until no point changes its cluster."""

import numpy as np


def seeds(points, k):
    centres = [points[0]]
    for _ in range(k - 1):
        d = np.min([((points - c) ** 2).sum(1) for c in centres], axis=0)
        centres.append(points[np.argmax(d)])
    return np.stack(centres)


def k_means(points, k, max_iter=100):
    centres = seeds(points, k)
    labels = np.full(len(points), -1)
    for _ in range(max_iter):
        dist = np.linalg.norm(points[:, None, :] - centres[None, :, :], axis=2)
        new = dist.argmin(axis=1)
        if np.array_equal(new, labels):
            break
        labels = new
        for j in range(k):
            members = points[labels == j]
            if len(members) > 0:
                centres[j] = members.mean(axis=0)
    inertia = ((points - centres[labels]) ** 2).sum()
    return centres, labels, inertia


def example(rng):
    middle = rng.normal(size=(4, 2)) * 4
    return np.concatenate([m + rng.normal(size=(40, 2)) for m in middle]), 4
