"""The frontend: from a plain NumPy function to a tree, and the arrays that come back."""

from futurex.frontend.array import Array
from futurex.frontend.autocast import autocast
from futurex.frontend.decorator import futurize
from futurex.frontend.errors import StagingError
from futurex.frontend.program import Program, lower, precompile
from futurex.frontend.staging import Futurized
from futurex.frontend.switch import disable
from futurex.frontend.transforms import (
    checkpoint,
    custom_vjp,
    grad,
    hessian,
    jacobian,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)

__all__ = [
    "Array",
    "Futurized",
    "Program",
    "StagingError",
    "autocast",
    "checkpoint",
    "custom_vjp",
    "disable",
    "futurize",
    "grad",
    "hessian",
    "jacobian",
    "jvp",
    "linearize",
    "lower",
    "precompile",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
