"""What Python's builtins mean in staged code."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.calls import SPECIAL, Special, call, special
from futurex.frontend.control import TracedRange, is_unknown
from futurex.frontend.errors import Escape
from futurex.frontend.outside import any_traced
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, lift, node_of


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
