"""Kernels that work through a matrix in blocks of rows, with an elementwise region: what they have in common.

The region is a kernel of its own. Its block of parameters is a template, from which the outer kernel makes the one for
each block of rows: so many elements, and addresses moved to where the block begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_ import compiler
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.emit import emit
from futurex.kernels.numba_.layout import collapse
from futurex.kernels.numba_.region import analyse
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.vectors import DECLARATIONS, slot
from futurex.kernels.steps import Bound, Row, Step, Workspace, copying
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

BLOCK_BYTES = 256 * 1024
_SINGLE = np.dtype(np.float32)
_OWN = ("room", "template", "steps")


class BlockKernel(ABC):
    """The kernel of one node; until it is compiled, and where LLVM refuses it, NumPy computes it.

    The node's attribute ``graph`` is the region; its first operand is a product that the kernel makes, the others are
    the node's inputs from the third on, and its results are the node's from number ``ahead`` on. The threads of a call
    work in ``room``, of which the kernel has one: an object runs one call at a time, so a backend claims it
    ``exclusive``, and plans that run at once wait for each other or have kernels of their own.
    """

    ahead = 0
    dtypes: tuple[np.dtype[Any], ...] = (_SINGLE,)
    """Of the matrices, which all have one of them."""
    inplace: tuple[int, ...] = ()
    """Inputs whose memory a result may take."""
    fixed: tuple[int, ...]
    """Numbers that the kernel is called with; the first is how many rows the threads share."""
    room: np.ndarray
    steps: np.ndarray
    """How far each address of the template moves from one row to the next."""

    def __init__(self, node: Node, threads: int, text: str) -> None:
        self.node = node
        self.wait = not is_behind()
        self.interpreted = 0
        graph = node.attrs["graph"]
        self.region = analyse(graph)
        shape = graph.outs[0].shape
        self.layout = collapse(shape, [*(each.shape for each in graph.params), shape])
        if len(self.layout.extents) != 1 or self.region.guarded:
            raise ValueError(f"{node.op}: the region is not one loop over the rows")
        assert isinstance(node.aval, tuple)
        self.results = len(graph.outs)
        self.threads = threads if may_share() else 1
        arrays = (*node.aval, *(each.aval for each in node.inputs))
        self.checks = [(aval.shape, aval.dtype) for aval in arrays]
        self.share = Share.each(self.threads, sum(each.nbytes for each in arrays))
        self.read = [scalar for scalar in self.region.scalars if scalar.position is not None]
        constants = [scalar for scalar in self.region.scalars if scalar.position is None]
        self.constants = b"".join(slot(scalar, scalar.node.value) for scalar in constants)
        self.text = text
        self.whole = compiled(text, wait=False)
        self.variants: dict[tuple[int, ...], Entry] = {}

    @classmethod
    def claim(cls, node: Node, threads: int) -> Self | None:
        """The kernel, or None for what is not compiled: another dtype, functions that hold up to a bound only."""
        static = node.is_static and bool(node.inputs[0].aval.size)
        found = {each.dtype for each in cls.matrices(node)}
        if not static or not compiler.has_fma() or len(found) > 1 or found.isdisjoint(cls.dtypes):
            return None
        try:
            return cls(node, threads, cls.text_for(node))
        except ValueError:
            return None

    @staticmethod
    @abstractmethod
    def text_for(node: Node) -> str:
        """The outer kernel's code."""

    @staticmethod
    @abstractmethod
    def matrices(node: Node) -> Sequence[Node]:
        """What has to be of one of the kernel's dtypes."""

    @abstractmethod
    def memory(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        """The array that the product is written to, or None where a block of it is enough; what else the kernel reads
        and writes itself, None for what it does without."""

    def strides(self, width: int) -> list[int]:
        """For each slot of the template the bytes of a row with ``width`` elements: 0 for numbers."""
        graph = self.node.attrs["graph"]
        arrays = [*graph.outs, *(graph.params[k] for k in self.region.arrays)]
        return [0, *(width * each.dtype.itemsize for each in arrays), *(0 for _ in self.region.scalars)]

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have both kernels compiled, the region's as the plan will use it."""
        shared = (sharing[k + 1] if k else -1 for k in self.region.arrays)
        self.variant(tuple(max(-1, each - self.ahead) for each in shared), wait=wait)
        self.whole = compiled(self.text, wait=wait)

    @property
    def ready(self) -> bool:
        return self.whole.ready and all(entry.ready for entry in list(self.variants.values()))

    def variant(self, aliases: tuple[int, ...], *, wait: bool) -> Entry:
        """The region's kernel for operands that share memory with these results (-1: with none)."""
        entry = self.variants.get(aliases)
        if entry is None or (wait and not entry.ready and entry.error is None):
            text = emit(self.region, self.layout, aliases, threaded=False)
            entry = self.variants[aliases] = compiled(text, wait=wait)
        return entry

    def bind(self, workspace: Workspace) -> Bound:
        """The kernel as steps."""
        return _BoundBlocks(self)

    def fits(self, out: tuple[Any, ...], inputs: Sequence[Any]) -> bool:
        """Are these operands and results as the code wants them?"""
        return all(
            np.shape(array) == shape and (not shape or (array.dtype == dtype and array.flags.c_contiguous))
            for array, (shape, dtype) in zip((*out, *inputs), self.checks, strict=True)
        )

    def aimed(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Entry, list[int], list[int]] | None:
        """The region's kernel, the addresses in its template and those for the outer kernel; None without code."""
        product, others = self.memory(out, inputs)
        operands = [product, *inputs[2:]]
        written = [address_of(each) for each in out[self.ahead : self.ahead + self.results]]
        read = [0 if operands[k] is None else address_of(operands[k]) for k in self.region.arrays]
        inner = self.variant(tuple(written.index(each) if each in written else -1 for each in read), wait=self.wait)
        if not self.whole.ready:
            self.whole = compiled(self.text, wait=self.wait)
        if not self.whole.ready or not inner.ready:
            return None
        return inner, [*written, *read], [0 if each is None else address_of(each) for each in others]

    def after(self, out: tuple[Any, ...]) -> tuple[Entry, Sequence[int]] | None:
        """What one thread does when all have done their parts: a kernel, and its block."""
        return None

    def __call__(self, out: tuple[Any, ...], *inputs: Any) -> Any:
        if not self.fits(out, inputs):
            wanted = ", ".join(f"{dtype} {shape}" for shape, dtype in self.checks)
            found = ", ".join(f"{np.asarray(each).dtype} {np.shape(each)}" for each in (*out, *inputs))
            raise ValueError(f"{self.node.op}: built for dense arrays {wanted}, got {found}")
        bound = _BoundBlocks(self)
        bound.copied = frozenset(bound.numbers)
        steps = bound.aim(out, *inputs)
        if steps is None:
            return self._interpret(out, inputs)
        Row(steps).run()
        return out

    def _interpret(self, out: tuple[Any, ...], inputs: Sequence[Any]) -> Any:
        """NumPy computes it; as compiled code it says nothing of floating-point errors."""
        self.interpreted += 1
        with np.errstate(all="ignore"):
            found = self.node.record.run(inputs, self.node.attrs)
        for target, value in zip(out, [np.array(each) for each in found], strict=True):
            np.copyto(target, value)
        return out


class _BoundBlocks:
    """A kernel at fixed addresses: its own blocks of parameters and the template of the region's. Whatever holds an
    address is here: the kernel may be called with other arrays between two runs of the steps."""

    def __init__(self, kernel: BlockKernel) -> None:
        self.kernel = kernel
        self.first_scalar = 1 + kernel.results + len(kernel.region.arrays)
        constants = np.frombuffer(kernel.constants, np.int64)
        held = np.zeros(self.first_scalar + len(kernel.read) + len(constants), np.int64)
        held[len(held) - len(constants) :] = constants
        self.template = held
        self.words = np.zeros(0, np.int64)
        self.copied: frozenset[int] = frozenset()
        self.numbers: dict[int, list[tuple[int, np.dtype[Any]]]] = {}
        for place, scalar in enumerate(kernel.read, self.first_scalar):
            where = address_of(held) + 8 * place, scalar.dtype
            self.numbers.setdefault(scalar.position + 1, []).append(where)  # type: ignore[operator]
        self.known: Any = None
        self.steps: list[Step] = []

    def aim(self, out: tuple[Any, ...], *inputs: Any) -> Sequence[Step] | None:
        """The steps on these arrays; None where one does not lie as the code wants it, or the code is not there."""
        kernel, held = self.kernel, self.template
        found = kernel.aimed(out, inputs) if kernel.fits(out, inputs) else None
        if found is None:
            return None
        inner, region, others = found
        held[1 : self.first_scalar] = region
        computed = []
        for place, scalar in enumerate(kernel.read, self.first_scalar):
            position = scalar.position + 1  # type: ignore[operator]
            value = inputs[position]
            if position in self.copied or not isinstance(value, np.ndarray):
                held[place : place + 1] = np.frombuffer(slot(scalar, value), np.int64)
            elif value.dtype == scalar.dtype and value.flags.aligned:
                computed.append(copying(address_of(held) + 8 * place, address_of(value), value.itemsize))
            else:  # to be converted at every run
                return None
        own = [address_of(each) for each in (kernel.room, held, kernel.steps)]
        block = [*kernel.fixed, len(held), inner.address, *others, *own]
        last = kernel.after(out)
        everything = [*block, *(last[1] if last is not None else ())]
        if len(self.words) != len(everything):
            self.words = np.zeros(len(everything), np.int64)
        self.words[:] = everything
        if self.known != computed:
            self.known = computed
            self.steps = [*computed, kernel.whole.step(address_of(self.words), kernel.share)]
            if last is not None:
                self.steps.append(last[0].step(address_of(self.words) + 8 * len(block), Share(1, 1)))
        return self.steps


def started(arrays: Sequence[str]) -> Code:
    """The code of such a kernel.

    All arrays come as addresses, because the region reads and writes them, too: pointers may not be told apart.
    """
    code = Code()
    for name in (*arrays, *_OWN):
        code.run(f"%{name} = inttoptr i64 %{name}.held to ptr")
    code.run("%call = inttoptr i64 %region to ptr")
    code.run("%local = alloca i64, i64 %slots, align 8")
    return code


def call_region(code: Code, begin: str, count: str, product: tuple[str, str] | None = None) -> None:
    """Run the region on ``count`` elements, those of the rows from ``begin`` on; ``product``: the slot for the address
    of the product, and that address, where every block has it in the same place."""
    with code.loop("0", "%slots") as (slot, _):
        value = code.do(f"load i64, ptr {code.at('i64', '%template', slot)}")
        step = code.do(f"load i64, ptr {code.at('i64', '%steps', slot)}")
        code.run(f"store i64 {code.add(value, code.multiply(step, begin))}, ptr {code.at('i64', '%local', slot)}")
    code.run(f"store i64 {count}, ptr %local")
    if product is not None:
        code.run(f"store ptr {product[1]}, ptr {code.at('i64', '%local', product[0])}")
    code.run("call void %call(ptr %local, i64 0, i64 1)")


def finished(code: Code, numbers: Sequence[str], arrays: Sequence[str], declarations: Sequence[str] = ()) -> str:
    """The module of a kernel that is called with these numbers and arrays, and what :class:`BlockKernel` adds."""
    parameters = [("i64", name) for name in (*numbers, "slots", "region")]
    parameters += [("i64", f"{name}.held") for name in (*arrays, *_OWN)]
    return module(parameters, code, may_share(), [*DECLARATIONS, *declarations])
