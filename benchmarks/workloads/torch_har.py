"""The accuracy run in PyTorch eager."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.workloads import har
from benchmarks.workloads.cases import DROPOUT
from benchmarks.workloads.torch_side import network, optimizer_for


class TrainHar:
    """Trains the HAR network from given weights, batches in the order of the common sampler."""

    def __init__(self) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def train(self, initial: str, seed: int, epochs: int, limit: int | None) -> dict[str, Any]:
        """Return the accuracy on unseen subjects, the loss of each epoch and the seconds of the run."""
        torch.manual_seed(seed)
        data = har.load(limit)
        model = network("har", DROPOUT["har"], channels_last=True)
        model.load(har.read_weights(initial))
        optimizer = optimizer_for(model, "adam", har.RATE)
        losses, start = [], time.perf_counter()
        for epoch in range(epochs):
            total = 0.0
            for chosen in har.order(len(data.x_train), seed, epoch):
                optimizer.zero_grad(set_to_none=True)
                logits = model(model.arrange(data.x_train[chosen]))
                loss = functional.cross_entropy(logits, torch.from_numpy(data.y_train[chosen]))
                loss.backward()
                optimizer.step()
                total += loss.item() * len(chosen)
            losses.append(total / len(data.x_train))
        seconds = time.perf_counter() - start
        model.eval()
        with torch.no_grad():
            logits = np.concatenate([model(model.arrange(x)).numpy() for x in har.parts(data.x_test)])
        return {"accuracy": har.accuracy(logits, data.y_test), "losses": losses, "seconds": seconds}
