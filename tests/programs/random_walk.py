"""A walk on a grid, kept by a dataclass whose factories and ``__post_init__`` make its arrays, until it comes home."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np


@dataclass
class Walker:
    size: int
    path: list = field(default_factory=list)
    place: np.ndarray = field(default_factory=partial(np.zeros, 2, int))

    def __post_init__(self):
        self.visits = np.zeros((2 * self.size + 1, 2 * self.size + 1), np.int16)

    def step(self, direction):
        moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
        self.place += moves[direction]
        np.clip(self.place, -self.size, self.size, out=self.place)
        i, j = self.place + self.size
        self.visits[i, j] += 1
        self.path.append(self.place.copy())
        return i, j


def random_walk(directions, size):
    walker, returns = Walker(size), 0
    for direction in directions:
        if walker.step(direction) == (size, size):
            returns += 1
    return np.array(walker.path), walker.visits, returns


def example(rng):
    return rng.integers(0, 4, 40), 3
