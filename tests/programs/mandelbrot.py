"""The Mandelbrot set with a mask of the points that are still inside."""

import numpy as np


def mandelbrot(xmin, xmax, ymin, ymax, shape, max_iter=30):
    x = np.linspace(xmin, xmax, shape[1])
    y = np.linspace(ymin, ymax, shape[0])
    c = x + 1j * y[:, None]
    z = np.zeros_like(c)
    count = np.zeros(c.shape, dtype=int)
    inside = np.ones(c.shape, dtype=bool)
    for k in range(max_iter):
        z[inside] = z[inside] ** 2 + c[inside]
        escaped = inside & (z.real**2 + z.imag**2 > 4)
        count[escaped] = k
        inside &= ~escaped
    count[inside] = max_iter
    return count, inside.mean()


def example(rng):
    x, y = rng.uniform(-0.2, 0.2, 2)
    return -2.0 + x, 0.7 + x, -1.2 + y, 1.2 + y, (40, 50)
