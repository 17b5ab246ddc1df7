"""Lists that a loop only adds to: what its rounds append are the rows of an array.

``outs = []``, a ``for`` in each of whose rounds ``outs.append(h)`` stands, and ``np.stack(outs)`` behind it are how
recurrent networks and trajectories are written. Where nobody can look at the list before the loop is over, a round may
put its entry anywhere: the list has them when the loop is done, as many as there were rounds. Rounds themselves may ask
for an entry (``traj.append(traj[-1] + dt * f(traj[-1]))``) and for the length: they ask what stands for the list.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from futurex.frontend.rewrite.syntax import LATE, LOOKS, YIELDS, Ready, contains, exits, place_missing, stored

IN_SOME = -2
"""How often a round appends to a list of which that depends on the round."""
_Bodies = ast.For | ast.While | ast.If | ast.With | ast.Try


@dataclass(frozen=True)
class _Place:
    """Where a block stands: behind statements, and in one that is in another block; none for a function's own."""

    before: Sequence[ast.stmt]
    inside: ast.stmt | None = None
    outer: _Place | None = None


def find(function: ast.FunctionDef) -> None:
    """Mark each ``for`` of a function with the lists that its rounds only append to: :func:`collected`. Where some
    rounds may not, none of them asks for entries."""
    names = set(_names(function.body))
    if contains(function.body, YIELDS) or names & LOOKS:
        return
    shared = {
        name for node in ast.walk(function) if node is not function
        for name in (node.names if isinstance(node, ast.Global | ast.Nonlocal) else [])
    }  # fmt: skip
    late = {name for node in ast.walk(function) if isinstance(node, LATE) and node is not function
            for name in _names([node])}  # fmt: skip
    _mark(function.body, shared | late, None)


def collected(loop: ast.For | ast.While) -> tuple[str, ...]:
    """The names of such lists, in the order in which they are first appended to."""
    found: tuple[str, ...] = vars(loop).get("_fx_collected", ())
    return found


def in_some_rounds(loop: ast.For | ast.While) -> frozenset[str]:
    """Those of them to which some rounds may not append."""
    found: frozenset[str] = vars(loop).get("_fx_in_some", frozenset())
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


def looked_at(nodes: Iterable[ast.AST], name: str) -> list[ast.Name]:
    """Where a list is asked for entries or for its length, and nothing else can become of it."""
    found = []
    for node in (each for given in nodes for each in ast.walk(given)):
        seen: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            seen = [node.value]
        elif _calls(node, ("len",)) and len(node.args) == 1:
            seen = node.args
        elif isinstance(node, ast.For):
            seen = node.iter.args if _calls(node.iter, ("enumerate", "reversed", "zip")) else [node.iter]
        found += [each for each in seen if isinstance(each, ast.Name) and each.id == name]
    return found


def _calls(node: ast.AST, names: tuple[str, ...]) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def stands_for(loop: ast.For | ast.While, name: str) -> ast.expr:
    """What is in the place of a list of a loop: its name, or what stands for it in rounds of a loop around."""
    found: dict[str, ast.expr] = vars(loop).get("_fx_standing", {})
    return copy.deepcopy(found[name]) if name in found else ast.Name(name, ast.Load())


class Standing(ast.NodeTransformer):
    """Names of lists become what stands for them: ``instead``. An inner loop that appends has its own stand-ins."""

    def __init__(self, instead: dict[str, ast.expr]) -> None:
        self.instead = instead

    def visit_For(self, node: ast.For) -> ast.AST:
        own = {name: each for name, each in self.instead.items() if name in collected(node)}
        vars(node)["_fx_standing"] = own
        node.iter = self.visit(node.iter)
        inner = Standing({name: each for name, each in self.instead.items() if name not in own})
        node.body = [inner.visit(each) for each in node.body]
        node.orelse = [inner.visit(each) for each in node.orelse]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.instead:
            return node
        found = ast.copy_location(Ready(copy.deepcopy(self.instead[node.id])), node)
        place_missing(found, node.lineno, node.col_offset)
        return found


def _mark(statements: Sequence[ast.stmt], others: set[str], outer: tuple[_Place, ast.stmt] | None) -> None:
    """Look at the loops of a block, and of those inside of it."""
    for k, statement in enumerate(statements):
        place = _Place(statements[:k]) if outer is None else _Place(statements[:k], outer[1], outer[0])
        if isinstance(statement, _Bodies):
            for block in _blocks(statement):
                _mark(block, others, (place, statement))
        if isinstance(statement, ast.For) and not statement.orelse:
            every = list(_puts(statement.body))
            puts, in_some = [name for name, _ in every], {name for name, surely in every if not surely}
            if exits(statement.body):
                in_some.update(puts)
            mentioned = list(_names([statement]))
            asked = {name: len(looked_at([statement.iter, *statement.body], name)) for name in puts}
            kept = [
                name for name in dict.fromkeys(puts)
                if name not in others and name not in stored([statement]) and not (asked[name] and name in in_some)
                and mentioned.count(name) == puts.count(name) + asked[name] and _begins(place, name)
            ]  # fmt: skip
            vars(statement)["_fx_collected"] = tuple(kept)
            vars(statement)["_fx_in_some"] = frozenset(in_some)


def _puts(body: Sequence[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """The lists that rounds append to, themselves or in loops inside of them: once for each place, and whether every
    round does so."""
    for statement in body:
        found = appended(statement)
        if found is not None:
            yield found[0], True
        elif isinstance(statement, ast.For):
            some = in_some_rounds(statement)
            yield from ((name, name not in some) for name, _ in _puts(statement.body) if name in collected(statement))
        elif isinstance(statement, ast.If):
            yield from ((name, False) for name, _ in _puts([*statement.body, *statement.orelse]))


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body


def _begins(place: _Place, name: str) -> bool:
    """Is the list a new one of the function's, to which nothing but appending was done since?"""
    for statement in reversed(place.before):
        if not _mentions(statement, name):
            continue
        if not _is_new(statement, name):
            if _is_kept(statement, name):
                continue
            return False
        return True
    around = place.inside
    if around is None or place.outer is None or not _is_kept(around, name):
        return False
    return _begins(place.outer, name)


def _mentions(statement: ast.stmt, name: str) -> bool:
    return name in _names([statement]) or name in stored([statement])


def _is_kept(statement: ast.stmt, name: str) -> bool:
    """Does a statement do nothing with a list but append to it and look at it?"""
    puts = [
        node.func.value for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        and isinstance(node.func.value, ast.Name) and node.func.value.id == name
    ]  # fmt: skip
    mentioned = list(_names([statement])).count(name)
    return mentioned == len(puts) + len(looked_at([statement], name)) and name not in stored([statement])


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
