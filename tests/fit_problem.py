"""A small regression, and runs of it."""

import numpy as np

import futurex as fx

WAIT = 60


def mean_square(params, x, y):
    return ((x @ params["w"] + params["b"] - y) ** 2).mean()


def problem(n=50, width=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, width))
    return {"w": np.zeros(width), "b": np.zeros(())}, (x, x @ np.arange(1.0, width + 1) + 0.5)


def fit(*args, **options):
    return fx.fit(*args, **{"progress": False, **options})
