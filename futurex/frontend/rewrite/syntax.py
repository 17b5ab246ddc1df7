"""Questions about syntax trees, and short ways to build them."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterable, Sequence
from typing import Any

FX = "__fx__"
OWN = "__fx_"  # what the rewriter names begins with it
OPAQUE = (ast.With, ast.Try, ast.TryStar, ast.AsyncWith, ast.AsyncFor)
YIELDS = (ast.Yield, ast.YieldFrom)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LATE = (*SCOPES, ast.GeneratorExp)  # what may read a name later than where it stands
LOOKS = frozenset(("locals", "vars", "eval", "exec", "dir", "globals"))  # who may read any name


def arguments(names: Iterable[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def stored(nodes: Sequence[ast.AST]) -> list[str]:
    """Names that statements bind in their own scope, in order of appearance."""
    names: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names[node.id] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = None
            return
        elif isinstance(node, ast.Lambda):
            return
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    names[inner.target.id] = None
            return
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names[node.name] = None
        elif isinstance(node, ast.alias):
            names[(node.asname or node.name).split(".")[0]] = None
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            names[node.name] = None
        for child in children(node):
            visit(child)

    for node in nodes:
        visit(node)
    return list(names)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, but for contexts; ``ast.iter_child_nodes`` takes three times as long."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
    return found


def contains(nodes: Sequence[ast.AST], kinds: tuple[type, ...], *, into_loops: bool = True) -> bool:
    """Does any statement hold a node of these kinds in this function (not in nested functions)?

    Without ``into_loops``, what belongs to an inner loop does not count; its ``else`` belongs to what it stands in.
    """
    passed = SCOPES if any(issubclass(kind, ast.expr) for kind in kinds) else (*SCOPES, ast.expr)
    for node in nodes:
        if isinstance(node, kinds):
            return True
        if isinstance(node, passed):
            continue
        inside = node.orelse if not into_loops and isinstance(node, ast.For | ast.While) else children(node)
        if contains(inside, kinds, into_loops=into_loops):
            return True
    return False


def computes(node: ast.ClassDef) -> bool:
    """Does it read names or call anything to make a class, methods of Python's own kinds aside?"""
    made: list[ast.AST] = [*node.decorator_list, *node.keywords]
    methods: set[str] = set()
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            made += [each for each in statement.decorator_list if not _makes_a_method(each, methods)]
            methods.add(statement.name)
            made += [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        elif isinstance(statement, ast.Assign | ast.Expr):
            made.append(statement.value)
        elif isinstance(statement, ast.AnnAssign):
            made += [statement.value] if statement.value else []
        elif not isinstance(statement, ast.Pass):
            return True
    return contains(made, (ast.Name, ast.Call, ast.Lambda))


def _makes_a_method(decorator: ast.expr, methods: set[str]) -> bool:
    """Is it one of Python's own, or the setter of a property among these ``methods``?"""
    if isinstance(decorator, ast.Attribute) and decorator.attr in ("getter", "setter", "deleter"):
        return isinstance(decorator.value, ast.Name) and decorator.value.id in methods
    return isinstance(decorator, ast.Name) and decorator.id in ("property", "staticmethod", "classmethod")


def exits(nodes: Sequence[ast.stmt]) -> bool:
    """Do the statements leave the loop body or function they stand in?"""
    return contains(nodes, (ast.Return,)) or contains(nodes, (ast.Break, ast.Continue), into_loops=False)


def ends(nodes: Sequence[ast.stmt]) -> bool:
    """Is the end of the statements never reached?"""
    if not nodes:
        return False
    last = nodes[-1]
    if isinstance(last, ast.Return | ast.Break | ast.Continue | ast.Raise):
        return True
    return isinstance(last, ast.If) and ends(last.body) and ends(last.orelse)


_TYPE_PARAMS: dict[str, Any] = {"type_params": []} if sys.version_info >= (3, 12) else {}


def definition(name: str, parameters: ast.arguments, body: Sequence[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(
        name=name, args=parameters, body=list(body) or [ast.Pass()], decorator_list=[], returns=None, type_comment=None,
        **_TYPE_PARAMS,
    )  # fmt: skip


def names_of(parameters: ast.arguments) -> list[str]:
    """The names that parameters bind."""
    several = [parameters.vararg, parameters.kwarg]
    single = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    return [arg.arg for arg in (*single, *several) if arg is not None]


def declared(nodes: Sequence[ast.AST], kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    """Names that ``global`` or ``nonlocal`` statements of this function declare."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, kind):
            names.update(node.names)
        elif not isinstance(node, (*SCOPES, ast.expr)):
            names |= declared(children(node), kind)
    return names


def written_further_in(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that functions inside these statements declare ``nonlocal``."""
    inner = [each for node in nodes for each in ast.walk(node) if isinstance(each, SCOPES) and hasattr(each, "body")]
    bodies = [each.body for each in inner if isinstance(each.body, list)]
    return {name for body in bodies for name in declared(body, ast.Nonlocal)}


def tested_inside(node: ast.While) -> ast.While:
    """A loop whose test binds names: the test moves into the body, where the names are the loop's own."""
    if contains(node.orelse, (ast.Break, ast.Continue), into_loops=False):  # of a loop further out
        return node
    leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [*node.orelse, ast.Break()], [])
    place_missing(ast.copy_location(leave, node.test), node.test.lineno, node.test.col_offset)
    return ast.copy_location(ast.While(ast.Constant(True), [leave, *node.body], []), node)


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def fx(method: str, *args: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    return ast.Call(ast.Attribute(load(FX), method, ast.Load()), list(args), keywords or [])


def is_name(target: ast.expr) -> bool:
    """Is an element of a target a name, or all that is left for one?"""
    return isinstance(target.value if isinstance(target, ast.Starred) else target, ast.Name)


def binds_names(target: ast.expr) -> bool:
    """Does a target bind names alone, no items and attributes?"""
    return not contains([target], (ast.Subscript, ast.Attribute))


def thunk(expression: ast.expr) -> ast.Lambda:
    return ast.Lambda(arguments([]), expression)


def assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


class _OfItsFields(ast.expr):
    """An expression made of its fields. So are its copies: Python before 3.13 makes a node of nothing first."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self._fields), vars(self)


class Ready(_OfItsFields):
    """An expression that is already rewritten."""

    _fields = ("value",)

    def __init__(self, value: ast.expr) -> None:
        super().__init__()
        self.value = value


class Attempt(_OfItsFields):
    """The value of an expression, and whether it raised an exception of a type."""

    _fields = ("value", "kind")

    def __init__(self, value: ast.expr, kind: ast.expr) -> None:
        super().__init__()
        self.value, self.kind = value, kind


def again(statements: list[ast.stmt]) -> list[ast.stmt]:
    """A copy of statements that are placed twice."""
    return copy.deepcopy(statements)


def place_missing(node: ast.AST, line: int, column: int, end: tuple[int, int] | None = None) -> None:
    """Give generated nodes the user's lines and columns; nodes that have them keep theirs."""
    if "lineno" in node._attributes:
        if not hasattr(node, "lineno"):
            node.lineno, node.col_offset = line, column  # type: ignore[attr-defined]
            node.end_lineno, node.end_col_offset = end or (line, column)  # type: ignore[attr-defined]
        if getattr(node, "end_lineno", None) is None:
            node.end_lineno = node.lineno  # type: ignore[attr-defined]
        if getattr(node, "end_col_offset", None) is None:
            node.end_col_offset = node.col_offset  # type: ignore[attr-defined]
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        last = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        end = last if last[0] == line else (line, column)  # what spans several lines is reported at its last one
    for child in children(node):
        place_missing(child, line, column, end)
