"""The staged twin of a function."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any

from futurex.frontend.rewrite.source import FunctionNode, NoSource, find
from futurex.frontend.rewrite.statements import Rewriter
from futurex.frontend.rewrite.syntax import FX, arguments


def rewrite(function: types.FunctionType, runtime: Any) -> types.FunctionType:
    """The staged twin of a function: same globals, closure cells and defaults, rewritten body. Raises NoSource."""
    code = _rewritten_code(function.__code__, function.__code__.co_freevars, find(function))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[FX] = types.CellType(runtime)
    twin = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, tuple(cells[name] for name in code.co_freevars)
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_code_cache: dict[types.CodeType, types.CodeType] = {}


def _rewritten_code(code: types.CodeType, freevars: Sequence[str], node: FunctionNode) -> types.CodeType:
    if code in _code_cache:
        return _code_cache[code]
    body: list[ast.stmt]
    outside = frozenset(freevars)
    if isinstance(node, ast.Lambda):
        inner = ast.FunctionDef(
            name="lambda_", args=_plain_arguments(node.args), decorator_list=[], returns=None, type_comment=None,
            body=[ast.copy_location(ast.Return(node.body), node.body)], type_params=[],
        )  # fmt: skip
        ast.copy_location(inner, node)
        name = "lambda_"
    elif isinstance(node, ast.FunctionDef):
        inner = ast.FunctionDef(
            name=node.name, args=_plain_arguments(node.args), decorator_list=[], returns=None, type_comment=None,
            body=node.body, type_params=[],
        )  # fmt: skip
        ast.copy_location(inner, node)
        name = node.name
    else:
        raise NoSource("async functions are not staged")
    rewritten = Rewriter(inner, outside).run()
    maker = ast.FunctionDef(
        name="make", args=arguments([FX, *freevars]), body=[rewritten, ast.Return(ast.Name(name, ast.Load()))],
        decorator_list=[], returns=None, type_comment=None, type_params=[],
    )  # fmt: skip
    body = [ast.copy_location(maker, inner)]
    module = ast.fix_missing_locations(ast.Module(body, []))
    scope = compile(module, code.co_filename, "exec")
    make = next(const for const in scope.co_consts if isinstance(const, types.CodeType))
    result = next(const for const in make.co_consts if isinstance(const, types.CodeType) and const.co_name == name)
    _code_cache[code] = result.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    _remember(_code_cache[code])
    return _code_cache[code]


_rewritten: set[types.CodeType] = set()


def _remember(code: types.CodeType) -> None:
    _rewritten.add(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _remember(inner)


def is_rewritten(function: types.FunctionType) -> bool:
    """True for functions that rewritten code made: they are staged already."""
    return function.__code__ in _rewritten


def _plain_arguments(arguments: ast.arguments) -> ast.arguments:
    """The same parameters without annotations; defaults are placeholders, the twin gets the original's values."""

    def bare(arg: ast.arg | None) -> ast.arg | None:
        return ast.copy_location(ast.arg(arg.arg), arg) if arg is not None else None

    def bare_all(args: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(arg.arg), arg) for arg in args]

    none: Any = [ast.Constant(None) for _ in arguments.defaults]
    kw_none: Any = [None if default is None else ast.Constant(None) for default in arguments.kw_defaults]
    return ast.arguments(
        bare_all(arguments.posonlyargs), bare_all(arguments.args), bare(arguments.vararg), bare_all(arguments.kwonlyargs),
        kw_none, bare(arguments.kwarg), none,
    )  # fmt: skip
