"""Kernels from oneDNN's C library for float32 arrays on the CPU.

A factory takes shapes and attributes and returns `kernel(out, *inputs)`, bound to them, or None where oneDNN is not
installed or has no implementation, so that the caller takes NumPy. Arrays are C-contiguous and channels-last. A kernel
object is run by one thread at a time; different kernel objects share no memory and may run side by side. A kernel uses
the number of OpenMP threads that the thread which built it had set with `set_threads`.
"""

from futurex.kernels.onednn.binding import (
    OneDNNError,
    Unimplemented,
    available,
    get_threads,
    library_path,
    set_threads,
    version,
    why_not,
)
from futurex.kernels.onednn.conv import conv_forward, conv_input_grad, conv_weight_grad
from futurex.kernels.onednn.gemm import matmul, matmul_of_views
from futurex.kernels.onednn.norm import (
    batch_norm_backward,
    batch_norm_forward,
    layer_norm_forward,
)
from futurex.kernels.onednn.pool import avg_pool, avg_pool_grad
from futurex.kernels.onednn.primitive import Kernel, contiguous_strides

__all__ = [
    "Kernel",
    "OneDNNError",
    "Unimplemented",
    "available",
    "avg_pool",
    "avg_pool_grad",
    "batch_norm_backward",
    "batch_norm_forward",
    "contiguous_strides",
    "conv_forward",
    "conv_input_grad",
    "conv_weight_grad",
    "get_threads",
    "layer_norm_forward",
    "library_path",
    "matmul",
    "matmul_of_views",
    "set_threads",
    "version",
    "why_not",
]
