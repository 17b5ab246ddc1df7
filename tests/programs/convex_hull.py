"""Geometry: Andrew's convex hull (1979), rotating calipers, the smallest circle, curves by de Casteljau."""

import numpy as np


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def hull_of(points):
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    lower = []
    for p in points:
        while len(lower) >= 2 and cross(lower[-2], lower[-1], p) <= 0:
            lower.pop()
        lower.append(p)
    upper = []
    for p in points[::-1]:
        while len(upper) >= 2 and cross(upper[-2], upper[-1], p) <= 0:
            upper.pop()
        upper.append(p)
    return np.array(lower[:-1] + upper[:-1])


def diameter(hull):
    best = 0.0
    for i in range(len(hull)):
        for j in range(i + 1, len(hull)):
            best = max(best, np.hypot(*(hull[i] - hull[j])))
    return best


def smallest_box(hull):
    area, angle = np.inf, 0.0
    edges = np.diff(np.vstack([hull, hull[:1]]), axis=0)
    for dx, dy in edges:
        theta = np.arctan2(dy, dx)
        c, s = np.cos(theta), np.sin(theta)
        turned = hull @ np.array([[c, -s], [s, c]])
        width, height = np.ptp(turned, axis=0)
        if width * height < area:
            area, angle = width * height, theta
    return area, angle


def enclosing_circle(points, rounds=100):
    centre = points.mean(axis=0)
    for k in range(rounds):
        far = points[np.argmax(((points - centre) ** 2).sum(axis=1))]
        centre = centre + (far - centre) / (k + 2)
    return centre, np.sqrt(((points - centre) ** 2).sum(axis=1).max())


def bezier(control, t):
    layer = [np.outer(np.ones_like(t), p) for p in control]
    while len(layer) > 1:
        layer = [(1 - t)[:, None] * a + t[:, None] * b for a, b in zip(layer[:-1], layer[1:])]  # noqa: B905, RUF007
    return layer[0]


def convex_hull(points, control):
    hull = hull_of(points)
    x, y = hull.T
    area = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
    curve = bezier(control, np.linspace(0, 1, 9))
    return hull, area, diameter(hull), smallest_box(hull), enclosing_circle(points), curve


def example(rng):
    return rng.normal(size=(40, 2)), rng.normal(size=(4, 2))
