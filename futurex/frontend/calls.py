"""Calls from staged code: by function object, never by name."""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api import HANDLERS, UFUNCS, call_numpy, call_ufunc
from futurex.frontend.outside import any_traced, own_container
from futurex.frontend.rewrite import NoSource, is_rewritten, rewrite
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, fresh, lift
from futurex.tree.node import const
from futurex.tree.source import is_internal

MUTATORS = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft popleft".split()
)
_PURE_MODULES = frozenset({"math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "builtins", "collections", "dataclasses", "typing", "enum", "numbers", "abc", "copy", "string", "re"})
_IMPURE_BUILTINS = frozenset({builtins.input, builtins.open, builtins.exec, builtins.eval, builtins.compile, builtins.id, builtins.__import__, builtins.breakpoint})

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Special = Callable[..., Any]
SPECIAL: dict[Any, Special] = {}


def special(*functions: Any) -> Callable[[Special], Special]:
    """Register what a function object means in staged code when it is called (also from :mod:`futurex.nn` and transforms)."""

    def register(handler: Special) -> Special:
        for function in functions:
            SPECIAL[function] = handler
        return handler

    return register


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call anything from staged code."""
    try:
        handler = SPECIAL.get(function)
    except TypeError:  # an unhashable callable
        handler = None
    if handler is not None:
        return handler(*args, **kwargs)
    if isinstance(function, np.ufunc) or _is_numpy(function):
        return _call_numpy(function, args, kwargs)
    if hasattr(function, "__fx_stage__"):
        return function.__fx_stage__(args, kwargs)
    if isinstance(function, types.FunctionType):
        return _call_user(function, args, kwargs)
    if isinstance(function, types.MethodType):
        if isinstance(function.__self__, Tracer):
            return function(*args, **kwargs)
        return call(function.__func__, (function.__self__, *args), kwargs)
    if isinstance(function, functools.partial):
        return call(function.func, (*function.args, *args), {**function.keywords, **kwargs})
    return _call_other(function, args, kwargs)


def _is_numpy(function: Any) -> bool:
    return _module(function) == "numpy" and not isinstance(function, type)


def _module(function: Any) -> str:
    return (getattr(function, "__module__", None) or "").split(".")[0]


def _call_numpy(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ndarray):  # a method of an array from outside
        return getattr(lift(owner), function.__name__)(*args, **kwargs)
    if owner is not None and not isinstance(owner, types.ModuleType | np.generic | np.ufunc | type):
        raise Escape(f"a method of {type(owner).__name__}", "objects with a state of their own run as plain Python")
    if isinstance(owner, np.ufunc):
        return call_ufunc(owner, function.__name__, args, kwargs)
    if isinstance(function, np.ufunc):
        return _folded(lambda: call_ufunc(function, "__call__", args[: function.nin], {**kwargs, **_positional_out(function, args)}), function in UFUNCS, function, args, kwargs)
    if function in HANDLERS:
        return call_numpy(function, args, kwargs)
    if getattr(function, "__module__", "").startswith("numpy.random"):
        raise Escape(f"numpy.random.{function.__name__}", "it draws from a state of its own", "use fx.random with a key")
    if any_traced(args) or any_traced(kwargs.values()) or _has_array(args) or _has_array(kwargs.values()):
        raise Escape(f"numpy.{function.__name__}", "this function has no translation yet")
    result = function(*args, **kwargs)
    return _wrapped(result)


def _positional_out(ufunc: np.ufunc, args: tuple[Any, ...]) -> dict[str, Any]:
    return {"out": args[ufunc.nin :]} if len(args) > ufunc.nin else {}


def _folded(staged: Callable[[], Any], translated: bool, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if any_traced(args) or any_traced(kwargs.values()) or _has_array(args) or not _all_scalars(args):
        return staged()
    return function(*args, **kwargs)  # NumPy and Python scalars: the value is known now


def _all_scalars(args: Any) -> bool:
    return all(type(arg) in SCALARS or isinstance(arg, np.generic) for arg in args)


def _has_array(values: Any) -> bool:
    return any(isinstance(v, np.ndarray) or (isinstance(v, list | tuple) and _has_array(v)) for v in values)


def _wrapped(result: Any) -> Any:
    """Arrays made during the trace are traced constants, so that writes into them are seen."""
    if isinstance(result, np.ndarray):
        return fresh(node_of_constant(result))
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        return tuple(_wrapped(entry) for entry in result)
    if isinstance(result, list):
        return current().remember([_wrapped(entry) for entry in result])
    return result


def node_of_constant(array: np.ndarray) -> Any:
    if array.dtype.kind not in "biufc":
        raise Escape(f"an array of dtype {array.dtype}", "only numbers and booleans are traced")
    return const(array)


def _call_user(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function: staged in turn."""
    if is_rewritten(function):
        return function(*args, **kwargs)
    if is_internal(function.__code__.co_filename):
        return function(*args, **kwargs)  # futurex's own code is written on traced values
    if _module(function) == "numpy" or function.__code__.co_flags & _GENERATORS:
        raise Escape(f"a call of {function.__qualname__}", "generators and coroutines are not staged")
    return staged_twin(function)(*args, **kwargs)


def staged_twin(function: types.FunctionType) -> Callable[..., Any]:
    """The rewritten function. Raises Escape where its source cannot be had."""
    from futurex.frontend.hooks import Runtime

    try:
        return rewrite(function, Runtime(function, lambda: function))
    except NoSource as error:
        raise Escape(f"a call of {function.__qualname__}", str(error), "define it in a file or a notebook cell") from None


def _call_other(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(owner, list | dict | set | bytearray) or type(owner).__module__ == "collections":
        if name in MUTATORS:
            own_container(owner, f"a {type(owner).__name__} with {name}()")
        return current().remember(function(*args, **kwargs)) if name == "copy" else function(*args, **kwargs)
    if isinstance(function, type):
        return _construct(function, args, kwargs)
    if function in _IMPURE_BUILTINS:
        raise Escape(f"a call of {name}()", "it does more than compute")
    if isinstance(owner, str | bytes | tuple | int | float | complex) or (getattr(function, "__module__", None) in _PURE_MODULES):
        if any_traced(args) and getattr(function, "__module__", None) in ("math", "cmath"):
            return _math(name, args)
        return function(*args, **kwargs)
    if not isinstance(function, types.BuiltinFunctionType) and isinstance(getattr(type(function), "__call__", None), types.FunctionType):
        return call(type(function).__call__, (function, *args), kwargs)
    raise Escape(f"a call of {getattr(function, '__qualname__', repr(function))}", "what it does is not known to the tracer")


def _construct(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A class called: plain data types and exceptions as they are, the user's classes with a staged ``__init__``."""
    if kind in (list, dict, set) or issubclass(kind, BaseException | tuple) or kind.__module__ in _PURE_MODULES:
        result = kind(*args, **kwargs)
        return current().remember(result) if isinstance(result, list | dict | set) else result
    if issubclass(kind, np.generic):
        return _scalar_type(kind, args)
    init = kind.__init__
    if isinstance(init, types.FunctionType) and kind.__new__ is object.__new__ and not hasattr(type(kind), "_member_map_"):
        instance = current().remember(object.__new__(kind))
        if hasattr(kind, "__dataclass_fields__") and init.__code__.co_filename == "<string>":
            init(instance, *args, **kwargs)
        else:
            call(init, (instance, *args), kwargs)
        return instance
    raise Escape(f"making a {kind.__qualname__}", "what its constructor does is not known to the tracer")


def _scalar_type(kind: type, args: tuple[Any, ...]) -> Any:
    if args and isinstance(args[0], Tracer):
        return fresh(emit("cast", args[0]._node, dtype=np.dtype(kind)))
    return kind(*args)


_MATH = {
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "fabs": np.absolute,
    "atan": np.arctan, "atan2": np.arctan2, "hypot": np.hypot, "log2": np.log2, "log10": np.log10, "asin": np.arcsin, "acos": np.arccos,
    "sinh": np.sinh, "cosh": np.cosh,
}  # fmt: skip


def _math(name: str, args: tuple[Any, ...]) -> Any:
    raise Escape(f"math.{name} of a traced value", "it raises where NumPy gives nan or inf", f"use np.{_MATH[name].__name__}" if name in _MATH else "")
