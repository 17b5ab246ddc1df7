"""The one function of cuBLAS that products take, by its C interface, and what stands for it on the emulated device.

CuPy's wrapper refuses to work on a stream that is being captured as a graph. Here each thread has a handle of its own,
and each call brings the memory that it works in: a graph shares none with what runs beside it (cuBLAS documentation,
"CUDA Graphs Support"). CuPy has loaded the library already, so its name finds it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import EMULATED, Device
from futurex.kernels.cupy_.emulated_streams import noted
from futurex.ops.precision import STORAGE
from futurex.tree.record import record

KINDS = {"float16": 2, "bfloat16": 14, "tfloat32": 0, "float32": 0, "float64": 1}
"""``cudaDataType_t``."""
_SINGLE, _DOUBLE, _SINGLE_BY_TF32 = 68, 70, 77
SUMS = {"float16": _SINGLE, "bfloat16": _SINGLE, "tfloat32": _SINGLE_BY_TF32, "float32": _SINGLE, "float64": _DOUBLE}
"""``cublasComputeType_t``."""
_DEFAULT = -1  # cublasGemmAlgo_t
_INT, _LONG, _PLACE = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_OPERAND: tuple[Any, ...] = (_PLACE, _INT, _INT, _LONG)
_SIGNATURE: tuple[Any, ...] = (_PLACE, *[_INT] * 5, _PLACE, *_OPERAND, *_OPERAND, _PLACE, *_OPERAND, _INT, _INT, _INT)
_HOPPER, _ROOM, _LARGE_ROOM = 9, 4 << 20, 32 << 20  # bytes that the documentation recommends


class Library:
    """cuBLAS, whose C functions are ``c``, for a device that wants ``room`` bytes to work in."""

    def __init__(self, device: Device, c: Any, room: int) -> None:
        self._device, self._c, self._room = device, c, room
        self._handles = threading.local()

    def product(
        self, to: str, turned: tuple[int, int], sizes: tuple[int, int, int], x: Any, leading_x: int, step_x: int,
        y: Any, leading_y: int, step_y: int, out: Any, count: int,
    ) -> None:  # fmt: skip
        """``count`` products ``out = op(x) @ op(y)`` of matrices by columns, m x k and k x n.

        ``to``: the format of all three. ``turned``: 1 for a transposed operand. ``sizes``: m, n, k. ``leading``:
        elements from column to column; ``step``: from matrix to matrix. Raises RuntimeError for what cuBLAS refuses.
        """
        kind, (m, n, _) = KINDS[to], sizes
        one, zero = _factors(SUMS[to])
        room = self._device.xp.empty(self._room, np.uint8)
        handle = self._handle()
        self._check(self._c.cublasSetStream_v2(handle, self._device.xp.cuda.get_current_stream().ptr))
        self._check(self._c.cublasSetWorkspace_v2(handle, room.data.ptr, self._room))  # a stream took the old one away
        self._check(self._c.cublasGemmStridedBatchedEx(
            handle, *turned, *sizes, one.ctypes.data, x.data.ptr, kind, leading_x, step_x,
            y.data.ptr, kind, leading_y, step_y, zero.ctypes.data, out.data.ptr, kind, m, m * n, count, SUMS[to],
            _DEFAULT,
        ))  # fmt: skip

    def _handle(self) -> Any:
        if not hasattr(self._handles, "handle"):
            made = ctypes.c_void_p()
            self._check(self._c.cublasCreate_v2(ctypes.byref(made)))
            self._handles.handle = made
        return self._handles.handle

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cuBLAS refuses: cublasStatus_t {status}")


@functools.cache
def _factors(sums: int) -> tuple[Any, Any]:
    """One and zero, which cuBLAS reads in the host's memory."""
    dtype = np.float64 if sums == _DOUBLE else np.float32
    return np.full((), 1.0, dtype), np.full((), 0.0, dtype)


class Reading:
    """As :class:`Library`, by its documentation and NumPy, of arrays whose addresses are the host's."""

    def product(
        self, to: str, turned: tuple[int, int], sizes: tuple[int, int, int], x: Any, leading_x: int, step_x: int,
        y: Any, leading_y: int, step_y: int, out: Any, count: int,
    ) -> None:  # fmt: skip
        m, n, k = sizes
        first, second = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)

        def work() -> None:
            for each in range(count):
                left, right = (
                    _widened(_by_columns(value, leading, step, each, shape), to)
                    for value, leading, step, shape in (
                        (x, leading_x, step_x, first), (y, leading_y, step_y, second)
                    )
                )  # fmt: skip
                with np.errstate(all="ignore"):
                    made = (left.T if turned[0] else left) @ (right.T if turned[1] else right)
                _by_columns(out, m, m * n, each, (m, n))[...] = record("narrow")(made, to=to) if to in STORAGE else made

        work()
        noted(work)


def _widened(x: Any, to: str) -> Any:
    return record("widen")(np.array(x), to=to) if to in STORAGE else x


def _by_columns(array: Any, leading: int, step: int, number: int, shape: tuple[int, int]) -> Any:
    """A matrix in the memory of an array. Raises ValueError for columns that would overlap."""
    if leading < shape[0]:
        raise ValueError(f"columns of {shape[0]} elements lie {leading} apart")
    size = array.itemsize
    kind = ctypes.c_char * ((leading * (shape[1] - 1) + shape[0]) * size)
    memory = kind.from_address(array.data.ptr + number * step * size)
    return np.ndarray(shape, array.dtype, memory, 0, (size, leading * size))


@functools.cache
def library(device: Device) -> Library | Reading:
    """The device's cuBLAS. Raises ImportError, OSError or AttributeError where it cannot be loaded."""
    if device.kind == EMULATED:
        return Reading()
    cuda = device.xp.cuda
    importlib.import_module(cuda.cublas.__name__)  # CuPy loads the library when it is asked for
    c = ctypes.CDLL(f"libcublas.so.{cuda.runtime.runtimeGetVersion() // 1000}")
    declare(c)
    return Library(device, c, _LARGE_ROOM if int(cuda.Device().compute_capability[:-1]) >= _HOPPER else _ROOM)


def declare(c: ctypes.CDLL) -> None:
    """Say what the functions take, so that addresses are passed whole. Raises AttributeError if one is missing."""
    c.cublasGemmStridedBatchedEx.argtypes = _SIGNATURE
    c.cublasSetStream_v2.argtypes = (_PLACE, _PLACE)
    c.cublasSetWorkspace_v2.argtypes = (_PLACE, _PLACE, ctypes.c_size_t)
    c.cublasCreate_v2.argtypes = (ctypes.POINTER(_PLACE),)
