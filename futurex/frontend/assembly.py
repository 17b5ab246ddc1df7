"""From the outputs of a plan to what a call returns, and to what it puts into the caller's objects."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.entries import Listed, views
from futurex.frontend.entry_kinds import parts_of
from futurex.frontend.inflight import Result
from futurex.frontend.kept import found_at
from futurex.frontend.number_lists import shape_of
from futurex.frontend.objects import fill
from futurex.frontend.replay import Entry as Change
from futurex.frontend.variants import Output, Variant
from futurex.frontend.which import NOBODYS, taken_apart
from futurex.ops.streams import generator_of
from futurex.ops.views import read_only, view
from futurex.runtime.futures import Done
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Symbol, renamed, replaced
from futurex.tree.pytree import unflatten

_NUMBER = Aval((), np.dtype(np.int64))


def _viewed(output: Output, inner: Sequence[Result], value: Any) -> Any:
    """A view; where it begins and ends the run may have computed, as ``inner`` tell."""
    chain, values = output.chain, [future.result() for future in inner]
    split = len(values) - len(output.dims)
    if inner:
        known = dict(zip(output.dims, values[split:], strict=True))
        chain = replaced(chain, known.__getitem__)
    seen = view(value, chain, values[:split])
    return read_only(seen) if output.frozen else seen


def left_behind(
    variant: Variant, leaves: list[Any], captured: list[Any], futures: Sequence[Result], arguments: Any
) -> Any:
    """The result of a call with these ``(args, kwargs)``; the caller's objects are changed as the trace did.

    They are found by what others of them held before.
    """
    made = _Made(variant, leaves, captured, futures, arguments)
    changed = [found for each in variant.changes for found in each.made(arguments, made.settled)]
    result = made.result()
    for target, entries in changed:
        fill(target, entries)
    return result


class _Made:
    """What one call makes of its outputs."""

    def __init__(
        self, variant: Variant, leaves: list[Any], captured: list[Any], futures: Sequence[Result], arguments: Any
    ) -> None:
        self._variant, self._leaves, self._captured = variant, leaves, captured
        self._futures, self._arguments = futures, arguments
        self._sizes = _sizes_of(variant, leaves) if variant.opened else {}
        self._shared: list[Any] = []  # nests in several places of the result
        self._same: dict[int, Any] = {}  # arrays that are left in several places
        self._left: dict[int, Any] = {}  # of these, those that the caller's objects have
        self._numbered: dict[int, Any] = {}  # those that the run names

    def result(self) -> Any:
        for outputs, structure in self._variant.shared:
            self._shared.append(unflatten(structure, map(self._of_result, outputs)))
        return unflatten(self._variant.structure, map(self._of_result, self._variant.outputs))

    def _of_result(self, output: Output) -> Any:
        """What the caller's objects have, too, is the array itself, as it is where the call runs as plain NumPy."""
        return self._leaf(output) if output.same not in self._left else self._left[output.same]

    def settled(self, entry: Change) -> Any:
        """What a run puts into the caller's object: arrays that the caller may change, not futures."""
        return unflatten(entry.structure, map(self._value, entry.outputs))

    def _value(self, output: Output) -> Any:
        if output.same in self._left:
            return self._left[output.same]
        if output.kind == "rows":
            return self._numbers(output)
        found = self._leaf(output)
        if not isinstance(found, Array):
            return found
        value = found.result()
        if isinstance(value, np.ndarray) and not (value.flags.writeable or output.frozen):
            value = np.array(value)
        if output.same is not None:
            self._left[output.same] = value
        return value

    def _leaf(self, output: Output) -> Any:
        if output.same is None:
            return self._made(output)
        if output.same not in self._same:
            self._same[output.same] = self._made(output)
        return self._same[output.same]

    def _made(self, output: Output) -> Any:
        if output.kind == "out":  # as most are
            return self._out(output)
        if output.kind == "static":
            return output.value
        if output.kind == "given":
            return found_at(self._arguments, output.value.place)
        if output.kind == "outside":
            return found_at(output.value.read(), output.value.place)
        if output.kind == "shared":
            return self._shared[output.index]
        if output.kind == "set":
            return set(output.value)
        if output.kind == "generator":
            return generator_of(self._futures[output.index].result())
        if output.kind == "one of":
            return self._one_of(output)
        if output.kind == "either":
            return self._either(output)
        if output.kind in ("rows", "entries"):
            return self._rows(output) if output.kind == "rows" else self._entries(output)
        if output.kind == "nest":
            return unflatten(output.value, map(self._leaf, output.among.values()))
        if output.kind == "arg":
            target = self._given(output)
            if isinstance(target, Array) and not output.chain:
                return target
            return self._view_of(target, output) if output.chain else target
        raise AssertionError(output.kind)

    def _view_of(self, target: Any, output: Output) -> Any:
        return _viewed(output, self._inner(output), np.asarray(target))

    def _out(self, output: Output) -> Any:
        assert output.aval is not None
        is_view = output.chain or output.frozen
        chain = functools.partial(_viewed, output, self._inner(output)) if is_view else None
        aval, sizes = output.aval, self._sizes
        if sizes and not aval.static:
            aval = aval.with_extents(lambda extent: renamed(extent, sizes) if isinstance(extent, Dim) else extent)
        array = Array(self._futures[output.index], aval, chain, output.is_array)
        is_object = chain is not None and output.same is not None and self._variant.changes
        return array.result() if is_object else array  # each look at a future's view is a new object

    def _inner(self, output: Output) -> Sequence[Result]:
        first, count = output.inner
        return self._futures[first : first + count]

    def _given(self, output: Output) -> Any:
        return self._leaves[output.index] if output.index >= 0 else self._captured[~output.index]

    def _one_of(self, output: Output) -> Any:
        """The array with the number that the run says. Of a run that failed, and of what was given away, the elements.
        """
        future = self._futures[output.index]
        number = NOBODYS if future.exception() is not None else int(np.asarray(Array(future, _NUMBER).result()))
        if number == NOBODYS:
            return self._leaf(output.value)
        if output.chain:
            return self._with_number(output, *taken_apart(number))
        if number not in self._numbered:
            self._numbered[number] = self._with_number(output, *taken_apart(number))
        return self._numbered[number]

    def _either(self, output: Output) -> Any:
        """What the run says. Of a run that failed its error, for whoever looks at it."""
        number = Array(self._futures[output.index], _NUMBER)
        if self._futures[output.index].exception() is not None:
            return number
        return self._leaf(output.among[int(np.asarray(number.result()))])

    def _rows(self, output: Output) -> Any:
        """A list that is as long as the run says. Of a run that failed its error, for whoever looks at it."""
        parts = parts_of(output.value)
        futures = self._futures[output.index : output.index + len(parts)]
        failed = next((future for future in futures if future.exception() is not None), None)
        if failed is not None:
            return Array(failed, _NUMBER)
        avals = (Aval((0,), part.aval.dtype) for part in parts)
        return Listed(output.value).of(Array(*each).result() for each in zip(futures, avals, strict=True))

    def _entries(self, output: Output) -> list[Any]:
        """A list of known length: its entries are there when the arrays are of which they are rows."""
        parts = parts_of(output.value)
        futures = self._futures[output.index : output.index + len(parts)]
        found = [future.value for future in futures if type(future) is Done and type(future.value) is np.ndarray]
        if len(found) == len(futures):
            return Listed(output.value).of(iter(found), futures[0].call)
        return views(output, futures)

    def _numbers(self, output: Output) -> list[Any]:
        """What a list of the caller's holds: numbers, no futures."""
        futures = self._futures[output.index : output.index + len(parts_of(output.value))]
        arrays = [np.asarray(future.result()) for future in futures]
        found: list[Any] = arrays[0].tolist() if len(arrays) == 1 else Listed(output.value).of(iter(arrays))
        if len(arrays) == 1:
            return found
        return [[each.result() for each in row] if type(row) is list else row.result() for row in found]

    def _with_number(self, output: Output, number: int, row: int) -> Any:
        other = output.among.get(number, output.value)
        if other.kind == "row":
            return view(np.asarray(self._given(other)), other.chain, (row,))
        found = self._leaf(other)
        return self._leaf(output.value) if isinstance(found, Array) and found._future.gone is not None else found


def _sizes_of(variant: Variant, leaves: Sequence[Any]) -> dict[Symbol, int]:
    """What the symbols of a trace for many sizes are in a call."""
    known: dict[Symbol, int] = {}
    for place, aval in variant.opened.items():
        pairs = zip(aval.shape, shape_of(leaves[place]) if aval.shape else (), strict=True)
        known.update((mine.symbol, extent) for mine, extent in pairs if isinstance(mine, Dim) and mine.symbol)
    return known
