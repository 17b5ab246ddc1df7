"""Derivatives, Graph -> Graph."""

from futurex.autodiff.forward import jvp
from futurex.autodiff.reverse import grad, pullback, value_and_grad

__all__ = ["grad", "jvp", "pullback", "value_and_grad"]
