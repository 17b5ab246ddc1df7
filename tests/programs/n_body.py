"""Gravitation between all pairs, kick-drift-kick, after Philip Mocz's n-body tutorial (2020)."""

import numpy as np


def acceleration(pos, mass, G, softening):
    x = pos[:, 0:1]
    y = pos[:, 1:2]
    z = pos[:, 2:3]
    dx = x.T - x
    dy = y.T - y
    dz = z.T - z
    inv_r3 = dx**2 + dy**2 + dz**2 + softening**2
    inv_r3[inv_r3 > 0] = inv_r3[inv_r3 > 0] ** (-1.5)
    ax = G * (dx * inv_r3) @ mass
    ay = G * (dy * inv_r3) @ mass
    az = G * (dz * inv_r3) @ mass
    return np.hstack((ax, ay, az))


def energy(pos, vel, mass, G):
    kinetic = 0.5 * np.sum(np.sum(mass * vel**2))
    d = pos[None, :, :] - pos[:, None, :]
    r = np.sqrt((d**2).sum(-1))
    inv_r = r.copy()
    inv_r[r > 0] = 1.0 / r[r > 0]
    potential = G * np.sum(np.sum(np.triu(-(mass * mass.T) * inv_r, 1)))
    return kinetic, potential


def n_body(pos, vel, mass, steps, dt=0.01, G=1.0, softening=0.1):
    vel = vel - np.mean(mass * vel, 0) / np.mean(mass)
    acc = acceleration(pos, mass, G, softening)
    ke = np.zeros(steps)
    pe = np.zeros(steps)
    for i in range(steps):
        vel += acc * dt / 2.0
        pos = pos + vel * dt
        acc = acceleration(pos, mass, G, softening)
        vel += acc * dt / 2.0
        ke[i], pe[i] = energy(pos, vel, mass, G)
    return pos, vel, ke + pe


def example(rng):
    n = 24
    return rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), 20.0 * np.ones((n, 1)) / n, 8
