"""Local alignment of two sequences by Smith and Waterman (1981): best score, and the aligned pairs."""

import numpy as np


def scores(a, b, match=3, mismatch=-3, gap=2):
    h = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            diagonal = h[i - 1, j - 1] + (match if a[i - 1] == b[j - 1] else mismatch)
            h[i, j] = max(0, diagonal, h[i - 1, j] - gap, h[i, j - 1] - gap)
    return h


def traceback(h, a, b, match=3, mismatch=-3, gap=2):
    i, j = np.unravel_index(np.argmax(h), h.shape)
    path = []
    while h[i, j] > 0:
        if h[i, j] == h[i - 1, j - 1] + (match if a[i - 1] == b[j - 1] else mismatch):
            i, j = i - 1, j - 1
            path.append((i, j))
        elif h[i, j] == h[i - 1, j] - gap:
            i -= 1
        else:
            j -= 1
    path.reverse()
    return np.array(path)


def smith_waterman(a, b):
    h = scores(a, b)
    return h.max(), traceback(h, a, b)


def example(rng):
    a = rng.integers(0, 4, 24)
    return a, np.concatenate([rng.integers(0, 4, 6), a[4:15], rng.integers(0, 4, 5)])
