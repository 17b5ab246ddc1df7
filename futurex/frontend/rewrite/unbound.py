"""Which reads of names may find them unbound: those that stand where no statement before has surely bound them.

What a branch or loop may have bound has a flag (:class:`~futurex.frontend.tracer.Tracer`), which is looked at where the
value is used. Python looks already where the name is read: to give it another name, to a call, into a tuple.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from futurex.frontend.rewrite.lifetimes import NONE, Names
from futurex.frontend.rewrite.syntax import SCOPES, children, declared, ends, names_of, stored

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def find(function: ast.FunctionDef) -> None:
    """Mark those reads in a function: :func:`may_fail`. Functions inside of it read its names later."""
    body, parameters = function.body, frozenset(names_of(function.args))
    names = frozenset(stored(body)) - declared(body, ast.Nonlocal) - declared(body, ast.Global)
    deleted = frozenset(
        node.id for node in _walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
    )
    names = (names - parameters) | (names & deleted)
    if names:
        _mark(body, NONE, names, deleted)


def may_fail(node: ast.Name) -> bool:
    """May this read find its name unbound?"""
    return "_fx_unbound" in vars(node)


def _mark(statements: Sequence[ast.stmt], bound: Names, names: Names, deleted: Names) -> None:
    for statement in statements:
        for node in _reads(_own(statement)):
            if isinstance(node.ctx, ast.Load) and node.id in names - bound:
                vars(node)["_fx_unbound"] = True
        for block, first in _blocks(statement):
            _mark(block, bound | (frozenset(stored(first)) - deleted), names, deleted)
        bound |= _bound_by([statement]) - deleted


def _bound_by(statements: Iterable[ast.stmt]) -> Names:
    """The names that statements surely bind."""
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Assign):
            found.update(stored(node.targets))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.update(stored([node.target]))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            found.update(stored([node]))
        elif isinstance(node, ast.If):
            found |= _bound_by_one_of([node.body, node.orelse])
        elif isinstance(node, ast.Try):
            ways = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
            found |= _bound_by_one_of(ways) | _bound_by(node.finalbody)
        elif isinstance(node, ast.With):
            found.update(stored([item.optional_vars for item in node.items if item.optional_vars is not None]))
    return frozenset(found)


def _bound_by_one_of(blocks: Iterable[list[ast.stmt]]) -> Names:
    """The names that each block binds of which the end is reached."""
    found = [_bound_by(block) for block in blocks if not ends(block)]
    return frozenset.intersection(*found) if found else NONE


def _blocks(statement: ast.stmt) -> Iterator[tuple[Sequence[ast.stmt], list[ast.AST]]]:
    """The blocks inside of a statement, each with what binds names at its beginning."""
    if isinstance(statement, SCOPES):
        return
    target = [statement.target] if isinstance(statement, ast.For | ast.AsyncFor) else []
    items = statement.items if isinstance(statement, ast.With | ast.AsyncWith) else []
    yield getattr(statement, "body", []), [*target, *items]
    for name in ("orelse", "finalbody"):
        yield getattr(statement, name, []), []
    for handler in getattr(statement, "handlers", []):
        yield handler.body, [ast.Name(handler.name, ast.Store())] if handler.name else []
    for case in getattr(statement, "cases", []):
        yield case.body, [case.pattern]


def _own(statement: ast.stmt) -> Iterable[ast.AST]:
    """What of a statement stands in none of its blocks."""
    for node in children(statement):
        if isinstance(node, ast.ExceptHandler):
            yield from [node.type] if node.type else []
        elif isinstance(node, ast.match_case):
            yield from [node.guard] if node.guard else []
        elif not isinstance(node, ast.stmt):
            yield node


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if not isinstance(node, SCOPES):
            yield node
            yield from _walk(children(node))


def _reads(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names in expressions; those that a comprehension binds are its own."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, _COMPREHENSIONS):
            own = set(stored([generator.target for generator in node.generators]))
            yield from (each for each in _reads(children(node)) if each.id not in own)
        elif not isinstance(node, SCOPES):
            yield from _reads(children(node))
