"""Reverse mode: walk a graph backwards and let every op's rule add to the cotangents of its inputs.

The method is the standard adjoint accumulation (Griewank & Walther, *Evaluating Derivatives*, 2nd ed., section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from futurex.autodiff.idle import without_idle
from futurex.autodiff.silence import silent
from futurex.ops.tapes import Tape, added, plain, zeros_for
from futurex.tree.activity import carries, influenced
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Symbol, UnknownDimension, same
from futurex.tree.graph import Graph
from futurex.tree.node import Node, Place, apply, build, const, dimensions_of, hidden_symbols, param, size_node
from futurex.tree.record import Meaning, NotDifferentiable, plain_attrs, without_sizes
from futurex.tree.source import at


def cotangents(
    outs: Sequence[Node], seeds: Sequence[Node | None], wrt: Sequence[Node], order: Sequence[Node],
    known: Mapping[Symbol, Place] = MappingProxyType({}),
) -> list[Node]:  # fmt: skip
    """The cotangents of ``wrt`` for given cotangents of ``outs``; zeros where an output does not depend on it.

    ``order`` lists the nodes with inputs before users; ``known`` says who shows extents that these do not.
    """
    with dimensions_of(order, known):
        return _cotangents(outs, seeds, wrt, order)


def _cotangents(
    outs: Sequence[Node], seeds: Sequence[Node | None], wrt: Sequence[Node], order: Sequence[Node]
) -> list[Node]:
    needed = influenced(order, wrt)
    sums: dict[Node, Any] = {}
    for node, seed in zip(outs, seeds, strict=True):
        if seed is not None and node in needed:
            _accumulate(sums, node, seed)
    for node in reversed(order):
        if node not in sums or node not in needed or not node.inputs:
            continue
        with at(node.src):
            _propagate(node, sums, needed)
    return [sums[node] if node in sums else zeros_for(node) for node in wrt]


def _propagate(node: Node, sums: dict[Node, Any], needed: set[Node]) -> None:
    g = sums[node]
    if node.op == "item":
        source = node.inputs[0]
        parts = sums.setdefault(source, [None] * len(source.aval))
        index = node.attrs["index"]
        parts[index] = g if parts[index] is None else added(parts[index], g)
        return
    if isinstance(node.aval, Aval) and not node.aval.inexact:
        return
    wanted = [source in needed and carries(source) for source in node.inputs]
    for source, cotangent, want in zip(node.inputs, _apply_rule(node, g, wanted), wanted, strict=True):
        if cotangent is not None and want:
            _accumulate(sums, source, cotangent)


def _apply_rule(node: Node, g: Any, needed: Sequence[bool]) -> Sequence[Node | None]:
    rec = node.record
    parts = rec.decompose
    g = tuple(g) if isinstance(g, list) else g
    if rec.vjp is not None:
        inputs = without_sizes(node.inputs, node.attrs)
        extra = {"pullback": _of_part, "needed": needed} if rec.structured else {}
        try:
            cots = rec.vjp(g, node, *inputs, **extra, **plain_attrs(node.attrs))
        except NotDifferentiable as error:
            raise _at_its_line(error, node) from None
        if isinstance(cots, Meaning):
            parts = cots.parts
        elif cots is not NotImplemented:
            named: list[Any] = [_at_its_line(c, node) if isinstance(c, NotDifferentiable) else c for c in cots]
            return (*named, *(None for _ in node.inputs[len(inputs) :]))
    found = NotImplemented if parts is None else _through_parts(parts, node, g, needed)
    if found is not NotImplemented:
        return found
    if not any(needed) or node.op in _PIECEWISE_CONSTANT:
        return [None] * len(node.inputs)
    where = f" at {node.src}: {node.src.text()}" if node.src else ""
    what = node.attrs["call"] if node.op == "native" else node.op
    raise NotDifferentiable(
        f"{what} has no derivative{where}; use fx.stop_gradient on its input if it should count as constant"
    )


def _at_its_line(error: NotDifferentiable, node: Node) -> NotDifferentiable:
    """A rule's refusal with the user's line; those of the parts of a loop or branch have theirs."""
    if node.record.structured or not node.src or str(node.src) in str(error):
        return error
    return NotDifferentiable(f"{error} (at {node.src}: {node.src.text()})")


_PIECEWISE_CONSTANT = frozenset({"round", "floor", "ceil", "trunc", "rint", "floor_divide"})
"""Ops whose derivative is zero almost everywhere."""


def _through_parts(parts: Callable[..., Any], node: Node, g: Any, needed: Sequence[bool]) -> Any:
    """The derivative of the simpler ops that the node stands for."""
    own, params, outer = stand_ins(node)
    sizes = shown_to(own, params, outer)
    with dimensions_of(own, sizes):
        given = without_sizes(own, node.attrs)
        result = parts(*given, **plain_attrs(node.attrs))
    if result is NotImplemented:
        return NotImplemented
    inner = Graph(params, result if isinstance(result, tuple) else [result])
    seeds = list(g) if isinstance(g, tuple) else [g]
    of = [k for k, seed in enumerate(seeds) if seed is not None and carries(inner.outs[k])]
    wrt = [k for k, want in enumerate(needed) if want]
    back = pullback(inner, [params.index(own[k]) for k in wrt], of, sizes)
    found = dict(zip(wrt, back.inline([*outer, *(seeds[k] for k in of)]), strict=True))
    return [found.get(k) for k in range(len(node.inputs))]


def stand_ins(node: Node) -> tuple[list[Node], list[Node], list[Node]]:
    """Fresh inputs for an op, constants as they are: all of them, those that are parameters, what these stand for."""
    own = [source if source.op == "const" else param(source.aval) for source in node.inputs]
    pairs = [(mine, source) for mine, source in zip(own, node.inputs, strict=True) if mine is not source]
    return own, [mine for mine, _ in pairs], [source for _, source in pairs]


@dataclass(frozen=True)
class Rule:
    """The vjp rule of one node as a closed graph: cotangents of the inputs ``wrt`` from those of the results ``of``."""

    graph: Graph
    outer: list[Node]
    seeds: list[Node]
    of: list[int]
    wrt: list[int]
    sizes: dict[Symbol, Place]  # the extents that are inputs of the graph by themselves


def rule_of(node: Node, wrt: Sequence[int]) -> Rule:
    """The rule of a node for some of its inputs; those to which nothing flows are left out."""
    own, params, outer = stand_ins(node)
    twin = build(node.record, tuple(own), node.attrs, node.aval, node.src)
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    seeds = [param(plain(aval), "g") if aval.inexact else None for aval in avals]
    given = tuple(seeds) if isinstance(node.aval, tuple) else seeds[0]
    sums: dict[Node, Any] = {}
    sizes = shown_to([*own, twin], params, outer)
    with dimensions_of([*own, twin], sizes):
        cots = _apply_rule(twin, given, [k in wrt for k in range(len(own))])
        flowing = [k for k in wrt if cots[k] is not None]
        for k in flowing:
            _accumulate(sums, own[k], cots[k])  # type: ignore[arg-type]
    live = [seed for seed in seeds if seed is not None]
    graph = Graph([*params, *live], [sums[own[k]] for k in flowing], f"{node.op}_vjp")
    return Rule(graph, outer, live, [k for k, seed in enumerate(seeds) if seed is not None], flowing, sizes)


def shown_to(nodes: Sequence[Node], params: list[Node], outer: list[Node]) -> dict[Symbol, Place]:
    """Extents of these nodes that they do not show, but those around their graph do, as more parameters of that."""
    shown: dict[Symbol, Place] = {}
    for symbol in hidden_symbols(nodes):
        with suppress(UnknownDimension):  # then a rule that needs it says so
            size = size_node(Dim.of(symbol))
            outer.append(size)
            params.append(param(size.aval, "n"))
            shown[symbol] = (params[-1], None)
    return shown


def _accumulate(sums: dict[Node, Any], node: Node, cotangent: Node) -> None:
    if isinstance(cotangent, NotDifferentiable):
        raise cotangent
    if not same(cotangent.shape, node.aval.shape):
        if node.aval.static and cotangent.aval.static:
            raise AssertionError(f"the rule of a user of {node!r} gave a cotangent of shape {cotangent.shape}")
        cotangent = apply("sum_to", cotangent, shape=node.aval.shape)
    cotangent = fitted(cotangent, node.aval)
    sums[node] = cotangent if node not in sums else added(sums[node], cotangent)


def fitted(derivative: Node, aval: Aval) -> Node:
    """A derivative in the dtype of the value it belongs to; a real value has a real one."""
    if isinstance(aval, Tape) or (derivative.dtype == aval.dtype and not derivative.aval.weak):
        return derivative
    if derivative.dtype.kind == "c" and aval.dtype.kind != "c":
        derivative = apply("real", derivative)
    return apply("cast", derivative, dtype=aval.dtype)


def pullback(
    graph: Graph, wrt: Sequence[int], of: Sequence[int] | None = None,
    known: Mapping[Symbol, Place] = MappingProxyType({}),
) -> Graph:  # fmt: skip
    """The graph ``(*inputs, *cotangents of the outputs numbered of) -> cotangents of the inputs numbered wrt``.

    ``of`` is by default every output that can have a derivative; ``known`` says which inputs are extents.
    """
    if of is None:
        of = [k for k, node in enumerate(graph.outs) if carries(node)]
    outs = [graph.outs[k] for k in of]
    seeds = [param(plain(node.aval), "g") for node in outs]
    cots = cotangents(outs, seeds, [graph.params[k] for k in wrt], graph.nodes, known)
    return Graph([*graph.params, *seeds], cots, f"{graph.name}_pullback")


def _of_part(graph: Graph, wrt: Sequence[int], of: Sequence[int] | None = None) -> Graph:
    """The pullback of a sub-graph, which runs elsewhere too."""
    return without_idle(silent(pullback(graph, wrt, of)))


def grad(graph: Graph, wrt: Sequence[int]) -> Graph:
    """The gradient of a graph whose first output is a real scalar."""
    full = value_and_grad(graph, wrt)
    return Graph(full.params, full.outs[len(graph.outs) :], f"grad_{graph.name}")


def _remedy(returned: Aval | None) -> str:
    """What to do about a result that has no gradient."""
    if returned is None:
        return "Does a `return` lack?"
    if returned.shape != ():
        return "Reduce it (`.sum()`, `.mean()`)"
    if returned.dtype.kind == "c":
        return "Take its `.real` or `abs`, or, of an analytic function, `holomorphic=True`"
    return "Return a float" if returned.dtype.kind in "biu" else "Leave out `holomorphic=True`"


def value_and_grad(graph: Graph, wrt: Sequence[int], *, holomorphic: bool = False) -> Graph:
    """All outputs of the graph, then the gradients of its first output.

    Raises TypeError if that output is not a real floating scalar (a complex one if the graph is ``holomorphic``).
    """
    out = graph.outs[0] if graph.outs else None
    kind, name = ("c", "complex") if holomorphic else ("f", "real")
    if out is None or out.aval.shape != () or out.aval.dtype.kind != kind:
        raise TypeError(
            f"grad needs a function that returns a {name} scalar; {graph.name} returns "
            f"{out.aval if out is not None else None!r}. {_remedy(None if out is None else out.aval)}"
        )
    wanted = [graph.params[k] for k in wrt]
    seed = const(np.ones((), out.dtype)[()])
    cots = cotangents(graph.outs, [seed, *(None for _ in graph.outs[1:])], wanted, graph.nodes)
    return Graph(graph.params, [*graph.outs, *cots], f"value_and_grad_{graph.name}")
