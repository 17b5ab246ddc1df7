"""Networks, data and initial weights of the training steps, as NumPy arrays that every stack starts from.

Arrays are channels-last: inputs (N, length, channels), convolution weights (kernel, in, out), dense weights (in, out).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

HAR_CONVOLUTIONS = ((6, 100), (100, 100), (100, 160), (160, 160))  # (in, out) channels, no padding
HAR_KERNEL = 10
HAR_POOL = 3
HAR_CLASSES = 7
MLP_WIDTHS = (784, 512, 512, 10)
LOGISTIC_SHAPES = {"logistic": (10_000, 1_000), "tiny": (8, 4)}  # tiny: next to no arithmetic, for measuring overhead


@dataclass(frozen=True)
class Case:
    """One training step: which network, which optimizer, at which learning rate."""

    model: str
    optimizer: str
    rate: float
    title: str


CASES = {
    "har-adam": Case("har", "adam", 1e-3, "HAR 1-D CNN, batch 128, Adam"),
    "mlp-sgd": Case("mlp", "sgd", 1e-2, "MLP 784-512-512-10, batch 128, SGD"),
    "mlp-adam": Case("mlp", "adam", 1e-3, "MLP 784-512-512-10, batch 128, Adam"),
    "tiny-sgd": Case("tiny", "sgd", 1e-1, "logistic regression 8 x 4, gradient descent"),
    "logistic-sgd": Case("logistic", "sgd", 1e-1, "logistic regression 10000 x 1000, full batch, gradient descent"),
}
FLOORS = {
    "har": "6.7e9 operations as convolutions are defined; as products between transforms 1.8e9; the rest: transforms, "
    "which wait for the caches (a fifth), elementwise operations (an eighth), batches of 128 x 100 x 100 at 0.75 to "
    "0.95 of the rate of multiply-adds alone, and the call with its 35 arguments and results",
    "mlp": "4.11e8 operations: 3 products forward, 5 backward, of 128 x 784 x 512, 128 x 512 x 512, 128 x 512 x 10; "
    "the rest: operands that the caches do not hold, and the call itself, 0.05 to 0.1 ms",
    "logistic": "40 MB: the matrix once; a loop that only reads it takes 0.27 to 0.6 ms, with what neighbours leave of "
    "the last cache; the second product reads it from the second-level cache, 0.19 ms",
    "tiny": "next to nothing",
}
"""What a step cannot do without."""
DROPOUT = {"har": 0.5, "mlp": 0.0, "logistic": 0.0, "tiny": 0.0}


def weights(model: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return float32 initial weights: Glorot-uniform matrices and zero biases, keyed ``w1, b1, w2, ...``.

    >>> weights("har")["w1"].shape
    (10, 6, 100)
    """
    rng = np.random.default_rng(seed)
    match model:
        case "har":
            shapes: list[tuple[int, ...]] = [(HAR_KERNEL, *channels) for channels in HAR_CONVOLUTIONS]
            shapes.append((HAR_CONVOLUTIONS[-1][1], HAR_CLASSES))
        case "mlp":
            shapes = list(itertools.pairwise(MLP_WIDTHS))
        case "logistic" | "tiny":
            return {"w1": np.zeros(LOGISTIC_SHAPES[model][1], np.float32), "b1": np.zeros((), np.float32)}
        case _:
            raise unknown(model)
    found: dict[str, np.ndarray] = {}
    for i, shape in enumerate(shapes, 1):
        field = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
        found[f"w{i}"] = rng.uniform(-limit, limit, shape).astype(np.float32)
        found[f"b{i}"] = np.zeros(shape[-1], np.float32)
    return found


def batch(model: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return one batch ``(x, y)``: float32 inputs, int32 class labels (float32 0/1 for the logistic regression)."""
    rng = np.random.default_rng(seed)
    match model:
        case "har":
            x = rng.standard_normal((128, 80, 6), dtype=np.float32)
            return x, rng.integers(0, HAR_CLASSES, 128).astype(np.int32)
        case "mlp":
            x = rng.standard_normal((128, MLP_WIDTHS[0]), dtype=np.float32)
            return x, rng.integers(0, MLP_WIDTHS[-1], 128).astype(np.int32)
        case "logistic" | "tiny":
            x = rng.standard_normal(LOGISTIC_SHAPES[model], dtype=np.float32)
            truth = rng.standard_normal(x.shape[1], dtype=np.float32)
            return x, (x @ truth > 0).astype(np.float32)
    raise unknown(model)


def unknown(model: str) -> ValueError:
    """Return the error for a model that has no data and no weights here."""
    return ValueError(f"no model {model!r}: use har, mlp, logistic or tiny")


def disagreement(losses: dict[str, list[float]]) -> float:
    """Return the largest relative difference between the stacks' losses, step by step.

    >>> disagreement({"a": [2.0, 1.0], "b": [2.0, 1.1]})
    0.1
    """
    table = np.array(list(losses.values()), dtype=np.float64)
    if len(table) < 2:
        return 0.0
    spread: Any = (table.max(axis=0) - table.min(axis=0)) / np.abs(table).min(axis=0)
    return round(float(spread.max()), 12)
