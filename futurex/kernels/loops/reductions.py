"""Reductions by NumPy's inner loops, in the order in which NumPy itself runs through an array."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise, kernels, records, values
from futurex.kernels.loops.arrays import Array, Extent, Size, Strides, merged, plus
from futurex.kernels.loops.records import Kernel
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import inner_loop
from futurex.kernels.loops.values import Scalar, constant, supported
from futurex.ops.fusion import SUPPORTED
from futurex.ops.reduce import axes_of
from futurex.ops.special import ufunc_named
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_UFUNCS: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
    "all": np.logical_and, "fmax": np.fmax, "fmin": np.fmin,
}  # fmt: skip
_BUFFER = 8192  # elements that NumPy's iterator reads at a time where dimensions do not merge
_WORDS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_ACCUMULATED = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "logaddexp", "bitwise_and", "bitwise_or",
     "bitwise_xor")
)  # fmt: skip
_CHAINS = 8  # of a pairwise sum of at most 128 elements
_LANES = (16, 8, 4, 2, 1)
"""Columns side by side in which the largest is looked for."""
_NEUTRAL = {"sum": 0, "prod": 1, "any": False, "all": True}


def reduction(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``sum``, ``prod``, ``max``, ``min``, ``any`` and ``all``; those that may go in any order go in NumPy's."""
    (x,) = inputs
    if isinstance(x, Scalar):
        if x.weak or x.dtype != node.dtype:
            raise Unsupported(f"{node.op} of a number")
        return x
    name = node.op.removeprefix("free_")
    out = reduced(e, name, x, axes_of(len(x.shape), node.attrs["axis"]), node.dtype, node.attrs["keepdims"])
    return e.unboxed(out)


def of_ufunc(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``reduce`` of a ufunc for extremes: of ``fmax`` and ``fmin``, which ``nanmax`` and ``nanmin`` are, too."""
    attrs, x = node.attrs, inputs[0]
    plain = attrs["initial"] == "default" and not attrs["masked"] and attrs["out"] is None
    if len(inputs) != 1 or not plain or attrs["ufunc"] not in _UFUNCS or not isinstance(x, Array) or not x.shape:
        raise Unsupported(f"reductions by {attrs['ufunc']}")
    axes = axes_of(len(x.shape), attrs["axis"])
    return e.unboxed(reduced(e, attrs["ufunc"], x, axes, node.dtype, attrs["keepdims"]))


def reduced(e: Emitter, name: str, x: Array, axes: tuple[int, ...], dtype: Dtype, keepdims: bool) -> Array:
    loop = inner_loop(_UFUNCS[name], (dtype, dtype), dtype)
    if loop is None:
        raise Unsupported(f"{name} of dtype {dtype}")
    whole, out = _result(e, x, axes, dtype, keepdims)
    rest = [k for k in range(len(x.shape)) if k not in axes]
    x = elementwise.operand(e, x, dtype)
    if name in _NEUTRAL:
        elementwise.assign(e, out, constant(_NEUTRAL[name], dtype, weak=False))
    else:
        elementwise.assign(e, _cut(whole, rest), _first(e, x, axes))
    x, whole = _ordered(x, whole)
    if len(axes) == len(x.shape) > 1 and x.static and len(merged(x.shape, [x.strides])[0]) > 1:
        if math.prod(x.capacity) > _BUFFER:
            raise Unsupported("a reduction that NumPy takes in pieces")
        x = e.copied(x)  # as NumPy's iterator fills its buffer
    if not _short(e, name, x, whole):
        records.run(e, loop, [whole, x, whole], x.shape, [whole.strides, x.strides, whole.strides])
    return out


def _short(e: Emitter, name: str, x: Array, whole: Array) -> bool:
    """Rows of a few elements, for which calling NumPy's loop would take longer than the loop: generated code in the
    same order. Rows that are added up element by element are elementwise operations; those of which each becomes a
    number are added up in pairs, as NumPy does."""
    dtype, strides = x.dtype, [whole.strides, x.strides]
    known = name in _WORDS and dtype in SUPPORTED and dtype.kind in "iuf"
    if not known or not records.in_short_rows(x.shape, strides):
        return False

    def of_two(*pair: Scalar) -> Scalar:
        return Scalar(values.in_loop(e.function, _WORDS[name], pair, (dtype, dtype), dtype), dtype, False)

    def across(inside: Sequence[int], columns: Sequence[Strides]) -> records.Kernel:
        return kernels.accumulating(e, dtype, inside, columns, lambda pair: of_two(*pair).register)

    extents, columns = merged(x.shape, strides)
    if columns[-1][0]:
        records.run_nested(e, across, [whole, x], x.shape, strides)
        return True
    count, (_, step) = extents.pop(), columns.pop()
    if name == "prod" or not isinstance(count, int) or not count:
        return False

    def along(inside: Sequence[int], columns: Sequence[Strides]) -> records.Kernel:
        def compute(total: Scalar, elements: list[Scalar]) -> str:
            return of_two(total, _in_pairs(of_two, elements)).register

        return kernels.of_rows(e, dtype, inside, columns, (count, step), compute)

    records.run_nested(e, along, [whole, x], extents, [tuple(column[k] for column in columns) for k in range(2)])
    return True


def _in_pairs(of_two: Callable[[Scalar, Scalar], Scalar], elements: list[Scalar]) -> Scalar:
    """The elements of a row as NumPy's pairwise sum takes them: less than eight one after the other, else in eight
    chains, which are added up in pairs, and what is left one after the other."""
    whole = len(elements) - len(elements) % _CHAINS
    if whole:
        chains = [functools.reduce(of_two, elements[k:whole:_CHAINS]) for k in range(_CHAINS)]
        while len(chains) > 1:
            chains = [of_two(*pair) for pair in zip(chains[::2], chains[1::2], strict=True)]
        elements = [*chains, *elements[whole:]]
    return functools.reduce(of_two, elements)


def _result(e: Emitter, x: Array, axes: tuple[int, ...], dtype: Dtype, keepdims: bool) -> tuple[Array, Array]:
    """Memory for the result, as an array of the operand's shape that stands still along the axes, and as what it is."""
    kept = tuple(1 if k in axes else extent for k, extent in enumerate(x.shape))
    out = e.fresh(kept, dtype)
    strides = tuple(0 if k in axes else stride for k, stride in enumerate(out.strides))
    rest = [k for k in range(len(kept)) if keepdims or k not in axes]
    shown = replace(out, shape=tuple(kept[k] for k in rest), strides=tuple(out.strides[k] for k in rest))
    return replace(out, shape=x.shape, strides=strides, owned=False), shown


def _first(e: Emitter, x: Array, axes: tuple[int, ...]) -> Array:
    """The first elements along the axes; NumPy has an error to raise where there are none."""
    for axis in axes:
        extent = x.shape[axis]
        if extent == 0:
            raise Unsupported("an extreme of nothing")
        if isinstance(extent, Extent):
            e.function.fail_if(e.function.emit(f"icmp eq i64 {extent.register}, 0"))
    rest = [k for k in range(len(x.shape)) if k not in axes]
    return replace(x, shape=tuple(x.shape[k] for k in rest), strides=tuple(x.strides[k] for k in rest), owned=False)


def _ordered(x: Array, out: Array) -> tuple[Array, Array]:
    """Both with the axes in the order of memory, as NumPy's iterator runs: large strides outside."""
    order = sorted(range(len(x.strides)), key=lambda k: -abs(x.strides[k]))
    return _cut(x, order), _cut(out, order)


def cumsum(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``cumsum``: NumPy's addition, each element to the result before it."""
    return _running(e, node, inputs, np.add)


def accumulate(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``accumulate``, and ``cumprod``: the same of another ufunc whose results are of the type of what it takes."""
    if node.attrs["ufunc"] not in _ACCUMULATED or node.attrs["out"] not in (None, inputs[0].dtype):
        raise Unsupported(f"running results of {node.attrs['ufunc']}")
    return _running(e, node, inputs, ufunc_named(node.attrs["ufunc"]))


def _running(e: Emitter, node: Node, inputs: Sequence[Any], ufunc: Any) -> Any:
    (x,) = inputs
    if isinstance(x, Scalar) or not x.shape or node.dtype.kind == "c":
        raise Unsupported("running results of numbers")
    axis, dtype, f = node.attrs["axis"] % len(x.shape), node.dtype, e.function
    loop = inner_loop(ufunc, (dtype, dtype), dtype)
    extent = x.shape[axis]
    if loop is None or extent == 0:
        raise Unsupported("running results of nothing")
    x = elementwise.operand(e, x, dtype)
    out = e.fresh(x.shape, dtype)
    if isinstance(extent, Extent):
        f.fail_if(f.emit(f"icmp eq i64 {extent.register}, 0"))
        rest: Size = Extent(f.emit(f"sub i64 {extent.register}, 1"), extent.most)
    else:
        rest = extent - 1
    others = [k for k in range(len(x.shape)) if k != axis]

    def line(array: Array, start: int) -> Array:
        return replace(array, offset=plus(f, array.offset, str(start * array.strides[axis])), owned=False)

    for array in (x, out):
        assert len(array.shape) == len(x.shape)
    elementwise.assign(e, _cut(out, others), _cut(x, others))
    operands = [line(out, 0), line(x, 1), line(out, 1)]
    extents, columns = merged(
        tuple(x.shape[k] for k in others), [tuple(each.strides[k] for k in others) for each in operands]
    )
    steps = [each.strides[axis] for each in operands]
    records.emit(e, loop, operands, [rest], steps, extents, columns)
    return out


def _cut(array: Array, axes: Sequence[int]) -> Array:
    shape, strides = tuple(array.shape[k] for k in axes), tuple(array.strides[k] for k in axes)
    return replace(array, shape=shape, strides=strides, owned=False)


def position(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``argmax`` and ``argmin``: the first extreme, the first NaN where there is one."""
    (x,) = inputs
    if isinstance(x, Scalar) or not x.shape or x.dtype.kind == "c":
        raise Unsupported(f"{node.op} of a number, or of complex ones")
    supported(x.dtype)
    axis = node.attrs["axis"] % len(x.shape)
    _first(e, x, (axis,))
    whole, out = _result(e, x, (axis,), np.dtype(np.intp), node.attrs["keepdims"])
    others = [k for k in range(len(x.shape)) if k != axis]
    extents, columns = merged(
        tuple(x.shape[k] for k in others), [tuple(each.strides[k] for k in others) for each in (x, whole)]
    )
    step, size = x.strides[axis], x.dtype.itemsize
    search = functools.partial(_searching, e, node.op == "argmax", x.dtype, step)

    def run(kernel: Kernel, operands: Sequence[Array], extents: list[Size], columns: list[Strides]) -> None:
        records.emit(e, kernel, operands, [x.shape[axis]], [step, 0], extents, columns)

    beside = extents[-1] if extents and columns[-1] == (size, whole.dtype.itemsize) else 0
    if not isinstance(beside, int) or beside < 2 or x.dtype.kind == "b" or x.dtype == np.float16:
        run(search(1), [x, whole], extents, columns)
        return e.unboxed(out)
    done = 0
    for lanes in _LANES:
        count = (beside - done) // lanes
        if count:
            starts = (done * size, done * whole.dtype.itemsize)
            parts = [
                replace(each, offset=plus(e.function, each.offset, str(start)), owned=False)
                for each, start in zip((x, whole), starts, strict=True)
            ]
            steps = (lanes * size, lanes * whole.dtype.itemsize)
            run(search(lanes), parts, [*extents[:-1], count], [*columns[:-1], steps])
        done += count * lanes
    return e.unboxed(out)


def _searching(e: Emitter, largest: bool, dtype: Dtype, step: int, lanes: int) -> Kernel:
    """The search along one column, or along so many that lie side by side: they are the lanes of vectors."""
    with e.kernels.building(e, 2) as draft:
        (_search_lanes if lanes > 1 else _search_one)(draft, largest, dtype, step, lanes)
    return draft.kernel


def _search_one(draft: kernels.Draft, largest: bool, dtype: Dtype, step: int, lanes: int) -> None:
    f = draft.function
    kind = kernels.register_type(dtype)
    best, at = f.variable(kind), f.variable("i64")
    f.do(f"store {kind} {f.load(dtype, draft.pointers[0])}, ptr {best}, align 8")
    f.do(f"store i64 0, ptr {at}, align 8")
    with f.counted("%n") as i:
        value = f.load(dtype, draft.at(0, i, step))
        old = f.emit(f"load {kind}, ptr {best}, align 8")
        place = f.emit(f"load i64, ptr {at}, align 8")
        if dtype.kind == "f":
            wins = f.emit(f"fcmp {'ogt' if largest else 'olt'} {kind} {value}, {old}")
            new = f.emit(f"fcmp uno {kind} {value}, {value}")
            known = f.emit(f"fcmp ord {kind} {old}, {old}")
            wins = f.emit(f"or i1 {wins}, {new}")
            wins = f.emit(f"and i1 {wins}, {known}")
        else:
            sign = "s" if dtype.kind == "i" else "u"
            wins = f.emit(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {value}, {old}")
        f.do(f"store {kind} {f.select(wins, kind, value, old)}, ptr {best}, align 8")
        f.do(f"store i64 {f.select(wins, 'i64', i, place)}, ptr {at}, align 8")
    f.store(np.dtype(np.intp), f.emit(f"load i64, ptr {at}, align 8"), draft.pointers[1])


def _search_lanes(draft: kernels.Draft, largest: bool, dtype: Dtype, step: int, lanes: int) -> None:
    f, size = draft.function, dtype.itemsize
    kind = f"<{lanes} x {kernels.register_type(dtype)}>"
    numbers, flags = f"<{lanes} x i64>", f"<{lanes} x i1>"
    best, at = f.variable(kind, 64), f.variable(numbers, 64)
    f.do(f"store {kind} {f.emit(f'load {kind}, ptr {draft.pointers[0]}, align {size}')}, ptr {best}, align 64")
    f.do(f"store {numbers} zeroinitializer, ptr {at}, align 64")
    with f.counted("%n") as i:
        value = f.emit(f"load {kind}, ptr {draft.at(0, i, step)}, align {size}")
        old = f.emit(f"load {kind}, ptr {best}, align 64")
        place = f.emit(f"load {numbers}, ptr {at}, align 64")
        if dtype.kind == "f":  # or is what has no order
            wins = f.emit(f"fcmp {'ugt' if largest else 'ult'} {kind} {value}, {old}")
            wins = f.emit(f"and {flags} {wins}, {f.emit(f'fcmp ord {kind} {old}, {old}')}")
        else:
            sign = "s" if dtype.kind == "i" else "u"
            wins = f.emit(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {value}, {old}")
        one = f.emit(f"insertelement {numbers} poison, i64 {i}, i64 0")
        here = f.emit(f"shufflevector {numbers} {one}, {numbers} poison, <{lanes} x i32> zeroinitializer")
        kept = f.emit(f"select {flags} {wins}, {kind} {value}, {kind} {old}")
        found = f.emit(f"select {flags} {wins}, {numbers} {here}, {numbers} {place}")
        f.do(f"store {kind} {kept}, ptr {best}, align 64")
        f.do(f"store {numbers} {found}, ptr {at}, align 64")
    f.do(f"store {numbers} {f.emit(f'load {numbers}, ptr {at}, align 64')}, ptr {draft.pointers[1]}, align 8")
