"""Branches and loops as basic blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise, looking, streams, values
from futurex.kernels.loops.arrays import Array, Extent, Opaque, Place, Size, most, text
from futurex.kernels.loops.delivery import WHOLE, is_made
from futurex.kernels.loops.order import Placed, overwrites
from futurex.kernels.loops.streams import Stream
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.scalar import memory_type
from futurex.passes.counters import counter
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Value = Scalar | Array | Stream
_BOOL = np.dtype(bool)


def cond(e: Emitter, placed: Placed, inputs: list[Value]) -> list[Value]:
    f, node = e.function, placed.node
    truth = values.converted(f, e.scalar(inputs[0]), _BOOL)
    passed = [
        replace(value, owned=value.owned and k + 1 in placed.consumes) if isinstance(value, Array) else value
        for k, value in enumerate(inputs[1:])
    ]
    labels = f.label(), f.label(), f.label()
    f.branch(truth, labels[0], labels[1])
    pieces, results, before, ends = [], [], e.drawn, list[streams.Drawn]()
    for name, label in zip(("then", "orelse"), labels, strict=False):
        e.drawn = dict(before)
        with f.captured() as lines:
            f.place(label)
            results.append(e.graph(node.attrs[name], passed))
            pieces.append((lines, f.block))
        streams.check(e, *results[-1])
        ends.append(e.drawn)
    streams.merged(e, before, ends)
    consumed = {value.place for value in passed if isinstance(value, Array) and value.owned}
    targets = _targets(e, placed, results, consumed)
    for (lines, block), result in zip(pieces, results, strict=True):
        f.lines.extend(lines)
        f.block = block
        for target, value in zip(targets, result, strict=True):
            _deliver(e, target, value)
        f.jump(labels[2])
    f.place(labels[2])
    for value in (value for result in results for value in result):
        e.release(value)
    return [_taken(e, target) for target in targets]


class _Target:
    """Where both branches leave a result: a place on the stack, or an array whose extents stand on the stack."""

    def __init__(self, e: Emitter, one: Value, two: Value, aval: Any, home: Array | None) -> None:
        f = e.function
        self.cell = self.array = self.stream = self.begin = None
        self.aval = aval
        self.extents: dict[int, str] = {}
        if isinstance(one, Stream):
            self.stream = streams.joined(e, one, two)
            return
        if isinstance(one, Opaque) or isinstance(two, Opaque):
            raise Unsupported("a branch that gives objects")
        if isinstance(one, Scalar) or isinstance(two, Scalar):
            if not (isinstance(one, Scalar) and isinstance(two, Scalar)):
                raise Unsupported("a number in one branch and an array in the other")
            self.cell = f.variable(memory_type(supported(aval.dtype)))
            return
        shape: list[Size] = []
        for axis, (first, second) in enumerate(zip(one.shape, two.shape, strict=True)):
            if first == second and isinstance(first, int):
                shape.append(first)
                continue
            self.extents[axis] = f.variable("i64")
            shape.append(Extent("", max(most(first), most(second))))
        if home is None:
            self.array = e.fresh(tuple(shape), aval.dtype)
            return
        self.array = replace(home, shape=tuple(shape), offset="0")
        if (one.offset, two.offset) != ("0", "0"):
            self.begin = f.variable("i64")


def _targets(
    e: Emitter, placed: Placed, results: Sequence[Sequence[Value]], consumed: set[Place]
) -> list[_Target]:
    used: set[Place] = set()
    targets = []
    for aval, one, two in zip(placed.node.aval, *results, strict=True):
        home = None
        if (
            isinstance(one, Array)
            and isinstance(two, Array)
            and one.place == two.place
            and one.place in consumed
            and one.place not in used
            and one.capacity == two.capacity
            and e.is_afloat(one)
            and e.is_afloat(two)
        ):
            used.add(one.place)
            home = replace(one, owned=True)
        targets.append(_Target(e, one, two, aval, home))
    return targets


def _deliver(e: Emitter, target: _Target, value: Value) -> None:
    f = e.function
    if isinstance(value, Stream):
        return
    if isinstance(value, Scalar):
        assert target.cell is not None
        f.store(value.dtype, value.register, target.cell)
        return
    assert target.array is not None
    for axis, cell in target.extents.items():
        f.do(f"store i64 {text(value.shape[axis])}, ptr {cell}, align 8")
    if target.begin is not None:
        f.do(f"store i64 {value.offset}, ptr {target.begin}, align 8")
    if value.place == target.array.place:
        return
    elementwise.assign(e, replace(target.array, shape=value.shape, owned=False), value)


def _taken(e: Emitter, target: _Target) -> Value:
    f = e.function
    if target.stream is not None:
        return target.stream
    if target.cell is not None:
        return Scalar(f.load(target.aval.dtype, target.cell), target.aval.dtype, target.aval.weak)
    assert target.array is not None
    shape = list(target.array.shape)
    for axis, cell in target.extents.items():
        shape[axis] = Extent(f.emit(f"load i64, ptr {cell}, align 8"), most(shape[axis]))
    begin = "0" if target.begin is None else f.emit(f"load i64, ptr {target.begin}, align 8")
    return replace(target.array, shape=tuple(shape), offset=begin)


def loop(e: Emitter, placed: Placed, inputs: list[Value]) -> list[Value]:
    """A loop inside the graph: arrays that others read are copied first, those of open extents into room to grow."""
    body = placed.node.attrs["body"]
    count = len(body.outs)
    carry: list[Value] = []
    for k, value in enumerate(inputs[:count]):
        if not isinstance(value, Array):
            carry.append(value)
        elif body.params[k].aval.static:
            carry.append(e.owned(value, k in placed.consumes))
        else:
            carry.append(value)
    for value in carry:
        e.hold(value)
    results = rounds(e, placed.node, carry, inputs[count:], placed.consumes)
    for value in carry:
        if isinstance(value, Array):
            e.memory.settle(value.place)
    return results


class _TooSmall(Exception):
    """A round gives an array that may need more room than its home has."""

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self.number = number
        self.shape = shape


class _Afloat(Exception):
    """A round takes rows out in front of an array: where it begins is another place in each."""

    def __init__(self, number: int) -> None:
        self.number = number


def rounds(
    e: Emitter, node: Node, carry: Sequence[Value], consts: Sequence[Value], granted: Collection[int] = ()
) -> list[Value]:
    """The loop itself; array carries of known extents are owned, and hold the results in the end.

    ``granted``: the carries whose memory may be taken. An array that grows and grows gets all the room that there is.
    """
    if node.attrs["tape"]:
        raise Unsupported("a loop that keeps every round")
    if streams.are_handed((*carry, *consts)):
        raise Unsupported("a loop over objects")
    streams.check(e, *carry, *consts)
    drawn = dict(e.drawn)
    shared = [value.borrowed() if isinstance(value, Array) else value for value in consts]
    room = {
        k: value.capacity
        for k, value in enumerate(carry)
        if isinstance(value, Array) and not node.attrs["body"].params[k].aval.static
    }
    tried: Counter[int] = Counter()
    afloat: set[int] = set()
    while True:
        before = len(e.function.lines), e.function.block
        try:
            return _Rounds(e, node, carry, room, granted, afloat).emit(shared)
        except (_TooSmall, _Afloat) as found:
            del e.function.lines[before[0] :]
            e.function.block, e.drawn = before[1], dict(drawn)
            if isinstance(found, _Afloat):
                afloat.add(found.number)
                continue
            room[found.number] = tuple(map(max, room[found.number], found.shape))
            rows = node.attrs["body"].params[found.number].aval.shape
            again = tried[found.number]
            tried[found.number] += 1
            if tried[found.number] == _GROWTHS:
                raise Unsupported("an array that grows from round to round") from None
            if again and type(rows[0]) is not int and all(type(extent) is int for extent in rows[1:]):
                room[found.number] = (e.most_rows(rows[1:]), *room[found.number][1:])


_GROWTHS = 4
"""Tries after which an array still needs more room than it had."""


class _Rounds:
    """What a loop carries: numbers in cells, arrays in homes, open extents in cells beside them."""

    def __init__(
        self, e: Emitter, node: Node, carry: Sequence[Value], room: dict[int, tuple[int, ...]],
        granted: Collection[int], afloat: Collection[int],
    ) -> None:  # fmt: skip
        self.e, self.node = e, node
        self.begins: dict[int, str] = {}
        self.homes: list[Array | None] = []
        self.cells: list[str | None] = []
        self.extents: list[dict[int, str]] = []
        self.weak: list[bool] = []
        self.streams = {k: value.index for k, value in enumerate(carry) if isinstance(value, Stream)}
        if len(set(self.streams.values())) < len(self.streams):
            raise Unsupported("a loop that carries a random stream twice")
        f = e.function
        for k, value in enumerate(carry):
            self.weak.append(isinstance(value, Scalar) and value.weak)
            self.extents.append({})
            if isinstance(value, Scalar):
                self.homes.append(None)
                cell = f.variable(memory_type(supported(value.dtype)))
                f.store(value.dtype, value.register, cell)
                self.cells.append(cell)
                continue
            self.cells.append(None)
            if isinstance(value, Stream):
                self.homes.append(None)
                continue
            if k not in room:
                self.homes.append(value)
                continue
            known = node.attrs["body"].params[k].aval.shape
            self.extents[k] = {axis: f.variable("i64") for axis, size in enumerate(known) if type(size) is not int}
            shape = tuple(Extent("", n) if axis in self.extents[k] else n for axis, n in enumerate(room[k]))
            taken = k in granted and value.owned and value.capacity == room[k] and e.is_afloat(value)
            home = replace(value, shape=shape, offset="0") if taken else e.fresh(shape, value.dtype)
            if k in afloat or (taken and value.offset != "0"):
                self.begins[k] = f.variable("i64")
            e.hold(home)
            self.homes.append(home)
            if taken:
                self._settle(k, value, value.offset)
            else:
                self._bring(k, value)

    def _bring(self, k: int, value: Array) -> None:
        """Put an array of open extents into its home."""
        home = self.homes[k]
        assert home is not None
        for axis, size in enumerate(value.shape):
            if axis not in self.extents[k] and size != home.shape[axis]:
                raise Unsupported("an array whose extents change from round to round")
        if any(one > two for one, two in zip(value.capacity, home.capacity, strict=True)):
            raise _TooSmall(k, value.capacity)
        self._settle(k, value, "0")
        elementwise.assign(self.e, replace(home, shape=value.shape, owned=False), value)

    def _settle(self, k: int, value: Array, begin: str) -> None:
        """Note the extents of an array, and where it begins in its home."""
        for axis, cell in self.extents[k].items():
            self.e.function.do(f"store i64 {text(value.shape[axis])}, ptr {cell}, align 8")
        if k in self.begins:
            self.e.function.do(f"store i64 {begin}, ptr {self.begins[k]}, align 8")

    def _now(self) -> list[Value]:
        f, found = self.e.function, list[Value]()
        for k, (home, cell) in enumerate(zip(self.homes, self.cells, strict=True)):
            if k in self.streams:
                found.append(streams.now(self.e, self.streams[k]))
                continue
            if home is None:
                assert cell is not None
                dtype = self.node.attrs["body"].params[k].aval.dtype
                found.append(Scalar(f.load(dtype, cell), dtype, self.weak[k]))
                continue
            shape = list(home.shape)
            for axis, place in self.extents[k].items():
                shape[axis] = Extent(f.emit(f"load i64, ptr {place}, align 8"), home.capacity[axis])
            begin = f.emit(f"load i64, ptr {self.begins[k]}, align 8") if k in self.begins else home.offset
            found.append(replace(home, shape=tuple(shape), offset=begin))
        return found

    def emit(self, shared: Sequence[Value]) -> list[Value]:
        e, f = self.e, self.e.function
        head, body, done, before = f.label(), f.label(), f.label(), f.label()
        f.jump(before)
        f.place(before)
        lines, position = f.lines, len(f.lines)
        unchanged = {value.place for value in shared if isinstance(value, Array)}
        with e.entering(unchanged - {home.place for home in self.homes if home is not None}) as entrance:
            now = self._rounds(shared, head, body, done)
        lines[position:position] = entrance.lines
        return now

    def _rounds(self, shared: Sequence[Value], head: str, body: str, done: str) -> list[Value]:
        e, f, node = self.e, self.e.function, self.node
        looks = looking.Looks(e, node)
        looks.begin(head)
        outside = {index: draw for index, draw in e.drawn.items() if index not in self.streams.values()}
        now = self._now()
        read = [value.borrowed() if isinstance(value, Array) else value for value in now]
        (truth,) = e.graph(node.attrs["test"], [*read, *shared])
        looks.branch(values.converted(f, e.scalar(truth), _BOOL), body, done)
        f.place(body)
        looks.take()
        counting = counter(node)
        if counting is not None and counting[1]:
            number = now[counting[0]]
            if isinstance(number, Scalar):
                ends = sorted((counting[1][0], counting[1][-1]))
                f.ranges[number.register] = range(ends[0], ends[1] + 1)
        results = e.graph(self._body(), [*now, *shared])
        if any(e.drawn[index] != draw for index, draw in outside.items()):
            raise Unsupported("a round that draws from a stream which it does not carry")
        streams.check(e, *results)
        self._move(now, results)
        for value, cell in zip(results, self.cells, strict=True):
            if cell is not None:
                number = e.scalar(value)
                f.store(number.dtype, number.register, cell)
            e.release(value)
        f.jump(head)
        f.place(done)
        return [
            streams.now(e, self.streams[k]) if k in self.streams else value for k, value in enumerate(now)
        ]  # fmt: skip

    def _body(self) -> Graph:
        """The body, with new arrays of what is carried stored into the old ones, if nobody else does: a round that
        computes them can write them there at once."""
        body: Graph = self.node.attrs["body"]
        taken = {source for each in body.nodes for source in map(each.inputs.__getitem__, overwrites(each))}
        outs = list(body.outs)
        for k, (own, value) in enumerate(zip(body.params, body.outs, strict=False)):
            known = self.homes[k] is not None and own.shape and not self.extents[k] and value.aval == own.aval
            if known and own not in taken and own not in body.outs and is_made(value):
                outs[k] = apply("store", own, value, chain=WHOLE, mode="set")
        return Graph(body.params, outs, body.name) if outs != list(body.outs) else body

    def _move(self, now: Sequence[Value], results: Sequence[Value]) -> None:
        """Every array that a round leaves elsewhere goes to where the next one looks for it."""
        e = self.e
        moves = []
        for k, (home, value) in enumerate(zip(now, results, strict=True)):
            if k in self.streams and isinstance(value, Stream) and value.index == self.streams[k]:
                continue
            if isinstance(value, Opaque):
                raise Unsupported("a loop that carries objects")
            if isinstance(home, Scalar) and isinstance(value, Scalar):
                continue
            if not (isinstance(home, Array) and isinstance(value, Array)):
                raise Unsupported("a number in one round and an array in the next")
            if not self.extents[k] and home.shape != value.shape:
                raise Unsupported("an array whose extents change from round to round")
            if self.extents[k] and home.place == value.place and home.capacity == value.capacity and e.is_afloat(value):
                if value.offset != "0" and k not in self.begins:
                    raise _Afloat(k)
                self._settle(k, value, value.offset)
                continue
            if home.place != value.place or home.shape != value.shape or not e.is_home(value):
                moves.append((k, value))
        moved = {own.place for k, _ in moves if (own := self.homes[k]) is not None}
        staged = [(k, e.copied(value) if value.place in moved else value) for k, value in moves]
        for k, value in staged:
            target = self.homes[k]
            assert target is not None
            if self.extents[k]:
                self._bring(k, value)
            else:
                elementwise.assign(e, target, value)
