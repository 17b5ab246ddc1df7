"""What functions and types of Python's standard library mean in staged code."""

from __future__ import annotations

import builtins
import cmath
import collections
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend import control, folds
from futurex.frontend.calls import SPECIAL, Special, call, special, staged_callback
from futurex.frontend.control.either import compared
from futurex.frontend.errors import Escape, python
from futurex.frontend.generators import TracedGenerator
from futurex.frontend.hooks import Runtime
from futurex.frontend.iteration import column, is_long
from futurex.frontend.lists import TracedList
from futurex.frontend.numbers import has_attribute, number_of
from futurex.frontend.numpy_api.source import CONSTRUCTED
from futurex.frontend.numpy_api.ufuncs import refuse_loose
from futurex.frontend.outside import (
    any_traced,
    asked_for,
    captured_value,
    items,
    of_class,
    own_container,
    refuse_special,
    special_method,
)
from futurex.frontend.replay import repeats
from futurex.frontend.tables import TracedRow
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, entered, fresh, new_array, node_of
from futurex.ops.mathematics import COMPLEX_KINDS, KINDS
from futurex.tree.pytree import flatten, unflatten

# -- dataclasses -----------------------------------------------------------------------------------------------------

_FACTORIES = (list, dict, set, collections.deque)
"""Types whose objects Python may make unseen: another one takes their place."""


def fill_dataclass(instance: Any, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the generated ``__init__`` of a dataclass does; default factories and ``__post_init__`` are staged calls."""
    kind = type(instance)
    fields = [field for field in dataclasses.fields(kind) if field.default_factory is not dataclasses.MISSING]
    later = [field for field in fields if not field.init]
    prepares = hasattr(kind, "__post_init__")
    unseen = [field for field in later if field.default_factory not in _FACTORIES]
    if unseen or (prepares and not hasattr(instance, "__dict__")):
        raise Escape(f"making a {kind.__qualname__}", "its __post_init__ or default factories would run unseen")
    try:
        given = inspect.signature(init).bind(instance, *args, **kwargs).arguments
    except TypeError:
        given = dict.fromkeys(field.name for field in fields)  # Python's own error comes, whatever factories make
    missing = [field for field in fields if field.init and field.name not in given]
    made = {field.name: call(field.default_factory, (), {}) for field in missing}
    prepared: list[tuple[Any, ...]] = []
    if prepares:  # found before that of the class, for as long as this takes
        vars(instance)["__post_init__"] = lambda *values: prepared.append(values)
    init(instance, *args, **kwargs, **made)
    for field in later:
        object.__setattr__(instance, field.name, call(field.default_factory, (), {}))
    if prepares:
        del vars(instance)["__post_init__"]
        call(of_class(kind, "__post_init__"), (instance, *prepared[0]), {})


# -- iterators and partial calls -------------------------------------------------------------------------------------

_ITERATED = frozenset({"iterable", "data", "selectors"})
"""Parameters of what is in itertools that are iterated."""
_TAKES_ANYTHING: frozenset[Any] = frozenset({itertools.repeat, functools.partial})


def _holding(kind: Any, /, *args: Any, **kwargs: Any) -> Any:
    """An iterator over others, or a partial call: what objects of a user's class give is found by staged code."""
    looks = _is_array if kind in _TAKES_ANYTHING else _is_iterated
    held = [items(arg) if looks(arg) else arg for arg in args]
    named = {name: items(arg) if name in _ITERATED and looks(arg) else arg for name, arg in kwargs.items()}
    return current().remember(kind(*map(staged_callback, held), **(named if looks is _is_iterated else kwargs)))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Tracer)


def _is_iterated(value: Any) -> bool:
    method = of_class(type(value), "__iter__") or of_class(type(value), "__getitem__")
    return _is_array(value) or type(method) is types.FunctionType


for _kind in {each for each in vars(itertools).values() if isinstance(each, type)} - {itertools.chain}:
    CONSTRUCTED[_kind] = functools.partial(_holding, _kind)
CONSTRUCTED[functools.partial] = functools.partial(_holding, functools.partial)


# -- math ------------------------------------------------------------------------------------------------------------


_OF_INTS = ("gcd", "lcm", "factorial", "comb", "perm", "isqrt")
_GROWING = ("lcm", "factorial", "comb", "perm")
"""Functions whose results may outgrow 64 bits: such a call is run again as plain Python."""


def _number(value: Any, name: str = "") -> Any:
    """What ``math`` makes of an argument: a Python number."""
    node = node_of(value)
    pythons = node.aval.weak or (node.dtype == float and isinstance(value, Tracer) and value.is_scalar)
    if name == "trunc" and not pythons:  # np.float64 is a float of Python's
        of = node.dtype.type if isinstance(value, Tracer) and value.is_scalar else np.ndarray
        raise TypeError(f"type numpy.{of.__name__} doesn't define __trunc__ method")
    if node.ndim:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    if name in _OF_INTS and not node.aval.weak and node.dtype.kind not in "iu":
        if isinstance(value, Tracer) and value.is_scalar:
            raise TypeError(f"'numpy.{node.dtype.type.__name__}' object cannot be interpreted as an integer")
        raise TypeError("only integer scalar arrays can be converted to a scalar index")
    if node.dtype.kind == "c":
        raise Escape("a function of the math module of a complex value", "it raises a TypeError")
    # NumPy's integers have no floor of their own.
    kind = "f" if node.dtype.kind == "f" or (name in ("floor", "ceil") and not pythons) else "i"
    return node if node.aval.weak and node.dtype.kind != "b" else number_of(node, kind)._node


def _math(name: str, function: Any) -> Special:
    def compute(*args: Any, **options: Any) -> Any:
        if any_traced(options.values()) or not any(isinstance(arg, Tracer) for arg in args):
            if any_traced(args) or any_traced(options.values()):
                raise Escape(f"math.{name} of containers or options that are traced", "plain Python needs the values")
            refuse_special(args, options)
            with python():
                return function(*args, **options)
        numbers = [_number(arg, name) for arg in args]
        if name == "ldexp" and not node_of(args[1]).aval.weak:
            raise TypeError("Expected an int as second argument to ldexp.")
        current().waits |= name in _GROWING
        return fresh(emit("math_call", *numbers, function=name, options=tuple(sorted(options.items()))))

    return compute


for _name in KINDS:
    if hasattr(math, _name) and _name not in ("dist", "fsum"):
        SPECIAL[getattr(math, _name)] = _math(_name, getattr(math, _name))


def _complex(value: Any, kind: str) -> Any:
    """What ``cmath`` makes of an argument: one of Python's complex numbers, or, of ``rect``, a float."""
    node = node_of(value)
    if node.ndim or node.dtype.kind not in ("biufc" if kind == "c" else "biuf") or node.dtype.itemsize > 16:
        raise Escape("a function of the cmath module of an array, or of what is no such number", "it may raise")
    return node if node.aval.weak and node.dtype.kind == kind else number_of(node, kind)._node


def _of_complex(name: str, function: Any) -> Special:
    def compute(*args: Any) -> Any:
        if not any(isinstance(arg, Tracer) for arg in args):
            if any_traced(args):
                raise Escape(f"cmath.{name} of containers that are traced", "plain Python needs the values")
            refuse_special(args)
            with python():
                return function(*args)
        if len(args) != (2 if name == "rect" else 1):
            raise Escape(f"cmath.{name} of {len(args)} numbers", "it is not traced")
        numbers = [_complex(arg, "f" if name == "rect" else "c") for arg in args]
        if name == "polar":
            return tuple(fresh(emit("cmath_call", *numbers, function=each)) for each in ("radius", "angle"))
        return fresh(emit("cmath_call", *numbers, function=name))

    return compute


for _name in (*COMPLEX_KINDS, "polar"):
    if hasattr(cmath, _name):
        SPECIAL[getattr(cmath, _name)] = _of_complex(_name, getattr(cmath, _name))


@special(builtins.round)
def _round(number: Any, ndigits: Any = None) -> Any:
    if not any_traced([number, ndigits]):
        refuse_special(number, ndigits)
        with python():
            return round(number, ndigits)
    if not isinstance(number, Tracer) or isinstance(ndigits, Tracer):
        raise Escape("round() to a number of digits that depends on data", "plain Python needs it here")
    if not number.is_scalar:
        raise Escape("round() of an array", "it gives an array, or raises", "use np.round")
    if number._loose and (ndigits is not None or number.dtype.kind in "bc"):
        refuse_loose("round()")  # Python rounds a decimal fraction, NumPy a multiple of one; of some kinds one raises
    if not number.aval.weak and number.dtype.kind in "bc":
        raise TypeError(f"type numpy.{number.dtype.type.__name__} doesn't define __round__ method")
    if number.aval.weak or ndigits is None:
        if number.dtype.kind == "c":
            raise TypeError("type complex doesn't define __round__ method")
        if number.dtype.kind in "iub" and ndigits is None:
            return number_of(number._node, "i")
        if ndigits is None:
            return fresh(emit("math_call", _number(number), function="round"))
        name = "rounded" if number.dtype.kind == "f" else "round"
        return fresh(emit("math_call", _number(number), ndigits, function=name))
    return call(np.round, (number, ndigits), {})


# -- choosing --------------------------------------------------------------------------------------------------------


def _extreme(builtin: Any, comparison: str) -> Special:
    def choose(*args: Any, key: Any = None, **default: Any) -> Any:
        if len(args) == 1 and is_long(args[0]):
            return folds.extreme(builtin, *column(args[0]), key, default)
        values = list(items(args[0])) if len(args) == 1 else list(args)
        keys = values if key is None else [call(key, (value,), {}) for value in values]
        if not values or not (any_traced(keys) or special_method(keys)):
            with python():
                place = builtin(range(len(keys)), key=keys.__getitem__, default=None)
                return values[place] if place is not None else builtin((), **default)
        best, best_key = values[0], keys[0]
        for value, value_key in zip(values[1:], keys[1:], strict=True):
            test = Runtime.binary(comparison, compared(value_key, best_key), compared(best_key, value_key))
            if key is None:
                best = best_key = control.if_expression(test, _constantly(value), _constantly(best))
                continue
            pair = control.if_expression(test, _constantly((value, value_key)), _constantly((best, best_key)))
            best, best_key = pair
        return best

    return choose


def _constantly(value: Any) -> Callable[[], Any]:
    return lambda: value


SPECIAL[max] = _extreme(max, "gt")
SPECIAL[min] = _extreme(min, "lt")


# -- attributes ------------------------------------------------------------------------------------------------------


@special(hasattr)
def _hasattr(value: Any, name: str) -> bool:
    return has_attribute(value, name) if isinstance(value, Tracer) else asked_for(value, name)


@special(getattr)
def _getattr(value: Any, name: str, *default: Any) -> Any:
    if default and not _hasattr(value, name):
        return default[0]
    return Runtime.getattr_(value, name)


SPECIAL[setattr] = Runtime.setattr_
SPECIAL[delattr] = Runtime.delattr_


@special(object.__setattr__)
def _set_past_the_class(target: Any, name: str, value: Any) -> None:
    """As frozen dataclasses fill themselves in."""
    if not current().is_own(target) or hasattr(getattr(type(target), name, None), "__set__"):
        raise Escape("a call of object.__setattr__", "the object is not the function's own, or its class says how")
    own_container(target, f"the attribute {name!r}")
    current().assigned[id(target), name] = target
    object.__setattr__(target, name, value)


@special(dataclasses.replace)
def _replace(value: Any, /, **changes: Any) -> Any:
    fields = [field.name for field in dataclasses.fields(value) if field.init]
    unset = [field.name for field in dataclasses.fields(value) if not field.init and field.name in changes]
    if unset:
        raise ValueError(f"field {unset[0]} is declared with init=False, it cannot be specified with replace()")
    kept = {name: Runtime.getattr_(value, name) for name in fields if name not in changes}
    return call(type(value), (), {**kept, **changes})


SPECIAL[tuple.__new__] = lambda kind, values=(): current().remember(tuple.__new__(kind, tuple(items(values))))


# -- operator and functools ------------------------------------------------------------------------------------------


def operator_call(function: Any, args: tuple[Any, ...]) -> Any:
    """``itemgetter``, ``attrgetter`` and ``methodcaller``."""
    made_by, parts = function.__reduce__()[:2]
    parts, named = (made_by.args, made_by.keywords) if isinstance(made_by, functools.partial) else (parts, {})
    (value,) = args
    if isinstance(function, operator.itemgetter):
        found = tuple(Runtime.getitem(value, part) for part in parts)
        return found if len(parts) > 1 else found[0]
    if isinstance(function, operator.attrgetter):
        found = tuple(functools.reduce(Runtime.getattr_, part.split("."), value) for part in parts)
        return found if len(parts) > 1 else found[0]
    return call(Runtime.getattr_(value, parts[0]), tuple(parts[1:]), named)


_KEYS = (str, bytes, int, float, complex, type(None), type, np.generic, np.dtype)


def cached_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function with ``functools.lru_cache``: equal arguments give one object, which the cache holds outside.

    So the function is called here, as in plain Python, and every call of the trace looks into the cache again: there
    has to be room for all that it asks for, or the function would be called again each time.
    """
    if any_traced(args) or any_traced(kwargs.values()):
        raise Escape(f"a call of {function.__qualname__} with traced values", "its cache needs the values")
    leaves = flatten((args, kwargs))[0]
    if not all(isinstance(leaf, _KEYS) for leaf in leaves):
        raise Escape(f"a call of {function.__qualname__} with objects", "its cache would keep those of the trace")
    key = "cached", id(function), args, tuple(kwargs.items()), tuple(map(type, leaves))
    room, trace = function.cache_parameters()["maxsize"], current()
    places = {key, *trace.guards, *(capture.key for capture in trace.captures.values())}
    if room is not None and sum(isinstance(place, tuple) and place[:2] == key[:2] for place in places) > room:
        raise Escape(f"a call of {function.__qualname__}", f"its cache holds {room} of its results at once")
    read = functools.partial(function, *args, **kwargs)
    result = read()
    if not isinstance(result, np.ndarray | str | int | float | complex | bytes | type(None) | np.generic):
        raise Escape(f"a {type(result).__name__} from a cache", "every call would have to give the same one")
    return captured_value(f"{function.__qualname__}{args}", result, read, key)


def dispatched_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function with ``functools.singledispatch``: another one may be registered for a class at any time."""
    if not args:
        raise TypeError(f"{function.__name__} requires at least 1 positional argument")
    kind = call(type, (args[0],), {})
    read = functools.partial(function.dispatch, kind)
    what, key = f"{function.__name__}.dispatch({kind.__name__})", ("dispatched", id(function), kind)
    return call(captured_value(what, read(), read, key), args, kwargs)


@special(collections.deque)
def _deque(values: Any = (), maxlen: int | None = None) -> Any:
    if isinstance(values, TracedList | TracedRow):
        most = collections.deque(maxlen=maxlen).maxlen  # checks it
        return values.made_as(collections.deque, most)
    return current().remember(collections.deque(items(values), maxlen))


@special(collections.defaultdict)
def _defaultdict(factory: Any = None, /, *args: Any, **kwargs: Any) -> Any:
    made = None if factory is None else lambda: current().remember(call(factory, (), {}))
    return current().remember(collections.defaultdict(made, *args, **kwargs))


@special(collections.Counter)
def _counter(*args: Any, **kwargs: Any) -> Any:
    if any_traced(args) or any_traced(kwargs.values()):
        raise Escape("a Counter of traced values", "plain Python needs the values here")
    refuse_special(args)
    return current().remember(collections.Counter(*args, **kwargs))


# -- copies ----------------------------------------------------------------------------------------------------------


@special(copy.copy)
def _copy(value: Any) -> Any:
    if isinstance(value, Tracer):
        return value if value.is_scalar else new_array(value._node)
    if type(value) in (list, dict, set):
        return current().remember(copy.copy(value))
    raise Escape(f"copy.copy of a {type(value).__qualname__}", "what the copy shares is not known to the tracer")


@special(copy.deepcopy)
def _deepcopy(value: Any) -> Any:
    if type(value) is TracedGenerator:
        return value.copy()
    leaves, structure = flatten(value)
    if repeats(value) or len({id(leaf) for leaf in leaves if isinstance(leaf, np.ndarray | Tracer)}) < sum(
        isinstance(leaf, np.ndarray | Tracer) for leaf in leaves
    ):
        raise Escape(
            "copy.deepcopy of containers that hold one thing twice", "the copies would have to be one thing again"
        )
    copies = [_copy(entered(leaf)) if isinstance(leaf, np.ndarray | Tracer) else leaf for leaf in leaves]
    if not all(isinstance(leaf, (Tracer, str, np.generic, type(None), *SCALARS)) for leaf in copies):
        raise Escape("copy.deepcopy of objects", "what they hold is not known to the tracer")
    return current().remember_all(unflatten(structure, copies))
