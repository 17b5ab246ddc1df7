"""What is made in staged code: objects of classes that are called, and arrays that NumPy makes while it is traced."""

from __future__ import annotations

import collections
import contextlib
import operator
import types
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api import HANDLERS
from futurex.frontend.numpy_api.source import CONSTRUCTED
from futurex.frontend.outside import any_traced, of_class, refuse_special
from futurex.frontend.raised import note_made
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, fresh, new_array
from futurex.ops.python import may_refuse
from futurex.tree.node import const

_DATA_TYPES = (
    np.dtype,
    np.finfo,
    np.iinfo,
    *SCALARS,
    str,
    bytes,
    slice,
    range,
    object,
    frozenset,
    types.SimpleNamespace,
)
_ANY = collections.namedtuple("_ANY", "")
_OF_NAMED_TUPLES = frozenset({_ANY._replace.__code__, _ANY._make.__func__.__code__})  # type: ignore[attr-defined]
_SEQUENCES = (type, tuple, list, np.ndarray, Tracer)


def construct(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A class called: plain data types and exceptions as they are, the user's classes with a staged ``__init__``."""
    if kind in CONSTRUCTED or kind in HANDLERS:
        return (CONSTRUCTED.get(kind) or HANDLERS[kind])(*args, **kwargs)
    if issubclass(kind, np.generic) and (kind.__module__ == "numpy" or np.dtype(kind).type is kind):
        return _scalar_type(kind, args, kwargs)
    if kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return current().remember(kind(*args, **kwargs))
    if kind in _DATA_TYPES or kind is collections.OrderedDict or _is_named_tuple(kind):
        if kind in (bytes, frozenset, range):
            refuse_special(args)
        if kind in (str, bytes) and (any_traced(args) or kwargs):
            raise Escape(f"{kind.__name__}() of a traced value", "plain Python needs the value here")
        return current().remember(kind(*args, **kwargs))
    if kind in (contextlib.nullcontext,):
        return kind(*args, **kwargs)
    if kind is super:
        return super(*args)
    if kind is contextlib.suppress or kind is contextlib._GeneratorContextManager:
        from futurex.frontend.calls import staged_callback

        return current().remember(kind(*map(staged_callback, args), **kwargs))
    init = of_class(kind, "__init__")
    if issubclass(kind, BaseException):
        return _exception(kind, init, args, kwargs)
    if hasattr(kind, "__del__"):
        raise Escape(f"making a {kind.__qualname__}", "its __del__ is called by Python once nobody holds it")
    plain = kind.__new__ is object.__new__ and type(kind).__call__ is type.__call__
    is_data = issubclass(kind, dict | list | set | np.ndarray)
    if plain and not is_data and (type(init) is types.FunctionType or init is object.__init__):
        return _instance(kind, init, args, kwargs)
    raise Escape(f"making a {kind.__qualname__}", "what its constructor does is not known to the tracer")


def _is_named_tuple(kind: type) -> bool:
    """Is it made by its fields alone? A subclass may have another ``__new__``."""
    maker = next(base for base in kind.__mro__ if "__new__" in vars(base))
    return issubclass(kind, tuple) and "_fields" in vars(maker)


def fills_a_tuple(function: types.FunctionType, args: tuple[Any, ...]) -> bool:
    """Is it ``_replace`` or ``_make`` of a named tuple, collections' own, of values that are there?"""
    if function.__code__ not in _OF_NAMED_TUPLES:
        return False
    kind = args[0] if args and isinstance(args[0], type) else type(args[0]) if args else tuple
    make = getattr(getattr(kind, "_make", None), "__func__", None)
    own = type(make) is types.FunctionType and make.__code__ in _OF_NAMED_TUPLES
    return own and all(isinstance(arg, _SEQUENCES) for arg in args)


def _exception(kind: type[BaseException], init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An exception: made as it is, or with a staged ``__init__``; a run makes it again from the same arguments."""
    from futurex.frontend.calls import call

    if type(init) is types.FunctionType:
        error = current().remember(kind.__new__(kind, *args, **kwargs))
        call(init, (error, *args), kwargs)
    else:
        error = current().remember(kind(*args, **kwargs))
    note_made(error, args, kwargs)
    return error


def _instance(kind: type, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    instance = current().remember(object.__new__(kind))
    if hasattr(kind, "__dataclass_fields__") and init.__code__.co_filename == "<string>":
        from futurex.frontend.library_calls import fill_dataclass

        fill_dataclass(instance, init, args, kwargs)
    elif type(init) is types.FunctionType:
        from futurex.frontend.calls import call

        call(init, (instance, *args), kwargs)
    return instance


def _scalar_type(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    refuse_special(args, kwargs)
    if len(args) == 1 and not kwargs and isinstance(args[0], Tracer):
        if np.dtype(kind).kind not in "biufc":
            raise Escape(f"numpy.{kind.__name__} of a traced value", "this dtype is not traced")
        node, dtype = args[0]._node, np.dtype(kind)
        return fresh(emit("element" if node.aval.weak and may_refuse(node.aval, dtype) else "cast", node, dtype=dtype))
    if any_traced(args) or any_traced(kwargs.values()):
        raise Escape(f"numpy.{kind.__name__} of containers with traced values", "use np.array")
    return wrapped(kind(*args, **kwargs))


def wrapped(result: Any) -> Any:
    """Arrays made during the trace are traced constants, so that writes into them are seen."""
    if isinstance(result, np.ndarray):
        if result.dtype.kind not in "biufc":
            raise Escape(f"an array of dtype {result.dtype}", "only numbers and booleans are traced")
        return new_array(const(result)) if result.flags.c_contiguous else fresh(const(result))
    if isinstance(result, tuple):
        found = {id(entry): wrapped(entry) for entry in result}  # np.diag_indices has one array several times
        parts = [found[id(entry)] for entry in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, list):
        return current().remember([wrapped(entry) for entry in result])
    if isinstance(result, np.generic | np.dtype | type | str) or type(result) in (*SCALARS, type(None)):
        return result
    raise Escape(f"a {type(result).__qualname__} made by NumPy", "what it holds is not known to the tracer")
