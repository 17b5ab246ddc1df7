"""Generated kernels for fused elementwise regions, compiled with llvmlite, the LLVM binding that Numba is built on.

The loops are written as LLVM IR rather than as Python source for Numba: a region compiles in tens of milliseconds
instead of half a second, every operation means exactly what NumPy's loop means, and one serial kernel serves any
number of threads.
"""

from futurex.kernels.numba_.backend import NumbaBackend

__all__ = ["NumbaBackend"]
