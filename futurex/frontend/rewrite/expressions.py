"""Rewriting of expressions: calls, reads of outside names, attributes, items, choices, containers."""

from __future__ import annotations

import ast
from typing import Any

from futurex.frontend.rewrite.syntax import FX, Ready, contains, fx, load, place_missing, thunk

_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Expressions(ast.NodeTransformer):
    """Rewrites expressions of one function."""

    local: frozenset[str]

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals", "vars", "__fx__"):
            return node
        function = self.visit(node.func)
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        return self._expression(fx("call", function, *args, keywords=keywords), node)

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and node.id not in self.local and not node.id.startswith("__"):
            return self._expression(fx("captured", ast.Constant(node.id), node), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return self.generic_visit(node)
        return self._expression(fx("getattr_", self.visit(node.value), ast.Constant(node.attr)), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self._expression(fx("getitem", self.visit(node.value), self._index(node.slice)), node)

    def _index(self, index: ast.expr) -> ast.expr:
        """A slice outside brackets is a call of ``slice``."""
        if isinstance(index, ast.Slice):
            parts = [self.visit(part) if part is not None else ast.Constant(None) for part in (index.lower, index.upper, index.step)]
            return ast.Call(ast.Attribute(load(FX), "slice", ast.Load()), parts, [])
        if isinstance(index, ast.Tuple):
            return ast.Tuple([self._index(entry) for entry in index.elts], ast.Load())
        if isinstance(index, ast.Starred):
            return ast.Starred(self.visit(index.value), ast.Load())
        return self.visit(index)

    def visit_List(self, node: ast.List) -> Any:
        return self._born(node)

    def visit_Dict(self, node: ast.Dict) -> Any:
        return self._born(node)

    def visit_Set(self, node: ast.Set) -> Any:
        return self._born(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self._born(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self._born(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._born(node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        node.iter = fx("known_iterable", self.visit(node.iter))
        node.ifs = [fx("known", self.visit(test)) for test in node.ifs]
        return node

    def _born(self, node: Any) -> Any:
        """Containers made by the function itself may be changed by it without anybody else noticing."""
        self.generic_visit(node)
        return self._expression(fx("born", node), node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if contains([node.body, node.orelse], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.test = fx("known", node.test)
            return ast.fix_missing_locations(node)
        test, body, orelse = (self.visit(part) for part in (node.test, node.body, node.orelse))
        return self._expression(fx("if_expression", test, thunk(body), thunk(orelse)), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if contains(node.values[1:], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.values = [fx("known", value) for value in node.values]
            return ast.fix_missing_locations(node)
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        first, *others = (self.visit(value) for value in node.values)
        return self._expression(fx(method, first, *(thunk(other) for other in others)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self._expression(fx("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                method = "in_" if isinstance(node.ops[0], ast.In) else "not_in"
                return self._expression(fx(method, node.left, node.comparators[0]), node)
            return node
        if not all(type(operator) in _COMPARE for operator in node.ops):
            return node
        names = ast.Tuple([ast.Constant(_COMPARE[type(operator)]) for operator in node.ops], ast.Load())
        return self._expression(fx("chain", names, node.left, *(thunk(value) for value in node.comparators)), node)

    def visit_Ready(self, node: Ready) -> Any:
        return node.value

    def _expression(self, new: ast.expr, old: ast.expr) -> ast.expr:
        ast.copy_location(new, old)
        place_missing(new, old.lineno, old.col_offset)
        return new
