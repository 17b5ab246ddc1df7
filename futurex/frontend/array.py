"""``fx.Array``: a result that may still be on its way, and behaves as the NumPy array it will be."""

from __future__ import annotations

import concurrent.futures
import operator
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.frontend.tracebacks import folds, settle
from futurex.kernels.copies import in_c_order
from futurex.runtime.futures import Done, Future, Resident
from futurex.tree.aval import Aval, aval_of
from futurex.tree.pytree import leaf

_FUTURES = (Done, Future)
_MAKING = threading.Lock()
READ_ONLY = "the result of a futurized function is read-only; np.array(a) is a copy you may change"
_WRITERS = frozenset({np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal})
_OF_SHAPES = frozenset({np.shape, np.size, np.ndim})
_TO_ARRAYS = frozenset({np.atleast_1d, np.atleast_2d, np.atleast_3d})
"""With these libraries see to it that compiled code is given NumPy's arrays, as with ``np.asarray``."""
_WRITING_METHODS = frozenset({"sort", "partition", "fill", "put", "resize", "setfield", "setflags"})
if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it
    os.register_at_fork(after_in_child=lambda: globals().update(_MAKING=threading.Lock()))


@leaf
class Array:
    """A future that is also an array: shape and dtype are known at once, the elements when they are needed.

    ``result(timeout)``, ``done()``, ``cancel()``, ``exception()``, ``add_done_callback(fn)`` and ``await`` are those
    of a future; NumPy functions, operators and indexing are those of an array and give arrays. ``float``, ``bool``,
    ``print``, ``np.asarray`` and ``np.atleast_1d`` wait. Results are read-only through this object; ``np.array(a)``
    is your own copy, and arrays made by :mod:`futurex.numpy` may be written to.
    It hashes by identity, as futures do, so that ``asyncio.gather`` and sets take it; pickling waits.

    >>> import numpy as np, futurex as fx
    >>> double = fx.futurize(lambda x: x * 2)
    >>> a = double(np.ones(3))
    >>> a.shape, a.dtype.name, float((a + 1).sum())
    ((3,), 'float64', 9.0)
    """

    __fx_future__ = True
    __array_priority__ = 1000
    __slots__ = ("__weakref__", "_aval", "_held", "_is_array", "_view", "_writable")

    def __init__(
        self,
        future: Future[Any] | Done[Any] | np.generic | bool | int | float | complex,
        aval: Aval,
        view: Callable[[Any], Any] | None = None,
        is_array: bool = False,
    ) -> None:
        self._held = future  # or a number itself, for which most ask no future: lists have thousands of them
        self._aval = aval
        self._view = view
        self._is_array = is_array  # NumPy has arrays without dimensions beside scalars
        self._writable = False

    # -- the future --------------------------------------------------------------------------------------------------

    @property
    def _future(self) -> Future[Any] | Done[Any]:
        if not isinstance(self._held, _FUTURES):
            with _MAKING:  # all who ask get one and the same
                if not isinstance(self._held, _FUTURES):
                    self._held = Done(self._held)
        return self._held

    @_future.setter
    def _future(self, future: Future[Any] | Done[Any]) -> None:
        self._held = future

    @property
    def aval(self) -> Aval:
        """Shape and dtype; where the shape depends on data, this waits for the result."""
        if not self._aval.static:
            self._aval = Aval(np.shape(self.result()), self._aval.dtype, self._aval.weak)
        return self._aval

    def result(self, timeout: float | None = None) -> Any:
        """The ndarray (or NumPy or Python scalar). Waits at most ``timeout`` seconds, then raises TimeoutError."""
        future: Any = self._held
        if type(future) is Done and future.gone is None and not future.readers and type(future.value) is not Resident:
            value = future.value
            if not future.exposed:
                if future.call is not None:
                    future.call.asked()
                future.exposed = True
        elif not isinstance(future, _FUTURES):
            value = future
        else:
            if future.call is not None:
                future.call.asked()
            try:
                value = future.result(timeout)
                if not future.exposed:
                    value = future.expose()
            except Exception as error:
                settle(error)
                raise
        if self._view is not None:
            value = self._view(value)
        if self._aval.shape or self._aval.weak:
            return value
        if self._is_array:
            return np.asarray(value)
        return value if isinstance(value, np.generic) else np.asarray(value)[()]

    def done(self) -> bool:
        """True once the result, an exception or a cancellation is there."""
        return self._future.done()

    def cancel(self) -> bool:
        """Give up a run that has not begun; False if it is too late."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception of the run, None if it succeeded."""
        if self._future.gone is not None:
            return self._future.refusal()
        if self._future.call is not None:
            self._future.call.asked()
        return self._future.exception(timeout)

    def add_done_callback(self, function: Callable[[Array], Any]) -> None:
        """Call ``function(self)`` when the array is done, on the thread that completes it."""
        self._future.add_done_callback(lambda future: function(self))

    def __await__(self) -> Generator[Any, None, Any]:
        if self._future.call is not None:
            self._future.call.awaited()
        yield from self._future.__await__()
        return self.result()

    def as_future(self) -> concurrent.futures.Future[Any]:
        """A future of the standard library with the same result, for whatever takes such futures.

        >>> import asyncio, concurrent.futures, numpy as np, futurex as fx
        >>> f = fx.futurize(lambda x: x + 1)
        >>> results = [f(np.ones(2)).as_future() for _ in range(2)]
        >>> [future.result().tolist() for future in concurrent.futures.wait(results).done]
        [[2.0, 2.0], [2.0, 2.0]]
        """
        plain = self._view is None and (self.ndim or self._aval.weak)
        if plain and type(self._future) is Future and not self._future.resident():
            self._future.exposed = self._future.exposed or not self._future.readers
            if self._future.exposed and self._future.gone is None:
                self._future.passed_on = True
                return self._future
        mine: Future[Any] = Future()
        self._future.add_done_callback(lambda _: self._deliver(mine))
        return mine

    def _deliver(self, future: Future[Any]) -> None:
        """Give a future what this one, which is done, has."""
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self.result())
        except BaseException as error:
            future.set_exception(error)

    def _pending(self) -> Any:
        """What a run takes as argument: the value, or a future of it."""
        future = self._future
        if future.gone is not None:
            raise future.refusal()
        if isinstance(future, Done):
            value = future.value
        elif future.done() and not future.cancelled() and future.exception() is None:
            value = future.result()
        else:
            return future if self._view is None else self.as_future()
        if self._view is None:
            if type(value) is np.ndarray and not value.flags.c_contiguous and future.private():
                future.replace(value := in_c_order(value))  # what lies otherwise would be copied at every call
            return value
        return self._view(value.host() if isinstance(value, Resident) else value)

    # -- the array ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._aval.dtype

    @property
    def ndim(self) -> int:
        return self._aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = np.asarray(self.result())
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError("a conversion to another dtype needs a copy")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(out, Array) for out in kwargs.get("out", ())) or (method == "at" and inputs[0] is self):
            raise TypeError(READ_ONLY)
        if method != "at" and "out" not in kwargs:
            return _lazily(ufunc if method == "__call__" else getattr(ufunc, method))(*inputs, **kwargs)
        plain = [np.asarray(value) if isinstance(value, Array) else value for value in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _WRITERS and isinstance(args[0] if args else next(iter(kwargs.values())), Array):
            raise TypeError(READ_ONLY)
        if function in _OF_SHAPES:  # a trace for all sizes would give futures of what is known
            alike = {name: _alike(value) for name, value in kwargs.items()}
            return function(*map(_alike, args), **alike)
        if function in _TO_ARRAYS and not _is_traced():
            return function(*(np.asarray(value) if isinstance(value, Array) else value for value in args))
        return _lazily(function)(*args, **kwargs)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return np.asarray(self).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> Any:
        return np.empty(0).__dlpack_device__()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import futurex.numpy as namespace

        if api_version not in (None, "2021.12", "2022.12", "2023.12", namespace.__array_api_version__):
            raise ValueError(f"version {api_version!r} of the array standard is not offered")
        return namespace

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array itself; raises ValueError for every device but ``"cpu"``."""
        if device != "cpu" or stream is not None:
            raise ValueError(f"there is no device {device!r} or stream; the only device is 'cpu'")
        return self

    def item(self, *args: Any) -> Any:
        """An element as a Python number, which is waited for."""
        return np.asarray(self).item(*args)

    def __getitem__(self, index: Any) -> Any:
        part = self._at_hand(index)
        if part is None:
            return self._gives(operator.getitem, self, index)
        return part.writable() if self._writable else part

    def _at_hand(self, index: Any) -> Array | None:
        """An element or a slice of what is there already; None where a run has to find it. Python's loops ask for
        thousands at places that no other call had: each would be traced."""
        if _in_a_trace() or not (all(map(_is_basic, index)) if type(index) is tuple else _is_basic(index)):
            return None
        held: Any = self._held
        if not isinstance(held, _FUTURES) or held.gone is not None or not held.done():
            return None
        if type(held) is Future and (held.cancelled() or held.exception() is not None):
            return None
        value = held.value if type(held) is Done else held.result()
        if type(value) is not np.ndarray:
            return None
        try:
            part = (value if self._view is None else self._view(value))[index]
        except IndexError:
            return None  # raised at the user's line
        if not isinstance(part, np.ndarray):
            return Array(part, aval_of(part))
        return Array(Done(part.copy()), Aval(part.shape, part.dtype), None, True) if part.nbytes <= _FEW else None

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self._writable:
            raise TypeError(READ_ONLY)
        changed = _lazily(_with)(self, index, value)
        if not isinstance(changed, Array):
            changed = Array(Done(changed), self.aval)
        self._future, self._view = changed._future, changed._view

    def _gives(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function gives for this array; if it may be written to, the result may be too."""
        result = _lazily(function)(*args, **kwargs)
        return result.writable() if self._writable and isinstance(result, Array) else result

    def writable(self) -> Array:
        """An array object of the same elements that may be written to, with value semantics: no other one changes.

        >>> import numpy as np, futurex as fx
        >>> result = fx.futurize(np.sqrt)(np.array([4.0, 9.0]))
        >>> mine = result.writable()
        >>> mine[0] = 0.0
        >>> mine.tolist(), result.tolist()
        ([0.0, 3.0], [2.0, 3.0])
        """
        mine = Array(self._future, self._aval, self._view, self._is_array or self._aval.ndim == 0)
        if mine._aval.weak:
            mine._future, mine._view = Done(np.asarray(self.result())), None
            mine._aval = Aval(self._aval.shape, self._aval.dtype)
        mine._writable = True
        return mine

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(self.result())

    def tolist(self) -> Any:
        """NumPy's own list, of Python's numbers: it waits for them, as ``float()`` does."""
        return self.result().tolist()

    def __float__(self) -> float:
        return float(self.result())

    def __int__(self) -> int:
        return int(self.result())

    def __complex__(self) -> complex:
        return complex(self.result())

    def __index__(self) -> int:
        return operator.index(self.result())

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    def __str__(self) -> str:
        return str(self.result())

    def __format__(self, spec: str) -> str:
        return format(self.result(), spec)

    def __copy__(self) -> Any:
        return self if self._aval.weak else self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        """Pickled as the value: this waits."""
        value = self.result()
        return _unpickled, (value, aval_of(value), self._is_array)

    def __hash__(self) -> int:
        return id(self) >> 4

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.result(), digits)

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "pending"
        if self.done() and not self.cancelled():
            error = self.exception()
            if error is None:
                return f"fx.{np.asarray(self)!r}"
            place = getattr(error, "__source__", None)
            state = f"failed{f' at {place}' if place else ''}: {type(error).__name__}: {error}"
        return f"<fx.Array {self._aval!r}, {state}>"

    if TYPE_CHECKING:  # what ndarray has is set below

        def __getattr__(self, name: str) -> Any: ...


def numbers(values: Iterable[Any], aval: Aval) -> list[Any]:
    """An array for each of these numbers, of which there may be many: calls of the class take a quarter longer."""
    made, new = [], object.__new__
    for value in values:
        each = new(Array)
        each._held = value
        each._aval = aval
        each._view = None
        each._is_array = each._writable = False
        made.append(each)
    return made


def _refuse_writing(*args: Any, **kwargs: Any) -> None:
    raise TypeError(READ_ONLY)


def _as_of_ndarray(name: str) -> Any:
    """The attribute or method of this name: what the array's own gives, as a future where it is an array."""
    own = getattr(np.ndarray, name)
    if name in _WRITING_METHODS:
        return staticmethod(_refuse_writing)
    if not callable(own):

        def read(array: Any) -> Any:
            return getattr(array, name)

        return property(lambda self: self._gives(read, self), doc=own.__doc__)

    def call(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)

    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        return self._gives(call, self, *args, **kwargs)

    method.__name__, method.__doc__ = name, own.__doc__
    return method


# Written out once: a class with ``__getattr__`` makes NumPy wait for Python at every protocol that it asks for.
for _name in dir(np.ndarray):
    if not _name.startswith("_") and not hasattr(Array, _name):
        setattr(Array, _name, _as_of_ndarray(_name))


def _alike(value: Any) -> Any:
    """For a future an array of its shape that holds nothing."""
    return np.broadcast_to(np.int8(0), value.shape) if isinstance(value, Array) else value


def _with(array: Any, index: Any, value: Any) -> Any:
    """A copy of an array with some elements replaced."""
    changed = array.copy()
    changed[index] = value
    return changed


def _unpickled(value: Any, aval: Aval, is_array: bool) -> Array:
    return Array(Done(value), aval, None, is_array)


def _is_traced() -> bool:
    from futurex.frontend.trace import tracing

    return tracing()


def _lazily(function: Any) -> Any:
    """The futurized form of a NumPy function or operator."""
    from futurex.frontend.decorator import futurized

    return futurized(function)


def _in_a_trace() -> bool:
    """Is this asked by what a trace calls?"""
    from futurex.frontend.trace import tracing

    return tracing()


def _is_basic(entry: Any) -> bool:
    """Is it an entry of an index that makes views, and known?"""
    if type(entry) is slice:
        return all(each is None or isinstance(each, _WHOLE) for each in (entry.start, entry.stop, entry.step))
    return entry is None or entry is ... or (isinstance(entry, _WHOLE) and type(entry) is not bool)


_WHOLE = (int, np.integer)
_FEW = 1 << 20
"""Bytes that are copied in less time than it takes to trace a call."""
_OPERANDS = (Array, np.ndarray, np.generic, bool, int, float, complex, list, tuple)


def _is_python(value: Any) -> bool:
    """Is it one of Python's own numbers, or a future of one?"""
    return value._aval.weak if isinstance(value, Array) else type(value) in _PYTHON_NUMBERS


def _binary(ufunc: Any, python: Any, reflected: bool, anything: bool = False) -> Callable[[Any, Any], Any]:
    """An operator: NumPy's, and that of Python between its own numbers, which divides by no zero and whose ints are as
    wide as they must be."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, _OPERANDS) and (not anything or getattr(other, "__array_ufunc__", self) is None):
            return NotImplemented
        is_number = not (self._is_array or self._aval.ndim)
        if is_number and isinstance(other, list | tuple) and (self._aval.weak or ufunc is np.multiply):
            return NotImplemented  # `[0] * n` is n zeros, and Python's numbers know nothing else of lists
        function = python if self._aval.weak and _is_python(other) else ufunc
        return self._gives(function, other, self) if reflected else self._gives(function, self, other)

    return method


def _unary(ufunc: Any, python: Any) -> Callable[[Any], Any]:
    return lambda self: self._gives(python if self._aval.weak else ufunc, self)


_PYTHON_NUMBERS = frozenset({bool, int, float, complex})
for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "pow": operator.pow,
    "divmod": np.divmod,
}.items():  # fmt: skip
    _python = getattr(operator, f"__{_name}__", divmod)
    setattr(Array, f"__{_name}__", _binary(_ufunc, _python, reflected=False))
    setattr(Array, f"__r{_name}__", _binary(_ufunc, _python, reflected=True))
for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    _python = getattr(operator, _name)
    setattr(Array, f"__{_name}__", _binary(_ufunc, _python, reflected=False, anything=_name in ("eq", "ne")))
for _name, _ufunc in {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}.items():
    setattr(Array, f"__{_name}__", _unary(_ufunc, getattr(operator, _name)))
Array.item = folds(Array.item)  # type: ignore[method-assign]
for _name in ("array", "array_ufunc", "array_function", "getitem", "iter", "bool", "float", "int", "complex", "index"):
    setattr(Array, f"__{_name}__", folds(getattr(Array, f"__{_name}__")))
for _name in ("contains", "str", "format"):
    setattr(Array, f"__{_name}__", folds(getattr(Array, f"__{_name}__")))
