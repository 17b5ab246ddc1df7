"""What NumPy's dtypes bring with them: sorts and inner products of their elements, called from generated code.

The table is part of NumPy's C interface (``PyArray_ArrFuncs``, ``ndarraytypes.h``); it is tried before it is believed.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop

Dtype = np.dtype[Any]
_VERSION = 0x02000000  # of the binary interface
_GET_TABLE = 365  # ``_PyDataType_GetArrFuncs`` among the functions of the interface
_DOT, _SORT, _ARGSORT = 27, 33, 36  # pointers into the table
_KINDS = {None: 0, "quicksort": 0, "stable": 2, "mergesort": 2}  # heapsort is not what NumPy takes for it
_P, _N = ctypes.c_void_p, ctypes.c_ssize_t


def dot(dtype: Dtype) -> InnerLoop:
    """``void (x, step of x, y, step of y, result, count, null)``."""
    return _function(dtype, _DOT)


def sort(dtype: Dtype, kind: str | None) -> InnerLoop:
    """``int (elements, count, null)``: in place; negative where there is no memory."""
    return _function(dtype, _SORT + _number(kind))


def argsort(dtype: Dtype, kind: str | None) -> InnerLoop:
    """``int (elements, positions, count, null)``."""
    return _function(dtype, _ARGSORT + _number(kind))


def _number(kind: str | None) -> int:
    if kind not in _KINDS:
        raise Unsupported(f"sorting by {kind}")
    return _KINDS[kind]


def _function(dtype: Dtype, entry: int) -> InnerLoop:
    """One of a dtype's functions. Raises Unsupported where there is none that can be trusted."""
    address = _table(dtype)[entry] if dtype.kind in "biuf" and dtype.isnative and _as_documented() else None
    if not address:
        raise Unsupported(f"functions of dtype {dtype}")
    return InnerLoop(address, 0, (dtype,), ())


def _table(dtype: Dtype) -> Any:
    table = ctypes.CFUNCTYPE(_P, ctypes.py_object)(_interface()[_GET_TABLE])(dtype)
    return ctypes.cast(table, ctypes.POINTER(_P))


@functools.cache
def _interface() -> Any:
    """The functions of NumPy's C interface."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(pointer(np._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(_P))  # type: ignore[attr-defined]


@functools.cache
def _as_documented() -> bool:
    """Does the table hold here what it should?"""
    if np.dtype(np.intp).itemsize != 8:
        return False
    try:
        version = ctypes.CFUNCTYPE(ctypes.c_uint)(_interface()[0])()
    except AttributeError:  # another NumPy keeps its interface elsewhere
        return False
    if version != _VERSION:
        return False
    table, x, out = _table(np.dtype(np.float64)), np.array([3.0, 1.0, 2.0, 1.0]), np.zeros(1)
    ctypes.CFUNCTYPE(None, _P, _N, _P, _N, _P, _N, _P)(table[_DOT])(
        address_of(x), 8, address_of(x), 8, address_of(out), 4, None
    )
    order = np.arange(4)
    ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _N, _P)(table[_ARGSORT + 2])(address_of(x), address_of(order), 4, None)
    ctypes.CFUNCTYPE(ctypes.c_int, _P, _N, _P)(table[_SORT])(address_of(x), 4, None)
    return out.tolist() == [15.0] and order.tolist() == [1, 3, 2, 0] and x.tolist() == [1.0, 1.0, 2.0, 3.0]
