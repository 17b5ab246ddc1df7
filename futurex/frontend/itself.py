"""What a futurized function is to itself in plain calls that are plain throughout: its own plain function, at once.

A recursion on numbers makes a million calls, each of which would ask first how it is to go: that takes ten times as
long as the rest. A twin of the function asks of the name that it calls whether that still is the futurized function,
and calls itself then.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from futurex.frontend.rewrite import NoSource, rewrite
from futurex.frontend.rewrite.syntax import FX, LATE, load

_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Itself:
    """``__fx__`` of a twin."""

    __slots__ = ("futurized", "plain")

    futurized: Any
    plain: Any


def called_by_itself(futurized: Any) -> Callable[..., Any]:
    """The plain function of a futurized one, for calls that are plain throughout; a twin where it calls itself by its
    name. What runs when the call is over, as generators do, may be in other calls then."""
    function = futurized.plain
    if type(function) is not types.FunctionType or function.__code__.co_flags & _LATER:
        return function
    name = function.__code__.co_name
    if name not in (*function.__code__.co_names, *function.__code__.co_freevars):
        return function
    runtime = _Itself()
    try:
        runtime.futurized, runtime.plain = futurized, rewrite(function, runtime, _calls_of(name))
    except NoSource:
        return function
    return runtime.plain


class _Calls(ast.NodeTransformer):
    """Has a function call its twin, where it calls ``name`` and that is what it was."""

    name = ""

    def __init__(self, function: ast.FunctionDef, outside: frozenset[str]) -> None:
        self._function = function

    def run(self) -> ast.FunctionDef:
        self._function.body = [self.visit(statement) for statement in self._function.body]
        return self._function

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, LATE) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == self.name:
            futurized, plain = (ast.Attribute(load(FX), each, ast.Load()) for each in _Itself.__slots__)
            same = ast.Compare(load(self.name), [ast.Is()], [futurized])
            called = ast.copy_location(ast.IfExp(same, plain, node.func), node.func)
            node.func = ast.fix_missing_locations(called)
        return node


@functools.cache
def _calls_of(name: str) -> type[_Calls]:
    return type("_CallsOf", (_Calls,), {"name": name})
