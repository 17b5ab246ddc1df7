"""Whole loops as machine code: ``loop`` nodes whose bodies are scalars and small arrays, with NumPy's bits."""

from futurex.kernels.loops.kernel import LoopBackend

__all__ = ["LoopBackend"]
