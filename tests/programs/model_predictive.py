"""A pendulum held upright: Riccati's equation for the gain, an observer, and saturated control of the plant."""

import numpy as np


def riccati(a, b, q, r, rounds=60):
    p = q.copy()
    for _ in range(rounds):
        gain = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
        new = q + a.T @ p @ (a - b @ gain)
        if np.abs(new - p).max() < 1e-9:
            break
        p = new
    return gain, p


def simulate(a, b, c, gain, observer, start, noise, limit):
    x, guess = start, np.zeros_like(start)
    states, inputs = [x], []
    for v in noise:
        u = np.clip(-gain @ guess, -limit, limit)
        y = c @ x + v
        guess = a @ guess + b @ u + observer @ (y - c @ guess)
        x = a @ x + b @ u + 0.002 * np.array([0.0, np.sin(x[0])])
        states.append(x)
        inputs.append(u)
    return np.array(states), np.array(inputs)


def model_predictive(start, noise, limit):
    dt = 0.05
    a = np.array([[1.0, dt], [9.81 * dt, 1.0]])
    b = np.array([[0.0], [dt]])
    c = np.array([[1.0, 0.0]])
    gain, p = riccati(a, b, np.diag([10.0, 1.0]), np.array([[0.1]]))
    observer, _ = riccati(a.T, c.T, np.eye(2), np.array([[0.01]]))
    states, inputs = simulate(a, b, c, gain, observer.T, start, noise, limit)
    settled = np.abs(states[:, 0]) < 0.02
    late = len(settled) - np.argmin(settled[::-1]) if not settled.all() else 0
    return gain, p, states, inputs, late, (inputs**2).sum()


def example(rng):
    return np.array([0.2, -0.1]), 0.002 * rng.normal(size=(50, 1)), 8.0
