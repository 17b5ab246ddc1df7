"""A round trip through cities by simulated annealing with reversed segments; an own generator in a class."""

import numpy as np


class Congruential:
    """A 31-bit multiplicative generator (Park and Miller 1988)."""

    def __init__(self, seed):
        self.state = seed

    def random(self):
        self.state = self.state * 16807 % 2147483647
        return self.state / 2147483647


def length(order, cities):
    route = cities[order]
    return np.sqrt(((route - np.roll(route, -1, axis=0)) ** 2).sum(axis=1)).sum()


def simulated_annealing(cities, seed, rounds, temperature=1.0, cooling=0.95):
    rng = Congruential(seed)
    n = len(cities)
    order = np.arange(n)
    cost = length(order, cities)
    best, best_cost = order.copy(), cost
    for _ in range(rounds):
        i, j = sorted((int(rng.random() * n), int(rng.random() * n)))
        trial = order.copy()
        trial[i : j + 1] = trial[i : j + 1][::-1]
        new = length(trial, cities)
        if new < cost or rng.random() < np.exp((cost - new) / temperature):
            order, cost = trial, new
            if cost < best_cost:
                best, best_cost = order.copy(), cost
        temperature *= cooling
    return best, best_cost


def example(rng):
    return rng.random((12, 2)), int(rng.integers(1, 10000)), 40
