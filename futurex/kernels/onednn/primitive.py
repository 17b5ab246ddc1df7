"""oneDNN primitives joined to NumPy arrays: descriptors, reorders, scratch memory, callable kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of, address_of_function
from futurex.kernels.numba_.team import Share
from futurex.kernels.onednn import binding
from futurex.kernels.onednn.binding import ALIGNMENT, Argument, Dims, Handle, Owned, call, create
from futurex.kernels.onednn.shared import LINE, OPERANDS, Phase, adding, multiplying, play
from futurex.kernels.steps import Bound, Step, Workspace

Shape = tuple[int, ...]
Results = np.ndarray | tuple[np.ndarray, ...]
Kernel = Callable[..., Any]
"""`kernel(out, *inputs)` writes `out`, an array or, where there are several results, a tuple of arrays; returns it."""

FLOAT32 = np.dtype(np.float32)
ARG_SOURCE, ARG_RESULT, ARG_WEIGHTS, ARG_BIAS = 1, 17, 33, 41
ARG_MEAN, ARG_VARIANCE, ARG_SCALE, ARG_SHIFT, ARG_SCRATCHPAD = 49, 50, 51, 52, 80
ARG_DIFF_SOURCE, ARG_DIFF_RESULT, ARG_DIFF_WEIGHTS, ARG_DIFF_SCALE, ARG_DIFF_SHIFT = 129, 145, 161, 255, 256
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128

_QUERY_IMPLEMENTATION, _QUERY_SCRATCHPAD, _QUERY_ARGUMENT = 8, 136, 255
_SCRATCHPAD_USER = 1
_FORMAT_ANY = 1
_READABLE = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_WRITABLE = 0x501  # ... | NPY_ARRAY_WRITEABLE


def dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """`values` as oneDNN's fixed-size array of dimensions."""
    return Dims(*values)


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Element strides of a C-contiguous array.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def describe(shape: Sequence[int], strides: Sequence[int] | None = None) -> Owned:
    """A float32 memory descriptor; without strides oneDNN chooses the layout ("any")."""
    if strides is None:
        handle = create("dnnl_memory_desc_create_with_tag", len(shape), dims(shape), binding.FLOAT32, _FORMAT_ANY)
    else:
        handle = create("dnnl_memory_desc_create_with_strides", len(shape), dims(shape), binding.FLOAT32, dims(strides))
    return Owned(handle, "dnnl_memory_desc_destroy")


def describe_plain(shape: Sequence[int]) -> Owned:
    """The descriptor of a C-contiguous float32 array."""
    return describe(shape, contiguous_strides(shape))


def channels_last(shape: Shape) -> Owned:
    """The descriptor with logical dimensions (N, C, *S) of a C-contiguous (N, *S, C) array."""
    strides = contiguous_strides(shape)
    return describe((shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1]))


def attributes() -> Owned:
    """Primitive attributes: own scratch memory."""
    attr = Owned(create("dnnl_primitive_attr_create"), "dnnl_primitive_attr_destroy")
    call("dnnl_primitive_attr_set_scratchpad_mode", attr, _SCRATCHPAD_USER)
    return attr


def primitive_description(name: str, *arguments: Any) -> Owned:
    """Create the primitive descriptor `dnnl_<name>_primitive_desc_create(engine, *arguments)`."""
    handle = create(f"dnnl_{name}_primitive_desc_create", binding.engine(), *arguments)
    return Owned(handle, "dnnl_primitive_desc_destroy")


def implementation(description: Owned) -> str:
    """The name of the implementation that oneDNN chose, such as "brgconv:avx512_core"."""
    text = ctypes.c_char_p()
    call("dnnl_primitive_desc_query", description, _QUERY_IMPLEMENTATION, 0, ctypes.byref(text))
    return (text.value or b"").decode()


def array_checks(results: Sequence[Shape], inputs: Sequence[Shape]) -> tuple[tuple[Shape, int], ...]:
    """What `check_arrays` verifies: a shape and NumPy flags for each array, results first."""
    return (*((tuple(shape), _WRITABLE) for shape in results), *((tuple(shape), _READABLE) for shape in inputs))


def fit(arrays: Sequence[np.ndarray], checks: Sequence[tuple[Shape, int]]) -> bool:
    """Are arrays those that a kernel was built for, as far as shapes, dtype and flags say?"""
    for array, (shape, flags) in zip(arrays, checks, strict=True):
        if array.shape != shape or array.dtype != FLOAT32 or array.flags.num & flags != flags:
            return False
    return True


def check_arrays(arrays: Sequence[np.ndarray], checks: Sequence[tuple[Shape, int]]) -> None:
    """Raise TypeError or ValueError where arrays are not those the kernel was built for.

    The C library believes its descriptors: a wrong shape would be a write outside the array.
    """
    if len(arrays) != len(checks):
        raise TypeError(f"oneDNN kernel: built for {len(checks)} arrays (results first), got {len(arrays)}")
    for array, (shape, flags) in zip(arrays, checks, strict=True):
        if not fit([array], [(shape, flags)]):
            raise ValueError(
                f"oneDNN kernel: built for a C-contiguous{' writable' if flags == _WRITABLE else ''} float32 array of "
                f"shape {shape}, got {array.dtype} {array.shape} with strides {array.strides}; copy it with "
                f"numpy.ascontiguousarray, or build a kernel for its shape"
            )


def size_of(description: Owned | Handle) -> int:
    """Bytes of memory in a layout."""
    return int(binding.load().dnnl_memory_desc_get_size(description))


@dataclass(frozen=True)
class Operand:
    """Memory in the layout of `description`: a public array (its position, results first) or a private buffer."""

    description: Owned | Handle
    memory: int
    position: int | None = None


class Compiled:
    """A sequence of primitives bound to shapes: `kernel(out, *inputs)`.

    One object is run by one thread at a time. What it needs while it runs (reordered operands, scratch memory of the
    primitives) lies in memory of the calling thread, which all its kernels use one after the other: a network of
    hundreds of kernels takes no more than the one that needs most.
    """

    __slots__ = ("_bound", "_checks", "_program", "implementations", "reordered", "scratch", "threads")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._checks = program.checks
        self._bound: _BoundPrimitives | None = None
        self.scratch = program.scratch
        self.threads = program.threads
        self.implementations = tuple(program.implementations)
        self.reordered = tuple(program.reordered)

    def __call__(self, out: Results, *inputs: np.ndarray) -> Results:
        check_arrays((*out, *inputs) if isinstance(out, tuple) else (out, *inputs), self._checks)
        if self._bound is None:
            self._bound = _BoundPrimitives(self._program, lambda size: binding.per_thread().scratch(size))
        steps = self._bound.aim(out, *inputs)
        assert steps is not None
        status = play(steps)
        if status:
            raise binding.OneDNNError("dnnl_primitive_execute", status)
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The kernel as calls of machine code, with memory objects of their own."""
        return _BoundPrimitives(self._program, workspace.take)


class _BoundPrimitives:
    """Primitives at fixed addresses; ``place`` says where so many bytes of scratch memory lie."""

    def __init__(self, program: Program, place: Callable[[int], int]) -> None:
        self.program, self.place = program, place
        self.base = np.zeros(1, np.int64)  # where the scratch memory begins
        made = [create("dnnl_memory_create", description, binding.engine(), None)
                for description, _, _ in program.memories]  # fmt: skip
        self.keep: list[Any] = [Owned(memory, "dnnl_memory_destroy") for memory in made]
        self.bindings, self.privates = [], []
        self.records: list[tuple[np.ndarray, Sequence[tuple[int, int]]]] = []
        for memory, (_, position, offset) in zip(made, program.memories, strict=True):
            if position is None:
                self.privates.append((memory, offset))
            else:
                self.bindings.append((memory, position, offset))
        self.set_handle = binding.load().dnnl_memory_set_data_handle
        self.steps: list[Step] = []
        functions = [address_of_function(each) for each in binding.thread_functions()]
        for tickets in program.phases:
            several = program.threads if len(tickets) > 1 else 1
            rows = [self._executions(each, made) for each in tickets]
            phase = Phase(rows, Share(several, len(tickets), program.brief), functions)
            self.keep.append(phase)
            self.steps += phase.steps

    def _executions(self, ticket: Sequence[Execution], made: Sequence[Handle]) -> list[Step]:
        """The primitives of a ticket, on a stream of their own: one stream runs one primitive at a time."""
        stream = Owned(create("dnnl_stream_create", binding.engine(), 1), "dnnl_stream_destroy")
        execute = address_of_function(binding.load().dnnl_primitive_execute)
        steps: list[Step] = []
        for each in ticket:
            if isinstance(each, Addition):
                steps.append(adding(address_of(self.base), each.target, each.source, each.lines))
                continue
            if isinstance(each, Gemm):
                function = address_of_function(binding.load().dnnl_sgemm)
                record = np.array([function, *each.words, *[0] * len(each.places)], np.int64)
                self.records.append((record, each.places))
                steps.append(multiplying(address_of(record)))
                continue
            primitive, given = each
            entries = (Argument * len(given))(*(Argument(key, made[memory]) for key, memory in given.items()))
            self.keep += [entries, stream]
            steps.append(
                (execute, primitive.value or 0, stream.handle.value or 0, len(given), ctypes.addressof(entries), 1)
            )
        return steps

    def aim(self, out: Results, *inputs: np.ndarray) -> Sequence[Step] | None:
        """The steps on these arrays; None where they are not those that the primitives were built for."""
        arrays = (*out, *inputs) if isinstance(out, tuple) else (out, *inputs)
        if not fit(arrays, self.program.checks):
            return None
        for memory, position, offset in self.bindings:
            self.set_handle(memory, address_of(arrays[position]) + offset)
        for record, places in self.records:
            record[OPERANDS:] = [address_of(arrays[position]) + offset for position, offset in places]
        if self.privates and (begin := self.place(self.program.scratch)) != self.base[0]:
            for memory, offset in self.privates:
                self.set_handle(memory, begin + offset)
            self.base[0] = begin
        return self.steps


def cut(count: int, parts: int) -> list[tuple[int, int]]:
    """Begin and end of each of so many parts, as equal as can be; fewer where there are fewer elements.

    >>> cut(7, 3)
    [(0, 2), (2, 4), (4, 7)]
    """
    parts = min(parts, count)
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


@dataclass(frozen=True)
class Addition:
    """Of numbers in the scratch memory to others there, both so many lines, at these bytes."""

    target: int
    source: int
    lines: int


@dataclass(frozen=True)
class Gemm:
    """A product by oneDNN's BLAS function: what its record says of it, and of x, y and the result the position of the
    array and the byte there."""

    words: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


Execution = tuple[Handle, dict[int, int]] | Addition | Gemm
"""A primitive, and the numbers of the memory objects that are its arguments; or what is none."""


class Program:
    """Builds a kernel from primitives; an operand is reordered only where the primitive wants another layout.

    `results` and `inputs` are the shapes of the public arrays. Each primitive is made for one thread, in a block of
    :func:`~.binding.one_thread`; those of one phase run beside each other on up to ``threads``. ``brief``: all is over
    before a thread that sleeps would come.
    """

    def __init__(
        self, results: Sequence[Shape], inputs: Sequence[Shape], threads: int = 1, *, brief: bool = False
    ) -> None:
        self.checks = array_checks(results, inputs)
        self.results = len(results)
        self.threads, self.brief = threads, brief
        self.scratch = 0
        self.phases: list[list[list[Execution]]] = [[[]]]
        self.keep: list[Any] = []
        self.memories: list[tuple[Owned | Handle, int | None, int]] = []
        """Description of each, the position of the public array in which it lies, and where, in bytes: there or, of a
        private one, in the scratch memory."""
        self.implementations: list[str] = []
        self.reordered: list[int] = []  # positions of public arrays

    def public(self, position: int, description: Owned | Handle, offset: int = 0) -> Operand:
        """The public array at `position` (results first), whose memory from the byte `offset` on is described."""
        return Operand(description, self._memory(description, position, offset), position)

    def private(self, description: Owned | Handle) -> Operand:
        """A buffer in the layout of `description`, whose content lasts as long as a call."""
        memory = self._memory(description, None, self.scratch)
        self.scratch += -(-size_of(description) // ALIGNMENT) * ALIGNMENT
        return Operand(description, memory)

    def ticket(self) -> None:
        """What is added next may run beside what was added before, since the phase began."""
        if self.phases[-1][-1]:
            self.phases[-1].append([])

    def phase(self) -> None:
        """What is added next comes after all that was added before."""
        if self.phases[-1][-1]:
            self.phases.append([[]])

    def add(self, description: Owned, operands: dict[int, Operand]) -> None:
        """Append a primitive; `operands` maps oneDNN argument numbers to memory."""
        self.implementations.append(implementation(description))
        arguments, after = {}, []
        for argument, operand in operands.items():
            wanted = self.wanted(description, argument)
            if operand.position is None or self.lies_as(operand, wanted):
                arguments[argument] = operand.memory
                continue
            inner = self.private(wanted)
            self.reordered.append(operand.position)
            arguments[argument] = inner.memory
            if operand.position < self.results:
                after.append((inner, operand))
            else:
                self.reorder(operand, inner)
        self._step(description, arguments)
        for inner, operand in after:
            self.reorder(inner, operand)

    def wanted(self, description: Owned, argument: int) -> Handle:
        """The layout in which a primitive takes an argument."""
        return self._query(description, _QUERY_ARGUMENT, argument)

    def multiply(self, words: Sequence[int], places: Sequence[tuple[int, int]]) -> None:
        """Append a product by oneDNN's BLAS function, :class:`Gemm`."""
        self.implementations.append("sgemm")
        self.phases[-1][-1].append(Gemm(tuple(words), tuple(places)))

    def lies_as(self, operand: Operand, wanted: Handle) -> bool:
        """Does an operand lie in this layout?"""
        return bool(binding.load().dnnl_memory_desc_equal(wanted, operand.description))

    def reorder(self, source: Operand, target: Operand) -> None:
        """Append a copy into another layout."""
        cpu = binding.engine()
        handle = create(
            "dnnl_reorder_primitive_desc_create", source.description, cpu, target.description, cpu, attributes()
        )
        description = Owned(handle, "dnnl_primitive_desc_destroy")
        self._step(description, {ARG_SOURCE: source.memory, ARG_RESULT: target.memory})

    def add_up(self, buffers: Sequence[Operand]) -> None:
        """Append the sum of private buffers of one layout, in the place of the first; it may be shared among threads.

        A reorder can add, too, but takes a millisecond longer for 512 x 512 x 9 weights.
        """
        target, *sources = (self.memories[each.memory][2] for each in buffers)
        for begin, end in cut(-(-size_of(buffers[0].description) // LINE), self.threads):
            self.ticket()
            at = LINE * begin
            self.phases[-1][-1] += [Addition(target + at, each + at, end - begin) for each in sources]

    def part(self, operand: Operand, shape: Shape, begin: int, end: int, axis: int = 0) -> Operand:
        """Of an operand of this logical shape what lies between two places of an axis.

        Raises OneDNNError where that cannot be described: it must not begin or end within a block.
        """
        sizes = [end - begin if k == axis else size for k, size in enumerate(shape)]
        starts = [begin if k == axis else 0 for k in range(len(shape))]
        handle = create("dnnl_memory_desc_create_submemory", operand.description, dims(sizes), dims(starts))
        _, position, offset = self.memories[operand.memory]
        description = Owned(handle, "dnnl_memory_desc_destroy")
        return Operand(description, self._memory(description, position, offset), position)

    def finish(self) -> Compiled:
        """The kernel."""
        self.phases = [tickets for tickets in self.phases if tickets[0]]
        return Compiled(self)

    def _query(self, description: Owned, what: int, index: int) -> Handle:
        self.keep.append(description)
        return Handle(binding.load().dnnl_primitive_desc_query_md(description, what, index))

    def _memory(self, description: Owned | Handle, position: int | None, offset: int) -> int:
        self.keep.append(description)
        self.memories.append((description, position, offset))
        return len(self.memories) - 1

    def _step(self, description: Owned, arguments: dict[int, int]) -> None:
        primitive = Owned(create("dnnl_primitive_create", description), "dnnl_primitive_destroy")
        scratchpad = self._query(description, _QUERY_SCRATCHPAD, 0)
        if scratchpad and size_of(scratchpad):
            arguments = {**arguments, ARG_SCRATCHPAD: self.private(scratchpad).memory}
        self.keep.append(primitive)
        self.phases[-1][-1].append((primitive.handle, arguments))


def unless_unsupported(build: Callable[[], Kernel]) -> Kernel | None:
    """The kernel that `build` makes, or None where oneDNN is missing or has no implementation for it."""
    if not binding.available():
        return None
    try:
        with binding.one_thread():
            return build()
    except binding.Unimplemented:
        return None


def is_quick(kernel: Kernel) -> bool:
    """Is none of its primitives one that oneDNN has for what it has nothing else for?"""
    return not any(name.startswith("ref") for name in kernel.implementations)  # type: ignore[attr-defined]


def zero_kernel(results: Sequence[Shape], inputs: Sequence[Shape]) -> Kernel:
    """A kernel for empty inputs: every result is zero everywhere, if it has elements at all."""
    checks = array_checks(results, inputs)

    def kernel(out: Results, *arrays: np.ndarray) -> Results:
        outs = out if isinstance(out, tuple) else (out,)
        check_arrays((*outs, *arrays), checks)
        for each in outs:
            each.fill(0)
        return out

    return kernel
