"""Optimizers: a pure ``init`` and a pure ``update`` over pytrees, plain NumPy, staged as part of the step."""

from futurex.optim.optimizers import Adam, AdamW, Optimizer, Sgd, adam, adamw, sgd

__all__ = ["Adam", "AdamW", "Optimizer", "Sgd", "adam", "adamw", "sgd"]
