"""Functions made of functions: derivatives and maps, for plain NumPy code."""

from futurex.frontend.transforms.gradients import grad, stop_gradient, value_and_grad
from futurex.frontend.transforms.jacobians import hessian, jacobian
from futurex.frontend.transforms.linear import jvp, linearize, vjp
from futurex.frontend.transforms.mapping import vmap
from futurex.frontend.transforms.regions import checkpoint, custom_vjp

__all__ = [
    "checkpoint",
    "custom_vjp",
    "grad",
    "hessian",
    "jacobian",
    "jvp",
    "linearize",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
