"""Operators of two numbers that each may be of several sorts: by what the two are together.

A distance that is Python's infinity, Python's zero or the sum of NumPy's weights is one of four sorts, and two of them
are sixteen pairs. Few of these differ: an int beside an int is one case, and else an int is the double that it is
beside a double. What is computed is NumPy's unless both are Python's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.control.values import coerce, is_numeric, raw
from futurex.frontend.placeholders import Either
from futurex.frontend.trace import emit, read
from futurex.frontend.tracer import Tracer, fresh, strong
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_FLAG = Aval((), np.dtype(bool), weak=True)
_FEW = 4  # pairs that are not worth it
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
OPERATORS = COMPARISONS | {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow"}


@dataclass
class _Number:
    """What a number may be: its value as an int and as a double, and whether it is an int, and Python's."""

    ints: Node | None
    floats: Node | None
    is_int: Node
    is_python: Node

    @classmethod
    def of(cls, value: Either) -> _Number:
        sorts = [(raw(each).dtype, raw(each).aval.weak) for each in value.values]
        is_int = _any_of(value, [dtype == _INT for dtype, _ in sorts])
        is_python = _any_of(value, [weak for _, weak in sorts])
        numbers = [strong(raw(each)) for each in value.values]
        ints, floats = (_chosen(value, numbers, [each.dtype == dtype for each in numbers]) for dtype in (_INT, _FLOAT))
        return cls(ints, floats, is_int, is_python)

    def int_(self, of_python: bool = False) -> Tracer:
        assert self.ints is not None
        return fresh(read("python_scalar", self.ints, kind="i") if of_python else self.ints)

    def float_(self, of_python: bool = False) -> Tracer:
        if self.ints is None:
            node = self.floats
        else:
            node = emit("cast", self.ints, dtype=_FLOAT)
            node = node if self.floats is None else emit("where", self.is_int, node, self.floats)
        assert node is not None
        return fresh(read("python_scalar", node, kind="f") if of_python else node)


def pairs(name: str, left: Any, right: Any) -> Either | None:
    """The two as one of few pairs; None where they are others than real numbers of several sorts in double precision.
    """
    if type(left) is not Either or type(right) is not Either or name not in OPERATORS:
        return None
    if len(left.values) * len(right.values) <= _FEW or not all(map(_is_known, (*left.values, *right.values))):
        return None
    a, b = _Number.of(left), _Number.of(right)
    ints = _and(a.is_int, b.is_int)
    if name in COMPARISONS:
        return _compared(a, b, ints)
    own = _and(a.is_python, b.is_python)
    cases: list[tuple[Node, Any]] = []
    if a.ints is not None and b.ints is not None:
        cases += [(_and(ints, own), (a.int_(True), b.int_(True))), (ints, (a.int_(), b.int_()))]
    cases += [(own, (a.float_(True), b.float_(True))), (const(np.True_), (a.float_(), b.float_()))]
    return _first(cases)


def _compared(a: _Number, b: _Number, ints: Node) -> Either:
    """Python compares its own int with its own float exactly."""
    own = _and(a.is_python, b.is_python)
    cases: list[tuple[Node, Any]] = []
    if a.ints is not None and b.ints is not None:
        cases.append((ints, (a.int_(), b.int_())))
    if a.ints is not None:
        cases.append((_and(own, a.is_int), (a.int_(True), b.float_(True))))
    if b.ints is not None:
        cases.append((_and(own, b.is_int), (a.float_(True), b.int_(True))))
    return _first([*cases, (const(np.True_), (a.float_(), b.float_()))])


def outcome(left: Any, right: Any, test: Any) -> Any:
    """The outcome of a comparison of two: a bool of Python's where both are."""
    a, b = _Number.of(left), _Number.of(right)
    node = strong(raw(test))
    own = _and(a.is_python, b.is_python)
    what = "a comparison of numbers of several sorts"
    values = (fresh(read("python_scalar", node, kind="b")), fresh(node))
    return Either(values, (coerce(own, _FLAG),), what, "which they are depends on data")


def _first(cases: Sequence[tuple[Node, Any]]) -> Either:
    """What stands beside the first test that is true."""
    tests, values = zip(*cases, strict=True)
    what = "a number that is one of several sorts"
    return Either(tuple(values), tuple(coerce(test, _FLAG) for test in tests[:-1]), what, "which it is depends on data")


def _is_known(value: Any) -> bool:
    """Is it an int or double, Python's or NumPy's?"""
    if not is_numeric(value) or raw(value).aval.shape or raw(value).dtype not in (_INT, _FLOAT):
        return False
    return not isinstance(value, Tracer) or (value.is_scalar and not value._loose and value._guard is None)


def _any_of(value: Either, flags: Sequence[bool]) -> Node:
    """Is it a value with such a flag?"""
    node: Any = const(np.bool_(flags[-1]))
    for flag, is_such in reversed([*zip(value.flags, flags, strict=False)]):
        node = emit("where", flag, const(np.bool_(is_such)), node)
    return node


def _chosen(value: Either, numbers: Sequence[Node], wanted: Sequence[bool]) -> Node | None:
    """The number, if it is a wanted one; else any."""
    node: Node | None = None
    for k in reversed(range(len(numbers))):
        if wanted[k]:
            node = numbers[k] if node is None else emit("where", value.flags[k], numbers[k], node)
    return node


def _and(*tests: Node) -> Node:
    return functools.reduce(functools.partial(emit, "logical_and"), tests)
