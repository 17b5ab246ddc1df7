"""Functions whose form in the array standard is another one than NumPy's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.numpy.arrays import dtype_of, staged


@staged
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Every element, at least ``min`` and at most ``max``."""
    return np.clip(x, min, max)


@staged
def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """A sorted copy along an axis."""
    result = np.sort(x, axis=axis, stable=stable)
    return np.flip(result, axis) if descending else result


@staged
def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The indices that sort along an axis; equal elements keep their order if ``stable``, also backwards."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    backwards = np.argsort(np.flip(x, axis), axis=axis, stable=stable)
    return np.flip(x.shape[axis] - 1 - backwards, axis)


@staged
def meshgrid(*arrays: Any, indexing: str = "xy") -> Any:
    """Coordinate matrices from coordinate vectors."""
    return list(np.meshgrid(*arrays, indexing=indexing))  # type: ignore[call-overload]


@staged
def broadcast_arrays(*arrays: Any) -> Any:
    """The arrays broadcast against each other; they share no memory."""
    return [np.array(array) for array in np.broadcast_arrays(*arrays)]


@staged
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a discrete Fourier transform."""
    frequencies = np.fft.fftfreq(n, d, device=device)
    return frequencies if dtype is None else frequencies.astype(dtype)


@staged
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a discrete Fourier transform of real numbers."""
    frequencies = np.fft.rfftfreq(n, d, device=device)
    return frequencies if dtype is None else frequencies.astype(dtype)


@dataclass(frozen=True)
class FloatLimits:
    """Limits of a floating-point dtype as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating-point dtype (or of an array's).

    >>> import futurex.numpy as xp
    >>> xp.finfo(xp.float32).bits
    32
    """
    limits = np.finfo(dtype_of(type))
    eps, largest, least, normal = map(float, (limits.eps, limits.max, limits.min, limits.smallest_normal))
    return FloatLimits(limits.bits, eps, largest, least, normal, limits.dtype)


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype (or of an array's)."""
    return np.iinfo(dtype_of(type))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes are broadcast to."""
    return np.broadcast_shapes(*shapes)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether one dtype (or an array's) can be cast to another by the rules of promotion."""
    return np.can_cast(dtype_of(from_), to)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype that an operation on these gives (NEP 50)."""
    return np.result_type(*map(dtype_of, arrays_and_dtypes))


def __array_namespace_info__() -> Any:
    """What this namespace can do: devices, dtypes, capabilities."""
    return np.__array_namespace_info__()
