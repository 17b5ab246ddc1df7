"""Logistic regression by gradient descent with momentum and a decreasing step, and its accuracy."""

import numpy as np


def sigmoid(z):
    return np.where(z >= 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))


def cross_entropy(w, x, y, lam):
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z) + lam * np.dot(w, w) / 2


def logistic_regression(x, y, lam=1e-3, rounds=100):
    x = np.c_[np.ones(len(x)), (x - x.mean(0)) / x.std(0)]
    w = np.zeros(x.shape[1])
    velocity = np.zeros_like(w)
    losses = []
    for t in range(rounds):
        p = sigmoid(x @ w)
        grad = x.T @ (p - y) / len(y) + lam * w
        velocity = 0.9 * velocity - 0.5 / (1 + 0.01 * t) * grad
        w += velocity
        losses.append(cross_entropy(w, x, y, lam))
    accuracy = np.mean((sigmoid(x @ w) > 0.5) == y)
    return w, np.array(losses), accuracy


def example(rng):
    x = rng.normal(size=(120, 5)) * [1, 2, 3, 4, 5] + 1
    return x, (x @ rng.normal(size=5) + rng.normal(size=120) > 0).astype(np.float64)
