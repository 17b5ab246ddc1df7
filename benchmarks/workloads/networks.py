"""The larger networks that are timed: their data, and their initial weights as a file that every stack reads."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
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

    name: str
    shape: tuple[int, ...]
    optimizer: str
    rate: float
    dropout: float = 0.0
    images: bool = True

    @property
    def title(self) -> str:
        """What is measured."""
        return self.name.format(rows=self.shape[0])

    def times(self, factor: int) -> Network:
        """Return the network with a batch that is ``factor`` times as large."""
        return replace(self, shape=(factor * self.shape[0], *self.shape[1:]))


NETWORKS = {
    "alexnet": Network("AlexNet, batch {rows}, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3, 0.5),
    "googlenet": Network("GoogLeNet, batch {rows}, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3, 0.2),
    "resnet50": Network("ResNet-50, batch {rows}, 224 x 224, momentum", (8, 224, 224, 3), "momentum", 1e-3),
    "lstm": Network("LSTM 2 x 256, length 64, batch {rows}, Adam", (32, 64, 256), "adam", 1e-3, images=False),
    "transformer": Network(
        "transformer block 512, length 128, batch {rows}, Adam", (8, 128, 512), "adam", 1e-4, images=False
    ),
}
MOMENTUM = 0.9
SIZE, SMALL = "BENCHMARKS_SIZE", "small"
"""The variable of a process with batches of another size: so many times as large, or small, two rows of eight steps."""


def batch(name: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(x, y)``: float32 inputs and int32 labels, or for the transformer block the outputs it should have."""
    size, rng = os.environ.get(SIZE, "1"), np.random.default_rng(seed)
    if size == SMALL:
        shape = NETWORKS[name].shape
        shape = (2, 8, _SMALL.get(name, {}).get("width", shape[2])) if len(shape) == 3 else (2, *shape[1:])
    else:
        shape = NETWORKS[name].times(int(size)).shape
    x = rng.standard_normal(shape, dtype=np.float32)
    if name == "transformer":
        return x, rng.standard_normal(shape, dtype=np.float32)
    return x, rng.integers(0, CLASSES, len(x)).astype(np.int32)


_SMALL: dict[str, dict[str, int]] = {"transformer": {"width": 64, "heads": 4, "hidden": 128}}


def write_weights(name: str, path: Path, size: str = "1") -> None:
    """Write the initial weights in futurex's structure and layout, for batches of a size."""
    import futurex as fx

    options: dict[str, Any] = {"lstm": {"channels": 256, "classes": CLASSES}}.get(name, {})
    options |= _SMALL.get(name, {}) if size == SMALL else {}
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
