"""oneDNN primitives joined to NumPy arrays: descriptors, reorders, scratch memory, callable kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of, address_of_function
from futurex.kernels.onednn import binding
from futurex.kernels.onednn.binding import ALIGNMENT, Argument, Dims, Handle, Owned, call, create
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


@dataclass(frozen=True)
class Operand:
    """Memory in the layout of `description`: a public array (its position, results first) or a private buffer."""

    description: Owned | Handle
    memory: Handle
    position: int | None = None


class Compiled:
    """A sequence of primitives bound to shapes: `kernel(out, *inputs)`.

    One object is run by one thread at a time. What it needs while it runs (reordered operands, scratch memory of the
    primitives) lies in memory of the calling thread, which all its kernels use one after the other: a network of
    hundreds of kernels takes no more than the one that needs most. It always runs with the thread count it was built
    for, because scratch memory was sized for that count.
    """

    __slots__ = ("_bindings", "_bound", "_checks", "_execute", "_keep", "_local", "_privates", "_program",
                 "_set_handle", "_set_threads", "_steps", "implementations", "reordered", "scratch",
                 "threads")  # fmt: skip

    def __init__(self, program: Program) -> None:
        self._program = program
        self._checks = program.checks
        self._bindings = tuple(program.bindings)
        self._steps = tuple(program.steps)
        self._keep = program.keep
        self._privates = tuple(program.privates)
        self.scratch = program.scratch
        self._bound = 0
        self._execute = binding.load().dnnl_primitive_execute
        self._set_handle = binding.load().dnnl_memory_set_data_handle
        self._set_threads = binding.thread_setter()
        self._local = binding.per_thread()
        self.threads = program.threads
        self.implementations = tuple(program.implementations)
        self.reordered = tuple(program.reordered)

    def __call__(self, out: Results, *inputs: np.ndarray) -> Results:
        arrays = (*out, *inputs) if isinstance(out, tuple) else (out, *inputs)
        check_arrays(arrays, self._checks)
        set_handle = self._set_handle
        for memory, position in self._bindings:
            set_handle(memory, address_of(arrays[position]))
        if self.scratch:
            base = self._local.scratch(self.scratch)
            if base != self._bound:
                for memory, offset in self._privates:
                    set_handle(memory, base + offset)
                self._bound = base
        self._set_threads(self.threads)
        stream, execute = self._local.stream, self._execute
        for primitive, count, arguments in self._steps:
            status = execute(primitive, stream, count, arguments)
            if status:
                raise binding.OneDNNError("dnnl_primitive_execute", status)
        return out


    def bind(self, workspace: Workspace) -> Bound:
        """The kernel as calls of machine code, with memory objects of their own."""
        return _BoundPrimitives(self._program, workspace)


class _BoundPrimitives:
    """Primitives at fixed addresses."""

    def __init__(self, program: Program, workspace: Workspace) -> None:
        self.program, self.workspace = program, workspace
        made = {memory.value: create("dnnl_memory_create", description, binding.engine(), None)
                for memory, description in program.memories}  # fmt: skip
        self.keep: list[Any] = [Owned(memory, "dnnl_memory_destroy") for memory in made.values()]
        self.bindings = [(made[memory.value], position) for memory, position in program.bindings]
        self.privates = [(made[memory.value], offset) for memory, offset in program.privates]
        stream = Owned(create("dnnl_stream_create", binding.engine(), 1), "dnnl_stream_destroy")
        self.set_handle = binding.load().dnnl_memory_set_data_handle
        execute = address_of_function(binding.load().dnnl_primitive_execute)
        self.steps: list[Step] = [(address_of_function(binding.thread_setter()), program.threads, 0, 0, 0, 0)]
        for primitive, count, given in program.steps:
            entries = (Argument * count)(*(Argument(each.arg, made[each.memory]) for each in given))
            self.keep += [entries, stream]
            self.steps.append(
                (execute, primitive.value or 0, stream.handle.value or 0, count, ctypes.addressof(entries), 1)
            )

    def aim(self, out: Results, *inputs: np.ndarray) -> Sequence[Step] | None:
        """The steps on these arrays; None where they are not those that the primitives were built for."""
        arrays = (*out, *inputs) if isinstance(out, tuple) else (out, *inputs)
        if not fit(arrays, self.program.checks):
            return None
        for memory, position in self.bindings:
            self.set_handle(memory, address_of(arrays[position]))
        if self.privates:
            begin = self.workspace.take(self.program.scratch)
            for memory, offset in self.privates:
                self.set_handle(memory, begin + offset)
            self.privates = []  # they stay where they are
        return self.steps


class Program:
    """Builds a kernel from primitives; an operand is reordered only where the primitive wants another layout.

    `results` and `inputs` are the shapes of the public arrays; the kernel will run with the number of threads that the
    calling thread uses now.
    """

    def __init__(self, results: Sequence[Shape], inputs: Sequence[Shape]) -> None:
        self.checks = array_checks(results, inputs)
        self.results = len(results)
        self.bindings: list[tuple[Handle, int]] = []
        self.privates: list[tuple[Handle, int]] = []  # with their offsets in the scratch memory
        self.scratch = 0
        self.steps: list[tuple[Handle, int, Any]] = []
        self.keep: list[Any] = []
        self.memories: list[tuple[Handle, Owned | Handle]] = []  # with their descriptions
        self.implementations: list[str] = []
        self.reordered: list[int] = []  # positions of public arrays
        self.threads = binding.get_threads()

    def public(self, position: int, description: Owned) -> Operand:
        """The public array at `position` (results first), whose memory `description` describes."""
        memory = self._memory(description)
        self.bindings.append((memory, position))
        return Operand(description, memory, position)

    def private(self, description: Owned | Handle) -> Operand:
        """A buffer in the layout of `description`, whose content lasts as long as a call."""
        memory = self._memory(description)
        self.privates.append((memory, self.scratch))
        self.scratch += -(-binding.load().dnnl_memory_desc_get_size(description) // ALIGNMENT) * ALIGNMENT
        return Operand(description, memory)

    def add(self, description: Owned, operands: dict[int, Operand]) -> None:
        """Append a primitive; `operands` maps oneDNN argument numbers to memory."""
        self.implementations.append(implementation(description))
        arguments, after = {}, []
        for argument, operand in operands.items():
            wanted = self._query(description, _QUERY_ARGUMENT, argument)
            if operand.position is None or binding.load().dnnl_memory_desc_equal(wanted, operand.description):
                arguments[argument] = operand.memory
                continue
            inner = self.private(wanted)
            self.reordered.append(operand.position)
            arguments[argument] = inner.memory
            if operand.position < self.results:
                after.append((inner, operand))
            else:
                self._reorder(operand, inner)
        self._step(description, arguments)
        for inner, operand in after:
            self._reorder(inner, operand)

    def finish(self) -> Compiled:
        """The kernel."""
        return Compiled(self)

    def _query(self, description: Owned, what: int, index: int) -> Handle:
        self.keep.append(description)
        return Handle(binding.load().dnnl_primitive_desc_query_md(description, what, index))

    def _memory(self, description: Owned | Handle) -> Handle:
        memory = create("dnnl_memory_create", description, binding.engine(), None)
        self.keep += [Owned(memory, "dnnl_memory_destroy"), description]
        self.memories.append((memory, description))
        return memory

    def _reorder(self, source: Operand, target: Operand) -> None:
        cpu = binding.engine()
        handle = create(
            "dnnl_reorder_primitive_desc_create",
            source.description,
            cpu,
            target.description,
            cpu,
            attributes(),
        )
        description = Owned(handle, "dnnl_primitive_desc_destroy")
        self._step(description, {ARG_SOURCE: source.memory, ARG_RESULT: target.memory})

    def _step(self, description: Owned, arguments: dict[int, Handle]) -> None:
        primitive = Owned(create("dnnl_primitive_create", description), "dnnl_primitive_destroy")
        scratchpad = self._query(description, _QUERY_SCRATCHPAD, 0)
        if scratchpad and binding.load().dnnl_memory_desc_get_size(scratchpad):
            arguments = {**arguments, ARG_SCRATCHPAD: self.private(scratchpad).memory}
        entries = (Argument * len(arguments))(*(Argument(key, memory) for key, memory in arguments.items()))
        self.keep.append(primitive)
        self.steps.append((primitive.handle, len(arguments), entries))


def unless_unsupported(build: Callable[[], Kernel]) -> Kernel | None:
    """The kernel that `build` makes, or None where oneDNN is missing or has no implementation for it."""
    if not binding.available():
        return None
    try:
        return build()
    except binding.Unimplemented:
        return None


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
