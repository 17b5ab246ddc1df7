"""NumPy's functions on :class:`futurex.Array`, as the Python Array API standard (2024.12) names them.

Every call returns at once with arrays that are futures; code that is written for the standard runs on them as it is.
The meaning is NumPy's. Functions are futurized and cached, as ``fx.futurize(np.sin)`` would be.

Arrays that are made here may be written to (``x[0] = 1``, ``x += 1``) and have value semantics: writing changes this
one array object, never another that was made from it or that it was made from. The standard leaves that open; arrays
that futurized functions return stay read-only, because NumPy's own answer there is a view.

>>> import futurex.numpy as xp
>>> x = xp.asarray([1.0, 2.0, 3.0])
>>> part = x[1:]
>>> x[1] = 7.0
>>> x.tolist(), part.tolist(), float(xp.sum(x * 2))
([1.0, 7.0, 3.0], [2.0, 3.0], 22.0)
>>> x.__array_namespace__() is xp
True
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import (
    bool,
    complex64,
    complex128,
    e,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

from futurex.numpy import fft, linalg
from futurex.numpy.arrays import asarray, from_dlpack, staged
from futurex.numpy.functions import (
    __array_namespace_info__,
    argsort,
    broadcast_arrays,
    broadcast_shapes,
    can_cast,
    clip,
    finfo,
    iinfo,
    meshgrid,
    result_type,
    sort,
)

__array_api_version__ = "2024.12"

_CREATION = "arange empty empty_like eye full full_like linspace ones ones_like tril triu zeros zeros_like"
_ELEMENTWISE = (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or "
    "bitwise_right_shift bitwise_xor ceil conj copysign cos cosh divide equal exp expm1 floor floor_divide "
    "greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and "
    "logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real "
    "reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc"
)
_OF_ARRAYS = (
    "matmul matrix_transpose tensordot vecdot take take_along_axis "
    "broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile "
    "unstack argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse "
    "unique_values cumulative_prod cumulative_sum max mean min prod std sum var all any diff astype"
)
FUNCTIONS = f"{_CREATION} {_ELEMENTWISE} {_OF_ARRAYS}".split()
globals().update({name: staged(getattr(np, name)) for name in FUNCTIONS})


def __getattr__(name: str) -> Any:
    raise AttributeError(f"futurex.numpy has no {name!r}: it holds the names of the array standard, NumPy has the rest")


__all__ = [
    "FUNCTIONS", "__array_api_version__", "__array_namespace_info__", "argsort", "asarray", "bool", "broadcast_arrays",
    "broadcast_shapes", "can_cast", "clip", "complex64", "complex128", "e", "fft", "finfo", "float32", "float64",
    "from_dlpack", "iinfo", "inf", "int8", "int16", "int32", "int64", "isdtype", "linalg", "meshgrid", "nan", "newaxis",
    "pi", "result_type", "sort", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
