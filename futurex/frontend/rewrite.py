"""Source rewriting: what Python cannot intercept becomes a call on the runtime object ``__fx__``.

Calls, subscripts, writes, ``if``/``while``/``for``, conditional expressions, ``and``/``or``/``not``, comparisons that chain,
``in``, ``assert`` and ``raise`` are rewritten; everything else stays as it is. Line numbers and the file name are kept, so
tracebacks and debuggers show the user's own lines. The functional form of control flow follows AutoGraph (Moldovan et al.,
SysML 2019): the names a statement assigns are its state, read and written by generated closures.
"""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Iterable, Sequence
from typing import Any

FX = "__fx__"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OPAQUE = (ast.With, ast.Try, ast.Match, ast.AsyncWith, ast.AsyncFor)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor", ast.LShift: "lshift",
    ast.RShift: "rshift",
}  # fmt: skip
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class NoSource(Exception):
    """The source of a function cannot be found or does not match; it is traced without rewriting."""


@functools.lru_cache(maxsize=256)
def _module(filename: str, lines: tuple[str, ...]) -> ast.Module:
    return ast.parse("".join(lines), filename)


def find(function: types.FunctionType) -> FunctionNode:
    """The syntax tree of a function, found by file and line. Raises NoSource."""
    code = function.__code__
    lines = tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines:
        raise NoSource(f"no source for {function.__qualname__} ({code.co_filename})")
    try:
        module = _module(code.co_filename, lines)
    except SyntaxError as error:
        raise NoSource(f"{code.co_filename} does not parse: {error}") from None
    matches = [node for node in ast.walk(module) if _matches(node, code)]
    if len(matches) > 1:  # several lambdas on one line
        matches = [node for node in matches if _same_code(node, code)]
    if len(matches) != 1:
        raise NoSource(f"{len(matches)} functions at {code.co_filename}:{code.co_firstlineno} match {code.co_name}")
    return matches[0]


def _matches(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        name, line = "<lambda>", node.lineno
    elif isinstance(node, ast.FunctionDef):
        name, line = node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    else:
        return False
    if name != code.co_name or line != code.co_firstlineno:
        return False
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(names) == code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _same_code(node: FunctionNode, code: types.CodeType) -> bool:
    expression = ast.Expression(node) if isinstance(node, ast.Lambda) else None
    if expression is None:
        return True
    compiled = compile(expression, code.co_filename, "eval")
    inner = next(const for const in compiled.co_consts if isinstance(const, types.CodeType))
    positions = list(inner.co_positions()) == list(code.co_positions())
    return positions and inner.co_names == code.co_names


def rewrite(function: types.FunctionType, runtime: Any) -> types.FunctionType:
    """The staged twin of a function: same globals, closure cells and defaults, rewritten body. Raises NoSource."""
    code = _rewritten_code(function.__code__, function.__code__.co_freevars, find(function))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[FX] = types.CellType(runtime)
    twin = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, tuple(cells[name] for name in code.co_freevars)
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_code_cache: dict[types.CodeType, types.CodeType] = {}


def _rewritten_code(code: types.CodeType, freevars: Sequence[str], node: FunctionNode) -> types.CodeType:
    if code in _code_cache:
        return _code_cache[code]
    body: list[ast.stmt]
    outside = frozenset(freevars)
    if isinstance(node, ast.Lambda):
        inner = ast.FunctionDef(
            name="lambda_", args=_plain_arguments(node.args), decorator_list=[], returns=None, type_comment=None,
            body=[ast.copy_location(ast.Return(node.body), node.body)], type_params=[],
        )  # fmt: skip
        ast.copy_location(inner, node)
        name = "lambda_"
    elif isinstance(node, ast.FunctionDef):
        inner = ast.FunctionDef(
            name=node.name, args=_plain_arguments(node.args), decorator_list=[], returns=None, type_comment=None,
            body=node.body, type_params=[],
        )  # fmt: skip
        ast.copy_location(inner, node)
        name = node.name
    else:
        raise NoSource("async functions are not staged")
    rewritten = Rewriter(inner, outside).run()
    maker = ast.FunctionDef(
        name="make", args=_arguments([FX, *freevars]), body=[rewritten, ast.Return(ast.Name(name, ast.Load()))],
        decorator_list=[], returns=None, type_comment=None, type_params=[],
    )  # fmt: skip
    body = [ast.copy_location(maker, inner)]
    module = ast.fix_missing_locations(ast.Module(body, []))
    scope = compile(module, code.co_filename, "exec")
    make = next(const for const in scope.co_consts if isinstance(const, types.CodeType))
    result = next(const for const in make.co_consts if isinstance(const, types.CodeType) and const.co_name == name)
    _code_cache[code] = result.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    _remember(_code_cache[code])
    return _code_cache[code]


_rewritten: set[types.CodeType] = set()


def _remember(code: types.CodeType) -> None:
    _rewritten.add(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _remember(inner)


def is_rewritten(function: types.FunctionType) -> bool:
    """True for functions that rewritten code made: they are staged already."""
    return function.__code__ in _rewritten


def _arguments(names: Iterable[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def _plain_arguments(arguments: ast.arguments) -> ast.arguments:
    """The same parameters without annotations; defaults are placeholders, the twin gets the original's values."""

    def bare(arg: ast.arg | None) -> ast.arg | None:
        return ast.copy_location(ast.arg(arg.arg), arg) if arg is not None else None

    def bare_all(args: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(arg.arg), arg) for arg in args]

    none: Any = [ast.Constant(None) for _ in arguments.defaults]
    kw_none: Any = [None if default is None else ast.Constant(None) for default in arguments.kw_defaults]
    return ast.arguments(
        bare_all(arguments.posonlyargs), bare_all(arguments.args), bare(arguments.vararg), bare_all(arguments.kwonlyargs),
        kw_none, bare(arguments.kwarg), none,
    )  # fmt: skip


def _stored(nodes: Sequence[ast.AST]) -> list[str]:
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
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in nodes:
        visit(node)
    return list(names)


def _contains(nodes: Sequence[ast.AST], kinds: tuple[type, ...], *, into_loops: bool = True) -> bool:
    """Does any statement hold a node of these kinds in this function (not in nested functions)?"""
    for node in nodes:
        if isinstance(node, kinds):
            return True
        if isinstance(node, _SCOPES) or (not into_loops and isinstance(node, ast.For | ast.While)):
            continue
        if _contains(list(ast.iter_child_nodes(node)), kinds, into_loops=into_loops):
            return True
    return False


def _exits(nodes: Sequence[ast.stmt]) -> bool:
    """Do the statements leave the loop body or function they stand in?"""
    return _contains(nodes, (ast.Return,)) or _contains(nodes, (ast.Break, ast.Continue), into_loops=False)


def _ends(nodes: Sequence[ast.stmt]) -> bool:
    """Is the end of the statements never reached?"""
    if not nodes:
        return False
    last = nodes[-1]
    if isinstance(last, ast.Return | ast.Break | ast.Continue | ast.Raise):
        return True
    return isinstance(last, ast.If) and _ends(last.body) and _ends(last.orelse)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _fx(method: str, *args: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    return ast.Call(ast.Attribute(_name(FX), method, ast.Load()), list(args), keywords or [])


def _thunk(expression: ast.expr) -> ast.Lambda:
    return ast.Lambda(_arguments([]), expression)


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


class Rewriter(ast.NodeTransformer):
    """Rewrites one function definition, its nested functions included."""

    def __init__(self, function: ast.FunctionDef, outside: frozenset[str]) -> None:
        self.function = function
        self.outside = outside
        self.local = self._local_names(function) - outside
        self.counter = 0

    @staticmethod
    def _local_names(function: ast.FunctionDef) -> frozenset[str]:
        names = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node is not function:
                names.add(node.name)
        names.update(_stored(function.body))
        declared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        return frozenset(names - declared)

    def run(self) -> ast.FunctionDef:
        self._function(self.function)
        return self.function

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"__{stem}_{self.counter}"

    # -- functions ---------------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef) -> None:
        refused = self._refused(node)
        if refused:
            node.body = [self._placed(ast.Expr(_fx("refuse", ast.Constant(refused))), node), *node.body]
            return
        node.body = self._block(node.body, tail=True) or [ast.Pass()]

    def _refused(self, node: ast.FunctionDef) -> str:
        """Why a function cannot be staged at all, or nothing."""
        if _contains(node.body, (ast.Yield, ast.YieldFrom, ast.Await)):
            return "it is a generator"
        written = {name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names}
        if node is self.function:
            written |= set(_stored(node.body)) & self.outside
        if written:
            return f"it writes variables outside itself ({', '.join(sorted(written))})"
        return ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        self._function(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], *, tail: bool = False, loop: str = "") -> list[ast.stmt]:
        """Rewrite statements. ``tail``: a return here leaves the function. ``loop``: stem of the enclosing loop's flags.

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
            if isinstance(statement, ast.If):
                leaves = _exits([statement])
                if leaves and not (tail or loop):
                    out.append(self._plain_if(statement))
                    continue
                if leaves:
                    out += self._leaving_if(statement, rest, tail=tail, loop=loop)
                    return out
                out += self._if(statement, statement.body, statement.orelse, loop="")
            elif isinstance(statement, ast.For | ast.While) and self._stageable(statement, tail, bool(loop)):
                out += self._loop(statement)
                if _contains(statement.body, (ast.Return,)):
                    out += self._after_return(statement, rest, tail=tail, loop=loop)
                    return out
            else:
                visited = self.visit(statement)
                out += visited if isinstance(visited, list) else [visited]
        return out

    def _stageable(self, statement: ast.For | ast.While, tail: bool, in_loop: bool) -> bool:
        """Loops whose exits stand inside ``with``, ``try`` or ``match`` stay Python loops."""
        for node in ast.walk(statement):
            if isinstance(node, _OPAQUE) and _exits(node.body if not isinstance(node, ast.Match) else node.cases):  # type: ignore[arg-type]
                return False
        return tail or in_loop or not _contains(statement.body, (ast.Return,))

    def _leave(self, statement: ast.stmt, loop: str, *, returned: bool) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        if returned:
            value = statement.value if isinstance(statement, ast.Return) and statement.value else ast.Constant(None)
            out.append(_assign(f"{loop}_value", self.visit(value)))
            out.append(_assign(f"{loop}_returned", ast.Constant(True)))
        out.append(_assign(f"{loop}_left", ast.Constant(True)))
        return [ast.copy_location(new, statement) for new in out]

    def _leaving_if(self, node: ast.If, rest: list[ast.stmt], *, tail: bool, loop: str) -> list[ast.stmt]:
        body = node.body if _ends(node.body) else [*node.body, *_again(rest)]
        orelse = node.orelse if _ends(node.orelse) else [*node.orelse, *rest]
        if loop:
            return self._if(node, body, orelse, loop=loop)
        return self._if(node, body, orelse, tail=tail)

    def _after_return(self, node: ast.stmt, rest: list[ast.stmt], *, tail: bool, loop: str) -> list[ast.stmt]:
        """After a loop that may return: return its value, or go on."""
        stem = getattr(node, "_fx_stem")
        returned: ast.stmt = ast.Return(_Ready(_name(f"{stem}_value")))
        test = ast.If(_Ready(_name(f"{stem}_returned")), [ast.copy_location(returned, node)], rest)
        return self._block([ast.fix_missing_locations(ast.copy_location(test, node))], tail=tail, loop=loop)

    def _plain_if(self, node: ast.If) -> ast.stmt:
        """An ``if`` that leaves a ``with`` or ``try``: stays Python's, its test must be known."""
        node.test = _fx("known", self.visit(node.test))
        node.body = self._block(node.body) or [ast.Pass()]
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def _state(self, nodes: Sequence[ast.AST], extra: Iterable[str] = ()) -> list[str]:
        return list(dict.fromkeys([*_stored(nodes), *extra]))

    def _accessors(self, names: list[str], anchor: ast.AST) -> tuple[list[ast.stmt], str, str]:
        """Closures that read and write the state of a statement; an unbound name reads as UNDEF."""
        get, set_ = self.fresh("get"), self.fresh("set")
        reads = [_fx("read", _thunk(_name(name))) for name in names]
        getter = self._def(get, [], [ast.Return(ast.Tuple(list(reads), ast.Load()))])
        body: list[ast.stmt] = [ast.Nonlocal(list(names))] if names else []
        for position, name in enumerate(names):
            value = ast.Subscript(_name("values"), ast.Constant(position), ast.Load())
            body.append(_assign(name, value))
            body.append(ast.If(ast.Compare(_name(name), [ast.Is()], [ast.Attribute(_name(FX), "UNDEF", ast.Load())]),
                               [ast.Delete([ast.Name(name, ast.Del())])], []))  # fmt: skip
        setter = self._def(set_, ["values"], body or [ast.Pass()])
        return [getter, setter], get, set_

    def _def(self, name: str, arguments: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
        return ast.FunctionDef(
            name=name, args=_arguments(arguments), body=body or [ast.Pass()], decorator_list=[], returns=None,
            type_comment=None, type_params=[],
        )  # fmt: skip

    def _branch(self, names: list[str], stem: str, statements: list[ast.stmt], arguments: list[str]) -> ast.FunctionDef:
        head: list[ast.stmt] = [ast.Nonlocal(list(names))] if names else []
        return self._def(self.fresh(stem), arguments, [*head, *(statements or [ast.Pass()])])

    def _if(
        self, node: ast.If, body: list[ast.stmt], orelse: list[ast.stmt], *, tail: bool = False, loop: str = ""
    ) -> list[ast.stmt]:
        flags = [f"{loop}_left"] if loop else []
        if loop and _contains([*body, *orelse], (ast.Return,)):
            flags += [f"{loop}_returned", f"{loop}_value"]
        if _contains([*body, *orelse], (ast.Nonlocal, ast.Global)):
            return [self._plain_if(node)]
        test = self.visit(node.test)
        names = self._state([*body, *orelse], flags)
        inner_body = self._block(body, tail=tail, loop=loop)
        inner_orelse = self._block(orelse, tail=tail, loop=loop)
        then = self._branch(names, "then", inner_body, [])
        other = self._branch(names, "else", inner_orelse, [])
        accessors, get, set_ = self._accessors(names, node)
        call = _fx(
            "if_", test, _name(then.name), _name(other.name), _name(get), _name(set_),
            ast.Tuple([ast.Constant(name) for name in names], ast.Load()),
        )  # fmt: skip
        final: ast.stmt = ast.Return(call) if tail else ast.Expr(call)
        return [self._placed(new, node) for new in [*self._declare(names), *accessors, then, other, final]]

    def _declare(self, names: list[str]) -> list[ast.stmt]:
        """Make each name a local of the enclosing function without binding it (``nonlocal`` needs that)."""
        if not names:
            return []
        binds: list[ast.stmt] = [_assign(name, ast.Constant(None)) for name in names]
        return [ast.If(ast.Constant(False), binds, [])]

    def _placed(self, new: ast.stmt, old: ast.AST) -> ast.stmt:
        ast.copy_location(new, old)
        line, column = getattr(old, "lineno", 1), getattr(old, "col_offset", 0)
        _place_missing(new, line, column)
        return new

    def _loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        if _contains(node.body, (ast.Nonlocal, ast.Global)):
            visited = self.generic_visit(node)
            return [visited] if isinstance(visited, ast.stmt) else []
        stem = self.fresh("loop")
        node._fx_stem = stem  # type: ignore[union-attr]
        leaves = _exits(node.body)
        returns = _contains(node.body, (ast.Return,))
        flags = ([f"{stem}_left"] if leaves else []) + ([f"{stem}_returned", f"{stem}_value"] if returns else [])
        targets = [node.target] if isinstance(node, ast.For) else []
        names = self._state([*targets, *node.body], flags)
        head: list[ast.stmt] = [_assign(name, ast.Constant(False)) for name in flags if not name.endswith("_value")]
        statements = self._block(node.body, loop=stem if leaves else "")
        left = _thunk(_name(f"{stem}_left")) if leaves else ast.Constant(None)
        accessors, get, set_ = self._accessors(names, node)
        ends = [_name(get), _name(set_), ast.Tuple([ast.Constant(name) for name in names], ast.Load()), left]
        if isinstance(node, ast.For):
            item = self.fresh("item")
            take = ast.Assign([node.target], _name(item))
            body = self._branch(names, "body", [*self._assignment(take), *statements], [item])
            call = _fx("for_", self.visit(node.iter), _name(body.name), *ends)
        else:
            body = self._branch(names, "body", statements, [])
            call = _fx("while_", _thunk(self.visit(node.test)), _name(body.name), *ends)
        out: list[ast.stmt] = [*head, *self._declare(names), *accessors, body, ast.Expr(call)]
        if node.orelse:
            if leaves:
                test = ast.If(_Ready(_fx("not_", _name(f"{stem}_left"))), node.orelse, [])
                out += self._if(ast.copy_location(test, node), node.orelse, [])
            else:
                out += self._block(node.orelse)
        return [self._placed(new, node) for new in out]

    # -- statements --------------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> Any:
        return self._plain_if(node) if _exits([node]) else self._if(node, node.body, node.orelse)

    def visit_For(self, node: ast.For) -> Any:
        if self._stageable(node, False, False):
            return self._loop(node)
        node.iter = _fx("known_iterable", self.visit(node.iter))
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def visit_While(self, node: ast.While) -> Any:
        if self._stageable(node, False, False):
            return self._loop(node)
        node.test = _fx("known", self.visit(node.test))
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse)
        return ast.fix_missing_locations(node)

    def visit_With(self, node: ast.With) -> Any:
        for entry in node.items:
            entry.context_expr = self.visit(entry.context_expr)
        node.body = self._block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        node.body = self._block(node.body)
        for handler in node.handlers:
            handler.body = self._block(handler.body)
        node.orelse = self._block(node.orelse)
        node.finalbody = self._block(node.finalbody)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        node.subject = _fx("known_subject", self.visit(node.subject))
        for case in node.cases:
            case.body = self._block(case.body)
            if case.guard is not None:
                case.guard = _fx("known", self.visit(case.guard))
        return ast.fix_missing_locations(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = value
            return node
        name = self.fresh("value")
        out: list[ast.stmt] = [_assign(name, value)]
        for target in node.targets:
            out += self._assignment(ast.Assign([target], _name(name)))
        return [self._placed(new, node) for new in out]

    def _assignment(self, node: ast.Assign) -> list[ast.stmt]:
        """One target from a ready value; subscripts and attributes inside become calls."""
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return [ast.Expr(_fx("setitem", self.visit(target.value), self._index(target.slice), node.value))]
        if isinstance(target, ast.Attribute):
            return [ast.Expr(_fx("setattr_", self.visit(target.value), ast.Constant(target.attr), node.value))]
        if isinstance(target, ast.Tuple | ast.List):
            out: list[ast.stmt] = []
            inner: list[ast.expr] = []
            later: list[ast.stmt] = []
            for element in target.elts:
                starred = isinstance(element, ast.Starred)
                place = element.value if isinstance(element, ast.Starred) else element
                if isinstance(place, ast.Name):
                    inner.append(element)
                    continue
                name = self.fresh("part")
                inner.append(ast.Starred(ast.Name(name, ast.Store()), ast.Store()) if starred else ast.Name(name, ast.Store()))
                later += self._assignment(ast.Assign([place], _name(name)))
            starred_at = next((k for k, e in enumerate(inner) if isinstance(e, ast.Starred)), -1)
            unpacked = _fx("unpack", node.value, ast.Constant(len(inner)), ast.Constant(starred_at))
            out.append(ast.Assign([ast.Tuple(inner, ast.Store())], unpacked))
            return out + later
        return [node]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        operator = ast.Constant(_BINARY[type(node.op)])
        value = self.visit(node.value)
        target = node.target
        new: ast.stmt
        if isinstance(target, ast.Name):
            current = self.visit(ast.copy_location(_name(target.id), target))
            new = _assign(target.id, _fx("iop", operator, current, value))
        elif isinstance(target, ast.Subscript):
            new = ast.Expr(_fx("isetitem", self.visit(target.value), self._index(target.slice), operator, value))
        else:
            new = ast.Expr(_fx("iattr", self.visit(target.value), ast.Constant(target.attr), operator, value))
        return self._placed(new, node)

    def visit_Delete(self, node: ast.Delete) -> Any:
        out: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                out.append(ast.Expr(_fx("delitem", self.visit(target.value), self._index(target.slice))))
            else:
                out.append(ast.Delete([target]))
        return [self._placed(new, node) for new in out]

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = _thunk(self.visit(node.msg)) if node.msg is not None else ast.Constant(None)
        return self._placed(ast.Expr(_fx("assert_", self.visit(node.test), message)), node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node.exc is None or node.cause is not None:
            return node
        return self._placed(ast.Expr(_fx("raise_", _thunk(self.visit(node.exc)))), node)

    # -- expressions -------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals", "vars", "__fx__"):
            return node
        function = self.visit(node.func)
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        return self._expression(_fx("call", function, *args, keywords=keywords), node)

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and node.id not in self.local and not node.id.startswith("__"):
            return self._expression(_fx("captured", ast.Constant(node.id), node), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return self.generic_visit(node)
        return self._expression(_fx("getattr_", self.visit(node.value), ast.Constant(node.attr)), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self._expression(_fx("getitem", self.visit(node.value), self._index(node.slice)), node)

    def _index(self, index: ast.expr) -> ast.expr:
        """A slice outside brackets is a call of ``slice``."""
        if isinstance(index, ast.Slice):
            parts = [self.visit(part) if part is not None else ast.Constant(None) for part in (index.lower, index.upper, index.step)]
            return ast.Call(ast.Attribute(_name(FX), "slice", ast.Load()), parts, [])
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
        node.iter = _fx("known_iterable", self.visit(node.iter))
        node.ifs = [_fx("known", self.visit(test)) for test in node.ifs]
        return node

    def _born(self, node: Any) -> Any:
        """Containers made by the function itself may be changed by it without anybody else noticing."""
        self.generic_visit(node)
        return self._expression(_fx("born", node), node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if _contains([node.body, node.orelse], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.test = _fx("known", node.test)
            return ast.fix_missing_locations(node)
        test, body, orelse = (self.visit(part) for part in (node.test, node.body, node.orelse))
        return self._expression(_fx("if_expression", test, _thunk(body), _thunk(orelse)), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if _contains(node.values[1:], (ast.NamedExpr,)):
            self.generic_visit(node)
            node.values = [_fx("known", value) for value in node.values]
            return ast.fix_missing_locations(node)
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        first, *others = (self.visit(value) for value in node.values)
        return self._expression(_fx(method, first, *(_thunk(other) for other in others)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self._expression(_fx("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                method = "in_" if isinstance(node.ops[0], ast.In) else "not_in"
                return self._expression(_fx(method, node.left, node.comparators[0]), node)
            return node
        if not all(type(operator) in _COMPARE for operator in node.ops):
            return node
        names = ast.Tuple([ast.Constant(_COMPARE[type(operator)]) for operator in node.ops], ast.Load())
        return self._expression(_fx("chain", names, node.left, *(_thunk(value) for value in node.comparators)), node)

    def visit__Ready(self, node: _Ready) -> Any:
        return node.value

    def _expression(self, new: ast.expr, old: ast.expr) -> ast.expr:
        ast.copy_location(new, old)
        _place_missing(new, old.lineno, old.col_offset)
        return new


class _Ready(ast.expr):
    """An expression that is already rewritten."""

    _fields = ("value",)

    def __init__(self, value: ast.expr) -> None:
        super().__init__()
        self.value = value


def _again(statements: list[ast.stmt]) -> list[ast.stmt]:
    """A copy of statements that are placed twice."""
    import copy

    return copy.deepcopy(statements)


def _place_missing(node: ast.AST, line: int, column: int) -> None:
    """Give generated nodes the user's line; nodes that have one keep theirs."""
    if "lineno" in node._attributes:
        if not hasattr(node, "lineno"):
            node.lineno, node.col_offset = line, column  # type: ignore[attr-defined]
        if getattr(node, "end_lineno", None) is None:
            node.end_lineno = node.lineno  # type: ignore[attr-defined]
        if getattr(node, "end_col_offset", None) is None:
            node.end_col_offset = node.col_offset  # type: ignore[attr-defined]
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
    for child in ast.iter_child_nodes(node):
        _place_missing(child, line, column)
