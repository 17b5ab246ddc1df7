"""A state of qubits, one axis for each, through layers of rotations and controlled gates."""

import numpy as np

HADAMARD = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
CNOT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])


def gate(state, matrix, *qubits):
    k = len(qubits)
    state = np.tensordot(matrix.reshape((2,) * (2 * k)), state, axes=(range(k, 2 * k), qubits))
    return np.moveaxis(state, range(k), qubits)


def quantum_circuit(angles):
    n = angles.shape[1]
    state = np.zeros((2,) * n, complex)
    state[(0,) * n] = 1
    for layer in angles:
        for q, theta in enumerate(layer):
            c, s = np.cos(theta / 2), np.sin(theta / 2)
            state = gate(state, np.array([[c, -1j * s], [-1j * s, c]]), q)
            state = gate(state, HADAMARD, q)
        for q in range(n - 1):
            state = gate(state, CNOT, q, q + 1)
    return (np.abs(state) ** 2).ravel()


def example(rng):
    return (rng.uniform(0, 6, (3, 3)),)
