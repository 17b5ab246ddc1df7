"""Where the source of a function stands, and whether it is the source of the code that runs."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import linecache
import operator
import re
import sys
import textwrap
import types
from collections.abc import Iterator
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
        for file in (function.__code__.co_filename, _file_around(function)):
            linecache.checkcache(file)  # it may be another one by now
        return _find(function)


def _find(function: types.FunctionType) -> FunctionNode:
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines and code.co_filename.startswith("<frozen "):  # Python's own modules, which know where they stand
        lines = tuple(linecache.getlines(function.__globals__.get("__file__") or ""))
    if not lines and code.co_filename == "<string>" and function.__globals__ is vars(sys.modules["__main__"]):
        lines = _command()
    if not lines:
        same = _under_a_magic(code) or _reloaded(code, tuple(linecache.getlines(_file_around(function))))
        if same:
            return same[0]
        raise NoSource(f"no source for {function.__qualname__} ({code.co_filename})")
    try:
        same = _same(code, lines, apart=False) or _same(code, lines, apart=True)
        hook = function.__globals__.get("__loader__")
        if not same and type(hook).__module__ == _PYTESTS:
            same = _same(code, lines, apart=False, hook=hook)
        same = same or _moved(code, lines) or _reloaded(code, lines) or _under_a_magic(code)
    except SyntaxError as error:
        raise NoSource(f"{code.co_filename} does not parse: {error}") from None
    if not same:
        raise NoSource(f"{code.co_filename}:{code.co_firstlineno} is not the source of {code.co_name} as it runs")
    if len(same) > 1:
        raise NoSource(f"{len(same)} functions at {code.co_filename}:{code.co_firstlineno} match {code.co_name}")
    return same[0]


def _file_around(function: types.FunctionType) -> str:
    """The file of its module for a function that was made in text, as autoreload makes those that were added there."""
    file = function.__globals__.get("__file__") if function.__code__.co_filename == "<string>" else None
    return file if isinstance(file, str) else ""


_MAGIC = re.compile(r"^\s*%\w+(?:[ \t]+-\w+(?:[ \t]*\d+)?(?=\s))*[ \t]+(.+)$", re.MULTILINE)
_CELLS = 200


def _under_a_magic(code: types.CodeType) -> list[FunctionNode]:
    """The function in what a cell's magic was given, which IPython compiles under one name for all cells: ``%%time``,
    ``%timeit``. That it is this cell, the code tells."""
    interactive = sys.modules.get("IPython")
    shell: Any = interactive.get_ipython() if interactive is not None else None
    cells = getattr(getattr(shell, "history_manager", None), "input_hist_raw", [])
    name = code.co_name.strip("<>")
    for cell in reversed(cells[-_CELLS:]):
        if "%" not in cell or name not in cell:
            continue
        body = cell.lstrip()
        while body.startswith("%%"):
            body = body.partition("\n")[2]
        for text in (body, *_MAGIC.findall(cell)):
            if name in text:
                with contextlib.suppress(SyntaxError):
                    same = _same(code, tuple(shell.transform_cell(text).splitlines(keepends=True)), apart=False)
                    if len(same) == 1:
                        return same
    return []


def _same(code: types.CodeType, lines: tuple[str, ...], apart: bool, hook: Any = None) -> list[FunctionNode]:
    nodes = _functions(code.co_filename, lines, apart, hook).get((code.co_name, code.co_firstlineno), ())
    return [node for node, compiled in nodes if same_code(compiled, code)]


def _moved(code: types.CodeType, lines: tuple[str, ...]) -> list[FunctionNode]:
    """The function that is other code in nothing but its lines, the one nearest to them if there are several.

    Its module was edited after the import: IPython's autoreload leaves functions alone that are as they were.
    """
    same = []
    for apart in (False, True):
        for (name, line), nodes in _functions(code.co_filename, lines, apart).items():
            if name == code.co_name:
                down = line - code.co_firstlineno
                same += [(abs(down), node) for node, compiled in nodes if same_code(compiled, code, down)]
    return [node for _, node in sorted(same, key=operator.itemgetter(0))[:1]]


def _reloaded(code: types.CodeType, lines: tuple[str, ...]) -> list[FunctionNode]:
    """The function, or one inside, as autoreload makes it when it was edited or added."""
    if not any(code.co_name.strip("<>") in line for line in lines):
        return []
    nodes = _written_out(code.co_filename, lines).get(code.co_name, ())
    return [node for node, compiled in nodes if same_code(compiled, code)][:1]


@functools.lru_cache(maxsize=16)
def _written_out(filename: str, lines: tuple[str, ...]) -> dict[str, list[Compiled]]:
    """The functions of a module by name, with what autoreload compiles each of them to."""
    found: dict[str, list[Compiled]] = {}
    with contextlib.suppress(SyntaxError), silenced():
        module = ast.parse("".join(lines), filename)
        for node, text in list(_texts(module)):
            written = ast.parse(text, filename)
            codes = _inner(compile(written, filename, "exec", dont_inherit=True))
            for original, twin in zip(_function_nodes(node), _function_nodes(written), strict=True):
                for code in codes:
                    if (code.co_name, code.co_firstlineno) == _place(twin) and _stands_at(twin, code):
                        found.setdefault(code.co_name, []).append((original, code))
        _Private().visit(module)
    return found


def _texts(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Functions and classes of a module as autoreload writes them out: the syntax tree as text, whose first line is
    line 1. A method that was edited stands in a class of another name, one that was added in none."""
    for owner in ast.walk(module):
        for node in owner.body if isinstance(owner, ast.Module | ast.ClassDef) else ():
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            try:
                text = ast.unparse(node)
            except ValueError:  # quotes and backslashes in an f-string, before Python 3.12
                continue
            if isinstance(node, ast.ClassDef) or isinstance(owner, ast.Module):
                yield node, text
            elif not _PRIVATE.search(text):  # such names are other ones there
                yield node, text
                yield node, "class __autoreload_class__:\n" + textwrap.indent(text, "    ")


def _function_nodes(tree: ast.AST) -> list[FunctionNode]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]


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


_WARNED_ABOUT = re.compile(
    r"""\\[^\s\\'"abfnrtvxNuU0-7]|\bis\s+(not\s+)?[-\d'"(\[{]|(\b\d[\w.]*|['"])\s+is\s|\bassert\s*\("""
)
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
    nodes = [(node, _place(node)) for node in _function_nodes(module)]
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


def same_code(a: types.CodeType, b: types.CodeType, down: int = 0) -> bool:
    """Do two code objects do the same, wherever they came from? ``a`` stands so many lines further down."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars) != (b.co_code, b.co_names, b.co_varnames, b.co_freevars):
        return False
    if len(a.co_consts) != len(b.co_consts) or _positions(a) != _positions(b, down):
        return False
    return all(_same_const(x, y, down) for x, y in zip(a.co_consts, b.co_consts, strict=True))


def _positions(code: types.CodeType, down: int = 0) -> list[tuple[int | None, ...]]:
    def moved(line: int | None) -> int | None:
        return line and line + down

    return [(moved(first), moved(last), *columns) for first, last, *columns in code.co_positions()]


def _same_const(x: object, y: object, down: int) -> bool:
    if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
        return same_code(x, y, down)
    return type(x) is type(y) and repr(x) == repr(y)
