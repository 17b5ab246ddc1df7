"""CuPy's side of the boundary between host and device, kept by NumPy: for programs and tests where no GPU is.

An array of this module is one that lives elsewhere: it never turns into a NumPy array by itself, a function that gets a
NumPy array beside one raises, reductions give arrays without dimensions, and functions that CuPy 14 lacks are absent.
Where CuPy answers other than NumPy without saying so, so does this module: an index out of bounds wraps around, of
several values written to one place any may win, floats that do not fit an integer saturate, the smallest numbers of
single precision are zeros to universal functions, and factorisations of singular matrices give NaN. Whoever is right
here does not rely on NumPy's answers there.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_.emulated_streams import CUDA, capturing, in_order, noted, travelled, waits

ABSENT = frozenset((
    "apply_over_axes", "asmatrix", "block", "bmat", "einsum_path", "errstate", "frompyfunc", "geomspace", "insert",
    "isnat", "longdouble", "clongdouble", "matrix", "matvec", "memmap", "nanpercentile", "nanquantile", "ndenumerate",
    "nditer", "object_", "polyder", "polydiv", "polyint", "recarray", "spacing", "str_", "bytes_", "unstack", "vecdot",
    "vecmat", "void", "datetime64", "timedelta64", "busday_count", "busday_offset", "datetime_as_string",
    "datetime_data", "fromregex", "get_include", "getbufsize", "geterr", "geterrcall", "histogram_bin_edges", "info",
    "is_busday", "nested_iters", "seterr", "seterrcall", "setbufsize", "show_runtime", "busdaycalendar",
))  # fmt: skip
"""Names of NumPy's that CuPy 14.2 has no counterpart for (its own table of comparison, and ``dir`` of both)."""

_ABSENT_IN = {
    "linalg": frozenset(("diagonal", "matrix_norm", "multi_dot", "outer", "svdvals", "tensordot", "trace", "vecdot",
                         "vector_norm")),
    "fft": frozenset[str](),
}  # fmt: skip
_ACCUMULATING = frozenset(("add", "multiply"))
_SCATTERING = frozenset(("add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"))
_FROM_HOST = frozenset(("array", "asarray", "asanyarray", "ascontiguousarray"))
_BY_CUBLAS = frozenset(("matmul", "dot", "inner", "vdot", "tensordot", "einsum"))
_raising = threading.local()


def _refused(value: Any) -> TypeError:
    return TypeError(f"Unsupported type {type(value)}")


def _bare(value: Any) -> Any:
    """What NumPy computes with; a NumPy array among the operands is refused, as CuPy does."""
    if isinstance(value, ndarray):
        in_order()
        return value._host
    if isinstance(value, np.ndarray):
        raise _refused(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_bare, value)) if type(value) in (tuple, list) else value
    return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple):
        parts = [_wrapped(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [_wrapped(part) for part in value] if isinstance(value, list) else value


def _refuse_capture(library: str) -> None:
    """CuPy calls some libraries by wrappers that look whether a graph is being captured."""
    if capturing():
        raise NotImplementedError(f"calling {library} API during stream capture is currently unsupported")


def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if getattr(function, "__name__", "") in _BY_CUBLAS:
        _refuse_capture("cuBLAS")
    bare, named, out = [*map(_bare, args)], {name: _bare(value) for name, value in kwargs.items()}, kwargs.get("out")

    def work() -> Any:
        with np.errstate(all="ignore"):
            return function(*bare, **named)

    result = out if out is not None else _wrapped(work())
    if out is not None:
        work()
    if capturing():
        noted(lambda: _refill(result, work()))
    return result


def _refill(kept: Any, values: Any) -> None:
    """Write what was computed again where it was kept before."""
    if isinstance(kept, ndarray):
        np.copyto(kept._host, values)
    elif isinstance(kept, tuple | list):
        for each, value in zip(kept, values, strict=True):
            _refill(each, value)


def _saturated(values: Any, dtype: Any) -> Any:
    """The cast of a GPU: what does not fit takes the nearest integer, NaN takes zero."""
    target = np.dtype(dtype)
    if values.dtype.kind != "f" or target.kind not in "iu":
        return values.astype(target)
    limits = np.iinfo(target)
    whole = np.trunc(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    fits = (whole >= float(limits.min)) & (whole < float(limits.max) + 1)
    cast = np.where(fits, whole, 0).astype(target)
    return np.where(fits, cast, np.where(whole > 0, limits.max, limits.min)).astype(target).reshape(values.shape)


def _flushed(x: Any) -> Any:
    if not isinstance(x, np.ndarray | np.generic) or x.dtype != np.float32:
        return x
    small = (np.abs(x) < np.finfo(np.float32).tiny) & (x != 0)
    return np.where(small, np.copysign(np.float32(0), x), x)[()] if small.any() else x


@functools.cache
def _flushing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A universal function as CuPy compiles it (``-ftz=true``): numbers in single precision whose exponent is below
    that of normal ones are zeros. cuBLAS has them as they are."""
    if function.__name__ in _BY_CUBLAS:
        return function

    def flushing(*args: Any, **kwargs: Any) -> Any:
        found = function(*map(_flushed, args), **kwargs)
        for each in found if isinstance(found, tuple) else (found,):
            if isinstance(each, np.ndarray):
                each[...] = _flushed(each)  # which may be the operand ``out=``
        return found if isinstance(found, tuple | np.ndarray) else _flushed(found)

    return flushing


class _Index:
    """An index as CuPy reads it: integer arrays wrap around."""

    def __init__(self, key: Any, shape: tuple[int, ...]) -> None:
        entries = list(key) if isinstance(key, tuple) else [key]
        self.fancy = any(isinstance(entry, ndarray | list) for entry in entries)
        used = sum(_axes_of(entry) for entry in entries if entry is not None and entry is not Ellipsis)
        axis = 0
        for place, entry in enumerate(entries):
            if entry is Ellipsis:
                axis += len(shape) - used
                continue
            if entry is None:
                continue
            if isinstance(entry, ndarray | list | np.ndarray):
                values = _bare(entry) if not isinstance(entry, list) else np.asarray(entry)
                if values.dtype == bool:
                    waits()  # to know how many elements it names
                entries[place] = values if values.dtype == bool else values % max(shape[axis], 1)
            axis += _axes_of(entry)
        self.key = tuple(entries)


def _axes_of(entry: Any) -> int:
    masks = isinstance(entry, ndarray) and entry.dtype == bool
    return int(entry.ndim) if masks else 1


class ndarray:
    """An array on the emulated device."""

    __slots__ = ("_host",)
    shape: tuple[int, ...]
    dtype: Any
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    def __init__(self, host: Any) -> None:
        self._host = host

    def get(self) -> Any:
        """A copy in the host's memory."""
        waits()
        travelled("to host", self._host.nbytes)
        return self._host.copy()

    def set(self, values: Any) -> None:
        """Copy a host array of the same shape and dtype here."""
        if values.shape != self.shape or values.dtype != self.dtype:
            raise ValueError(f"{values.dtype} {values.shape} does not fit {self.dtype} {self.shape}")
        self._host[...] = values

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        found = getattr(NAMESPACE, ufunc.__name__, None)
        return NotImplemented if found is None else getattr(found, method)(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        index = _Index(key, self.shape).key
        found = ndarray(np.asarray(self._host[index]))
        if capturing():
            noted(lambda: _refill(found, self._host[index]))
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(key, value)
        noted(lambda: self._set(key, value))

    def _set(self, key: Any, value: Any) -> None:
        index, value = _Index(key, self.shape), _bare(value)
        places = np.arange(self._host.size).reshape(self.shape)[index.key]
        value = _saturated(np.asarray(value), self.dtype) if isinstance(value, np.ndarray) else value
        if not index.fancy:
            self._host[index.key] = value
            return
        spread = np.broadcast_to(np.asarray(value, self.dtype), places.shape).ravel()[::-1]  # the first one wins
        flat = self._host.reshape(-1).copy()
        flat[places.ravel()[::-1]] = spread
        self._host[...] = flat.reshape(self.shape)

    def astype(self, dtype: Any, copy: bool = True, order: str = "K") -> Any:
        if not copy and self._host.dtype == np.dtype(dtype):
            return self
        found = ndarray(_saturated(self._host, dtype))
        noted(lambda: _refill(found, _saturated(self._host, dtype)))
        return found

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        waits()
        return bool(self._host)

    def __int__(self) -> int:
        waits()
        return int(self._host)

    def __index__(self) -> int:
        waits()
        return operator.index(self._host)

    def __float__(self) -> float:
        waits()
        return float(self._host)

    def __complex__(self) -> complex:
        waits()
        return complex(self._host)

    def item(self) -> Any:
        waits()
        return self._host.item()

    def diagonal(self, *args: Any) -> Any:
        """A view that may be written to, as CuPy gives."""
        found = self._host.diagonal(*args)
        found.flags.writeable = True
        return ndarray(found)

    def __repr__(self) -> str:
        return repr(self._host)

    @property
    def base(self) -> Any:
        """What this is a view of, or None."""
        return self._host.base

    @property
    def T(self) -> Any:
        return ndarray(self._host.T)

    @property
    def real(self) -> Any:
        return ndarray(self._host.real)

    @property
    def imag(self) -> Any:
        return ndarray(self._host.imag)

    @property
    def data(self) -> Any:
        """Where the elements begin; ``ptr`` is the address that kernels get."""
        return SimpleNamespace(ptr=self._host.__array_interface__["data"][0])


def _field(name: str) -> Any:
    return property(lambda self: getattr(self._host, name))


def _method(name: str) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if unknown := {"initial", "where"} & set(kwargs):
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown.pop()!r}")
        return _called(getattr(self._host, name), args, kwargs)

    return method


for _name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags"):
    setattr(ndarray, _name, _field(_name))
for _name in (
    "reshape", "transpose", "copy", "sum", "prod", "max", "min", "any", "all", "mean", "ravel", "view", "swapaxes",
    "squeeze", "cumsum", "argmax", "argmin", "conj", "repeat", "fill", "dot", "std", "var", "take",
):  # fmt: skip
    setattr(ndarray, _name, _method(_name))


def _operator(name: str, function: str) -> None:
    def forward(self: ndarray, other: Any) -> Any:
        return getattr(NAMESPACE, function)(self, other)

    def backward(self: ndarray, other: Any) -> Any:
        return getattr(NAMESPACE, function)(other, self)

    def inplace(self: ndarray, other: Any) -> Any:
        return getattr(NAMESPACE, function)(self, other, out=self)

    for prefix, method in (("", forward), ("r", backward), ("i", inplace)):
        if function not in _COMPARED or not prefix:
            setattr(ndarray, f"__{prefix}{name}__", method)


_COMPARED = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
for _name, _function in (
    ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("floordiv", "floor_divide"),
    ("mod", "remainder"), ("pow", "power"), ("matmul", "matmul"), ("and", "bitwise_and"), ("or", "bitwise_or"),
    ("xor", "bitwise_xor"), ("lshift", "left_shift"), ("rshift", "right_shift"), ("eq", "equal"), ("ne", "not_equal"),
    ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
):  # fmt: skip
    _operator(_name, _function)
for _name, _function in (("neg", "negative"), ("invert", "invert"), ("abs", "absolute"), ("pos", "positive")):
    setattr(ndarray, f"__{_name}__", lambda self, _function=_function: getattr(NAMESPACE, _function)(self))


class ufunc:
    """A universal function of the device, with the methods that CuPy's have."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.__name__, self.nin, self.nout = host.__name__, host.nin, host.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "where" in kwargs:
            raise TypeError("Wrong arguments {'where'}")
        if self.__name__ == "floor_divide" and any(np.asarray(_bare(arg)).dtype.kind == "f" for arg in args):
            return NAMESPACE.floor(NAMESPACE.divide(*args, **kwargs))
        return _called(_flushing(self._host), args, kwargs)

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self._host.reduce, args, kwargs)

    def accumulate(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ not in _ACCUMULATING:
            raise NotImplementedError(f"{self.__name__}.accumulate")
        return _called(self._host.accumulate, args, kwargs)

    def at(self, target: Any, key: Any, value: Any) -> None:
        if self.__name__ not in _SCATTERING:
            raise NotImplementedError(f"{self.__name__}.at")
        if target.dtype in (np.int64, np.int8, np.uint8, np.int16, np.uint16, np.bool_):
            raise TypeError(f"scatter into {target.dtype} is not supported")
        self._at(target, key, value)
        noted(lambda: self._at(target, key, value))

    def _at(self, target: Any, key: Any, value: Any) -> None:
        self._host.at(target._host, _Index(key, target.shape).key, _bare(value))


class _Module:
    """The functions of one NumPy module that CuPy has, taking and giving arrays of the device."""

    def __init__(self, host: Any, absent: frozenset[str]) -> None:
        self._host, self._absent = host, absent

    def __getattr__(self, name: str) -> Any:
        if name in self._absent or not hasattr(self._host, name):
            raise AttributeError(f"module 'cupy' has no attribute {name!r}")
        found = self._made(name, getattr(self._host, name))
        setattr(self, name, found)
        return found

    def _made(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ufunc):
            return ufunc(value)
        if isinstance(value, type) or not callable(value):
            return value
        if name in _FROM_HOST:
            return lambda x, *args, **kwargs: _uploaded(value, x, args, kwargs)
        return lambda *args, **kwargs: _called(value, args, kwargs)


def _uploaded(function: Any, x: Any, args: Any, kwargs: Any) -> ndarray:
    if isinstance(x, np.ndarray | list) and np.ndim(_arriving(x)):
        waits()  # a graph would copy from memory of the host that holds something else by then
        travelled("to device", np.asarray(_arriving(x)).nbytes)

    def work() -> Any:
        values = function(_arriving(x), *args, **kwargs)
        return values.copy() if isinstance(x, np.ndarray) else values  # NumPy gives the host's own array back

    found = ndarray(work())
    noted(lambda: _refill(found, work()))
    return found


def _arriving(x: Any) -> Any:
    return x._host if isinstance(x, ndarray) else [_arriving(part) for part in x] if isinstance(x, list) else x


class _Linalg(_Module):
    def _made(self, name: str, value: Any) -> Any:
        if isinstance(value, type):
            return value
        plain = super()._made(name, value)

        def quiet(*args: Any, **kwargs: Any) -> Any:
            if name != "norm":
                _refuse_capture("cuSOLVER")
            if name == "solve" and args[1].ndim > 1 and args[0].shape[:-1] != args[1].shape[:-1]:
                raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
            try:
                return plain(*args, **kwargs)
            except np.linalg.LinAlgError:
                if getattr(_raising, "on", False):
                    raise
                shape = args[-1].shape if name == "solve" else args[0].shape
                return ndarray(np.full(shape, np.nan))

        return quiet


class RawKernel:
    """A kernel of CUDA C++ that runs on the processor. Raises RuntimeError where there is no C++ compiler."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        if emulation.compiler() is None:
            raise RuntimeError("no C++ compiler is on the path: kernels for a GPU cannot be emulated")
        self._code, self._name = code, name

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[Any, ...], shared_mem: int = 0) -> None:
        def work() -> None:
            in_order()
            bare = [each.data.ptr if isinstance(each, ndarray) else _scalar(each) for each in args]
            emulation.check(self._code, self._name, args)
            emulation.launch(self._code, self._name, grid[0], block[0], bare)

        work()
        noted(work)


def _scalar(value: Any) -> Any:
    """A kernel's argument must have a type; an array of the host is none that a GPU could read."""
    if not isinstance(value, np.generic):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _extreme_place(name: str) -> Callable[..., Any]:
    """``argmax`` or ``argmin``: of several NaN any may win, and here the last one does."""

    def function(x: ndarray, axis: Any = None, **options: Any) -> Any:
        values = _bare(x)
        nans = np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)
        count = values.size if axis is None else values.shape[axis]
        last = count - 1 - np.argmax(np.flip(nans, axis), axis=axis, **options)
        found = getattr(np, name)(values, axis=axis, **options)
        return ndarray(np.asarray(np.where(nans.any(axis=axis, **options), last, found)))

    return function


class Namespace(_Module):
    """What stands for the module ``cupy``."""

    def __init__(self) -> None:
        super().__init__(np, ABSENT)
        self.ndarray = ndarray
        self.ufunc = ufunc
        self.RawKernel = RawKernel
        self.argmax, self.argmin = map(_extreme_place, ("argmax", "argmin"))
        self.linalg = _Linalg(np.linalg, _ABSENT_IN["linalg"])
        self.fft = _Module(np.fft, _ABSENT_IN["fft"])
        self.cuda = CUDA
        self.__name__ = "emulated"

    @staticmethod
    def asnumpy(x: Any) -> Any:
        return x.get() if isinstance(x, ndarray) else np.asarray(x)

    @staticmethod
    def broadcast_to(x: ndarray, shape: tuple[int, ...]) -> ndarray:
        if not isinstance(x, ndarray):
            raise _refused(x)
        return _called(np.broadcast_to, (x, shape), {})

    @staticmethod
    def convolve(a: ndarray, v: ndarray, mode: Any = "full") -> ndarray:
        """By way of transforms, unless integers are among the operands."""
        first, second = _bare(a), _bare(v)
        found = np.convolve(first, second, mode)
        if {first.dtype.kind, second.dtype.kind} <= set("fc") and not np.isfinite(first.sum() * second.sum()):
            found = np.full_like(found, np.nan)
        return ndarray(found)

    @staticmethod
    def copyto(target: ndarray, source: Any, casting: str = "same_kind", where: Any = True) -> None:
        def work() -> None:
            values = _bare(source)
            if isinstance(values, np.ndarray):
                values = _saturated(values, target.dtype)
            np.copyto(target._host, values, casting=casting, where=_bare(where))  # type: ignore[arg-type]

        work()
        noted(work)

    @staticmethod
    def solve_triangular(a: ndarray, b: ndarray, trans: int = 0, lower: bool = False) -> ndarray:
        """``cupyx.scipy.linalg.solve_triangular``: what stands in the other half, and zeros to divide by, it does not
        see."""
        _refuse_capture("cuBLAS")
        half = (np.tril if lower else np.triu)(_bare(a))
        if a.shape[:-2] != b.shape[:-2]:
            raise ValueError("incompatible batch count")
        try:
            return ndarray(np.linalg.solve(half.swapaxes(-1, -2) if trans else half, _bare(b)))
        except np.linalg.LinAlgError:
            return ndarray(np.full(b.shape, np.inf, b.dtype))

    @staticmethod
    @contextlib.contextmanager
    def linalg_errors() -> Iterator[None]:
        """Factorisations raise inside the block (``cupyx.errstate(linalg="raise")``)."""
        before, _raising.on = getattr(_raising, "on", False), True
        try:
            yield
        finally:
            _raising.on = before


NAMESPACE: Namespace = Namespace()
