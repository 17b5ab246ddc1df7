"""Sixteen numbers of single precision as one vector: what kernels with products in them are written with."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.emit import Scalar, slot_format
from futurex.kernels.numba_.pairwise import PREFETCH, prefetch

LANES = 16
VECTOR = f"<{LANES} x float>"
DECLARATIONS = (
    f"declare {VECTOR} @llvm.fma.v{LANES}f32({VECTOR}, {VECTOR}, {VECTOR})",
    "declare float @llvm.fma.f32(float, float, float)",
    f"declare float @llvm.vector.reduce.fadd.v{LANES}f32(float, {VECTOR})",
    PREFETCH,
)


def fma(code: Code, kind: str, x: str, y: str, z: str) -> str:
    """``x * y + z`` with one rounding, of vectors or of numbers."""
    width = "f32" if kind == "float" else f"v{LANES}f32"
    return code.do(f"call {kind} @llvm.fma.{width}({kind} {x}, {kind} {y}, {kind} {z})")


def load(code: Code, kind: str, pointer: str, offset: str) -> str:
    """What begins at element ``offset`` behind a pointer."""
    return code.do(f"load {kind}, ptr {code.at('float', pointer, offset)}, align 4")


def fetch(code: Code, pointer: str, second: bool = False) -> None:
    """Have a line brought to the first-level cache, or to the second one; there need not be memory."""
    code.run(prefetch(pointer, second=second))


def total(code: Code, vector: str) -> str:
    """The sum of a vector's elements, in any order."""
    return code.do(f"call reassoc float @llvm.vector.reduce.fadd.v{LANES}f32(float 0.0, {VECTOR} {vector})")


def spread(code: Code, value: str) -> str:
    """The vector of one number."""
    one = code.do(f"insertelement {VECTOR} poison, float {value}, i64 0")
    return code.do(f"shufflevector {VECTOR} {one}, {VECTOR} poison, <{LANES} x i32> zeroinitializer")


def slot(scalar: Scalar, value: Any) -> bytes:
    """A number in the eight bytes that a region's kernel reads it from."""
    value = value.item() if isinstance(value, np.ndarray | np.generic) else value
    return struct.pack(f"={slot_format(scalar.dtype)}", scalar.dtype.type(value).item())
