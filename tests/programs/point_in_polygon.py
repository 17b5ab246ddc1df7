"""Points in a fixed polygon and the polygon's moments, vectorised over edges."""

import numpy as np


def winding(polygon, points):
    a = polygon[None] - points[:, None]
    b = np.roll(a, -1, axis=1)
    crossing = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    up = (a[..., 1] <= 0) & (b[..., 1] > 0) & (crossing > 0)
    down = (a[..., 1] > 0) & (b[..., 1] <= 0) & (crossing < 0)
    return up.sum(axis=1) - down.sum(axis=1)


def centroid(polygon):
    x0, y0 = polygon.T
    x1, y1 = np.roll(polygon, -1, axis=0).T
    a = x0 * y1 - x1 * y0
    area = a.sum() / 2
    return area, np.array([((x0 + x1) * a).sum(), ((y0 + y1) * a).sum()]) / (6 * area)


def point_in_polygon(polygon, points):
    area, centre = centroid(polygon)
    inside = winding(polygon, points) != 0
    distance = np.where(inside, np.hypot(*(points - centre).T), np.nan)
    return area, centre, inside, np.nanmax(distance)


def example(rng):
    angle = np.sort(rng.uniform(0, 2 * np.pi, 15))
    radius = rng.uniform(0.5, 1.5, 15)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1), rng.uniform(-1, 1, (60, 2))
