"""Names whose arrays no other name can hold: each write in place is preceded by ``h = __fx__.apart(h, ...)``.

``if a: h = h * 0.5`` in a loop makes ``h`` one of several arrays. A write into it would change another name's array
where that is one of these, so nobody may write any more; but for names that are bound to nothing but what operators and
NumPy's functions make anew, and are read by nothing that could keep them. Of these it does not matter which array is
written, and :func:`futurex.frontend.unshared.apart` gives them one of their own.

What names mean is known when the function is traced: those of modules and functions that are relied upon are handed
over. Operators of users' classes, which may keep their operands, are looked for there, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import numpy as np

from futurex.frontend.rewrite.syntax import (
    LATE,
    LOOKS,
    YIELDS,
    Ready,
    assign,
    children,
    contains,
    declared,
    fx,
    load,
    names_of,
    place_missing,
    stored,
)

_MODULES = frozenset(("np", "numpy"))
_BUILTINS = frozenset(("len", "float", "int", "abs", "bool"))
_MAKERS = {
    "zeros": 2, "ones": 2, "full": 3, "empty": 2, "zeros_like": 2, "ones_like": 2, "full_like": 3, "empty_like": 2,
    "arange": 4, "linspace": 3, "eye": 2, "identity": 1, "where": 3, "concatenate": 2, "stack": 2, "vstack": 1,
    "hstack": 1, "column_stack": 1, "array": 2, "copy": 1, "outer": 2, "dot": 2, "inner": 2, "cross": 2, "kron": 2,
    "cumsum": 2, "cumprod": 2, "sort": 2, "argsort": 2, "roll": 3, "tile": 2, "repeat": 3, "clip": 3, "sum": 2,
    "prod": 2, "mean": 2, "std": 2, "var": 2, "max": 2, "min": 2, "median": 2, "any": 2, "all": 2, "interp": 3,
}  # fmt: skip
"""NumPy's functions that return new arrays or numbers, and how many arguments may be given by position: one more may be
``out``."""
_JOINS = frozenset(("concatenate", "stack", "vstack", "hstack", "column_stack", "array"))
_KEYWORDS = frozenset(("axis", "dtype", "keepdims", "ddof", "shape", "fill_value"))
_METHODS = frozenset((
    "sum", "mean", "max", "min", "std", "var", "prod", "any", "all", "argmax", "argmin", "copy", "dot", "cumsum",
    "cumprod", "item", "tolist", "nonzero", "trace", "round", "clip",
))  # fmt: skip
_PROPERTIES = frozenset(("shape", "ndim", "size", "dtype"))
_LISTS = (ast.List, ast.Tuple, ast.ListComp)
_BINDERS = (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.alias, ast.MatchAs, ast.MatchStar, ast.MatchMapping)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def write_apart(function: ast.FunctionDef) -> None:
    """Place such calls in a function, in front of writes into arrays of names that a branch or round binds."""
    body = function.body
    if contains(body, YIELDS) or any(isinstance(node, ast.Name) and node.id in LOOKS for node in _walk(body)):
        return
    found = _Uses(function).unshared()
    if found:
        _place(body, found)


class _Uses:
    """What a function does with its names."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.above: dict[ast.AST, ast.AST] = {}
        self.places: dict[str, list[ast.Name]] = {}
        self.local = {*names_of(function.args), *stored(function.body)}
        self.refused = {*names_of(function.args)} | declared(function.body, ast.Nonlocal)
        self.refused |= declared(function.body, ast.Global)
        for node in _walk(function.body):
            for child in children(node):
                self.above[child] = node
            if isinstance(node, (*LATE, ast.ListComp, ast.SetComp, ast.DictComp)):
                self.refused |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            elif isinstance(node, ast.Name):
                self.places.setdefault(node.id, []).append(node)
            if isinstance(node, _BINDERS):
                self.refused |= set(stored([node]))
        self.known: set[str] = set()

    def unshared(self) -> dict[str, list[str]]:
        """Such names that are written in place and bound in a branch or round, and the names relied upon for each."""
        found = {}
        for name, places in self.places.items():
            if name in self.refused or not any(map(self._writes, places)) or not any(map(self._is_choice, places)):
                continue
            if all(map(self._counts, places)):
                continue
            self.known = set()
            if all(map(self._suits, places)) and not self.known & self.local:
                found[name] = sorted(self.known)
        return found

    def _writes(self, place: ast.Name) -> bool:
        """Is an element of the name's array written here, or all of it in place?"""
        above = self.above.get(place)
        if isinstance(above, ast.AugAssign):
            return above.target is place
        return isinstance(above, ast.Subscript) and above.value is place and isinstance(above.ctx, ast.Store)

    def _counts(self, place: ast.Name) -> bool:
        """Is it read here, counted up, or bound to a constant? A name of which all is that is a number."""
        above = self.above.get(place)
        begins = isinstance(above, ast.Assign) and isinstance(above.value, ast.Constant)
        return isinstance(place.ctx, ast.Load) or isinstance(above, ast.AugAssign) or begins

    def _is_choice(self, place: ast.Name) -> bool:
        """Is the name bound here, in a branch or round?"""
        if not isinstance(place.ctx, ast.Store) or isinstance(self.above.get(place), ast.AugAssign):
            return False
        node: ast.AST | None = place
        while node is not None and not isinstance(node, ast.If | ast.For | ast.While):
            node = self.above.get(node)
        return node is not None

    def _suits(self, place: ast.Name) -> bool:
        if isinstance(place.ctx, ast.Load):
            return self._is_consumed(place)
        above = self.above.get(place)
        if isinstance(above, ast.AugAssign):
            return above.target is place
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return self._is_new(above.value)
        if not isinstance(above, ast.Tuple) or not isinstance(place.ctx, ast.Store):
            return False
        whole = self.above.get(above)
        if not isinstance(whole, ast.Assign) or len(whole.targets) > 1 or not isinstance(whole.value, ast.Tuple):
            return False
        values = whole.value.elts
        single = len(values) == len(above.elts) and not any(isinstance(each, ast.Starred) for each in above.elts)
        return single and self._is_new(values[above.elts.index(place)])

    def _is_new(self, value: ast.expr) -> bool:
        """Is it an array that nothing else holds, or a number?"""
        if isinstance(value, ast.BinOp):
            return not isinstance(value.left, _LISTS) and not isinstance(value.right, _LISTS)
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.UnaryOp):
            return not isinstance(value.op, ast.Not)
        return isinstance(value, ast.Call) and self._makes(value)

    def _makes(self, call: ast.Call) -> bool:
        """Is it a call of a function that keeps none of its arguments, and returns none?"""
        function = call.func
        if not all(each.arg in _KEYWORDS for each in call.keywords) or any(
            isinstance(each, ast.Starred) for each in call.args
        ):
            return False
        if isinstance(function, ast.Name):
            self.known.add(function.id)
            return function.id in _BUILTINS
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        self.known.add(function.value.id)
        ufunc = getattr(np, function.attr, None)
        most = ufunc.nin if isinstance(ufunc, np.ufunc) else _MAKERS.get(function.attr, -1)
        return function.value.id in _MODULES and len(call.args) <= most

    def _is_consumed(self, node: ast.expr) -> bool:
        """Does what reads an array, or a view of it, make something of it that does not hold it?"""
        above = self.above.get(node)
        if isinstance(above, ast.BinOp | ast.UnaryOp | ast.Return | ast.If | ast.While | ast.Assert):
            return not isinstance(above, ast.UnaryOp) or not isinstance(above.op, ast.Not)
        if isinstance(above, ast.Compare):
            return all(isinstance(op, _COMPARISONS) for op in above.ops)
        if isinstance(above, ast.AugAssign):  # ``+=`` of a list takes rows
            return above.value is node and not isinstance(above.op, ast.Add)
        if isinstance(above, ast.Subscript):
            read = above.value is node and isinstance(above.ctx, ast.Load)
            return self._is_consumed(above) if read else isinstance(above.ctx, ast.Store) and above.value is node
        if isinstance(above, ast.Attribute):
            return self._is_asked(above)
        if isinstance(above, ast.Call):
            return above.func is not node and any(each is node for each in above.args) and self._makes(above)
        call = self.above.get(above) if isinstance(above, ast.List | ast.Tuple) else None
        if isinstance(call, ast.Return):
            return True
        joins = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _JOINS
        return isinstance(call, ast.Call) and joins and call.args[:1] == [above] and self._makes(call)

    def _is_asked(self, node: ast.Attribute) -> bool:
        """``h.shape``, ``h.sum()``, and views, ``h.T``, that are read in their turn."""
        above = self.above.get(node)
        if node.attr in _PROPERTIES:
            return True
        if isinstance(above, ast.Call):
            named = all(each.arg in _KEYWORDS for each in above.keywords)
            return above.func is node and node.attr in _METHODS and named and len(above.args) < 2
        return node.attr == "T" and self._is_consumed(node)


def _walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a function but for those inside of functions in it."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, LATE):
            waiting += children(node)


def _place(statements: list[ast.stmt], names: dict[str, list[str]]) -> None:
    out: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, ast.If | ast.For | ast.While):
            _place(node.body, names)
            _place(node.orelse, names)
        for name in _written(node) & names.keys():
            value = fx("apart", load(name), *map(load, names[name]))
            new = ast.copy_location(assign(name, Ready(value)), node)
            place_missing(new, node.lineno, node.col_offset)
            out.append(new)
        out.append(node)
    statements[:] = out


def _written(node: ast.stmt) -> set[str]:
    """The names into whose arrays a statement writes."""
    targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets if isinstance(node, ast.Assign) else []
    found = set()
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name):
                found.add(each.value.id)
            elif isinstance(each, ast.Name) and isinstance(node, ast.AugAssign):
                found.add(each.id)
    return found
