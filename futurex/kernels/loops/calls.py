"""Operations that have no form in generated code: their reference kernels, called in Python where the code asks.

Fragments are such calls, too. They are made once in a run, in the order of the program, each after the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import draws, looking, streams
from futurex.kernels.loops.arrays import Array, Extent, Opaque, Size
from futurex.kernels.loops.streams import Armed, Stream, Streams
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar
from futurex.tree.aval import Aval
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_LARGEST = 1 << 20
_ROOM = 4
"""Times the elements of the largest operand: what is set aside for a result that nothing bounds. A larger one fails."""
_UNBOUNDED = frozenset(("fragment", "full", "arange"))  # whose extents no operand's tell
_WRITING = frozenset(("store", "scatter"))
_LARGEST_COPY = 1 << 13
_SELECTING = frozenset(("unique", "nonzero"))  # results with at most as many elements as the operand


@dataclass(frozen=True)
class Cell:
    """An operand or result of a call: where it lies, and the words that tell what only the run knows of it.

    ``offset``: the word with the position of the first element, None where that is known; ``extents``: words of
    extents. ``weak``: a Python number.
    """

    array: Array
    weak: bool
    offset: int | None
    extents: dict[int, int]


@dataclass(frozen=True)
class Call:
    """A node that NumPy computes when the generated code asks for it."""

    node: Node
    inputs: tuple[Cell | Opaque, ...]
    outs: tuple[Cell | Opaque, ...]


def called(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """The results of a call into Python."""
    f = e.function
    if (node.record.effect and node.op != "fragment") or node.record.structured:
        raise Unsupported(node.op)
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    streams.check(e, *inputs)
    written = inputs[0] if node.op in _WRITING else None
    if isinstance(written, Array) and math.prod(written.capacity) > _LARGEST_COPY:
        raise Unsupported("a write that would copy a large array")  # round by round it is made in place
    if node.op == "draw":
        for way in (draws.direct, streams.one_number):
            try:
                return way(e, node, inputs[0], inputs[1:])
            except Unsupported:
                pass
    cells: list[Cell | Opaque] = []
    for value in inputs:
        if isinstance(value, Opaque):
            cells.append(value)
            continue
        array = value if isinstance(value, Array) else e.cell(value)
        offset = None
        if array.offset[0] == "%":
            offset = e.memory.word()
            _set(e, offset, array.offset)
        extents = {}
        for axis, extent in enumerate(array.shape):
            if isinstance(extent, Extent):
                extents[axis] = e.memory.word()
                _set(e, extents[axis], extent.register)
        cells.append(Cell(array, isinstance(value, Scalar) and value.weak, offset, extents))
    outs: list[Cell | Opaque] = []
    for aval in avals:
        if streams.is_state(aval):
            is_next = node.op == "draw" and isinstance(inputs[0], Stream)
            outs.append(streams.drawn(e, inputs[0]) if is_next else streams.new(e))
            continue
        try:
            array = e.fresh(_capacity(e, node, aval, inputs), aval.dtype)
        except Unsupported:
            outs.append(e.opaque())
            continue
        unknown = {axis: e.memory.word() for axis, extent in enumerate(aval.shape) if type(extent) is not int}
        outs.append(Cell(array, aval.weak, None, unknown))
    number = len(e.calls)
    e.calls.append(Call(node, tuple(cells), tuple(outs)))
    looking.allow(e)
    f.fail_if(f.emit(f"call i1 @fails(ptr %look, i64 {number})"))
    found: list[Any] = []
    for cell in outs:
        if isinstance(cell, Opaque):
            found.append(cell)
            continue
        array, sizes = cell.array, list[Size](cell.array.shape)
        for axis, word in cell.extents.items():
            pointer = f.emit(f"getelementptr i64, ptr %block, i64 {word}")
            sizes[axis] = Extent(f.emit(f"load i64, ptr {pointer}, align 8"), array.capacity[axis])
        made = e.unboxed(Array(array.place, tuple(sizes), array.strides, array.dtype, not cell.extents))
        found.append(Scalar(made.register, made.dtype, True) if cell.weak and isinstance(made, Scalar) else made)
    return found if isinstance(node.aval, tuple) else found[0]


def _set(e: Emitter, word: int, register: str) -> None:
    pointer = e.function.emit(f"getelementptr i64, ptr %block, i64 {word}")
    e.function.do(f"store i64 {register}, ptr {pointer}, align 8")


def _capacity(e: Emitter, node: Node, aval: Aval, inputs: Sequence[Any]) -> tuple[int, ...]:
    """The largest that a result can be."""
    if aval.dtype.kind not in "biufc" or aval.dtype.itemsize > 16:
        raise Unsupported(f"values of dtype {aval.dtype}")
    if all(type(extent) is int for extent in aval.shape):
        return tuple(aval.shape)
    if node.op in _UNBOUNDED:
        return guessed(e, aval)
    if any(isinstance(value, Opaque) for value in inputs):
        raise Unsupported(f"{node.op} of unknown size")
    sizes = [math.prod(value.capacity) if isinstance(value, Array) else 1 for value in inputs]
    if node.op in _SELECTING and len(aval.shape) == 1:
        return (sizes[0],)
    if node.op == "native" and len(aval.shape) == 1:
        return (_ROOM * max((*sizes, 64)),)
    largest = [
        Aval(value.capacity if isinstance(value, Array) else (), source.dtype, source.aval.weak)
        for value, source in zip(inputs, node.inputs, strict=True)
    ]
    if "dims" in node.attrs:
        raise Unsupported(f"{node.op} by symbols")
    try:
        found = node.record.infer(tuple(largest), (None,) * len(largest), node.attrs)
    except Exception as error:
        raise Unsupported(f"{node.op} of unknown size") from error
    if not isinstance(found, Aval) or not found.static or found.size > _LARGEST:
        raise Unsupported(f"{node.op} of unknown size")
    return tuple(found.shape)


def guessed(e: Emitter, aval: Aval) -> tuple[int, ...]:
    """Room for extents that only the run knows, by what the code is given; where it is not enough the code gives up."""
    unknown = sum(type(extent) is not int for extent in aval.shape)
    room = _ROOM * max(e.largest, 64) if unknown == 1 else max(e.widest, 64)
    shape = tuple(extent if type(extent) is int else room for extent in aval.shape)
    if math.prod(shape) > _LARGEST:
        raise Unsupported("an array of unknown size")
    return shape


def computation(call: Call) -> Callable[[list[Any]], tuple[Any, ...]]:
    """What a call computes, as a function of its operands."""
    rec, attrs = call.node.record, call.node.attrs

    def compute(operands: list[Any]) -> tuple[Any, ...]:
        result = rec.run(operands, attrs)
        return result if isinstance(result, tuple) else (result,)

    return compute


class Calls:
    """The calls of one instance of the code, over its memory."""

    def __init__(self, calls: Sequence[Call], drawers: Sequence[Armed], scratch: Any, words: Any) -> None:
        self._scratch, self._words, self._streams = scratch, words, Streams(drawers, words)
        self._ready = list(map(self._made, calls))
        self.arrays: dict[int, Any] = {}  # of the run: what lies at the slots of the block
        self.objects: dict[int, Any] = {}  # of the run, by the index of an opaque value

    def begin(self, arrays: dict[int, Any], objects: dict[int, Any]) -> None:
        """A run starts."""
        self.arrays, self.objects = arrays, objects
        self._streams.arm(objects, objects)

    def end(self) -> None:
        """A run is over: nothing of it is kept."""
        self.arrays, self.objects = {}, {}

    def __call__(self, number: int) -> bool:
        """Compute a call; False if the code is to give up. Raises what is no error of the computation, and what a
        fragment raises, which is made once and for all: the run raises it."""
        return self._ready[number]()

    def _made(self, call: Call) -> Callable[[], bool]:
        """What computes a call: it is made once, and works as often as there are rounds."""
        readers, writers = list(map(self._reader, call.inputs)), list(map(self._writer, call.outs))
        if call.node.op == "draw" and isinstance(call.inputs[0], Stream):
            return self._draw(call.node, call.inputs[0].index, readers[1:], writers[1])
        compute, is_fragment = computation(call), call.node.op == "fragment"

        def computed() -> bool:
            try:
                operands = [read() for read in readers]
                results = compute(operands)
            except Exception:
                if is_fragment:
                    raise
                return False
            try:
                for write, value in zip(writers, results, strict=True):
                    write(value, operands)
            except Exception:
                return False
            return True

        return computed

    def _draw(
        self, node: Node, index: int, readers: Sequence[Callable[[], Any]], write: Callable[[Any, list[Any]], None]
    ) -> Callable[[], bool]:
        """A draw from the generator that is live in the run: nothing is left of its state but itself."""
        draw, live = streams.drawing(node), self._streams.live

        def drawn() -> bool:
            try:
                operands = [read() for read in readers]
                write(draw(live(self.objects, index), operands), operands)
            except Exception:
                return False
            return True

        return drawn

    def _memory(self, array: Array) -> Any:
        return self._scratch if array.place.scratch else self.arrays[array.place.index]

    def view(self, cell: Cell) -> Any:
        """The array that a cell tells of, in the memory of the run."""
        array, words = cell.array, self._words
        shape = list(array.capacity)
        for axis, word in cell.extents.items():
            shape[axis] = int(words[word])
        start = int(array.offset) if cell.offset is None else int(words[cell.offset])
        if array.place.scratch:
            start += array.place.index
        return np.ndarray(shape, array.dtype, self._memory(array), start, array.strides)

    def state(self, index: int) -> Any:
        """What a random generator will draw."""
        return streams.state_of(self.objects, index)

    def _reader(self, cell: Cell | Opaque) -> Callable[[], Any]:
        """A function that gives an operand."""
        if isinstance(cell, Stream):
            return lambda: self.state(cell.index)
        if isinstance(cell, Opaque):
            return lambda: self.objects[cell.index]
        array, fixed = cell.array, cell.offset is None and not cell.extents
        if array.place.scratch and fixed:
            view = self.view(cell)
            if cell.weak:
                return view.item
            return (lambda: view) if array.shape else (lambda: view[()])
        if fixed and array.offset == "0" and array.contiguous:
            size = math.prod(array.capacity)

            def read() -> Any:
                whole = self.arrays[array.place.index]  # its first row begins where it does, too
                return whole.reshape(array.shape) if whole.size == size else self.view(cell)

            return read
        return (lambda: self.view(cell)) if array.shape else (lambda: self.view(cell)[()])

    def _writer(self, cell: Cell | Opaque) -> Callable[[Any, Sequence[Any]], None]:
        """A function that keeps a result, given what it was made of."""
        if isinstance(cell, Stream) and cell.draw:
            return lambda value, operands: None  # the generator has drawn
        if isinstance(cell, Opaque):
            def keep(value: Any, operands: Sequence[Any]) -> None:
                if isinstance(value, np.ndarray) and not _is_new(value, operands):
                    value = value.copy()  # no view of ours
                self.objects[cell.index] = value
                if isinstance(cell, Stream):
                    self._streams.arm(self.objects, (cell.index,))
            return keep
        words = self._words
        whole = np.ndarray(cell.array.capacity, cell.array.dtype, self._scratch, cell.array.place.index)
        if not cell.extents:
            def write(value: Any, operands: Sequence[Any]) -> None:
                whole[...] = value
            return write

        def write_part(value: Any, operands: Sequence[Any]) -> None:
            part = whole[tuple(map(slice, np.shape(value)))]
            if part.shape != np.shape(value):
                raise MemoryError("a result that is larger than it can be")
            part[...] = value
            for axis, word in cell.extents.items():
                words[word] = value.shape[axis]

        return write_part


def _is_new(value: Any, operands: Sequence[Any]) -> bool:
    """Has a computation made this array, so that its memory is nobody else's?"""
    return value.flags.owndata and not any(value is each for each in operands)
