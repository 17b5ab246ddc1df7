"""Canny's edges (1986) - smoothing, gradients, thinning, hysteresis - and straight lines by Hough's transform."""

import numpy as np


def smooth(image, sigma):
    radius = int(3 * sigma)
    x = np.arange(-radius, radius + 1)
    kernel = np.exp(-(x**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    padded = np.pad(image, radius, mode="edge")
    rows = np.apply_along_axis(lambda row: np.convolve(row, kernel, mode="valid"), 1, padded)
    return np.apply_along_axis(lambda column: np.convolve(column, kernel, mode="valid"), 0, rows)


def thin(magnitude, angle):
    out = np.zeros_like(magnitude)
    degrees = np.rad2deg(angle) % 180
    for i in range(1, magnitude.shape[0] - 1):
        for j in range(1, magnitude.shape[1] - 1):
            d = degrees[i, j]
            if d < 22.5 or d >= 157.5:
                one, two = magnitude[i, j - 1], magnitude[i, j + 1]
            elif d < 67.5:
                one, two = magnitude[i - 1, j - 1], magnitude[i + 1, j + 1]
            elif d < 112.5:
                one, two = magnitude[i - 1, j], magnitude[i + 1, j]
            else:
                one, two = magnitude[i - 1, j + 1], magnitude[i + 1, j - 1]
            if magnitude[i, j] >= one and magnitude[i, j] >= two:
                out[i, j] = magnitude[i, j]
    return out


def hysteresis(thinned, low, high):
    strong = thinned > high
    weak = thinned > low
    stack = [(i, j) for i, j in zip(*np.nonzero(strong))]  # noqa: B905
    edges = strong.copy()
    while stack:
        i, j = stack.pop()
        for di in (-1, 0, 1):
            for dj in (-1, 0, 1):
                y, x = i + di, j + dj
                if 0 <= y < edges.shape[0] and 0 <= x < edges.shape[1] and weak[y, x] and not edges[y, x]:
                    edges[y, x] = True
                    stack.append((y, x))
    return edges


def hough(edges, angles):
    diagonal = int(np.ceil(np.hypot(*edges.shape)))
    votes = np.zeros((2 * diagonal + 1, len(angles)), dtype=int)
    ys, xs = np.nonzero(edges)
    for k, theta in enumerate(angles):
        rho = np.round(xs * np.cos(theta) + ys * np.sin(theta)).astype(int) + diagonal
        np.add.at(votes[:, k], rho, 1)
    best = np.unravel_index(np.argmax(votes), votes.shape)
    return best[0] - diagonal, angles[best[1]], votes.max()


def edge_detection(image):
    blurred = smooth(image, 1.0)
    gy, gx = np.gradient(blurred)
    magnitude, angle = np.hypot(gx, gy), np.arctan2(gy, gx)
    thinned = thin(magnitude, angle)
    edges = hysteresis(thinned, 0.1 * thinned.max(), 0.3 * thinned.max())
    return edges, hough(edges, np.linspace(0, np.pi, 36, endpoint=False))


def example(rng):
    y, x = np.mgrid[:28, :32]
    return (np.where(0.6 * x + 0.8 * y > 22, 1.0, 0.2) + rng.normal(0, 0.02, (28, 32)),)
