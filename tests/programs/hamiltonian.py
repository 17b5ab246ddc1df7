"""Hamiltonian Monte Carlo (Duane and others 1987) of a logistic regression, and the sampler's own statistics."""

import numpy as np


def potential(w, x, y):
    z = x @ w
    return np.logaddexp(0.0, z).sum() - y @ z + 0.5 * w @ w


def slope(w, x, y):
    return x.T @ (1 / (1 + np.exp(-(x @ w))) - y) + w


def leapfrog(w, p, x, y, step, count):
    p = p - 0.5 * step * slope(w, x, y)
    for k in range(count):
        w = w + step * p
        if k < count - 1:
            p = p - step * slope(w, x, y)
    return w, -(p - 0.5 * step * slope(w, x, y))


def autocorrelation(v):
    v = v - v.mean()
    full = np.correlate(v, v, mode="full")[len(v) - 1 :]
    return full / full[0]


def hamiltonian(x, y, momenta, uniform, step):
    w = np.zeros(x.shape[1])
    samples = np.empty((len(momenta), x.shape[1]))
    accepted = 0
    for k in range(len(momenta)):
        p = momenta[k]
        new, q = leapfrog(w, p, x, y, step, 6)
        change = potential(w, x, y) - potential(new, x, y) + 0.5 * (p @ p - q @ q)
        if np.log(uniform[k]) < change:
            w = new
            accepted += 1
        samples[k] = w
    rho = autocorrelation(samples[:, 0])
    cut = np.argmax(rho < 0.05)
    effective = len(rho) / (1 + 2 * rho[1:cut].sum())
    return samples.mean(axis=0), np.cov(samples.T), accepted / len(momenta), effective


def example(rng):
    x = rng.normal(size=(30, 3))
    y = (rng.random(30) < 1 / (1 + np.exp(-(x @ [1.0, -2.0, 0.5])))).astype(float)
    return x, y, rng.normal(size=(40, 3)), rng.random(40), 0.15
