"""The driver of local rewrites: one walk over a graph that rebuilds it, keeping effects and their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from futurex.tree.aval import Aval
from futurex.tree.dims import Symbol, UnknownDimension
from futurex.tree.graph import Graph, rebuilt, topological
from futurex.tree.node import Node, Place, build, dimensions_of, symbols_of
from futurex.tree.record import record
from futurex.tree.source import at

Rule = Callable[[Node], Node | None]
Maker = Callable[[Mapping[Node, Node]], Node]
_FINISHED = frozenset((
    "fused", "fused_reduction", "fused_store", "fused_join", "row_products", "rank_update", "spectral_region",
))  # fmt: skip
_MOST_STEPS = 64  # far more than any chain of rules that fire on one node; a loop among rules ends here


def rewrite(graph: Graph, rule: Rule, makers: Mapping[Node, Maker] | None = None) -> Graph:
    """Rebuild the graph with ``rule(node)`` applied to every node, until it returns None or gives nothing usable.

    A replacement is taken only if it has the node's abstract value and keeps every effect the node depends on. It reads
    extents that only the run knows from nodes of the graph: those that defined them may stand around it.
    ``makers`` make some nodes of the graph themselves, from the new form of those before them.
    """
    with dimensions_of(graph.params) as shown:
        walk = _Walk(rule, makers or {}, shown)
        # Ids grow with creation: inputs come before users, and effects in program order.
        for node in sorted(graph.nodes, key=lambda node: node.id):
            walk.visit(node)
    outs = [walk.new[node] for node in graph.outs]
    return graph if outs == list(graph.outs) else Graph(graph.params, outs, graph.name)


def until_stable(graph: Graph, rule: Rule) -> Graph:
    """Repeat :func:`rewrite` until nothing changes, for rules that make work for each other."""
    for _ in range(_MOST_STEPS):
        after = rewrite(graph, rule)
        if after is graph:
            break
        graph = after
    return graph


def is_effect(node: Node) -> bool:
    """True for a node that must run once, in program order (inputs of a graph are marked so but compute nothing)."""
    return node.op != "param" and node.record.effect


@dataclass
class _Walk:
    rule: Rule
    makers: Mapping[Node, Maker]
    shown: dict[Symbol, Place]
    new: dict[Node, Node] = field(default_factory=dict)
    behind_effect: set[Node] = field(default_factory=set)
    effect_moved: bool = False

    def visit(self, node: Node) -> None:
        inputs = [self.new[source] for source in node.inputs]
        if node in self.makers:
            with at(node.src):
                made = self.makers[node](self.new)
            self.effect_moved |= made is not node and any(each.acts for each in (made, *made.inputs))
        else:
            made = self._effect(node, inputs) if is_effect(node) else self._pure(node, inputs)
        self.new[node] = made
        self._show(made)
        if is_effect(node) or any(source in self.behind_effect for source in made.inputs):
            self.behind_effect.add(made)

    def _effect(self, node: Node, inputs: Sequence[Node]) -> Node:
        """Once an effect is made anew, all behind it are too: ids keep telling the program order."""
        if not self.effect_moved and tuple(inputs) == node.inputs:
            return node
        self.effect_moved = True
        return build(node.record, tuple(inputs), node.attrs, node.aval, node.src)

    def _pure(self, node: Node, inputs: Sequence[Node]) -> Node:
        made = rebuilt(node, inputs)
        if not made.inputs and made.op in ("param", "const"):
            return made
        first = self._show(made)
        with at(node.src):
            for _ in range(_MOST_STEPS):
                try:
                    other = self.rule(made)
                except UnknownDimension:  # nothing in this graph shows an extent that the new node would need
                    break
                if other is None or other is made or other.aval != made.aval or self._loses_effect(made, other):
                    break
                made = other
        for symbol in first:
            del self.shown[symbol]
        return self._kept_in_order(node, made) if node.acts else made

    def _kept_in_order(self, node: Node, made: Node) -> Node:
        """Of a branch or loop with effects inside: like those, it is made anew behind one that was."""
        if self.effect_moved and made is node:
            made = build(node.record, node.inputs, node.attrs, node.aval, node.src)
        self.effect_moved |= made is not node
        return made

    def _show(self, node: Node) -> list[Symbol]:
        """Note the extents that a node is the first to show; where their definer is in the graph, that is asked."""
        first = []
        if not (isinstance(node.aval, Aval) and node.aval.static):
            for symbol, place in symbols_of(node):
                if symbol not in self.shown:
                    source, axis = symbol.definer or (None, None)
                    self.shown[symbol] = (self.new[source], axis) if source in self.new else place
                    first.append(symbol)
        return first

    def _loses_effect(self, node: Node, other: Node) -> bool:
        if not any(source in self.behind_effect for source in node.inputs):
            return False
        return bool(_effects(node) - _effects(other))


def _effects(node: Node) -> set[Node]:
    return {each for each in topological((node,)) if is_effect(each)}


def map_subgraphs(function: Callable[[Graph], Graph]) -> Rule:
    """A rule that applies ``function`` to the sub-graphs of control flow (regions are finished and stay)."""

    def rule(node: Node) -> Node | None:
        if node.op in _FINISHED or not any(isinstance(value, Graph) for value in node.attrs.values()):
            return None
        attrs = {name: function(value) if isinstance(value, Graph) else value for name, value in node.attrs.items()}
        same = all(attrs[name] == node.attrs[name] for name in attrs)
        return None if same else build(record(node.op), node.inputs, attrs, node.aval, node.src)

    return rule


def users_of(graph: Graph) -> dict[Node, list[Node]]:
    """For every node of the graph, the nodes that read it (one entry per input position)."""
    users: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
    for node in graph.nodes:
        for source in node.inputs:
            users[source].append(node)
    return users
