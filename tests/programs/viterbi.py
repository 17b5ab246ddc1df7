"""The most likely path of a hidden Markov model, and the forward algorithm with scaling."""

import numpy as np


def forward(pi, A, B, observed):
    alpha = pi * B[:, observed[0]]
    loglik = np.log(alpha.sum())
    alpha /= alpha.sum()
    for o in observed[1:]:
        alpha = (alpha @ A) * B[:, o]
        c = alpha.sum()
        alpha = alpha / c
        loglik += np.log(c)
    return loglik


def viterbi(pi, A, B, observed):
    T, n = len(observed), len(pi)
    logA, logB = np.log(A), np.log(B)
    delta = np.zeros((T, n))
    psi = np.zeros((T, n), dtype=int)
    delta[0] = np.log(pi) + logB[:, observed[0]]
    for t in range(1, T):
        scores = delta[t - 1][:, None] + logA
        psi[t] = scores.argmax(axis=0)
        delta[t] = scores.max(axis=0) + logB[:, observed[t]]
    path = np.zeros(T, dtype=int)
    path[-1] = delta[-1].argmax()
    for t in range(T - 2, -1, -1):
        path[t] = psi[t + 1, path[t + 1]]
    return path, delta[-1].max(), forward(pi, A, B, observed)


def example(rng):
    n, m = 4, 6
    A = rng.random((n, n))
    B = rng.random((n, m))
    return np.ones(n) / n, A / A.sum(1, keepdims=True), B / B.sum(1, keepdims=True), rng.integers(0, m, 40)
