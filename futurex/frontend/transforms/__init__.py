"""Functions made of functions: derivatives and maps, for plain NumPy code."""

from futurex.frontend.transforms.gradients import grad, stop_gradient, value_and_grad

__all__ = ["grad", "stop_gradient", "value_and_grad"]
