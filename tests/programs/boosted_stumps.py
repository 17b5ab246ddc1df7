"""AdaBoost (Freund and Schapire 1997) on decision stumps: the thresholds are as many as there are distinct values."""

import math

import numpy as np


def best_stump(x, y, weights):
    best = (np.inf, 0, 0.0, 1)
    for feature in range(x.shape[1]):
        for threshold in np.unique(x[:, feature]):
            for sign in (1, -1):
                found = np.where(sign * (x[:, feature] - threshold) > 0, 1, -1)
                error = weights[found != y].sum()
                if error < best[0]:
                    best = (error, feature, threshold, sign)
    return best


def boosted_stumps(x, y, rounds):
    weights = np.full(len(y), 1 / len(y))
    alphas, score = [], np.zeros(len(y))
    for _ in range(rounds):
        error, feature, threshold, sign = best_stump(x, y, weights)
        error = max(error, 1e-10)
        if error >= 0.5:
            break
        alpha = 0.5 * math.log((1 - error) / error)
        vote = np.where(sign * (x[:, feature] - threshold) > 0, 1, -1)
        weights *= np.exp(-alpha * y * vote)
        weights /= weights.sum()
        score += alpha * vote
        alphas.append(alpha)
    return np.sign(score), weights, np.array(alphas)


def example(rng):
    n = int(rng.integers(8, 20))  # at the third size extents become symbols
    return rng.normal(size=(n, 3)).round(1), np.where(rng.random(n) < 0.5, 1, -1), 4
