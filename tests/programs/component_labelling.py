"""Connected components of an image, two passes with union-find (Rosenfeld and Pfaltz 1966)."""

import numpy as np


def find(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def component_labelling(image):
    rows, cols = image.shape
    labels = np.zeros((rows, cols), dtype=int)
    parent = np.arange(rows * cols)
    fresh = 1
    for r in range(rows):
        for c in range(cols):
            if not image[r, c]:
                continue
            up = labels[r - 1, c] if r > 0 else 0
            left = labels[r, c - 1] if c > 0 else 0
            if up == 0 and left == 0:
                labels[r, c] = fresh
                fresh += 1
            elif up and left:
                a, b = find(parent, up), find(parent, left)
                labels[r, c] = min(a, b)
                parent[max(a, b)] = min(a, b)
            else:
                labels[r, c] = max(up, left)
    for i in range(fresh):
        parent[i] = find(parent, i)
    values, compact = np.unique(parent[labels], return_inverse=True)
    return compact.reshape(rows, cols), len(values) - 1


def example(rng):
    return (rng.random((10, 12)) < 0.5,)
