"""NumPy functions that ask about arrays and do not read their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.numpy_api.memory import lying
from futurex.frontend.numpy_api.registry import check_type, handles
from futurex.frontend.tracer import SCALARS, Tracer, abstract, as_tracer, entered
from futurex.ops.views import view


@handles(np.isscalar)
def isscalar(element: Any) -> bool:
    return element.is_scalar if isinstance(element, Tracer) else np.isscalar(element)


@handles(np.iterable)
def iterable(y: Any) -> bool:
    return y.ndim > 0 if isinstance(y, Tracer) else np.iterable(y)


@handles(np.isfortran)
def isfortran(a: Any) -> bool:
    if isinstance(a, (list, tuple, *SCALARS)) or (isinstance(a, Tracer) and a.aval.weak):
        raise Escape("numpy.isfortran of what is no array", "NumPy asks it for its flags")
    x = as_tracer(a)
    if x.strides_in_memory is None:
        raise Escape("numpy.isfortran of a result", "its memory order is not known")
    return _is_fortran(x) and not is_contiguous(x.aval, x.strides_in_memory)


def _is_fortran(x: Tracer) -> bool:
    return x.strides_in_memory is not None and is_contiguous(x.T.aval, x.strides_in_memory[::-1])


@handles(np.asfortranarray)
def asfortranarray(a: Any, dtype: Any = None) -> Tracer:
    """The array itself where its columns are contiguous, else a copy that is laid out so."""
    x = as_tracer(a)
    x = lying(x if dtype is None or np.dtype(dtype) == x.dtype else x.astype(dtype, order="F"), "F")
    return x if x.ndim else x.reshape(1)


@handles(np.shares_memory, np.may_share_memory)
def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Views of one array are compared by where they lie; other arrays share nothing."""
    x, y = entered(a), entered(b)
    for each in (x, y):
        if isinstance(each, Tracer) and each._cell.unread is not None:
            each._cell.unread()
    if not isinstance(x, Tracer) or not isinstance(y, Tracer) or x._cell is not y._cell or x.is_scalar:
        return False
    if x._dynamic or y._dynamic or x._cell.entangled:
        raise Escape("asking whether views share memory", "where they lie is not known before the run")
    base = np.empty(x._cell.value.shape, x.dtype)
    return np.shares_memory(*(view(base, each._chain, ()) for each in (x, y)))


@handles(np.min_scalar_type)
def min_scalar_type(a: Any) -> np.dtype[Any]:
    if isinstance(a, Tracer) and a.ndim == 0:
        raise Escape("numpy.min_scalar_type of a scalar", "it depends on the value")
    return a.dtype if isinstance(a, Tracer) else np.min_scalar_type(a)


@handles(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    if isinstance(from_, Tracer) and from_.aval.weak:
        raise Escape("numpy.can_cast of a Python number", "NumPy refuses it")
    check_type(to)
    return np.can_cast(abstract(from_).dtype if isinstance(from_, Tracer) else from_, to, casting)


@handles(np.einsum_path)
def einsum_path(*operands: Any, **options: Any) -> Any:
    """The order of contractions follows from the shapes."""
    known = [np.broadcast_to(np.zeros((), v.dtype), v.shape) if isinstance(v, Tracer) else v for v in operands]
    return np.einsum_path(*known, **options)
