"""Kernels of short rows beside NumPy, for the tests of both ways in which sixteen of them lie side by side."""

import numpy as np
from compare import bits

from futurex.kernels.numba_ import NumbaBackend
from futurex.tree import Aval, apply, param

BACKEND = NumbaBackend()


def p(shape, dtype="f4", name=""):
    return param(Aval(shape, np.dtype(dtype)), name)


def reduced(name, x, keepdims=True):
    dtype = {"dtype": None} if name in ("sum", "prod") else {}
    return apply(name, x, axis=(x.ndim - 1,), keepdims=keepdims, **dtype)


def drawn(rng, shape, dtype, zeros=False):
    """Numbers with ends of the range and what is not a number among them; ``zeros``: and rows of zeros with a sign,
    which no maximum may meet beside others: NumPy's is the one or the other."""
    if dtype == "?":
        return rng.random(shape) < 0.8
    values = (rng.normal(size=shape) * 3).astype(dtype)
    if np.dtype(dtype).kind == "f":
        for special in (np.inf, -np.inf, np.nan, 1e-40):
            values[rng.random(shape) < 0.003] = special
        if zeros:
            values[rng.integers(0, shape[0], shape[0] // 8)] = -0.0
    return values


def known(values):
    """The same with one NaN for all: which of two comes back is the processor's choice."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values) if values.dtype.kind == "f" else values


def check(graph, inputs, threads=(1, 2)):
    """A region by its kernel and by NumPy: the same bits."""
    node = apply("fused_reduction", *graph.params, graph=graph)
    with np.errstate(all="ignore"):
        expected = [np.asarray(each) for each in graph(*inputs)]
    for count in threads:
        kernel = BACKEND.claim(node, count)
        outs = [np.full(out.shape, 77).astype(out.dtype) for out in graph.outs]
        kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
        assert kernel.late.interpreted == 0
        for k, (actual, other) in enumerate(zip(outs, expected, strict=True)):
            assert bits(known(actual)) == bits(known(other)), (str(graph), count, k, inputs[0].shape)
