"""The larger networks that are timed: their data, and their initial weights as a file that every stack reads."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 1000
INCEPTIONS = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
BRANCHES = (("alone",), ("second1", "second2"), ("third1", "third2"), ("pooled",))
POOLED_AFTER = {"3b": 3, "4e": 2}
CONVOLUTIONS = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))
"""AlexNet's strides and paddings; pooling follows the first, second and fifth."""


@dataclass(frozen=True)
class Network:
    """One network with its batch, its optimizer and its dropout."""

    title: str
    shape: tuple[int, ...]
    optimizer: str
    rate: float
    dropout: float = 0.0
    images: bool = True


NETWORKS = {
    "alexnet": Network("AlexNet, batch 8, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3, 0.5),
    "googlenet": Network("GoogLeNet, batch 8, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3, 0.2),
    "resnet50": Network("ResNet-50, batch 8, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3),
    "lstm": Network("LSTM 2 x 256, length 64, batch 32, Adam", (32, 64, 256), "adam", 1e-3, images=False),
    "transformer": Network(
        "transformer block 512, length 128, batch 8, Adam", (8, 128, 512), "adam", 1e-4, images=False
    ),
}
MOMENTUM = 0.9
SMALL = "BENCHMARKS_SMALL"
"""The variable of a process whose batches are two rows of eight steps: a smoke run's."""


def batch(name: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(x, y)``: float32 inputs and int32 labels, or for the transformer block the outputs it should have."""
    shape, rng = NETWORKS[name].shape, np.random.default_rng(seed)
    if os.environ.get(SMALL):
        shape = (2, 8, *shape[2:]) if len(shape) == 3 else (2, *shape[1:])
    x = rng.standard_normal(shape, dtype=np.float32)
    if name == "transformer":
        return x, rng.standard_normal(shape, dtype=np.float32)
    return x, rng.integers(0, CLASSES, len(x)).astype(np.int32)


def write_weights(name: str, path: Path) -> None:
    """Write the initial weights in futurex's structure and layout."""
    import futurex as fx

    options: dict[str, Any] = {"lstm": {"channels": 256, "classes": CLASSES}}.get(name, {})
    with path.open("wb") as file:
        pickle.dump(getattr(fx.models, name).init(np.random.default_rng(0), **options), file, protocol=5)


def read_weights(path: str) -> Any:
    """Return the weights of :func:`write_weights`."""
    with open(path, "rb") as file:
        return pickle.load(file)


def forget_peak() -> None:
    """Let the process's peak of resident memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most bytes of memory that were resident since :func:`forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
