"""NumPy functions that are traced through NumPy's own Python source, as a function of the user's would be.

What they mean is what their source says, with views, writes and the order of operations; so they have derivatives and
fuse like any other code. The table lists those that were compared with NumPy call by call.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np
import numpy.lib._index_tricks_impl as index_tricks
import numpy.lib._type_check_impl as type_check
from numpy._core._multiarray_umath import _array_converter  # type: ignore[import-not-found]
from numpy._core.overrides import ARRAY_FUNCTIONS  # numpy.testing would give them, and load unittest
from numpy.lib import array_utils

from futurex.frontend.numpy_api.registry import named, refuse_loose
from futurex.frontend.outside import any_traced
from futurex.frontend.tracer import SCALARS, Tracer, as_tracer, entered

WALKED = named(
    "allclose angle apply_over_axes array_equal asarray_chkfinite astype atleast_3d average block common_type "
    "corrcoef cov cross cumulative_sum delete diag_indices_from diff dsplit ediff1d fix fromfunction geomspace "
    "gradient hsplit insert isclose iscomplex isneginf isposinf isreal ix_ linspace logspace nan_to_num "
    "nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar pad piecewise polyadd polyder "
    "polydiv polyint polysub polyval put_along_axis real_if_close require resize rollaxis rot90 row_stack select "
    "sinc sort_complex trapezoid unstack unwrap vander vsplit"
) | {np.linalg.cross, index_tricks.AxisConcatenator.__getitem__, index_tricks.IndexExpression.__getitem__}

_SERIES = frozenset((
    "polyval", "polyval2d", "polyvander", "polyder", "polyint", "polyadd", "polysub", "polymul", "polyfromroots",
    "chebval", "chebvander", "chebadd", "chebsub", "legval", "legvander", "legadd", "legsub", "hermval", "hermvander",
    "hermadd", "hermsub", "hermeval", "hermevander", "hermeadd", "hermesub", "lagval", "lagvander", "lagadd", "lagsub",
))  # fmt: skip
"""Functions of ``numpy.polynomial``, which is loaded by those who use it."""


def is_walked(function: Any) -> bool:
    """Is it traced through its source?"""
    home = ""
    if type(function) is types.FunctionType:
        home = function.__globals__.get("__name__") or ""
    elif type(function) is type(np.sum):  # what dispatches to other libraries' arrays says whose it is
        home = function.__module__
    return function in WALKED or (home.startswith("numpy.polynomial.") and function.__name__ in _SERIES)


#: Functions that read no arrays, or were given none: their value is known when a function is traced.
PURE = named(
    "promote_types can_cast result_type issubdtype isdtype min_scalar_type broadcast_shapes isscalar iterable "
    "bartlett blackman hamming hanning kaiser diag_indices indices mask_indices tri tril_indices triu_indices "
    "eye identity arange array asarray zeros ones full empty"
) | {
    array_utils.normalize_axis_index,
    array_utils.normalize_axis_tuple,
    index_tricks.nd_grid.__getitem__,
    type_check._getmaxmin,  # type: ignore[attr-defined]
}


#: NumPy's source calls some of its functions below their dispatchers.
IMPLEMENTATIONS = {
    dispatcher.__wrapped__: dispatcher
    for dispatcher in ARRAY_FUNCTIONS
    if hasattr(dispatcher, "__wrapped__") and getattr(np, dispatcher.__name__, None) is dispatcher
}


def source_of(function: Any) -> types.FunctionType:
    """The Python function behind a function of NumPy."""
    found = inspect.unwrap(function)
    assert type(found) is types.FunctionType
    return found


class Converter:
    """What NumPy's source uses to take array-likes and to give back arrays of their kind."""

    def __init__(self, *values: Any) -> None:
        self._values = [entered(value) for value in values]
        refuse_loose("a function of NumPy's", self._values)
        self._is_number = [_is_number(value) for value in self._values]
        self.scalar_input = tuple(
            number or (isinstance(value, Tracer | np.generic) and np.ndim(value) == 0 and _is_scalar(value))
            for value, number in zip(self._values, self._is_number, strict=True)
        )

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Tracer:
        return as_tracer(self._values[index])

    def as_arrays(self, *, subok: bool = True, pyscalars: str = "convert_if_no_array") -> Any:
        """Every value as an array; Python numbers stay what they are beside arrays, if that is asked for."""
        keep = pyscalars == "preserve" or (pyscalars == "convert_if_no_array" and not all(self._is_number))
        return tuple(
            value if keep and number else as_tracer(value)
            for value, number in zip(self._values, self._is_number, strict=True)
        )

    def wrap(self, array: Any, *, to_scalar: Any = None) -> Any:
        """The array itself; a scalar where all values were scalars or ``to_scalar`` asks for one."""
        if to_scalar is None:
            to_scalar = all(self.scalar_input)
        return array[()] if to_scalar and isinstance(array, Tracer) and array.ndim == 0 else array

    def result_type(self, *, extra_dtype: Any = None, ensure_inexact: bool = False) -> Any:
        """The common type of all values; Python numbers take part as such."""
        kinds = [
            (value.dtype.type(0).item() if isinstance(value, Tracer) else value) if number else as_tracer(value).dtype
            for value, number in zip(self._values, self._is_number, strict=True)
        ]
        kinds += [] if extra_dtype is None else [extra_dtype]
        kinds += [0.0] if ensure_inexact else []
        return np.result_type(*kinds)


def _is_number(value: Any) -> bool:
    return type(value) in SCALARS or (isinstance(value, Tracer) and value.aval.weak)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, Tracer) or value.is_scalar



class _Extent:
    """The shape of arrays broadcast against each other."""

    __fx_traced__ = True

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.ndim = self.nd = len(shape)


def _broadcast(*values: Any) -> Any:
    if not any_traced(values):
        return np.broadcast(*values)
    return _Extent(np.broadcast_shapes(*(as_tracer(value).shape for value in values)))


#: Classes of NumPy that stand for something else in staged code.
CONSTRUCTED: dict[Any, Any] = {_array_converter: Converter, np.broadcast: _broadcast}
