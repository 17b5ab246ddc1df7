"""Which array a name stands for that branches or rounds have bound to several: the run says its number.

The elements of such an array are merged, so that they are right whichever it is. Where a call leaves it behind, in its
result or in an object of the caller's, it has to be the very array: its other names see what is written later. A trace
that comes to this is made again with a ``Numbering``, and then merges and carries beside the elements of each array a
number that says which it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.indexing import shifted
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered
from futurex.ops.views import Chain
from futurex.tree.aval import Aval
from futurex.tree.dims import dims_in
from futurex.tree.node import Node, const, param

NOBODYS = -1
"""The number of an array that no other name refers to."""
_ROUND = 1 << 32
"""What stands in a number before which array of its round it is: how often rounds had begun when the array was made, or
which row it is of an array from outside."""
_WHY = "which array it is depends on data"


@dataclass(frozen=True)
class Which:
    """The ``number`` of an array, None where nobody has counted, and all that it may be.

    While a loop is traced, the cells of its stand-ins stand for what these may be.
    """

    number: Node | None
    among: frozenset[Any]

    def joined(self, other: Which, number: Node) -> Which:
        """Of an array that is either of two."""
        return Which(number, self.among | other.among)


UNKNOWN = Which(None, frozenset())


@dataclass(frozen=True)
class _Known:
    """An array with a number. One that was ``made`` in a branch or round is only there in it.

    Of a ``row``, a view of another array at a place that the branch or round has computed, the number tells the place.
    """

    array: Tracer
    made: bool
    row: bool


class Numbering:
    """The numbers of the arrays of one trace that may come under several names."""

    def __init__(self) -> None:
        self.known: list[_Known] = []
        self._numbers: dict[Any, int] = {}
        self.cells: set[Cell] = set()  # whose arrays have numbers
        self._clock = Cell(const(np.int64(0)), is_array=False)
        self._clock.born = -1

    def round(self) -> Node:
        """A round begins: how many have until now."""
        self._clock.settle(emit("add", self._clock.value, const(np.int64(1))))
        return self._clock.value

    def number(self, array: Tracer, start: int) -> Which:
        """The number of an array that is none of a merger; ``start``: where the branch or loop begins that ends now."""
        found = self._number(array, start)
        return Which(self._in_this_round(found, array._cell), frozenset({found}))

    def _number(self, array: Tracer, start: int) -> int:
        key, cell, scopes = place_of(array), array._cell, current().scopes
        if key not in self._numbers:
            outermost = scopes[0].start if scopes else start
            extents = [symbol.definer for dim in dims_in(array._chain) for symbol in dim.symbols]
            nodes = [*array._dynamic, *(definer[0] for definer in extents if definer is not None)]
            made = max([cell.born, *(node.id for node in nodes if node.op != "const")]) >= outermost
            row = made and len(nodes) == len(array._dynamic) == 1 and cell.origin is not None and not nodes[0].shape
            self._numbers[key] = len(self.known)
            self.cells.add(cell)
            self.known.append(_Known(array, made and not row, row))
        return self._numbers[key]

    def all_of(self, arrays: Sequence[Tracer], start: int) -> Which | None:
        """The numbers of many arrays, as one array; None where they are not all made at one place and none of a merger.
        """
        cells = [array._cell for array in arrays]
        clocks = {self._clock_of(cell) for cell in cells}
        if len(clocks) > 1 or any(cell.which is not None or cell.origin is not None for cell in cells):
            return None
        if any(array._chain for array in arrays):
            return None
        found = [self._number(array, start) for array in arrays]
        node, clock = const(np.array(found, np.int64)), clocks.pop()
        return Which(self._beside(node, clock), frozenset(found))

    @staticmethod
    def _clock_of(cell: Cell) -> Node | None:
        """How many rounds of the innermost loop in which the array was made had begun."""
        before = [scope.clock for scope in current().scopes if scope.clock is not None and scope.start <= cell.born]
        return before[-1] if before else None

    @staticmethod
    def _beside(number: Node, before: Node | None) -> Node:
        return number if before is None else emit("add", number, emit("multiply", before, const(np.int64(_ROUND))))

    def _in_this_round(self, number: int, cell: Cell) -> Node:
        before = self._clock_of(cell)
        if self.known[number].row:
            before = emit("cast", self.known[number].array._dynamic[0], dtype=np.dtype(np.int64))
        return self._beside(const(np.int64(number)), before)

    def named_again(self, array: Tracer) -> Which:
        """A merged array gets another name: where it was nobody's it has a number from now on."""
        found: Which = array._cell.which
        if found.number is not None and place_of(array) not in self._numbers:
            number = self._numbers[place_of(array)] = len(self.known)
            self.known.append(_Known(Tracer(Cell(array._cell.value)), made=True, row=False))
            is_nobodys = emit("equal", found.number, const(np.int64(NOBODYS)))
            node = emit("where", is_nobodys, self._in_this_round(number, array._cell), found.number)
            array._cell.which = found = Which(node, found.among | {number})
        return found


def place_of(array: Tracer) -> Any:
    """What tells an array from others: its storage and, of a view, which one it is. NumPy makes new ones each time."""
    return (array._cell, id(array)) if array._chain else array._cell


def which(value: Any, owned: Mapping[Cell, int], start: int) -> Which:
    """Which array a name is bound to at the end of a branch or round that began at ``start``, or before a loop.

    ``owned`` says of what was made there how many names refer to it.
    """
    value, numbering = entered(value), current().numbering
    nobodys = Which(const(np.int64(NOBODYS)), frozenset())
    if not isinstance(value, Tracer) or value.is_scalar or numbering is None:
        return nobodys
    if value._cell.which is not None and not value._chain:
        found: Which = value._cell.which
        return found if owned.get(value._cell) == 1 else numbering.named_again(value)
    is_alone = owned.get(value._cell) == 1 and value._cell not in numbering.cells
    if value._cell.which is None and is_alone and not _is_given(value._cell):
        return nobodys
    return numbering.number(value, start)


def stand_in(value: Tracer, params: list[Node]) -> None:
    """A round begins with a name bound to an array that an earlier one has left: the loop carries its number."""
    params.append(param(Aval((), np.dtype(np.int64)), "which"))
    value._cell.which = Which(params[-1], frozenset({value._cell}))


def behind_loop(number: Node, among: Iterable[Any], inside: Mapping[Cell, frozenset[Any]]) -> Which:
    """Which array a name is bound to behind a loop; ``inside``: what the stand-ins of its rounds may be."""
    seen: set[Any] = set()
    todo = list(among)
    while todo:
        each = todo.pop()
        if each not in seen:
            seen.add(each)
            todo += inside.get(each, ())
    return Which(number, frozenset(seen - inside.keys()))


class Left:
    """The arrays that a call leaves behind, ``leaves``, and those that merged ones among them may be: ``others``."""

    def __init__(self, leaves: Iterable[Any]) -> None:
        """Raises Escape where the trace must count first, or where it cannot tell which array one is."""
        arrays = [leaf for leaf in leaves if isinstance(leaf, Tracer) and not leaf.is_scalar]
        todo = list(dict.fromkeys(leaf._cell for leaf in arrays if leaf._cell.which is not None))
        self._among: dict[int, _Known] = {}
        self._holders: dict[int, set[Any]] = {}  # the mergers that may be an array, None for the array itself
        for cell in todo:  # which grows on the way
            found = _among(cell.which)
            self._among |= found
            for number in found:
                self._holders.setdefault(number, set()).add(cell)
            cells = [known.array._cell for known in found.values() if not known.made]
            todo += [each for each in cells if each.which is not None and each not in todo]
        self._direct = {leaf._cell for leaf in arrays if leaf._cell.which is None}
        self._views = Counter(known.array._cell for known in _reached(self._among).values())
        self.others: dict[int, Tracer] = {}
        for number, known in self._among.items():
            if self._is_nobodys(number):
                continue
            if known.made:
                raise Escape("arrays of a branch or round that share their elements", _WHY)
            self._holders[number].add(None)
            self.others[number] = Tracer(known.array._cell) if known.row else known.array
        self._places = Counter(place_of(array) for array in (*arrays, *self.others.values()))
        self._names: dict[Any, int] = {}

    def _is_nobodys(self, number: int) -> bool:
        """Are the elements of an array seen through one merger alone?"""
        reached = _reached({number: self._among[number]})
        bases = [known.array._cell for known in reached.values() if known.array._cell.which is None]
        if any(cell in self._direct or self._views[cell] > 1 or _is_given(cell) for cell in bases):
            return False
        return len(reached) == 1 or len(set().union(*(self._holders.get(each, ()) for each in reached))) < 2

    def same(self, array: Tracer) -> int | None:
        """A number for an array that is left behind in several places: it is one object."""
        place = place_of(array)
        return None if self._places[place] < 2 else self._names.setdefault(place, len(self._names))

    def choice(self, array: Tracer) -> dict[int, Tracer] | None:
        """What a merged array may be that others refer to; None if it is nobody else's in any case."""
        numbers = [] if array._cell.which is None else [n for n in array._cell.which.among if len(self._holders[n]) > 1]
        if array._chain and not all(n in self.others and not self._among[n].row for n in numbers):
            raise Escape("arrays of a branch or round that share their elements", _WHY)
        return {n: through(self.others[n], array) for n in numbers if n in self.others} if numbers else None

    def row(self, number: int) -> Chain | None:
        """How a row lies in the array that it is one of; None if the number is none of a row's."""
        known = self._among[number]
        return known.array._chain if known.row else None


def _is_given(cell: Cell) -> bool:
    """Is it the storage of an array of the caller's, or a copy that NumPy would not make of one?"""
    return cell.origin is not None or (cell.seen is not None and cell.seen._cell.origin is not None)


def _among(found: Which) -> dict[int, _Known]:
    numbering = current().numbering
    if numbering is None:
        escape = Escape("an array that branches or rounds have merged is left behind", _WHY)
        escape.counts = True
        raise escape
    if found.number is None:
        raise Escape("leaving an array behind that is another one in some runs", _WHY)
    return {number: numbering.known[number] for number in found.among}


def _reached(known: Mapping[int, _Known]) -> dict[int, _Known]:
    """Arrays, those that they are views of, what stand-ins among these stood for, and so on."""
    reached, todo = dict(known), [each.array._cell.which for each in known.values()]
    seen: set[Any] = set()
    while todo:
        found = todo.pop()
        for each in () if found is None else found.among - seen:
            seen.add(each)
            if isinstance(each, Cell):
                todo.append(each.which)
            else:
                reached[each] = current().numbering.known[each]
                todo.append(reached[each].array._cell.which)
    return reached


def through(other: Tracer, array: Tracer) -> Tracer:
    """The view of one array that another array has of its storage."""
    if not array._chain:
        return other
    offset = len(other._dynamic)
    steps = [
        ("index", tuple(shifted(entry, offset) for entry in step[1])) if step[0] == "index" else step
        for step in array._chain
    ]
    return other._extended(*steps, dynamic=array._dynamic)


def taken_apart(number: int) -> tuple[int, int]:
    """Which array a number names, and what stands before that: the round that it was made in, or which row it is."""
    return number % _ROUND, number // _ROUND
