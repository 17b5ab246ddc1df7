"""Claims fused nodes: checks arrays, packs their addresses, calls the compiled loop on one or several threads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.interpreted import Interpreted
from futurex.kernels.numba_ import (
    added,
    compiler,
    complexes,
    draws,
    dropout,
    labels,
    merges,
    moments,
    picked,
    pool,
    repeated,
    running,
    searches,
    sliding,
    small_systems,
    spectra,
    tiles,
    truths,
    whole_products,
)
from futurex.kernels.numba_.blocks import BlockKernel
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.crossings import HEAD
from futurex.kernels.numba_.joined import Joined, blocks_of
from futurex.kernels.numba_.program import Program, elementwise, reducing
from futurex.kernels.numba_.region import Scalar, slot_format
from futurex.kernels.numba_.rows import RowProducts
from futurex.kernels.numba_.through import Through, over_of, written_to
from futurex.kernels.numba_.updates import RankUpdate
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Bound, Places, Step, Workspace, clearing, copying
from futurex.ops.fusion import COMPLEX, HALF
from futurex.ops.strides import LEAST_ROW, Lie, lies_in_rows
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply

_WRITTEN = {
    "dropout": dropout.claim, "random_bits": draws.claim, "random_uniform": draws.claim,
    "random_normal": draws.claim, "max_pool": pool.claim, "max_pool_places": pool.claim,
    "max_pool_spread": pool.claim, "tile_transform": tiles.claim, "tile_assemble": tiles.claim,
    "cumsum": running.claim, "accumulate": running.claim, "argmax": running.claim, "argmin": running.claim,
    "scatter": added.claim, "ufunc_at": added.claim, "spectral_map": spectra.claim, "spectral_region": spectra.claim,
    "repeat_each": repeated.claim, "moments": moments.claim, "native": searches.claim, "interp": searches.claim,
    "inv": small_systems.claim, "solve": small_systems.claim, "det": small_systems.claim,
    "matmul": whole_products.claim, "convolve": sliding.claim, "sort": merges.claim,
}  # fmt: skip
_OWN = {"nonzero": truths.claim, "gather": picked.claim, "take_along_axis": picked.claim_along}
_BLOCKWISE: dict[str, type[BlockKernel]] = {"row_products": RowProducts, "rank_update": RankUpdate}
_READABLE = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_WRITABLE = 0x501  # ... | NPY_ARRAY_WRITEABLE
_IN_ROWS = 0x100  # NPY_ARRAY_ALIGNED, and gaps between rows
_INTO_ROWS = 0x500  # ... | NPY_ARRAY_WRITEABLE
_Check = tuple[tuple[int, ...], Any, int, Lie]
"""Shape, dtype and flags of an array, and how it lies."""


class NumbaBackend:
    """Compiled kernels for fused regions, maximum pooling, dropout and random numbers, tiles of images, running sums,
    places, what places pick or add up, searches, systems of a few equations, and products of integers."""

    name = "numba"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a fused region, or None where its broadcasting needs too many loops."""
        if node.op in _WRITTEN:
            call = _WRITTEN[node.op](node, threads)
            bind = None if call is None else call.bind
            if call is None:
                return None
            return Kernel(
                call, self.name, True, call.inplace, contiguous=True, exclusive=call.exclusive, late=call, bind=bind,
                own=call.own,
            )  # fmt: skip
        if node.op == "checked_labels":
            return labels.claim(node, self.name)
        if node.op in _OWN:
            return _OWN[node.op](node, threads, self.name)
        if node.op in _BLOCKWISE:
            whole = _BLOCKWISE[node.op].claim(node, threads)
            if whole is None:
                return None
            return Kernel(
                whole, self.name, True, whole.inplace, contiguous=True, exclusive=True, late=whole, bind=whole.bind,
                own=whole.room.nbytes,
            )  # fmt: skip
        if node.op == "fused_store":
            return self._through(node, threads)
        if node.op == "fused_join":
            return self._join(node, threads)
        return self._region(node, threads) if node.op in ("fused", "fused_reduction") else None

    def _through(self, node: Node, threads: int) -> Kernel | None:
        """A region that is written through a view; what it reads at the same place may be written over."""
        inner, target = apply("fused", *node.inputs[1:], graph=node.attrs["graph"]), written_to(node)
        kernel = self._region(inner, threads, None if target.flags.c_contiguous else target)
        if kernel is None:
            return None
        over = over_of(node) if isinstance(kernel.call, _Loop) and kernel.call.program.inplace else ()
        call = Through(node, kernel.call, over)
        return replace(
            kernel, call=call, late=call, bind=None, inplace=(0,), overlaps=over,
            rows={0: 1} | {k + 1: step for k, step in kernel.rows.items() if k >= 0},
        )  # fmt: skip

    def _join(self, node: Node, threads: int) -> Kernel | None:
        """Regions that are each written to a block of one array: past the caches where that is larger, but for rows
        with gaps between them, whose first and last lines that costs more than it saves."""
        blocks = blocks_of(node)
        kernels = [
            self._region(each.node, threads, each.target, 1, each.written(node), each.columns) for each in blocks
        ]
        found = [kernel for kernel in kernels if kernel is not None]
        if len(found) < len(blocks):
            return None
        rows: dict[int, Lie] = {}
        for each, kernel in zip(blocks, found, strict=True):
            rows |= {each.inputs[k]: step for k, step in kernel.rows.items() if k >= 0}
        call = Joined(node, blocks, found)
        return Kernel(
            call, self.name, into=True, contiguous=True, rows=rows, late=call, bind=call.bind,
            scratch=max(kernel.scratch for kernel in found),
        )  # fmt: skip

    def _region(
        self, node: Node, threads: int, target: np.ndarray[Any, Any] | None = None, least: int = LEAST_ROW,
        written: Sequence[Node] = (), columns: bool = False,
    ) -> Kernel | None:  # fmt: skip
        try:
            if node.op == "fused_reduction":
                program = reducing(node, threads)
            else:
                program = elementwise(node, threads, target, least, written, columns)
        except ValueError:
            return None
        return kernel_of(node, program, self.name)


def kernel_of(node: Node, program: Program, name: str) -> Kernel | None:
    """The kernel of a backend of this name that runs a program; None where the processor lacks an instruction."""
    if program.approximate and not compiler.has_fma():
        return None
    nodes = node.attrs["graph"].nodes
    if any(each.dtype == HALF for each in nodes) and not compiler.has_half():
        return None
    if any(each.dtype in COMPLEX for each in nodes) and not complexes.known():
        return None
    loop = _Loop(node, program)
    outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    dense = [k for k in program.arrays if k not in program.rows]
    inplace = tuple(k for k in dense if node.inputs[k].aval in outs) if program.inplace else ()
    return Kernel(
        loop, name, into=True, inplace=inplace, contiguous=True, rows=program.rows, late=loop, bind=loop.bind,
        scratch=program.scratch,
    )  # fmt: skip


class _Loop:
    """The kernel of one node; for every way in which results share memory with operands it has a compiled variant.

    Any result may be given the buffer of any operand of the same shape and dtype. Until a variant is compiled, and
    where LLVM refuses it, NumPy computes the region.
    """

    def __init__(self, node: Node, program: Program) -> None:
        self.node = node
        self.program = program
        self.wait = not is_behind()
        self.interpreted = 0
        outs: tuple[Aval, ...] = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        self.several = isinstance(node.aval, tuple)
        self.numpy = Interpreted(node)
        self.results = len(outs)
        self.share, self.threads = program.share, program.share.threads
        rows = program.rows
        into = (_INTO_ROWS, rows[-1]) if -1 in rows else (_WRITABLE, 1)
        self.checks = tuple((aval.shape, aval.dtype, *into) for aval in outs)
        self.checks += tuple(
            (node.inputs[k].shape, node.inputs[k].dtype, _IN_ROWS if k in rows else _READABLE, rows.get(k, 1))
            for k in program.arrays
        )
        self.read = tuple(_reader(scalar) for scalar in program.scalars if scalar.position is not None)
        self.slots = tuple(struct.Struct(f"={slot_format(scalar.slot)}").pack for scalar in program.scalars)
        self.numbers = struct.pack(f"={len(program.numbers)}q", *program.numbers)
        words = len(self.checks) + len(program.steps)
        self.pack = struct.Struct(f"={'q' * words}{_format(program.scalars[: len(self.read)])}").pack
        constants = program.scalars[len(self.read) :]
        values = (scalar.number(scalar.node.value) for scalar in constants)
        self.constants = struct.pack(f"={_format(constants)}", *values)
        self.variants: dict[tuple[int, ...], Entry] = {}
        self.apart = (-1,) * len(program.arrays)
        self.text = program.text(self.apart)
        self.plain: Entry | None = None

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the variant compiled that a plan will use."""
        self._variant(tuple(sharing[k] for k in self.program.arrays), wait=wait)

    @property
    def ready(self) -> bool:
        return all(entry.ready for entry in list(self.variants.values()))

    def _variant(self, aliases: tuple[int, ...], *, wait: bool) -> Entry:
        """The compiled loop for operands that share memory with these results (-1: with none)."""
        entry = self.variants.get(aliases)
        if entry is None or (wait and not entry.ready and entry.error is None):
            plain = aliases == self.apart
            entry = self.variants[aliases] = compiled(self.text if plain else self.program.text(aliases), wait=wait)
            if plain:
                self.plain = entry
        return entry

    @property
    def bind(self) -> Callable[[Workspace], Bound] | None:
        """The kernel as steps; arguments beyond the bounds of an approximation are for a call to see."""
        return None if self.program.guarded else lambda workspace: _BoundLoop(self, workspace)

    def entry_for(self, addresses: list[int]) -> Entry:
        """The compiled loop for arrays, results first, that lie at these addresses."""
        if len(set(addresses)) == len(addresses):
            return self.plain or self._variant(self.apart, wait=self.wait)
        written = addresses[: self.results]
        read = addresses[self.results :]
        aliases = tuple(written.index(address) if address in written else -1 for address in read)
        return self._variant(aliases, wait=self.wait)

    def steps(self, out: Any, inputs: Sequence[Any]) -> list[int]:
        """How many elements lie from row to row of arrays with gaps, in the block's order."""
        moving = ((out if k < 0 else inputs[k], axis) for k, axis in self.program.steps)
        return [array.strides[axis] // array.itemsize for array, axis in moving]

    def _interpret(self, out: Any, inputs: Sequence[Any], entry: Entry | None = None) -> bool:
        """NumPy computes the region; as compiled code it says nothing of floating-point errors.

        With an ``entry``: unless its code is there before NumPy is done. False then, and nothing was written.
        """
        outs = out if self.several else (out,)
        with np.errstate(all="ignore"):
            if not self.numpy.run(outs, inputs, lambda: entry is not None and entry.ready):
                return False
        self.interpreted += 1
        return True

    def __call__(self, out: Any, *inputs: Any) -> Any:
        arrays = list(out) if self.several else [out]
        for k in self.program.arrays:
            arrays.append(inputs[k])
        _check(arrays, self.checks)
        addresses = [address_of(array) for array in arrays]
        entry = self.entry_for(addresses)
        if not entry.ready and self._interpret(out, inputs, entry):
            return out
        scalars = [read(inputs) for read in self.read]
        block = self.numbers + self.pack(*addresses, *self.steps(out, inputs), *scalars) + self.constants
        if not self.program.scratch:
            self._run(entry, block)
            return out
        scratch = np.empty(self.program.scratch, np.uint8)
        scratch[:HEAD] = 0
        self._run(entry, block + struct.pack("=q", address_of(scratch)))
        if scratch[HEAD // 2 : HEAD].any():
            self._interpret(out, inputs)
        return out

    def _run(self, entry: Entry, block: Any) -> None:
        if self.threads > 1:
            entry.on_threads(block, self.share)
        else:
            entry(block)


class _BoundLoop:
    """A region at fixed addresses: its block of parameters is written once, numbers that a run computes are copied
    into it."""

    def __init__(self, loop: _Loop, workspace: Workspace) -> None:
        program, first = loop.program, len(loop.program.numbers)
        self.loop, self.workspace = loop, workspace
        self.first_scalar = first + len(loop.checks) + len(program.steps)
        constants = self.first_scalar + len(loop.read)
        self.words = np.zeros(constants + len(loop.constants) // 8 + (program.scratch > 0), np.int64)
        self.words[:first] = program.numbers
        self.words[constants : constants + len(loop.constants) // 8] = np.frombuffer(loop.constants, np.int64)
        self.block = address_of(self.words)
        if program.scratch:
            self.words[-1] = workspace.take(program.scratch)
        self.known: Any = None
        self.steps: list[Step] = []
        self.copied: frozenset[int] = frozenset()
        self.numbers: dict[int, list[tuple[int, np.dtype[Any]]]] = {}
        for k, scalar in enumerate(program.scalars[: len(loop.read)]):
            if not scalar.part:
                place = self.block + 8 * (self.first_scalar + k), scalar.dtype
                self.numbers.setdefault(scalar.position, []).append(place)  # type: ignore[arg-type]

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]:
        """Where in the block it stands where arrays lie: results, and inputs by position."""
        first = self.block + 8 * len(self.loop.program.numbers)
        read = first + 8 * self.loop.results
        places = {k: [(read + 8 * number, 0)] for number, k in enumerate(self.loop.program.arrays)}
        return [[(place, 0)] for place in range(first, read, 8)], places

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The steps on these arrays; None where one does not lie as the code wants it, or the code is not there."""
        loop, program = self.loop, self.loop.program
        arrays = [*(out if loop.several else (out,)), *(inputs[k] for k in program.arrays)]
        if not _fit(arrays, loop.checks):
            return None
        addresses = [address_of(array) for array in arrays]
        entry = loop.entry_for(addresses)
        if not entry.ready:
            return None
        self.words[len(program.numbers) : self.first_scalar] = addresses + loop.steps(out, inputs)
        computed = []
        for k, scalar in enumerate(program.scalars[: len(loop.read)]):
            place, value = self.first_scalar + k, inputs[scalar.position]  # type: ignore[index]
            if scalar.position in self.copied or not isinstance(value, np.ndarray):
                self.words[place] = _word(loop.slots[k](loop.read[k](inputs)))[0]
            elif value.dtype == scalar.dtype and value.flags.aligned:
                computed.append((self.block + 8 * place, address_of(value) + scalar.offset, scalar.slot.itemsize))
            else:  # to be converted at every run
                return None
        if self.known != (entry, computed):
            self.known, self.steps = (entry, computed), [copying(*each) for each in computed]
            if program.scratch:
                self.steps.append(clearing(int(self.words[-1]), HEAD))
            self.steps.append(entry.step(self.block, loop.share))
        return self.steps



_word = struct.Struct("=q").unpack


def _format(scalars: Sequence[Scalar]) -> str:
    return "".join(slot_format(scalar.slot) for scalar in scalars)


def _reader(scalar: Scalar) -> Callable[[Sequence[Any]], Any]:
    """Gives the value of a scalar operand among the inputs in the dtype it enters in."""
    position, convert = scalar.position, scalar.number if scalar.part else scalar.dtype.type
    assert position is not None

    def read(inputs: Sequence[Any]) -> Any:
        value = inputs[position]
        return convert(value.item() if isinstance(value, np.ndarray) else value)

    return read


def _fit(arrays: list[Any], checks: Sequence[_Check]) -> bool:
    """Are these the arrays that a kernel was built for?"""
    for array, (shape, dtype, flags, step) in zip(arrays, checks, strict=True):
        if array.shape != shape or array.dtype != dtype or array.flags.num & flags != flags:
            return False
        if flags in (_IN_ROWS, _INTO_ROWS) and not lies_in_rows(array, step):
            return False
    return True


def _check(arrays: list[Any], checks: Sequence[_Check]) -> None:
    """Compiled code believes its addresses: a wrong shape would be a write outside the array."""
    if _fit(arrays, checks):
        return
    for array, check in zip(arrays, checks, strict=True):
        if not _fit([array], [check]):
            shape, dtype, flags, step = check
            wanted = {
                _IN_ROWS: "whole steps in a" if isinstance(step, tuple) else
                f"rows with elements {step} apart of a" if isinstance(step, int) and step != 1 else "dense rows of a",
                _INTO_ROWS: "dense writable rows of a", _READABLE: "a C-contiguous",
                _WRITABLE: "a C-contiguous writable",
            }  # fmt: skip
            raise ValueError(
                f"fused kernel: built for {wanted[flags]} {dtype} array of "
                f"shape {shape}, got {array.dtype} {array.shape} with strides {array.strides}; copy it with "
                f"numpy.ascontiguousarray"
            )
