"""Compiled inverses, solutions and determinants of many small matrices: each is factorised in registers.

LAPACK is called once for each matrix of a stack, and takes 150 to 400 ns for what is 20 to 40 operations. Here a matrix
is factorised as there, by rows, of which the one with the largest element in a column comes next (partial pivoting;
Golub and Van Loan, Matrix Computations, algorithm 3.4.1), with its right sides beside it; in double precision, as NumPy
does it, whatever the elements. Where what is to be divided by is no larger than what rounding makes of zero, or no
number, NumPy computes the matrix, and says if it is singular.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.channels import Written, threads_for
from futurex.kernels.numba_.code import WRITTEN_OUT, Code, module
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

LARGEST, _WIDEST = 12, 24
"""Rows of a matrix, and elements of a row with its right sides, at most."""
_FEWEST = 32
"""Matrices, from which LAPACK takes some ten microseconds."""
_DOUBT = 32
"""Times the distance of numbers of the matrix's largest element, what a pivot has to be larger than."""
_ELEMENTS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def claim(node: Node, threads: int) -> Systems | None:
    """The kernel of an ``inv``, ``solve`` or ``det`` of a stack of small matrices; None for others."""
    element = _ELEMENTS.get(node.dtype)
    if element is None or not node.is_static or not has_fma():
        return None
    if any(each.dtype != node.dtype or each.aval.weak for each in node.inputs):
        return None
    matrix, *right = (each.shape for each in node.inputs)
    count, rows = math.prod(matrix[:-2]), matrix[-1]
    if count < _FEWEST or not 0 < rows <= LARGEST:
        return None
    sides, step = {"inv": rows, "det": 0}.get(node.op, 1), 0
    if right and len(right[0]) > 1:
        if right[0][:-2] != matrix[:-2]:
            return None
        sides = right[0][-1]
        step = rows * sides
    if rows + sides > _WIDEST or (node.op == "solve" and not sides):
        return None
    text = _text(element, rows, sides, node.op, may_share())
    return Systems(node, min(count, threads_for(node, threads)), text, (count, step))


class Systems(Written):
    """The kernel of one node; matrices that may be singular are NumPy's."""

    bind = None

    def __call__(self, out: Any, *inputs: Any) -> Any:
        if not self.found(out, *inputs):
            return self.interpret(out, *inputs)
        doubts = np.empty(math.prod(inputs[0].shape[:-2]), bool)
        addresses = [address_of(each) for each in (out, *inputs, doubts)]
        self.run(self.fixed + struct.pack(f"={len(addresses)}q", *addresses))
        if doubts.any():
            self._ask_numpy(doubts, out, *inputs)
        return out

    def _ask_numpy(self, doubts: Any, out: Any, matrices: Any, *right: Any) -> None:
        """NumPy computes some of them, and raises its errors."""
        chosen = [each if each.ndim == 1 else _stacked(each, 2)[doubts] for each in right]
        with np.errstate(all="ignore"):
            found = self.node.record.run([_stacked(matrices, 2)[doubts], *chosen], self.node.attrs)
        _stacked(out, found.ndim - 1)[doubts] = found


def _stacked(array: Any, rank: int) -> Any:
    """A stack of stacks as one; elements have so many axes."""
    return array.reshape(-1, *array.shape[array.ndim - rank :])


@functools.cache
def _text(element: str, rows: int, sides: int, op: str, threaded: bool) -> str:
    writer = _Writer(element, rows, sides)
    code, given = writer.code, op == "solve"
    with code.loop("%low", "%high") as (index, _):
        matrix = code.at(element, "%matrix", code.multiply(index, str(rows * rows)))
        right = code.at(element, "%right", code.multiply(index, "%step")) if given else ""
        writer.factorise([writer.row(matrix, right, k) for k in range(rows)])
        if op == "det":
            writer.store_determinant(code.at(element, "%out", index))
        else:
            writer.store_solution(code.at(element, "%out", code.multiply(index, str(rows * sides))))
        doubt = functools.reduce(lambda x, y: code.do(f"or i1 {x}, {y}"), writer.doubts)
        code.run(f"store i8 {code.do(f'zext i1 {doubt} to i8')}, ptr {code.at('i8', '%doubts', index)}, align 1")
    names = [("i64", "count"), ("i64", "step"), ("ptr", "out"), ("ptr", "matrix")]
    names += [("ptr", "right")] * given + [("ptr", "doubts")]
    return WRITTEN_OUT + module(names, code, threaded, writer.declarations)


class _Writer:
    """Writes the factorisation of a matrix of so many rows, with so many right sides beside it."""

    def __init__(self, element: str, rows: int, sides: int) -> None:
        self.element, self.rows, self.sides = element, rows, sides
        self.code = Code()
        self.size = 8 if element == "double" else 4
        self.width = rows + sides
        self.wide, self.side = f"<{self.width} x double>", f"<{sides} x double>"
        self.names = {f"<{count} x double>": f"v{count}f64" for count in (self.width, sides) if count}
        self.declarations = [
            "declare double @llvm.fabs.f64(double)",
            *(f"declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})" for kind, name in self.names.items()),
        ]

    def row(self, matrix: str, right: str, number: int) -> str:
        """A row of the matrix with its right sides: those that are given, or a row of the identity."""
        code, short = self.code, f"<{self.rows} x double>"
        held = self._load(self.rows, code.at(self.element, matrix, str(number * self.rows)))
        if self.width == self.rows:
            return held
        places = ", ".join(f"i32 {min(k, self.rows)}" for k in range(self.width))
        row = code.do(f"shufflevector {short} {held}, {short} zeroinitializer, <{self.width} x i32> <{places}>")
        if not right:
            return code.do(f"insertelement {self.wide} {row}, double 1.0, i64 {self.rows + number}")
        given = self._load(self.sides, code.at(self.element, right, str(number * self.sides)))
        for k in range(self.sides):
            value = code.do(f"extractelement {self.side} {given}, i64 {k}")
            row = code.do(f"insertelement {self.wide} {row}, double {value}, i64 {self.rows + k}")
        return row

    def _load(self, count: int, pointer: str) -> str:
        """So many numbers, as doubles."""
        held = self.code.do(f"load <{count} x {self.element}>, ptr {pointer}, align {self.size}")
        if self.element == "double":
            return held
        return self.code.do(f"fpext <{count} x {self.element}> {held} to <{count} x double>")

    def _store(self, kind: str, value: str, pointer: str) -> None:
        """A number, or several, as the results are."""
        if self.element != "double":
            narrow = kind.replace("double", self.element)
            kind, value = narrow, self.code.do(f"fptrunc {kind} {value} to {narrow}")
        self.code.run(f"store {kind} {value}, ptr {pointer}, align {self.size}")

    def factorise(self, rows: list[str]) -> None:
        """What is left of the rows below each pivot, the pivots with their reciprocals, and which are in doubt."""
        code, least = self.code, self._least(rows)
        self.doubts, self.pivots, self.reciprocals, self.swaps = [], [], [], list[str]()
        for k in range(self.rows):
            for i in range(k + 1, self.rows):
                larger = code.do(f"fcmp ogt double {self._size(rows[i], k)}, {self._size(rows[k], k)}")
                rows[k], rows[i] = (
                    code.do(f"select i1 {larger}, {self.wide} {first}, {self.wide} {second}")
                    for first, second in ((rows[i], rows[k]), (rows[k], rows[i]))
                )
                self.swaps.append(larger)
            pivot = self._of(rows[k], k)
            self.doubts.append(code.do(f"fcmp ule double {self._size(rows[k], k)}, {least}"))
            reciprocal = code.do(f"fdiv double 1.0, {pivot}")
            for i in range(k + 1, self.rows):
                factor = code.do(f"fmul double {self._of(rows[i], k)}, {reciprocal}")
                rows[i] = self._less(self.wide, factor, rows[k], rows[i])
            self.pivots.append(pivot)
            self.reciprocals.append(reciprocal)
        self.left = rows

    def _least(self, rows: list[str]) -> str:
        """What a pivot has to be larger than."""
        code = self.code
        sizes = [self._size(row, k) for row in rows for k in range(self.rows)]

        def larger(x: str, y: str) -> str:
            return code.do(f"select i1 {code.do(f'fcmp ogt double {x}, {y}')}, double {x}, double {y}")

        distance = float(_DOUBT * np.finfo(np.float64).eps)
        return code.do(f"fmul double {functools.reduce(larger, sizes)}, {distance!r}")

    def store_solution(self, out: str) -> None:
        """What the right sides become, from the last row on."""
        code, known = self.code, dict[int, str]()
        places = ", ".join(f"i32 {self.rows + k}" for k in range(self.sides))
        for k in reversed(range(self.rows)):
            row = self.left[k]
            value = code.do(f"shufflevector {self.wide} {row}, {self.wide} poison, <{self.sides} x i32> <{places}>")
            for j in range(k + 1, self.rows):
                value = self._less(self.side, self._of(row, j), known[j], value)
            known[k] = code.do(f"fmul {self.side} {value}, {code.spread(self.side, self.reciprocals[k])}")
            self._store(self.side, known[k], code.at(self.element, out, str(k * self.sides)))

    def store_determinant(self, out: str) -> None:
        """The product of the pivots, with the sign of the order in which rows came."""
        code = self.code
        found = functools.reduce(lambda x, y: code.do(f"fmul double {x}, {y}"), self.pivots)
        odd = functools.reduce(lambda x, y: code.do(f"xor i1 {x}, {y}"), self.swaps, "false")
        other = code.do(f"fneg double {found}")
        self._store("double", code.do(f"select i1 {odd}, double {other}, double {found}"), out)

    def _of(self, row: str, place: int) -> str:
        return self.code.do(f"extractelement {self.wide} {row}, i64 {place}")

    def _size(self, row: str, place: int) -> str:
        """The absolute value of an element."""
        return self.code.do(f"call double @llvm.fabs.f64(double {self._of(row, place)})")

    def _less(self, kind: str, factor: str, x: str, y: str) -> str:
        """``y - factor * x``."""
        negative = self.code.do(f"fneg double {factor}")
        operands = f"{kind} {self.code.spread(kind, negative)}, {kind} {x}, {kind} {y}"
        return self.code.do(f"call {kind} @llvm.fma.{self.names[kind]}({operands})")
