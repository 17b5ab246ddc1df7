"""A linear program by the simplex method: a tableau whose rows are pivoted until no column improves the objective."""

import numpy as np


def pivot(tableau, row, column):
    tableau[row] /= tableau[row, column]
    for k in range(len(tableau)):
        if k != row:
            tableau[k] -= tableau[k, column] * tableau[row]


def simplex(a, b, c):
    m, n = a.shape
    tableau = np.zeros((m + 1, n + m + 1))
    tableau[:m, :n], tableau[:m, n : n + m], tableau[:m, -1] = a, np.eye(m), b
    tableau[-1, :n] = -c
    basis = list(range(n, n + m))
    for _ in range(100):
        entering = int(np.argmin(tableau[-1, :-1]))
        if tableau[-1, entering] >= -1e-9:
            break
        column = tableau[:-1, entering]
        if np.all(column <= 1e-9):
            raise ValueError(f"unbounded along variable {entering}")
        ratios = np.where(column > 1e-9, tableau[:-1, -1] / np.where(column > 1e-9, column, 1), np.inf)
        leaving = int(np.argmin(ratios))
        pivot(tableau, leaving, entering)
        basis[leaving] = entering
    x = np.zeros(n + m)
    x[basis] = tableau[:-1, -1]
    return x[:n], tableau[-1, -1]


def example(rng):
    return rng.random((4, 6)), 1 + rng.random(4), rng.random(6)
