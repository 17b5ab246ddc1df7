"""Linear maps as programs of sums, differences and constant multiples, shared where they are equal; Fourier transforms.

A transform is divided into those of the factors of its length: of factors without a common divisor (Good, The
Interaction Algorithm and Practical Fourier Analysis, 1958), else with constants between them (Cooley and Tukey, 1965);
that of a prime takes half the multiplications by sums and differences of what lies opposite. Real input has half the
coefficients. The transpose of a program is the program backwards, and takes as much work (Bordewijk, 1956).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from futurex.ops.spectra import factors

Term = tuple[int, int] | None
"""A sign and a step; None is zero."""
Complex = tuple[Term, Term]


@dataclass(frozen=True, slots=True)
class Made:
    """A step: ``input`` number ``first``; ``add`` and ``sub`` of two steps; ``scale`` of one by a constant."""

    kind: str
    first: int
    second: int = -1
    constant: float = 1.0


@dataclass
class Program:
    """Steps in the order in which they are made, each of them once."""

    steps: list[Made] = field(default_factory=list)
    _known: dict[Made, int] = field(default_factory=dict)

    def input(self, number: int) -> Term:
        return 1, self._step(Made("input", number))

    def _step(self, made: Made) -> int:
        if made not in self._known:
            self._known[made] = len(self.steps)
            self.steps.append(made)
        return self._known[made]

    def add(self, x: Term, y: Term) -> Term:
        if x is None or y is None:
            return y if x is None else x
        (sign, first), (other, second) = sorted((x, y), key=lambda term: term[1])
        return sign, self._step(Made("add" if sign == other else "sub", first, second))

    def sub(self, x: Term, y: Term) -> Term:
        return self.add(x, negative(y))

    def scale(self, constant: float, x: Term) -> Term:
        constant = round(constant, 12)  # sines of right angles are zero
        if x is None or not constant:
            return None
        sign, step = x
        sign = sign if constant > 0 else -sign
        constant = float(np.float32(abs(constant)))
        return (sign, step) if constant == 1 else (sign, self._step(Made("scale", step, constant=constant)))

    def sum(self, terms: Sequence[Term]) -> Term:
        total: Term = None
        for term in terms:
            total = self.add(total, term)
        return total

    def transform(self, x: Sequence[Complex]) -> list[Complex]:
        """The discrete Fourier transform, with ``exp(-2 pi i j k / n)``."""
        n, primes = len(x), factors(len(x))
        if n == 1:
            return list(x)
        if primes == (n,):
            return self._prime(x)
        inner = math.prod(each for each in primes if each == primes[-1])
        apart = inner != n
        if not apart:
            inner = n // primes[0]
        outer = n // inner
        columns = [
            self.transform([x[(outer * j + (inner if apart else 1) * row) % n] for j in range(inner)])
            for row in range(outer)
        ]
        real = all(imaginary is None for _, imaginary in x)
        found: list[Complex] = [(None, None)] * n
        for k in range(inner // 2 + 1 if real else inner):
            column = [each[k] for each in columns]
            if not apart:
                column = [self._turned(value, -2 * math.pi * j * k / n) for j, value in enumerate(column)]
            for number, value in enumerate(self.transform(column)):
                place = k + inner * number
                if apart:
                    place = next(each for each in range(k, n, inner) if each % outer == number)
                found[place] = value
                if real and k and 2 * k != inner:
                    found[n - place] = value[0], negative(value[1])
        return found

    def _turned(self, x: Complex, angle: float) -> Complex:
        c, s = math.cos(angle), math.sin(angle)
        return (
            self.sub(self.scale(c, x[0]), self.scale(s, x[1])),
            self.add(self.scale(s, x[0]), self.scale(c, x[1])),
        )

    def _prime(self, x: Sequence[Complex]) -> list[Complex]:
        """Of prime length: what lies opposite has equal cosines, and sines that differ in sign."""
        n, half = len(x), range(1, (len(x) + 1) // 2)
        reals, imaginaries = zip(*x, strict=True)
        if n == 2:
            return [(self.add(*reals), self.add(*imaginaries)), (self.sub(*reals), self.sub(*imaginaries))]
        even, odd = [], []  # by part: what cosines and sines make of it, for each coefficient up to the middle
        for part in (reals, imaginaries):
            sums = [self.add(part[j], part[n - j]) for j in half]
            differences = [self.sub(part[j], part[n - j]) for j in half]
            angles = [[2 * math.pi / n * (j * k % n) for j in half] for k in half]
            even.append([self.sum([part[0], *map(self.scale, map(math.cos, row), sums)]) for row in angles])
            odd.append([self.sum([*map(self.scale, map(math.sin, row), differences)]) for row in angles])
            even[-1].insert(0, self.sum([part[0], *sums]))
        found: list[Complex] = [(None, None)] * n
        found[0] = even[0][0], even[1][0]
        for k in half:
            (a, b), (c, d) = ((each[k], other[k - 1]) for each, other in zip(even, odd, strict=True))
            found[k], found[n - k] = (self.add(a, d), self.sub(c, b)), (self.sub(a, d), self.add(c, b))
        return found


def negative(x: Term) -> Term:
    """The same step with the other sign."""
    return None if x is None else (-x[0], x[1])


@dataclass(frozen=True)
class Map:
    """A program with its results: one term for each row."""

    program: Program
    results: tuple[Term, ...]
    inputs: int

    @property
    def transpose(self) -> Map:
        """The transposed map."""
        made, steps = Program(), self.program.steps
        flowing: list[Term] = [None] * len(steps)
        for number, result in enumerate(self.results):
            if result is not None:
                sign, step = result
                given = made.input(number)
                flowing[step] = made.add(flowing[step], given if sign > 0 else negative(given))
        found: list[Term] = [None] * self.inputs
        for step in reversed(range(len(steps))):
            each, term = steps[step], flowing[step]
            if term is None:
                continue
            if each.kind == "input":
                found[each.first] = term
            elif each.kind == "scale":
                flowing[each.first] = made.add(flowing[each.first], made.scale(each.constant, term))
            else:
                flowing[each.first] = made.add(flowing[each.first], term)
                second = term if each.kind == "add" else negative(term)
                flowing[each.second] = made.add(flowing[each.second], second)
        return Map(made, tuple(found), len(self.results))

    def live(self) -> list[int]:
        """The steps that results need, in order."""
        steps, needed = self.program.steps, {term[1] for term in self.results if term is not None}
        for step in reversed(range(len(steps))):
            if step in needed and steps[step].kind != "input":
                needed.update(each for each in (steps[step].first, steps[step].second) if each >= 0)
        return sorted(needed)
