"""Optimisation: Nelder and Mead's simplex (1965), a linear program by tableau, knapsack, L-BFGS's two loops."""

import numpy as np


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def slope(x):
    g = np.zeros_like(x)
    g[:-1] = -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
    g[1:] += 200 * (x[1:] - x[:-1] ** 2)
    return g


def simplex_search(f, start, rounds):
    n = len(start)
    points = np.vstack([start, start + 0.5 * np.eye(n)])
    values = np.array([f(p) for p in points])
    for _ in range(rounds):
        order = np.argsort(values)
        points, values = points[order], values[order]
        if np.std(values) < 1e-10:
            break
        centre = points[:-1].mean(axis=0)
        mirrored = centre + (centre - points[-1])
        value = f(mirrored)
        if value < values[0]:
            further = centre + 2 * (centre - points[-1])
            other = f(further)
            if other < value:
                points[-1], values[-1] = further, other
            else:
                points[-1], values[-1] = mirrored, value
        elif value < values[-2]:
            points[-1], values[-1] = mirrored, value
        else:
            nearer = centre + 0.5 * (points[-1] - centre)
            other = f(nearer)
            if other < values[-1]:
                points[-1], values[-1] = nearer, other
            else:
                for i in range(1, n + 1):
                    points[i] = points[0] + 0.5 * (points[i] - points[0])
                    values[i] = f(points[i])
    return points[0], values[0]


def linear_program(c, a, b):
    m, n = a.shape
    table = np.zeros((m + 1, n + m + 1))
    table[:m, :n], table[:m, n : n + m], table[:m, -1] = a, np.eye(m), b
    table[-1, :n] = -c
    basis = list(range(n, n + m))
    while (table[-1, :-1] < -1e-9).any():
        column = int(np.argmin(table[-1, :-1]))
        positive = table[:-1, column] > 1e-9
        if not positive.any():
            raise ValueError("unbounded")
        ratios = np.full(m, np.inf)
        ratios[positive] = table[:-1, -1][positive] / table[:-1, column][positive]
        row = int(np.argmin(ratios))
        table[row] /= table[row, column]
        for i in range(m + 1):
            if i != row:
                table[i] -= table[i, column] * table[row]
        basis[row] = column
    x = np.zeros(n + m)
    for row, column in enumerate(basis):
        x[column] = table[row, -1]
    return x[:n], table[-1, -1]


def lbfgs(x, memory, rounds):
    steps, changes = [], []
    g = slope(x)
    for _ in range(rounds):
        q = g.copy()
        weights = []
        for s, y in zip(reversed(steps), reversed(changes)):  # noqa: B905
            weight = (s @ q) / (y @ s)
            q -= weight * y
            weights.append(weight)
        if steps:
            q *= (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
        for s, y, weight in zip(steps, changes, reversed(weights)):  # noqa: B905
            q += (weight - (y @ q) / (y @ s)) * s
        size, value = 1.0, rosenbrock(x)
        while rosenbrock(x - size * q) > value - 1e-4 * size * (g @ q):
            size *= 0.5
        new = x - size * q
        after = slope(new)
        steps, changes = [*steps, new - x][-memory:], [*changes, after - g][-memory:]
        x, g = new, after
    return x, rosenbrock(x)


def knapsack(weights, values, capacity):
    best = np.zeros((len(weights) + 1, capacity + 1))
    for i, (w, v) in enumerate(zip(weights, values), 1):  # noqa: B905
        for room in range(capacity + 1):
            best[i, room] = best[i - 1, room]
            if w <= room and best[i - 1, room - w] + v > best[i, room]:
                best[i, room] = best[i - 1, room - w] + v
    return best[-1, -1]


def nelder_mead(start, c, a, b, weights, values):
    return (
        simplex_search(rosenbrock, start, 60), linear_program(c, a, b), lbfgs(start, 4, 8),
        knapsack(weights, values, 30),
    )  # fmt: skip


def example(rng):
    return (
        rng.normal(size=3), rng.uniform(1, 3, 4), rng.uniform(0.5, 2, (3, 4)), rng.uniform(4, 8, 3),
        rng.integers(1, 9, 10), rng.random(10),
    )  # fmt: skip
