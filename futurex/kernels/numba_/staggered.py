"""Rows that need several passes, one pass behind the other: while a row is read, those before it are computed and sent.

A pass that only reads memory and one that only computes take turns where a row goes through all of them before the next
one begins. Here every trip over a row's elements runs each pass, on a row of its own: the first pass on the newest row,
the last one on the oldest. Memory and the units that compute are busy at the same time, and results leave for
memory as they are made. What a pass hands on lies in a ring of as many places as there are rows on their way.

Where so many rows do not stay in the nearest cache, the last pass runs beside the first one of the next row, and what
is between them alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.numba_ import crossings, freely, nearest, pairwise, past
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.places import Elements, Values
from futurex.kernels.numba_.rowvalues import RowValues
from futurex.kernels.numba_.rowwise import LANES, TURN, Rows, abreast, shown
from futurex.kernels.numba_.scalar import memory_type, register_type
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import LONGEST_ROW, Level
from futurex.tree.node import Node

Dtype = np.dtype[Any]
NEAR = 12 * 1024
"""Bytes of a row up to which it is worth while."""
NEAREST = 16 * 1024
"""Bytes of the rows on their way up to which they stay in the nearest cache, beside what is asked for ahead."""
MOST_PASSES = 4
AHEAD, WIDE_AHEAD = 4 * 1024, 10 * 1024
"""Bytes that are asked for ahead, in all: the nearest cache holds the rows on their way, too; where it is wide."""
NEAR_BY, FARTHER = 1024, 12 * 1024
"""The same where few lines may be on their way to that: into it, and into the second one, which is all that results are
asked for into."""


def suits(sweep: Sweep, count: int) -> bool:
    """Does a kernel gain by this? Its passes are several, its reductions free, and its results those of the last one.

    Passes that compute little gain as long as rows on their way are few bytes.
    """
    reductions = [node for stage in range(sweep.stages) for node in sweep.reductions(stage)]
    full = [node for node in sweep.graph.outs if sweep.level[node] is Level.FULL]
    return (
        2 <= sweep.stages <= MOST_PASSES
        and TURN <= count <= NEAR // max(_sizes(sweep), default=1)
        and (sweep.approximate or _stay(sweep, count, 2))
        and not sweep.guarded
        and all(map(freely.suits, reductions))
        and all(sweep.stage[node] == sweep.stages - 1 for node in full)
    )


def _sizes(sweep: Sweep) -> list[int]:
    """Bytes of an element of each operand that has rows of its own."""
    return [each.node.dtype.itemsize for each in sweep.operands if all(sweep.mask(each))]


def _stay(sweep: Sweep, count: int, rows: int) -> bool:
    """Do so many rows stay in the nearest cache?"""
    return rows * count * sum(_sizes(sweep)) <= NEAREST


def trips(sweep: Sweep, count: int) -> list[dict[int, int]]:
    """What is done for each new row, in turns: of the passes that run together, how many rows behind it each is."""
    last = sweep.stages - 1
    if sweep.approximate or _stay(sweep, count, sweep.stages):
        return [{stage: stage for stage in range(sweep.stages)}]
    return [{0: 0, last: 1}, *({stage: 0} for stage in range(1, last))]


class _Pass(Elements):
    """The elements of one pass, at one place of its row: names end with the pass's number."""

    def __init__(self, sweep: Sweep, code: Code, stage: int) -> None:
        super().__init__(sweep, code)
        self.stage = stage
        self.asked: dict[Any, tuple[str, str]] = {}
        self.read_rows: dict[Operand, str] = {}
        self.loaded: dict[Operand, str] = {}
        self.common = self.scalars()

    def begin(self, place: str) -> None:
        self.place, self.values, self.loaded = place, dict(self.common), {}

    def named(self, name: str) -> str:
        return f"{name}.{self.stage}"

    def of_row(self, key: Any, dtype: Dtype) -> str:
        """A value that the whole row shares: a parameter."""
        return self.asked.setdefault(key, (register_type(dtype), self.named(f"%r{len(self.asked)}")))[1]

    def read(self, operand: Operand) -> str:
        dtype = operand.node.dtype
        if not self.sweep.mask(operand)[-1]:
            return self.of_row(operand, dtype)
        if operand not in self.loaded:
            name = self.named(f"%a{self.sweep.operands.index(operand)}.row")
            self.read_rows[operand] = name
            self.loaded[operand] = self.body.load(dtype, self.code.at(memory_type(dtype), name, self.place))
        return self.loaded[operand]

    def known(self, node: Node) -> str | None:
        if self.sweep.level[node] is Level.REDUCED:
            return self.of_row(node, node.dtype)
        if node in self.sweep.kept_values and self.sweep.stage[node] < self.stage:
            name = self.named(f"%k{self.sweep.kept_values.index(node)}")
            return self.body.load(node.dtype, self.code.at(memory_type(node.dtype), name, self.place))
        return None


@dataclass(frozen=True)
class _Trip:
    """A function that runs some passes over the elements of rows, which lie so many rows behind the newest; what it is
    given, and what of that are values of rows: (pass, name, what)."""

    name: str
    behind: dict[int, int]
    given: tuple[tuple[str, str], ...]
    asked: tuple[tuple[int, str, Any], ...]


class _Row(RowValues):
    """One row that is on its way; what was reduced of it lies in the ring."""

    def known(self, node: Node) -> str | None:
        return self.body.load(node.dtype, self.joins[node]) if node in self.joins else None


class Staggered(Rows):
    """The text of one kernel."""

    def __init__(self, sweep: Sweep, count: int, aside: bool, distant: bool = False) -> None:
        super().__init__(sweep, False, aside, distant and count * max(_sizes(sweep)) >= NEAR_BY)
        self.first: dict[Operand, int] = {}
        self.order = trips(sweep, count)
        self.places = 1 + max(max(trip.values()) for trip in self.order)

    def text(self, threaded: bool) -> str:
        made = []
        for trip in self.order:
            alone = [{stage: behind} for stage, behind in trip.items() if len(trip) > 1]
            made.append((self._trip(trip), [self._trip(each) for each in alone]))
        code = self._all_rows(made)
        return module(self.parameters, code, threaded, [*sorted(self.declared), *self.functions])

    # -- one trip over the elements of rows ----------------------------------------------------------------------------

    def _trip(self, behind: dict[int, int]) -> _Trip:
        sweep, last = self.sweep, self.sweep.stages - 1
        stages = list(behind)
        number = 1 + stages[0] if len(stages) == 1 else 0
        code = Code(1 + number)
        passes = [_Pass(sweep, code, stage) for stage in stages]
        running = freely.Running(code, [node for stage in stages for node in sweep.reductions(stage)])
        sent = self.aside if last in stages else []
        for k, node in enumerate(sent):
            code.run(f"%w{k} = alloca [{TURN} x {memory_type(node.dtype)}], align 64")

        def each(here: _Pass, place: str, slot: str, buffered: bool) -> None:
            here.begin(place)
            for node in sweep.reductions(here.stage):
                running.add(here.body, node, slot, here.terms(node))
            for node in sweep.crossings(here.stage):
                total = f"%c{sweep.crossed.index(node)}"
                crossings.add(here.body, node, total, place, here.terms(node))
            for k, node in enumerate(sweep.kept_values):
                if sweep.stage[node] == here.stage:
                    pointer = code.at(memory_type(node.dtype), here.named(f"%k{k}"), place)
                    here.body.store(node.dtype, here.computed(node), pointer)
            for node in sweep.results(here.stage):
                where, at = here.named(f"%o{sweep.graph.outs.index(node)}.row"), place
                if buffered and node in sent:
                    where, at = f"%w{sent.index(node)}", slot
                here.body.store(node.dtype, here.computed(node), code.at(memory_type(node.dtype), where, at))

        whole = code.do(f"and i64 %count, -{TURN}")
        with code.loop("0", whole, str(TURN)) as (block, _):
            mark = len(code.lines)
            for here in passes:
                with code.loop("0", str(TURN), lanes=LANES, abreast=abreast(sweep)) as (lane, _):
                    each(here, code.add(block, lane), lane, True)
            for k, node in enumerate(sent):
                kind = memory_type(node.dtype)
                row = f"%o{sweep.graph.outs.index(node)}.row.{last}"
                target = f"getelementptr inbounds {kind}, ptr {row}, i64 {block}"
                code.insert(past.sent(f".{k}", target, f"%w{k}", TURN * node.dtype.itemsize))
                self.declared.add(past.MARK)
            self._ask(code, passes, block, mark)
        with code.loop(whole, "%count") as (place, _):
            for here in passes:
                each(here, place, code.do(f"sub i64 {place}, {whole}"), False)
        for node in running.nodes:
            passes[0].body.store(node.dtype, running.finish(node), f"%j{self.joins.index(node)}")
        self.declared |= running.declared.union(*(here.body.intrinsics for here in passes))
        return self._made(code, passes, running.nodes, behind)

    def _ask(self, code: Code, passes: list[_Pass], block: str, mark: int) -> None:
        """Before line ``mark``: ask for what the passes that read an operand first will read, and for the lines of
        results that are not sent past the caches."""
        sweep, last = self.sweep, self.sweep.stages - 1
        for here in passes:
            for operand in here.read_rows:
                self.first.setdefault(operand, here.stage)
        body = code.lines[mark:]
        del code.lines[mark:]
        wanted = [
            (name, operand.node.dtype, False)
            for here in passes
            for operand, name in here.read_rows.items()
            if self._streams(operand) and self.first[operand] == here.stage
        ]
        wanted += [
            (here.named(f"%o{sweep.graph.outs.index(node)}.row"), node.dtype, True)
            for here in passes
            for node in sweep.results(here.stage)
            if here.stage == last and node not in self.aside
        ]
        for name, dtype, write in wanted:
            start = code.at(memory_type(dtype), name, block)
            most = NEAR_BY if self.distant else WIDE_AHEAD if nearest.wide() else AHEAD
            ahead, farther = most // len(wanted), FARTHER // len(wanted)
            for byte in range(0, TURN * dtype.itemsize, pairwise.LINE):
                if not (write and self.distant):
                    self._request(code, start, ahead + byte, write)
                if self.distant:
                    self._request(code, start, farther + byte, write, second=True)
        code.lines += body

    def _made(self, code: Code, passes: list[_Pass], reductions: Sequence[Node], behind: dict[int, int]) -> _Trip:
        sweep = self.sweep
        given = [("ptr", name) for here in passes for name in here.read_rows.values()]
        for here in passes:
            given += [
                ("ptr", here.named(f"%o{sweep.graph.outs.index(node)}.row")) for node in sweep.results(here.stage)
            ]
            given += [("ptr", here.named(f"%k{k}")) for k in range(len(sweep.kept_values))]
        given += [("ptr", f"%j{self.joins.index(node)}") for node in reductions]
        given += [("ptr", f"%c{k}") for k in range(len(sweep.crossed))]
        given += [(memory_type(scalar.dtype), f"%s{k}") for k, scalar in enumerate(sweep.scalars)]
        given += [each for here in passes for each in here.asked.values()]
        name = f"@trip{'.'.join(str(here.stage) for here in passes)}"
        self.functions += [
            f"define internal void {name}(i64 %count, {shown(given)}) noinline {{",
            *code.lines, "  ret void", "}", *code.notes,
        ]  # fmt: skip
        asked = tuple((here.stage, name, key) for here in passes for key, (_, name) in here.asked.items())
        return _Trip(name, behind, tuple(given), asked)

    # -- all rows ------------------------------------------------------------------------------------------------------

    def _all_rows(self, order: list[tuple[_Trip, list[_Trip]]]) -> Code:
        """``order``: the trips of each new row, and of those with several passes each one alone, for where there are no
        rows for all of them."""
        sweep = self.sweep
        code = Code()
        for k, node in enumerate(sweep.kept_values):
            size = self.places * (LONGEST_ROW + 3 * LANES)
            code.run(f"%k{k} = alloca [{size} x {memory_type(node.dtype)}], align 64")
        for k in range(len(self.joins)):
            code.run(f"%j{k} = alloca [{self.places} x i64], align 8")
        shared = Elements(sweep, code).scalars()
        stride = code.do(f"and i64 {code.add('%n', str(3 * LANES - 1))}, -{LANES}")
        with (
            self._shares(code) as (first, last, totals),
            code.loop(first, code.add(last, str(self.places - 1))) as (newest, _),
        ):
            for trip, alone in order:
                every = _within(code, newest, code.add(first, str(max(trip.behind.values()))), last)
                with _where(code, every):
                    self._advance(code, trip, newest, stride, shared, totals)
                for each in alone:
                    (behind,) = each.behind.values()
                    there = _within(code, code.do(f"sub i64 {newest}, {behind}"), first, last)
                    with _where(code, code.do(f"and i1 {there}, {code.do(f'xor i1 {every}, true')}")):
                        self._advance(code, each, newest, stride, shared, totals)
        if self.aside:
            code.run(past.FENCE)
        return code

    def _advance(
        self, code: Code, trip: _Trip, newest: str, stride: str, shared: Values, totals: dict[str, str]
    ) -> None:
        """Run passes on the rows that are theirs."""
        sweep = self.sweep
        names = dict(totals)
        rows: dict[int, _Row] = {}
        for stage, behind in trip.behind.items():
            row = code.do(f"sub i64 {newest}, {behind}")
            spot = code.do(f"urem i64 {row}, {self.places}")
            cells = {node: code.at("i64", f"%j{k}", spot) for k, node in enumerate(self.joins)}
            rows[stage] = _Row(self, code, row, shared, cells)
            names |= {f"{name}.{stage}": pointer for name, pointer in rows[stage].pointers.items()}
            for k, node in enumerate(sweep.graph.outs):
                if node in rows[stage].results:
                    names[f"%o{k}.row.{stage}"] = rows[stage].results[node]
            for k, node in enumerate(sweep.kept_values):
                kind = memory_type(node.dtype)
                names[f"%k{k}.{stage}"] = code.at(kind, f"%k{k}", code.multiply(spot, stride))
            own = {node: cells[node] for node in sweep.reductions(stage)}
            names |= {f"%j{self.joins.index(node)}": cell for node, cell in own.items()}
        for stage, name, key in trip.asked:
            names[name] = rows[stage].read(key) if isinstance(key, Operand) else rows[stage].computed(key)
        passed = ", ".join(f"{kind} {names.get(name, name)}" for kind, name in trip.given)
        code.run(f"call void {trip.name}(i64 %n, {passed})")
        last = rows.get(sweep.stages - 1)
        if last is not None:
            last.write_reduced()
        self.declared = self.declared.union(*(each.body.intrinsics for each in rows.values()))


def _within(code: Code, row: str, first: str, last: str) -> str:
    """Is a row one of those from ``first`` up to ``last``?"""
    return code.do(f"and i1 {code.do(f'icmp sge i64 {row}, {first}')}, {code.do(f'icmp slt i64 {row}, {last}')}")


@contextlib.contextmanager
def _where(code: Code, condition: str) -> Iterator[None]:
    """What is done only if a condition holds."""
    with code.loop("0", code.do(f"zext i1 {condition} to i64")):
        yield
