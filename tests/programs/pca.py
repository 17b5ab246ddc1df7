"""Principal components by the singular value decomposition, signs fixed by the largest loading."""

import numpy as np


def pca(x, n_components=2):
    mean = x.mean(axis=0)
    centred = x - mean
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    largest = np.argmax(np.abs(vt), axis=1)
    signs = np.sign(vt[range(vt.shape[0]), largest])
    vt *= signs[:, np.newaxis]
    u *= signs
    variance = s**2 / (x.shape[0] - 1)
    scores = u[:, :n_components] * s[:n_components]
    restored = scores @ vt[:n_components] + mean
    return {
        "components": vt[:n_components],
        "explained": (variance / variance.sum())[:n_components],
        "scores": scores,
        "error": np.sqrt(np.mean((x - restored) ** 2)),
    }


def example(rng):
    return (rng.normal(size=(60, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(60, 8)),)
