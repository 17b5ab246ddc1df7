"""Kernels that reduce neighbours in memory: each row in passes while it lies in the cache, or one long row in pieces.

Sums are NumPy's to the bit: what is added is laid down in a buffer, a branch of NumPy's pairwise tree at a time, which
the nearest cache holds. The threads share the rows; of one long row they share sixteen subtrees, and the last one adds
up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from futurex.kernels.numba_ import crossings, extremes, freely, leaves, pairwise, past
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import has_scale
from futurex.kernels.numba_.places import (
    Elements,
    added,
    freely_joined,
    joined,
    laid_down,
    parameters_of,
    report,
    watch,
)  # fmt: skip
from futurex.kernels.numba_.rowvalues import MadePass, RowValues
from futurex.kernels.numba_.scalar import memory_type, register_type
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import LONGEST_ROW, REDUCTIONS, Level, aligned
from futurex.tree.node import Node

Dtype = np.dtype[Any]
BLOCK = 512
"""Elements of a row before which what lies ahead is asked for, where a reduction is carried through them."""
TURN = 64
"""The same where nothing is carried: the fewer lines at once, the less they are in the way of what is read now."""
LANES = 16
PAGE = 4096
LEAF = 2048
"""Elements of such a branch at most: few, so that memory does not rest meanwhile, but so many that what is no whole
vector at their end does not count; ``LONGEST_ROW`` where a row is read again by later passes, which ask for the next
one."""
PIECES = 16
"""Subtrees of a long row."""
_WIDE, _NARROW_WIDE = 4, 2
"""Vectors of a function, of 16 numbers, that are computed side by side where there are 32 registers of as many, and
where there are 16 of half as many."""
_ALIGN = 64
_MOST_BUFFERS = 16
"""Of up to 64 KiB each on a thread's stack."""


class _Pass(Elements):
    """The elements of one stage, at one place of a row."""

    def __init__(self, sweep: Sweep, code: Code, stage: int) -> None:
        super().__init__(sweep, code)
        self.stage = stage
        self.asked: dict[Any, tuple[str, str]] = {}
        self.loaded: dict[Operand, str] = {}

    def begin(self, place: str, offset: str) -> None:
        self.place, self.offset = place, offset

    def of_row(self, key: Any, dtype: Dtype) -> str:
        """A value that the whole row shares: a parameter of this pass."""
        return self.asked.setdefault(key, (register_type(dtype), f"%r{len(self.asked)}"))[1]

    def read(self, operand: Operand) -> str:
        if not self.sweep.mask(operand)[-1]:
            return self.of_row(operand, operand.node.dtype)
        if operand not in self.loaded:
            dtype = operand.node.dtype
            name = f"%a{self.sweep.operands.index(operand)}.row"
            self.loaded[operand] = self.body.load(dtype, self.code.at(memory_type(dtype), name, self.place))
        return self.loaded[operand]

    def known(self, node: Node) -> str | None:
        if self.sweep.level[node] is Level.REDUCED:
            return self.of_row(node, node.dtype)
        if self.sweep.stage[node] == self.stage:
            return None
        kind = memory_type(node.dtype)
        if node in self.sweep.graph.outs:
            name = f"%o{self.sweep.graph.outs.index(node)}.row"
            return self.body.load(node.dtype, self.code.at(kind, name, self.place))
        if node in self.sweep.kept_values:
            name = f"%k{self.sweep.kept_values.index(node)}"
            return self.body.load(node.dtype, self.code.at(kind, name, self.place))
        return None


class Rows:
    """The text of one kernel. ``whole``: there is one row, and it is long. ``aside``: full results go past the caches,
    a row of at most ``LONGEST_ROW`` elements at a time, or a few lines. ``distant``: operands come from memory, and few
    lines may be on their way to the nearest cache."""

    def __init__(self, sweep: Sweep, whole: bool, aside: bool = False, distant: bool = False) -> None:
        self.sweep = sweep
        self.distant = distant
        self.whole = whole
        self.leaf = LEAF if sweep.stages == 1 else LONGEST_ROW
        self.aside = [node for node in sweep.graph.outs if aside and sweep.level[node] is Level.FULL]
        if self._buffers() + len(sweep.kept_values) > _MOST_BUFFERS:
            raise ValueError(f"{sweep.graph!r} needs more buffers than a thread's stack should hold")
        if self._buffers() + len(sweep.kept_values) + len(self.aside) > _MOST_BUFFERS:
            self.aside = []
        self.sent = [node for node in self.aside if self._in_pieces(node)]
        if sweep.space.count > LONGEST_ROW:
            self.aside = self.sent
        depth = len(sweep.layout.extents)
        self.numbers = ["pieces", "n"] if whole else ["rows", "n", *(f"e{d}" for d in range(depth - 1))]
        if sweep.crossed:
            self.numbers = ["blocks", *self.numbers[1:], "rows", "span"]
        self.parameters = parameters_of(sweep, self.numbers)
        self.functions: list[str] = []
        self.declared: set[str] = set()
        self.laid: set[tuple[str, str, int, bool]] = set()
        self.joins = [node for node in sweep.nodes if node.op in REDUCTIONS and not self._by_tree(node)]

    def _in_pieces(self, node: Node) -> bool:
        """Is a result sent on while its row is computed? Its rows are whole lines then, and no later pass reads it."""
        sweep, last = self.sweep, self.sweep.stages - 1
        lines = sweep.space.count * node.dtype.itemsize % pairwise.LINE == 0
        return lines and sweep.stage[node] == last and all(map(freely.suits, sweep.reductions(last)))

    def _by_tree(self, node: Node) -> bool:
        return node.op == "sum" and node.dtype.kind == "f"

    def text(self, threaded: bool) -> str:
        passes = [self._pass(stage) for stage in range(self.sweep.stages)]
        code = self._pieces(passes[0]) if self.whole else self._rows(passes)
        for op, kind, size, streams in sorted(self.laid):
            if op == "prod":
                self.functions += pairwise.product(kind, size)
            elif op == "sum":
                self.functions += pairwise.declarations(kind, size, streams)
            else:
                self.functions += extremes.declarations(op, kind, size, streams)
                self.declared |= extremes.intrinsics(op, kind, size)
        return module(self.parameters, code, threaded, [*sorted(self.declared), *self.functions])

    # -- one pass over (a piece of) a row ----------------------------------------------------------------------------

    def _signature(self) -> list[tuple[str, str]]:
        """What every pass is given: rows of results and operands, scalars, accumulators, buffers, kept values, and the
        elements of a row."""
        sweep = self.sweep
        full = [k for k, node in enumerate(sweep.graph.outs) if sweep.level[node] is Level.FULL]
        given = [("ptr", f"%o{k}.row") for k in full]
        given += [("ptr", f"%a{k}.row") for k, each in enumerate(sweep.operands) if sweep.mask(each)[-1]]
        given += [(memory_type(scalar.dtype), f"%s{k}") for k, scalar in enumerate(sweep.scalars)]
        given += [("ptr", f"%j{k}") for k in range(len(self.joins))]
        given += [("ptr", f"%b{k}") for k in range(self._buffers())]
        given += [("ptr", f"%k{k}") for k in range(len(sweep.kept_values))]
        given += [("ptr", f"%c{k}") for k in range(len(sweep.crossed))]
        return [*given, ("i64", "%n"), ("ptr", "%scratch")]

    def _buffers(self) -> int:
        return max(sum(map(laid_down, self.sweep.reductions(stage))) for stage in range(self.sweep.stages))

    def _pass(self, stage: int) -> MadePass:
        """``@fill`` computes a piece of the row, ``@tree`` cuts the row into pieces as NumPy's sums do."""
        sweep = self.sweep
        code = Code(stage + 1)
        elements = _Pass(sweep, code, stage)
        reductions = sweep.reductions(stage)
        ordered = [node for node in reductions if laid_down(node)]
        joins = [node for node in reductions if node not in ordered]
        if sweep.guarded:
            watch(code)
        elements.values |= elements.scalars()
        common = dict(elements.values)
        last = code.add("%start", "%count")
        short = sweep.space.count < TURN
        free = freely.Running(code, joins if all(map(freely.suits, joins)) else [], LANES if short else TURN)
        joins = [node for node in joins if node not in free.nodes]
        carried = []
        for node in joins:
            pointer = f"%j{self.joins.index(node)}"
            carried.append((register_type(node.dtype), elements.body.load(node.dtype, pointer)))

        sent = [node for node in self.sent if sweep.stage[node] == stage]
        for k, node in enumerate(sent):
            code.run(f"%p{k} = alloca [{TURN} x {memory_type(node.dtype)}], align {_ALIGN}")

        def each(place: str, held: list[str], slot: str = "", in_piece: bool = False) -> None:
            elements.values, elements.loaded = dict(common), {}
            elements.begin(place, code.do(f"sub i64 {place}, %start"))
            for k, node in enumerate(joins):
                held[k] = freely_joined(elements.body, node, held[k], elements.taken(node))
            for k, node in enumerate(free.nodes):
                if slot:
                    free.add(elements.body, node, slot, elements.terms(node))
                else:  # a vector cannot be read at once of whose elements some were just written
                    held[k] = added(elements.body, node, held[k], elements.terms(node))
            for node in sweep.crossings(stage):
                total = f"%c{sweep.crossed.index(node)}"
                crossings.add(elements.body, node, total, place, elements.terms(node))
            for k, node in enumerate(ordered):
                if self._lies(node) is None:
                    pointer = code.at(register_type(node.dtype), f"%b{k}", elements.offset)
                    elements.body.store(node.dtype, elements.taken(node), pointer)
            for node in sweep.results(stage):
                name, at = f"%o{sweep.graph.outs.index(node)}.row", place
                if node in sent and in_piece:
                    name, at = f"%p{sent.index(node)}", slot
                value = elements.computed(node)
                elements.body.store(node.dtype, value, code.at(memory_type(node.dtype), name, at))
            for k, node in enumerate(sweep.kept_values):
                if sweep.stage[node] == stage:
                    value = elements.computed(node)
                    elements.body.store(node.dtype, value, code.at(memory_type(node.dtype), f"%k{k}", place))

        totals: list[str] = []
        apart: list[str] = []
        if joins:
            with code.loop("%start", last, str(BLOCK), carried) as (block, totals):
                mark = len(code.lines)
                end = code.least(code.add(block, str(BLOCK)), last)
                begun = [(kind, total) for (kind, _), total in zip(carried, totals, strict=True)]
                with code.loop(block, end, carried=begun) as (place, held):
                    each(place, held)
                totals[:] = held
                self._prefetch(code, elements, block, mark, BLOCK)
        else:
            whole = "%start"
            if not (short and free.nodes):
                whole = code.add("%start", code.do(f"and i64 %count, -{TURN}"))
                with code.loop("%start", whole, str(TURN)) as (block, _):
                    mark = len(code.lines)
                    with code.loop("0", str(TURN), lanes=LANES, abreast=abreast(sweep)) as (lane, _):
                        each(code.add(block, lane), [], lane, True)
                    for k, node in enumerate(sent):
                        row = f"%o{sweep.graph.outs.index(node)}.row"
                        target = f"getelementptr inbounds {memory_type(node.dtype)}, ptr {row}, i64 {block}"
                        code.insert(past.sent(f".{k}", target, f"%p{k}", TURN * node.dtype.itemsize))
                    self._prefetch(code, elements, block, mark, TURN)
            for width in (LANES, LANES // 2) if free.nodes else ():  # of short rows that is most of all elements
                begin, whole = whole, code.add("%start", code.do(f"and i64 %count, -{width}"))
                with code.loop(begin, whole, str(width)) as (block, _):
                    mark = len(code.lines)
                    with code.loop("0", str(width), lanes=width) as (lane, _):
                        each(code.add(block, lane), [], lane)
                    self._prefetch(code, elements, block, mark, width)
            with code.loop(whole, last, carried=free.begun()) as (place, apart):
                each(place, apart)
        elements.values = common
        for node, total in zip(joins, totals, strict=True):
            elements.body.store(node.dtype, total, f"%j{self.joins.index(node)}")
        for node, value in zip(free.nodes, apart, strict=True):
            pointer = f"%j{self.joins.index(node)}"
            before = joined(elements.body, node, elements.body.load(node.dtype, pointer), value)
            elements.body.store(node.dtype, joined(elements.body, node, before, free.finish(node)), pointer)
        if sweep.guarded:
            report(code)
        self.declared |= elements.body.intrinsics | free.declared
        given = [*self._signature(), *elements.asked.values()]
        listed = shown(given)
        self.functions += [
            f"define internal void @fill{stage}(i64 %start, i64 %count, {listed}) noinline {{",
            *code.lines, "  ret void", "}", *code.notes,
        ]  # fmt: skip
        direct = leaves.suits(sweep, stage) and any(self._lies(node) is None for node in ordered)
        if direct:
            self._leaves(stage, given, elements.asked)
        return MadePass(stage, ordered, given, list(elements.asked), self._tree(stage, ordered, given, direct))

    def _leaves(self, stage: int, given: list[tuple[str, str]], asked: dict[Any, tuple[str, str]]) -> None:
        """``@leaves``: the same for four leaves of NumPy's tree, whose sums are nothing but what it returns."""
        sweep, code = self.sweep, Code(self.sweep.stages + stage + 1)
        elements = _Pass(sweep, code, stage)
        elements.asked = dict(asked)
        if sweep.guarded:
            code.lines += ["  %flag = alloca i32, align 4", "  store i32 0, ptr %flag, align 4"]
        common = elements.scalars()
        sums = leaves.Leaves(code, sweep.reductions(stage))

        def element(place: str, slot: str) -> None:
            elements.values, elements.loaded = dict(common), {}
            elements.begin(place, place)
            for node in sums.nodes:
                sums.add(elements.body, node, slot, elements.taken(node))
            for node in sweep.results(stage):
                name, value = f"%o{sweep.graph.outs.index(node)}.row", elements.computed(node)
                elements.body.store(node.dtype, value, code.at(memory_type(node.dtype), name, place))
            for k, node in enumerate(sweep.kept_values):
                if sweep.stage[node] == stage:
                    value = elements.computed(node)
                    elements.body.store(node.dtype, value, code.at(memory_type(node.dtype), f"%k{k}", place))

        in_order = self.distant and sweep.stages == 1  # else the next row is asked for while this one is computed
        sums.run(element, lambda place, count: self._ask_ahead(code, stage, sweep.operands, place, count), in_order)
        result = sums.finish()
        if sweep.guarded:
            report(code)
        self.declared |= elements.body.intrinsics
        listed = ", ".join(f"i64 %{name}" for name in leaves.PARAMETERS)
        self.functions += [
            f"define internal {sums.result} @leaves{stage}({listed}, {shown(given)}) noinline {{",
            *code.lines, f"  ret {sums.result} {result}", "}", *code.notes,
        ]  # fmt: skip

    def _prefetch(self, code: Code, elements: _Pass, block: str, mark: int, span: int) -> None:
        """Before line ``mark``: ask for what lies ahead of a block."""
        body = code.lines[mark:]
        del code.lines[mark:]
        self._ask_ahead(code, elements.stage, elements.loaded, block, span)
        code.lines += body

    def _ask_ahead(self, code: Code, stage: int, operands: Iterable[Operand], block: str, span: int) -> None:
        """Ask for what lies ahead of ``span`` elements. Of several passes the first one waits for memory itself, and
        all behind it ask for the next row, so that memory is busy while they compute; a long row comes from memory in
        each."""
        sweep = self.sweep
        several = sweep.stages > 1 and sweep.space.count <= LONGEST_ROW
        if several and stage == 0:
            return
        read = filter(self._streams, sweep.operands if several else operands)
        asked = [(f"%a{sweep.operands.index(operand)}.row", operand.node.dtype, False) for operand in read]
        if several:
            full = [node for node in sweep.graph.outs if sweep.level[node] is Level.FULL and node not in self.aside]
            asked += [(f"%o{sweep.graph.outs.index(node)}.row", node.dtype, True) for node in full]
        for name, dtype, write in asked:
            ahead = str(pairwise.ahead() // (len(asked) if several else 1))
            if several:
                ahead = code.most(code.multiply("%n", str(dtype.itemsize)), ahead)
            place = code.at("i8", code.at(memory_type(dtype), name, block), ahead)
            for byte in range(0, span * dtype.itemsize, pairwise.LINE):
                self._request(code, place, byte + self.distant * PAGE, write, self.distant)

    def _request(self, code: Code, place: str, ahead: int, write: bool, second: bool = False) -> None:
        """Ask for the line so many bytes behind a place. What is asked for to be written goes to the nearest cache, so
        into the second one all is asked for to be read."""
        code.run(pairwise.prefetch(code.at("i8", place, str(ahead)), write and not second, second))
        self.declared.add(pairwise.PREFETCH)

    def _streams(self, operand: Operand) -> bool:
        """Does every row have elements of its own?"""
        mask = self.sweep.mask(operand)
        return mask[-1] and (self.whole or any(mask[:-1]))

    def _lies(self, node: Node) -> str | None:
        """The row that a sum adds up as it lies in memory, an operand or what is kept of this pass; None where its
        terms are only computed."""
        source, sweep = node.inputs[0], self.sweep
        if source in sweep.kept_values and sweep.stage[source] + 1 == sweep.stage[node]:
            return f"%k{sweep.kept_values.index(source)}" if source.dtype == node.dtype else None
        operand = self._operand(node)
        return None if operand is None else f"%a{sweep.operands.index(operand)}.row"

    def _operand(self, node: Node) -> Operand | None:
        """The operand, with elements along the row, that a reduction takes as it is."""
        source = node.inputs[0]
        if source.inputs or source.size == 1:
            return None
        operand = self.sweep.operand[source, aligned(node, source, self.sweep.space)]
        return operand if self.sweep.mask(operand)[-1] else None

    def _laid(self, node: Node) -> str:
        """The function of numbers next to each other that a reduction is."""
        operand = self._operand(node)
        streams = node.op != "prod" and self.sweep.stages == 1 and operand is not None and self._streams(operand)
        kind = register_type(node.dtype)
        self.laid.add((node.op, kind, node.dtype.itemsize, streams))
        if streams:
            self.declared.add(pairwise.PREFETCH)
        return pairwise.named({"sum": "pairwise", "prod": "product"}.get(node.op, node.op), kind, streams)

    def _tree(self, stage: int, ordered: list[Node], given: list[tuple[str, str]], direct: bool) -> str:
        """The function that gives the sums of a row, as a structure; ``direct``: by ``@leaves`` where it can."""
        if not ordered:
            return f"@fill{stage}"
        sums = [node for node in ordered if self._by_tree(node)]
        result = "{" + ", ".join(register_type(node.dtype) for node in sums) + "}" if sums else "void"
        passed = ", ".join(f"{kind} {name}" for kind, name in given)
        listed = shown(given)
        lines = [
            f"define internal {result} @tree{stage}(i64 %start, i64 %count, {listed}) noinline {{",
            "entry:",
            *pairwise.quartered("%count"),
            *(self._by_leaves(stage, result, passed) if direct else []),
            f"  %long = icmp sgt i64 %count, {leaves.MOST if direct else self.leaf}",
            "  br i1 %long, label %split, label %leaf",
            "split:",
            "  %middle = add i64 %start, %left",
        ]
        call = f"call {result} @tree{stage}(i64"
        if sums:
            lines += [
                f"  %x = {call} %start, i64 %left, {passed})",
                f"  %y = {call} %middle, i64 %right, {passed})",
            ]
            held = "undef"
            for k, node in enumerate(sums):
                kind = register_type(node.dtype)
                lines += [
                    f"  %x{k} = extractvalue {result} %x, {k}",
                    f"  %y{k} = extractvalue {result} %y, {k}",
                    f"  %z{k} = fadd {kind} %x{k}, %y{k}",
                    f"  %w{k} = insertvalue {result} {held}, {kind} %z{k}, {k}",
                ]
                held = f"%w{k}"
            lines.append(f"  ret {result} {held}")
        else:
            lines += [f"  {call} %start, i64 %left, {passed})", f"  {call} %middle, i64 %right, {passed})"]
            lines.append("  ret void")
        lines += ["leaf:", f"  call void @fill{stage}(i64 %start, i64 %count, {passed})"]
        for k, node in enumerate(ordered):
            name = self._lies(node)
            if name is not None:
                kind = register_type(node.dtype)
                lines.append(f"  %l{k} = getelementptr inbounds {kind}, ptr {name}, i64 %start")
        terms = [f"%b{k}" if self._lies(node) is None else f"%l{k}" for k, node in enumerate(ordered)]
        held = "undef"
        for k, node in enumerate(ordered):
            kind, function = register_type(node.dtype), self._laid(node)
            if self._by_tree(node):
                at = sums.index(node)
                lines += [
                    f"  %q{k} = call {kind} {function}(ptr {terms[k]}, i64 %count)",
                    f"  %h{k} = insertvalue {result} {held}, {kind} %q{k}, {at}",
                ]
                held = f"%h{k}"
            else:
                pointer = f"%j{self.joins.index(node)}"
                lines += [
                    f"  %p{k} = load {kind}, ptr {pointer}, align {node.dtype.itemsize}",
                    f"  %q{k} = call {kind} {function}(ptr {terms[k]}, i64 %count, {kind} %p{k})",
                    f"  store {kind} %q{k}, ptr {pointer}, align {node.dtype.itemsize}",
                ]
        lines += [f"  ret {result} {held}" if sums else "  ret void", "}"]
        self.functions += lines
        return f"@tree{stage}"

    def _by_leaves(self, stage: int, result: str, passed: str) -> list[str]:
        """Where four leaves are all there is, their function gives the sums."""
        counts = ", ".join(f"i64 %{name}" for name in leaves.PARAMETERS)
        return [
            "  br i1 %leaves, label %side, label %other",
            "side:",
            f"  %all = call {result} @leaves{stage}({counts}, {passed})",
            f"  ret {result} %all",
            "other:",
        ]

    # -- all rows ----------------------------------------------------------------------------------------------------

    def _memory(self, code: Code) -> None:
        """Buffers, accumulators and flag of one thread."""
        sweep = self.sweep
        for k in range(self._buffers()):
            code.lines.append(f"  %b{k} = alloca [{self.leaf} x i64], align {_ALIGN}")
        for k, node in enumerate(sweep.kept_values):
            code.lines.append(f"  %k{k} = alloca [{LONGEST_ROW} x {memory_type(node.dtype)}], align {_ALIGN}")
        for k, node in enumerate(self.aside):
            if node in self.sent:
                continue
            code.lines.append(f"  %w{k} = alloca [{LONGEST_ROW} x {memory_type(node.dtype)}], align {_ALIGN}")
        if sweep.guarded:
            watch(code)

    def _rows(self, passes: list[MadePass]) -> Code:
        sweep = self.sweep
        code = Code()
        self._memory(code)
        for k in range(len(self.joins)):
            code.lines.append(f"  %j{k} = alloca i64, align 8")
        shared = Elements(sweep, code).scalars()
        with self._shares(code) as (first, last, totals), code.loop(first, last) as (row, _):
            reduced = RowValues(self, code, row, shared)
            reduced.pointers |= totals
            for made in passes:
                reduced.run(made, "0", "%n")
            reduced.write()
        if self.aside:
            code.run(past.FENCE)
            self.declared.update(past.DECLARATIONS)
            self.functions += past.FUNCTION
        if sweep.guarded:
            report(code)
        self.declared |= reduced.body.intrinsics
        return code

    @contextlib.contextmanager
    def _shares(self, code: Code) -> Iterator[tuple[str, str, dict[str, str]]]:
        """First and last row of a thread, or of each of its blocks, and where sums over all of them are added up."""
        crossed, outs = self.sweep.crossed, self.sweep.graph.outs
        if not crossed:
            yield "%low", "%high", {}
            return
        self.declared.update((crossings.CLEARING, past.DECLARATIONS[0]))
        totals = crossings.Totals(code, crossed)
        with code.loop("%low", "%high") as (block, _):
            own = totals.of(block)
            totals.clear(own)
            first = code.multiply(block, "%span")
            last = code.least(code.add(first, "%span"), "%rows")
            yield first, last, {f"%c{k}": pointer for k, pointer in enumerate(own)}
        totals.finish([f"%o{outs.index(node)}" for node in crossed])

    def _pieces(self, made: MadePass) -> Code:
        """One long row: a thread's subtrees, their results laid down in ``scratch``; the last thread joins them."""
        sweep = self.sweep
        code = Code()
        self._memory(code)
        width = 8 * (len(sweep.reductions(0)) + 1)
        shared = Elements(sweep, code).scalars()
        cells = sweep.reductions(0)
        names = {node: k for k, node in enumerate(cells)}
        with code.loop("%low", "%high") as (piece, _):
            start, count = "0", "%n"
            for bit in reversed(range(PIECES.bit_length() - 1)):
                half = code.do(f"lshr i64 {count}, 1")
                left = code.do(f"sub i64 {half}, {code.do(f'and i64 {half}, 7')}")
                second = code.do(f"and i64 {code.do(f'lshr i64 {piece}, {bit}')}, 1")
                second = code.do(f"icmp ne i64 {second}, 0")
                moved = code.add(start, left)
                rest = code.do(f"sub i64 {count}, {left}")
                start = code.do(f"select i1 {second}, i64 {moved}, i64 {start}")
                count = code.do(f"select i1 {second}, i64 {rest}, i64 {left}")
            base = code.at("i8", "%scratch", code.add(code.multiply(piece, str(width)), "16"))
            cell = {node: code.at("i64", base, str(k)) for node, k in names.items()}
            reduced = RowValues(self, code, "0", shared, {node: cell[node] for node in self.joins})
            sums = reduced.run(made, start, count)
            for node, value in sums.items():
                reduced.body.store(node.dtype, value, cell[node])
        code.lines.append("  %mine = sub i64 %high, %low")
        done = code.do("atomicrmw add ptr %scratch, i64 %mine acq_rel")
        done = code.add(done, "%mine")
        finished = code.do(f"icmp eq i64 {done}, {PIECES}")
        last = code.do(f"zext i1 {finished} to i64")
        with code.loop("0", last):
            final = RowValues(self, code, "0", shared)
            for node in cells:
                parts = []
                for number in range(PIECES):
                    pointer = code.at("i8", "%scratch", str(16 + number * width + 8 * names[node]))
                    parts.append(final.body.load(node.dtype, pointer))
                while len(parts) > 1:
                    pairs = zip(parts[::2], parts[1::2], strict=True)
                    parts = [joined(final.body, node, x, y) for x, y in pairs]
                final.give(node, parts[0])
            final.write()
        if sweep.guarded:
            report(code)
        self.declared |= reduced.body.intrinsics | final.body.intrinsics
        return code


def abreast(sweep: Sweep) -> int:
    """How many vectors the registers hold side by side."""
    size = max(node.dtype.itemsize for node in sweep.nodes)
    most = _WIDE if has_scale() else _NARROW_WIDE if sweep.approximate else 1
    return max(1, most * 4 // max(size, 4))


def shown(given: list[tuple[str, str]]) -> str:
    return ", ".join(f"{'ptr noalias' if kind == 'ptr' else kind} {name}" for kind, name in given)
