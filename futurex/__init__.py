"""futurex: write NumPy; get a program that is differentiated, futurized, and run across a cluster."""

from futurex.kernels import threads as _threads

_threads.configure()  # before anything loads an OpenMP library

from futurex import data, models, nn, optim  # noqa: E402
from futurex.frontend import (  # noqa: E402
    Array,
    Futurized,
    Program,
    StagingError,
    disable,
    futurize,
    grad,
    lower,
    stop_gradient,
    value_and_grad,
)
from futurex.nn import random  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Array", "Futurized", "Program", "StagingError", "data", "disable", "futurize", "grad", "lower", "models", "nn",
    "optim", "random", "stop_gradient", "value_and_grad",
]  # fmt: skip
