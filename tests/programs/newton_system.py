"""Newton's method with a backtracking line search for a system of nonlinear equations: Broyden's tridiagonal one."""

import numpy as np


def residual(x):
    left = np.concatenate(([0.0], x[:-1]))
    right = np.append(x[1:], 0.0)
    return (3 - 2 * x) * x - left - 2 * right + 1


def jacobian(x):
    n = x.size
    j = np.diag(3 - 4 * x)
    j += np.diag(-np.ones(n - 1), -1) + np.diag(-2 * np.ones(n - 1), 1)
    return j


def newton_system(x, tol=1e-10):
    f = residual(x)
    iterations = 0
    while np.linalg.norm(f) > tol:
        dx = np.linalg.solve(jacobian(x), -f)
        t = 1.0
        while np.linalg.norm(residual(x + t * dx)) > (1 - 0.1 * t) * np.linalg.norm(f):
            t *= 0.5
            if t < 1e-8:
                break
        x = x + t * dx
        f = residual(x)
        iterations += 1
        if iterations >= 50:
            break
    return x, iterations


def example(rng):
    return (-1.0 + 0.3 * rng.normal(size=20),)
