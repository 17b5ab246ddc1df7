"""Optimizers: a pure ``init`` and a pure ``update`` over pytrees, plain NumPy, staged as part of the step."""

from futurex.optim.optimizers import Adam, AdamW, Optimizer, Sgd, adam, adamw, sgd
from futurex.optim.scaling import Adagrad, Lamb, Lars, RmsProp, adagrad, lamb, lars, rmsprop
from futurex.optim.schedules import (
    average,
    clipped,
    cosine,
    ema,
    exponential,
    polynomial,
    scheduled,
    step_decay,
    warmup,
)

__all__ = [
    "Adagrad", "Adam", "AdamW", "Lamb", "Lars", "Optimizer", "RmsProp", "Sgd", "adagrad", "adam", "adamw", "average",
    "clipped", "cosine", "ema", "exponential", "lamb", "lars", "polynomial", "rmsprop", "scheduled", "sgd",
    "step_decay", "warmup",
]  # fmt: skip
