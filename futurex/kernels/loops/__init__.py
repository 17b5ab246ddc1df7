"""Whole loops as machine code: one function for a loop and all that it contains, over scalars and small arrays.

It gives NumPy's bits: what is exact is generated, what is not is called in NumPy's own inner loops or in Python.
"""

from futurex.kernels.loops.backend import LoopBackend

__all__ = ["LoopBackend"]
