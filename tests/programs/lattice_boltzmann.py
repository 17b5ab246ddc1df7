"""D2Q9 lattice Boltzmann flow past a cylinder, after Philip Mocz's lattice Boltzmann tutorial (2020)."""

import numpy as np

cxs = np.array([0, 0, 1, 1, 1, 0, -1, -1, -1])
cys = np.array([0, 1, 1, 0, -1, -1, -1, 0, 1])
weights = np.array([4 / 9, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36])
OPPOSITE = [0, 5, 6, 7, 8, 1, 2, 3, 4]


def lattice_boltzmann(F, cylinder, tau, steps):
    F = F.copy()
    for _ in range(steps):
        for i, cx, cy in zip(range(9), cxs, cys, strict=True):
            F[:, :, i] = np.roll(F[:, :, i], cx, axis=1)
            F[:, :, i] = np.roll(F[:, :, i], cy, axis=0)
        bndryF = F[cylinder, :]
        bndryF = bndryF[:, OPPOSITE]
        rho = np.sum(F, 2)
        ux = np.sum(F * cxs, 2) / rho
        uy = np.sum(F * cys, 2) / rho
        Feq = np.zeros(F.shape)
        for i, cx, cy, w in zip(range(9), cxs, cys, weights, strict=True):
            Feq[:, :, i] = (
                rho * w * (1 + 3 * (cx * ux + cy * uy) + 9 * (cx * ux + cy * uy) ** 2 / 2 - 3 * (ux**2 + uy**2) / 2)
            )
        F += -(1.0 / tau) * (F - Feq)
        F[cylinder, :] = bndryF
    ux[cylinder] = 0
    uy[cylinder] = 0
    vorticity = (np.roll(ux, -1, axis=0) - np.roll(ux, 1, axis=0)) - (np.roll(uy, -1, axis=1) - np.roll(uy, 1, axis=1))
    return F, vorticity


def example(rng):
    ny, nx = 24, 48
    F = np.ones((ny, nx, 9)) + 0.01 * rng.normal(size=(ny, nx, 9))
    X, Y = np.meshgrid(range(nx), range(ny))
    F[:, :, 3] += 2 * (1 + 0.2 * np.cos(2 * np.pi * X / nx * 4))
    F *= 100 / F.sum(2, keepdims=True)
    return F, (X - nx / 4) ** 2 + (Y - ny / 2) ** 2 < (ny / 5) ** 2, 0.6, 5
