"""Calls while the plan of a trace and its code are made: they go as plain NumPy, which gives the right answer at once.

Making a plan takes a fraction of a millisecond for each node, and a loop whose code is not there yet takes ten to a
hundred times plain Python's time, round by round. So where a trace does nothing but compute, one thread
makes its plan and its code; calls are plain until both are there. A plain call that takes longer than that does not go
on to its end: it goes through a twin of the function whose loops look, each round, whether the code is there by now.
Generators from which such a call has drawn have their states again then.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
import threading
import types
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from futurex.frontend.choice import Choice, Misfit, has_rounds, leaves_little, returns_only
from futurex.frontend.fragments import of_library
from futurex.frontend.generators import held, share_bits
from futurex.frontend.lane import packed
from futurex.frontend.nest_texts import Unwritten
from futurex.frontend.rewrite import NoSource, rewrite
from futurex.frontend.rewrite.syntax import FX, fx, load
from futurex.frontend.variants import Variant
from futurex.kernels.compiling import Job, background, put_off
from futurex.ops.streams import restore, state_of
from futurex.runtime import config
from futurex.runtime.lower import STRUCTURED, seconds
from futurex.runtime.plan import Plan
from futurex.tree.graph import Graph
from futurex.tree.source import is_known

PER_NODE = 2e-4
"""Seconds that a plan takes to be made, for each node of its graph; measured 0.1 to 0.4 ms."""
WORTH = 5e-3
"""Seconds of making a plan that a call waits for."""
_ALONE = 20e-3
"""Seconds that a plain call has Python to itself before the plan is begun."""

NOT_NOW: Any = object()
"""The call has to go on staged."""


_BUILTINS = frozenset(dir(builtins))


class Arrived(BaseException):
    """The code is there: a plain call ends in the middle of a loop."""


class Meanwhile:
    """The plain calls of one trace, until its plan is there. Threads may call at once."""

    def __init__(self, variant: Variant, function: types.FunctionType) -> None:
        """Raises NoSource or Unwritten where calls cannot be plain, or could not be ended."""
        pack = None if variant.generators else packed(variant)
        if pack is None and not variant.generators:
            raise Unwritten
        self._variant = variant
        self._call = Choice(variant, pack).call
        self._watch = _Watch()
        self._twin = self._watch.twin_of(function)
        self._process = os.getpid()
        self._calls = 0
        self._asked, self._free = deque([None]), deque([None])  # who takes it is the one who does it
        self._returned, self._made = threading.Event(), threading.Event()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], drawn: Sequence[Any] = ()) -> Any:
        """What a call returns that goes as plain NumPy; NOT_NOW where it cannot, or need not any more. ``drawn``: the
        generators that it draws from.

        A call that raises says NOT_NOW, too: the results of a run tell of its error.
        """
        if share_bits(drawn):  # such calls are plain for ever
            self._variant.meanwhile = None
            return NOT_NOW
        with held(drawn):
            before = [state_of(each) for each in drawn]
            result = self._plain(args, kwargs)
            if result is NOT_NOW:
                for each, state in zip(drawn, before, strict=True):
                    restore(each, state)
        return result

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._process != os.getpid():
            self._variant.meanwhile = None  # a child after a fork has none of the threads
            return NOT_NOW
        if self._watch.over:
            return NOT_NOW
        self._calls += 1
        if _take(self._asked):
            background.submit(self._make)
        try:
            result = self._call(self._twin, args, kwargs)
        except Misfit as misfit:
            result = misfit.result
        except (Arrived, Exception):
            result = NOT_NOW
        finally:
            self._returned.set()
            ended = self._watch.ended()
        return NOT_NOW if ended else result

    def wait(self) -> None:
        """Return when the plan is there, or when nobody else makes it."""
        if self._process == os.getpid() and not _take(self._free):
            self._made.wait()

    def _make(self) -> None:
        self._returned.wait(_ALONE)
        kernels: list[Job] = []
        if _take(self._free):
            with contextlib.suppress(Exception), put_off() as kernels:  # a call that asks for the plan will meet it
                self._variant.make()
        self._made.set()
        plan, several = self._variant._plan, self._calls > 1  # one call would not be worth both
        whole = plan.whole if isinstance(plan, Plan) and (kernels or has_rounds(plan)) else None
        try:
            if several and whole is not None and not whole.many:
                whole.lead(kernels)
            else:
                for each in kernels:
                    each()
        finally:
            background.submit(self.end)  # behind the kernels of the plan

    def end(self) -> None:
        """Calls go staged from now on."""
        self._watch.over = True
        self._variant.meanwhile = None


def meanwhile(variant: Variant, function: Any) -> Meanwhile | None:
    """How calls of a new trace go until its plan is there; None where they wait for it."""
    if variant.graph is None or variant.has_log or not config.background():
        return None
    if not (_only_draws(variant) if variant.generators else returns_only(variant)):
        return None
    if variant.nests:
        return None  # plain calls would make runs, and wait for each
    making = PER_NODE * sum(1 for _ in _nodes(variant.graph))
    straight = sum(seconds(node) for node in variant.graph.nodes if node.op not in STRUCTURED and node.is_static)
    if making < max(WORTH, 2 * straight) or type(function) is not types.FunctionType:
        return None
    try:
        return Meanwhile(variant, function)
    except (NoSource, Unwritten):
        return None


def _only_draws(variant: Variant) -> bool:
    """Does a call draw from generators, return new arrays and do nothing else?"""
    count = len(variant.inputs)
    drawn = {variant.inputs[k] if k < count else ~(k - count) for k in variant.generators}
    others = variant.apart or variant.changes or variant.prints
    return not others and drawn.issuperset(place for place, _ in variant.written) and leaves_little(variant)


def _take(token: deque[None]) -> bool:
    try:
        token.pop()
    except IndexError:
        return False
    return True


def _nodes(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, Graph):
                yield from _nodes(value)


class _Watch:
    """``__fx__`` of the twins: ``over`` is asked by every round of a loop."""

    def __init__(self) -> None:
        self.over = False
        self._ended: set[int] = set()  # threads whose call a loop ended, even if a finally held that up
        self._twins: dict[types.FunctionType, types.FunctionType] = {}

    def twin_of(self, function: types.FunctionType) -> types.FunctionType:
        """The function with loops that can be ended. Raises NoSource where there is none."""
        if _asks_futurex(function):
            raise NoSource(f"{function.__qualname__} calls what is futurized itself")
        return rewrite(function, self, _Checks)

    def twin(self, function: Any) -> Any:
        """What is called in place of a function that the twins name: a twin, or the function itself."""
        if type(function) is not types.FunctionType:
            return function
        found = self._twins.get(function)
        if found is None:
            found = self._twins[function] = self._twin(function)
        return found

    def _twin(self, function: types.FunctionType) -> types.FunctionType:
        if function.__closure__ is not None or of_library(function) or is_known(function):
            return function
        if _asks_futurex(function):
            self.over = True
            self.arrived()
        try:
            return self.twin_of(function)
        except NoSource:
            return function

    def arrived(self) -> None:
        """End the call: what the code would do from here on is done by a run."""
        self._ended.add(threading.get_ident())
        raise Arrived

    def ended(self) -> bool:
        """Was the call of this thread ended?"""
        if threading.get_ident() not in self._ended:
            return False
        self._ended.discard(threading.get_ident())
        return True


def _asks_futurex(function: types.FunctionType) -> bool:
    """Does it, or a function in it, name something of futurex? That is staged for itself when it is called."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    values = [function.__globals__.get(name) for name in names]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    return any(_is_ours(value) for value in values)


def _is_ours(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] == "futurex"
    return hasattr(type(value), "__fx_stage__")


class _Checks(ast.NodeTransformer):
    """Has every loop ask whether it shall go on, and every function that is called by a name become its twin."""

    def __init__(self, function: ast.FunctionDef, outside: frozenset[str]) -> None:
        self._function = function

    def run(self) -> ast.FunctionDef:
        self._function.body = [self.visit(statement) for statement in self._function.body]
        return self._function

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id not in _BUILTINS:
            node.func = ast.fix_missing_locations(ast.copy_location(fx("twin", node.func), node.func))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._loop(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._loop(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if node.type is None or "BaseException" in ast.unparse(node.type):
            raise NoSource("a handler that would catch the end of a loop")
        return self.generic_visit(node)

    def _loop(self, node: ast.While | ast.For) -> ast.AST:
        self.generic_visit(node)
        over = ast.Attribute(load(FX), "over", ast.Load())
        check = ast.copy_location(ast.If(over, [ast.Expr(fx("arrived"))], []), node.body[0])
        node.body.insert(0, ast.fix_missing_locations(check))
        return node


