"""Rewriting of expressions: calls, reads of outside names, attributes, items, choices, containers."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from futurex.frontend.rewrite import new_lists
from futurex.frontend.rewrite.collecting import IN_SOME
from futurex.frontend.rewrite.syntax import (
    FX,
    OWN,
    Attempt,
    Ready,
    arguments,
    binds_names,
    contains,
    fx,
    load,
    names_of,
    place_missing,
    stored,
    thunk,
)
from futurex.frontend.rewrite.unbound import may_fail

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
_FRAME_READERS = ("locals", "globals", "vars", "dir", "eval", "exec")
_COMPARE = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.In: "in_",
    ast.NotIn: "not_in",
    ast.Is: "is_",
    ast.IsNot: "is_not",
}


def _may_be_loops(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Does a comprehension bind names of its own alone, and would its rounds as bodies of loops mean the same?"""
    over = node.generators
    plain = all(binds_names(each.target) and not each.is_async for each in over)
    if not plain or contains([node], (ast.NamedExpr, ast.Await)):
        return False
    return len(over) == 1 or not (_reads_late(over) or _keeps_names([node.elt, *over]))


def _count(over: list[ast.comprehension]) -> ast.expr:
    """How many entries a round has: one, or :data:`IN_SOME`, or -1 for several."""
    return ast.Constant(IN_SOME if any(each.ifs for each in over) else -1 if len(over) > 1 else 1)


def _keeps_names(nodes: Sequence[ast.AST]) -> bool:
    """Is there a function or generator, which may look at a name of the comprehension in later rounds?"""
    every = [each for node in nodes for each in ast.walk(node)]
    used_up = {id(each) for call in every if isinstance(call, ast.Call) for each in call.args}
    kept = [each for each in every if isinstance(each, ast.GeneratorExp) and id(each) not in used_up]
    return bool(kept) or any(isinstance(each, ast.Lambda) for each in every)


def _reads_late(over: list[ast.comprehension]) -> bool:
    """Does one iterable or test read what a later one binds, which is no name from outside?"""
    bound: set[str] = set()
    every = set(stored([each.target for each in over]))
    for position, each in enumerate(over):
        later = every - bound
        if position and later & set(_names([each.iter])):
            return True
        bound |= set(stored([each.target]))
        if (every - bound) & set(_names(each.ifs)):
            return True
    return False


def _names(nodes: list[ast.expr]) -> Iterator[str]:
    return (each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of one function."""

    first: list[str]  # the first parameter of every enclosing function
    scopes: list[tuple[set[str], set[str]]]  # of every enclosing function: names bound, names declared global

    def is_outside(self, name: str) -> bool:
        """Does a name come from outside the rewritten function?"""
        for bound, outside in reversed(self.scopes):
            if name in outside:
                return True
            if name in bound:
                return False
        return not name.startswith(OWN)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self.is_outside("super"):
            return self._expression(fx("call", node.func, load("__class__"), load(self.first[-1])), node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME_READERS and self.is_outside(node.func.id):
            return self._expression(fx("refuse", ast.Constant(f"it calls {node.func.id}()")), node)
        function = self.visit(node.func)
        first = node.args[0] if node.args else None
        if isinstance(first, ast.GeneratorExp) and _may_be_loops(first):
            over = ast.Tuple(self._over_values(first), ast.Load())
            rest = [self.visit(arg) for arg in node.args[1:]]
            keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
            return self._expression(fx("call_over", function, over, *rest, keywords=keywords), node)
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(keyword.arg, self._entry(keyword.arg, keyword.value)) for keyword in node.keywords]
        return self._expression(fx("call", function, *args, keywords=keywords), node)

    def visit_Starred(self, node: ast.Starred) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(
            ast.Starred(self._expression(fx("items", self.visit(node.value)), node), ast.Load()), node
        )

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and self.is_outside(node.id):
            return self._expression(fx("captured", ast.Constant(node.id), node), node)
        return self._expression(fx("bound", node), node) if may_fail(node) else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self._expression(fx("getattr_", self.visit(node.value), ast.Constant(node.attr)), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self._expression(fx("getitem", self.visit(node.value), self._index(node.slice)), node)

    def _index(self, index: ast.expr) -> ast.expr:
        """A slice outside brackets is a call of ``slice``."""
        if isinstance(index, ast.Slice):
            parts = [
                self.visit(part) if part is not None else ast.Constant(None)
                for part in (index.lower, index.upper, index.step)
            ]
            return ast.Call(ast.Attribute(load(FX), "slice", ast.Load()), parts, [])
        if isinstance(index, ast.Tuple):
            return ast.Tuple([self._index(entry) for entry in index.elts], ast.Load())
        if isinstance(index, ast.Starred):
            return self.visit(index)
        return self.visit(index)

    def visit(self, node: ast.AST) -> Any:
        return new_lists.wrapped(node, super().visit(node), self.visit)

    def visit_List(self, node: ast.List) -> Any:
        self.generic_visit(node)
        return self._expression(new_lists.listed(node, node), node) if isinstance(node.ctx, ast.Load) else node

    def visit_Dict(self, node: ast.Dict) -> Any:
        keys = [key and self.visit(key) for key in node.keys]
        made = ast.Dict(keys, [self._entry(key, value) for key, value in zip(node.keys, node.values, strict=True)])
        return self._expression(fx("born", self._expression(made, node)), node)

    def _entry(self, key: Any, value: ast.expr) -> Any:
        """A value of a dict or call, or, without a key, the dict whose entries it has: ``**value``."""
        made = self.visit(value)
        return made if key is not None else self._expression(fx("mapping", made), value)

    def visit_Set(self, node: ast.Set) -> Any:
        return self._born(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """It is a function of what its iterable gives: that may be so long as only the run knows."""
        if not _may_be_loops(node):
            return self._comprehension(node, ["elt"])
        return self._expression(fx("comprehended", *self._over_values(node)), node)

    def _over_values(self, node: ast.ListComp | ast.GeneratorExp) -> list[ast.expr]:
        """What a comprehension goes over, itself as a function of that, its rounds for a loop, and where it stands."""
        each = self._each(copy.deepcopy(node))
        line, column, over = node.lineno, node.col_offset, node.generators[0]
        made = self._comprehension(node, ["elt"], "kept")
        assert isinstance(over.iter, ast.Call)
        values, over.iter = over.iter.args[0], load(f"{OWN}values")
        make = ast.Lambda(arguments([f"{OWN}values", f"{OWN}kept"]), made)
        tests = any(each.ifs for each in node.generators)
        return [values, make, each, ast.Constant(tests), _count(node.generators), *map(ast.Constant, (line, column))]

    def _each(self, node: ast.ListComp | ast.GeneratorExp, depth: int = 0) -> ast.expr:
        """A function that makes the body of a loop: what gets the entries is given whether a value has one, and it.
        Where a comprehension goes over more, it is given what that is, and the body of the loop over it."""
        over, to, value = node.generators[depth], f"{OWN}to", f"{OWN}value"
        inside, tested = node.generators[depth + 1 :], bool(over.ifs)
        self.scopes.append((set(stored([over.target])), set()))
        tests = [self.visit_test(test) for test in over.ifs]
        if inside:
            does = [thunk(self.visit(inside[0].iter)), self._each(node, depth + 1), _count(inside)]
        else:
            does = [thunk(self.visit(node.elt))]
        self.scopes.pop()
        test = fx("and_", tests[0], *map(thunk, tests[1:])) if len(tests) > 1 else tests[0] if tested else None
        kept = ast.Constant(None) if test is None else thunk(test)
        method = ast.Attribute(load(to), "go_over" if inside else "take", ast.Load())
        rounds = ast.comprehension(over.target, ast.Tuple([load(value)], ast.Load()), [], 0)
        body = ast.Lambda(arguments([value]), ast.ListComp(ast.Call(method, [kept, *does], []), [rounds]))
        return ast.Lambda(arguments([to]), body)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._comprehension(node, ["elt"])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        return self._comprehension(node, ["elt"])

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self._comprehension(node, ["key", "value"])

    def _comprehension(self, node: Any, parts: list[str], kept: str = "") -> Any:
        if not all(binds_names(generator.target) for generator in node.generators):
            why = "it has a comprehension that binds items or attributes"
            return self._expression(fx("refuse", ast.Constant(why)), node)
        first = self.visit(node.generators[0].iter)  # evaluated outside
        self.scopes.append((set(stored([generator.target for generator in node.generators])), set()))
        for position, generator in enumerate(node.generators):
            iterable = self.visit(generator.iter) if position else first
            generator.iter = fx("items", iterable)
            generator.ifs = [self._kept(kept, self.visit(test)) for test in generator.ifs]
        for part in parts:
            setattr(node, part, self.visit(getattr(node, part)))
        self.scopes.pop()
        return self._expression(fx("born", node), node)

    @staticmethod
    def _kept(name: str, test: ast.expr) -> ast.expr:
        return ast.Call(load(f"{OWN}{name}"), [test], []) if name else fx("known", test)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        self.scopes.append((set(names_of(node.args)), set()))
        node.body = self.visit(node.body)
        self.scopes.pop()
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        pieces: list[ast.expr] = []
        for piece in node.values:
            if not isinstance(piece, ast.FormattedValue):
                pieces.append(piece)
                continue
            spec = self.visit(piece.format_spec) if piece.format_spec is not None else ast.Constant("")
            pieces.append(ast.Tuple([self.visit(piece.value), ast.Constant(piece.conversion), spec], ast.Load()))
        return self._expression(fx("f_string", *pieces), node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self._expression(fx("binary", ast.Constant(BINARY[type(node.op)]), node.left, node.right), node)

    def _born(self, node: Any) -> Any:
        """Containers made by the function itself may be changed by it without anybody else noticing."""
        self.generic_visit(node)
        return (
            self._expression(fx("born", node), node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node
        )

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if contains([node.body, node.orelse], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.test = fx("known", node.test)
            return ast.fix_missing_locations(node)
        test, body, orelse = self.visit_test(node.test), self.visit(node.body), self.visit(node.orelse)
        return self._expression(fx("if_expression", test, thunk(body), thunk(orelse)), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if contains(node.values[1:], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.values = [fx("known", value) for value in node.values]
            return ast.fix_missing_locations(node)
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        first, *others = (self.visit(value) for value in node.values)
        return self._expression(fx(method, first, *(thunk(other) for other in others)), node)

    def visit_test(self, node: ast.expr) -> Any:
        """A test: of the operands of ``and`` and ``or`` in it only the truth counts."""

        def mark(operand: ast.expr) -> ast.expr:
            if isinstance(operand, ast.BoolOp):
                operand.values = list(map(mark, operand.values))
            elif not isinstance(operand, ast.Constant) and not contains([operand], (ast.NamedExpr,)):
                return Ready(self._expression(fx("filled", self.visit(operand)), operand))
            return operand

        return self.visit(mark(node) if isinstance(node, ast.BoolOp) else node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.operand, ast.Constant):
            return node
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return self._expression(fx("not_", node.operand), node)
        return self._expression(fx("unary", ast.Constant(_UNARY[type(node.op)]), node.operand), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            name = ast.Constant(_COMPARE[type(node.ops[0])])
            return self._expression(fx("compare", name, node.left, node.comparators[0]), node)
        if contains(node.comparators, (ast.NamedExpr,)):
            return self._expression(fx("refuse", ast.Constant("it has := in a chained comparison")), node)
        names = ast.Tuple([ast.Constant(_COMPARE[type(operator)]) for operator in node.ops], ast.Load())
        return self._expression(fx("chain", names, node.left, *(thunk(value) for value in node.comparators)), node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        node.value = fx("delegate", self.visit(node.value))
        return ast.fix_missing_locations(node)

    def visit_Ready(self, node: Ready) -> Any:
        return node.value

    def visit_Attempt(self, node: Attempt) -> Any:
        return self._expression(fx("attempt", thunk(self.visit(node.value)), thunk(self.visit(node.kind))), node)

    def _expression(self, new: ast.expr, old: ast.expr) -> ast.expr:
        ast.copy_location(new, old)
        place_missing(new, old.lineno, old.col_offset)
        return new
