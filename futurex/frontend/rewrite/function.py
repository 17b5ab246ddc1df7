"""The staged twin of a function."""

from __future__ import annotations
import __future__

import ast
import copy
import inspect
import types
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from futurex.frontend.rewrite.source import FunctionNode, find
from futurex.frontend.rewrite.statements import Rewriter
from futurex.frontend.rewrite.syntax import FX, OWN, arguments, definition


def rewrite(function: types.FunctionType, runtime: Any, rewriter: Any = Rewriter) -> types.FunctionType:
    """The staged twin of a function: same globals, closure cells and defaults, rewritten body. Raises NoSource."""
    code = _rewritten_code(function, rewriter)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[FX] = types.CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    twin = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_CODES = 2048
"""Twins that are kept: cells of a notebook, and functions that are made in text, are others whenever they are run."""
_code_cache: OrderedDict[tuple[str, types.CodeType, Any], types.CodeType] = OrderedDict()
# by files, too: equal code may stand in several


def _rewritten_code(function: types.FunctionType, rewriter: Any) -> types.CodeType:
    code = function.__code__
    key = code.co_filename, code, rewriter
    twin = _code_cache.get(key)
    if twin is None:  # only then is its source looked for: whole files are parsed for it
        twin = _compiled(code, code.co_freevars, copy.deepcopy(find(function)), rewriter)
        _remember(twin, _rewritten.setdefault(rewriter, weakref.WeakValueDictionary()))
        _code_cache[key] = twin
        if len(_code_cache) > _CODES:
            _code_cache.popitem(last=False)
    return twin


def _compiled(code: types.CodeType, freevars: Sequence[str], node: FunctionNode, rewriter: Any) -> types.CodeType:
    body: Any = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    name = f"{OWN}function"  # a function that calls itself means the global or closure variable
    inner = ast.copy_location(definition(name, _plain_arguments(node.args), body), node)
    rewritten = rewriter(inner, frozenset(freevars)).run()
    maker = definition("make", arguments([FX, *freevars]), [rewritten, ast.Return(ast.Name(name, ast.Load()))])
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(maker, inner)], []))
    flags = code.co_flags & __future__.annotations.compiler_flag  # of functions inside: texts, not looked up
    scope = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    make = next(const for const in scope.co_consts if isinstance(const, types.CodeType))
    result = next(const for const in make.co_consts if isinstance(const, types.CodeType) and const.co_name == name)
    return _renamed(result, code.co_name, code.co_qualname)


def _renamed(code: types.CodeType, name: str, qualname: str) -> types.CodeType:
    """Branches and loop bodies are functions of the rewriter; tracebacks name the function that they stand in, and
    functions and classes inside have the names that they have in the function itself."""
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    consts = []
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            if const.co_name.startswith(OWN):
                const = _renamed(const, name, qualname)
            else:
                place = f"{qualname}.<locals>" if is_function else qualname
                const = _renamed(const, const.co_name, f"{place}.{const.co_name}")
        elif not is_function and const == code.co_qualname:  # what the body of a class says that the class is called
            const = qualname
        consts.append(const)
    return code.replace(co_name=name, co_qualname=qualname, co_consts=tuple(consts))


_Codes = weakref.WeakValueDictionary[int, types.CodeType]
_rewritten: dict[Any, _Codes] = {}  # by rewriter


def _remember(code: types.CodeType, known: _Codes) -> None:
    known[id(code)] = code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _remember(inner, known)


def is_rewritten(function: types.FunctionType, rewriter: Any = Rewriter) -> bool:
    """True for functions that rewritten code made: they are staged already, or looked on."""
    known = _rewritten.get(rewriter)
    return known is not None and known.get(id(function.__code__)) is function.__code__


def _plain_arguments(arguments: ast.arguments) -> ast.arguments:
    """The same parameters without annotations; defaults are placeholders, the twin gets the original's values."""

    def bare(arg: ast.arg | None) -> ast.arg | None:
        return ast.copy_location(ast.arg(arg.arg), arg) if arg is not None else None

    def bare_all(args: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(arg.arg), arg) for arg in args]

    none: Any = [ast.Constant(None) for _ in arguments.defaults]
    kw_none: Any = [None if default is None else ast.Constant(None) for default in arguments.kw_defaults]
    return ast.arguments(
        bare_all(arguments.posonlyargs),
        bare_all(arguments.args),
        bare(arguments.vararg),
        bare_all(arguments.kwonlyargs),
        kw_none,
        bare(arguments.kwarg),
        none,
    )
