"""Rewriting of statements: control flow becomes calls with generated closures, writes become calls."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from futurex.frontend.rewrite import collecting, lifetimes, new_lists, unbound
from futurex.frontend.rewrite.attempts import attempts_as_ifs
from futurex.frontend.rewrite.expressions import BINARY, Expressions
from futurex.frontend.rewrite.patterns import match_as_ifs
from futurex.frontend.rewrite.syntax import (
    FX,
    OPAQUE,
    OWN,
    YIELDS,
    Ready,
    again,
    arguments,
    assign,
    binds_names,
    computes,
    contains,
    declared,
    definition,
    ends,
    exits,
    fx,
    is_name,
    load,
    names_of,
    place_missing,
    stored,
    tested_inside,
    thunk,
    written_further_in,
)
from futurex.frontend.rewrite.unshared import write_apart


def _ends_by_return(node: ast.stmt) -> bool:
    """Is it ``while True`` without a ``break``?"""
    if not isinstance(node, ast.While) or not isinstance(node.test, ast.Constant) or not node.test.value:
        return False
    return not contains(node.body, (ast.Break,), into_loops=False)


_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Lambda)
_MAKERS = ("list", "dict", "set", "sorted", "zip", "map", "filter", "enumerate", "reversed", "iter", "deque", "partial")


def _is_made(value: ast.expr | None) -> bool:
    """Does an expression make a container, a function or, as names of classes are written, an object?"""
    if not isinstance(value, ast.Call):
        return isinstance(value, _CONTAINERS)
    name = getattr(value.func, "id", getattr(value.func, "attr", ""))
    return name in _MAKERS or name.lstrip("_")[:1].isupper()


def _made_in(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that statements bind to what they make anew, which is not carried from round to round of a loop."""
    made = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Assign | ast.AnnAssign))
    bound = [(each.targets if isinstance(each, ast.Assign) else [each.target]) for each in made if _is_made(each.value)]
    return {target.id for targets in bound for target in targets if isinstance(target, ast.Name)}


def _returns(statements: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int] | None]:
    """Where ``return`` statements stand; None for one that does not lead straight out of the statements' loop."""
    for position, node in enumerate(statements):
        if isinstance(node, ast.Return):
            yield statements, position
            return
        if isinstance(node, ast.If):
            yield from _returns(node.body)
            yield from _returns(node.orelse)
        elif contains([node], (ast.Return,)):
            yield None


def _branch_to(statements: list[ast.stmt], position: int, loop: ast.For | ast.While) -> int:
    """Where the branch begins that ends in the ``return`` at a position, and only there."""
    return position if statements is loop.body or exits(statements[:position]) else 0


def _variables(names: set[str]) -> ast.expr:
    """A function that closes over the variables; it is never called."""
    return thunk(ast.Tuple([load(name) for name in sorted(names)], ast.Load()))


def _stem_of(loop: ast.stmt) -> str:
    """The stem of a rewritten loop's flags."""
    return str(vars(loop)["_fx_stem"])


class Rewriter(Expressions):
    """Rewrites one function definition, its nested functions included."""

    def __init__(self, function: ast.FunctionDef, outside: frozenset[str]) -> None:
        self.function = function
        self.outside = outside
        self.scopes = []
        self.first = []
        self.counter = 0

    def run(self) -> ast.FunctionDef:
        self._function(self.function)
        return self.function

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{OWN}{stem}_{self.counter}"

    # -- functions ---------------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef) -> None:
        refused = self._refused(node)
        if refused:
            node.body = [self._placed(ast.Expr(fx("refuse", ast.Constant(refused))), node), *node.body]
            return
        unbound.find(node)
        node.body = attempts_as_ifs(node.body, self.fresh)
        elsewhere = declared(node.body, ast.Nonlocal)
        bound = {*names_of(node.args), *stored(node.body)} - elsewhere
        self.scopes.append((bound - self.outside if node is self.function else bound, set()))
        parameters = [*node.args.posonlyargs, *node.args.args]
        self.first.append(parameters[0].arg if parameters else "")
        write_apart(node)
        lifetimes.find(node)
        collecting.find(node)
        new_lists.find(node)
        node.body = self._block(node.body, tail=not contains(node.body, YIELDS)) or [ast.Pass()]
        self.first.pop()
        self.scopes.pop()
        if node.args.kwarg is not None:  # the dict of keywords is the call's own
            own = assign(node.args.kwarg.arg, fx("born", load(node.args.kwarg.arg)))
            node.body.insert(0, self._placed(own, node))
        shared = bound & written_further_in(node.body)
        if shared:
            node.body.insert(0, self._placed(ast.Expr(fx("variables", _variables(shared))), node))

    def _refused(self, node: ast.FunctionDef) -> str:
        """Why a function cannot be staged at all, or nothing."""
        if contains(node.body, (ast.Await,)):
            return "it is a coroutine"
        written = declared(node.body, ast.Global)
        if node is self.function:
            written |= declared(node.body, ast.Nonlocal)
        if written:
            return f"it writes variables outside itself ({', '.join(sorted(written))})"
        return ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        node.args.kw_defaults = [default and self.visit(default) for default in node.args.kw_defaults]
        node.decorator_list = [
            self._expression(fx("decorator", self.visit(decorator)), decorator) for decorator in node.decorator_list
        ]
        return self._inner(node)

    def _inner(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A function inside the function, or a method of a class there."""
        shared = declared(node.body, ast.Nonlocal)
        self._function(node)
        if shared:  # what a call writes further out belongs to the branch or loop that it stands in
            node.body.insert(0, self._placed(ast.Expr(fx("changes", _variables(shared))), node))
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """A class is made by plain Python, which must not look at anything from outside; its methods are staged."""
        node.bases = [self.visit(base) for base in node.bases]
        if not computes(node):
            self.scopes.append(({"__class__"}, set()))  # no more from outside than the class itself
            node.body = [self._inner(each) if isinstance(each, ast.FunctionDef) else each for each in node.body]
            self.scopes.pop()
            return node
        why = ast.Constant("it defines a class whose body computes")
        return [self._placed(ast.Expr(fx("refuse", why)), node), node]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """What a module holds is read as its attribute."""
        out: list[ast.stmt] = [node]
        for alias in node.names:
            name = alias.asname or alias.name
            parts = [ast.Constant(part) for part in (node.module or "", node.level, alias.name)]
            out.append(self._placed(assign(name, fx("imported", load(name), *parts)), node))
        return out

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], *, tail: bool = False, loop: str = "") -> list[ast.stmt]:
        """Rewrite statements. ``tail``: a return here leaves the function. ``loop``: stem of the loop's flags.

        What follows an ``if`` that may leave the block moves into the branches that do not leave it.
        """
        out: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            rest = list(statements[position + 1 :])
            if isinstance(statement, ast.Return) and loop:
                out += self._leave(statement, loop, returned=True)
                return out
            if isinstance(statement, ast.Break) and loop:
                out += self._leave(statement, loop, returned=False)
                return out
            if isinstance(statement, ast.Continue) and loop:
                return out
            if isinstance(statement, ast.Match):
                statements_ = [*match_as_ifs(statement, self.fresh), *rest]
                return out + self._block(statements_, tail=tail, loop=loop)
            if isinstance(statement, ast.While) and contains([statement.test], (ast.NamedExpr,)):
                statement = tested_inside(statement)
            if isinstance(statement, ast.For | ast.While) and (taken := self._taken_out(statement)):
                return out + self._block([*taken, *rest], tail=tail, loop=loop)
            if isinstance(statement, ast.If):
                leaves = exits([statement])
                if contains([statement], YIELDS) or (leaves and not (tail or loop)):
                    out.append(self._plain_if(statement))
                    continue
                if leaves:
                    out += self._leaving_if(statement, rest, tail=tail, loop=loop)
                    return out
                out += self._if(statement, statement.body, statement.orelse, loop="")
            elif isinstance(statement, ast.For | ast.While) and self._stageable(statement, tail, bool(loop)):
                out += self._loop(statement)
                after = self._after_loop(statement, rest)
                if contains(statement.body, (ast.Return,)):
                    return out + self._after_return(statement, after, tail=tail, loop=loop)
                if statement.orelse:
                    return out + self._block(after, tail=tail, loop=loop)
            else:
                visited = self.visit(statement)
                out += visited if isinstance(visited, list) else [visited]
        return out

    def _taken_out(self, node: ast.For | ast.While) -> list[ast.stmt]:
        """A loop whose ways out, branches that end in a ``return``, stand behind it: a ``break`` takes their places.

        Nothing happens between the two; so what is returned need not be carried along, and may be what other rounds
        write. Which way was taken is a number, where there are several or the loop has another end. Ways that read what
        a round makes anew, a list or an object, stay where they are.
        """
        if not contains(node.body, (ast.Return,)):
            return []
        node = copy.deepcopy(node)  # loops around this one look at their statements again when they are rewritten
        node.body = self._left_first(node.body)
        places = list(_returns(node.body))
        endless = _ends_by_return(node)
        if not places or None in places:
            return []
        ways = [(held, _branch_to(held, at, node), at) for held, at in filter(None, places)]
        alone = endless and len(ways) == 1 and not node.orelse
        read = {
            each.id for held, first, last in ways for way in held[first : last + 1] for each in ast.walk(way)
            if isinstance(each, ast.Name)
        }  # fmt: skip
        if not alone and read & _made_in(node.body):
            return []
        number, behind, before = self.fresh("way"), [], []
        for which, (held, first, last) in enumerate(ways, start=1):
            found = held[first : last + 1]
            left: list[ast.stmt] = [ast.copy_location(ast.Break(), found[-1])]
            if not alone:
                left.insert(0, self._placed(assign(number, ast.Constant(which)), found[-1]))
            held[first:] = left
            if not (endless and which == len(ways)):
                test = ast.Compare(load(number), [ast.Eq()], [ast.Constant(which)])
                found = [self._placed(ast.If(test, found, []), found[-1])]
            behind += found
        if not alone:
            before.append(self._placed(assign(number, ast.Constant(0)), node))
        return [*before, node, *behind]

    def _left_first(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements of a loop, from whose inner loops what leaves them was taken out: it may leave this one, too."""
        out = []
        for node in statements:
            if isinstance(node, ast.If):
                node.body, node.orelse = self._left_first(node.body), self._left_first(node.orelse)
            out += (self._taken_out(node) if isinstance(node, ast.For | ast.While) else []) or [node]
        return out

    def _stageable(self, statement: ast.For | ast.While, tail: bool, in_loop: bool) -> bool:
        """Loops whose exits stand inside ``with``, ``try`` or ``match`` stay Python loops."""
        if any(
            isinstance(node, OPAQUE) and exits([node]) for node in ast.walk(statement) if isinstance(node, ast.stmt)
        ):
            return False
        if contains(statement.body, (ast.Nonlocal, ast.Global)) or contains([statement], YIELDS):
            return False
        return tail or in_loop or not contains(statement.body, (ast.Return,))

    def _leave(self, statement: ast.stmt, loop: str, *, returned: bool) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        if returned:
            value = statement.value if isinstance(statement, ast.Return) and statement.value else ast.Constant(None)
            out.append(assign(f"{loop}_value", self.visit(value)))
            out.append(assign(f"{loop}_returned", ast.Constant(True)))
        out.append(assign(f"{loop}_left", ast.Constant(True)))
        return [ast.copy_location(new, statement) for new in out]

    def _leaving_if(self, node: ast.If, rest: list[ast.stmt], *, tail: bool, loop: str) -> list[ast.stmt]:
        body = node.body if ends(node.body) else [*node.body, *again(rest)]
        orelse = node.orelse if ends(node.orelse) else [*node.orelse, *rest]
        if loop:
            return self._if(node, body, orelse, loop=loop)
        return self._if(node, body, orelse, tail=tail)

    def _after_loop(self, node: ast.For | ast.While, rest: list[ast.stmt]) -> list[ast.stmt]:
        """What follows a loop: its ``else``, unless it was left, and the rest."""
        if not node.orelse:
            return rest
        left = f"{_stem_of(node)}_left"
        test: ast.expr = fx("not_", load(left)) if exits(node.body) else ast.Constant(True)
        return [ast.fix_missing_locations(ast.copy_location(ast.If(Ready(test), node.orelse, []), node)), *rest]

    def _after_return(self, node: ast.stmt, rest: list[ast.stmt], *, tail: bool, loop: str) -> list[ast.stmt]:
        """After a loop that may return: return its value, or go on."""
        stem = _stem_of(node)
        returned: ast.stmt = ast.Return(Ready(load(f"{stem}_value")))
        if _ends_by_return(node):
            return self._block([ast.fix_missing_locations(ast.copy_location(returned, node))], tail=tail, loop=loop)
        test = ast.If(Ready(load(f"{stem}_returned")), [ast.copy_location(returned, node)], rest)
        return self._block([ast.fix_missing_locations(ast.copy_location(test, node))], tail=tail, loop=loop)

    def _plain_if(self, node: ast.If) -> ast.stmt:
        """An ``if`` that leaves a ``with`` or ``try``: stays Python's, its test must be known."""
        node.test = fx("known", self.visit(node.test))
        node.body = self._block(node.body) or [ast.Pass()]
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def _state(self, nodes: Sequence[ast.AST], extra: Iterable[str] = ()) -> list[str]:
        return list(dict.fromkeys([*stored(nodes), *extra]))

    def _accessors(self, names: list[str]) -> tuple[list[ast.stmt], str, str]:
        """Closures that read and write the state of a statement; an unbound name reads as UNDEF."""
        get, set_ = self.fresh("get"), self.fresh("set")
        reads = [fx("read", thunk(load(name))) for name in names]
        getter = definition(get, arguments([]), [ast.Return(ast.Tuple(list(reads), ast.Load()))])
        body: list[ast.stmt] = [ast.Nonlocal(list(names))] if names else []
        for position, name in enumerate(names):
            value = ast.Subscript(load(f"{OWN}values"), ast.Constant(position), ast.Load())
            body.append(assign(name, value))
            body.append(ast.If(ast.Compare(load(name), [ast.Is()], [ast.Attribute(load(FX), "UNDEF", ast.Load())]),
                               [ast.Delete([ast.Name(name, ast.Del())])], []))  # fmt: skip
        setter = definition(set_, arguments([f"{OWN}values"]), body)
        return [getter, setter], get, set_

    def _branch(
        self, names: list[str], stem: str, statements: list[ast.stmt], parameters: list[str]
    ) -> ast.FunctionDef:
        head: list[ast.stmt] = [ast.Nonlocal(list(names))] if names else []
        return definition(self.fresh(stem), arguments(parameters), [*head, *(statements or [ast.Pass()])])

    def _if(
        self, node: ast.If, body: list[ast.stmt], orelse: list[ast.stmt], *, tail: bool = False, loop: str = ""
    ) -> list[ast.stmt]:
        flags = [f"{loop}_left"] if loop else []
        if loop and contains([*body, *orelse], (ast.Return,)):
            flags += [f"{loop}_returned", f"{loop}_value"]
        if contains([*body, *orelse], (ast.Nonlocal, ast.Global)):
            return [self._plain_if(node)]
        test = self.visit_test(node.test)
        own = lifetimes.own_of(node, body, orelse)
        names = [name for name in self._state([*body, *orelse], flags) if name not in own]
        inner_body = self._block(body, tail=tail, loop=loop)
        inner_orelse = self._block(orelse, tail=tail, loop=loop)
        then = self._branch(names, "then", inner_body, [])
        other = self._branch(names, "else", inner_orelse, [])
        accessors, get, set_ = self._accessors(names)
        call = fx(
            "if_", test, load(then.name), load(other.name), load(get), load(set_),
            ast.Tuple([ast.Constant(name) for name in names], ast.Load()),
        )  # fmt: skip
        final: ast.stmt = ast.Return(call) if tail else ast.Expr(call)
        return [self._placed(new, node) for new in [*self._declare(names), *accessors, then, other, final]]

    def _declare(self, names: list[str]) -> list[ast.stmt]:
        """Make each name a local of the enclosing function without binding it (``nonlocal`` needs that)."""
        if not names:
            return []
        binds: list[ast.stmt] = [assign(name, ast.Constant(None)) for name in names]
        return [ast.If(ast.Constant(False), binds, [])]

    def _placed(self, new: ast.stmt, old: ast.AST) -> ast.stmt:
        ast.copy_location(new, old)
        line, column = getattr(old, "lineno", 1), getattr(old, "col_offset", 0)
        place_missing(new, line, column)
        return new

    def _loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        stem = self.fresh("loop")
        vars(node)["_fx_stem"] = stem
        leaves = exits(node.body)
        returns = contains(node.body, (ast.Return,))
        flags = ([f"{stem}_left"] if leaves else []) + ([f"{stem}_returned", f"{stem}_value"] if returns else [])
        targets = [node.target] if isinstance(node, ast.For) else []
        names = [name for name in self._state([*targets, *node.body], flags) if name not in lifetimes.own(node)]
        head: list[ast.stmt] = [assign(name, ast.Constant(False)) for name in flags if not name.endswith("_value")]
        rows = self._collected(node, head)
        statements = self._block(node.body, loop=stem if leaves else "")
        left = thunk(load(f"{stem}_left")) if leaves else ast.Constant(None)
        accessors, get, set_ = self._accessors(names)
        ends = [load(get), load(set_), ast.Tuple([ast.Constant(name) for name in names], ast.Load()), left]
        if isinstance(node, ast.For):
            item = self.fresh("item")
            take = ast.Assign([node.target], load(item))
            body = self._branch(names, "body", [*self._assignment(take), *statements], [item])
            call = fx("for_", self.visit(node.iter), load(body.name), *ends, *rows)
        else:
            body = self._branch(names, "body", statements, [])
            call = fx("while_", thunk(self.visit_test(node.test)), load(body.name), *ends)
        out: list[ast.stmt] = [*head, *self._declare(names), *accessors, body, ast.Expr(call)]
        return [self._placed(new, node) for new in out]

    def _collected(self, node: ast.For | ast.While, head: list[ast.stmt]) -> list[ast.expr]:
        """What gets the entries that rounds append to lists of which nobody else knows meanwhile, and stands for these
        lists; none where there are no such lists. How they are found and appended to goes into ``head``."""
        lists = collecting.collected(node)
        if not lists:
            return []
        rows, entry = self.fresh("rows"), f"{OWN}entry"
        standing = collecting.Standing({name: self._at(rows, number) for number, name in enumerate(lists)})
        inside = {name for each in node.body if isinstance(each, ast.For) for name in collecting.collected(each)}
        count = {name: -1 if name in inside else 0 for name in lists}
        for k, statement in enumerate(node.body):
            found = collecting.appended(statement)
            if found is None or found[0] not in lists:
                node.body[k] = standing.visit(statement)
                continue
            name, value = found
            put = ast.Attribute(load(rows), "put", ast.Load())
            call = ast.Call(put, [ast.Constant(lists.index(name)), self.visit(standing.visit(value))], [])
            node.body[k] = self._placed(ast.Expr(Ready(call)), statement)
            count[name] += name not in inside
        known: list[ast.expr] = []
        count |= dict.fromkeys(collecting.in_some_rounds(node) & set(lists), collecting.IN_SOME)
        for name in lists:
            the_list = collecting.stands_for(node, name)
            methods = [fx("getattr_", the_list, ast.Constant(method)) for method in ("append", "extend")]
            adds = [ast.Lambda(arguments([entry]), fx("call", method, load(entry))) for method in methods]
            known.append(ast.Tuple([thunk(the_list), *adds, ast.Constant(count[name])], ast.Load()))
        head.append(assign(rows, fx("appended", *known)))
        return [load(rows)]

    @staticmethod
    def _at(rows: str, number: int) -> ast.expr:
        return ast.Call(ast.Attribute(load(rows), "at", ast.Load()), [ast.Constant(number)], [])

    # -- statements --------------------------------------------------------------------------------------------------

    def _bound_first(self, target: ast.expr, body: list[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]]:
        """The target of a ``for`` or ``with`` that stays Python's, and its body: items and attributes are written as
        in an assignment."""
        if binds_names(target):
            return target, body
        name = self.fresh("target")
        first = [self._placed(new, target) for new in self._assignment(ast.Assign([target], load(name)))]
        return ast.copy_location(ast.Name(name, ast.Store()), target), [*first, *body]

    def visit_For(self, node: ast.For) -> Any:
        node.iter = fx("items", self.visit(node.iter))
        node.target, node.body = self._bound_first(node.target, self._block(node.body))
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def visit_While(self, node: ast.While) -> Any:
        node.test = fx("known", self.visit(node.test))
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def visit_With(self, node: ast.With) -> Any:
        for position, entry in enumerate(node.items[:-1], start=1):
            if entry.optional_vars is not None and not binds_names(entry.optional_vars):
                inner = ast.copy_location(ast.With(node.items[position:], node.body), node)
                return self.visit_With(ast.copy_location(ast.With(node.items[:position], [inner]), node))
        for entry in node.items:
            entry.context_expr = fx("context", self.visit(entry.context_expr))
        node.body = self._block(node.body) or [ast.Pass()]
        if entry.optional_vars is not None:
            entry.optional_vars, node.body = self._bound_first(entry.optional_vars, node.body)
        return ast.fix_missing_locations(node)

    def visit_Try(self, node: ast.Try) -> Any:
        """What fails in a ``try`` must fail while tracing or not at all: a run could not come back to the handlers."""
        body = self._block(node.body) or [ast.Pass()]
        types = [handler.type for handler in node.handlers if handler.type is not None]
        bare = len(types) < len(node.handlers) or bool(node.finalbody)
        caught = thunk(ast.Tuple([self.visit(copy.deepcopy(each)) for each in types], ast.Load()))
        guard = ast.With([ast.withitem(fx("protected", ast.Constant(None) if bare else caught))], body)
        node.body = [self._placed(guard, node)]
        for handler in node.handlers:
            anything = ast.copy_location(ast.Attribute(load(FX), "BaseException", ast.Load()), handler)
            handler.type = self.visit(handler.type) if handler.type else ast.fix_missing_locations(anything)
            handler.body = self._block(handler.body) or [ast.Pass()]
        if node.handlers:
            escape = ast.ExceptHandler(ast.Attribute(load(FX), "passing", ast.Load()), None, [ast.Raise()])
            place_missing(ast.copy_location(escape, node), node.lineno, node.col_offset)
            node.handlers.insert(0, escape)
        node.orelse = self._block(node.orelse)
        final = self._block(node.finalbody)
        node.finalbody = [self._placed(ast.If(fx("finishes"), final, []), node.finalbody[0])] if final else []
        return ast.fix_missing_locations(node)

    def visit_TryStar(self, node: ast.TryStar) -> Any:
        return self._placed(ast.Expr(fx("refuse", ast.Constant("it has except*"))), node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = value
            return node
        name = self.fresh("value")
        out: list[ast.stmt] = [assign(name, value)]
        for target in node.targets:
            out += self._assignment(ast.Assign([target], load(name)))
        return [self._placed(new, node) for new in out]

    def _assignment(self, node: ast.Assign) -> list[ast.stmt]:
        """One target from a ready value; subscripts and attributes inside become calls."""
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return [ast.Expr(fx("setitem", self.visit(target.value), self._index(target.slice), node.value))]
        if isinstance(target, ast.Attribute):
            return [ast.Expr(fx("setattr_", self.visit(target.value), ast.Constant(target.attr), node.value))]
        if isinstance(target, ast.Tuple | ast.List):
            inner: list[ast.expr] = target.elts
            later: list[ast.stmt] = []
            if not all(map(is_name, target.elts)):  # what stands further left is bound before the next is looked at
                inner = []
                for element in target.elts:
                    name = self.fresh("part")
                    part: ast.expr = ast.Name(name, ast.Store())
                    place = element.value if isinstance(element, ast.Starred) else element
                    inner.append(ast.Starred(part, ast.Store()) if place is not element else part)
                    later += self._assignment(ast.Assign([place], load(name)))
            starred_at = next((k for k, e in enumerate(inner) if isinstance(e, ast.Starred)), -1)
            unpacked = fx("unpack", node.value, ast.Constant(len(inner)), ast.Constant(starred_at))
            return [ast.Assign([ast.Tuple(inner, ast.Store())], unpacked), *later]
        return [node]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        name = ast.Constant(BINARY[type(node.op)])
        target, value = node.target, node.value
        if isinstance(target, ast.Name):
            old = self.visit(ast.copy_location(load(target.id), target))
            return self._placed(assign(target.id, fx("iop", name, old, self.visit(value))), node)
        place, old_name = self.fresh("place"), self.fresh("old")
        out: list[ast.stmt] = [assign(place, self.visit(target.value))]
        if isinstance(target, ast.Subscript):
            index = self.fresh("index")
            out.append(assign(index, self._index(target.slice)))
            out.append(assign(old_name, fx("getitem", load(place), load(index))))
            new = fx("iop", name, load(old_name), self.visit(value))
            out.append(ast.Expr(fx("setitem", load(place), load(index), new)))
        else:
            attribute = ast.Constant(target.attr)
            out.append(assign(old_name, fx("getattr_", load(place), attribute)))
            new = fx("iop", name, load(old_name), self.visit(value))
            out.append(ast.Expr(fx("setattr_", load(place), attribute, new)))
        return [self._placed(each, node) for each in out]

    def visit_Delete(self, node: ast.Delete) -> Any:
        out: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                out.append(ast.Expr(fx("delitem", self.visit(target.value), self._index(target.slice))))
            elif isinstance(target, ast.Attribute):
                out.append(ast.Expr(fx("delattr_", self.visit(target.value), ast.Constant(target.attr))))
            else:
                out.append(ast.Delete([target]))
        return [self._placed(new, node) for new in out]

    def visit_Assert(self, node: ast.Assert) -> Any:
        if not __debug__:  # python -O has none
            return self._placed(ast.Pass(), node)
        message = thunk(self.visit(node.msg)) if node.msg is not None else ast.Constant(None)
        return self._placed(ast.Expr(fx("assert_", self.visit(node.test), message)), node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node.exc is None:
            return node
        parts = [self.visit(part) for part in (node.exc, node.cause) if part is not None]
        return self._placed(ast.Expr(fx("raise_", *map(thunk, parts))), node)
