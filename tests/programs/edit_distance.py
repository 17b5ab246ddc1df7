"""Levenshtein's distance, the longest common subsequence, and a 0-1 knapsack by dynamic programming."""

import numpy as np


def levenshtein(s, t):
    m, n = len(s), len(t)
    d = np.zeros((m + 1, n + 1), dtype=np.int64)
    d[:, 0] = np.arange(m + 1)
    d[0, :] = np.arange(n + 1)
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost = 0 if s[i - 1] == t[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[m, n]


def common_subsequence(s, t):
    c = np.zeros((len(s) + 1, len(t) + 1), dtype=int)
    for i, x in enumerate(s):
        for j, y in enumerate(t):
            if x == y:
                c[i + 1, j + 1] = c[i, j] + 1
            else:
                c[i + 1, j + 1] = max(c[i + 1, j], c[i, j + 1])
    return c[-1, -1]


def knapsack(weights, values, capacity):
    best = np.zeros(capacity + 1)
    for w, v in zip(weights, values, strict=True):
        best[w:] = np.maximum(best[w:], best[: capacity + 1 - w] + v)
    return best


def edit_distance(s, t, values):
    return levenshtein(s, t), common_subsequence(s, t), knapsack(s + 1, values, 20)


def example(rng):
    return rng.integers(0, 4, 12), rng.integers(0, 4, 10), rng.random(12)
