"""Lists that a loop only adds to: what its rounds append are the rows of an array.

``outs = []``, a ``for`` in each of whose rounds ``outs.append(h)`` stands, and ``np.stack(outs)`` behind it are how
recurrent networks and trajectories are written. Where nobody can look at the list before the loop is over, a round may
put its entry anywhere: the list has them when the loop is done, as many as there were rounds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from futurex.frontend.rewrite.syntax import LATE, LOOKS, YIELDS, contains, exits


def find(function: ast.FunctionDef) -> None:
    """Mark each ``for`` of a function with the lists that its rounds only append to: :func:`collected`."""
    names = set(_names(function.body))
    if contains(function.body, YIELDS) or names & LOOKS:
        return
    shared = {
        name for node in ast.walk(function) if node is not function
        for name in (node.names if isinstance(node, ast.Global | ast.Nonlocal) else [])
    }  # fmt: skip
    late = {name for node in ast.walk(function) if isinstance(node, LATE) and node is not function
            for name in _names([node])}  # fmt: skip
    _mark(function.body, shared | late)


def collected(loop: ast.For | ast.While) -> tuple[str, ...]:
    """The names of such lists, in the order in which they are first appended to."""
    found: tuple[str, ...] = vars(loop).get("_fx_collected", ())
    return found


def appended(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """The name of the list and the entry, where a statement does nothing but append."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords or len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return None
    method = call.func
    if isinstance(method, ast.Attribute) and method.attr == "append" and isinstance(method.value, ast.Name):
        return method.value.id, call.args[0]
    return None


def _mark(statements: Sequence[ast.stmt], others: set[str]) -> None:
    """Look at the loops of a block, and of those inside of it that no exception ends halfway."""
    for k, statement in enumerate(statements):
        if isinstance(statement, ast.For) and not statement.orelse and not exits(statement.body):
            puts = [found[0] for each in statement.body if (found := appended(each))]
            mentioned = list(_names([statement]))
            kept = [
                name for name in dict.fromkeys(puts)
                if name not in others and mentioned.count(name) == puts.count(name)
                and _begins(statements[:k], name)
            ]  # fmt: skip
            vars(statement)["_fx_collected"] = tuple(kept)
        if isinstance(statement, ast.For | ast.While | ast.If):
            _mark(statement.body, others)
            _mark(statement.orelse, others)


def _begins(before: Sequence[ast.stmt], name: str) -> bool:
    """Is the list a new one in this block, to which nothing but appending was done since?"""
    for statement in reversed(before):
        if name not in _names([statement]):
            continue
        found = appended(statement)
        if found is not None and found[0] == name and name not in _names([found[1]]):
            continue
        return _is_new(statement, name)
    return False


def _is_new(statement: ast.stmt, name: str) -> bool:
    """Does an assignment bind the name to a list that is written out, alone or beside others?"""
    if isinstance(statement, ast.AnnAssign):
        return _is_list(statement.target, statement.value, name)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)) or len(target.elts) != len(value.elts):
        return _is_list(target, value, name)
    if not all(isinstance(each, ast.Name) for each in target.elts) or list(_names([statement])).count(name) != 1:
        return False
    return any(_is_list(each, entry, name) for each, entry in zip(target.elts, value.elts, strict=True))


def _is_list(target: ast.expr, value: ast.expr | None, name: str) -> bool:
    return (
        isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.List)
        and not any(isinstance(each, ast.Starred) for each in value.elts) and name not in _names([value])
    )  # fmt: skip


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                yield each.id
