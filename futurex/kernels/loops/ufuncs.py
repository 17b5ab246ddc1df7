"""NumPy's own inner loops, called from generated code: ``exp`` in a compiled loop gives the bits that ``np.exp`` gives.

The layout of a ufunc object is part of NumPy's C interface (``ufuncobject.h``); it is checked before it is believed.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

Dtype = np.dtype[Any]


class _Ufunc(ctypes.Structure):
    _fields_ = (
        ("refcount", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    )


_LOOP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class InnerLoop:
    """``function(args, dimensions, steps, data)`` over elements, or over small matrices, of fixed dtypes."""

    address: int
    data: int
    inputs: tuple[Dtype, ...]
    outputs: tuple[Dtype, ...]

    @property
    def output(self) -> Dtype:
        return self.outputs[0]


@functools.lru_cache(maxsize=4096)
def inner_loop(ufunc: Any, inputs: tuple[Dtype, ...], *outputs: Dtype) -> InnerLoop | None:
    """The loop of a ufunc for these dtypes, or None where there is none that can be trusted."""
    if not _as_documented() or ufunc.nout != len(outputs) or ufunc.nin != len(inputs):
        return None
    wanted = "->".join("".join(dtype.char for dtype in dtypes) for dtypes in (inputs, outputs))
    if wanted not in ufunc.types:
        return None
    index = ufunc.types.index(wanted)
    content = _Ufunc.from_address(id(ufunc))
    address = content.functions[index]
    data = content.data[index] if content.data else None  # loops that need none may have no list of them
    return InnerLoop(address, data or 0, inputs, outputs) if address else None


@functools.cache
def _as_documented() -> bool:
    """Does the layout hold here? Everything that Python shows of a few ufuncs is compared, and one loop is run."""
    if np.dtype(np.intp).itemsize != 8:
        return False
    for ufunc in (np.exp, np.add, np.arctan2):
        content = _Ufunc.from_address(id(ufunc))
        shown = ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes
        if (content.nin, content.nout, content.nargs, content.ntypes) != shown:
            return False
        codes = b"".join(content.types[k] for k in range(ufunc.nargs))
        if codes != bytes(np.dtype(char).num for char in ufunc.types[0].replace("->", "")):
            return False
    content = _Ufunc.from_address(id(np.exp))
    index = np.exp.types.index("d->d")
    x, out = np.linspace(-3, 3, 7), np.empty(7)
    args = (ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data)
    count, steps = ctypes.c_ssize_t(7), (ctypes.c_ssize_t * 2)(8, 8)
    _LOOP(content.functions[index])(args, ctypes.byref(count), steps, content.data[index])
    return bool((out == np.exp(x)).all())
