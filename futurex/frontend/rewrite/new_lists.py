"""Expressions that make a new list where a statement binds or returns it, beside those that write one out:
``list(roots)``, ``path[:-1]``, ``[0.0] * n``, ``path + [here]``, ``deque([start])``.

A list that is found to grow by data is another one in the next trace, from where it was made on: so that place has to
be known, and that nobody else has the list yet.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from futurex.frontend.rewrite.syntax import fx, load

_MAKERS = ("list", "sorted", "deque")
_CHANGES = ("append", "pop", "insert", "extend", "remove", "clear", "appendleft", "popleft")
_MARK = "_fx_new_list"
_ROWS = "_fx_rows"


def find(function: ast.FunctionDef) -> None:
    """Mark them in a function."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    changed, cut, nested = set(_changed(nodes)), set(_cut(nodes)), set(_nested(nodes))
    for names, value in (pair for node in nodes for pair in _bound(node)):
        if not isinstance(value, ast.BinOp | ast.Subscript | ast.Call | ast.ListComp):
            continue
        sources = _sources(value)
        # Sums and slices may be those of arrays. One that nobody changes in place need not be an array to be another
        # one in every round.
        if sources is None:
            continue
        asked = changed.union(cut, nested) if isinstance(value, ast.ListComp) else changed
        if _is_maker(value) or asked.intersection(names):
            vars(value)[_MARK] = tuple(dict.fromkeys(sources))
    for node in nodes:
        rows = _rows(node)
        vars(node)[_ROWS] = tuple(map(_place, rows))
        for row in (*rows, *_appended(node)):
            if not isinstance(row, ast.List):
                vars(row)[_MARK] = tuple(dict.fromkeys(_sources(row) or ()))


def _bound(node: ast.AST) -> Iterator[tuple[list[str], ast.expr | None]]:
    """What a statement binds to these names, or returns."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
        return
    targets = [] if isinstance(node, ast.Return) else node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    for value in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
        yield names, value


def wrapped(node: ast.AST, made: ast.expr, visit: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """A rewritten expression, given to what asks whether it is such a list."""
    sources: tuple[str, ...] | None = vars(node).get(_MARK)
    if sources is None or not isinstance(node, ast.expr):
        return made
    read = [visit(ast.copy_location(load(name), node)) for name in sources]
    return ast.fix_missing_locations(ast.copy_location(listed(node, made, *read), node))


def listed(node: ast.expr, made: ast.expr, *sources: ast.expr) -> ast.expr:
    """The call that is told of a list, where it is made, and where the lists in it are made that nobody else has."""
    return fx("listed", made, _constant(_place(node)), _constant(vars(node).get(_ROWS, ())), *sources)


def _constant(value: Any) -> ast.expr:
    return ast.Constant(value)


def _place(node: ast.expr) -> tuple[int, int, int | None]:
    return node.lineno, node.col_offset, None if isinstance(node, ast.List) else node.end_col_offset


def _rows(node: ast.AST) -> list[ast.expr]:
    """Expressions of new lists that are all that a new list holds: the rows of a table."""
    entries = [node.elt] if isinstance(node, ast.ListComp) else node.elts if isinstance(node, ast.List) else []
    known = all(isinstance(entry, ast.List | ast.ListComp | ast.BinOp | ast.Subscript | ast.Call) for entry in entries)
    return entries if known and None not in map(_sources, entries) else []


def _changed(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of what is changed as lists are; arrays are no other ones for that they might be one."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            node = node.func
        elif not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
            continue
        if isinstance(node.value, ast.Name):
            yield node.value.id


def _cut(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of what has slices between bounds that are computed."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name):
            bounds = (node.slice.lower, node.slice.upper)
            if any(isinstance(each, ast.Name) for bound in bounds if bound is not None for each in ast.walk(bound)):
                yield node.value.id


def _appended(node: ast.AST) -> list[ast.expr]:
    """Expressions of new lists that become entries of another: ``table.append([0] * n)``."""
    method = node.func if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(method, ast.Attribute) or method.attr != "append":
        return []
    return [each for each in node.args if isinstance(each, ast.ListComp | ast.BinOp) and _sources(each) is not None]


def _nested(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of what is asked for entries of its entries: ``table[i][j]``."""
    for node in nodes:
        inner = node.value if isinstance(node, ast.Subscript) else None
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name):
            yield inner.value.id


def _sources(value: ast.expr) -> list[str] | None:
    """The names of which the result is a new list if they are lists, or numbers, or Python's own makers of lists; None
    if it may be another one's."""
    if isinstance(value, ast.List | ast.ListComp | ast.Constant):
        return []
    if isinstance(value, ast.Name):
        return [value.id]
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        return _sources(value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mult):
        sides = [_sources(side) for side in (value.left, value.right)]
        return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Name) and value.func.id in (*_MAKERS, "len"):
        return [value.func.id]
    if isinstance(value.func, ast.Attribute) and value.func.attr == "copy":
        return None if value.args or value.keywords else _sources(value.func.value)
    return ["collections"] if _is_deque(value.func) else None


def _is_maker(value: ast.expr) -> bool:
    """Is it ``list``, ``sorted`` or ``deque`` that is called?"""
    return isinstance(value, ast.Call) and (getattr(value.func, "id", "") in _MAKERS or _is_deque(value.func))


def _is_deque(function: ast.expr) -> bool:
    """Is it ``collections.deque``?"""
    owner = function.value if isinstance(function, ast.Attribute) and function.attr == "deque" else None
    return isinstance(owner, ast.Name) and owner.id == "collections"
