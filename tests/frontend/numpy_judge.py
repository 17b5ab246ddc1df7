"""Judge one line of NumPy code: futurized against plain, value by value, and whether it was staged."""

import functools
import linecache
import operator
import warnings
from dataclasses import dataclass

import numpy as np
from compare import COMPLEX_TOO, agree, is_staged, outcome

import futurex as fx
from futurex.autodiff import pullback
from futurex.tree import Graph
from futurex.tree.record import NotDifferentiable


@dataclass(frozen=True)
class Verdict:
    """What came of one example call."""

    code: str
    equal: bool
    staged: bool | str
    detail: str = ""
    graph: Graph | None = None

    @property
    def ops(self):
        """The operations in the tree of the call that compute something."""
        return {node.op for node in self.graph.nodes} - SILENT if self.graph is not None else set()

    @property
    def derivative(self):
        """Has the call a derivative? None where no float depends on a float."""
        graph = self.graph
        if graph is None:
            return None
        wrt = [k for k, node in enumerate(graph.params) if node.aval.inexact]
        moved = set()
        for node in graph.nodes:
            if node in graph.params or any(source in moved for source in node.inputs):
                avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
                moved |= {node} if any(aval.inexact for aval in avals) else set()
        if not any(node in moved for node in graph.outs):
            return None
        try:
            pullback(graph, wrt)
        except NotDifferentiable:
            return False
        return True


SILENT = {
    "param", "const", "item", "load", "store", "reshape", "transpose", "cast", "full", "check", "broadcast_to",
    "contiguous",
}  # fmt: skip


#: What may happen between a call and the return of its result: it shows what is a view of what.
THEN = {
    "nothing": "",
    "writes into the result": """
    for each in found if isinstance(found, (tuple, list)) else [found]:
        if isinstance(each, np.ndarray):
            each[...] = 1
""",
    "writes into the arguments": """
    x[...] = 7
    v[...] = 7
    m[...] = 7
    t[...] = 7
    q[...] = 7
    z[...] = 7
    n[...] = 0
    b[...] = True
""",
}


def function_of(code, names, then="nothing"):
    """A function of the named arguments that returns the value of an expression; its source can be found."""
    file = f"<{code}>" if then == "nothing" else f"<{code} {then}>"
    text = f"def example({', '.join(names)}):\n    found = {code}\n{THEN[then]}    return found\n"
    text = f"def example({', '.join(names)}):\n    return {code}\n" if then == "nothing" else text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"np": np}
    exec(compile(text, file, "exec"), scope)
    return scope["example"]


def kinds(value):
    """The types in a result: arrays, NumPy scalars and Python numbers are told apart, and kinds of sequences."""
    if isinstance(value, fx.Array):
        value = value.result()
    if isinstance(value, tuple | list):
        return (type(value).__name__, [kinds(entry) for entry in value])
    return type(value).__name__


def simple(result):
    """Object arrays hold addresses: compare what is at them."""
    if isinstance(result, tuple) and len(result) == 3 and result[0] == "|O":
        return ("objects",)
    return tuple(map(simple, result)) if isinstance(result, tuple) else result


def judge(code, arguments, *, rounded=False, then="nothing"):
    """Run an expression plainly and twice futurized on ``arguments()``, a dict of fresh arrays.

    ``rounded``: floats may differ in the last bits.
    """
    same = functools.partial(agree, rounding=COMPLEX_TOO) if rounded else operator.eq
    function = function_of(code, arguments(), then)
    futurized = fx.futurize(function)
    args = tuple(arguments().values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(function, args)
        for _ in range(2):
            actual = outcome(futurized, args)
            if not same(simple(actual[0]), simple(expected[0])) or actual[1] != expected[1]:
                return Verdict(code, False, False, f"{actual}\nis not\n{expected}\n{futurized.explain()}")
        if expected[0][0] == "value":
            with np.errstate(all="ignore"):
                types = [kinds(each(*arguments().values())) for each in (futurized, function)]
            if types[0] != types[1]:
                return Verdict(code, False, False, f"{types[0]} instead of {types[1]}\n{futurized.explain()}")
        staged = is_staged(futurized, args)
        graph = futurized.graph(*args) if staged is True and expected[0][0] == "value" else None
    return Verdict(code, True, staged, "" if staged is True else futurized.explain(), graph)
