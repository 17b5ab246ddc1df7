"""Sequences of values that loops make and read: arrays cut along axis 0, and tapes, whose length only the run knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.ops.elementwise import zeros_like
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, build


@dataclass(frozen=True, slots=True, repr=False)
class Tape(Aval):
    """A sequence of values of one type; how many only the run knows. At run time it is a list."""

    element: Aval = field(default_factory=lambda: Aval((), np.dtype(float)))

    @property
    def inexact(self) -> bool:
        return self.element.inexact

    @property
    def extents(self) -> tuple[Any, ...]:
        return self.element.extents

    def with_extents(self, of: Callable[[Any], Any]) -> Aval:
        return Tape(self.shape, self.dtype, self.weak, self.element.with_extents(of))

    def text(self, names: dict[Any, str]) -> str:
        return f"tape of {self.element.text(names)}"


def sequence(element: Aval, length: int | None) -> Aval:
    """The abstract value of ``length`` values stacked, or of a tape of them."""
    if length is None:
        return Tape((), np.dtype(object), False, element)
    return Aval((length, *element.shape), element.dtype)


def element(aval: Aval) -> Aval:
    """The abstract value of one round's part of a sequence."""
    return aval.element if isinstance(aval, Tape) else Aval(aval.shape[1:], aval.dtype)


def plain(aval: Aval) -> Aval:
    """The type of a derivative of such a value."""
    return Tape((), aval.dtype, False, plain(aval.element)) if isinstance(aval, Tape) else Aval(aval.shape, aval.dtype)


@dataclass(frozen=True)
class Batched:
    """The value of a node for all examples of a ``vmap``: with their axis in front, or the same for all.

    A tape has the axis in its elements. Where examples stop at different rounds, ``mask`` is a tape of booleans, one
    for each example: an element counts for those that still run.
    """

    node: Any
    batched: bool
    mask: Node | None = None


def collector(element: Aval, length: int | None, rounds: int) -> Any:
    """Where the elements of a sequence are put, one a round."""
    return [None] * rounds if length is None else np.empty((rounds, *element.shape), element.dtype)


def zeros_for(value: Node) -> Node:
    """The derivative of a value on which nothing depends."""
    return apply("zero_tape", value) if isinstance(value.aval, Tape) else zeros_like(plain(value.aval))


def added(x: Node, y: Node) -> Node:
    """The sum of two derivatives of one value; one that a part of it has is added to that part of the other."""
    if isinstance(x.aval, Tape):
        return apply("add_tapes", x, y)
    if _is_of_part(x) and not _is_of_part(y):
        x, y = y, x
    if not _is_of_part(y) or x.aval != y.aval:
        return x + y
    if _is_nothing_in(x, y):
        return _with_part(x.inputs[0], y)
    return build(y.record, (x, *y.inputs[1:]), y.attrs, y.aval, y.src)


def _is_of_part(derivative: Node) -> bool:
    """Is it zero but for what was added to one part of it?"""
    if derivative.op != "store" or derivative.attrs["mode"] != "add" or "dims" in derivative.attrs:
        return False
    base = derivative.inputs[0]
    return base.op == "full" and base.inputs[0].op == "const" and not np.any(base.inputs[0].value)


def _is_nothing_in(derivative: Node, other: Node) -> bool:
    """Has it been set to zero in the part to which the other one adds, as where ``y[1:] += x`` writes what it reads?"""
    if derivative.op != "store" or derivative.attrs != {**other.attrs, "mode": "set"}:
        return False
    value, plain_view = derivative.inputs[1], all(step[0] == "index" for step in other.attrs["chain"])
    zero = value.op == "const" and not np.any(value.value)
    return zero and plain_view and derivative.inputs[2:] == other.inputs[2:]


def _with_part(base: Node, part: Node) -> Node:
    """The derivative with what another one adds to a part of it in the place of that part; it may be what is there."""
    value, indices, chain = part.inputs[1], part.inputs[2:], part.attrs["chain"]
    own = value.op == "load" and value.inputs == (base, *indices) and value.attrs["chain"] == chain
    return base if own else apply("store", base, value, *indices, **{**part.attrs, "mode": "set"})
