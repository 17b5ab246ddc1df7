"""The oneDNN C library through ctypes: finding it, its functions, its errors, its threads."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of

Handle = ctypes.c_void_p
Dims = ctypes.c_int64 * 12
DimsPointer = ctypes.POINTER(ctypes.c_int64)

ALIGNMENT = 64
FLOAT32 = 3
ENGINE_CPU = 1
RUNTIME_SEQUENTIAL, RUNTIME_OPENMP = 1, 2
UNIMPLEMENTED = 3
_STATUS_NAMES = (
    "success",
    "out_of_memory",
    "invalid_arguments",
    "unimplemented",
    "last_impl_reached",
    "runtime_error",
    "not_required",
    "invalid_graph",
    "invalid_graph_op",
    "invalid_shape",
    "invalid_data_type",
)


class OneDNNError(RuntimeError):
    """A oneDNN function returned an error status; `status` is the status name.

    >>> OneDNNError("dnnl_primitive_create", 5).status
    'runtime_error'
    """

    def __init__(self, function: str, code: int) -> None:
        self.status = _STATUS_NAMES[code] if 0 <= code < len(_STATUS_NAMES) else f"status {code}"
        super().__init__(f"oneDNN: {function} failed with {self.status}")


class Unimplemented(OneDNNError):
    """oneDNN has no implementation for this combination of shapes, strides and attributes."""


class Argument(ctypes.Structure):
    """One entry of the argument list of `dnnl_primitive_execute`."""

    _fields_ = (("arg", ctypes.c_int), ("memory", Handle))


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


_INT, _FLOAT, _LONG, _CHAR = ctypes.c_int, ctypes.c_float, ctypes.c_int64, ctypes.c_char
_OUT = ctypes.POINTER(Handle)
_WINDOW = [DimsPointer] * 4

# Every function that returns a status, with its argument types: without them ctypes cuts 64-bit handles in half.
_SIGNATURES: dict[str, list[Any]] = {
    "dnnl_engine_create": [_OUT, _INT, ctypes.c_size_t],
    "dnnl_stream_create": [_OUT, Handle, ctypes.c_uint],
    "dnnl_memory_desc_create_with_strides": [_OUT, _INT, DimsPointer, _INT, DimsPointer],
    "dnnl_memory_desc_create_with_tag": [_OUT, _INT, DimsPointer, _INT, _INT],
    "dnnl_memory_desc_create_submemory": [_OUT, Handle, DimsPointer, DimsPointer],
    "dnnl_memory_desc_destroy": [Handle],
    "dnnl_memory_create": [_OUT, Handle, Handle, Handle],
    "dnnl_memory_set_data_handle": [Handle, Handle],
    "dnnl_memory_destroy": [Handle],
    "dnnl_stream_destroy": [Handle],
    "dnnl_primitive_attr_create": [_OUT],
    "dnnl_primitive_attr_destroy": [Handle],
    "dnnl_primitive_attr_set_scratchpad_mode": [Handle, _INT],
    "dnnl_primitive_attr_set_post_ops": [Handle, Handle],
    "dnnl_post_ops_create": [_OUT],
    "dnnl_post_ops_destroy": [Handle],
    "dnnl_post_ops_append_eltwise": [Handle, _INT, _FLOAT, _FLOAT],
    "dnnl_post_ops_append_sum": [Handle, _FLOAT, ctypes.c_int32, _INT],
    "dnnl_primitive_desc_query": [Handle, _INT, _INT, Handle],
    "dnnl_primitive_desc_destroy": [Handle],
    "dnnl_primitive_create": [_OUT, Handle],
    "dnnl_primitive_execute": [Handle, Handle, _INT, ctypes.POINTER(Argument)],
    "dnnl_primitive_destroy": [Handle],
    "dnnl_reorder_primitive_desc_create": [_OUT, Handle, Handle, Handle, Handle, Handle],
    "dnnl_convolution_forward_primitive_desc_create": [_OUT, Handle, _INT, _INT, *[Handle] * 4, *_WINDOW, Handle],
    "dnnl_convolution_backward_data_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        Handle,
        Handle,
        Handle,
        *_WINDOW,
        Handle,
        Handle,
    ],
    "dnnl_convolution_backward_weights_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        *[Handle] * 4,
        *_WINDOW,
        Handle,
        Handle,
    ],
    "dnnl_pooling_forward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        _INT,
        Handle,
        Handle,
        *[DimsPointer] * 5,
        Handle,
    ],
    "dnnl_pooling_backward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        Handle,
        Handle,
        *[DimsPointer] * 5,
        Handle,
        Handle,
    ],
    "dnnl_batch_normalization_forward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        Handle,
        Handle,
        _FLOAT,
        ctypes.c_uint,
        Handle,
    ],
    "dnnl_batch_normalization_backward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        Handle,
        Handle,
        Handle,
        _FLOAT,
        ctypes.c_uint,
        Handle,
        Handle,
    ],
    "dnnl_layer_normalization_forward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        Handle,
        Handle,
        Handle,
        _FLOAT,
        ctypes.c_uint,
        Handle,
    ],
    "dnnl_layer_normalization_backward_primitive_desc_create": [
        _OUT,
        Handle,
        _INT,
        *[Handle] * 4,
        _FLOAT,
        ctypes.c_uint,
        Handle,
        Handle,
    ],
    "dnnl_matmul_primitive_desc_create": [_OUT, Handle, *[Handle] * 5],
    "dnnl_sgemm": [*(_CHAR, _CHAR, _LONG, _LONG, _LONG, _FLOAT, Handle, _LONG, Handle, _LONG, _FLOAT, Handle, _LONG)],
}


def _candidates() -> Iterator[str]:
    """The places where the library may be, the user's wish first."""
    chosen = os.environ.get("FUTUREX_LIBDNNL")
    if chosen:
        yield chosen
        return
    installed = Path(sys.prefix, "lib", "libdnnl.so.3")
    if installed.exists():
        yield str(installed)
    import importlib.metadata  # which takes longer to load than all else here

    try:
        files = importlib.metadata.files("onednn-cpu-gomp") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (str(Path(str(file.locate())).resolve()) for file in files if file.name == "libdnnl.so.3")
    yield "libdnnl.so.3"


def _check_version(library: ctypes.CDLL, path: str) -> str:
    """Why this library cannot be used, or the empty string."""
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    version = library.dnnl_version().contents
    if version.major != 3:
        return f"{path} is oneDNN {version.major}.{version.minor}; version 3 is needed (pip install onednn-cpu-gomp)"
    if version.cpu_runtime not in (RUNTIME_SEQUENTIAL, RUNTIME_OPENMP):
        return f"{path} is not an OpenMP build of oneDNN; install onednn-cpu-gomp or set FUTUREX_LIBDNNL"
    return ""


def _declare(library: ctypes.CDLL) -> None:
    """Give every function its argument and result types."""
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name, count in (("dnnl_memory_desc_get_size", 1), ("dnnl_memory_desc_equal", 2)):
        function = getattr(library, name)
        function.argtypes = [Handle] * count
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    library.dnnl_memory_desc_equal.restype = ctypes.c_int
    library.dnnl_primitive_desc_query_md.argtypes = [Handle, _INT, _INT]
    library.dnnl_primitive_desc_query_md.restype = Handle


@functools.cache
def _find() -> tuple[ctypes.CDLL | None, str]:
    """The loaded library and its path, or None and the reason."""
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            reason = _check_version(library, path)
            if not reason:
                _declare(library)
                return library, path
        except (OSError, AttributeError) as error:
            reason = str(error)
        reasons.append(reason)
    return None, "oneDNN cannot be loaded: " + "; ".join(dict.fromkeys(reasons))


def available() -> bool:
    """Whether oneDNN 3 is installed and loads on this machine.

    >>> available() == (why_not() == "")
    True
    """
    return _find()[0] is not None


def why_not() -> str:
    """The reason why oneDNN is not available, or the empty string."""
    library, text = _find()
    return "" if library else text


def library_path() -> str:
    """The path of the loaded library; RuntimeError where there is none."""
    load()
    return _find()[1]


def version() -> tuple[int, int, int]:
    """The version of the loaded library, such as (3, 2, 0)."""
    found = load().dnnl_version().contents
    return found.major, found.minor, found.patch


def load() -> ctypes.CDLL:
    """The oneDNN library with declared functions; RuntimeError where it is not available."""
    library, text = _find()
    if library is None:
        raise RuntimeError(text)
    return library


def call(name: str, *arguments: Any) -> None:
    """Call a oneDNN function by name and raise OneDNNError where its status is not success."""
    status = getattr(load(), name)(*arguments)
    if status:
        raise (Unimplemented if status == UNIMPLEMENTED else OneDNNError)(name, status)


def create(name: str, *arguments: Any) -> Handle:
    """Call a oneDNN function whose first argument receives a new handle, and return that handle."""
    handle = Handle()
    call(name, ctypes.byref(handle), *arguments)
    return handle


class Owned:
    """A oneDNN object that is destroyed with its Python owner; ctypes takes it where a handle is wanted.

    `destroy` names the C function, as in `Owned(create("dnnl_post_ops_create"), "dnnl_post_ops_destroy")`.
    """

    __slots__ = ("_as_parameter_", "_destroy")

    def __init__(self, handle: Handle, destroy: str) -> None:
        self._as_parameter_ = handle
        self._destroy = getattr(load(), destroy)

    @property
    def handle(self) -> Handle:
        """The raw handle, valid as long as its owner."""
        return self._as_parameter_

    def __del__(self) -> None:
        self._destroy(self._as_parameter_)


@functools.cache
def engine() -> Handle:
    """The process's one CPU engine."""
    return create("dnnl_engine_create", ENGINE_CPU, 0)


class _PerThread(threading.local):
    """The calling thread's scratch memory."""

    def __init__(self) -> None:
        self._scratch = np.empty(0, np.uint8)
        self._begin = 0

    def scratch(self, size: int) -> int:
        """The address of at least `size` aligned bytes; what lay there before is lost when it has to grow."""
        if self._scratch.nbytes < size + ALIGNMENT:
            self._scratch = np.empty(0, np.uint8)  # given back before more is taken
            self._scratch = np.empty(size + ALIGNMENT, np.uint8)
            self._begin = -(-address_of(self._scratch) // ALIGNMENT) * ALIGNMENT
        return self._begin


@functools.cache
def per_thread() -> _PerThread:
    """What belongs to the calling thread alone: its `scratch` memory."""
    return _PerThread()


def _one(_: int = 0) -> int:
    """What a sequential build answers, which has one thread."""
    return 1


@functools.cache
def thread_functions() -> tuple[Any, Any]:
    """OpenMP's functions that set and tell how many threads the *calling* thread's primitives are made for, and run
    on."""
    library = load()
    try:
        setter, getter = library.omp_set_num_threads, library.omp_get_max_threads
    except AttributeError:
        return ctypes.CFUNCTYPE(None, ctypes.c_int)(_one), ctypes.CFUNCTYPE(ctypes.c_int)(_one)
    setter.argtypes, setter.restype = [ctypes.c_int], None
    getter.restype = ctypes.c_int
    return setter, getter


@contextmanager
def one_thread() -> Iterator[None]:
    """Primitives that the calling thread makes in the block are for one thread each."""
    setter, getter = thread_functions()
    before = getter()
    setter(1)
    try:
        yield
    finally:
        setter(before)
