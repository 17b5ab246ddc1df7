"""The one-dimensional wave equation, leapfrog in time, by rotating three references to arrays."""

import numpy as np


def wave_equation(u0, c, steps):
    n = len(u0)
    dx = 1.0 / (n - 1)
    dt = 0.9 * dx / c
    r2 = (c * dt / dx) ** 2
    prev = u0.copy()
    now = u0.copy()
    now[1:-1] = prev[1:-1] + 0.5 * r2 * np.diff(prev, 2)
    nxt = np.empty_like(now)
    history = [prev.copy()]
    for k in range(steps):
        nxt[1:-1] = 2 * now[1:-1] - prev[1:-1] + r2 * (now[2:] - 2 * now[1:-1] + now[:-2])
        nxt[0] = nxt[-1] = 0
        prev, now, nxt = now, nxt, prev
        if k % 10 == 0:
            history.append(now.copy())
    energy = 0.5 * np.sum(((now - prev) / dt) ** 2) + 0.5 * c**2 * np.sum((np.diff(now) / dx) ** 2)
    return np.array(history), energy * dx


def example(rng):
    x = np.linspace(0, 1, 201)
    return np.exp(-((x - rng.uniform(0.3, 0.7)) ** 2) / 0.005) * np.sin(np.pi * x), 1.5, 60
