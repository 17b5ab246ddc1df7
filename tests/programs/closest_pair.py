"""The closest pair of points by divide and conquer: recursion over slices of a sorted array."""

import numpy as np


def brute(points):
    d = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    return d[np.triu_indices(len(points), 1)].min()


def closest(points):
    n = len(points)
    if n <= 4:
        return brute(points)
    middle = points[n // 2, 0]
    best = min(closest(points[: n // 2]), closest(points[n // 2 :]))
    strip = points[np.abs(points[:, 0] - middle) < best]
    strip = strip[np.argsort(strip[:, 1])]
    for i in range(1, min(8, len(strip))):
        best = min(best, np.sqrt(((strip[i:] - strip[:-i]) ** 2).sum(1)).min())
    return best


def closest_pair(points):
    return closest(points[np.argsort(points[:, 0])])


def example(rng):
    return (rng.random((64, 2)),)
