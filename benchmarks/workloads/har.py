"""What the accuracy runs of all stacks share: data split by person, order of the batches, weights, the measure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.workloads.cases import weights
from futurex.data.dataset import Dataset
from futurex.data.har import load_har
from futurex.data.sampler import Sampler

BATCH = 128
RATE = 1e-3


def load(limit: int | None) -> Dataset:
    """Return the data set, cut to its first ``limit`` examples of each part unless None."""
    data = load_har()
    return data if limit is None else data.head(limit)


def order(samples: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Yield the index vectors of the batches of one epoch, the same for every stack."""
    return Sampler(samples, BATCH, seed).epoch(epoch)


def write_weights(folder: Path, seed: int) -> str:
    """Save the initial weights of one seed and return the path of the file."""
    path = folder / f"har-{seed}.npz"
    np.savez(path, allow_pickle=False, **weights("har", seed))
    return str(path)


def read_weights(path: str) -> dict[str, np.ndarray]:
    """Return saved weights."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def parts(x: np.ndarray, size: int = 512) -> Iterator[np.ndarray]:
    """Yield ``x`` in consecutive parts of at most ``size`` examples."""
    for start in range(0, len(x), size):
        yield x[start : start + size]


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose largest logit is that of the label.

    >>> accuracy(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1]))
    0.5
    """
    return float((logits.argmax(axis=1) == labels).mean())
