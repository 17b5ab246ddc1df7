"""Pi from random points and from Buffon's needle, with the estimate after every batch."""

import numpy as np


def monte_carlo_pi(seed, batches, n):
    rng = np.random.default_rng(seed)
    inside = 0
    estimates = []
    for b in range(batches):
        xy = rng.random((n, 2))
        inside += np.count_nonzero((xy**2).sum(axis=1) <= 1.0)
        estimates.append(4.0 * inside / (n * (b + 1)))
    y = rng.uniform(0, 0.5, n)
    angle = rng.uniform(0, np.pi / 2, n)
    crossing = (y <= 0.5 * np.sin(angle)).mean()
    return np.array(estimates), 2 / crossing


def example(rng):
    return int(rng.integers(1000)), 5, 2000
