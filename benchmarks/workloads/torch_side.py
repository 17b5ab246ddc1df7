"""The training steps in PyTorch."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.workloads.cases import CASES, DROPOUT, HAR_CONVOLUTIONS, HAR_POOL, MLP_WIDTHS, batch, weights


class FlatConvolution(nn.Module):
    """The HAR network with Conv1d (channels first), or with Conv2d of height 1 in the channels-last memory format."""

    def __init__(self, dropout: float, channels_last: bool) -> None:
        super().__init__()
        self.channels_last = channels_last
        layer = (lambda i, o: nn.Conv2d(i, o, (1, 10))) if channels_last else (lambda i, o: nn.Conv1d(i, o, 10))
        self.convolutions = nn.ModuleList(layer(i, o) for i, o in HAR_CONVOLUTIONS)
        self.pool = nn.MaxPool2d((1, HAR_POOL)) if channels_last else nn.MaxPool1d(HAR_POOL)
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(HAR_CONVOLUTIONS[-1][1], 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 7)."""
        for i, convolution in enumerate(self.convolutions):
            x = torch.relu(convolution(x))
            if i == 1:
                x = self.pool(x)
        return self.dense(self.dropout(x.flatten(2).mean(dim=2)))

    def load(self, initial: dict[str, np.ndarray]) -> None:
        """Take channels-last NumPy weights."""
        with torch.no_grad():
            for i, convolution in enumerate(self.convolutions, 1):
                weight = torch.from_numpy(initial[f"w{i}"]).permute(2, 1, 0)
                convolution.weight.copy_(weight.unsqueeze(2) if self.channels_last else weight)
                convolution.bias.copy_(torch.from_numpy(initial[f"b{i}"]))
            self.dense.weight.copy_(torch.from_numpy(initial["w5"]).T)
            self.dense.bias.copy_(torch.from_numpy(initial["b5"]))

    def arrange(self, x: np.ndarray) -> torch.Tensor:
        """Return (N, length, channels) input in this network's layout."""
        first = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 2, 1)))
        return first.unsqueeze(2).contiguous(memory_format=torch.channels_last) if self.channels_last else first


class Dense(nn.Module):
    """Linear layers with relu between them; one output column gives flat logits."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes), or (N,) for one class."""
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        x = self.layers[-1](x)
        return x.squeeze(1) if x.shape[1] == 1 else x

    def load(self, initial: dict[str, np.ndarray]) -> None:
        """Take NumPy weights (in, out)."""
        with torch.no_grad():
            for i, layer in enumerate(self.layers, 1):
                layer.weight.copy_(torch.from_numpy(np.atleast_2d(initial[f"w{i}"].T)))
                layer.bias.copy_(torch.from_numpy(np.atleast_1d(initial[f"b{i}"])))

    def arrange(self, x: np.ndarray) -> torch.Tensor:
        """Return the input as it is."""
        return torch.from_numpy(x)


def network(model: str, dropout: float, channels_last: bool = False) -> FlatConvolution | Dense:
    """Return the untrained network of a case."""
    if model == "har":
        return FlatConvolution(dropout, channels_last)
    return Dense(MLP_WIDTHS if model == "mlp" else (1_000, 1))


class TrainingStep:
    """One forward, backward and update; ``compiled`` sends network and loss through torch.compile."""

    def __init__(self, case: str, compiled: bool = False, channels_last: bool = False) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.case, self.compiled, self.channels_last = CASES[case], compiled, channels_last
        self.step = self._build(DROPOUT[self.case.model])

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout, from the common initial weights."""
        step = self._build(0.0)
        return [step().item() for _ in range(steps)]

    def _build(self, dropout: float) -> Callable[[], torch.Tensor]:
        torch.manual_seed(0)
        model = network(self.case.model, dropout, self.channels_last)
        model.load(weights(self.case.model))
        optimizer = optimizer_for(model, self.case.optimizer, self.case.rate)
        inputs, labels = batch(self.case.model)
        x = model.arrange(inputs)
        y = torch.from_numpy(labels if self.case.model == "logistic" else labels.astype(np.int64))
        measure = (
            functional.binary_cross_entropy_with_logits if self.case.model == "logistic" else functional.cross_entropy
        )

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return measure(model(x), y)

        forward = torch.compile(loss_of) if self.compiled else loss_of

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = forward(x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step


def optimizer_for(model: nn.Module, name: str, rate: float) -> torch.optim.Optimizer:
    """Return PyTorch's own fused optimizer."""
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    return kind(model.parameters(), lr=rate, fused=True)


class ManualLogistic:
    """Gradient descent on the logistic regression with the gradient written out by hand, without autograd."""

    def __init__(self, case: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.rate = CASES[case].rate
        self.x, self.y = (torch.from_numpy(one) for one in batch("logistic"))
        self._reset()

    def _reset(self) -> None:
        self.w, self.b = (torch.from_numpy(one.copy()) for one in weights("logistic").values())

    def check(self, steps: int) -> list[float]:
        """Return the first losses from the common initial weights."""
        losses = []
        for _ in range(steps):
            losses.append(functional.binary_cross_entropy_with_logits(self.x @ self.w + self.b, self.y).item())
            self.step()
        self._reset()
        return losses

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights once."""
        error = torch.sigmoid(torch.mv(self.x, self.w).add_(self.b)).sub_(self.y)
        scale = self.rate / len(self.y)
        self.w.addmv_(self.x.T, error, alpha=-scale)
        self.b.sub_(error.sum(), alpha=scale)
