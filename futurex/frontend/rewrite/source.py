"""Where the source of a function stands."""

from __future__ import annotations

import ast
import functools
import linecache
import types

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NoSource(Exception):
    """The source of a function cannot be found or does not match; it is traced without rewriting."""


@functools.lru_cache(maxsize=256)
def _module(filename: str, lines: tuple[str, ...]) -> ast.Module:
    return ast.parse("".join(lines), filename)


def find(function: types.FunctionType) -> FunctionNode:
    """The syntax tree of a function, found by file and line. Raises NoSource."""
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines:
        raise NoSource(f"no source for {function.__qualname__} ({code.co_filename})")
    try:
        module = _module(code.co_filename, lines)
    except SyntaxError as error:
        raise NoSource(f"{code.co_filename} does not parse: {error}") from None
    matches = [node for node in ast.walk(module) if _matches(node, code)]
    if len(matches) > 1:  # several lambdas on one line
        matches = [node for node in matches if _same_code(node, code)]
    if len(matches) != 1:
        raise NoSource(f"{len(matches)} functions at {code.co_filename}:{code.co_firstlineno} match {code.co_name}")
    return matches[0]


def _matches(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        name, line = "<lambda>", node.lineno
    elif isinstance(node, ast.FunctionDef):
        name, line = node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    else:
        return False
    if name != code.co_name or line != code.co_firstlineno:
        return False
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(names) == code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _same_code(node: FunctionNode, code: types.CodeType) -> bool:
    expression = ast.Expression(node) if isinstance(node, ast.Lambda) else None
    if expression is None:
        return True
    compiled = compile(expression, code.co_filename, "eval")
    inner = next(const for const in compiled.co_consts if isinstance(const, types.CodeType))
    positions = list(inner.co_positions()) == list(code.co_positions())
    return positions and inner.co_names == code.co_names
