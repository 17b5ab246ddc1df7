"""Functions of complex numbers computed by a region, and how far their parts are off."""

import numpy as np

from futurex.kernels.numba_ import NumbaBackend
from futurex.tree import Aval, Graph, apply, param


def compute(name, z, *more):
    x = param(Aval(z.shape, z.dtype))
    graph = Graph([x], [apply(name, x, *more)], "region")
    kernel = NumbaBackend().claim(apply("fused", param(x.aval), graph=graph), 1)
    return kernel.call(np.full(z.shape, 77, z.dtype), z)


def made(a, b, dtype):
    z = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), dtype)
    z.real, z.imag = a, b
    return z


def units(actual, true):
    """Of parts."""
    limits = np.finfo(actual.dtype)
    size = np.maximum(np.abs(true), np.longdouble(limits.smallest_normal))
    distance = np.abs(actual - true) / np.exp2(np.floor(np.log2(size)) - limits.nmant)
    return np.where(actual == true.astype(actual.dtype), 0, distance)
