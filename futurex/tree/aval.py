"""Abstract values (shape, dtype, weak type) and hashable constants."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.tree.dims import Dim, is_static, same

Scalar = bool | int | float | complex
PYTHON_SCALARS = (bool, int, float, complex)
PYTHON_DTYPES = frozenset(map(np.dtype, (bool, np.int64, float, complex)))


@dataclass(frozen=True, slots=True)
class Aval:
    """What is known of an array before it exists.

    ``weak`` marks a Python scalar (NEP 50): at run time the value *is* a Python scalar, so NumPy itself applies
    its promotion rules to it.

    >>> Aval((2, 3), np.dtype("float32"))
    float32[2,3]

    An extent may be a :class:`~futurex.tree.dims.Dim`, which is not known before the run. Abstract values are equal
    where that is sure.
    """

    shape: tuple[Any, ...]
    dtype: np.dtype[Any]
    weak: bool = False

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Aval):
            return NotImplemented
        return self.dtype == other.dtype and self.weak == other.weak and same(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.weak))

    @property
    def extents(self) -> tuple[Any, ...]:
        """All extents that the type tells of."""
        return self.shape

    @property
    def static(self) -> bool:
        """Are all extents known?"""
        return is_static(self.extents)

    def with_extents(self, of: Callable[[Any], Any]) -> Aval:
        """The same type with ``of(extent)`` for every extent."""
        return Aval(tuple(map(of, self.shape)), self.dtype, self.weak)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        total: Any = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    @property
    def inexact(self) -> bool:
        """True for floating and complex dtypes: the ones that carry derivatives."""
        return self.dtype.kind in "fc"

    def __repr__(self) -> str:
        return self.text({})

    def text(self, names: dict[Any, str]) -> str:
        """``float32[2,n]`` with the given names for symbols."""
        extents = (extent.text(names) if isinstance(extent, Dim) else str(extent) for extent in self.shape)
        return f"{'~' if self.weak else ''}{name_of(self.dtype)}[{','.join(extents)}]"


@functools.lru_cache(maxsize=256)
def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, which NumPy puts together every time."""
    return dtype.name


def aval_of(value: Any) -> Aval:
    """The abstract value of a concrete array or scalar (Python scalars are weak)."""
    if type(value) in PYTHON_SCALARS:
        return Aval((), _weak_dtype(value), weak=True)
    if not isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
    return Aval(value.shape, value.dtype)


def _weak_dtype(value: Scalar) -> np.dtype[Any]:
    return np.dtype(type(value)) if not isinstance(value, int) or isinstance(value, bool) else np.dtype(np.int64)


class Literal:
    """A constant as an attribute value: equal and hashed by type and bits, so NaN equals itself and 0.0 is not -0.0."""

    __slots__ = ("digest", "value")

    def __init__(self, value: Any) -> None:
        if type(value) in PYTHON_SCALARS:
            self.value = value
            self.digest = _scalar_bits(value)
            return
        array = np.array(value)  # our own copy: a constant cannot change under the tree
        array.flags.writeable = False
        self.value = array if isinstance(value, np.ndarray) else array[()]
        if array.dtype.hasobject:
            raise TypeError(f"an array of dtype {array.dtype} holds Python objects and cannot be a constant of a tree")
        body = np.ascontiguousarray(array).tobytes()
        self.digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + body).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.value,)


def _scalar_bits(value: Scalar) -> bytes:
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, complex):
        return b"c" + struct.pack("<dd", value.real, value.imag)
    return f"{type(value).__name__}{value}".encode()
