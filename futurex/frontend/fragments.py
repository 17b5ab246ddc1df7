"""Fragments: calls that cannot be staged and stay in the tree as calls.

A call becomes a fragment if what it does is confined to its arguments and to objects that arrays of the trace cannot be
reached from, and if what it returns has been seen: see :mod:`futurex.frontend.observe`.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import re
import sysconfig
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import f_strides, is_contiguous
from futurex.frontend.raised import failure_of
from futurex.frontend.rewrite import is_rewritten
from futurex.frontend.texts import TracedText
from futurex.frontend.trace import current
from futurex.frontend.tracer import SCALARS, Tracer, entered, fresh, new_array
from futurex.ops.opaque import Call, Hole, Leaf, Outcome, Told, identity, outcome_of
from futurex.ops.warned import Line, lines, looks_back
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, flatten, unflatten
from futurex.tree.source import here, is_known

Key = tuple[Any, Structure, tuple[Any, ...]]
_SHIPPED = tuple(filter(None, {"<frozen", *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}))
_BUILTINS = frozenset((round, divmod, pow, int, float, complex, bool, print, abs, hash))
_PLAIN = (*SCALARS, str, bytes, type(None), type(Ellipsis), slice, range, np.dtype, type, types.ModuleType)
_FILTERS: tuple[Any, ...] = (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)  # the process's
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_DEPTH = 6  # how far functions are followed through what they refer to
_NOTHING: Outcome = outcome_of(None, ((), {}), (), ())  # type: ignore[assignment]  # what a warning gives back
_MOST = 64  # functions; a callable that every trace makes anew would be another one each time


@dataclass
class Fragments:
    """What is known of the opaque calls of one futurized function.

    ``opaque``: functions whose calls are fragments; ``watched``: those, and functions that call them and could be
    fragments in their place; ``seen``: what calls of these returned, None for what a tree cannot hold.
    """

    opaque: dict[Any, Escape] = field(default_factory=dict)
    watched: set[Any] = field(default_factory=set)
    seen: dict[Key, Outcome | None] = field(default_factory=dict)
    keepalive: list[Any] = field(default_factory=list)
    lessons: int = 0  # how often something new was seen

    def admit(self, escape: Escape) -> bool:
        """Make fragments of the calls that an escape came from. False if that is not possible, or was tried."""
        self.watched.update(map(identity, escape.candidates))
        self.keepalive += escape.candidates
        if not escape.candidates or identity(escape.candidates[0]) in self.opaque or len(self.opaque) >= _MOST:
            return False
        self.opaque[identity(escape.candidates[0])] = escape
        return True

    def learn(self, key: Key, outcome: Outcome | None) -> None:
        """A call was seen; one that gives now this and now that is no fragment."""
        before = self.seen.get(key, outcome)
        after = None if before is None else before.joined(outcome)
        if key not in self.seen or self.seen[key] != after:
            self.seen[key] = after
            self.lessons += 1

    def refuse(self, function: Any, since: int) -> None:
        """A call gave something else in a run than was seen, and since so many lessons looking on has shown nothing
        new: it goes by how its arguments lie, as a function does that gives back those in C order and copies others.
        It is no fragment."""
        if self.lessons == since:
            self.seen.update((key, None) for key in self.seen if key[0] == identity(function))
            self.lessons += 1


def kinds_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """What of the arguments of a call decides what it returns, as far as that can be told from outside."""
    return tuple(map(_kind, leaves))


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, Tracer) or hasattr(type(leaf), "__fx_future__"):
        if leaf.aval.weak:
            return "number", leaf.dtype.kind
        is_scalar = leaf.is_scalar if isinstance(leaf, Tracer) else not leaf.ndim
        return ("scalar", leaf.dtype) if is_scalar else ("array", leaf.dtype, leaf.ndim)
    if isinstance(leaf, np.ndarray):
        return "array", leaf.dtype, leaf.ndim
    if isinstance(leaf, np.generic):
        return "scalar", leaf.dtype
    if type(leaf) in SCALARS:
        return "number", np.asarray(leaf).dtype.kind
    plain = isinstance(leaf, str | bytes | np.dtype | type(None))
    return "static", type(leaf), leaf if plain else id(leaf)


# -- which calls -------------------------------------------------------------------------------------------------------


def is_admissible(function: Any) -> bool:
    """May calls of the function be fragments?

    Code of libraries and compiled code sees the arrays of a trace through its arguments alone; the user's functions
    do if nothing that they refer to leads to an array or to state.
    """
    if type(function) is types.FunctionType:
        if function in _FILTERS:
            return False
        made_here = is_rewritten(function) or is_known(function)
        return not made_here and not function.__code__.co_flags & _GENERATOR and _confined(function, 0)
    if type(function) is types.MethodType:
        owner = function.__self__
        if isinstance(owner, Tracer | type) or current().is_own(owner):
            return False
        return type(function.__func__) is types.FunctionType and of_library(function.__func__)
    if isinstance(function, functools.partial):  # a futurized function at an object is one: what it calls is asked
        return False
    if hasattr(type(function), "__fx_traced__"):
        return False
    if function.__class__ is not type(function):  # a proxy (wrapt's): what it does around its function is not known
        return False
    if isinstance(function, type):
        return function in _BUILTINS
    if isinstance(function, types.BuiltinFunctionType):
        owner = function.__self__
        if owner is builtins:
            return function in _BUILTINS
        return isinstance(owner, types.ModuleType) or owner is None
    if isinstance(function, np.ufunc):
        return True
    if type(getattr(function, "__wrapped__", None)) is types.FunctionType:
        return _confined(function.__wrapped__, 0)
    method = inspect.getattr_static(type(function), "__call__", None)
    compiled = type(method) is not types.FunctionType and callable(function)
    return (compiled or of_library(method)) and not current().is_own(function)


def of_library(function: Any) -> bool:
    """Is it Python code of a library?"""
    return type(function) is types.FunctionType and function.__code__.co_filename.startswith(_SHIPPED)


def _confined(function: types.FunctionType, depth: int) -> bool:
    """Does a function refer to nothing but functions, modules and constants?"""
    if of_library(function):
        return all(_is_confined(value, depth) for value in _held(function) if type(value) is types.FunctionType)
    if depth > _DEPTH or _writes_outside(function.__code__):
        return False
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell is not None and _is_full(cell)]
    names = _names(function.__code__)
    scope = function.__globals__
    referred = [scope[name] for name in names if name in scope]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return all(_is_confined(value, depth) for value in (*cells, *referred, *defaults) if value is not function)


def _held(function: types.FunctionType) -> Iterator[Any]:
    """What a function holds in its closure, dicts taken apart: the wrappers of decorators hold what they wrap there."""
    for cell in function.__closure__ or ():
        if _is_full(cell):
            value = cell.cell_contents
            yield from value.values() if isinstance(value, dict | types.MappingProxyType) else (value,)


def _writes_outside(code: types.CodeType) -> bool:
    """Does code assign to variables or attributes that others can see?"""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    own = any(
        step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")
        or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)
        for step in dis.get_instructions(code)
    )
    return own or any(map(_writes_outside, inner))


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: types.CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _is_confined(value: Any, depth: int) -> bool:
    if type(value) is types.FunctionType:
        return is_known(value) or _confined(value, depth + 1)
    if isinstance(value, tuple):
        return all(_is_confined(entry, depth) for entry in value)
    compiled = isinstance(value, types.BuiltinFunctionType | np.ufunc) or type(value).__name__ in (
        "_FuncPtr", "CDLL", "_ArrayFunctionDispatcher",
    )  # fmt: skip
    return compiled or isinstance(value, (*_PLAIN, np.generic))


# -- making them -------------------------------------------------------------------------------------------------------


def stage(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], fragments: Fragments) -> Any:
    """The call as a fragment. Raises the escape that it was made for where it cannot be one."""
    reason = fragments.opaque[identity(function)]
    leaves, structure = _entered(args, kwargs, reason)
    if function is warnings.warn:
        return _staged(function, leaves, structure, _NOTHING, reason)
    if not all(isinstance(leaf, Tracer) or _is_confined(leaf, 0) for leaf in leaves):
        raise _again(reason)
    key = identity(function), structure, kinds_of(leaves)
    if key not in fragments.seen:
        escape = _again(reason)
        escape.unseen = True
        escape.candidates.append(function)
        raise escape
    outcome = fragments.seen[key]
    if outcome is None or not _separate(leaves, outcome):
        raise _again(reason)
    return _staged(function, leaves, structure, outcome, reason)


def stage_warning(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``warnings.warn`` as a fragment. What it returns need not be seen before: most warnings are rare.

    Where there can be no fragments, under derivatives and on clusters, it is an effect as a print is.
    """
    reason = Escape("a warning", "it would be given once, while tracing, not at every run")
    trace = current()
    if trace.in_library:
        raise reason
    if trace.ignored and _is_ignored(trace.ignored, reason, *args, **kwargs):
        return
    leaves, structure = _entered(args, kwargs, reason)
    if trace.fragments is None:
        _warns(reason, *args, **kwargs)
        return
    trace.fragments.watched.add(identity(warnings.warn))  # what goes on behind a run does not warn again
    _staged(warnings.warn, leaves, structure, _NOTHING, reason)


def _is_ignored(
    filters: Sequence[Any], reason: Escape, message: Any, category: Any = None, *others: Any, **more: Any
) -> bool:
    """Is it a warning that filters ignore?"""
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    texts = [text for text, ignored in filters if isinstance(kind, type) and issubclass(kind, ignored)]
    if any(texts) and isinstance(message, TracedText):
        raise reason
    return any(re.match(text, str(message), re.IGNORECASE) for text in texts)


def _warns(
    reason: Escape, message: Any, category: Any = None, stacklevel: Any = 1, source: Any = None, **others: Any
) -> None:
    if not isinstance(message, Warning):
        kind = UserWarning if category is None else category
        if not (isinstance(message, str | TracedText) and isinstance(kind, type) and issubclass(kind, Warning)):
            raise reason
        message = kind(message)
    if others or source is not None or type(stacklevel) is not int:
        raise reason
    warning, nodes = failure_of(message)
    current().effect("warning", *nodes, warning=warning, stacklevel=stacklevel, within=_lines())


def _entered(args: tuple[Any, ...], kwargs: dict[str, Any], reason: Escape) -> tuple[list[Any], Structure]:
    trace = current()
    leaves, structure = flatten((args, kwargs))
    leaves = [entered(leaf) for leaf in leaves]
    if trace.protected or trace.protects_linear or any(isinstance(leaf, Tracer) and leaf._loose for leaf in leaves):
        raise _again(reason)
    return leaves, structure


def _staged(function: Any, leaves: list[Any], structure: Structure, outcome: Outcome, reason: Escape) -> Any:
    trace = current()
    nodes: list[Node] = []
    places: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            order = _order(leaf)
            if order is None:
                raise _again(reason)
            places.append(Hole(len(nodes), order, not leaf.is_scalar))
            nodes.append(leaf._node)
        elif isinstance(leaf, TracedText):
            places.append(Told(len(nodes), leaf.text))
            nodes += leaf.nodes
        elif _is_confined(leaf, 0):
            places.append(leaf)
        else:
            raise _again(reason)
    within = _lines() if function is warnings.warn or looks_back(function) else ()
    call = Call(function, structure, tuple(places), outcome, within, trace.ignored or ())
    parts = iter(trace.fragment(nodes, call))
    results = [None if leaf is None else _result(next(parts), leaf) for leaf in outcome.leaves]
    for k in outcome.written:
        leaves[k]._write(next(parts))
    where = here()
    line = f"{where.place()}: {where.text()}" if where is not None else "a line that is not known"
    trace.notes.append(f"fragment: {call.name}, called at {line}\n      {reason.what}: {reason.why}")
    result = unflatten(outcome.structure, results)
    return trace.remember_all(result)


def _lines() -> tuple[Line, ...]:
    """The user's lines inside the function that is being traced."""
    from futurex.frontend.variants import trace_into

    return lines(trace_into.__code__)


def _order(leaf: Tracer) -> str | None:
    """How NumPy lays an argument out, which compiled code may rely on; None where that is not known, or neither."""
    if leaf.ndim < 2:
        return "C"
    strides = leaf.strides_in_memory
    if strides is None:
        return None
    if is_contiguous(leaf.aval, strides):
        return "C"
    return "F" if is_contiguous(Aval(leaf.shape[::-1], leaf.dtype), strides[::-1]) else None


def _again(reason: Escape) -> Escape:
    escape = Escape(reason.what, reason.why, reason.do)
    escape.source = reason.source
    return escape


def _separate(leaves: Sequence[Any], outcome: Outcome) -> bool:
    """Are the arrays that the call writes storage that no other argument shares?"""
    for k in outcome.written:
        if not isinstance(leaves[k], Tracer) or leaves[k].is_scalar:
            return False
        if any(isinstance(o, Tracer) and o._cell is leaves[k]._cell for j, o in enumerate(leaves) if j != k):
            return False
    return True


def _result(node: Node, leaf: Leaf) -> Tracer:
    if not leaf.is_array:
        return fresh(node)
    result = new_array(node)
    if leaf.order != "C":
        result._cell.strides = f_strides(node.aval) if leaf.order == "F" else None
    return result
