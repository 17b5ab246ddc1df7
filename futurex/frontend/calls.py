"""Calls from staged code: by function object, never by name."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import itertools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy._core.overrides import ARRAY_FUNCTIONS

from futurex.frontend import control, fragments, keyed
from futurex.frontend.constructing import construct, fills_a_tuple, wrapped
from futurex.frontend.control import recursion
from futurex.frontend.errors import Escape, Retrace, python, unstaged
from futurex.frontend.lists import puts_an_entry
from futurex.frontend.made_lists import note_asked
from futurex.frontend.masked import Masked, call_masked
from futurex.frontend.numpy_api import HANDLERS, NATIVE, call_native, call_numpy, call_ufunc
from futurex.frontend.numpy_api.registry import named
from futurex.frontend.numpy_api.scipy_linalg import call_linalg, linalg_name
from futurex.frontend.numpy_api.scipy_special import call_special, special_name
from futurex.frontend.numpy_api.source import IMPLEMENTATIONS, PURE, is_walked, source_of
from futurex.frontend.outside import (
    any_traced,
    entered_whole,
    extended,
    gives_items,
    guard_function,
    items,
    made_of,
    of_class,
    own_container,
    refuse_special,
    taken,
)
from futurex.frontend.rewrite import NoSource, is_rewritten, rewrite
from futurex.frontend.standing import Method, is_partial
from futurex.frontend.texts import format_method, join_method
from futurex.frontend.trace import current
from futurex.frontend.tracer import SCALARS, Tracer, entered
from futurex.ops.opaque import identity
from futurex.ops.streams import GENERATORS
from futurex.tree.dims import UnknownDimension
from futurex.tree.source import at, called_from, here, is_known

Special = Callable[..., Any]
SPECIAL: dict[Any, Special] = {}
MUTATORS = frozenset((
    "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse",
    "update", "setdefault", "popitem", "add", "discard", "__setitem__", "__delitem__", "__iadd__",
    "__ior__", "difference_update", "intersection_update", "symmetric_difference_update",
    "appendleft", "extendleft", "popleft", "rotate",
    "subtract", "move_to_end",
))  # fmt: skip
_EXTENDING = {"extend": "append", "extendleft": "appendleft"}
_COMPARING = frozenset({"index", "count", "sort", "remove"})
_PURE_MODULES = frozenset({"math", "cmath", "operator", "_operator", "itertools", "string", "re", "numbers", "typing"})
_PURE_BUILTINS = frozenset(
    {bin, callable, chr, divmod, format, hex, issubclass, iter, next, oct, ord, pow, slice, ascii, repr}
)
_PURE_NUMPY = PURE | (
    frozenset(ARRAY_FUNCTIONS)
    - named(
        "save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex fromiter frombuffer "
        "fromfunction apply_along_axis apply_over_axes piecewise"
    )
)
LOOKED_AT = {"insert": 1, "pop": 1, "remove": 1, "index": 1}
"""Methods of lists, and how many of their arguments say where."""
WITH_SOURCE = (
    "define it in a file, a notebook, IPython, or at the prompt of Python 3.13, which keep what was typed; "
    "with what a notebook sends elsewhere, the source of futurized functions travels"
)
DEPTH = 60  # calls inside each other
RECURSIONS = 16  # calls of a function from itself in branches on data
_COROUTINES = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def special(*functions: Any) -> Callable[[Special], Special]:
    """Register what a function object means in staged code when it is called (also from nn and transforms)."""

    def register(handler: Special) -> Special:
        for function in functions:
            SPECIAL[function] = handler
        return handler

    return register


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call anything from staged code; what cannot be staged says which call could be a fragment instead."""
    trace = current()
    known, in_library = trace.fragments, trace.in_library
    if known is None or in_library or not trace.calls:
        return _call(function, args, kwargs)
    trace.in_library = fragments.of_library(function)
    try:
        if identity(function) in known.opaque:
            return fragments.stage(function, args, kwargs, known)
        return _call(function, args, kwargs)
    except UnknownDimension as error:
        raise _with_candidate(unstaged(error), function) from error
    except Escape as escape:
        raise _with_candidate(escape, function) from None
    except Exception as error:
        if not trace.in_library:
            raise
        what = f"{type(error).__name__} while {getattr(function, '__qualname__', 'a library')} was traced: {error}"
        raise _with_candidate(Escape(what, "a library need not work on traced values"), function) from error
    finally:
        trace.in_library = in_library


def _with_candidate(escape: Escape, function: Any) -> Escape:
    """The escape with the function among its candidates, if it may be one."""
    tried = identity(function) in current().fragments.opaque
    if not (tried or escape.whole) and fragments.is_admissible(function):
        escape.candidates.append(function)
    return escape


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(function, Tracer):
        raise TypeError("'numpy.ndarray' object is not callable")
    if function.__class__ is not type(function) and not hasattr(type(function), "__fx_traced__"):
        return _call_object(function, args, kwargs)  # a proxy (wrapt's) is equal to what it does something around
    try:
        handler = SPECIAL.get(function)
    except TypeError:  # an unhashable callable
        handler = None
    if handler is not None:
        return handler(*args, **kwargs)
    if type(_owner(function)) in GENERATORS:  # the functions of np.random are methods, too
        return call(getattr(entered(function.__self__), function.__name__), args, kwargs)
    if type(function) is np.vectorize:
        from futurex.frontend.vectorized import call_vectorized

        return call_vectorized(function, args, kwargs)
    if isinstance(function, np.ufunc) or _is_numpy(function):
        return _call_numpy(function, args, kwargs)
    if hasattr(type(function), "__fx_stage__"):
        return function.__fx_stage__(args, kwargs)
    if type(function) is types.FunctionType:
        return _call_user(function, args, kwargs)
    if type(function) is types.MethodType:
        if isinstance(function.__self__, Tracer):
            return function(*args, **kwargs)
        return call(function.__func__, (function.__self__, *args), kwargs)
    if type(function) is Method:
        return call(function.__func__, (function.__self__, *args), kwargs)
    if is_partial(function):
        return _call_partial(function, args, kwargs)
    if isinstance(function, type):
        return construct(function, args, kwargs)
    return _call_other(function, args, kwargs)


def _call_partial(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from futurex.frontend.hooks import Runtime

    held = [getattr(function, name) for name in ("func", "args", "keywords")]
    if not current().is_own(function):  # what it holds may change, as what an object holds
        held = [Runtime.getattr_(function, name) for name in ("func", "args", "keywords")]
    return call(held[0], (*held[1], *args), {**held[2], **kwargs})


def _is_numpy(function: Any) -> bool:
    bound = isinstance(_owner(function), np.ufunc | np.ndarray)
    return bound or (_module(function) == "numpy" and not isinstance(function, type))


def _owner(function: Any) -> Any:
    """What a method is bound to; None for objects whose class says how they are called, and which may forward this."""
    says = getattr(type(function), "__call__", None)  # noqa: B004
    return None if type(says) is types.FunctionType else getattr(function, "__self__", None)


def _module(function: Any) -> str:
    return _home(function).split(".")[0]


def _home(function: Any) -> str:
    """The module of a function, or of the class of what ``functools.update_wrapper(..., np.floor)`` made one: that says
    that it is NumPy's, but is not."""
    kind = type(function)
    if kind is types.FunctionType:
        return function.__globals__.get("__name__") or ""
    copied = not isinstance(function, type) and "__module__" in getattr(function, "__dict__", ())
    if copied and not kind.__module__.startswith("numpy"):
        return kind.__module__
    return getattr(function, "__module__", None) or ""


def _call_numpy(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = _owner(function)
    refuse_special(args, kwargs)
    if any(isinstance(value, Masked) for value in (*args, *kwargs.values())):
        return call_masked(function, args, kwargs)
    if isinstance(owner, np.ndarray):  # a method of an array from outside
        return call(getattr(entered(owner), function.__name__), args, kwargs)
    if isinstance(owner, np.ufunc):
        return call_ufunc(owner, function.__name__, args, kwargs)
    if isinstance(function, np.ufunc):
        out = {"out": args[function.nin :]} if len(args) > function.nin else {}
        if not out and not kwargs and all(type(arg) in SCALARS or isinstance(arg, np.generic) for arg in args):
            return function(*args)  # NumPy and Python scalars: the value is known now
        current().deadline.lift()
        return call_ufunc(function, "__call__", args[: function.nin], {**kwargs, **out})
    if isinstance(owner, np.generic):
        return wrapped(function(*args, **kwargs))
    current().deadline.lift()
    function = IMPLEMENTATIONS.get(function, function)
    name = getattr(function, "__name__", repr(function))
    if getattr(function, "__module__", "").startswith("numpy.random") or not isinstance(owner, types.ModuleType | None):
        raise Escape(f"a call of {name}", "it reads or changes a state of its own", "use fx.random with a key")
    traced = any_traced(args) or any_traced(kwargs.values())
    if not traced and function in _PURE_NUMPY and function not in HANDLERS:
        return wrapped(function(*args, **kwargs))
    inside = current().walking and type(function) is types.FunctionType
    ways = [call_numpy] if function in HANDLERS else []
    ways += [_walk] if inside or is_walked(function) else []
    ways += [call_native] if traced and function in NATIVE else []
    if not ways:
        raise Escape(f"numpy.{name}", "this function has no translation yet")
    return _first_that_works(ways, function, args, kwargs)


def _walk(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Trace NumPy's own source; what it makes belongs to the user's line."""
    with at(here()):
        return _call_user(source_of(function), args, kwargs)


def _first_that_works(ways: Sequence[Callable[..., Any]], *call_: Any) -> Any:
    """A translation of a NumPy function, else its source, else NumPy's own code as one node; the first refusal tells.

    Where an exception is NumPy's own, the last way raises it again.
    """
    way, *others = ways
    if not others:
        return way(*call_)
    try:
        with current().tentative():
            return way(*call_)
    except (Exception, Escape) as reason:
        try:
            return _first_that_works(others, *call_)
        except Escape:
            raise reason from None


def _call_user(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function: staged in turn."""
    if name := special_name(function):
        return call_special(name, function, args, kwargs)
    if name := linalg_name(function):
        return call_linalg(name, function, args, kwargs)
    if hasattr(function, "dispatch") and hasattr(function, "registry"):
        from futurex.frontend.library_calls import dispatched_call

        return dispatched_call(function, args, kwargs)
    if is_known(function):
        entry = args[-1:] if args and puts_an_entry(function, args[0]) else ()  # the list asks what it is
        args = (*map(entered_whole, args[: len(args) - len(entry)]), *entry)
        kwargs = {name: entered_whole(arg) for name, arg in kwargs.items()}
        return made_of(function(*args, **kwargs), (args, kwargs))  # futurex's own code is written on traced values
    if fills_a_tuple(function, args):
        held = [list(items(arg)) if isinstance(arg, np.ndarray | Tracer) else arg for arg in args]
        return current().remember(function(*held, **kwargs))  # they put values into a tuple, and look at none
    if function.__code__.co_flags & _COROUTINES:
        raise Escape(f"a call of {function.__qualname__}", "coroutines are not staged")
    if is_rewritten(function):
        if function.__code__.co_flags & inspect.CO_GENERATOR:
            with called_from(here()):
                return current().made(function(*args, **kwargs))
        return _counted(function, function, args, kwargs)
    in_numpy = _module(function) == "numpy"
    if not in_numpy:
        guard_function(function)
    return call_rewritten(function, args, kwargs, in_numpy)


def call_rewritten(
    function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], in_numpy: bool = False
) -> Any:
    """A call of a function of which the source can be had."""
    twin = staged_twin(function)
    if function.__code__.co_flags & inspect.CO_GENERATOR:
        return current().made(twin(*args, **kwargs))

    def body(*args: Any, **kwargs: Any) -> Any:
        return control.body(lambda: twin(*args, **kwargs))

    return _counted(function, body, args, kwargs, in_numpy)


def _counted(
    function: types.FunctionType, twin: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    in_numpy: bool = False,
) -> Any:  # fmt: skip
    """A call inside others; of a function that is known to call itself until data says so, the whole recursion."""

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with in_call(function, in_numpy):
            return twin(*args, **kwargs)

    if function.__code__ in current().recursive:
        return recursion.stage(function, args, kwargs, run)
    return run(args, kwargs)


@contextlib.contextmanager
def in_call(function: types.FunctionType, in_numpy: bool = False) -> Iterator[None]:
    """Count calls inside each other; refuse recursions that nobody knows the end of."""
    trace = current()
    trace.step()
    place = function.__code__, len(trace.scopes)
    known = place[0] in trace.recursive
    if not known and any(code is place[0] and scopes < place[1] for code, scopes in trace.calls):
        trace.recursions += 1
    if len(trace.calls) > DEPTH or trace.recursions > RECURSIONS:
        if not known and any(code is place[0] for code, _ in trace.calls):
            trace.recursive.add(place[0])
            raise Retrace
        raise Escape(
            f"a recursion of {function.__qualname__}", f"it is deeper than {DEPTH} calls, or its end depends on data"
        )
    trace.calls.append(place)
    source = here() if trace.calls[1:] else None  # the call of the whole function is in the traceback anyway
    before, trace.walking = trace.walking, in_numpy
    try:
        with called_from(source):
            yield
    finally:
        trace.calls.pop()
        trace.walking = before


def staged_twin(function: types.FunctionType) -> Callable[..., Any]:
    """The rewritten function. Raises Escape where its source cannot be had."""
    from futurex.frontend.hooks import Runtime

    try:
        return rewrite(function, Runtime(function))
    except NoSource as error:
        raise Escape(f"a call of {function.__qualname__}", str(error), WITH_SOURCE) from None


def _call_other(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from futurex.frontend.library_calls import cached_call

    owner = _owner(function)
    name = getattr(function, "__name__", "")
    if isinstance(owner, list | dict | set | frozenset | collections.deque):
        return _container_method(function, owner, name, args, kwargs)
    if isinstance(owner, str | bytes | tuple | int | float | complex) or (
        isinstance(owner, type) and name == "fromkeys"
    ):
        return _plainly(function, args, kwargs)
    if isinstance(function, functools._lru_cache_wrapper):
        return cached_call(function, args, kwargs)
    builtin = isinstance(function, types.BuiltinFunctionType | type) and function in _PURE_BUILTINS
    if builtin or _home(function) in _PURE_MODULES:
        return _library_call(function, name, args, kwargs)
    if isinstance(owner, BaseException) or _is_base_init(function):
        return function(*args, **kwargs)
    if isinstance(owner, types.GeneratorType):
        own_container(owner, "the position of a generator")
        with python():
            return function(*args, **kwargs)
    return _call_object(function, args, kwargs)


def _call_object(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    method = of_class(type(function), "__call__")
    written = type(method) is types.FunctionType or hasattr(type(method), "__fx_stage__")
    if written and not isinstance(function, types.BuiltinFunctionType):
        return call(method, (function, *args), kwargs)
    raise Escape(
        f"a call of {getattr(function, '__qualname__', repr(function))}", "what it does is not known to the tracer",
        "write it with NumPy's functions, or make the call outside and pass on what it returns",
    )  # fmt: skip


def _is_base_init(function: Any) -> bool:
    """``super().__init__`` of a class that derives from ``object`` alone."""
    wrapped = isinstance(function, types.MethodWrapperType) and function.__name__ == "__init__"
    return wrapped and function.__objclass__ is object


def _container_method(function: Any, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(owner, dict | set | frozenset) and args and keyed.is_open(args[0]):
        if type(owner) is dict and name == "get" and not kwargs:
            return keyed.get(owner, *args)
        keyed.refuse(owner)
    if name in MUTATORS:
        own_container(owner, f"a {type(owner).__name__} with {name}()")
    if type(owner) is list and name in LOOKED_AT and any_traced(args[: LOOKED_AT[name]]):
        note_asked(owner)  # a place that depends on data
    if name in _COMPARING and (kwargs or any_traced([owner]) or any_traced(args)):
        if type(owner) is list and kwargs.get("key") is None:
            note_asked(owner)  # an array has these
        raise Escape(f"{name}() of a list that holds arrays, or with a key", "plain Python needs the values here")
    if isinstance(owner, list | collections.deque):
        refuse_special(*([owner, args] if name in _COMPARING else args[: LOOKED_AT.get(name, 0)]))
    elif name != "update" or not isinstance(args[0] if args else None, dict):  # whose keys were hashed before
        refuse_special(*args[:1])
    if name in _EXTENDING and len(args) == 1 and gives_items(args[0]):
        extended(owner, args[0], _EXTENDING[name])
        return None
    with python():
        result = function(*args, **kwargs)
    made = name == "copy" and isinstance(result, list | dict | set | collections.deque)
    return current().remember(result) if made else taken(result)


def _plainly(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of a text or number: Python needs values."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, str) and function.__name__ == "format":
        return format_method(owner, args, kwargs)
    if isinstance(owner, str) and function.__name__ == "join" and args and type(args[0]) is dict:
        args = (list(args[0]), *args[1:])  # of what the keys lead to nothing is asked
    refuse_special(args, kwargs)
    if isinstance(owner, str) and function.__name__ == "join" and len(args) == 1 and not isinstance(args[0], Tracer):
        with python():
            return join_method(owner, *args, **kwargs)
    if any_traced(args) or any_traced(kwargs.values()):
        raise Escape(f"{function.__qualname__} of a traced value", "plain Python needs the value here")
    with python():
        result = function(*args, **kwargs)
    return current().remember(result) if isinstance(result, list | dict) else result


def _library_call(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = _home(function)
    traced = any_traced(args) or any_traced(kwargs.values())
    if module in ("math", "cmath") and traced:
        raise Escape(f"{module}.{name} of a traced value", "this function is not traced")
    if module in ("operator", "_operator"):
        return _operator_call(function, name, args, kwargs)
    if function is next:
        own_container(args[0], f"the position of a {type(args[0]).__name__}")
    if function in (divmod, pow, format, repr, ascii) and traced:
        raise Escape(f"{name}() of a traced value", "plain Python needs the value here")
    if function not in (callable, issubclass):
        looks = function not in (iter, next)  # these call methods of what they are given, not of what that holds
        refuse_special(*(arg for arg in (*args, *kwargs.values()) if looks or not isinstance(arg, list | tuple | dict)))
    with python():
        return current().remember(function(*map(staged_callback, args), **kwargs))


def _operator_call(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from futurex.frontend.hooks import Runtime
    from futurex.frontend.library_calls import operator_call

    if name == "call":
        return call(args[0], args[1:], kwargs)
    if kwargs:
        return function(*args, **kwargs)  # Python's own TypeError: none of the others takes any
    if name == "getitem":
        return Runtime.getitem(*args)
    if name in ("is_", "is_not"):
        return Runtime.compare(name, *args)
    if name == "index":
        refuse_special(*args)
        return operator.index(*args)
    if isinstance(function, operator.attrgetter | operator.itemgetter | operator.methodcaller):
        return operator_call(function, args)
    if len(args) == 1 and name in ("neg", "pos", "invert", "inv"):
        return Runtime.unary(name.replace("inv", "invert") if name == "inv" else name, *args)
    if name in ("not_", "truth") and len(args) == 1:
        return control.not_(*args) if name == "not_" else control.truth_of(*args)
    if name == "contains":
        return Runtime.compare("in_", args[1], args[0])
    if len(args) == 2 and not name.startswith("i") and name not in ("setitem", "delitem", "contains"):
        return Runtime.binary(name, *args)
    raise Escape(f"operator.{name}", "this use of it is not traced")


def staged_callback(value: Any) -> Any:
    """A function given to a library function is staged when that calls it."""
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return lambda *args, **kwargs: call(value, tuple(map(entered, args)), kwargs)
    return value


SPECIAL[itertools.chain] = lambda *columns: current().remember(itertools.chain(*map(items, columns)))
