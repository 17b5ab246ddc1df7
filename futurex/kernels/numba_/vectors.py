"""Vectors of a line: sixteen numbers of single precision, or eight of double. What kernels with products in them are
written with."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.pairwise import PREFETCH, prefetch
from futurex.kernels.numba_.region import Scalar, slot_format


class Kind(NamedTuple):
    """Numbers of one precision, and how many of them are a line.

    >>> DOUBLE.vector, DOUBLE.name, DOUBLE.size
    ('<8 x double>', 'v8f64', 8)
    """

    element: str
    lanes: int

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return 64 // self.lanes

    @property
    def name(self) -> str:
        """What intrinsics call the vector."""
        return f"v{self.lanes}f{8 * self.size}"


SINGLE, DOUBLE = Kind("float", 16), Kind("double", 8)
LANES, VECTOR = SINGLE.lanes, SINGLE.vector
DECLARATIONS = (
    *(
        line
        for kind in (SINGLE, DOUBLE)
        for line in (
            f"declare {kind.vector} @llvm.fma.{kind.name}({kind.vector}, {kind.vector}, {kind.vector})",
            f"declare {kind.element} @llvm.vector.reduce.fadd.{kind.name}({kind.element}, {kind.vector})",
        )
    ),
    "declare float @llvm.fma.f32(float, float, float)",
    PREFETCH,
)


def fma(code: Code, kind: str, x: str, y: str, z: str) -> str:
    """``x * y + z`` with one rounding, of vectors or of numbers of single precision."""
    name = {"float": "f32", SINGLE.vector: SINGLE.name, DOUBLE.vector: DOUBLE.name}[kind]
    return code.do(f"call {kind} @llvm.fma.{name}({kind} {x}, {kind} {y}, {kind} {z})")


def load(code: Code, kind: str, pointer: str, offset: str) -> str:
    """What begins at element ``offset`` behind a pointer."""
    of = DOUBLE if "double" in kind else SINGLE
    return code.do(f"load {kind}, ptr {code.at(of.element, pointer, offset)}, align {of.size}")


def fetch(code: Code, pointer: str, second: bool = False) -> None:
    """Have a line brought to the first-level cache, or to the second one; there need not be memory."""
    code.run(prefetch(pointer, second=second))


def up_to(code: Code, count: str, lanes: int = LANES) -> str:
    """A mask of the first ``count`` lanes."""
    numbers = f"<{lanes} x i64>"
    every = code.spread(numbers, count)
    return code.do(f"icmp slt {numbers} <{', '.join(f'i64 {k}' for k in range(lanes))}>, {every}")


def total(code: Code, vector: str, kind: Kind = SINGLE) -> str:
    """The sum of a vector's elements, in any order."""
    reduced = f"@llvm.vector.reduce.fadd.{kind.name}({kind.element} 0.0, {kind.vector} {vector})"
    return code.do(f"call reassoc {kind.element} {reduced}")


def spread(code: Code, value: str, kind: Kind = SINGLE) -> str:
    """The vector of one number."""
    return code.spread(kind.vector, value)


def slot(scalar: Scalar, value: Any) -> bytes:
    """A number in the eight bytes that a region's kernel reads it from."""
    value = value.item() if isinstance(value, np.ndarray | np.generic) else value
    return struct.pack(f"={slot_format(scalar.dtype)}", scalar.dtype.type(value).item())
