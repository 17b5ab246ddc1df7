"""What stands for a list whose length depends on data while rounds append to it: rows of arrays, and which of them
count.

A round writes a row for each of its appends, whether it appends or not, and a flag that says whether it did. Behind the
loop the list has the rows whose flags are set, in the order of the rounds: so the loop carries arrays of known sizes,
and is compiled whole, as is its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import Entry, parts_of, share_entry, zeros_of
from futurex.frontend.errors import Escape
from futurex.frontend.lists import TracedList
from futurex.frontend.outside import items, own_container
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import entered, fresh, new_array, strong
from futurex.tree.node import Node, const

if TYPE_CHECKING:
    from futurex.frontend.control.collected import Collector

ROOM = 1 << 20
"""Elements of such an array, at most: a list to which most rounds add nothing may be much smaller."""
_WHAT = "a list that rounds add to"
_BOOL = np.dtype(bool)


class Put(NamedTuple):
    """What rounds do at one place: they add one entry, or up to ``width`` at once; ``surely``, or in a branch."""

    width: int
    surely: bool


class Sometimes:
    """A list with a ``number``: ``values`` is what it was before the loop, or what stands for it in rounds of a loop
    around."""

    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("arrays", "collector", "flags", "kind", "now", "number", "puts", "root", "slots", "values")

    def __init__(self, collector: Collector, number: int, values: TracedList | Sometimes) -> None:
        self.collector, self.number, self.values = collector, number, values
        self.root: TracedList = values.root if isinstance(values, Sometimes) else values
        self.kind = self.root.kind
        self.puts: tuple[Put, ...] = collector.known.puts.get(number, ())
        self.now: list[Put] = []
        self.slots: list[list[Any]] = []
        count = collector.first + len(collector.rounds)
        if any(count * self._width * math.prod(each.aval.shape) > ROOM for each in parts_of(self.kind)):
            raise Escape(_WHAT, "the rows of all rounds would be a large array")
        rows = [zeros_of(each, count, *self._axis) for each in parts_of(self.kind)]
        self.arrays = [*map(new_array, rows)]
        self.flags = new_array(emit("full", const(False), shape=(count, *self._axis), dtype=_BOOL))

    @property
    def _width(self) -> int:
        """How many rows a round has."""
        return sum(put.width or 1 for put in self.puts)

    @property
    def _axis(self) -> tuple[int, ...]:
        """The axis that they lie along, if there is more than one."""
        return () if [put.width for put in self.puts] == [0] else (self._width,)

    # -- rounds ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A round begins: it has added nothing."""
        self.now = []
        self.slots = [
            current().remember([fresh(emit("full", const(False), shape=axis, dtype=_BOOL)) if axis else False,
                                *(fresh(zeros_of(each, *axis)) for each in parts_of(self.kind))])
            for axis in ((put.width,) if put.width else () for put in self.puts)
        ]  # fmt: skip

    def put(self, value: Any) -> None:
        value = self.root.taken(value)
        self.root.check(Entry.of(value))
        for part in parts_of(value):
            share_entry(part)
        self._put(0, const(True), [strong(raw(part)) for part in parts_of(value)])

    append = put

    def extend(self, values: Any) -> None:
        for value in items(values):
            self.put(value)

    def add(self, flags: Node, columns: Sequence[Node]) -> None:
        """Those entries that count, of as many as an inner loop's rounds may have added."""
        self._put(flags.shape[0], flags, columns)

    def _put(self, width: int, flag: Node, parts: Sequence[Node]) -> None:
        now, place = self.now, len(self.now)

        def undo() -> None:
            del now[place:]

        current().regions[-1].undo.append(undo)
        now.append(Put(width, not width and current().scopes[-1] is self.collector.scope))
        if place < len(self.puts) and self.puts[place].width == width:
            slot = self.slots[place]
            own_container(slot, "an entry of a list")
            slot[:] = [True if flag.op == "const" else fresh(flag), *map(fresh, parts)]

    def finish(self, place: Any) -> bool:
        """A round is over: write what it has added. False if it adds otherwise than it was thought to."""
        if tuple(self.now) != self.puts:
            return False
        first = 0
        for put, slot in zip(self.puts, self.slots, strict=True):
            for array, value in zip([self.flags, *self.arrays], map(entered, slot), strict=True):
                if not self._axis:
                    array[place] = value
                elif put.width:
                    array[place, first : first + put.width] = value
                else:
                    array[place, first] = value
            first += put.width or 1
        return True

    def deliver(self) -> None:
        """The loop is done: the list gets its entries."""
        first, whole = self.collector.first, self.collector.left is None and all(put.surely for put in self.puts)
        arrays = [array[first:] if first else array for array in (self.flags, *self.arrays)]
        if self._axis:
            count = len(self.collector.rounds) * self._width
            arrays = [array.reshape(count, *array.shape[2:]) for array in arrays]
        flags, *columns = arrays
        if isinstance(self.values, Sometimes):
            self.values.add(flags._node, [column._node for column in columns])
        else:
            nodes = [column._node if whole else column[flags]._node for column in columns]
            self.values.add_rows(nodes)

    # -- what rounds may not ask -------------------------------------------------------------------------------------

    def _refuse(self) -> Any:
        raise Escape(_WHAT, "how long it is depends on data")

    __len__ = __iter__ = __fx_items__ = _refuse

    def __getitem__(self, index: Any) -> Any:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"{name}() of a list that rounds add to", "what it has is not known yet")
