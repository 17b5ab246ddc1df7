"""A natural cubic spline: Thomas's algorithm for its tridiagonal system, and its values by searchsorted."""

import numpy as np


def thomas(a, b, c, d):
    n = len(d)
    cp, dp = np.zeros(n), np.zeros(n)
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.zeros(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def second_derivatives(x, y):
    h = np.diff(x)
    slope = np.diff(y) / h
    n = len(x)
    a, b, c, d = np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n)
    a[1:-1] = h[:-1]
    b[1:-1] = 2 * (h[:-1] + h[1:])
    c[1:-1] = h[1:]
    d[1:-1] = 6 * np.diff(slope)
    return thomas(a, b, c, d)


def cubic_spline(x, y, at):
    m = second_derivatives(x, y)
    k = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    h = x[k + 1] - x[k]
    u, v = (x[k + 1] - at) / h, (at - x[k]) / h
    return u * y[k] + v * y[k + 1] + ((u**3 - u) * m[k] + (v**3 - v) * m[k + 1]) * h**2 / 6


def example(rng):
    x = np.cumsum(rng.uniform(0.5, 1.5, 12))
    return x, np.sin(x) + 0.1 * rng.normal(size=12), np.linspace(x[0], x[-1], 50)
