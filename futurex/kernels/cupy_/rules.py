"""Which ops run on the GPU and how. What is not in these tables, and what raises there, runs on the host.

An op is listed where CuPy's answer is NumPy's, to rounding in sums, products and transcendental functions; what CuPy
answers otherwise has a kernel of its own in :mod:`futurex.kernels.cupy_.exact`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cupy_ import exact
from futurex.tree.node import Node

REBOUND = frozenset((
    # shapes and joins
    "reshape", "transpose", "concatenate", "pad", "flip", "stop_gradient", "contiguous", "full", "iota", "sum_to",
    # reductions, sorting
    "sum", "prod", "max", "min", "any", "all", "cumsum", "sort", "argsort", "norm", "nonzero",
    # products
    "dot", "inner", "einsum", "conv", "conv_input_grad", "conv_weight_grad",
    # networks
    "max_pool", "max_pool_grad", "max_pool_pick", "avg_pool", "avg_pool_grad", "batch_norm", "batch_norm_grad",
    "layer_norm", "layer_norm_grad", "softmax", "log_softmax", "softmax_grad", "log_softmax_grad", "logsumexp",
    "softmax_cross_entropy", "softmax_cross_entropy_grad", "one_hot", "conv_epilogue", "matmul_epilogue",
    # numbers by counter
    "random_bits", "random_uniform", "random_normal", "dropout",
    # matrices, signals
    "inv", "solve", "solve_triangular", "det", "slogdet", "cofactor", "qr", "eigh", "eigvalsh", "fft", "ifft", "rfft",
    "irfft", "real", "imag", "narrow", "widen",
))  # fmt: skip
"""Ops whose reference kernel runs with CuPy's functions in NumPy's place."""

UFUNCS = frozenset((
    "add", "subtract", "multiply", "divide", "negative", "positive", "absolute", "exp", "exp2", "expm1", "log", "log2",
    "log10", "log1p", "sqrt", "cbrt", "square", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "hypot",
    "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "maximum", "minimum", "fmax", "fmin", "logaddexp",
    "logaddexp2", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "equal", "not_equal",
    "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
    "left_shift", "right_shift", "gcd", "lcm", "bitwise_count", "nextafter", "fabs", "fmod", "deg2rad", "radians",
    "rad2deg", "degrees", "heaviside", "ldexp", "copysign", "conjugate", "float_power", "modf", "frexp", "matmul",
))  # fmt: skip
"""Universal functions that mean the same in CuPy."""

REAL_UFUNCS = frozenset(("sign", "less", "less_equal", "greater", "greater_equal"))
"""Those that do so for real numbers."""

FLOAT_UFUNCS = frozenset(("reciprocal",))
"""Those that do so for floats."""

WRITTEN: dict[str, Callable[..., Any]] = {
    "load": exact.load, "store": exact.store, "cast": exact.cast, "where": exact.where, "round": exact.round_,
    "broadcast_to": exact.broadcast_to,
    "gather": exact.gather, "scatter": exact.scatter, "take_along_axis": exact.take_along_axis,
    "add_along_axis": exact.add_along_axis, "masked_store": exact.masked_store,
    "argmax": exact.arg_extreme("argmax"), "argmin": exact.arg_extreme("argmin"),
    "matvec": exact.matvec, "vecmat": exact.vecmat, "vecdot": exact.vecdot, "power": exact.power,
    "floor_divide": exact.floor_divide, "remainder": exact.remainder, "divmod": exact.divided,
    "narrow_product": exact.narrow_product, "convolve": exact.convolve, "svd": exact.svd, "svdvals": exact.svdvals,
    "cholesky": exact.cholesky, "pinv": exact.pinv,
}  # fmt: skip

FACTORISING = frozenset(("inv", "solve", "solve_triangular", "det", "slogdet", "cholesky", "cofactor", "svd", "svdvals",
                         "qr", "eigh", "eigvalsh", "pinv"))  # fmt: skip
"""Ops that must be told to raise for singular matrices."""

TRANSFORMING = frozenset(("fft", "ifft", "rfft", "irfft"))
"""Ops that cuFFT computes, in memory that it keeps."""

NAMES = {"_BLOCKS_AT_ONCE": 1 << 26}
"""Values of module-level names of kernels that suit a GPU: counter-based numbers are made in one go."""


UNKNOWN = "CuPy has no kernel that means the same"


def refusal(node: Node) -> str | None:
    """Why a node runs on the host by its op and dtypes; None if it may run on the GPU."""
    name = node.op
    kinds = {source.dtype.kind for source in node.inputs}
    if not kinds <= set("biufc"):
        return "its operands are no numbers"
    if node.record.effect:
        return "it has effects that the host sees"
    if "dims" in node.attrs:
        return "its extents are known in the run only"
    if name == "narrow_product" and (node.attrs["product"] != "matmul" or node.attrs["to"] != "float16"):
        return UNKNOWN
    if name == "convolve" and ("c" in kinds or node.dtype == np.float16):
        return exact.TRANSFORMS
    if name in ("argsort", "sort"):
        stable = node.attrs["kind"] in ("stable", "mergesort") or name == "sort"
        return None if stable and "c" not in kinds else "NumPy's order of equal elements is its own"
    if name in ("solve", "solve_triangular"):
        matrices, sides = (source.shape for source in node.inputs)
        if (len(matrices), len(sides)) != (2, 1) and matrices[:-2] != sides[:-2]:
            return "CuPy spreads no right sides over a stack of matrices"
    if name == "norm" and 0 in node.inputs[0].shape:
        return "CuPy has no largest of no elements"
    for names, allowed in ((REAL_UFUNCS, "biuf"), (FLOAT_UFUNCS, "fc"), (("fmod",), "f")):
        if name in names and not kinds <= set(allowed):
            return "CuPy rounds or orders these operands in another way"
    known = (REBOUND, UFUNCS, REAL_UFUNCS, FLOAT_UFUNCS, WRITTEN)
    return None if any(name in names for names in known) else UNKNOWN
