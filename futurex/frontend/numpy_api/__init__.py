"""NumPy functions on traced arrays, by function object: ufuncs and reductions by their records, the rest decomposed."""

from futurex.frontend.numpy_api import (
    choosing,
    counting,
    dynamic,
    einsum,
    fft,
    grids,
    linalg,
    matrix_products,
    memory,
    methods,
    norms,
    operators,
    ordering,
    padding,
    polynomials,
    products,
    queries,
    reductions,
    selection,
    shapes,
    writing,
)
from futurex.frontend.numpy_api.creation import stack_nested
from futurex.frontend.numpy_api.native import NATIVE, call_native
from futurex.frontend.numpy_api.operators import operate
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, call_numpy, handles
from futurex.frontend.numpy_api.ufuncs import UFUNCS, call_ufunc

__all__ = [
    "HANDLERS",
    "METHODS",
    "NATIVE",
    "UFUNCS",
    "call_native",
    "call_numpy",
    "call_ufunc",
    "choosing",
    "counting",
    "dynamic",
    "einsum",
    "fft",
    "grids",
    "handles",
    "linalg",
    "matrix_products",
    "memory",
    "methods",
    "norms",
    "operate",
    "operators",
    "ordering",
    "padding",
    "polynomials",
    "products",
    "queries",
    "reductions",
    "selection",
    "shapes",
    "stack_nested",
    "writing",
]
