"""Regions of neighbouring pixels of nearly one colour, filled one after the other breadth first, and their sizes."""

from collections import deque

import numpy as np


def fill(labels, image, start, label, tolerance):
    queue = deque([start])
    labels[start] = label
    size, total = 0, 0.0
    while queue:
        i, j = queue.popleft()
        size += 1
        total += image[i, j]
        for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            r, c = i + di, j + dj
            if not (0 <= r < image.shape[0] and 0 <= c < image.shape[1]):
                continue
            if labels[r, c] == 0 and abs(image[r, c] - image[i, j]) <= tolerance:
                labels[r, c] = label
                queue.append((r, c))
    return size, total / size


def flood_regions(image, tolerance):
    labels = np.zeros(image.shape, int)
    sizes, means = [], []
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            if labels[i, j] == 0:
                size, mean = fill(labels, image, (i, j), len(sizes) + 1, tolerance)
                sizes.append(size)
                means.append(mean)
    return labels, np.array(sizes), np.array(means)


def example(rng):
    return np.floor(rng.random((14, 16)) * 3), 0.5
