"""Which names are a round's own, or a branch's: it binds them before it reads them, and nobody reads them behind it.

They are variables of the loop's body alone. What a loop carries is traced until its types settle, so a counter of an
inner loop, a sum that each round begins anew or a list that each round makes would cost a tracing of the body at every
level of a nest, and a list or object of each round could not be carried at all.

What branches leave behind is merged. A view that one of them looked at (``if a: row = x[k]``) would be an array that
is the same as another one in some runs only, into which nobody may write any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from futurex.frontend.rewrite.syntax import LATE, LOOKS, YIELDS, children, contains, declared, exits, stored

Names = frozenset[str]
NONE: Names = frozenset()
_BINDERS = (ast.NamedExpr, ast.ExceptHandler, ast.alias, ast.MatchAs, ast.MatchStar, ast.MatchMapping)


@dataclass(frozen=True)
class _Flow:
    """What statements do, from the first to the end of the last: names that they may read before they bind them, and
    names that are surely bound behind them."""

    read: Names = NONE
    bound: Names = NONE

    def then(self, other: _Flow) -> _Flow:
        return _Flow(self.read | (other.read - self.bound), self.bound | other.bound)


def find(function: ast.FunctionDef) -> None:
    """Mark each ``for`` and ``while`` of a function with the names that are its rounds' own: :func:`own`."""
    body = function.body
    names = {node.id for node in _walk(body) if isinstance(node, ast.Name)}
    if contains(body, YIELDS) or names & LOOKS:
        return
    shared = declared(body, ast.Nonlocal) | declared(body, ast.Global)
    for node in _walk(body):
        if isinstance(node, LATE):
            shared |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            shared |= {each.name for each in ast.walk(node) if hasattr(each, "name") and isinstance(each.name, str)}
            shared |= {name for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names}
        elif isinstance(node, _BINDERS):
            shared |= set(stored([node]))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            shared.add(node.id)
    _mark(body, NONE, NONE, frozenset(shared))


def own(loop: ast.For | ast.While) -> Names:
    """The names that each round of a loop binds for itself."""
    found: Names = vars(loop).get("_fx_own", NONE)
    return found


def own_of(node: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> Names:
    """The names that the branches of an ``if`` bind for themselves; what follows one that leaves stands in them."""
    behind: Names | None = vars(node).get("_fx_behind")
    if behind is None:
        return NONE
    return frozenset(stored([*body, *orelse])) - behind - _flow_of(body).read - _flow_of(orelse).read


def _mark(statements: Sequence[ast.stmt], live: Names, left: Names, shared: Names) -> Names:
    """Mark the loops and branches in a block behind which ``live`` names are read, and ``left`` ones where a
    ``break``, ``continue`` or ``return`` leads; what is read before the block."""
    for statement in reversed(statements):
        if isinstance(statement, ast.If):
            vars(statement)["_fx_behind"] = shared | (left if exits([statement]) else live)
            for block in (statement.body, statement.orelse):
                _mark(block, live, left, shared)
        elif isinstance(statement, ast.For | ast.While):
            _mark_loop(statement, live, left, shared)
        flow = _flow(statement)
        live = flow.read | (live - flow.bound) | left
    return live


def _mark_loop(loop: ast.For | ast.While, live: Names, left: Names, shared: Names) -> None:
    behind = live | _flow_of(loop.orelse).read
    rounds = _round(loop)
    around = behind | rounds.read
    _mark(loop.body, around, around if exits(loop.body) else NONE, shared)
    _mark(loop.orelse, live, left, shared)
    if not contains(loop.body, (ast.Return,)):  # what is returned is looked at behind the loop
        targets = [loop.target] if isinstance(loop, ast.For) else []
        vars(loop)["_fx_own"] = frozenset(stored([*targets, *loop.body])) - around - shared
        return
    for node in _walk(loop.body):
        vars(node).pop("_fx_behind", None)


def _round(loop: ast.For | ast.While) -> _Flow:
    if isinstance(loop, ast.While):
        return _Flow(_mentioned([loop.test])).then(_flow_of(loop.body))
    return _binding(loop.target).then(_flow_of(loop.body))


def _flow_of(statements: Iterable[ast.stmt]) -> _Flow:
    found = _Flow()
    for statement in statements:
        found = found.then(_flow(statement))
    return found


def _flow(node: ast.stmt) -> _Flow:
    """Of one statement. A name that another kind of statement mentions counts as read, and as bound by none."""
    if isinstance(node, ast.Assign):
        found = _Flow(_mentioned([node.value]))
        for target in node.targets:
            found = found.then(_binding(target))
        return found
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _Flow(_mentioned([node.value])).then(_binding(node.target))
    if isinstance(node, ast.If):
        sides = [_flow_of(block) for block in (node.body, node.orelse)]
        both = _Flow(sides[0].read | sides[1].read, sides[0].bound & sides[1].bound)
        return _Flow(_mentioned([node.test])).then(both)
    if isinstance(node, ast.For | ast.While):
        before = _Flow(_mentioned([node.iter])) if isinstance(node, ast.For) else _Flow()
        inside = _Flow(_round(node).read | _flow_of(node.orelse).read)
        return before.then(inside)
    return _Flow(_mentioned([node]))


def _binding(target: ast.expr) -> _Flow:
    """An assignment to a target, from left to right."""
    if isinstance(target, ast.Name):
        return _Flow(NONE, frozenset((target.id,)))
    if isinstance(target, ast.Starred):
        return _binding(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        found = _Flow()
        for element in target.elts:
            found = found.then(_binding(element))
        return found
    return _Flow(_mentioned([target]))


def _mentioned(nodes: Iterable[ast.AST]) -> Names:
    """The names that stand in expressions, which read them, or in other statements, which may."""
    return frozenset(node.id for node in _walk(nodes) if isinstance(node, ast.Name))


def _walk(nodes: Iterable[ast.AST]) -> Iterable[ast.AST]:
    for node in nodes:
        yield node
        yield from _walk(children(node))
