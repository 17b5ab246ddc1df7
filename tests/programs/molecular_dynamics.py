"""Velocity Verlet for Lennard-Jones particles in a periodic box."""

import numpy as np


def forces(r, box, cutoff):
    d = r[:, None] - r[None]
    d -= box * np.rint(d / box)
    r2 = np.einsum("ijk,ijk->ij", d, d)
    np.fill_diagonal(r2, np.inf)
    near = r2 < cutoff**2
    inv6 = np.where(near, r2, np.inf) ** -3
    pair = 24 * (2 * inv6**2 - inv6) / r2
    return np.einsum("ij,ijk->ik", pair, d), 2 * (inv6**2 - inv6).sum()


def molecular_dynamics(r, v, box, steps, dt=0.002):
    r, v = r.copy(), v.copy()
    f, potential = forces(r, box, 2.5)
    trajectory = {"kinetic": [], "potential": []}
    for _ in range(steps):
        v += 0.5 * dt * f
        r += dt * v
        r %= box
        f, potential = forces(r, box, 2.5)
        v += 0.5 * dt * f
        trajectory["kinetic"].append(0.5 * (v**2).sum())
        trajectory["potential"].append(potential)
    return r, v, {key: np.array(entry) for key, entry in trajectory.items()}


def example(rng):
    grid = np.stack(np.meshgrid(*[np.arange(3) * 1.3] * 3), -1).reshape(-1, 3)
    return grid + 0.02 * rng.normal(size=grid.shape), rng.normal(size=grid.shape), 3.9, 10
