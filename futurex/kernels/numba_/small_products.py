"""Products of many small matrices: each is written out, its rows in registers.

BLAS is called once for each matrix of a stack and takes longer to begin than to multiply: 80 ns for 3 x 3, of which
the multiply-adds are five.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from futurex.kernels.numba_.code import WRITTEN_OUT, Code, module
from futurex.kernels.numba_.compiler import has_scale

NUMBERS = ("tasks", "x_step", "y_step", "x_row", "y_row", "stacked", "together", "x_further", "y_further")
_ARRAYS = ("out", "x", "y")
_WIDE = 128
"""Bytes of a row of the result that are made at once: with those of other rows they find registers."""
PART = 32
"""Rows of one product that are a task."""
_CHAINS = 8
"""Registers that are added up side by side: a multiply-add takes four times as long as the next can follow, and two
begin at once."""


class Form(NamedTuple):
    """Rows, inner elements and columns of each product, of elements of an LLVM type, and which operands lie turned.

    >>> Form(3, 3, 1, "double").size
    8
    """

    rows: int
    inner: int
    columns: int
    element: str
    x_turned: bool = False
    y_turned: bool = False

    @property
    def parts(self) -> int:
        """Tasks of each product."""
        return -(-self.rows // PART)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 if self.element == "double" else 4


@functools.cache
def text_of(form: Form, threaded: bool) -> str:
    """The kernel: it is called with :data:`NUMBERS`, then the addresses of the result, which is dense, and operands.

    ``x_step``, ``y_step``: elements from one matrix to the next (0: all have the same); ``x_row``, ``y_row``: from one
    row to the next, or where an operand is turned from one column to the next; ``stacked``: 1 where a matrix lies so
    much ``further`` for each stack of so many ``together`` before it, else 0. Each element is a chain of fused
    multiply-adds over the inner axis, in its order, that begins with zero.
    """
    writer = _Writer(form)
    with writer.code.loop("%low", "%high") as (index, _):
        writer.task(index)
    parameters = [*(("i64", name) for name in NUMBERS), *(("ptr", name) for name in _ARRAYS)]
    return WRITTEN_OUT + module(parameters, writer.code, threaded, sorted(writer.declared))


class _Operand(NamedTuple):
    """An operand's matrix: where it begins, the elements from row to row, and does it lie turned, by columns?"""

    begin: str
    row: str
    turned: bool


class _Writer:
    def __init__(self, form: Form) -> None:
        self.form, self.code = form, Code()
        self.declared: set[str] = set()
        widest = min(_WIDE // form.size, form.columns)
        self.room = self.code.do(f"alloca {form.element}, i64 {form.inner * widest}, align 64") if form.y_turned else ""

    def task(self, index: str) -> None:
        """Some rows of one product."""
        form, code = self.form, self.code
        place, first, rows = index, "0", str(form.rows)
        if form.parts > 1:
            place = code.do(f"sdiv i64 {index}, {form.parts}")
            first = code.multiply(code.do(f"srem i64 {index}, {form.parts}"), str(PART))
            rows = code.least(code.do(f"sub nsw i64 {form.rows}, {first}"), str(PART))
        above = code.add(code.multiply(place, str(form.rows)), first)
        self.out = code.at(form.element, "%out", code.multiply(above, str(form.columns)))
        with code.loop("0", "%stacked", carried=[("i64", "0")]) as (_, stacks):  # most are spared the division
            stacks[0] = code.do(f"udiv i64 {place}, %together")
        x, y = (
            code.at(
                form.element, f"%{name}",
                code.add(code.multiply(place, f"%{name}_step"), code.multiply(stacks[0], f"%{name}_further")),
            )
            for name in "xy"
        )  # fmt: skip
        x = code.at(form.element, x, first if form.x_turned else code.multiply(first, "%x_row"))
        self.x, self.y = _Operand(x, "%x_row", form.x_turned), _Operand(y, "%y_row", form.y_turned)
        widest = _WIDE // form.size
        for column in range(0, form.columns, widest):
            self._columns(rows, column, min(widest, form.columns - column))

    def _columns(self, rows: str, first: int, count: int) -> None:
        """Some columns of all rows."""
        form, code = self.form, self.code
        kind = f"<{count} x {form.element}>" if count > 1 else form.element
        abreast = max(1, _CHAINS // max(1, count * form.size // (64 if has_scale() else 32)))
        source, left = self.y, first
        if form.y_turned and count > 1 and form.rows > abreast:  # read once, for all rows
            for k in range(form.inner):
                to = code.at(form.element, self.room, str(k * count))
                code.run(f"store {kind} {self._row(self.y, k, kind, first, count)}, ptr {to}, align {form.size}")
            source, left = _Operand(self.room, str(count), False), 0
        if form.rows <= abreast:
            self._rows("0", form.rows, kind, first, count, source, left)
            return
        whole = code.do(f"sub nsw i64 {rows}, {code.do(f'srem i64 {rows}, {abreast}')}")
        with code.loop("0", whole, str(abreast)) as (low, _):
            self._rows(low, abreast, kind, first, count, source, left)
        if form.rows % abreast:
            with code.loop(whole, rows) as (low, _):
                self._rows(low, 1, kind, first, count, source, left)

    def _rows(
        self, low: str, rows: int, kind: str, first: int, count: int, source: _Operand, left: int
    ) -> None:  # fmt: skip
        """Some rows of these columns, which in ``source`` are those from ``left`` on."""
        form, code = self.form, self.code
        sums = ["zeroinitializer" if count > 1 else "0.0"] * rows
        places = [code.add(low, str(k)) for k in range(rows)]
        for k in range(form.inner):
            vector = self._row(source, k, kind, left, count)
            for r, place in enumerate(places):
                factor = self._load(form.element, self.x, place, str(k))
                sums[r] = self._fma(kind, code.spread(kind, factor), vector, sums[r])
        for r, place in enumerate(places):
            to = code.at(form.element, self.out, code.add(code.multiply(place, str(form.columns)), str(first)))
            code.run(f"store {kind} {sums[r]}, ptr {to}, align {form.size}")

    def _row(self, source: _Operand, k: int, kind: str, first: int, count: int) -> str:
        """Columns of a row of the second operand."""
        form = self.form
        if count == 1 or not source.turned:
            return self._load(kind, source, str(k), str(first))
        return self.code.beside(
            kind, [self._load(form.element, source, str(k), str(first + lane)) for lane in range(count)]
        )

    def _load(self, kind: str, operand: _Operand, row: str, column: str) -> str:
        """What begins at an element."""
        far, near = (column, row) if operand.turned else (row, column)
        offset = self.code.add(self.code.multiply(far, operand.row), near)
        at = self.code.at(self.form.element, operand.begin, offset)
        return self.code.do(f"load {kind}, ptr {at}, align {self.form.size}")

    def _fma(self, kind: str, x: str, y: str, z: str) -> str:
        bits = 8 * self.form.size
        name = f"v{kind[1:].split()[0]}f{bits}" if kind.startswith("<") else f"f{bits}"
        self.declared.add(f"declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})")
        return self.code.do(f"call {kind} @llvm.fma.{name}({kind} {x}, {kind} {y}, {kind} {z})")
