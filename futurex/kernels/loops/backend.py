"""Claims ``loop`` nodes, and compiles whole graphs."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from futurex.kernels.loops import products
from futurex.kernels.loops.control import rounds
from futurex.kernels.loops.emit import STORED, Emitter
from futurex.kernels.loops.program import Program
from futurex.kernels.loops.split import Split, extent, splits
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numpy_ import uses_blas
from futurex.kernels.registry import Kernel
from futurex.ops.fusion import loop_of
from futurex.ops.index import gather_aval
from futurex.ops.opaque import GaveUp, has_fragments
from futurex.passes.counters import refilled
from futurex.passes.stack_tapes import open_tapes
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, build

LARGEST, LARGEST_MASKED = 1 << 16, 1 << 15
"""Elements of an array operation in a body from which NumPy's kernels, and threads, do as well; and where the run finds
how many elements are picked."""
_PART = 1 << 15  # elements of it in one part of a loop whose rows are shared
_MOST_WORK = float(1 << 22)  # operations of a product in a body: the same, unless it is made of tiles
_LEAST_SHARED = 1 << 13
"""Elements of the largest operation from which threads share the rows of a loop."""
_MOST_NODES = 1500
_FREE = frozenset(("store", "param", "const", "item", "cond", "loop", "room", "transpose"))

_NEITHER: Any = object()
_MOST_PARTS = 16  # times as many as wanted

Shape = tuple[int, ...]
_T = TypeVar("_T")


class LoopBackend:
    """Whole loops, compiled with all that they contain. A kernel's call gives None where the loop has to be run another
    way."""

    name = "loops"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a ``loop`` node, or None where it holds what cannot be compiled."""
        if node.op != "loop":
            return None
        node = _with_room(node)
        for split in _worth(node, threads):
            with contextlib.suppress(*self.refusals):
                return _made(functools.partial(_kernel, node, split, threads))
        return None

    refusals = (Unsupported, RuntimeError)

    def multiplies(self, node: Node) -> bool:
        """Is a node a product of tiles in code of ours?"""
        return _is_tiled(node, None)

    def whole(self, graph: Graph, donated: Collection[int] = ()) -> Program:
        """A graph as one function. Raises one of ``refusals`` where it holds what cannot be compiled."""
        avals = [node.aval for node in graph.params]
        turned = {k: out.attrs["axes"] for k, out in enumerate(graph.outs) if k not in donated and _is_turned(out)}
        outs = [_copied(out.inputs[0] if k in turned else out) for k, out in enumerate(graph.outs)]
        straight = open_tapes(Graph(graph.params, outs, graph.name) if outs != list(graph.outs) else graph)

        def build(emitter: Emitter, inputs: Sequence[Any]) -> list[Any]:
            return emitter.graph(straight, inputs)

        written = {k: out.aval for k, out in enumerate(outs) if _has_known_elements(out)}
        return _made(lambda: Program(avals, 0, build, turned=turned, written=written))


def _with_room(node: Node) -> Node:
    """A loop whose rounds keep what derivatives read of those of inner ones in arrays."""
    attrs = {name: open_tapes(node.attrs[name]) for name in ("test", "body")}
    return build(node.record, node.inputs, node.attrs | attrs, node.aval, node.src)


def _has_known_elements(out: Node) -> bool:
    return out.is_static and isinstance(out.aval, Aval) and bool(out.shape) and out.dtype in STORED


def _is_turned(out: Node) -> bool:
    """Is a result what the code computes, with its axes in another order? It is given so, as a plan gives it."""
    if out.op != "transpose":
        return False
    source = out.inputs[0]
    return source.op == "contiguous" or (source.op not in ("param", "const") and source.record.view is None)


def _copied(out: Node) -> Node:
    """What a result is a copy of in C order: all that the code gives are such copies."""
    return out.inputs[0] if out.op == "contiguous" and out.is_static else out


def _made(make: Callable[[], _T]) -> _T:
    """What is made; a fault of this package, which is no refusal, is told of: the loop runs another way."""
    try:
        return make()
    except LoopBackend.refusals:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        warnings.warn(f"a kernel was not compiled and runs as NumPy: {what}", RuntimeWarning, stacklevel=2)
        raise Unsupported(what) from error


def _kernel(node: Node, split: Split | None, threads: int) -> Kernel:
    test, body = node.attrs["test"], node.attrs["body"]
    count = len(body.outs)
    avals = [source.aval for source in node.inputs]

    def build(emitter: Emitter, inputs: Sequence[Any]) -> list[Any]:
        return rounds(emitter, node, inputs[:count], inputs[count:])

    program = Program(avals, count, build, split, threads, refilled(node), open_rows=True)
    used = program.threads if split is not None else threads if uses_blas(node) else 1
    # The shapes of the loop itself: where no round is made, what it began with is the result.
    into = all(aval.static and (aval.weak or aval.dtype in STORED) for aval in node.aval)
    inplace = tuple(range(count)) if into and not program.fails else ()
    once = has_fragments(test) or has_fragments(body)
    call = _never_twice(program) if once else lambda out, *inputs: program(*inputs, outs=out)
    return Kernel(
        call, "loops", into, inplace, threads=used, late=program,
        own=program.own,
    )


def _never_twice(program: Program) -> Callable[..., Any]:
    """The call of a loop with fragments: it raises where another way of running it would make some of them again."""

    def call(out: Any, *inputs: Any) -> Any:
        log = next(value for value in inputs if type(value) is list)
        made = len(log)
        results = program(*inputs, outs=out)
        if results is None and len(log) > made:
            raise GaveUp("a compiled loop gave up")
        return results

    return call


def _ways(node: Node, threads: int) -> Iterator[Split | None]:
    """How the rows of a loop may be shared, the best way first; None for not at all."""
    largest = max(map(math.prod, _sizes(node, None)), default=0)
    if largest >= _LEAST_SHARED:
        wanted = max(threads, -(-largest // _PART))
        for split in splits(node):
            rows = extent(node, split(1))
            for parts in range(wanted, min(rows, _MOST_PARTS * wanted) + 1):
                if parts > 1 and parts % threads == 0 and rows % parts == 0:
                    yield split(parts)
    yield None


def _worth(node: Node, threads: int) -> Iterator[Split | None]:
    """The best way that is worth it, and then, as code for parts may be refused, not to share the rows."""
    best = next((split for split in _ways(node, threads) if _profits(node, split)), _NEITHER)
    if best is not _NEITHER:
        yield best
    if isinstance(best, Split) and _profits(node, None):
        yield None


def _profits(node: Node, split: Split | None) -> bool:
    """Is the loop small enough, each part of it, that no other way of running it is as good?"""
    bodies = [body for _, body in _bodies(node)]
    if not 0 < sum(len(each.nodes) for each in bodies) <= _MOST_NODES:
        return False
    picks = any(_picks(each) for body in bodies for each in body.nodes)
    if any(math.prod(shape) > (LARGEST_MASKED if picks else LARGEST) for shape in _sizes(node, split)):
        return False
    return not any(_is_work(each, split) for body in bodies for each in body.nodes if each.op not in _FREE)


def _picks(node: Node) -> bool:
    """Does the run find how many elements of it there are? Not those that are counted, one by one in any case, and what
    is computed of others."""
    if isinstance(node.aval, tuple) or node.is_static:
        return False
    return not (node.op == "native" and node.attrs["call"].startswith("np.bincount(")) and loop_of(node) is None


def _bodies(node: Node) -> Iterator[tuple[Node, Graph]]:
    """The graphs in a node, and in the nodes of these, each with its owner."""
    for value in node.attrs.values():
        if isinstance(value, Graph):
            yield node, value
            for each in value.nodes:
                yield from _bodies(each)


def _sizes(node: Node, split: Split | None) -> Iterator[Shape]:
    """The shapes of all that is computed, where they are known before the run."""
    for owner, body in _bodies(node):
        for each in body.nodes:
            if each.op in _FREE or owner.op == "fused":
                continue
            if each.op == "scatter":
                yield from _places(each)
                continue
            avals = each.aval if isinstance(each.aval, tuple) else (each.aval,)
            yield from (_shape(each, k, split) for k, aval in enumerate(avals) if aval.static)


def _places(node: Node) -> Iterator[Shape]:
    """The shape of what a ``scatter`` writes: its array stays where it is, as that of a ``store`` does."""
    base, _, *indices = (source.aval for source in node.inputs)
    written = gather_aval(base, *indices, pattern=node.attrs["pattern"])
    if written.static:
        yield written.shape


def _shape(node: Node, number: int, split: Split | None) -> Shape:
    if split is not None:
        return split.shape(node, number)
    return node.aval[number].shape if isinstance(node.aval, tuple) else node.shape


def _is_work(node: Node, split: Split | None) -> bool:
    """Does one operation take so long that threads of its own are worth it?"""
    sources = tuple(source.aval for source in node.inputs)
    if any(isinstance(aval, tuple) for aval in sources) or _is_tiled(node, split):
        return False
    return node.record.work(sources, node.aval, node.attrs).flops > _MOST_WORK


def _is_tiled(node: Node, split: Split | None) -> bool:
    """Is it a product that is made of tiles?"""
    if node.op not in ("matmul", "matmul_epilogue") or not node.is_static:
        return False
    if not len(node.shape) >= 2 == node.inputs[1].ndim or node.inputs[0].ndim != len(node.shape):
        return False
    *rows, columns = _shape(node, 0, split)
    return products.fits(math.prod(rows), node.inputs[0].shape[-1], columns, node.dtype)
