"""A function's tree with calls of itself as one loop: a machine with a stack.

The tree is cut behind every call of itself, and where a branch or loop that holds such calls ends. A part is a segment;
the loop's body chooses the one whose number is next. A call keeps what the caller needs afterwards in its row of the
stack, with the number of the segment that goes on, and begins at segment 0 one row higher; a return finds that number
in the row below. What belongs to a segment is computed when it runs, as late as possible.

This is the conversion to continuations as data of Reynolds, *Definitional interpreters for higher-order programming
languages* (1972), on trees instead of text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.frontend.closing import close
from futurex.frontend.control.values import coerce, zeros
from futurex.frontend.errors import Escape
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import fresh, new_array
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, const, param

ENDED, TOO_DEEP = -1, -2  # numbers of no segment
ROUND = "round"  # the place where a loop begins its next round
_NUMBER = Aval((), np.dtype(np.int64))
Key = tuple[np.dtype[Any], tuple[int, ...]]  # which stack: the dtype and shape of its entries
Place = tuple[Key, int]  # and which of its columns
RETURN: Place = (_NUMBER.dtype, ()), 0  # where a row keeps who goes on; in the last row, which nobody uses, nobody does
_CALLED = object()  # stands for the results of a call that has just returned


def run(graph: Graph, starts: Sequence[Node], free: Sequence[Node], depth: int) -> tuple[list[Node], Node]:
    """The results of ``graph(*starts, *free)``, and whether it made fewer than ``depth`` calls inside each other.

    Among its nodes are calls of itself, ``recur``, which take other values for ``starts`` and return its outputs.
    """
    widths: dict[Key, int] = {}
    while True:
        machine = _Machine(graph, len(starts), depth, widths)
        built = machine.build(starts, free)
        if built is not None:
            return built
        widths = machine.widths


@dataclass
class _State:
    """What a round starts with, or leaves behind: numbers of segment and row, arguments, results, and the stacks."""

    segment: Node
    row: Node
    args: list[Node]
    results: list[Node]
    stacks: list[Node]

    def nodes(self) -> list[Node]:
        return [self.segment, self.row, *self.args, *self.results, *self.stacks]

    def like(self, nodes: Sequence[Node]) -> _State:
        a, r = 2 + len(self.args), 2 + len(self.args) + len(self.results)
        return _State(nodes[0], nodes[1], list(nodes[2:a]), list(nodes[a:r]), list(nodes[r:]))


@dataclass
class _Frame:
    """A graph that is being run, the values known in it, and where the graph stands: a node of another frame."""

    graph: Graph
    known: dict[Node, Any]
    parent: _Frame | None = None
    node: Node | None = None
    path: tuple[Any, ...] = ()

    def copy(self) -> _Frame:
        """A frame of its own, and those around it: branches do not see what others have computed."""
        return replace(self, known=dict(self.known), parent=self.parent and self.parent.copy())

    @property
    def frames(self) -> list[_Frame]:
        """The frame and those around it."""
        return [self, *(self.parent.frames if self.parent is not None else ())]

    @property
    def is_round(self) -> bool:
        return self.node is not None and self.node.op == "loop"

    def needed(self, inside: Node | None) -> list[Node]:
        """What is known and read by what the frame has still to compute. ``inside``: the node that is under way."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = [*self.graph.outs, *(self.graph.params[len(self.graph.outs) :] if self.is_round else ())]
        while stack:
            node = stack.pop()
            source = node.inputs[0] if node.op == "item" else node
            if node in seen or node.op == "const" or source is inside or self.known.get(source) is _CALLED:
                continue
            seen.add(node)
            if node in self.known or source in self.known:
                found[node] = None
            else:
                stack += node.inputs
        return list(found)

    def value(self, node: Node) -> Node:
        """A node's value here and now."""
        stack = [node]
        while stack:
            each = stack[-1]
            if each in self.known or each.op == "const":
                stack.pop()
            elif each.op == "item" and isinstance(self.known.get(each.inputs[0]), tuple):
                self.known[each] = self.known[each.inputs[0]][each.attrs["index"]]
            elif missing := [source for source in each.inputs if source not in self.known and source.op != "const"]:
                stack += missing
            else:
                self.known[each] = rebuilt(each, [self.known.get(source, source) for source in each.inputs])
        found: Node = self.known.get(node, node)
        return found


@dataclass
class _Segment:
    """Where the code goes on, and what is kept of what is known there: how many frames up, which node, and where."""

    frame: _Frame
    is_round: bool
    kept: list[tuple[int, Node, Place]]


class _Machine:
    """``widths``: how many columns each stack needs, found while the segments are made; ``given``: what they have."""

    def __init__(self, graph: Graph, n_args: int, depth: int, given: dict[Key, int]) -> None:
        self.graph, self.n_args, self.depth = graph, n_args, depth
        self.given = given
        self.widths: dict[Key, int] = {RETURN[0]: 1}
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.segments: list[_Segment] = []
        self.fixed: set[Node] = set()
        self.cuts: dict[int, list[Node]] = {}

    def build(self, starts: Sequence[Node], free: Sequence[Node]) -> tuple[list[Node], Node] | None:
        """The loop that runs the machine; None where its stacks turn out to need more columns than were given."""
        types = [node.aval for node in (*self.graph.params[: self.n_args], *self.graph.outs)]
        stacks = [Aval((self.depth, width, *shape), dtype) for (dtype, shape), width in self.given.items()]
        with current().scope() as scope:
            params = [param(aval, "machine") for aval in (_NUMBER, _NUMBER, *types, *stacks)]
            n = 2 + self.n_args
            m = n + len(self.graph.outs)
            state = _State(params[0], params[1], params[2:n], params[n:m], params[m:])
            self.fixed = set(free)
            first = _Frame(self.graph, dict(zip(self.graph.params, [*state.args, *free], strict=True)))
            self.segments.append(_Segment(first, False, []))
            after = self._dispatch(0, state).nodes()
            test = emit("greater_equal", state.segment, const(np.int64(0)))
        if self.widths != self.given:
            return None
        (tests, body), outside = close([[test], after], [params, params], scope.start, ["test", "body"])
        begin = [const(np.int64(0)), const(np.int64(0)), *starts, *(zeros(aval) for aval in types[self.n_args :])]
        begin += [apply("full", const(aval.dtype.type(ENDED)), shape=aval.shape, dtype=aval.dtype) for aval in stacks]
        outs = emit_many("loop", *begin, *outside, test=tests, body=body, tape=())
        return outs[n:m], emit("equal", outs[0], const(np.int64(ENDED)))

    # -- segments ----------------------------------------------------------------------------------------------------

    def _dispatch(self, number: int, state: _State) -> _State:
        """Segment ``number`` or a later one, whichever is next."""
        if number == len(self.segments):
            return state
        is_next = emit("equal", state.segment, const(np.int64(number)))
        return self._choose(
            is_next, state, lambda: self._segment(number, state), lambda: self._dispatch(number + 1, state)
        )

    @staticmethod
    def _choose(test: Node, state: _State, then: Callable[[], _State], orelse: Callable[[], _State]) -> _State:
        with current().scope() as scope:
            pairs = list(zip(then().nodes(), orelse().nodes(), strict=True))
        differ = [k for k, (a, b) in enumerate(pairs) if a is not b]
        if not differ:
            return state.like([a for a, _ in pairs])
        sides = [[pairs[k][side] for k in differ] for side in (0, 1)]
        (first, second), outside = close(sides, [[], []], scope.start, ["then", "else"])
        outs = dict(zip(differ, emit_many("cond", test, *outside, then=first, orelse=second), strict=True))
        return state.like([outs.get(k, a) for k, (a, _) in enumerate(pairs)])

    def _segment(self, number: int, state: _State) -> _State:
        segment = self.segments[number]
        frame = segment.frame.copy()
        for level, node, place in segment.kept:
            frame.frames[level].known[node] = self._kept(state, place, node.aval)
        for each in frame.frames:
            for node, value in each.known.items():
                if value is _CALLED:
                    each.known[node] = tuple(state.results)
        return self._round(frame, state) if segment.is_round else self._walk(frame, state)

    def _place(self, frame: _Frame, name: Any, state: _State, moving: Sequence[Node] = ()) -> tuple[int, _State]:
        """The number of the segment that goes on here, and the state with what it needs kept in the current row.

        ``moving``: what may have another value each time that this place is reached, although it is fixed this time.
        """
        path = (*frame.path, name)
        if path not in self.numbers:
            self.numbers[path] = len(self.segments)
            self.segments.append(self._new_segment(frame, name is ROUND, set(moving)))
        number = self.numbers[path]
        stacks = list(state.stacks)
        for level, node, (key, column) in self.segments[number].kept:
            if column < self.given.get(key, 0):
                value = frame.frames[level].value(node)
                self._keep(stacks, state.row, (key, column), value)
        return number, replace(state, stacks=stacks)

    def _new_segment(self, frame: _Frame, is_round: bool, moving: set[Node]) -> _Segment:
        kept: list[tuple[int, Node, Place]] = []
        used: dict[Key, int] = {RETURN[0]: 1}
        chain: list[_Frame] = []
        inside = None
        for level, each in enumerate(frame.frames):
            known = {
                node: () if isinstance(value, tuple) else value  # what is done is not done again
                for node, value in each.known.items()
                if value is _CALLED or isinstance(value, tuple)
            }
            for node in each.graph.params if is_round and not level else each.needed(inside):
                value = each.value(node)
                source = node.inputs[0] if node.op == "item" else node
                if (value in self.fixed or value.op == "const") and not {node, source} & moving:
                    known[node] = value
                    continue
                key = value.dtype, value.shape
                kept.append((level, node, (key, used.setdefault(key, 0))))
                used[key] += 1
            chain.append(replace(each, known=known))
            inside = each.node
        for inner, outer in itertools.pairwise(chain):
            inner.parent = outer
        for key, width in used.items():
            self.widths[key] = max(width, self.widths.get(key, 0))
        return _Segment(chain[0], is_round, kept)

    def _keep(self, stacks: list[Node], row: Node, place: Place, value: Node) -> None:
        key, column = place
        where = list(self.given).index(key)
        rows = new_array(stacks[where])
        rows[fresh(row), column] = fresh(coerce(value, Aval(value.shape, value.dtype)))
        stacks[where] = rows._node

    def _kept(self, state: _State, place: Place, aval: Aval) -> Node:
        key, column = place
        if column >= self.given.get(key, 0):
            return zeros(aval)  # how wide the stacks must be is still to be found
        rows = new_array(state.stacks[list(self.given).index(key)])
        return coerce(rows[fresh(state.row), column]._node, aval)

    # -- what a segment does -----------------------------------------------------------------------------------------

    def _walk(self, frame: _Frame, state: _State) -> _State:
        """Go on in a frame up to its next cut, or to its end."""
        node = self._next_cut(frame)
        if node is None:
            return self._finish(frame, state)
        if node.op == "recur":
            return self._call(frame, node, state)
        if node.op == "cond":
            return self._branches(frame, node, state)
        if node.op != "loop" or any(map(self._is_cut, node.attrs["test"].nodes)):
            raise Escape(f"a recursion inside of {node.op}", "only branches and bodies of loops may hold the call")
        body = node.attrs["body"]
        inputs = [frame.value(source) for source in node.inputs]
        known = dict(zip(body.params, inputs, strict=True))
        return self._jump(_Frame(body, known, frame, node, (*frame.path, node)), ROUND, state)

    def _next_cut(self, frame: _Frame) -> Node | None:
        found = self.cuts.get(id(frame.graph))  # equal graphs have nodes of their own
        if found is None:
            found = self.cuts[id(frame.graph)] = [node for node in frame.graph.nodes if self._is_cut(node)]
        return next((node for node in found if node not in frame.known), None)

    def _is_cut(self, node: Node) -> bool:
        inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
        return node.op == "recur" or any(any(map(self._is_cut, graph.nodes)) for graph in inner)

    def _call(self, frame: _Frame, node: Node, state: _State) -> _State:
        """The segment ends with a call of the function: what comes after it is another one."""
        args = [frame.value(source) for source in node.inputs]
        frame.known[node] = _CALLED
        number, state = self._place(frame, node, state)
        stacks = list(state.stacks)
        if self.given:
            self._keep(stacks, state.row, RETURN, const(np.int64(number)))
        row = emit("add", state.row, const(np.int64(1)))
        fits = emit("less", row, const(np.int64(self.depth - 1)))
        begin = emit("where", fits, const(np.int64(0)), const(np.int64(TOO_DEEP)))
        return replace(state, segment=begin, row=row, args=args, stacks=stacks)

    def _jump(self, frame: _Frame, name: Any, state: _State, moving: Sequence[Node] = ()) -> _State:
        moving = frame.graph.params if name is ROUND else moving
        number, state = self._place(frame, name, state, moving)
        return replace(state, segment=const(np.int64(number)))

    def _branches(self, frame: _Frame, node: Node, state: _State) -> _State:
        test, *inputs = [frame.value(source) for source in node.inputs]

        def branch(name: str) -> Callable[[], _State]:
            graph = node.attrs[name]
            known = dict(zip(graph.params, inputs, strict=True))
            return lambda: self._walk(_Frame(graph, known, frame.copy(), node, (*frame.path, node, name)), state)

        return self._choose(test, state, branch("then"), branch("orelse"))

    def _round(self, frame: _Frame, state: _State) -> _State:
        """The test of a loop, then another round or what comes after it."""
        assert frame.parent is not None
        assert frame.node is not None
        outer, loop = frame.parent, frame.node
        values = [frame.known[node] for node in frame.graph.params]
        test = _Frame(loop.attrs["test"], dict(zip(loop.attrs["test"].params, values, strict=True)))
        carried = tuple(values[: len(frame.graph.outs)])

        def leave() -> _State:
            return self._walk(replace(outer, known=outer.known | {loop: carried}), state)

        return self._choose(test.value(test.graph.outs[0]), state, lambda: self._walk(frame.copy(), state), leave)

    def _finish(self, frame: _Frame, state: _State) -> _State:
        """A graph has ended: the next round of a loop, what comes after a branch, or a return."""
        outs = [frame.value(node) for node in frame.graph.outs]
        if frame.parent is None or frame.node is None:
            row = emit("subtract", state.row, const(np.int64(1)))
            state = replace(state, row=row, results=outs)
            return replace(state, segment=self._kept(state, RETURN, _NUMBER))
        if frame.is_round:
            known = frame.known | dict(zip(frame.graph.params, outs, strict=False))
            return self._jump(replace(frame, known=known), ROUND, state)
        outer = frame.parent
        outer.known[frame.node] = tuple(outs)
        if self._next_cut(outer) is None:
            return self._walk(outer, state)
        return self._jump(outer, (frame.node, "after"), state, [frame.node])
