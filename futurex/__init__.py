"""futurex: write NumPy; get a program that is differentiated, futurized, and run across a cluster."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from futurex import nn
from futurex.errors import Donated
from futurex.frontend import (
    Array,
    Futurized,
    Program,
    StagingError,
    autocast,
    checkpoint,
    custom_vjp,
    disable,
    futurize,
    grad,
    hessian,
    jacobian,
    jvp,
    linearize,
    lower,
    precompile,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from futurex.nn import random
from futurex.runtime.timeline import trace
from futurex.uninterrupted import uninterrupted as _uninterrupted

if TYPE_CHECKING:
    from futurex import data, models, numpy, optim
    from futurex.runtime.cluster import Cluster, ClusterUnreachable, LocalityLost, TooFewWorkers
    from futurex.training import strategy
    from futurex.training.callbacks import EarlyStopping
    from futurex.training.fit import attach, fit

__version__ = "0.1.0"
__all__ = [
    "Array", "Cluster", "ClusterUnreachable", "Donated", "EarlyStopping", "Futurized", "LocalityLost", "Program",
    "StagingError", "TooFewWorkers", "attach", "autocast", "checkpoint", "custom_vjp", "data", "disable", "fit",
    "futurize", "grad", "hessian", "jacobian", "jvp", "linearize", "lower", "models", "nn", "numpy", "optim",
    "precompile", "random", "stop_gradient", "strategy", "trace", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

_MODULES = {"data": "data", "models": "models", "numpy": "numpy", "optim": "optim", "strategy": "training.strategy"}
_LATE = {
    "Cluster": "runtime.cluster", "ClusterUnreachable": "runtime.cluster", "EarlyStopping": "training.callbacks",
    "LocalityLost": "runtime.cluster", "TooFewWorkers": "runtime.cluster", "attach": "training.fit",
    "fit": "training.fit",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What not every program needs is imported when it is asked for; programs on this machine never load Dask."""
    if name in _MODULES:
        return importlib.import_module(f"futurex.{_MODULES[name]}")
    if name not in _LATE:
        found = "" if name.startswith("_") else importlib.import_module("futurex.elsewhere").instead(name)
        if found:
            raise AttributeError(f"module 'futurex' has no attribute {name!r}: here it is {found}")
        # Python names the nearest attribute where it knows whose it would be.
        raise AttributeError(f"module 'futurex' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    with _uninterrupted():  # of Dask, a second of imports
        value = globals()[name] = getattr(importlib.import_module(f"futurex.{_LATE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_MODULES})
