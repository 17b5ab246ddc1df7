"""Gillespie's exact simulation (1977) of a network, its rate equations, pH of a buffer, and Hueckel's orbitals."""

import numpy as np


def gillespie(counts, rates, change, uniforms):
    counts = counts.copy()
    t = 0.0
    history = [counts.copy()]
    for first, second in uniforms:
        propensity = rates * np.array([counts[0] * counts[1], counts[2], counts[2]])
        total = propensity.sum()
        if total == 0:
            break
        t -= np.log(first) / total
        reaction = np.searchsorted(np.cumsum(propensity), second * total)
        counts += change[reaction]
        history.append(counts.copy())
    return t, np.array(history)


def kinetics(y, rates, dt, steps):
    def slope(y):
        forward = rates[0] * y[0] * y[1] - rates[1] * y[2]
        product = rates[2] * y[2]
        return np.array([-forward + product, -forward, forward - product, product])

    out = np.empty((steps, 4))
    for k in range(steps):
        out[k] = y
        k1 = slope(y)
        k2 = slope(y + dt / 2 * k1)
        k3 = slope(y + dt / 2 * k2)
        k4 = slope(y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return out


def ph(acid, base, ka):
    low, high = 0.0, 14.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        h = 10.0**-middle
        charge = h + base - 1e-14 / h - acid * ka / (ka + h)
        if charge > 0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def hueckel(bonds, atoms, electrons):
    matrix = np.zeros((atoms, atoms))
    for i, j in bonds:
        matrix[i, j] = matrix[j, i] = -1.0
    energies, orbitals = np.linalg.eigh(matrix)
    occupation = np.zeros(atoms)
    for k in range(electrons):
        occupation[k // 2] += 1
    density = (orbitals * occupation) @ orbitals.T
    return energies @ occupation, np.array([density[i, j] for i, j in bonds])


def reaction_network(counts, rates, change, uniforms, base):
    end, history = gillespie(counts, rates, change, uniforms)
    curve = kinetics(counts / counts.sum(), rates * np.array([100.0, 1.0, 1.0]), 0.01, 60)
    titration = [ph(0.1, b, 1.8e-5) for b in base]
    bonds = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
    return end, history, curve, titration, hueckel(bonds, 6, 6)


def example(rng):
    counts = np.array([40, 50, 0, 0])
    change = np.array([[-1, -1, 1, 0], [1, 1, -1, 0], [1, 0, -1, 1]])
    return counts, np.array([0.01, 0.1, 0.5]), change, rng.random((120, 2)), np.linspace(0.0, 0.12, 7)
