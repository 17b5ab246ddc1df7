"""Random-walk Metropolis for a banana-shaped density; the random numbers are drawn by the caller."""

import numpy as np


def log_density(x):
    return -((1 - x[0]) ** 2) / 2 - 2 * (x[1] - x[0] ** 2) ** 2


def metropolis(start, steps, uniforms, scale):
    x = start.copy()
    lp = log_density(x)
    samples = np.empty((len(steps), 2))
    accepted = 0
    for i in range(len(steps)):
        proposal = x + scale * steps[i]
        lp_new = log_density(proposal)
        if np.log(uniforms[i]) < lp_new - lp:
            x, lp = proposal, lp_new
            accepted += 1
        samples[i] = x
    return samples, accepted / len(steps), np.cov(samples, rowvar=False)


def example(rng):
    return np.zeros(2), rng.normal(size=(200, 2)), rng.random(200), 0.8
