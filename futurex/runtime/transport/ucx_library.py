"""The part of libucp that active messages need, bound with ctypes.

UCX structures only grow, and say by a mask which of their fields are set; the layouts here are those of the header
files of UCX 1.12 to 1.22 on 64-bit Linux. A `ucs_status_t` is a signed byte.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int8,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path

from futurex.errors import MissingExtra
from futurex.runtime.transport.errors import TransportError

INPROGRESS, BUSY = 1, -15
DATA_IS_KEPT, RENDEZVOUS = 1 << 16, 1 << 17  # attributes of a received message
_FEATURE_AM, _FEATURE_WAKEUP = 64, 16
_THREADS_SERIALIZED = 1
_OP_CALLBACK, _OP_USER_DATA, _OP_FLAGS = 2, 4, 16
_CLOSE_FORCE = 1
_FIRST_ERROR = (1 << 64) - 100  # a returned pointer from here on is a negative status
_MIN_VERSION = (1, 12)

#: Shared memory within a host only, so that nothing listens on a network; the death of a peer shows within a second.
#: An environment variable UCX_<name> takes precedence.
DEFAULTS = {"TLS": "posix,cma,self", "POSIX_ERROR_HANDLING": "y", "KEEPALIVE_INTERVAL": "1s"}
#: Read when the library is loaded: errors are reported by exceptions, and signals belong to the application.
_AT_LOAD = {"UCX_LOG_LEVEL": "fatal", "UCX_HANDLE_ERRORS": "none"}

ArrivalCallback = CFUNCTYPE(c_int8, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_uint64))
ErrorCallback = CFUNCTYPE(None, c_void_p, c_void_p, c_int8)
SentCallback = CFUNCTYPE(None, c_void_p, c_int8, c_void_p)
ReceivedCallback = CFUNCTYPE(None, c_void_p, c_int8, c_size_t, c_void_p)


class _Params(Structure):
    _fields_ = (("field_mask", c_uint64), ("features", c_uint64), ("rest", c_uint64 * 10))


class _WorkerParams(Structure):
    _fields_ = (("field_mask", c_uint64), ("thread_mode", c_int), ("rest", c_uint64 * 30))


class _HandlerParam(Structure):
    _fields_ = (("field_mask", c_uint64), ("id", c_uint), ("flags", c_uint), ("cb", c_void_p), ("arg", c_void_p))


class _EndpointParams(Structure):
    _fields_ = (
        ("field_mask", c_uint64),
        ("address", c_void_p),
        ("err_mode", c_int),
        ("err_callback", c_void_p),
        ("err_arg", c_void_p),
        ("rest", c_uint64 * 10),
    )


class RequestParam(Structure):
    """How an operation tells that it has finished: `callback(request, status, ..., user_data)`."""

    _fields_ = (
        ("op_attr_mask", c_uint),
        ("flags", c_uint),
        ("request", c_void_p),
        ("callback", c_void_p),
        ("datatype", c_uint64),
        ("user_data", c_void_p),
        ("rest", c_uint64 * 8),
    )

    @classmethod
    def calling(cls, callback: object) -> "RequestParam":
        """Return a parameter with `callback`; set `user_data` before each use."""
        return cls(op_attr_mask=_OP_CALLBACK | _OP_USER_DATA, callback=ctypes.cast(callback, c_void_p))  # type: ignore[arg-type]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "ucp_get_version": (None, [POINTER(c_uint)] * 3),
    "ucs_status_string": (c_char_p, [c_int8]),
    "ucp_config_read": (c_int8, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "ucp_config_modify": (c_int8, [c_void_p, c_char_p, c_char_p]),
    "ucp_config_release": (None, [c_void_p]),
    "ucp_init_version": (c_int8, [c_uint, c_uint, POINTER(_Params), c_void_p, POINTER(c_void_p)]),
    "ucp_cleanup": (None, [c_void_p]),
    "ucp_worker_create": (c_int8, [c_void_p, POINTER(_WorkerParams), POINTER(c_void_p)]),
    "ucp_worker_destroy": (None, [c_void_p]),
    "ucp_worker_get_address": (c_int8, [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "ucp_worker_release_address": (None, [c_void_p, c_void_p]),
    "ucp_worker_get_efd": (c_int8, [c_void_p, POINTER(c_int)]),
    "ucp_worker_arm": (c_int8, [c_void_p]),
    "ucp_worker_progress": (c_uint, [c_void_p]),
    "ucp_worker_set_am_recv_handler": (c_int8, [c_void_p, POINTER(_HandlerParam)]),
    "ucp_ep_create": (c_int8, [c_void_p, POINTER(_EndpointParams), POINTER(c_void_p)]),
    "ucp_ep_close_nbx": (c_void_p, [c_void_p, POINTER(RequestParam)]),
    "ucp_am_send_nbx": (
        c_void_p,
        [c_void_p, c_uint, c_char_p, c_size_t, c_void_p, c_size_t, POINTER(RequestParam)],
    ),
    "ucp_am_recv_data_nbx": (c_void_p, [c_void_p, c_void_p, c_void_p, c_size_t, POINTER(RequestParam)]),
    "ucp_am_data_release": (None, [c_void_p, c_void_p]),
    "ucp_request_check_status": (c_int8, [c_void_p]),
    "ucp_request_free": (None, [c_void_p]),
}


@cache
def load() -> CDLL:
    """Return libucp: $FUTUREX_LIBUCP if it is set, else the system's, else the wheel's; raise MissingExtra."""
    replaced = {name: os.environ.get(name) for name in _AT_LOAD}
    os.environ.update({name: value for name, value in _AT_LOAD.items() if replaced[name] is None})
    try:
        library = _open()
    finally:
        for name, value in replaced.items():
            if value is None:
                del os.environ[name]
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    version = _version(library)
    if version < _MIN_VERSION:
        raise MissingExtra(f"UCX {version[0]}.{version[1]} is too old; 1.12 is needed: pip install 'futurex[ucx]'")
    return library


def _open() -> CDLL:
    tried = []
    chosen = os.environ.get("FUTUREX_LIBUCP")
    attempts: list[Callable[[], CDLL]] = [lambda: CDLL("libucp.so.0"), _from_wheel]
    if chosen is not None:
        attempts = [lambda: CDLL(chosen)]
    for attempt in attempts:
        try:
            return attempt()
        except (OSError, ImportError) as error:
            tried.append(str(error))
    raise MissingExtra(f"UCX is not installed ({'; '.join(tried)}); it comes with an extra: pip install 'futurex[ucx]'")


def _from_wheel() -> CDLL:
    import libucx  # type: ignore[import-untyped, import-not-found, unused-ignore]

    libucx.load_library()
    return CDLL(str(Path(libucx.__file__).parent / "lib" / "libucp.so.0"))


def _version(library: CDLL) -> tuple[int, int]:
    major, minor, release = c_uint(), c_uint(), c_uint()
    library.ucp_get_version(byref(major), byref(minor), byref(release))
    return major.value, minor.value


def status_text(status: int) -> str:
    """Return what UCX says about a status."""
    return load().ucs_status_string(status).decode()


def pointer_status(pointer: int | None) -> int:
    """Return what a `ucs_status_ptr_t` means: 0 done, INPROGRESS for a request, below 0 an error."""
    if not pointer:
        return 0
    return pointer - (1 << 64) if pointer >= _FIRST_ERROR else INPROGRESS


def _check(status: int, what: str) -> None:
    if status != 0:
        raise TransportError(f"UCX could not {what}: {status_text(status)}")


class Worker:
    """A UCX context with its worker; used by one thread at a time. `efd` becomes readable when there is work."""

    def __init__(self) -> None:
        self.library = load()
        self._context = c_void_p()
        self.handle = c_void_p()
        self._open_context()
        params = _WorkerParams(field_mask=1, thread_mode=_THREADS_SERIALIZED)
        _check(self.library.ucp_worker_create(self._context, byref(params), byref(self.handle)), "create a worker")
        efd = c_int()
        _check(self.library.ucp_worker_get_efd(self.handle, byref(efd)), "make its worker wait on a file descriptor")
        self.efd = efd.value

    def _open_context(self) -> None:
        config = c_void_p()
        _check(self.library.ucp_config_read(None, None, byref(config)), "read its configuration")
        try:
            for name, value in DEFAULTS.items():
                if f"UCX_{name}" not in os.environ:
                    modified = self.library.ucp_config_modify(config, name.encode(), value.encode())
                    _check(modified, f"set {name}={value}")
            params = _Params(field_mask=1, features=_FEATURE_AM | _FEATURE_WAKEUP)
            major, minor = _version(self.library)
            opened = self.library.ucp_init_version(major, minor, byref(params), config, byref(self._context))
            _check(opened, "open a context")
        finally:
            self.library.ucp_config_release(config)

    def address(self) -> bytes:
        """Return the address by which other workers reach this one."""
        address, length = c_void_p(), c_size_t()
        _check(self.library.ucp_worker_get_address(self.handle, byref(address), byref(length)), "tell its address")
        try:
            return ctypes.string_at(address, length.value)
        finally:
            self.library.ucp_worker_release_address(self.handle, address)

    def receive(self, number: int, callback: object) -> None:
        """Call `callback` for each active message `number`; keep a reference to it."""
        param = _HandlerParam(field_mask=1 | 4, id=number, cb=ctypes.cast(callback, c_void_p))  # type: ignore[arg-type]
        _check(self.library.ucp_worker_set_am_recv_handler(self.handle, byref(param)), "register a handler")

    def endpoint(self, address: bytes, error_callback: object) -> int:
        """Return an endpoint that reaches the worker at `address`."""
        memory = ctypes.create_string_buffer(address, len(address))
        params = _EndpointParams(
            field_mask=1 | 2 | 4,
            address=ctypes.addressof(memory),
            err_mode=1,
            err_callback=ctypes.cast(error_callback, c_void_p),  # type: ignore[arg-type]
        )
        handle = c_void_p()
        _check(self.library.ucp_ep_create(self.handle, byref(params), byref(handle)), "reach the peer's worker")
        assert handle.value is not None
        return handle.value

    def close_endpoint(self, endpoint: int) -> int | None:
        """Begin to close an endpoint without waiting for what it has in flight; return the request, if any."""
        param = RequestParam(op_attr_mask=_OP_FLAGS, flags=_CLOSE_FORCE)
        return self.library.ucp_ep_close_nbx(endpoint, byref(param))

    def destroy(self) -> None:
        """Release everything."""
        self.library.ucp_worker_destroy(self.handle)
        self.library.ucp_cleanup(self._context)
