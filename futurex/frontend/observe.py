"""Calls that are made as plain Python while what opaque functions return is looked at.

The twin of a function differs from it in one thing: its calls go through an :class:`Observer`. The first call of a
function with an opaque call in it runs so; the next ones are traced, with that call as a fragment. The same twin goes
on where a run had to stop: calls that the run made already are answered from its log instead of made again.
"""

from __future__ import annotations

import ast
import functools
import itertools
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.fragments import Fragments, kinds_of, of_library
from futurex.frontend.ownership import call_and_look
from futurex.frontend.rewrite.function import is_rewritten, rewrite
from futurex.frontend.rewrite.source import NoSource
from futurex.frontend.rewrite.syntax import FX, fx
from futurex.frontend.standing import is_partial
from futurex.ops.opaque import NUMBERS, Made, identity, is_short, outcome_of
from futurex.ops.warned import called_from, looks_back, warn_here
from futurex.tree.pytree import flatten, opened
from futurex.tree.source import is_known

# They look at the frame that calls them, some of them at all names in it.
_OF_THE_FRAME = frozenset({"super", "locals", "globals", "vars", "dir", "eval", "exec"})
_OF_ITS_NAMES = frozenset({"locals", "vars", "dir"})
_THE_FRAME_ITSELF = frozenset({"_getframe", "currentframe"})


class Calls(ast.NodeTransformer):
    """Rewrites the calls of a function and nothing else."""

    def __init__(self, function: ast.FunctionDef, outside: frozenset[str]) -> None:
        self.function = function

    def run(self) -> ast.FunctionDef:
        self.function.body = [self.visit(statement) for statement in self.function.body]
        return self.function

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _OF_THE_FRAME:
            named = node.func.id in _OF_ITS_NAMES and not (node.args or node.keywords)
            return ast.fix_missing_locations(ast.copy_location(fx("own", node), node)) if named else node
        if isinstance(node.func, ast.Attribute) and node.func.attr in _THE_FRAME_ITSELF:
            return node
        call = fx("call", node.func, *node.args, keywords=node.keywords)
        if any(keyword.arg is None for keyword in node.keywords):  # Python's error about what ``**`` gives names it
            call = ast.Call(fx("named", node.func), node.args, node.keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))


_LOOKS, _CALLS = 1000, 30_000
"""Calls that one call looks at, and those that it makes in all meanwhile: what comes later is like what was seen, or a
run finds out that it is not. Looking takes up to a hundred times as long as a call."""


class Observer:
    """``__fx__`` of the twins: makes calls, writes down what opaque ones give, answers from a log first."""

    def __init__(self, fragments: Fragments, log: list[Made]) -> None:
        self._fragments = fragments
        self._log = list(itertools.takewhile(lambda made: made.apart, log))
        self._inside: list[Any] = []
        self._left = _CALLS
        self._numbers: dict[Any, type] = {}  # of which type is what functions give that are given numbers of such types

    def twin(self, function: Any) -> Any:
        """The function with observed calls; itself where it has no source of the user's."""
        if function is warnings.warn:
            return warn_here
        if is_partial(function):
            return functools.partial(self.twin(_unwrapped(function.func)), *function.args, **function.keywords)
        if _of_library(function) and looks_back(function):
            return called_from((), function)
        if type(function) is types.MethodType and type(function.__func__) is types.FunctionType:
            return types.MethodType(self.twin(function.__func__), function.__self__)
        if type(function) is not types.FunctionType or of_library(function):
            return function
        if is_known(function) or is_rewritten(function, Calls):
            return function
        try:
            return rewrite(function, self, Calls)
        except NoSource:
            return function

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Any call of observed code."""
        self._left -= 1
        if self._left < 0 and not self._log:
            return self._unseen(function)(*args, **kwargs)
        name = identity(function)
        if name in self._fragments.watched and name not in self._inside:  # a recursion is part of its first call
            self._inside.append(name)
            try:
                return self._observed(function, args, kwargs)
            finally:
                self._inside.pop()
        return self.twin(_unwrapped(function))(*args, **kwargs)

    def _unseen(self, function: Any) -> Any:
        """What makes a call of which nobody wants to know anything: the user's own function, if it can be had."""
        if type(function) is types.BuiltinFunctionType and function is not warnings.warn:
            return function
        function = _unwrapped(function)
        made = function.__func__ if type(function) is types.MethodType else function
        return function if type(made) is types.FunctionType and not of_library(made) else self.twin(function)

    def named(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What makes observed calls of a function, under its name."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(function, *args, **kwargs)

        call.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        call.__module__ = getattr(function, "__module__", None) or "builtins"
        return call

    @staticmethod
    def own(names: Any) -> Any:
        """The names of a frame without the twin's."""
        if isinstance(names, dict):
            names.pop(FX, None)
        elif isinstance(names, list) and FX in names:
            names.remove(FX)
        return names

    def _observed(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of a function that is watched. One more of numbers that gives a number has nothing new to tell."""
        twin = self.twin(_unwrapped(function))
        make: Callable[[], Any] = functools.partial(twin, *args, **kwargs)
        given = identity(function), tuple(map(type, args))
        if given in self._numbers and not (self._log or kwargs) and all(map(is_short, args)):
            box = [make()]
            if type(box[0]) is self._numbers[given] and is_short(box[0]):
                return box[0]
            make = box.pop
        self._left -= _CALLS // _LOOKS
        leaves, structure = flatten((args, kwargs))
        key = identity(function), structure, kinds_of(leaves)
        before = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        made = None
        if self._log and identity(self._log[0].function) == identity(function):
            made = self._log.pop(0)
        looked = call_and_look(make if made is None else lambda: _replayed(made, leaves))
        result, are_arrays = looked.result, [isinstance(leaf, np.ndarray) for leaf in looked.leaves]
        held = made is None and (looked.alone != are_arrays or any(opened(leaf) is not None for leaf in looked.leaves))
        outcome = None if held else outcome_of(result, (args, kwargs), before, leaves)
        arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
        shared = any(np.may_share_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k])
        now, same = flatten((args, kwargs))
        unchanged = same == structure and all(a is b for a, b in zip(now, leaves, strict=True))
        if not unchanged or (outcome is not None and shared and outcome.written):
            outcome = None
        if function is not warnings.warn:  # which returns nothing, whatever the text
            self._fragments.learn(key, outcome)
            if outcome is not None and type(result) in NUMBERS and NUMBERS.issuperset(given[1]):
                self._numbers[given] = type(result)
        return result


def _of_library(function: Any) -> bool:
    return of_library(function.__func__ if type(function) is types.MethodType else function)


def _unwrapped(function: Any) -> Any:
    """The plain function of a futurized one. A derivative has nothing plain: it is called as it is."""
    plain = getattr(function, "plain", None) if hasattr(type(function), "__fx_stage__") else None
    return function if plain is None or hasattr(type(plain), "__fx_stage__") else plain


def _replayed(made: Made, leaves: list[Any]) -> Any:
    """What a call gave that was made already; its arguments become what it left of them."""
    for leaf, value in zip(leaves, made.after, strict=True):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            np.copyto(leaf, value)
    if made.error is not None:
        raise made.error
    return made.result
