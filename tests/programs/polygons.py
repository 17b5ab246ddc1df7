"""A convex hull by Andrew's monotone chain (1979), its area, and points in polygon by ray casting."""

import numpy as np


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def half(points):
    chain = []
    for p in points:
        while len(chain) >= 2 and cross(chain[-2], chain[-1], p) <= 0:
            chain.pop()
        chain.append(p)
    return chain


def hull(points):
    order = points[np.lexsort((points[:, 1], points[:, 0]))]
    lower = half(order)
    upper = half(order[::-1])
    return np.array(lower[:-1] + upper[:-1])


def contains(polygon, points):
    x, y = points.T
    inside = np.zeros(len(points), dtype=bool)
    x1, y1 = polygon[-1]
    for x2, y2 in polygon:
        crosses = (y1 > y) != (y2 > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = (x2 - x1) * (y - y1) / (y2 - y1) + x1
        inside ^= crosses & (x < at)
        x1, y1 = x2, y2
    return inside


def polygons(points, probes):
    outline = hull(points)
    x, y = outline[:, 0], outline[:, 1]
    area = 0.5 * abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))
    return outline, area, contains(outline, probes)


def example(rng):
    return rng.normal(size=(40, 2)), rng.normal(size=(30, 2)) * 2
