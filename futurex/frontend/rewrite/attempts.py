"""``try: x = np.linalg.solve(a, b)`` with a handler for ``LinAlgError`` as an ``if`` on whether that failed.

What a run finds cannot come back to Python's handlers; whether a factorization fails is a value, though, by which a
branch is taken. That is done where the statement that may fail is one assignment, ``return`` or expression, led by
statements that cannot; what follows it is tried in its turn.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from futurex.frontend.rewrite.syntax import SCOPES, Attempt, again, contains, load, place_missing

_FACTORIZATIONS = frozenset(("cholesky", "cho_factor", "inv", "solve"))
_NUMPY = frozenset(("np", "numpy"))
_HARMLESS = frozenset(("len", "float", "int", "abs", "min", "max"))
_METHODS = frozenset(("copy", "astype", "reshape", "ravel", "transpose", "conj", "sum", "mean", "trace", "diagonal"))


def attempts_as_ifs(statements: Sequence[ast.stmt], fresh: Callable[[str], str]) -> list[ast.stmt]:
    """The statements of a function, those of its loops and branches included, without such ``try`` statements."""
    out: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, SCOPES):
            out.append(node)
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                setattr(node, name, attempts_as_ifs(inner, fresh))
        for handler in node.handlers if isinstance(node, ast.Try) else ():
            handler.body = attempts_as_ifs(handler.body, fresh)
        out += (_as_if(node, fresh) if isinstance(node, ast.Try) else None) or [node]
    return out


def _as_if(node: ast.Try, fresh: Callable[[str], str]) -> list[ast.stmt] | None:
    if len(node.handlers) != 1 or node.finalbody or not _handles(node.handlers[0]):
        return None
    place = next((k for k, each in enumerate(node.body) if not _is_harmless(each)), None)
    if place is None:
        return None
    tried, rest = node.body[place], node.body[place + 1 :]
    value = getattr(tried, "value", None)
    if not isinstance(tried, ast.Assign | ast.Return | ast.Expr) or value is None or not _factorizes(value):
        return None
    handler = node.handlers[0]
    assert handler.type is not None
    found, failed = fresh("found"), fresh("failed")
    targets = ast.Tuple([ast.Name(found, ast.Store()), ast.Name(failed, ast.Store())], ast.Store())
    then: list[ast.stmt] = []
    if isinstance(tried, ast.Assign):
        then.append(ast.copy_location(ast.Assign(tried.targets, load(found)), tried))
    elif isinstance(tried, ast.Return):
        then.append(ast.copy_location(ast.Return(load(found)), tried))
    if contains(rest, (ast.Call,)):
        inner = ast.Try(rest, [ast.ExceptHandler(handler.type, None, again(handler.body))], node.orelse, [])
        then += attempts_as_ifs([ast.copy_location(inner, rest[0])], fresh)
    else:
        then += [*rest, *node.orelse]
    made = [
        *node.body[:place],
        ast.copy_location(ast.Assign([targets], Attempt(value, handler.type)), tried),
        ast.copy_location(ast.If(load(failed), handler.body, then or [ast.Pass()]), node),
    ]
    for each in made:
        place_missing(each, node.lineno, node.col_offset)
    return made


def _handles(handler: ast.ExceptHandler) -> bool:
    """Is it one of LinAlgError that looks at no exception?"""
    if handler.name or not isinstance(handler.type, ast.Attribute | ast.Name):
        return False
    name = handler.type.attr if isinstance(handler.type, ast.Attribute) else handler.type.id
    raises = [each for node in handler.body for each in ast.walk(node) if isinstance(each, ast.Raise)]
    return name == "LinAlgError" and all(each.exc is not None for each in raises)


def _is_harmless(node: ast.stmt) -> bool:
    """Does it call nothing but functions of NumPy itself, none of its parts?"""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Pass):
        return False
    return all(_is_numpys(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))


def _is_numpys(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _HARMLESS
    return isinstance(function, ast.Attribute) and (
        getattr(function.value, "id", "") in _NUMPY or function.attr in _METHODS
    )


def _factorizes(value: ast.expr) -> bool:
    """Does it call a factorization by its name, nothing else that may leave traces, and bind no names?"""
    if contains([value], (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)):
        return False
    calls = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)]
    named = [each for each in calls if getattr(each, "attr", getattr(each, "id", "")) in _FACTORIZATIONS]
    return bool(named) and all(each in named or _is_numpys(each) for each in calls)
