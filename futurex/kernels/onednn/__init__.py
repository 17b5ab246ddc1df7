"""Kernels from oneDNN's C library for float32 arrays on the CPU.

A factory takes shapes and attributes and returns `kernel(out, *inputs)`, bound to them, or None where oneDNN is not
installed or has no implementation, so that the caller takes NumPy. Arrays are C-contiguous and channels-last. A kernel
object is run by one thread at a time; different kernel objects share no memory and may run side by side. A kernel is
shared among up to `threads` of the team that generated kernels run on, and never among OpenMP's.
"""

from futurex.kernels.onednn.binding import (
    OneDNNError,
    Unimplemented,
    available,
    library_path,
    version,
    why_not,
)
from futurex.kernels.onednn.conv import conv_forward, conv_input_grad, conv_weight_grad
from futurex.kernels.onednn.gemm import matmul, matmul_of_views
from futurex.kernels.onednn.pool import avg_pool, avg_pool_grad
from futurex.kernels.onednn.primitive import Kernel, contiguous_strides

__all__ = [
    "Kernel",
    "OneDNNError",
    "Unimplemented",
    "available",
    "avg_pool",
    "avg_pool_grad",
    "contiguous_strides",
    "conv_forward",
    "conv_input_grad",
    "conv_weight_grad",
    "library_path",
    "matmul",
    "matmul_of_views",
    "version",
    "why_not",
]
