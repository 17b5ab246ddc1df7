"""The two ends of a run: arguments are checked and put in place, results are handed over in memory of their own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from futurex.kernels.copies import in_c_order
from futurex.kernels.recycling import LEAST_BYTES, kept, maker
from futurex.runtime.futures import Resident
from futurex.runtime.instance import Values
from futurex.runtime.lower import Kind, Lowering
from futurex.runtime.memory import Layout
from futurex.tree.aval import PYTHON_SCALARS, Aval, aval_of
from futurex.tree.dims import fits


class Delivery:
    """What one plan expects and how it gives back each output."""

    def __init__(self, low: Lowering, layout: Layout, donate: Mapping[int, int]) -> None:
        self._name = low.graph.name
        self._names = [node.attrs["name"] for node in low.graph.params]
        self._avals: list[Aval] = [node.aval for node in low.graph.params]
        self.donated = dict(donate)
        """Which results are written over which arguments."""
        self._expected: list[tuple[Any, Any, Any]] = [_expected(aval) for aval in self._avals]
        self._fresh = [(root, low.slots[root].aval, out) for root, out in layout.fresh.items()]
        self._given = [(root, low.slots[root].aval, param) for root, param in layout.donated.items()]
        self.in_place = set(donate.values()) <= set(layout.donated.values())
        """Is every donated result written where it belongs, if nothing else lies there?"""
        self._low, self._layout = low, layout
        given: set[int] = set()
        self.outs = [(index, self._copies(number, given)) for number, index in enumerate(low.outs)]
        """The slot of each output, and how the caller's copy is made; nothing where the caller gets the array."""

    def _copies(self, number: int, given: set[int]) -> str:
        slot = self._low.slots[self._low.outs[number]]
        if slot.kind is Kind.SCALAR:
            return ""
        if number in self.donated:
            return "" if slot.kind is Kind.BUFFER else "copied"
        if slot.root in given:
            return "copied"
        if slot.kind is Kind.OWN and self._low.slots[slot.root].kind is Kind.OWN:
            given.add(slot.root)
            return ""
        if slot.kind is not Kind.BUFFER:
            return "copied"
        if self._layout.fresh.get(slot.root) == number:
            return ""
        whole = slot.layout.nbytes == self._low.slots[slot.root].layout.nbytes
        return "turned" if whole and not slot.layout.flags.c_contiguous else "copied"

    def check(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as plain arrays and scalars of the expected types. Raises TypeError or ValueError."""
        if len(args) != len(self._avals):
            raise TypeError(f"{self._name} takes {len(self._avals)} arguments, got {len(args)}")
        taken = list(args)
        for place, (arg, (kind, shape, dtype)) in enumerate(zip(args, self._expected, strict=True)):
            if type(arg) is not kind or (kind is np.ndarray and (arg.shape != shape or arg.dtype != dtype)):
                taken[place] = self._admit(place, arg, self._avals[place])
        for param in self.donated.values():
            array = taken[param]
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise ValueError(f"{self._name}: {self._called(param)} was donated and must be a writable array")
        return taken

    def _admit(self, place: int, arg: Any, aval: Aval) -> Any:
        if aval.dtype.hasobject:
            return arg
        if isinstance(arg, Resident):
            arg = arg.host()
        if type(arg) in PYTHON_SCALARS or isinstance(arg, np.generic | np.ndarray):
            found = aval_of(arg)
            if (found.dtype, found.weak) == (aval.dtype, aval.weak) and fits(found.shape, aval.shape):
                return arg.view(np.ndarray) if isinstance(arg, np.ndarray) else arg
            raise TypeError(f"{self._name}: {self._called(place)} must be {aval!r}, got {found!r}")
        raise TypeError(f"{self._name}: {self._called(place)} must be {aval!r}, got a {type(arg).__name__}")

    def _called(self, place: int) -> str:
        return f"argument {place}" + (f" ({self._names[place]})" if self._names[place] else "")

    def prepare(self, values: Values, taken: Sequence[Any], outs: Sequence[Any] | None) -> None:
        """Put the arrays in place that differ from run to run: fresh ones for results, donated arguments."""
        for root, aval, number in self._fresh:
            values[root] = spare(outs or (), number, aval.shape, aval.dtype)
        if not self._given:
            return
        seen = often(taken)
        for root, aval, param in self._given:
            values[root] = given(taken[param], seen, aval.shape, aval.dtype)

    def deliver(self, values: Values, args: Sequence[Any]) -> list[Any]:
        """The outputs; donated ones are written to their arguments last, when nothing reads those any more."""
        results = [COPIES[copy](values[index]) if copy else values[index] for index, copy in self.outs]
        return self.hand_back(results, args)

    def hand_back(self, results: list[Any], args: Sequence[Any]) -> list[Any]:
        """The results, those that were donated in the arguments that they belong to."""
        for number, param in self.donated.items():
            target = args[param]
            if results[number] is not target:
                np.copyto(target, results[number])
                results[number] = target
        return results


def _expected(aval: Aval) -> tuple[Any, Any, Any]:
    """What passes without a closer look: the type, and of an array its shape and dtype."""
    if aval.weak:
        return type(aval.dtype.type(0).item()), None, None
    return (np.ndarray if aval.static else None), aval.shape, aval.dtype


def spare(outs: Sequence[Any], number: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array for a result: the caller's, if it has one that fits."""
    given = outs[number] if number < len(outs) else None
    if isinstance(given, np.ndarray) and given.shape == shape and given.dtype == dtype and given.flags.carray:
        return given
    return maker(math.prod(shape) * dtype.itemsize)(shape, dtype)


def all_given(
    arrays: Sequence[Any], args: Sequence[Any], kinds: Sequence[tuple[tuple[int, ...], Any]]
) -> Sequence[Any]:
    """Where donated results are written, for all of a run."""
    if len(set(map(id, args))) == len(args) and all(array.flags.carray for array in arrays):
        return arrays
    seen = often(args)
    return [given(array, seen, *kind) for array, kind in zip(arrays, kinds, strict=True)]


def often(args: Sequence[Any]) -> Counter[int]:
    """How many times each object is among the arguments."""
    return Counter(map(id, args))


def given(array: Any, seen: Mapping[int, int], shape: tuple[int, ...], dtype: Any) -> Any:
    """Where a donated result is written: the argument itself, unless it is another one too or lies otherwise."""
    return array if array.flags.carray and seen[id(array)] == 1 else np.empty(shape, dtype)


def copied(value: Any) -> Any:
    """``value`` in memory of its own."""
    return in_c_order(value) if isinstance(value, np.ndarray) else value


def turned(value: Any) -> Any:
    """The same of an array that is another result, too, with its axes in another order: it lies as that one does."""
    return kept(np.copy, value, "K") if value.nbytes >= LEAST_BYTES else np.array(value, order="K")


COPIES = {"copied": copied, "turned": turned}
