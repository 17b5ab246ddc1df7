"""Batcher's bitonic sort (1968) by views, and a merge of two runs with searchsorted."""

import numpy as np


def bitonic(x):
    x = x.copy()
    n = x.size
    k = 2
    while k <= n:
        j = k // 2
        while j >= 1:
            index = np.arange(n)
            partner = index ^ j
            low = index < partner
            ascending = (index & k) == 0
            swap = low & ((x > x[partner]) == ascending) & (x != x[partner])
            moved = swap | swap[partner]
            x = np.where(moved, x[partner], x)
            j //= 2
        k *= 2
    return x


def merge(a, b):
    out = np.empty(a.size + b.size, a.dtype)
    out[np.arange(a.size) + np.searchsorted(b, a, side="left")] = a
    out[np.arange(b.size) + np.searchsorted(a, b, side="right")] = b
    return out


def sorting_network(x, y):
    return merge(bitonic(x), bitonic(y))


def example(rng):
    return rng.integers(-50, 50, 32), rng.integers(-50, 50, 16)
