"""Adaptive Simpson quadrature by recursion, and a root by bisection."""

import numpy as np


def simpson(f, a, b):
    return (b - a) / 6 * (f(a) + 4 * f((a + b) / 2) + f(b))


def adaptive(f, a, b, eps, whole, depth=0):
    c = (a + b) / 2
    left, right = simpson(f, a, c), simpson(f, c, b)
    if depth > 12 or abs(left + right - whole) <= 15 * eps:
        return left + right + (left + right - whole) / 15
    return adaptive(f, a, c, eps / 2, left, depth + 1) + adaptive(f, c, b, eps / 2, right, depth + 1)


def bisect(f, lo, hi, tol=1e-12):
    flo = f(lo)
    while hi - lo > tol:
        mid = (lo + hi) / 2
        fm = f(mid)
        if np.sign(fm) == np.sign(flo):
            lo, flo = mid, fm
        else:
            hi = mid
    return (lo + hi) / 2


def adaptive_integration(coefficients, a, b):
    f = lambda x: np.polyval(coefficients, x) * np.exp(-x * x)  # noqa: E731
    area = adaptive(f, a, b, 1e-6, simpson(f, a, b))
    return area, bisect(lambda x: np.polyval(coefficients, x), -4.0, 4.0)


def example(rng):
    return np.append(1.0, rng.normal(size=3)), -1.0, 2.0
