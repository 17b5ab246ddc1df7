"""Compiled transforms around the products of a fast convolution: a vector of columns at a time, in straight code.

The map is part of the text. For 71 positions and 107 products a matrix product takes ten times the arithmetic.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import Written, splat, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.linear import Map, Program, Term, negative
from futurex.kernels.numba_.pairwise import PREFETCH, prefetch
from futurex.kernels.threads import openmp
from futurex.ops.spectra import period_of
from futurex.tree.node import Node

LANES = 16
_KIND = f"<{LANES} x float>"
_LONGEST = 3000
"""Steps of a program that are worth compiling: long ones come of periods with a large prime factor."""


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``spectral_map`` node, or None for what is not compiled."""
    if not node.is_static or node.dtype != np.float32 or not node.size or not node.inputs[0].size:
        return None
    columns = math.prod(node.shape[1:])
    attrs = tuple(sorted(node.attrs.items()))
    if columns < LANES or len(_map(attrs).live()) > _LONGEST:
        return None
    text = _text(attrs, openmp() is not None)
    return Written(node, threads_for(node, threads), text, (-(-columns // LANES), columns))


@functools.lru_cache(maxsize=64)
def _map(attrs: tuple[tuple[str, Any], ...]) -> Map:
    return map_of(**dict(attrs))


def map_of(which: str, back: bool, outputs: int, taps: int, length: int, low: int) -> Map:
    """The program of :func:`~futurex.ops.spectra.matrix_of`."""
    period = period_of(outputs, taps)
    first, count = {"weights": (0, taps), "positions": (low, length), "results": (0, outputs)}[which]
    program = Program()
    inside = [program.input(number) for number in range(count)]
    x: list[Term] = [*[None] * first, *inside, *[None] * (period - first - count)]
    rows: list[Term] = []
    for k, (real, imaginary) in enumerate(program.transform([(each, None) for each in x])[: period // 2 + 1]):
        single = 2 * k in (0, period)
        if which == "results":
            real, imaginary = (program.scale((1 if single else 2) / period, each) for each in (real, imaginary))
        rows += [real] if single else _row(program, which, real, negative(imaginary))
    found = Map(program, tuple(rows), count)
    return found.transpose if back else found


def _row(program: Program, which: str, c: Term, s: Term) -> list[Term]:
    """What is multiplied for a complex coefficient, of its sums with cosines and with sines: see Algorithm."""
    if which == "weights":
        return [c, program.sub(s, c), program.add(c, s)]
    return [program.sub(c, s), *((negative(s), c) if which == "results" else (c, s))]


@functools.lru_cache(maxsize=64)
def _text(attrs: tuple[tuple[str, Any], ...], threaded: bool) -> str:
    parameters = [("i64", "tasks"), ("i64", "columns"), ("ptr", "out"), ("ptr", "source")]
    return module(parameters, _Writer(_map(attrs)).text(), threaded, [PREFETCH])


class _Writer:
    """The code of one map: a task is a vector of columns; the last one begins earlier, where it would not be full."""

    def __init__(self, found: Map) -> None:
        self.map, self.code = found, Code()
        self.held: dict[int, str] = {}

    def text(self) -> Code:
        code, steps = self.code, self.map.program.steps
        rows: dict[int, list[tuple[int, int]]] = {}
        for row, term in enumerate(self.map.results):
            if term is not None:
                rows.setdefault(term[1], []).append((row, term[0]))
        with code.loop("%low", "%high") as (task, _):
            column = code.least(code.multiply(task, str(LANES)), code.do(f"sub i64 %columns, {LANES}"))
            self.source, self.out = (code.at("float", array, column) for array in ("%source", "%out"))
            for row, term in enumerate(self.map.results):
                if term is None:
                    self._store(row, splat(_KIND, "0.0"))
            for step in self.map.live():
                if steps[step].kind != "input" or step in rows:
                    value = self._value(step)
                    for row, sign in rows.get(step, ()):
                        self._store(row, value if sign > 0 else code.do(f"fneg {_KIND} {value}"))
        return code

    def _value(self, step: int) -> str:
        """The register of a step; inputs are loaded where they are needed first."""
        if step not in self.held:
            self.held[step] = self._made(step)
        return self.held[step]

    def _made(self, step: int) -> str:
        each, code = self.map.program.steps[step], self.code
        if each.kind == "input":
            place = code.at("float", self.source, code.multiply("%columns", str(each.first)))
            self._fetch(place)
            return code.do(f"load {_KIND}, ptr {place}, align 4")
        first = self._value(each.first)
        if each.kind == "scale":
            constant = f"0x{struct.unpack('=Q', struct.pack('=d', each.constant))[0]:016X}"
            return code.do(f"fmul contract {_KIND} {first}, {splat(_KIND, constant)}")
        return code.do(f"f{each.kind} contract {_KIND} {first}, {self._value(each.second)}")

    def _store(self, row: int, value: str) -> None:
        place = self.code.at("float", self.out, self.code.multiply("%columns", str(row)))
        self._fetch(place)
        self.code.run(f"store {_KIND} {value}, ptr {place}, align 4")

    def _fetch(self, place: str) -> None:
        """Ask for the line of the next vector: a hundred rows are more streams than a processor foresees."""
        self.code.run(prefetch(self.code.at("float", place, str(LANES)), second=True))
