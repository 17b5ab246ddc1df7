"""Derivatives, Graph -> Graph."""

from futurex.autodiff.reverse import grad, pullback, value_and_grad

__all__ = ["grad", "pullback", "value_and_grad"]
