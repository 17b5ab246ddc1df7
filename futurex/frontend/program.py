"""Programs: a function traced once for given arguments, as a flat graph that a runtime or a cluster can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from futurex.frontend import calls
from futurex.frontend.control.either import as_one
from futurex.frontend.entering import enter_arguments
from futurex.frontend.errors import Escape, Retrace, StagingError, unstaged
from futurex.frontend.held import Guard
from futurex.frontend.keys import argument_paths, foreign_argument
from futurex.frontend.lists import refuse_lists
from futurex.frontend.outside import fingerprint
from futurex.frontend.staging import is_futurized
from futurex.frontend.texts import without_values
from futurex.frontend.trace import Capture, Trace, start
from futurex.frontend.tracebacks import folds
from futurex.frontend.tracer import node_of
from futurex.frontend.variants import Learned, begun_again
from futurex.ops.streams import GENERATORS
from futurex.passes.precision import lower_precision
from futurex.runtime.plan import Plan
from futurex.tree.aval import Literal
from futurex.tree.dims import UnknownDimension
from futurex.tree.graph import Graph
from futurex.tree.node import Node, const
from futurex.tree.pytree import Structure, flatten, unflatten


@dataclass(frozen=True, repr=False)
class Program:
    """``graph`` maps the array and float leaves of the arguments to the leaves of the result, in order.

    ``traced`` are the positions of those leaves among all leaves of ``(args, kwargs)``; the others are part of the
    program.
    """

    graph: Graph
    traced: tuple[int, ...]
    arguments: Structure
    result: Structure
    paths: tuple[str, ...]
    n_results: int
    guards: tuple[Guard, ...] = ()
    outside: tuple[tuple[Callable[[], Any], Literal], ...] = ()
    """Where arrays from outside the function are found, and what they held: constants of the graph."""

    def __repr__(self) -> str:
        return f"<Program {self.graph.name}({', '.join(self.paths)}): {len(self.graph.nodes)} nodes>"

    def valid(self) -> bool:
        """Are the globals and closures that the trace took as constants still as they were?"""
        try:
            return all(guard.holds(fingerprint) for guard in self.guards) and all(
                Literal(read()) == held for read, held in self.outside
            )
        except (Exception, Escape):
            return False

    def flatten(self, /, *args: Any, **kwargs: Any) -> list[Any]:
        """The graph's inputs for arguments of the traced structure. Raises TypeError if the structure differs."""
        leaves, structure = flatten((args, kwargs))
        if structure != self.arguments:
            raise TypeError(f"{self.graph.name} was lowered for other arguments: {self.arguments}, not {structure}")
        return [leaves[position] for position in self.traced]

    def unflatten(self, outs: list[Any]) -> Any:
        """The result from the graph's outputs."""
        return unflatten(self.result, outs[: self.n_results])


@folds
def lower(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Program:
    """Trace ``function`` for these arguments into a program.

    Only shapes and dtypes of arrays matter, so arrays may be uninitialised stand-ins. Arrays from outside the function
    are constants of the program, with what they hold now. Raises StagingError, at the user's line, where the function
    cannot be staged as one graph of its arguments.

    >>> import numpy as np, futurex as fx
    >>> program = fx.lower(lambda x, y: {"sum": x + y}, np.ones(3), np.ones(3))
    >>> program.unflatten(program.graph(*program.flatten(np.ones(3), np.ones(3))))
    {'sum': array([2., 2., 2.])}
    """
    plain, precision = (function.plain, function.precision) if is_futurized(function) else (function, "")
    if not callable(plain):
        raise TypeError(f"lower takes a function, not {type(plain).__name__}")
    leaves, structure = flatten((args, kwargs))
    learned = Learned()
    while True:
        trace = learned.trace(plain)
        try:
            with start(trace):
                program = _lowered(plain, trace, leaves, structure)
            if not precision:
                return program
            return replace(program, graph=lower_precision(program.graph, precision))
        except Escape as found:
            escape = found
        except Retrace:
            escape = begun_again()
        except UnknownDimension as error:
            escape = unstaged(error)
        except Exception as error:
            without_values(error)
            raise
        if not learned.more(trace, escape):
            escape.foreign = foreign_argument(plain, leaves, structure)
            raise escape.as_error() from None


def _lowered(function: Callable[..., Any], trace: Trace, leaves: list[Any], structure: Structure) -> Program:
    paths = argument_paths(function, structure)
    entered = enter_arguments(leaves, paths, share=False)
    args, kwargs = unflatten(structure, entered.values)
    result_leaves, result = flatten(calls.call(function, args, kwargs))
    refuse_lists(result_leaves, "a lowered function")
    result_leaves = list(map(as_one, result_leaves))
    for leaf in result_leaves:
        if leaf is None or isinstance(leaf, str | bytes):
            alone = leaf is None and len(result_leaves) == 1
            do = "return what it computes: does a `return` lack?" if alone else "leave it out of the result"
            raise Escape(f"{trace.name} returns {leaf!r}", "the results of a program are arrays and numbers", do)
    for cell, position in entered.positions.items():
        if cell.written:
            raise _written(f"{trace.name} writes into its argument {paths[position]}", cell.value)
    outs: list[Node] = [node_of(leaf) for leaf in result_leaves]
    trace.settle_failing(outs)
    outside = list(trace.captures.values())
    graph = Graph([*entered.params, *(each.node for each in outside)], [*outs, *trace.effects], trace.name)
    constants = [_constant(each, graph) for each in outside]
    if outside:
        graph = Graph(entered.params, graph.inline([*entered.params, *constants]), trace.name)
    held = [(each.read, node.attrs["value"]) for each, node in zip(outside, constants, strict=True) if each.read]
    traced = tuple(entered.positions.values())
    return Program(
        graph, traced, structure, result, tuple(paths[k] for k in traced), len(outs), tuple(trace.guards.values()),
        tuple(held),
    )


def _constant(capture: Capture, graph: Graph) -> Node:
    """The constant that an array from outside is. Raises StagingError for what is written, and for generators."""
    if type(capture.array) in GENERATORS:
        what, why = "numbers of a random generator from outside", "a program has the same inputs wherever it runs"
        do = "fx.random with a key that is an argument (fx.fit gives one to a loss with a parameter `key`)"
        escape = Escape(what, why, do)
        lines = (node.src for node in graph.nodes if capture.node in node.inputs)
        escape.source, escape.reached = next(lines, None) or escape.source, None
        raise escape.as_error()
    if capture.tracer._cell.written:
        raise _written(f"{graph.name} writes into an array from outside", capture.tracer._cell.value)
    return const(capture.array.result() if hasattr(type(capture.array), "__fx_future__") else capture.array)


def _written(what: str, value: Node) -> StagingError:
    """What to raise where an array that is not the program's own has been written, at the line that wrote it last."""
    escape = Escape(what, "a program returns new arrays", "write into a copy, x.copy(), and return that")
    escape.source, escape.reached = value.src or escape.source, None
    return escape.as_error()


@folds
def precompile(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Have a call compiled without running it; every kernel is there when this returns.

    So is the one function that a plan over small arrays becomes: the first calls measure which way is faster.

    A first call does not wait for a compiler: what is not in the cache on disk NumPy computes until its code is there
    (``f.profile()`` counts such runs as ``interpreted``). That makes no difference to the results of operations that
    give NumPy's bits; functions such as ``exp`` may differ in the last bits between the two. This, or
    ``FUTUREX_COMPILE=wait`` for a whole process, makes every call compute alike. ``fx.fit`` and clusters always wait.

    Of arrays only shapes and dtypes matter. Raises TypeError for what is not futurized, and StagingError at the user's
    line where the function cannot be staged.

    >>> import numpy as np, futurex as fx
    >>> f = fx.futurize(lambda x: (x * 2 + 1).sum())
    >>> fx.precompile(f, np.zeros(1000))
    >>> float(f(np.ones(1000)))
    3000.0
    """
    if not is_futurized(function):
        raise TypeError(f"precompile takes a futurized function, not {type(function).__name__}; write fx.futurize(f)")
    variant = function.trace(*args, **kwargs)
    plan = variant.plan
    plan.complete() if isinstance(plan, Plan) else plan.prepare(wait=True)
    if (plain_calls := variant.meanwhile) is not None:
        plain_calls.end()
