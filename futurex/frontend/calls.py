"""The runtime object that rewritten code calls: every call, read, write and choice of a staged function comes through here.

Calls dispatch on the function object, never on its name.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.control import UNDEF, TracedRange, is_unknown
from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api import HANDLERS, UFUNCS, call_numpy, call_ufunc
from futurex.frontend.rewrite import NoSource, is_rewritten, rewrite
from futurex.frontend.trace import Guard, current, emit
from futurex.frontend.tracer import SCALARS, Tracer, fresh, lift, node_of

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range)
MUTATORS = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft popleft".split()
)
_PURE_MODULES = frozenset({"math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "builtins", "collections", "dataclasses", "typing", "enum", "numbers", "abc", "copy", "string", "re"})
_IMPURE_BUILTINS = frozenset({builtins.input, builtins.open, builtins.exec, builtins.eval, builtins.compile, builtins.id, builtins.__import__, builtins.breakpoint})
_IN_PLACE = {name: getattr(operator, f"i{name.rstrip('_')}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")}
Special = Callable[..., Any]
SPECIAL: dict[Any, Special] = {}


def special(*functions: Any) -> Callable[[Special], Special]:
    """Register what a function object means in staged code when it is called (also from :mod:`futurex.nn` and transforms)."""

    def register(handler: Special) -> Special:
        for function in functions:
            SPECIAL[function] = handler
        return handler

    return register


def any_traced(values: Any) -> bool:
    return any(
        isinstance(value, Tracer) or hasattr(type(value), "__fx_future__") or (isinstance(value, list | tuple) and any_traced(value))
        or (isinstance(value, dict) and any_traced(value.values()))
        for value in values
    )  # fmt: skip


class Runtime:
    """``__fx__`` of one rewritten function."""

    UNDEF = UNDEF
    slice = builtins.slice

    def __init__(self, function: types.FunctionType, owner: Callable[[], Any]) -> None:
        self.function = function
        self.owner = owner

    if_ = staticmethod(control.if_)
    while_ = staticmethod(control.while_)
    for_ = staticmethod(control.for_)
    if_expression = staticmethod(control.if_expression)
    and_ = staticmethod(control.and_)
    or_ = staticmethod(control.or_)
    not_ = staticmethod(control.not_)
    assert_ = staticmethod(control.assert_)

    # -- names from outside ------------------------------------------------------------------------------------------

    def captured(self, name: str, value: Any) -> Any:
        """A global or closure variable: guarded; arrays become inputs."""
        return captured_value(name, value, self._reader(name), (id(self.function.__globals__), name, id(self.function)))

    def _reader(self, name: str) -> Callable[[], Any]:
        function = self.owner()
        freevars = function.__code__.co_freevars
        if name in freevars:
            cell = function.__closure__[freevars.index(name)]
            return lambda: cell.cell_contents
        scope, fallback = function.__globals__, vars(builtins)
        return lambda: scope[name] if name in scope else fallback[name]

    def getattr_(self, value: Any, name: str) -> Any:
        """``value.name``: attributes of objects from outside are guarded like globals."""
        result = getattr(value, name)
        if isinstance(value, Tracer | types.ModuleType | type) or isinstance(result, types.BuiltinMethodType | types.MethodType):
            return result
        if isinstance(value, np.ndarray | np.generic | PLAIN | types.FunctionType) or current().is_own(value):
            return result
        return captured_value(f"{type(value).__name__}.{name}", result, lambda: getattr(value, name), (id(value), name, value))

    @staticmethod
    def read(thunk: Callable[[], Any]) -> Any:
        try:
            return thunk()
        except NameError:
            return UNDEF

    @staticmethod
    def born(container: Any) -> Any:
        return current().remember(container)

    @staticmethod
    def refuse(why: str) -> None:
        raise Escape("this function is not staged", why)

    # -- known values ------------------------------------------------------------------------------------------------

    @staticmethod
    def known(value: Any) -> Any:
        if is_unknown(value):
            raise Escape("a test on data where Python must decide", "it leaves a with, try or comprehension, or binds a name")
        return value

    @staticmethod
    def known_iterable(value: Any) -> Any:
        if isinstance(value, TracedRange):
            raise Escape("a comprehension over a range that depends on data", "the number of its elements is not known")
        return value

    @staticmethod
    def known_subject(value: Any) -> Any:
        if any_traced([value]):
            raise Escape("match on traced values", "which pattern fits is not known before the run")
        return value

    # -- items -------------------------------------------------------------------------------------------------------

    @staticmethod
    def getitem(container: Any, index: Any) -> Any:
        if isinstance(container, np.ndarray):
            return lift(container)[index]
        if isinstance(container, Tracer) or not _traced_index(index):
            result = container[index]
            if isinstance(result, np.ndarray) and isinstance(container, list | tuple | dict):
                return lift(result)
            return result
        if isinstance(container, list | tuple) and any_traced([container]):
            return fresh(node_of(container))[index]
        return container[operator.index(index) if isinstance(index, Tracer) else index]

    @staticmethod
    def setitem(container: Any, index: Any, value: Any) -> None:
        if isinstance(container, np.ndarray):
            container = lift(container)
        if isinstance(container, Tracer):
            container[index] = value
            return
        own_container(container, f"an item of a {type(container).__name__}", unchanged=lambda: container[index] is value)
        container[index] = value

    @staticmethod
    def delitem(container: Any, index: Any) -> None:
        own_container(container, f"an item of a {type(container).__name__}")
        del container[index]

    @classmethod
    def isetitem(cls, container: Any, index: Any, name: str, value: Any) -> None:
        cls.setitem(container, index, cls.iop(name, cls.getitem(container, index), value))

    @staticmethod
    def iop(name: str, target: Any, value: Any) -> Any:
        if isinstance(target, np.ndarray):
            target = lift(target)
        if isinstance(target, list | dict | set):
            own_container(target, f"a {type(target).__name__}")
        return _IN_PLACE[name](target, value)

    def setattr_(self, target: Any, name: str, value: Any) -> None:
        if isinstance(target, Tracer):
            setattr(target, name, value)
            return
        own_container(target, f"the attribute {name!r}", unchanged=lambda: getattr(target, name, UNDEF) is value)
        setattr(target, name, value)

    def iattr(self, target: Any, attr: str, name: str, value: Any) -> None:
        self.setattr_(target, attr, self.iop(name, self.getattr_(target, attr), value))

    @staticmethod
    def unpack(value: Any, count: int, starred: int) -> Any:
        return list(value) if isinstance(value, Tracer) else value

    # -- tests -------------------------------------------------------------------------------------------------------

    @staticmethod
    def chain(names: tuple[str, ...], first: Any, *others: Callable[[], Any]) -> Any:
        """``a < b < c`` with every operand evaluated at most once."""

        def link(left: Any, position: int) -> Any:
            right = others[position]()
            result = getattr(operator, names[position])(left, right)
            return result if position == len(names) - 1 else control.and_(result, lambda: link(right, position + 1))

        return link(first, 0)

    @staticmethod
    def in_(value: Any, container: Any) -> Any:
        if isinstance(container, Tracer):
            return fresh(emit("any", emit("equal", container._node, node_of(value)), axis=None, keepdims=False))
        if isinstance(value, Tracer):
            if isinstance(container, list | tuple | range) and value.ndim == 0:
                tests = [(lambda entry=entry: value == entry) for entry in container]
                return control.or_(False, *tests)
            raise Escape("`in` with a traced value", f"a {type(container).__name__} needs the value itself")
        return value in container

    @classmethod
    def not_in(cls, value: Any, container: Any) -> Any:
        return control.not_(cls.in_(value, container))

    @staticmethod
    def raise_(thunk: Callable[[], Any]) -> None:
        error = thunk()
        if isinstance(error, type):
            error = error()
        error.__staged__ = True
        raise error

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return call(function, args, kwargs)


def _traced_index(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(_traced_index(part) for part in index)
    if isinstance(index, slice):
        return any(isinstance(part, Tracer) for part in (index.start, index.stop, index.step))
    return isinstance(index, Tracer)


def captured_value(name: str, value: Any, read: Callable[[], Any], key: Any) -> Any:
    """Guard a value from outside; an array becomes an input read again at every call."""
    if isinstance(value, Tracer):
        return value
    trace = current()
    if isinstance(value, np.ndarray):
        return lift(value, read)
    if hasattr(type(value), "__fx_future__"):
        return Tracer(trace.capture(value, read))
    if key not in trace.guards and not trace.is_own(value):
        trace.guards[key] = Guard(name, read, fingerprint(value))
    return value


def fingerprint(value: Any, depth: int = 0) -> Any:
    """What must stay the same for a trace to stay valid: value for plain data, contents of containers, identity else."""
    if isinstance(value, PLAIN) or isinstance(value, np.generic):
        return (type(value), repr(value))
    if isinstance(value, np.ndarray):
        return ("array", id(value))
    if isinstance(value, tuple | list) and depth < 6:
        return (type(value), id(value) if isinstance(value, list) else 0, tuple(fingerprint(entry, depth + 1) for entry in value))
    if isinstance(value, dict) and depth < 6 and len(value) < 10_000:
        return (dict, id(value), tuple((repr(k), fingerprint(entry, depth + 1)) for k, entry in value.items()))
    return ("object", id(value))


def own_container(container: Any, what: str, unchanged: Callable[[], bool] | None = None) -> None:
    """Refuse to change a Python object that code outside the trace can see."""
    if current().is_own(container):
        return
    try:
        if unchanged is not None and unchanged():
            return
    except (LookupError, AttributeError):
        pass
    where = "inside a staged branch or loop" if current().scopes else "that was not made by the function"
    raise Escape(f"changing {what} {where}", "the change would happen once, while tracing, not at every run")


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
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] == "numpy" and not isinstance(function, type)


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
    from futurex.tree.node import const

    if array.dtype.kind not in "biufc":
        raise Escape(f"an array of dtype {array.dtype}", "only numbers and booleans are traced")
    return const(array)


def _call_user(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function: staged in turn."""
    if is_rewritten(function):
        return function(*args, **kwargs)
    module = (function.__module__ or "").split(".")[0]
    if module in ("numpy", "futurex") or function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        if module == "futurex":
            return function(*args, **kwargs)
        raise Escape(f"a call of {function.__qualname__}", "generators and coroutines are not staged")
    return staged_twin(function)(*args, **kwargs)


def staged_twin(function: types.FunctionType) -> Callable[..., Any]:
    """The rewritten function. Raises Escape where its source cannot be had."""
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


# -- builtins --------------------------------------------------------------------------------------------------------


def _scalar(kind: str, builtin: Any) -> Special:
    def convert(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Tracer):
            node = args[0]._node
            if node.size != 1:
                raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
            if node.op == "const":
                return builtin(node.value)
            return fresh(emit("python_scalar", emit("reshape", node, shape=()) if node.ndim else node, kind=kind))
        return builtin(*args, **kwargs)

    return convert


for _kind, _builtin in {"f": float, "i": int, "b": bool, "c": complex}.items():
    SPECIAL[_builtin] = _scalar(_kind, _builtin)


@special(range)
def _range(*args: Any) -> Any:
    if not any(is_unknown(arg) for arg in args):
        return range(*(operator.index(arg) for arg in args))
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if is_unknown(step):
        raise Escape("a range with a step that depends on data", "its direction is not known before the run")
    for bound in (start, stop):
        if isinstance(bound, Tracer) and bound.dtype.kind not in "iu":
            raise TypeError(f"'{bound.dtype}' object cannot be interpreted as an integer")
    return TracedRange(start, stop, operator.index(step))


@special(len)
def _len(value: Any) -> int:
    return len(value)


@special(abs)
def _abs(value: Any) -> Any:
    return abs(value) if not isinstance(value, np.ndarray) else abs(lift(value))


@special(isinstance)
def _isinstance(value: Any, kinds: Any) -> bool:
    if not isinstance(value, Tracer):
        return isinstance(value, kinds)
    stand_in: Any = value.dtype.type(0) if value.ndim == 0 else np.empty((0,) * value.ndim, value.dtype)
    return isinstance(stand_in.item() if value.aval.weak else stand_in, kinds)


@special(type)
def _type(*args: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Tracer):
        raise Escape("type() of a traced value", "it stands for an array and is none")
    return type(*args)


def _extreme(builtin: Any, ufunc: Any) -> Special:
    def choose(*args: Any, **kwargs: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else list(args)
        if not any_traced(values):
            return builtin(*args, **kwargs)
        if kwargs:
            raise Escape(f"{builtin.__name__}() with options on traced values", "only plain values are compared")
        best = values[0]
        for value in values[1:]:
            test = value > best if ufunc is np.maximum else value < best
            best = control.if_expression(test, lambda value=value: value, lambda best=best: best)
        return best

    return choose


SPECIAL[max] = _extreme(max, np.maximum)
SPECIAL[min] = _extreme(min, np.minimum)


@special(sum)
def _sum(values: Any, start: Any = 0) -> Any:
    total = start
    for value in values:
        total = total + value
    return total


@special(round)
def _round(value: Any, digits: Any = None) -> Any:
    if isinstance(value, Tracer):
        raise Escape("round() of a traced value", "its result is a Python int", "use np.rint")
    return round(value, digits)


@special(print)
def _print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    if file is not None:
        raise Escape("print() to a file", "the file may be closed at the next run")
    nodes, parts = [], []
    for value in values:
        if isinstance(value, Tracer | np.ndarray):
            nodes.append(node_of(value))
            parts.append(None)
        else:
            parts.append(str(value))
    current().effect("print", *nodes, parts=tuple(parts), sep=sep, end=end)


@special(enumerate)
def _enumerate(values: Any, start: int = 0) -> Any:
    _refuse_unknown(values)
    return enumerate(values, start)


@special(zip)
def _zip(*columns: Any, strict: bool = False) -> Any:
    for column in columns:
        _refuse_unknown(column)
    return zip(*columns, strict=strict)


@special(reversed)
def _reversed(values: Any) -> Any:
    if isinstance(values, Tracer):
        return values[::-1]
    _refuse_unknown(values)
    return reversed(values)


def _refuse_unknown(values: Any) -> None:
    if isinstance(values, TracedRange):
        raise Escape("a range that depends on data in zip, enumerate or reversed", "the number of its elements is not known")


@special(list, tuple)
def _list(values: Any = ()) -> Any:
    return current().remember(list(values))


SPECIAL[tuple] = lambda values=(): tuple(values)


def _each(function: Any, *columns: Any) -> Any:
    return [call(function, row, {}) for row in zip(*columns, strict=False)]


SPECIAL[map] = _each
SPECIAL[functools.reduce] = lambda function, values, *first: functools.reduce(lambda a, b: call(function, (a, b), {}), values, *first)
SPECIAL[math.prod] = lambda values, *, start=1: functools.reduce(operator.mul, values, start)
SPECIAL[itertools.chain] = lambda *columns: [entry for column in columns for entry in column]
SPECIAL[any] = lambda values: control.or_(False, *((lambda v=v: v) for v in values))
SPECIAL[all] = lambda values: control.and_(True, *((lambda v=v: v) for v in values))
