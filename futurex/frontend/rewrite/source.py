"""Where the source of a function stands, and whether it is the source of the code that runs."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import re
import sys
import types
from typing import Any

from futurex.silence import silenced

FunctionNode = ast.FunctionDef | ast.Lambda
_PYTESTS = "_pytest.assertion.rewrite"


class NoSource(Exception):
    """The source of a function cannot be found or does not match; it is traced without rewriting."""


def find(function: types.FunctionType) -> FunctionNode:
    """The syntax tree of a function, found by file, line and code. Raises NoSource."""
    try:
        return _find(function)
    except NoSource:
        linecache.checkcache(function.__code__.co_filename)  # the file may be another one by now
        return _find(function)


def _find(function: types.FunctionType) -> FunctionNode:
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines and code.co_filename.startswith("<frozen "):  # Python's own modules, which know where they stand
        lines = tuple(linecache.getlines(function.__globals__.get("__file__") or ""))
    if not lines and code.co_filename == "<string>" and function.__globals__ is vars(sys.modules["__main__"]):
        lines = _command()
    if not lines:
        raise NoSource(f"no source for {function.__qualname__} ({code.co_filename})")
    try:
        same = _same(code, lines, apart=False) or _same(code, lines, apart=True)
        hook = function.__globals__.get("__loader__")
        if not same and type(hook).__module__ == _PYTESTS:
            same = _same(code, lines, apart=False, hook=hook)
    except SyntaxError as error:
        raise NoSource(f"{code.co_filename} does not parse: {error}") from None
    if not same:
        raise NoSource(f"{code.co_filename}:{code.co_firstlineno} is not the source of {code.co_name} as it runs")
    if len(same) > 1:
        raise NoSource(f"{len(same)} functions at {code.co_filename}:{code.co_firstlineno} match {code.co_name}")
    return same[0]


def _same(code: types.CodeType, lines: tuple[str, ...], apart: bool, hook: Any = None) -> list[FunctionNode]:
    nodes = _functions(code.co_filename, lines, apart, hook).get((code.co_name, code.co_firstlineno), ())
    return [node for node, compiled in nodes if same_code(compiled, code)]


def _command() -> tuple[str, ...]:
    """The lines of ``python -c``; none of other ways to start Python."""
    for option, text in itertools.pairwise(sys.orig_argv):
        if option.startswith("-") and option.endswith("c"):
            return tuple(text.splitlines(keepends=True))
    return ()


Compiled = tuple[FunctionNode, types.CodeType]


@functools.lru_cache(maxsize=64)
def _functions(
    filename: str, lines: tuple[str, ...], apart: bool, hook: Any = None
) -> dict[tuple[str, int], list[Compiled]]:
    """Every function of a module by name and first line, with the code that its source compiles to.

    ``apart``: each statement is compiled by itself, as IPython does it. A call of a module's function is other code
    where Python sees that the name was imported beside it. ``hook``: the loader of pytest that has written the
    assertions of the module anew; they are staged as they stand in the source.
    """
    text = "".join(lines)
    if not _WARNED_ABOUT.search(text):
        return _of_text(text, filename, apart, hook)
    with silenced():  # which the whole process is then: not for every module
        return _of_text(text, filename, apart, hook)


_WARNED_ABOUT = re.compile(r"""\\[^\s\\'"abfnrtvxNuU0-7]|\bis\s+(not\s+)?[-\d'"(\[{]|\bassert\s*\(""")
"""What Python may warn about, and has when it compiled the module: escapes that there are not, identity with a literal,
tuples that are asserted."""


def _of_text(text: str, filename: str, apart: bool, hook: Any) -> dict[tuple[str, int], list[Compiled]]:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    module = compile(text, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    codes: dict[tuple[str, int], list[types.CodeType]] = {}
    compiled = module if hook is None else _written_anew(text, filename, hook)
    for part in [ast.Module([statement], []) for statement in module.body] if apart else [compiled]:
        for code in _inner(compile(part, filename, "exec", flags, dont_inherit=True)):
            codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    nodes = [(node, _place(node)) for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    if _PRIVATE.search(text):
        _Private().visit(module)
    found: dict[tuple[str, int], list[Compiled]] = {}
    for node, place in nodes:
        for code in codes.get(place, ()):
            if _stands_at(node, code):
                found.setdefault(place, []).append((node, code))
    return found


_PRIVATE = re.compile(r"\b__(?!\w*__\b)\w")


class _Private(ast.NodeVisitor):
    """Spells private names as the compiler does: ``self.__v`` in a class ``A`` is ``self._A__v``.

    A function is compiled outside of its class, where they would mean what they say.
    """

    def __init__(self) -> None:
        self.owner = ""  # the class around, without underscores in front

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        outer, self.owner = self.owner, node.name.lstrip("_")
        for statement in node.body:
            self.visit(statement)
        self.owner = outer
        self._spell(node)

    def generic_visit(self, node: ast.AST) -> None:
        self._spell(node)
        super().generic_visit(node)

    def _spell(self, node: ast.AST) -> None:
        if not self.owner or isinstance(node, ast.keyword):  # a keyword of a call is what it says
            return
        if isinstance(node, ast.alias):
            node.asname = self._spelled(node.asname or node.name) if node.asname or _PRIVATE.match(node.name) else None
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._spelled(name) for name in node.names]
        else:
            for field in ("id", "attr", "arg", "name", "rest"):
                if isinstance(getattr(node, field, None), str):
                    setattr(node, field, self._spelled(getattr(node, field)))

    def _spelled(self, name: str) -> str:
        return f"_{self.owner}{name}" if name.startswith("__") and not name.endswith("__") and "." not in name else name


def _written_anew(text: str, filename: str, hook: Any) -> ast.Module:
    """A module as pytest compiles it."""
    module = ast.parse(text, filename)
    sys.modules[_PYTESTS].rewrite_asserts(module, text.encode(), filename, hook.config)
    return module


def _inner(code: types.CodeType) -> list[types.CodeType]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return inner + [deeper for one in inner for deeper in _inner(one)]


def _place(node: FunctionNode) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _stands_at(node: FunctionNode, code: types.CodeType) -> bool:
    """Several lambdas may stand on one line: their code tells the columns."""
    named = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    if tuple(named) != code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return False
    if isinstance(node, ast.FunctionDef):
        return True
    body = node.body
    columns = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None]
    end = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    start = min((body.lineno, body.col_offset), (node.lineno, node.col_offset))
    return all(start <= place <= end for place in columns if place != (code.co_firstlineno, 0))


def same_code(a: types.CodeType, b: types.CodeType) -> bool:
    """Do two code objects do the same, wherever they came from?"""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars) != (b.co_code, b.co_names, b.co_varnames, b.co_freevars):
        return False
    if len(a.co_consts) != len(b.co_consts) or list(a.co_positions()) != list(b.co_positions()):
        return False
    return all(_same_const(x, y) for x, y in zip(a.co_consts, b.co_consts, strict=True))


def _same_const(x: object, y: object) -> bool:
    if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
        return same_code(x, y)
    return type(x) is type(y) and repr(x) == repr(y)
