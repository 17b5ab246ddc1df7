"""Products of matrices of single precision in the processor's unit for bfloat16, as exact as those by vectors.

A number of single precision is the sum of three of bfloat16: its first eight bits, the next eight, and the rest. Of the
nine products of two such sums the six largest are made; the others are less than 2**-22 of the whole, and of either
sign (G. Henry, P. T. P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations, ARITH 2019). Their sums are in single precision, of 32 inner elements at a time, so that
fewer roundings follow each other than in a chain of multiply-adds: what is measured is half the error of those.

The unit takes subnormal numbers for zeros. A part of a product is left to the code by vectors where a third, or
a product of two numbers, could be so small, where a sum could overflow, and where a number is none or infinite: the
largest and the smallest magnitudes are found while numbers are taken apart.

Layout of what is packed: of 32 rows (or columns) and 32 inner elements, the first thirds, the second and the last, of
each two registers' 16 rows (or columns). An inner element k is beside the one 16 behind it, so that the 16 pairs of one
vector with another need no shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.pairwise import prefetch
from futurex.kernels.numba_.squares import turned
from futurex.kernels.numba_.unit_parts import ROOM, SIDE
from futurex.kernels.numba_.vectors import LANES, VECTOR, up_to

if TYPE_CHECKING:
    from futurex.kernels.numba_.products import Writer as Product

_REGISTER = 1024
_PACKED = 6 * _REGISTER
"""Bytes of a register, and of the thirds of 32 by 32 numbers."""
_WORDS, _HALVES = f"<{LANES} x i32>", f"<{2 * LANES} x i16>"
_ORDER = ((2, 0), (0, 0), (1, 0), (1, 1), (0, 1), (0, 2))
"""Thirds of both operands that are multiplied, one after the other: each time one of them is the one before."""
_LEAST, _LEAST_SUM, _MOST, _MOST_SUM = 26, 162, 252, 354
"""Exponents, with their bias: of the smallest number that has three thirds, of two whose product has, of the largest
that rounds to one, and of two whose products, a million of them, do not overflow."""
_UNROLLED = 4
"""Pairs of vectors that are taken apart in one round."""
_START = "splat (i16 -1)", "zeroinitializer", "zeroinitializer"
"""Of magnitudes: none is found yet."""
DECLARATIONS = (
    "declare void @llvm.x86.ldtilecfg(ptr)",
    "declare void @llvm.x86.tilerelease()",
    "declare void @llvm.x86.tilezero(i8)",
    "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
    "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
    "declare void @llvm.x86.tdpbf16ps(i8, i8, i8)",
    *(f"declare {_HALVES} @llvm.{each}.v{2 * LANES}i16({_HALVES}, {_HALVES})" for each in ("umin", "umax")),
    *(f"declare i16 @llvm.vector.reduce.{each}.v{2 * LANES}i16({_HALVES})" for each in ("umin", "umax")),
    f"declare i32 @llvm.vector.reduce.or.v{LANES}i32({_WORDS})",
)


def words(value: int) -> str:
    """The vector of one 32-bit integer."""
    return f"<{', '.join([f'i32 {value}'] * LANES)}>"


class Writer:
    """Writes the function that makes the first of some tasks of a product, and says which it has not made."""

    def __init__(self, product: Product) -> None:
        self.product, self.form, self.code = product, product.form, Code(1)

    def written(self) -> Code:
        """The function's body: it gives the number of the first task that is left."""
        product, code, form = self.product, self.code, self.form
        before, product.code = product.code, code
        blocks = -(-form.whole.width // SIDE)
        self.x_room = self._room(ROOM // SIDE**2 * _PACKED)
        self.y_room = self._room(blocks * form.deepest // SIDE * _PACKED)
        self.scratch = self._room(3 * _REGISTER)
        self.tile = self._room(4 * SIDE * SIDE)
        self.left = code.do("alloca i64, align 8")
        code.run(f"store i64 %low, ptr {self.left}")
        code.run("call void @llvm.x86.ldtilecfg(ptr @shapes)")
        places = [code.do(f"sdiv i64 {each}, %panels") for each in ("%low", code.add("%high", "-1"))]
        with code.loop(places[0], code.add(places[1], "1")) as (place, _):
            start = code.multiply(place, "%panels")
            begin, end = code.most(start, "%low"), code.least(code.add(start, "%panels"), "%high")
            self._place(place, start, begin, end)
        code.run("call void @llvm.x86.tilerelease()")
        code.run("ret i64 %high")
        code.label("refused")
        code.run("call void @llvm.x86.tilerelease()")
        code.run(f"ret i64 {code.do(f'load i64, ptr {self.left}')}")
        product.code = before
        return code

    def _room(self, size: int) -> str:
        return self.code.hidden("ptr", self.code.do(f"alloca i8, i64 {size}, align 64"))

    def _refuse(self, condition: str) -> None:
        """Leave what is left to others, if a condition holds."""
        code = self.code
        number = code.name()[1:]
        code.run(f"br i1 {condition}, label %refused, label %go.{number}")
        code.label(f"go.{number}")

    def _products(self, count: int) -> None:
        """The products of two registers by two, in four accumulators."""
        for k in range(count):
            row, column = divmod(k % 4, 2)
            self.code.run(f"call void @llvm.x86.tdpbf16ps(i8 {k % 4}, i8 {4 + row}, i8 {6 + column})")

    def _place(self, place: str, start: str, begin: str, end: str) -> None:
        """The tasks of one number of a batch and a chunk of rows."""
        code, product = self.code, self.product
        code.run(f"store i64 {begin}, ptr {self.left}")
        first, last = product.chunk(place)
        rows = code.do(f"sub i64 {last}, {first}")

        def part(k: str, count: str) -> None:
            steps = self._sides(count)
            base = code.at("float", product.x, self._element(first, k, "%x_row", self.form.x_turned))
            found = self._pack(self.x_room, base, "%x_row", rows, count, steps, self.form.x_turned, False)
            x_found = self._sizes(found)
            with code.loop(begin, end) as (task, _):
                if not self.form.deep:
                    code.run(f"store i64 {task}, ptr {self.left}")
                self._panel(code.do(f"sub i64 {task}, {start}"), first, rows, k, count, steps, x_found)

        if not self.form.deep:
            part("0", "%inner")
            return
        with code.loop("0", "%inner", "%depth") as (k, _):
            part(k, code.least(code.do(f"sub i64 %inner, {k}"), "%depth"))

    def _element(self, outer: str, k: str, row: str, across: bool) -> str:
        """Where the element of an operand lies."""
        code = self.code
        return code.add(outer, code.multiply(k, row)) if across else code.add(code.multiply(outer, row), k)

    def _sides(self, count: str) -> str:
        return self.code.do(f"sdiv i64 {self.code.add(count, str(SIDE - 1))}, {SIDE}")

    def _panel(
        self, number: str, first: str, rows: str, k: str, count: str, steps: str, x_found: tuple[str, ...]
    ) -> None:
        """A panel of columns, of some rows."""
        code, product, form = self.code, self.product, self.form
        column = code.multiply(number, str(form.whole.width))
        final = form.end or form.whole
        total = code.add(
            code.multiply(code.add("%panels", "-1"), str(form.whole.width)),
            str((final.vectors - 1) * LANES + final.last),
        )
        columns = code.least(code.do(f"sub i64 {total}, {column}"), str(form.whole.width))
        base = code.at("float", product.y_batch, self._element(column, k, "%y_row", not form.y_turned))
        found = self._pack(self.y_room, base, "%y_row", columns, count, steps, not form.y_turned, True)
        self._check(x_found, self._sizes(found))
        step = code.multiply(steps, str(_PACKED))
        with code.loop("0", self._sides(columns)) as (block, _), code.loop("0", self._sides(rows)) as (group, _):
            before, above = code.multiply(block, str(SIDE)), code.multiply(group, str(SIDE))
            row, at = code.add(first, above), code.add(column, before)
            place = code.add(product.out_batch, code.multiply(row, "%out_row"), at)
            height, width = (
                code.least(code.do(f"sub i64 {most}, {each}"), str(SIDE))
                for most, each in ((rows, above), (columns, before))
            )
            self._multiply(
                code.at("i8", self.x_room, code.multiply(group, step)),
                code.at("i8", self.y_room, code.multiply(block, step)), steps,
            )  # fmt: skip
            product.deliver_thirds(self.tile, place, at, height, width, k)

    def _check(self, *found: tuple[str, ...]) -> None:
        """Leave to vectors what could be too small, or too large."""
        code = self.code
        least, most = (
            [code.do(f"lshr i16 {each}, 7") for each in pair] for pair in list(zip(*found, strict=True))[:2]
        )
        sums = [code.do(f"add i16 {pair[0]}, {pair[1]}") for pair in (least, most)]
        bad = [code.do(f"icmp ult i16 {each}, {_LEAST}") for each in least]
        bad += [code.do(f"icmp ugt i16 {each}, {_MOST}") for each in most]
        bad += [code.do(f"icmp ult i16 {sums[0]}, {_LEAST_SUM}"), code.do(f"icmp ugt i16 {sums[1]}, {_MOST_SUM}")]
        bad += [code.do(f"icmp ne i32 {code.do(f'and i32 {each[2]}, 65535')}, 0") for each in found]
        condition = bad[0]
        for each in bad[1:]:
            condition = code.do(f"or i1 {condition}, {each}")
        self._refuse(condition)

    def _multiply(self, x: str, y: str, steps: str) -> None:
        """Sums of products of 32 rows with 32 columns."""
        code = self.code
        for k in range(4):
            code.run(f"call void @llvm.x86.tilezero(i8 {k})")
        with code.loop("0", steps) as (step, _):
            there = code.multiply(step, str(_PACKED))
            places = [code.at("i8", each, there) for each in (x, y)]
            before: tuple[int, int] | None = None
            for turn, thirds in enumerate(_ORDER):
                for operand, third in enumerate(thirds):
                    if before is None or before[operand] != third:
                        for k in range(2):
                            at = code.at("i8", places[operand], str((2 * third + k) * _REGISTER))
                            code.run(f"call void @llvm.x86.tileloadd64(i8 {4 + 2 * operand + k}, ptr {at}, i64 64)")
                before = thirds
                for place in places:
                    for line in range(turn * _REGISTER, (turn + 1) * _REGISTER, 64):
                        ahead = code.at("i8", place, str(_PACKED + line))
                        code.run(prefetch(ahead, second=False))
                self._products(4)
        for k in range(4):
            row, column = divmod(k, 2)
            at = code.at("float", self.tile, str(row * LANES * SIDE + column * LANES))
            code.run(f"call void @llvm.x86.tilestored64(i8 {k}, ptr {at}, i64 {4 * SIDE})")

    def _pack(
        self, room: str, base: str, line: str, extent: str, count: str, steps: str, across: bool, second: bool
    ) -> list[str]:
        """Take an operand apart: ``extent`` rows (of the second, columns) and ``count`` inner elements, from ``base``
        on. ``across``: lines of memory, ``line`` elements from one to the next, are inner elements. Gives what is
        found of magnitudes."""
        code = self.code
        groups = self._sides(extent)
        most = (steps, groups) if across else (groups, steps)  # along the lines of memory within
        with code.loop("0", most[0], carried=_kept(_START)) as (first, found):
            with code.loop("0", most[1], carried=_kept(found)) as (then, held):
                group, step = (then, first) if across else (first, then)
                to = code.at("i8", room, code.multiply(code.add(code.multiply(group, steps), step), str(_PACKED)))
                o, k = code.multiply(group, str(SIDE)), code.multiply(step, str(SIDE))
                there = [code.do(f"sub i64 {all_}, {each}") for all_, each in ((extent, o), (count, k))]
                source = code.at("float", base, self._element(o, k, line, across))
                held[:] = self._square(to, source, line, there, across, across != second, held)
            found[:] = held
        return found

    def _square(
        self, to: str, source: str, line: str, there: list[str], across: bool, crossed: bool, found: Sequence[str]
    ) -> list[str]:
        """Take 32 by 32 numbers apart, or as many as are ``there``; ``crossed``: lines become pairs."""
        code = self.code
        whole = code.do(f"icmp sge i64 {code.least(*there)}, {SIDE}")
        parted = code.do(f"select i1 {whole}, i64 0, i64 1")
        outer, inner = (code.least(each, str(SIDE)) for each in there)
        for low, high, partial in ((parted, "1", False), ("0", parted, True)):
            with code.loop(low, high, carried=_kept(found)) as (_, held):
                for half in range(2):
                    at = code.at("i8", to, str(half * _REGISTER))
                    self._register(source, line, half, (outer, inner) if partial else None, across, held,
                                   self.scratch if crossed else at, crossed)  # fmt: skip
                    if crossed:
                        self._exchange(at)
            found = held
        return list(found)

    def _sizes(self, found: Sequence[str]) -> tuple[str, str, str]:
        """The smallest magnitude above zero, less one, the largest, and what is left behind all thirds."""
        code = self.code
        least, most = (
            code.do(f"call i16 @llvm.vector.reduce.{name}.v{2 * LANES}i16({_HALVES} {each})")
            for name, each in zip(("umin", "umax"), found[:2], strict=True)
        )
        rests = code.do(f"call i32 @llvm.vector.reduce.or.v{LANES}i32({_WORDS} {found[2]})")
        return least, most, rests

    def _register(
        self, source: str, line: str, half: int, there: tuple[str, str] | None, across: bool, found: list[str], to: str,
        crossed: bool,
    ) -> None:  # fmt: skip
        """The thirds of 16 times 32 numbers: 16 lines of pairs. ``there``: how many of 32 there are, if not all."""
        code = self.code
        apart = _REGISTER if crossed else 2 * _REGISTER
        start = str(half * LANES) if across else code.multiply(line, str(half * LANES))
        ahead = code.multiply(line, str(SIDE)) if across else str(SIDE)
        first = code.at("float", source, start)
        second = code.at("float", first, code.multiply(line, str(LANES)) if across else str(LANES))
        unrolled = 1 if there else _UNROLLED
        with code.loop("0", str(LANES), str(unrolled), carried=_kept(found)) as (begin, held):
            for n in range(unrolled):
                unit = code.add(begin, str(n))
                if there is None:
                    step = code.multiply(unit, line)
                    places = [code.at("float", each, step) for each in (first, second)]
                    for place in places:
                        code.run(prefetch(code.at("float", place, ahead), second=True))
                    pair = [code.do(f"load {VECTOR}, ptr {place}, align 4") for place in places]
                else:
                    pair = self._there(source, line, half, unit, there, across)
                self._take_apart(pair, held, code.at("i8", to, code.multiply(unit, "64")), apart)
        found[:] = held

    def _there(
        self, source: str, line: str, half: int, unit: str, there: tuple[str, str], across: bool
    ) -> list[str]:
        """A pair of which not all numbers need be there: zeros for others, and for other rows the last one."""
        code, (outer, inner), pair = self.code, there, []
        for n in range(2):
            if across:
                k, o = code.add(unit, str(n * LANES)), str(half * LANES)
                exists = code.do(f"icmp slt i64 {k}, {inner}")
                lanes = code.do(f"select i1 {exists}, i64 {code.add(outer, str(-half * LANES))}, i64 0")
                place = code.add(code.multiply(code.least(k, code.add(inner, "-1")), line), o)
            else:
                k = str(n * LANES)
                o = code.least(code.add(unit, str(half * LANES)), code.add(outer, "-1"))
                lanes = code.add(inner, str(-n * LANES))
                place = code.add(code.multiply(o, line), k)
            pair.append(self.product.load(code.at("float", source, place), up_to(code, lanes)))
        return pair

    def _take_apart(self, pair: list[str], held: list[str], to: str, apart: int) -> None:
        """Store the thirds of a pair of vectors."""
        code = self.code
        for third in range(3):
            parts = bits = [code.do(f"bitcast {VECTOR} {each} to {_WORDS}") for each in pair]
            if third == 0:
                parts = [code.do(f"add {_WORDS} {each}, {words(0x8000)}") for each in parts]
            if third < 2:
                parts = [code.do(f"and {_WORDS} {each}, {words(-0x10000)}") for each in parts]
            both = code.do(f"or {_WORDS} {code.do(f'lshr {_WORDS} {parts[0]}, {words(16)}')}, {parts[1]}")
            code.run(f"store {_WORDS} {both}, ptr {code.at('i8', to, str(third * apart))}, align 64")
            if third == 0:
                self._look(both, held)
            if third < 2:
                firsts = [code.do(f"bitcast {_WORDS} {each} to {VECTOR}") for each in parts]
                pair = [code.do(f"fsub {VECTOR} {a}, {b}") for a, b in zip(pair, firsts, strict=True)]
        for each in bits:
            held[2] = code.do(f"or {_WORDS} {held[2]}, {each}")

    def _look(self, firsts: str, held: list[str]) -> None:
        """Keep the smallest and the largest magnitude of first thirds."""
        code = self.code
        size = code.do(f"and {_WORDS} {firsts}, {words(0x7FFF7FFF)}")
        halves = code.do(f"bitcast {_WORDS} {size} to {_HALVES}")
        less = code.do(f"add {_HALVES} {halves}, splat (i16 -1)")  # zeros become the largest
        for n, (name, value) in enumerate((("umin", less), ("umax", halves))):
            held[n] = code.do(f"call {_HALVES} @llvm.{name}.v{2 * LANES}i16({_HALVES} {held[n]}, {_HALVES} {value})")

    def _exchange(self, to: str) -> None:
        """Thirds of lines of pairs become thirds of pairs of lines."""
        code = self.code
        with code.loop("0", "3") as (third, _):
            source = code.at("i8", self.scratch, code.multiply(third, str(_REGISTER)))
            places = [code.at("i8", source, str(64 * n)) for n in range(LANES)]
            lines = [code.do(f"load {_WORDS}, ptr {place}, align 64") for place in places]
            target = code.at("i8", to, code.multiply(third, str(2 * _REGISTER)))
            for n, each in enumerate(turned(code.do, lines, "i32")):
                code.run(f"store {_WORDS} {each}, ptr {code.at('i8', target, str(64 * n))}, align 64")


def _kept(values: Sequence[str]) -> list[tuple[str, str]]:
    """What was found of magnitudes, as loops carry it."""
    return list(zip((_HALVES, _HALVES, _WORDS), values, strict=True))
