"""A k-d tree in arrays: points are put in one by one, and a recursion looks for the nearest one of each query."""

import numpy as np


def planted(points):
    n = len(points)
    below = np.full((n, 2), -1)
    for k in range(1, n):
        node, axis = 0, 0
        while True:
            side = int(points[k, axis] >= points[node, axis])
            if below[node, side] < 0:
                below[node, side] = k
                break
            node, axis = below[node, side], (axis + 1) % points.shape[1]
    return below


def search(tree, points, query, node, axis, best, nearest):
    """Look below a node, and on the far side of its plane only where something nearer may lie."""
    if node < 0:
        return best, nearest
    distance = ((points[node] - query) ** 2).sum()
    if distance < best:
        best, nearest = distance, node
    gap, other = query[axis] - points[node, axis], (axis + 1) % len(query)
    side = int(gap >= 0)
    best, nearest = search(tree, points, query, tree[node, side], other, best, nearest)
    if gap * gap < best:
        best, nearest = search(tree, points, query, tree[node, 1 - side], other, best, nearest)
    return best, nearest


def nearest_neighbours(points, queries):
    tree = planted(points)
    found, distances = np.zeros(len(queries), int), np.zeros(len(queries))
    for k in range(len(queries)):
        best, nearest = search(tree, points, queries[k], 0, 0, np.inf, -1)
        found[k], distances[k] = nearest, np.sqrt(best)
    return found, distances


def example(rng):
    return rng.normal(size=(25, 2)), rng.normal(size=(8, 2))
