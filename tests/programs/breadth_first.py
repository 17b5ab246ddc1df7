"""Breadth-first search with frontier masks: on a graph by its adjacency matrix, and on a maze."""

import numpy as np


def levels(adjacent, source):
    level = np.full(adjacent.shape[0], -1)
    frontier = np.zeros(adjacent.shape[0], dtype=bool)
    frontier[source] = True
    depth = 0
    while frontier.any():
        level[frontier] = depth
        frontier = adjacent[frontier].any(axis=0) & (level < 0)
        depth += 1
    return level


def flood(free, start):
    seen = np.zeros_like(free)
    seen[start] = True
    steps = 0
    while True:
        grown = seen.copy()
        grown[1:] |= seen[:-1]
        grown[:-1] |= seen[1:]
        grown[:, 1:] |= seen[:, :-1]
        grown[:, :-1] |= seen[:, 1:]
        grown &= free
        if (grown == seen).all():
            return seen, steps
        seen = grown
        steps += 1


def breadth_first(adjacent, free):
    return levels(adjacent, 0), *flood(free, (0, 0))


def example(rng):
    adjacent = rng.random((40, 40)) < 0.06
    free = rng.random((20, 20)) < 0.7
    free[0, 0] = True
    return adjacent | adjacent.T, free
