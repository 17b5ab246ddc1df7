"""What Python's builtins mean in staged code."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from futurex.frontend import control, folds
from futurex.frontend.calls import SPECIAL, Special, call, special
from futurex.frontend.control import TracedRange, is_unknown
from futurex.frontend.control.rows import Rows
from futurex.frontend.errors import Escape, python
from futurex.frontend.fragments import stage_warning
from futurex.frontend.hooks import Runtime
from futurex.frontend.iteration import column, is_long
from futurex.frontend.lists import TracedList, is_filled
from futurex.frontend.masked import Masked
from futurex.frontend.numbers import number_of
from futurex.frontend.outside import (
    PLAIN,
    any_traced,
    captured_value,
    is_internal_class,
    is_users,
    items,
    of_class,
    refuse_special,
    special_method,
)
from futurex.frontend.tables import TracedRow
from futurex.frontend.texts import TracedText, formatted
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, as_number, fresh, node_of
from futurex.ops.control import Failure


def _scalar(kind: str, builtin: Any) -> Special:
    def convert(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Tracer):
            node = args[0]._node
            if node.size != 1 or (node.ndim and builtin is not bool):
                raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
            if node.op == "const":
                return builtin(node.value)
            if node.dtype.kind == "c" and kind in "fi":
                raise Escape(f"{builtin.__name__}() of a complex value", "it raises or warns")
            return number_of(emit("reshape", node, shape=()) if node.ndim else node, kind)
        if builtin is complex and len(args) == 2 and not kwargs and any_traced(args) and all(map(_is_real, args)):
            return fresh(emit("python_complex", *map(node_of, args)))
        if any_traced(args):
            raise Escape(f"{builtin.__name__}() with options on traced values", "plain Python needs the value here")
        Runtime.known(args[0] if args else None)
        refuse_special(*args if builtin is not bool else ())
        with python():
            return builtin(*args, **kwargs)

    return convert


def _is_real(value: Any) -> bool:
    """Is it one real number?"""
    if isinstance(value, Tracer):
        return value.is_scalar and value.dtype.kind in "biuf"
    return type(value) in (bool, int, float) or isinstance(value, np.bool_ | np.integer | np.floating)


for _kind, _builtin in {"f": float, "i": int, "b": bool, "c": complex}.items():
    SPECIAL[_builtin] = _scalar(_kind, _builtin)


@special(range)
def _range(*args: Any) -> Any:
    refuse_special(args)
    if not any(is_unknown(arg) for arg in args):
        return range(*(operator.index(arg) for arg in args))
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    for bound in (start, stop, step):
        if isinstance(bound, Tracer) and bound.dtype.kind not in "iu":
            raise TypeError(f"'{bound.dtype}' object cannot be interpreted as an integer")
        if isinstance(bound, Tracer) and bound.ndim:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
    start, stop = (  # a range counts in Python's ints, whatever it is given
        number_of(node_of(bound), "i") if is_unknown(bound) else operator.index(bound) for bound in (start, stop)
    )
    if is_unknown(step):
        step = number_of(node_of(step), "i")
        control.assert_not(Runtime.binary("eq", step, 0), ValueError("range() arg 3 must not be zero"))
        up = Runtime.known(Runtime.binary("gt", step, 0))
        return TracedRange(start, stop, step, up)
    if operator.index(step) == 0:
        raise ValueError("range() arg 3 must not be zero")
    return TracedRange(start, stop, operator.index(step), operator.index(step) > 0)


@special(len)
def _len(value: Any) -> Any:
    if isinstance(value, Tracer) and value.ndim:
        return as_number(value.shape[0])
    method = of_class(type(value), "__len__")
    if type(method) is types.FunctionType and method is not Tracer.__len__:
        return _length(call(method, (value,), {}))
    with contextlib.nullcontext() if is_internal_class(value) else python():
        return len(value)


class _Long:
    """``len`` says of it what Python makes of the answer of a ``__len__``."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __len__(self) -> int:
        return self.answer


def _length(answer: Any) -> Any:
    """A Python int, also where a class of the user's counts in NumPy's integers."""
    if not isinstance(answer, Tracer):
        with python():
            return len(_Long(answer))
    if answer.ndim or not (answer.dtype.kind in "iu" or (answer.dtype.kind == "b" and answer.aval.weak)):
        raise Escape("a __len__ that returns no integer", "Python refuses it")
    number = call(int, (answer,), {})
    failure = Failure(ValueError, ("__len__() should return >= 0",))
    current().effect("check", emit("greater_equal", node_of(number), 0), failure=failure)
    return number


@special(abs)
def _abs(value: Any) -> Any:
    method = of_class(type(value), "__abs__") if is_users(type(value)) else None
    if type(method) is types.FunctionType:
        return call(method, (value,), {})
    refuse_special(value)
    return abs(value)


@special(isinstance)
def _isinstance(value: Any, kinds: Any) -> bool:
    stand_in = _stand_in(value)
    answer = isinstance(stand_in, kinds)
    _asked_of_classes(isinstance, value if stand_in is value else type(stand_in), stand_in, kinds)
    if isinstance(value, Tracer) and value._loose and answer != isinstance(_stand_in(value).item(), kinds):
        _refuse_loose("isinstance()")
    return answer


@special(issubclass)
def _issubclass(kind: Any, kinds: Any) -> bool:
    answer = issubclass(kind, kinds)
    _asked_of_classes(issubclass, kind, kind, kinds)
    return answer


def _asked_of_classes(ask: Callable[[Any, Any], bool], what: Any, value: Any, kinds: Any) -> None:
    """What a class of the user's answers by itself, as abstract ones do, where others are registered at any time, may
    be another thing at the next call. Of what the function made nothing is asked again."""
    for kind in kinds if isinstance(kinds, tuple) else typing.get_args(kinds) or (kinds,):
        if isinstance(kind, tuple):
            _asked_of_classes(ask, what, value, kind)
            continue
        made_by: Any = type(kind)
        if is_users(kind) and made_by.__instancecheck__ is not type.__instancecheck__ and not current().is_own(value):
            read, name = functools.partial(ask, value, kind), f"{ask.__name__}(..., {kind.__qualname__})"
            captured_value(name, read(), read, (ask, id(what), id(kind)))


def _refuse_loose(what: str) -> NoReturn:
    current().tell()
    raise Escape(f"{what} of a value that is a Python number in some branch", "NumPy's is of another type")


def _stand_in(value: Any) -> Any:
    """A value of the type that a traced one stands for; any other itself."""
    if isinstance(value, TracedList):
        return value.site.made()
    if isinstance(value, TracedRow):
        return []
    if isinstance(value, Masked):
        return np.ma.zeros((0,) * value.ndim, value.dtype)
    if not isinstance(value, Tracer):
        _refuse_kind(value)
        return value
    if not value.is_scalar:
        return np.empty((0,) * value.ndim, value.dtype)
    return value.dtype.type(0).item() if value.aval.weak else value.dtype.type(0)


_HERE = __name__.rpartition(".")[0]  # of the modules that make what stands for Python's and NumPy's iterators


def _refuse_kind(value: Any) -> None:
    """What stands for an object of another type without saying so: `zip`, `map`, a flat iterator."""
    silent = type(value).__module__.startswith(_HERE) and value.__class__ is type(value)
    if isinstance(value, types.GeneratorType):
        silent = value.gi_frame is None or str(value.gi_frame.f_globals.get("__name__")).startswith(_HERE)
    if silent and current().is_own(value):
        raise Escape("the type of an iterator or the like", "the tracer has another one")


@special(type)
def _type(*args: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Tracer | TracedList | TracedRow | Masked):
        if isinstance(args[0], Tracer) and args[0]._loose:
            _refuse_loose("type()")
        return type(_stand_in(args[0]))
    if len(args) != 1:
        raise Escape("a class made by type()", "it would be made once instead of at every run")
    _refuse_kind(args[0])
    return args[0].__class__ if type(args[0]).__module__.startswith(_HERE) else type(args[0])


@special(warnings.warn)
def _warn(*args: Any, **kwargs: Any) -> None:
    if not current().walking:  # NumPy's own warnings are not given, like those of its loops
        stage_warning(args, kwargs)


@special(sum)
def _sum(values: Any, start: Any = 0) -> Any:
    if is_long(values):
        if is_filled(values):  # with the first entry the sum has the type that it has in the end
            length, entry = column(values)
            start = Runtime.binary("add", start, entry(0))
            values = current().remember(Rows(length - 1, lambda i: entry(i + 1)))
        return folds.Total(start).over(values)
    entries = list(items(values))
    if not any_traced(entries) and not any_traced([start]) and not special_method([start, *entries]):
        return sum(entries, start)
    if sys.version_info >= (3, 12) and _is_compensated([start, *entries]):
        raise Escape("sum() of traced Python floats", "Python compensates its rounding", "use np.sum")
    if special_method([start, *entries]):
        return functools.reduce(lambda total, entry: Runtime.binary("add", total, entry), entries, start)
    known = 0 if any_traced([start]) else next(k for k, entry in enumerate(entries) if any_traced([entry]))
    total = sum(entries[:known], start) if known else start
    return functools.reduce(lambda total, entry: Runtime.binary("add", total, entry), entries[known:], total)


def _is_compensated(entries: list[Any]) -> bool:
    """Are there Python floats among the entries, and traced Python numbers that Python would add to them?"""
    weak = [entry for entry in entries if isinstance(entry, Tracer) and entry.aval.weak]
    return bool(weak) and (any(e.dtype.kind in "fc" for e in weak) or any(type(entry) is float for entry in entries))


@special(divmod)
def _divmod(left: Any, right: Any) -> Any:
    refuse_special(left, right)
    return divmod(left, right)


@special(pow)
def _pow(base: Any, exponent: Any, modulus: Any = None) -> Any:
    if modulus is None:
        return Runtime.binary("pow", base, exponent)
    if any_traced([base, exponent, modulus]):
        raise Escape("pow() with a modulus of traced values", "plain Python needs the values here")
    return pow(base, exponent, modulus)


@special(print)
def _print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    if file is not None:
        raise Escape("print() to a file", "the file may be closed at the next run")
    if not (isinstance(sep, str | None) and isinstance(end, str | None)):
        raise Escape("print() with such a separator or end", "it has a value in it, or Python refuses it")
    nodes: list[Any] = []
    parts: list[Any] = []
    for value in values:
        if isinstance(value, Tracer):
            nodes.append(node_of(value))
            parts.append(None)
            continue
        text = formatted(value, "s")
        if isinstance(text, TracedText):
            nodes += text.nodes
        elif not isinstance(value, (*PLAIN, np.generic, list, tuple, dict, set, frozenset, np.dtype)):
            raise Escape(f"print() of a {type(value).__name__}", "its text may depend on what the tracer cannot see")
        parts.append(text.text if isinstance(text, TracedText) else text)
    current().effect(
        "print", *nodes, parts=tuple(parts), sep=" " if sep is None else sep, end="\n" if end is None else end
    )


def _text_of(conversion: str, builtin: Any) -> Special:
    def convert(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and (isinstance(args[0], Tracer | TracedText) or not any_traced(args)):
            return formatted(args[0], conversion)
        if any_traced(args) or any_traced(kwargs.values()):
            raise Escape(f"{builtin.__name__}() of traced values", "plain Python needs the values here")
        return builtin(*args, **kwargs)

    return convert


SPECIAL[str], SPECIAL[repr], SPECIAL[ascii] = _text_of("s", str), _text_of("r", repr), _text_of("a", ascii)
SPECIAL[format] = lambda value, spec="": formatted(value, "", spec)
