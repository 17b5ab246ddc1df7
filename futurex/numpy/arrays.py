"""Arrays for the namespace of the array standard: made from anything, and given by every function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.staging import Futurized
from futurex.frontend.trace import tracing
from futurex.runtime.futures import Done
from futurex.tree.aval import aval_of


def array_of(value: Any) -> Any:
    """A result of NumPy as an array that may be written to; containers keep their form."""
    if isinstance(value, Array):
        return value.writable()
    if isinstance(value, np.ndarray | np.generic):
        held = np.array(value)
        return Array(Done(held), aval_of(held), is_array=True).writable()
    if isinstance(value, tuple):
        parts = [array_of(entry) for entry in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [array_of(entry) for entry in value] if isinstance(value, list) else value


def dtype_of(value: Any) -> Any:
    """The dtype of an array; anything else as it is."""
    return value.dtype if isinstance(value, Array) else value


def staged(function: Any) -> Callable[..., Any]:
    """A function that is futurized and whose results are arrays of the namespace."""
    futurized: Futurized[Any, Any] = Futurized(function, library=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        return array_of(futurized(*args, **kwargs))

    functools.update_wrapper(call, function, assigned=("__name__", "__doc__"), updated=())
    call.__module__ = "futurex.numpy"
    call.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return call


def _signature(function: Any) -> inspect.Signature:
    """NumPy's own; those of ufuncs are the standard's: operands by position."""
    if not isinstance(function, np.ufunc):
        return inspect.signature(function)
    names = ["x"] if function.nin == 1 else [f"x{k + 1}" for k in range(function.nin)]
    operands = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    extra = [inspect.Parameter("axis", inspect.Parameter.KEYWORD_ONLY, default=-1)] if function is np.vecdot else []
    return inspect.Signature([*operands, *extra])


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Array:
    """An array of anything that NumPy makes arrays of. ``copy=False`` raises ValueError where a copy is needed.

    >>> import futurex.numpy as xp
    >>> xp.asarray([[1, 2], [3, 4]], dtype=xp.float32).shape
    (2, 2)
    """
    if device not in (None, "cpu"):
        raise ValueError(f"there is no device {device!r}; the only one is 'cpu'")
    if tracing():
        return _staged_asarray(obj, dtype=dtype, copy=copy)
    same = isinstance(obj, Array) and (dtype is None or obj.dtype == np.dtype(dtype)) and not obj.aval.weak
    if same and not copy:
        return obj
    if copy is False:
        raise ValueError("an array of this needs a copy")
    if isinstance(obj, Array):
        return array_of(obj.astype(dtype or obj.dtype))
    return array_of(np.array(obj, dtype))


_staged_asarray: Futurized[Any, Any] = Futurized(np.asarray, library=True)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library's, through DLPack; its elements are copied."""
    if isinstance(x, Array):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise ValueError("an array of another library is copied: it could change under the futures that read it")
    return array_of(np.from_dlpack(x, device=device))
