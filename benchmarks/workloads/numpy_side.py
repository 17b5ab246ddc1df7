"""The logistic regression in plain NumPy, with the gradient written out by hand."""

from __future__ import annotations

import numpy as np

from benchmarks.workloads.cases import CASES, batch, weights


class ManualLogistic:
    """Full-batch gradient descent: what a user writes without any framework."""

    def __init__(self, case: str) -> None:
        self.rate = np.float32(CASES[case].rate)
        self.x, self.y = batch("logistic")
        self.w, self.b = weights("logistic").values()

    def check(self, steps: int) -> list[float]:
        """Return the first losses from the common initial weights."""
        losses = []
        for _ in range(steps):
            z = (self.x @ self.w + self.b).astype(np.float64)
            losses.append(float((np.logaddexp(0.0, z) - z * self.y).mean()))
            self.step()
        self.w, self.b = weights("logistic").values()
        return losses

    def step(self) -> None:
        """Update the weights once."""
        error = 1.0 / (1.0 + np.exp(-(self.x @ self.w + self.b))) - self.y
        scale = self.rate / np.float32(len(self.y))
        self.w = self.w - scale * (self.x.T @ error)
        self.b = self.b - scale * error.sum()
