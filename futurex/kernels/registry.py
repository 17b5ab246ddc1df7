"""Which kernel runs a node: backends claim nodes in order, NumPy takes what is left.

A kernel is a callable bound to one node's shapes and dtypes. It is called as ``kernel.call(out, *inputs)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from futurex.kernels.contest import Contest
from futurex.kernels.steps import Bound, Workspace
from futurex.ops.strides import Lie, lies_in_rows
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LIBRARIES = ("gemm", "onednn")
"""Backends whose products in single precision have last bits of their own."""


class Late(Protocol):
    """A kernel whose machine code may come after its first calls, which NumPy computes."""

    @property
    def interpreted(self) -> int:
        """Calls without it."""
        ...

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Begin to compile; return when the code is there if ``wait``.

        ``sharing`` says for each input in the memory of which result it lies, -1 for none.
        """
        ...

    @property
    def ready(self) -> bool:
        """Is the code there that was prepared?"""
        ...


@dataclass(frozen=True, slots=True)
class Kernel:
    """How one node is computed.

    ``call(out, *inputs)`` returns the result. If ``into``, ``out`` is a C-contiguous buffer of the node's shape and
    dtype (a tuple of buffers for a node with several results) and the result is written there; otherwise ``out`` is
    None and the kernel returns arrays of its own.

    ``inplace``: inputs whose buffer may be given as ``out``. ``view``: the result may share memory with that input.
    ``contiguous``: array inputs must be C-contiguous and aligned, but for those in ``rows``, which only have to lie as
    is said there (:func:`~futurex.ops.strides.lies_in_rows`). ``exclusive``: one call
    at a time per kernel object. ``threads``: how many one call uses, if that is not what was asked for. ``late``: what
    is compiled behind the first calls. ``ufunc``: ``ufunc(*inputs, out)`` is all that ``call`` does; ``written``: so is
    this Python expression, with the inputs in the place of its braces, and such a call in that of ``{call}``.
    ``bind(workspace)`` gives the kernel as calls of machine code, which must not run beside a call of it. ``parts``:
    into how many calls of a NumPy function one call may be cut, each on a thread of its own; ``contest`` tells whether
    it is. ``overlaps``: inputs that may share memory with ``out`` in any way. ``own``: bytes that the kernel keeps for
    itself between calls; ``scratch``: bytes that it needs during a call, where all kernels of a thread use the same.
    """

    call: Callable[..., Any]
    backend: str
    into: bool = False
    inplace: tuple[int, ...] = ()
    view: int | None = None
    contiguous: bool = False
    rows: Mapping[int, Lie] = field(default_factory=dict)
    exclusive: bool = False
    threads: int | None = None
    late: Late | None = None
    plans: tuple[Any, ...] = ()
    ufunc: Callable[..., Any] | None = None
    written: str = ""
    bind: Callable[[Workspace], Bound] | None = None
    parts: int = 1
    contest: Contest | None = None
    overlaps: tuple[int, ...] = ()
    own: int = 0
    scratch: int = 0


class Backend(Protocol):
    """Claims the nodes it can run better than those after it."""

    name: str

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for the node that uses at most ``threads`` threads, or None."""
        ...


@runtime_checkable
class Compiler(Protocol):
    """A backend that also makes one function of a whole graph."""

    @property
    def name(self) -> str: ...

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """What :meth:`whole` raises where it cannot."""
        ...

    def multiplies(self, node: Node) -> bool:
        """Is a node a product that code in loops makes in its own way, with last bits of its own?"""
        ...

    def whole(self, graph: Graph, donated: Collection[int] = ()) -> Any:
        """The function: called with the graph's inputs it gives its results, or None where the graph has to be run
        another way. Results with a number in ``donated`` may be written into arrays of the caller's, ``outs``."""
        ...


def fits(kernel: Kernel, place: int, array: Any) -> bool:
    """Does an array lie as a kernel that wants dense operands wants this one?"""
    if place in kernel.rows:
        return lies_in_rows(array, kernel.rows[place])
    return array.flags.c_contiguous and array.flags.aligned


def threads_of(kernel: Kernel, asked: int) -> int:
    """How many threads one call of a kernel uses that was asked for with ``asked``."""
    if kernel.threads is not None:
        return kernel.threads
    return int(getattr(kernel.late, "threads", asked))


def kernel_for(node: Node, backends: Sequence[Backend], threads: int = 1) -> Kernel:
    """The first claim on a node. Raises LookupError if no backend claims it (the NumPy backend claims all but
    structured ops)."""
    for backend in backends:
        kernel = backend.claim(node, threads)
        if kernel is not None:
            return kernel
    raise LookupError(f"no backend runs {node.op}; asked: {', '.join(backend.name for backend in backends)}")
