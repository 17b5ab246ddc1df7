"""The NumPy backend: the reference kernel of every op, written into a given buffer where NumPy offers ``out=``."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels.blas_threads import alone
from futurex.kernels.parts import factorises, in_parts
from futurex.kernels.recycling import LEAST_BYTES, kept
from futurex.kernels.registry import Kernel
from futurex.kernels.warned import at_line
from futurex.ops.index import fancy_index
from futurex.ops.joined import write_blocks
from futurex.ops.views import Chain, around, index_of, keep, store_into, view
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node
from futurex.tree.record import Op


class NumpyBackend:
    """Claims everything that has a reference kernel."""

    name = "numpy"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        return None if node.record.structured else in_parts(node, self._whole(node, threads), threads)

    def _whole(self, node: Node, threads: int) -> Kernel:
        """One call of NumPy."""
        writer = _take if _takes(node) else _WRITERS.get(node.op)
        record = node.record
        few = factorises(node) or _multiplies_few(node)
        used = threads if uses_blas(node) and not few else 1
        sized = node.is_static or _overwrites(node)
        if isinstance(node.aval, Aval) and not node.aval.weak and node.aval.dtype != object and sized:
            if record.elementwise and isinstance(record.kernel, np.ufunc):
                call = _ufunc(record.kernel, node)
                return Kernel(call, self.name, into=True, inplace=_reusable(node), threads=1, ufunc=record.kernel)
            if writer is not None:
                # a value that lies there is copied first, and what a region reads is read before
                overlaps = {"store": (1,), "fused_store": tuple(range(1, len(node.inputs)))}.get(node.op, ())
                call = alone(writer(node)) if few else writer(node)
                return Kernel(call, self.name, into=True, inplace=record.inplace, threads=used, overlaps=overlaps)
        written = _written(node)
        if written and "{call}" not in written:
            return Kernel(_evaluating(written, len(node.inputs)), self.name, threads=used, written=written)
        call = _load(node) if node.op == "load" else _plain(node)
        if few:
            call = alone(call)
        if record.view is None and _is_large(node):
            call = functools.partial(kept, call)
        elif record.view is None and not node.is_static and _may_be_large(node):
            call = functools.partial(_kept_if_large, call)
        return Kernel(call, self.name, view=record.view, threads=used, written=written)


def copied(node: Node, kernel: Kernel, inputs: Sequence[Any]) -> Kernel:
    """The kernel of a view that has to copy inputs which lie like these: into a given buffer where that is for the
    sake of a reshape at its end."""
    whole = node.op in ("reshape", "contiguous")
    chain = (("reshape", node.shape),) if whole else node.attrs.get("chain", ())
    alone = bool(chain) and chain[-1][0] == "reshape" and node.is_static and not node.dtype.hasobject
    if not alone or not np.may_share_memory(view(inputs[0], chain[:-1], inputs[1:]), inputs[0]):
        own = _copy if node.op == "contiguous" else kernel.call  # which leaves what lies in C order where it is
        return replace(kernel, call=own, view=None)

    def call(out: Any, base: Any, *dynamic: Any) -> Any:
        found = view(base, chain[:-1], dynamic)
        np.copyto(out.reshape(found.shape), found)
        return out

    return replace(kernel, call=call, view=None, into=True)


def _copy(out: Any, value: Any) -> Any:
    return np.array(value, order="C")


_BY_ZERO = "{0} * float(str({1})[:-3] + 'inf')"  # zeros have signs
_OF_FLOATS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "negative": "-{}", "absolute": "abs({})",
    "divide": f"{{0}} / {{1}} if {{1}} else {_BY_ZERO}", "floor_divide": f"{{0}} // {{1}} if {{1}} else {_BY_ZERO}",
    "remainder": "{0} % {1} if {1} else float('nan')", "scalar_power": "{} ** {}",
    "equal": "{} == {}", "not_equal": "{} != {}",
    "less": "{} < {}", "less_equal": "{} <= {}", "greater": "{} > {}", "greater_equal": "{} >= {}",
}  # fmt: skip
"""What Python computes of its own floats as NumPy does, without a look for a loop, and without a warning: where it
raises, of zero, a check does that behind it, or one before it."""
_EXACT = 1 << 53
"""Python's ints to here are floats, too."""


def _written(node: Node) -> str:
    """The node as a Python expression, where it has one that is as good as its kernel."""
    if node.op == "check":  # of a Python number it is NumPy's truth that goes on, as that of others does
        return "" if node.inputs[0].aval.weak else "{0} or {call}"
    known = [each.attrs["value"].value if each.op == "const" else None for each in node.inputs]
    numbers = all(
        each.aval.weak and (each.dtype == float or (type(value) is int and abs(value) < _EXACT))
        for each, value in zip(node.inputs, known, strict=True)
    )
    if not (numbers and isinstance(node.aval, Aval) and node.aval.weak and node.dtype in (float, bool)):
        return ""
    if node.op == "scalar_power":  # which is complex where a root of a negative number is
        base, exponent = known
        real = node.inputs[0].op == "absolute" or (base is not None and base >= 0)
        if not (real or (exponent is not None and exponent == exponent // 1)):
            return ""
    return _OF_FLOATS.get(node.op, "")


@functools.cache
def _evaluating(written: str, inputs: int) -> Callable[..., Any]:
    names = [f"x{k}" for k in range(inputs)]
    call: Callable[..., Any] = eval(f"lambda out, {', '.join(names)}: {written.format(*names)}")
    return call


def _is_large(node: Node) -> bool:
    """Does NumPy make arrays whose memory is worth keeping?"""
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return any(aval.static and aval.nbytes >= LEAST_BYTES for aval in avals)


def _may_be_large(node: Node) -> bool:
    """May a result of unknown extents be so large, as far as its operands tell?"""
    return any(not each.aval.static or each.aval.nbytes >= LEAST_BYTES for each in node.inputs)


def _kept_if_large(call: Callable[..., Any], *inputs: Any) -> Any:
    """The call of a node of unknown extents; memory of results is kept where an operand is large."""
    large = any(type(each) is np.ndarray and each.nbytes >= LEAST_BYTES for each in inputs)
    return kept(call, *inputs) if large else call(*inputs)


def _overwrites(node: Node) -> bool:
    """Does a node write into what is given to it, arrays of known shapes, whatever the run finds of the others?"""
    bases = [node.inputs[k].aval for k in node.record.inplace]
    return bool(bases) and "dims" not in node.attrs and all(each.static for each in (node.aval, *bases))


_BLAS = (
    "contract", "epilogue", "factor_grad", "factorizations", "linalg", "matrices", "norms", "products",
    "shared_factors", "triangular",
)  # fmt: skip
_FOREIGN = ("library", "opaque", "python", "scipy_linear")


_WAKING, _FEW = 1 << 16, 1 << 23
"""Multiply-adds of real numbers: with more OpenBLAS may wake threads; up to so many it takes some 200 µs."""


def uses_blas(node: Node) -> bool:
    """May the reference kernel of a node, or of one inside it, call BLAS, LAPACK or somebody else's code?"""
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    if inner:
        return any(uses_blas(each) for graph in inner for each in graph.nodes)
    module = getattr(node.record.kernel, "__module__", None) or ""
    linear = node.record.kernel is np.matmul or module.startswith("numpy.linalg")
    return linear or module.rpartition(".")[2] in (*_BLAS, *_FOREIGN)


def _multiplies_few(node: Node) -> bool:
    """Is it a product of two matrices for which OpenBLAS wakes its threads, but which takes no time worth that? They
    turn round for 20 ms behind it."""
    if node.op != "matmul" or not node.is_static or any(each.ndim != 2 for each in node.inputs):
        return False
    numbers = 4 if node.dtype.kind == "c" else 1
    return _WAKING < node.size * node.inputs[0].shape[1] * numbers <= _FEW


def _reusable(node: Node) -> tuple[int, ...]:
    """Inputs that an elementwise result may overwrite: same shape and dtype, so element k is read before k is written.

    A single complex element is left out: NumPy multiplies it by another loop, with other roundings, in place.
    """
    if node.dtype.kind == "c" and node.size == 1:
        return ()
    return tuple(k for k, source in enumerate(node.inputs) if source.aval == node.aval)


def _plain(node: Node) -> Callable[..., Any]:
    attrs = node.attrs
    kernel = functools.partial(_sized, node.record) if "dims" in attrs else node.record.kernel
    source = node.src if isinstance(node.record.kernel, np.ufunc) else None  # others call code of their own
    if isinstance(node.aval, Aval) and node.aval.weak:
        scalar = _python_scalar
        if node.op in ("negative", "invert") and node.dtype.kind == "i":
            return lambda out, x: scalar(_signed(kernel(x)))
        return at_line(lambda out, *inputs: scalar(kernel(*inputs, **attrs)), source)
    return at_line(lambda out, *inputs: kernel(*inputs, **attrs), source)


def _load(node: Node) -> Callable[..., Any]:
    """Places along the first axes and the slice behind them are one index, made once but for what the run knows."""
    entries, rest = _first_index(node.attrs["chain"])
    if not entries or "dims" in node.attrs or any(isinstance(part, tuple) for entry in entries for part in entry[1:]):
        return _plain(node)
    template = index_of(entries, range(len(node.inputs)))
    places = [(k, entry[1]) for k, entry in enumerate(entries) if entry[0] == "d"]

    def call(out: None, base: Any, *dynamic: Any) -> Any:
        index = list(template)
        for k, number in places:
            index[k] = int(dynamic[number])
        try:
            found = np.asarray(base)[tuple(index)]
        except IndexError:
            view(np.asarray(base), node.attrs["chain"], dynamic)  # its error names the axis by the program's own index
            raise
        return view(found, rest, dynamic) if rest else found

    return call


def _first_index(chain: Chain) -> tuple[tuple[Any, ...], Chain]:
    """The entries of the index that a chain begins with, and of one that follows places alone; what is left."""
    entries: tuple[Any, ...] = ()
    for k, step in enumerate(chain):
        if step[0] != "index" or any(entry[0] not in "id" for entry in entries):
            return entries, chain[k:]
        entries += step[1]
    return entries, ()


def _sized(record: Op, *inputs: Any, **attrs: Any) -> Any:
    return record.run(inputs, attrs)


def _python_scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value


def _signed(value: Any) -> Any:
    """The opposite of a Python int, which NumPy takes for an unsigned number where it has more than 63 bits."""
    if isinstance(value, np.unsignedinteger):
        raise OverflowError("Python int too large to convert to C long")
    return value


def _ufunc(ufunc: np.ufunc, node: Node) -> Callable[..., Any]:
    if ufunc.nin == 1:
        return at_line(lambda out, x: ufunc(x, out=out), node.src)
    return at_line(lambda out, x, y: ufunc(x, y, out=out), node.src)


def _where(node: Node) -> Callable[..., Any]:
    def call(out: Any, condition: Any, x: Any, y: Any) -> Any:
        # A boolean result may be given the condition's own buffer.
        condition = np.array(condition, bool) if np.may_share_memory(out, condition) else np.asarray(condition, bool)
        if np.may_share_memory(out, x):
            np.copyto(out, y, where=~condition)
        else:
            np.copyto(out, y)
            np.copyto(out, x, where=condition)
        return out

    return call


def _cast(node: Node) -> Callable[..., Any]:
    dtype, copyto = node.inputs[0].dtype, np.copyto
    if not node.inputs[0].aval.weak:
        return at_line(lambda out, x: (copyto(out, x, casting="unsafe"), out)[1], node.src)

    def call(out: Any, x: Any) -> Any:
        np.copyto(out, np.asarray(x, dtype), casting="unsafe")  # Python's ints wrap, too, but for those of more bits
        return out

    return call


def _matmul(node: Node) -> Callable[..., Any]:
    matmul = np.matmul
    return at_line(lambda out, x, y: matmul(x, y, out=out), node.src)


def _reduction(function: Any) -> Callable[[Node], Callable[..., Any]]:
    def bind(node: Node) -> Callable[..., Any]:
        attrs = dict(node.attrs)
        if attrs["axis"] is not None and len(attrs["axis"]) == 1:
            attrs["axis"] = attrs["axis"][0]

        def call(out: Any, x: Any) -> Any:
            if x.flags.c_contiguous or _falls(x.strides):
                return function(x, out=out, **attrs)
            np.copyto(out, function(x, **attrs))  # in the order of what lies otherwise it took 30 times as long
            return out

        return call

    return bind


def _falls(strides: tuple[int, ...]) -> bool:
    """Does every axis take steps that are no longer than those of the axis before?"""
    return all(a >= b for a, b in itertools.pairwise(map(abs, strides)))


def _concatenate(node: Node) -> Callable[..., Any]:
    axis = node.attrs["axis"]
    widths = _short_rows(node)
    if not widths:
        return lambda out, *parts: np.concatenate(parts, axis, out=out)

    def call(out: Any, *parts: Any) -> Any:
        if not all(each.flags.c_contiguous for each in (out, *parts)):
            return np.concatenate(parts, axis, out=out)
        table, begin = out.reshape(-1, sum(widths)), 0
        for width, part in zip(widths, parts, strict=True):
            row = np.dtype((np.void, width * out.itemsize))
            table[:, begin : begin + width].view(row)[:, 0] = part.reshape(-1, width).view(row)[:, 0]
            begin += width
        return out

    return call


def _short_rows(node: Node) -> list[int]:
    """How many elements of each part lie together, where these are few and many times: as one item of so many bytes
    they are copied in half to a sixth of the time that NumPy's loop over them takes."""
    if not node.is_static or not isinstance(node.aval, Aval) or node.dtype.hasobject or not node.size:
        return []
    if any(each.dtype != node.dtype or each.aval.weak for each in node.inputs):
        return []
    axis = node.attrs["axis"] % node.ndim
    widths = [math.prod(each.shape[axis:]) for each in node.inputs]
    few = max(widths) > 1 and min(widths) > 0 and max(widths) * node.dtype.itemsize <= _SHORT_ROW
    return widths if few and math.prod(node.shape[:axis]) >= _MANY_ROWS else []


def _transform(function: Any) -> Callable[[Node], Callable[..., Any]]:
    def bind(node: Node) -> Callable[..., Any]:
        attrs = dict(node.attrs)
        return lambda out, x: function(x, out=out, **attrs)

    return bind


def _sort(node: Node) -> Callable[..., Any]:
    axis, kind = node.attrs["axis"], node.attrs["kind"]

    def call(out: Any, x: Any) -> Any:
        np.copyto(out, x)
        out.sort(axis, kind)
        return out

    return call


def _full(node: Node) -> Callable[..., Any]:
    def call(out: Any, value: Any) -> Any:
        out[...] = value
        return out

    return call


def _pad(node: Node) -> Callable[..., Any]:
    """``np.pad`` takes ten microseconds to come to this."""
    inside = tuple(
        slice(low, low + extent)
        for (low, _), extent in zip(node.attrs["widths"], node.inputs[0].shape, strict=True)
    )

    def call(out: Any, x: Any, value: Any) -> Any:
        out[...] = value
        out[inside] = x
        return out

    return call


def _store(node: Node) -> Callable[..., Any]:
    chain, mode = node.attrs["chain"], node.attrs["mode"]
    blocks = around(node.shape, chain) if mode == "set" else None

    def call(out: Any, base: Any, value: Any, *dynamic: Any) -> Any:
        if np.may_share_memory(out, value):
            value = np.array(value)
        if out is not base:
            keep(out, base, blocks)
        store_into(out, value, dynamic, chain, mode)
        return out

    return call


def _fused_store(node: Node) -> Callable[..., Any]:
    graph, chain = node.attrs["graph"], node.attrs["chain"]
    blocks = around(node.shape, chain)

    def call(out: Any, base: Any, *inputs: Any) -> Any:
        (value,) = graph(*inputs)
        if out is not base:
            keep(out, base, blocks)
        store_into(out, value, (), chain, "set")
        return out

    return call


def _fused_join(node: Node) -> Callable[..., Any]:
    graph, blocks = node.attrs["graph"], node.attrs["blocks"]

    def call(out: Any, *inputs: Any) -> Any:
        write_blocks(out, blocks, graph(*inputs))
        return out

    return call


def _takes(node: Node) -> bool:
    """Does an array of indices pick along an axis that is not the first, and enough for a look at all of them?"""
    if node.op != "gather" or not node.is_static or not isinstance(node.aval, Aval) or node.aval.nbytes < _MUCH:
        return False
    pattern = node.attrs["pattern"]
    behind = pattern[0] == _ALL and all(entry in (_ALL, _PICKED) for entry in pattern)
    return behind and pattern.count(_PICKED) == 1 and len(node.inputs) == 2


def _take(node: Node) -> Callable[..., Any]:
    """NumPy's indexing leaves what it picks along a later axis in another order in memory, and takes longer."""
    axis, pick = node.attrs["pattern"].index(_PICKED), _plain(node)

    def call(out: Any, x: Any, index: Any) -> Any:
        extent = np.shape(x)[axis]
        if not x.flags.c_contiguous or index.min() < -extent or index.max() >= extent:
            out[...] = pick(None, x, index)
            return out
        return np.take(x, index, axis, out, "wrap")  # with "raise" it would fill another array first

    return call


_SHORT_ROW, _MANY_ROWS = 256, 512
"""Bytes of what lies together of an array that is joined to others, and how many times it is there."""
_ALL, _PICKED = ("s", None, None, None), ("d", 0)
_MUCH = 64 * 1024  # bytes


def _scatter(node: Node) -> Callable[..., Any]:
    pattern, mode = node.attrs["pattern"], node.attrs["mode"]

    def call(out: Any, base: Any, value: Any, *indices: Any) -> Any:
        if out is not base:
            np.copyto(out, base)
        index = fancy_index(pattern, indices)
        if mode == "set":
            out[index] = value
        else:
            np.add.at(out, index, value)
        return out

    return call


def _masked_store(node: Node) -> Callable[..., Any]:
    def call(out: Any, base: Any, mask: Any, value: Any) -> Any:
        if out is not base:
            np.copyto(out, base)
        out[mask] = value
        return out

    return call


_WRITERS: dict[str, Callable[[Node], Callable[..., Any]]] = {
    "where": _where,
    "cast": _cast,
    "matmul": _matmul,
    "sum": _reduction(np.sum),
    "prod": _reduction(np.prod),
    "max": _reduction(np.max),
    "min": _reduction(np.min),
    "concatenate": _concatenate,
    **{name: _transform(getattr(np.fft, name)) for name in ("fft", "ifft", "rfft", "irfft")},
    "sort": _sort,
    "full": _full,
    "pad": _pad,
    "room": lambda node: lambda out: out,
    "store": _store,
    "fused_store": _fused_store,
    "fused_join": _fused_join,
    "scatter": _scatter,
    "masked_store": _masked_store,
}
