"""Tapes of loops whose rounds are few and known become arrays, and the scans that read them become loops.

A tape is a list that grows round by round, which only the interpreter of plans can keep. In an array of known length a
round stores what it carries and the way back loads it: two loops like any other, which are compiled as one function
each, and with the rest of a small graph as one.

Where only the run knows how many rounds there are, code that may give up does the same with arrays that have room for
many (:func:`open_tapes`): a store outside of its array fails, and the plan with its lists runs. Nothing fills such an
array, and what no round writes is memory by name only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.ops.tapes import Tape
from futurex.passes.counters import shift
from futurex.passes.dead import may_raise
from futurex.passes.rewrite import Maker, is_effect, map_subgraphs, rewrite, users_of
from futurex.passes.round_products import sums_of_products
from futurex.passes.rounds import rounds_of
from futurex.passes.tapes import sequences_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, apply, build, const, item, param

MOST_ROUNDS = 20_000
LARGEST, LARGEST_MADE, LONGEST, WIDEST = 1 << 14, 1 << 16, 1 << 22, 1 << 15
"""Elements of what a round begins with and of what it makes for the way back alone, of what is kept of all rounds, and
of what a round computes; larger arrays are kept as they are, without a copy."""
ROOM, FEWEST_ROUNDS = 1 << 20, 32
"""Elements of all tapes of a loop, and of a scan, of which only the run knows the length; and the rounds that there
must be room for."""
_NUMBER = 1 << 20  # of the first of them, other than those of other passes
_INDEX = Aval((), np.dtype(np.int64))
_AT = (("index", (("d", 0),)),)


def stack_tapes(graph: Graph) -> Graph:
    """The graph with such loops and scans."""
    return _rewritten(graph, _lengths(graph), is_open=False)


def open_tapes(graph: Graph) -> Graph:
    """The graph, those inside of it included, with arrays for tapes of any length, for code that may give up."""
    if not has_tapes(graph):
        return graph
    graph = rewrite(graph, map_subgraphs(open_tapes))
    return _rewritten(graph, _rooms(graph), is_open=True)


def has_tapes(graph: Graph) -> bool:
    """Is there a loop with tapes, inside of others too?"""
    inner = (value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph))
    return any(node.op == "loop" and node.attrs["tape"] for node in graph.nodes) or any(map(has_tapes, inner))


@dataclass
class _Stacks:
    """Loops and scans that are rewritten, how many rounds there is room for, and, by what is made of them, how many
    have been made, where only the run knows."""

    room: dict[Node, int]
    is_open: bool
    users: dict[Node, list[Node]]
    rounds: dict[Node, Node] = field(default_factory=dict)
    results: dict[Node, list[Callable[[], Node]]] = field(default_factory=dict)
    """By loops and scans, what makes each of their results."""
    number: itertools.count[int] = field(default_factory=lambda: itertools.count(_NUMBER))

    def empty(self, values: Sequence[Aval], count: int) -> list[Node]:
        """What tapes begin as: every element that is read has been written."""
        wholes = [Aval((count, *each.shape), each.dtype) for each in values]
        return [apply("room", shape=each.shape, dtype=each.dtype, number=next(self.number)) for each in wholes]

    def is_read(self, node: Node, index: int) -> bool:
        """Does anything read this result?"""
        return any(each.attrs["index"] == index and self.users[each] for each in self.users[node])


def _rewritten(graph: Graph, lengths: dict[Node, int], *, is_open: bool) -> Graph:
    if not lengths:
        return graph
    users = users_of(graph)
    for out in graph.outs:
        users[out].append(out)
    stacks = _Stacks(lengths, is_open, users)
    makers: dict[Node, Maker] = {}
    for node in graph.nodes:
        if node in lengths:
            make = _loop_made if node.op == "loop" else _scan_made
            makers[node] = functools.partial(make, node, stacks)
        elif node.op == "item" and node.inputs[0] in lengths:
            makers[node] = functools.partial(_result, node, stacks)
    return rewrite(graph, lambda node: None, makers)


def _lengths(graph: Graph) -> dict[Node, int]:
    """The loops and scans that can be rewritten, and how many rounds they make."""
    found: dict[Node, int] = {}
    for node in graph.nodes:  # sources come before users
        if node.op not in ("loop", "scan") or not _is_simple(node, WIDEST):
            continue
        if node.op == "loop" and node.attrs["tape"]:
            count = rounds_of(node, MOST_ROUNDS)
        elif node.op == "scan" and node.attrs["length"] is None:
            counts = {found.get(xs.inputs[0]) if xs.op == "item" else None for xs in sequences_of(node)}
            count = counts.pop() if len(counts) == 1 else None
        else:
            continue
        if count and all(each.static and each.size <= LONGEST // count for each in _kept(node)):
            found[node] = count
    return _together(graph, found)


def _rooms(graph: Graph) -> dict[Node, int]:
    """The loops and scans that can be rewritten, and for how many rounds each loop and its scans have room."""
    loops: dict[Node, Node] = {}
    widths: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op not in ("loop", "scan") or not _is_simple(node, None):
            continue
        if node.op == "loop" and node.attrs["tape"]:
            loops[node] = node
        elif node.op == "scan" and node.attrs["length"] is None:
            sources = {loops.get(xs.inputs[0]) if xs.op == "item" else None for xs in sequences_of(node)}
            loop = sources.pop() if len(sources) == 1 else None
            if loop is None:
                continue
            loops[node] = loop
        else:
            continue
        width = sum(max(each.size, 1) for each in _kept(node) if each.static)
        widths[loops[node]] = max(width, widths.get(loops[node], 1))
    rooms: dict[Node, int] = {}
    for loop, width in widths.items():
        count, room = rounds_of(loop, MOST_ROUNDS), ROOM // width
        if (count or FEWEST_ROUNDS) <= room:
            rooms[loop] = count or room
    return _together(graph, {node: rooms[loop] for node, loop in loops.items() if loop in rooms})


def _kept(node: Node) -> list[Aval]:
    """What a loop or scan keeps of a round."""
    return [aval.element for aval in node.aval if isinstance(aval, Tape)]


def _together(graph: Graph, found: dict[Node, int]) -> dict[Node, int]:
    """Those of the loops and scans whose tapes nothing but such loops and scans makes and reads."""
    users, returned = users_of(graph), set(graph.outs)
    found = {node: count for node, count in found.items() if _all_fit(node)}
    while True:
        wrong = [
            node for node in found
            if any(
                isinstance(each.aval, Tape) and (each in returned or not all(user in found for user in users[each]))
                for each in users[node]
            ) or (node.op == "scan" and any(xs.inputs[0] not in found for xs in sequences_of(node)))
        ]  # fmt: skip
        if not wrong:
            return found
        for node in wrong:
            del found[node]


def _all_fit(node: Node) -> bool:
    """Are the values that it has on tape small ones?"""
    if node.op == "scan":
        return all(_fits(each, LARGEST) for each in _kept(node))
    own, idle = node.attrs["body"].params, _idle(node)
    return all(_fits(own[k].aval, LARGEST_MADE if k in idle else LARGEST) for k in node.attrs["tape"])


def _fits(element: Aval, largest: int) -> bool:
    return element.static and element.dtype.kind in "biufc" and element.size <= largest


def _idle(loop: Node) -> set[int]:
    """What a loop carries from round to round for its tape alone."""
    test, body, tape = loop.attrs["test"], loop.attrs["body"], loop.attrs["tape"]
    read = {source for each in (*body.nodes, *test.nodes) for source in each.inputs} | set(body.outs)
    return {k for k in tape if body.params[k] not in read and test.params[k] not in read}


def _is_begun(loop: Node, k: int, stacks: _Stacks) -> bool:
    """Does a scan read from this tape what the first round began with, and not only what rounds left behind them?"""
    index = len(loop.attrs["body"].outs) + loop.attrs["tape"].index(k)
    tapes = [each for each in stacks.users[loop] if each.attrs["index"] == index]
    return any(_reads_first(scan, xs, stacks) for xs in tapes for scan in stacks.users[xs])


def _reads_first(scan: Node, tape: Node, stacks: _Stacks) -> bool:
    body, n = scan.attrs["body"], scan.attrs["n_carry"]
    elements = {body.params[n + j] for j, xs in enumerate(sequences_of(scan)) if xs is tape}
    others = [out for k, out in enumerate(body.outs) if k >= n or _comes_from_behind(scan, k, stacks) is None]
    return not elements.isdisjoint((*others, *(source for node in body.nodes for source in node.inputs)))


def _counted(loop: Node) -> dict[int, tuple[int, int]]:
    """The numbers that a loop carries and has on tape only to count with them: where they begin, and by how much. What
    they are in a round its number tells."""
    body, found = loop.attrs["body"], {}
    for k in loop.attrs["tape"]:
        step, start = shift(body.outs[k], body.params[k]), loop.inputs[k]
        if step is not None and start.op == "const" and type(start.value) is int:
            found[k] = start.value, step
    return found


def _is_simple(node: Node, widest: int | None) -> bool:
    """Is it made of small arrays only, so that it is compiled, and without prints and draws? Sizes that only the run
    knows are named by who shows them, which another loop would not. Who compiles it looks at sizes where ``widest`` is
    None."""
    if not node.is_static:
        return False
    graphs = [value for value in node.attrs.values() if isinstance(value, Graph)]
    if node.op == "scan" and widest is not None:
        graphs = [_without_sums(node)]
    while graphs:
        graph = graphs.pop()
        for each in (*graph.params, *graph.nodes):
            avals = each.aval if isinstance(each.aval, tuple) else (each.aval,)
            acts = is_effect(each) and (each.op != "check" or widest is not None)
            if acts or any(isinstance(a, Tape) or not a.static for a in avals):
                return False
            if widest is not None and _is_computed(each) and any(a.size > widest for a in avals):
                return False
            graphs += [value for value in each.attrs.values() if isinstance(value, Graph)]
    return True


def _without_sums(scan: Node) -> Graph:
    """The body of a scan, with the factors of what its rounds add up as products in the place of the sums."""
    body: Graph = scan.attrs["body"]
    sums = sums_of_products(body.params[: scan.attrs["n_carry"]], body.outs, body.params)
    outs = [sums[k].rest if k in sums else out for k, out in enumerate(body.outs)]
    factors = [each for total in sums.values() for each in total.kept]
    return Graph(body.params, [*outs, *factors], body.name)


def _is_computed(node: Node) -> bool:
    """Does a round compute all of it? What it is given, views of that, and what it stores a part in may be larger."""
    return node.op not in ("param", "store") and node.record.view is None


def _result(node: Node, stacks: _Stacks, new: Mapping[Node, Node]) -> Node:
    return stacks.results[node.inputs[0]][node.attrs["index"]]()


def _loop_made(node: Node, stacks: _Stacks, new: Mapping[Node, Node]) -> Node:
    """The loop that stores what it carries out of a round, behind what it began with: a round began with the row of its
    number. What it carries for that alone it does not carry; it begins with a row where somebody reads that, or where
    there may be no round."""
    test, body, count = node.attrs["test"], node.attrs["body"], stacks.room[node]
    n, inputs = len(body.outs), [new[source] for source in node.inputs]
    own = [param(each.aval, each.attrs["name"]) for each in body.params]
    outs = body.inline(own)
    idle, counted = _idle(node), _counted(node)
    carried = [k for k in range(n) if k not in idle or k in counted]
    tape = [k for k in node.attrs["tape"] if k not in counted]
    place = param(_INDEX, "round")
    wholes = stacks.empty([own[k].aval for k in tape], count + 1)
    tapes = [param(each.aval, "tape") for each in wholes]
    behind = place + const(np.int64(1))
    more = [apply("store", whole, outs[k], behind, chain=_AT, mode="set") for whole, k in zip(tapes, tape, strict=True)]
    begun = [
        apply("store", whole, inputs[k], const(np.int64(0)), chain=_AT, mode="set")
        if k in carried or (stacks.is_open and stacks.is_read(node, k)) or _is_begun(node, k, stacks) else whole
        for whole, k in zip(wholes, tape, strict=True)
    ]  # fmt: skip
    params = [*(own[k] for k in carried), *tapes, place, *own[n:]]
    made = _loop(
        node, [*(inputs[k] for k in carried), *begun, const(np.int64(0)), *inputs[n:]],
        Graph(params, test.inline(own), test.name),
        Graph(params, [*(outs[k] for k in carried), *more, behind], body.name),
    )  # fmt: skip
    first = len(carried)
    stacks.rounds[made] = item(made, first + len(tape))
    total = stacks.rounds[made] if stacks.is_open else const(np.int64(count))

    def carry(k: int) -> Node:
        if k in carried:
            return item(made, carried.index(k))
        return _element(item(made, first + tape.index(k)), total, own[k].aval)

    stacks.results[node] = [
        *(functools.partial(carry, k) for k in range(n)),
        *(
            functools.partial(item, made, first + tape.index(k)) if k in tape else functools.partial(_nothing, k)
            for k in node.attrs["tape"]
        ),
    ]
    return made


def _counts(xs: Node) -> tuple[int, int] | None:
    """How the elements of a tape count, if they do."""
    loop = xs.inputs[0]
    if loop.op != "loop":
        return None
    return _counted(loop).get(loop.attrs["tape"][xs.attrs["index"] - len(loop.attrs["body"].outs)])


def _number(place: Node, start: int, step: int) -> Node:
    """What a number that counts is in the round of a place."""
    number = apply("python_scalar", place, kind="i")
    number = number if step == 1 else number * const(step)
    return number if start == 0 else number + const(start)


def _row_of(value: Node, numbers: Mapping[Node, int], given: Sequence[Node], count: int) -> int | None:
    """The first of the rows, in an array that a scan is given, that a value is one after the other in its rounds.
    ``numbers``: what goes up by one, and where it begins."""
    if value.op != "load" or value.attrs["chain"] != _AT or value.inputs[0] not in given:
        return None
    start = numbers.get(value.inputs[1])
    return start if start is not None and 0 <= start <= value.inputs[0].shape[0] - count else None


def _nothing(number: int) -> Node:
    """In the place of a tape that nobody keeps."""
    return const(np.int64(number))


def _scan_made(node: Node, stacks: _Stacks, new: Mapping[Node, Node]) -> Node:
    """The loop that goes over the rows of tapes. What rounds add to sums as products it only keeps the factors of."""
    body, n, n_xs, count = node.attrs["body"], node.attrs["n_carry"], node.attrs["n_xs"], stacks.room[node]
    inputs = [new[source] for source in node.inputs]
    own = [param(each.aval, each.attrs["name"]) for each in body.params]
    carry, elements, consts = own[:n], own[n : n + n_xs], own[n + n_xs :]
    counted = {j: known for j, xs in enumerate(sequences_of(node)) if (known := _counts(xs)) is not None}
    sequences = {
        j: param(inputs[n + j].aval, each.attrs["name"]) for j, each in enumerate(elements) if j not in counted
    }
    place = param(_INDEX, "round")

    def element(j: int, at: Node, aval: Aval) -> Node:
        return _number(at, *counted[j]) if j in counted else _element(sequences[j], at, aval)

    read = [element(j, place, each.aval) for j, each in enumerate(elements)]
    behind = {k: j for k in range(n) if (j := _comes_from_behind(node, k, stacks)) is not None}
    given = [
        element(behind[k], place + const(np.int64(1)), each.aval) if k in behind else each
        for k, each in enumerate(carry)
    ]
    rows = {read[j]: (n + j, 0) for j in sequences}
    rows |= {given[k]: (n + j, 1) for k, j in behind.items() if j in sequences}
    results = body.inline([*given, *read, *consts])
    sums = {} if stacks.is_open else sums_of_products(carry, results, [*own, *sequences.values(), place])
    for k, each in sums.items():
        results[k] = each.rest
    carried = [k for k in range(n) if k not in behind and not (k in sums and results[k] is carry[k])]
    kept = [*results[n:], *(given[k] for k in node.attrs["tape"])]
    factors = dict.fromkeys(each for total in sums.values() for each in total.kept)
    alone = not rows.keys() & set(topological((*results, *kept))) and may_raise(sequences_of(node)[0].inputs[0])
    numbers = {read[j]: start for j, (start, step) in counted.items() if step == 1}
    for factor in factors:
        if (row := _row_of(factor, numbers, consts, count)) is not None:
            rows[factor] = n + n_xs + consts.index(factor.inputs[0]), row
    stored = [*kept, *(each for each in factors if each not in rows)]
    wholes = stacks.empty([each.aval for each in stored], count)
    tapes = [param(each.aval, "tape") for each in wholes]
    more = [
        apply("store", whole, value, place, chain=_AT, mode="set") for whole, value in zip(tapes, stored, strict=True)
    ]
    rounds = _Rounds.of(node, stacks, new[sequences_of(node)[0].inputs[0]], place, alone)
    params = [*(carry[k] for k in carried), *tapes, place, *sequences.values(), *consts, *rounds.params]
    shown = [*(inputs[n + j] for j in sequences), *inputs[n + n_xs :]]
    made = _loop(
        node, [*(inputs[k] for k in carried), *wholes, rounds.first, *shown, *rounds.inputs],
        Graph(params, [rounds.goes_on], f"{body.name}_test"),
        Graph(params, [*(results[k] for k in carried), *more, rounds.next], body.name),
    )  # fmt: skip
    if stacks.is_open:
        stacks.rounds[made] = rounds.inputs[0]
    last = len(carried)

    def whole_of(value: Node) -> Node:
        if value not in rows:
            return item(made, last + stored.index(value, len(kept)))
        k, low = rows[value]
        return apply("load", inputs[k], chain=(("index", (("s", low, low + count, None),)),))

    def result(k: int) -> Node:
        begun = item(made, carried.index(k)) if k in carried else inputs[k]
        return sums[k].total(begun, whole_of) if k in sums else begun

    stacks.results[node] = [
        *(functools.partial(result, k) for k in range(n)),
        *(functools.partial(item, made, last + k) for k in range(len(kept))),
    ]
    return made


@dataclass
class _Rounds:
    """How a scan counts: what its rounds begin with, whether there is one more, and what it must be given for that."""

    first: Node
    goes_on: Node
    next: Node
    inputs: list[Node]
    params: list[Node]

    @staticmethod
    def of(scan: Node, stacks: _Stacks, loop: Node, place: Node, alone: bool) -> _Rounds:
        """``alone``: does the scan read nothing else of its loop, whose error would be missed without?"""
        count = stacks.room[scan]
        counted = loop in stacks.rounds and (stacks.is_open or alone)
        total = stacks.rounds[loop] if counted else const(np.int64(count))
        end = param(_INDEX, "rounds") if stacks.is_open else const(np.int64(count))
        inputs, params = ([total], [end]) if stacks.is_open else ([], [])
        if not scan.attrs["reverse"]:
            return _Rounds(const(np.int64(0)), place < end, place + np.int64(1), inputs, params)
        last = const(np.int64(count - 1)) if total.op == "const" else total - np.int64(1)
        goes_on = apply("greater_equal", place, const(np.int64(0)))
        return _Rounds(last, goes_on, place + np.int64(-1), inputs, params)


def _comes_from_behind(scan: Node, k: int, stacks: _Stacks) -> int | None:
    """Of which sequence does a scan carry the element from the round behind, beginning with what its loop ended with?
    That is the row behind the round's own."""
    body, n = scan.attrs["body"], scan.attrs["n_carry"]
    elements = list(body.params[n : n + scan.attrs["n_xs"]])
    if not scan.attrs["reverse"] or body.outs[k] not in elements or k in scan.attrs["tape"] or stacks.is_read(scan, k):
        return None
    j = elements.index(body.outs[k])
    xs, start = sequences_of(scan)[j], scan.inputs[k]
    loop = xs.inputs[0]
    if loop.op != "loop" or start.op != "item" or start.inputs[0] is not loop:
        return None
    taped = loop.attrs["tape"][xs.attrs["index"] - len(loop.attrs["body"].outs)]
    return j if start.attrs["index"] == taped else None


def _element(xs: Node, place: Node, aval: Aval) -> Node:
    value = apply("load", xs, place, chain=_AT)
    return apply("python_scalar", value, kind=aval.dtype.kind) if aval.weak else value


def _loop(node: Node, inputs: list[Node], test: Graph, body: Graph) -> Node:
    attrs: dict[str, Any] = {"test": test, "body": body, "tape": ()}
    loop = apply("loop", *inputs, **attrs)
    return build(loop.record, loop.inputs, attrs, loop.aval, node.src)
