"""Medians, quantiles and percentiles in compiled loops: the numbers are sorted, as NumPy's dtypes sort them, and NumPy
interpolates between two neighbours.

NumPy puts a few places in order instead, and finds the same numbers there, but that equal zeros may have another sign:
where it would show, and where NumPy has something to warn of, the code fails.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, dtypes, elementwise, groups
from futurex.kernels.loops.arrays import Array, Extent, plus, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.searching import element, succeed
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, converted
from futurex.kernels.numba_.scalar import operate, register_type
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_FEW = 1024
_MOST_POINTS = 64
_CALLS = re.compile(r"np\.(?P<function>(nan)?(quantile|percentile))\(_0, (q=)?_1\)")
_INTERPOLATED = frozenset((np.dtype(np.int32), _INT, _FLOAT))
"""Of single precision NumPy finds the places in single precision, too."""


def native(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Calls of NumPy that have a form of their own: ``median``, and quantiles that the run tells."""
    if node.attrs["call"] == "np.median(_0)":
        return _median(e, node, inputs)
    found = _CALLS.fullmatch(node.attrs["call"])
    if found is None:
        return groups.native(e, node, inputs)
    x, q = inputs
    if not isinstance(x, Array) or q.dtype.kind not in "iuf" or (isinstance(q, Array) and len(q.shape) != 1):
        raise Unsupported("quantiles of another kind")
    points = elementwise.operand(e, q, _FLOAT)
    return _quantiles(e, node, x, found["function"], points, tuple(range(len(x.shape))))


def quantile(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Of all elements, or along an axis."""
    attrs, function = node.attrs, node.attrs["function"]
    if node.aval.weak or attrs["method"] != "linear":
        raise Unsupported(f"numpy.{function}")
    if function == "median":
        return _medians(e, node, inputs) if node.ndim else _median(e, node, inputs)
    (x,) = inputs
    if not isinstance(x, Array):
        raise Unsupported("quantiles of a number")
    if function == "nanmedian":
        return _nanmedian(e, node, inputs)
    points = np.asarray(attrs["q"], np.float64).reshape(-1)
    if np.asarray(attrs["q"]).dtype.kind != "f" and "percentile" not in function:
        raise Unsupported("quantiles at integers")
    return _quantiles(e, node, x, function, e.memory.constant(points), attrs["axis"])


# -- medians ---------------------------------------------------------------------------------------------------------


def _median(e: Emitter, node: Node, inputs: Sequence[Any]) -> Scalar:
    """The element in the middle of few numbers, or the mean of the two there; NaN, which is sorted last, if one is.

    Integers and bools are sorted as what they are, and become floats before they are added, as in NumPy's mean.
    """
    x = _with_middle(node, inputs)
    made, first, count = _in_a_row(e, x)
    succeed(e, dtypes.sort(x.dtype, None), f"ptr {first}, i64 {count}")
    middle = _middle(e, first, count, x.dtype, node.dtype)
    _drop(e, made)
    return Scalar(middle, node.dtype, False)


def _nanmedian(e: Emitter, node: Node, inputs: Sequence[Any]) -> Scalar:
    """Of the numbers of a vector that are not NaN."""
    x = _with_middle(node, inputs)
    if node.ndim or len(x.shape) != 1 or x.dtype.kind != "f":
        raise Unsupported("medians of the numbers along an axis")
    made, first, count = _in_a_row(e, x)
    succeed(e, dtypes.sort(x.dtype, None), f"ptr {first}, i64 {count}")
    middle = _middle(e, first, _present(e, first, count, x.dtype), x.dtype, node.dtype)
    _drop(e, made)
    return Scalar(middle, node.dtype, False)


def _medians(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """Along one axis of known extents: of each of the vectors there."""
    x, f = _with_middle(node, inputs), e.function
    made, rows = _rows(e, x, node.attrs["axis"])
    out = e.fresh(node.shape, node.dtype)
    start, told, length = made.pointer(f), out.pointer(f), text(made.shape[-1])
    with f.counted(rows) as k:
        row = element(f, start, k, made.strides[-2])
        succeed(e, dtypes.sort(x.dtype, None), f"ptr {row}, i64 {length}")
        f.store(node.dtype, _middle(e, row, length, x.dtype, node.dtype), element(f, told, k, node.dtype.itemsize))
    _drop(e, made)
    return out


def _with_middle(node: Node, inputs: Sequence[Any]) -> Array:
    """An array of numbers that have a median of this type."""
    (x,) = inputs
    if not isinstance(x, Array) or x.dtype.kind not in "biuf" or x.dtype == np.float16:
        raise Unsupported("a median of other numbers")
    if node.dtype != (x.dtype if x.dtype.kind == "f" else np.float64):
        raise Unsupported("a median in another precision")
    return x


def _middle(e: Emitter, first: str, count: str, dtype: Dtype, result: Dtype) -> str:
    """The median of so many sorted numbers; ``result``: its type."""
    f, kind, size = e.function, register_type(result), dtype.itemsize
    upper = f.emit(f"lshr i64 {count}, 1")
    high = f.load(dtype, element(f, first, upper, size))
    odd = f.emit(f"trunc i64 {count} to i1")
    lower = f.emit(f"lshr i64 {f.emit(f'sub i64 {count}, 1')}, 1")
    low = f.load(dtype, element(f, first, lower, size))
    low, high = (f.cast(each, dtype, result) for each in (low, high))
    low, high = (f.emit(f"fadd {kind} {each}, 0.0") for each in (low, high))  # as sums begin, with no minus zero
    mean = f.emit(f"fmul {kind} {f.emit(f'fadd {kind} {low}, {high}')}, 0.5")
    middle = f.select(odd, kind, high, mean)
    if dtype.kind == "f":
        last = f.load(dtype, element(f, first, f.emit(f"sub i64 {count}, 1"), size))
        middle = f.select(f.emit(f"fcmp uno {kind} {last}, {last}"), kind, last, middle)
    return middle


# -- quantiles -------------------------------------------------------------------------------------------------------


def _quantiles(e: Emitter, node: Node, x: Array, function: str, points: Array, axis: Sequence[int]) -> Any:
    """At each of some points, of all elements or along an axis; those of the first point come first."""
    f, present = e.function, function.startswith("nan")
    if x.dtype not in _INTERPOLATED or node.dtype != _FLOAT or not points.static or not rounds_alike():
        raise Unsupported("quantiles in another precision")
    many = math.prod(points.capacity)
    whole = len(axis) == len(x.shape)
    if many > _MOST_POINTS or (present and (x.dtype.kind != "f" or len(x.shape) != 1)):
        raise Unsupported("many quantiles, or of the numbers along an axis")
    if whole:
        made, first, count = _in_a_row(e, x)
        rows, step = 1, 0
    else:
        made, rows = _rows(e, x, axis)
        first, count, step = made.pointer(f), text(made.shape[-1]), made.strides[-2]
    out, asked, apart = e.fresh(e.known(node.shape), _FLOAT), points.pointer(f), sum(points.strides)
    told = out.pointer(f)
    with f.counted(rows) as k:
        row = element(f, first, k, step)
        succeed(e, dtypes.sort(x.dtype, None), f"ptr {row}, i64 {count}")
        length = _present(e, row, count, x.dtype) if present else count
        with f.counted(many) as number:
            point = f.load(_FLOAT, element(f, asked, number, apart))
            if "percentile" in function:
                point = f.emit(f"fdiv double {point}, {converted(f, _number(100), _FLOAT)}")
            value = _between(f, row, length, point, x.dtype)
            place = f.emit(f"add i64 {f.emit(f'mul i64 {number}, {rows}')}, {k}")
            f.store(_FLOAT, value, element(f, told, place))
    _drop(e, made)
    return e.unboxed(out)


@functools.cache
def rounds_alike() -> bool:
    """Does this NumPy interpolate as the code below?"""
    x, points = np.sort(np.random.default_rng(0).normal(size=12)), np.linspace(0.0, 1.0, 29)
    place = 11 * points
    lower = np.minimum(np.floor(place), 11).astype(int)
    low, high, weight = x[lower], x[np.minimum(lower + 1, 11)], place - lower
    expected = np.where(weight >= 0.5, high - (high - low) * (1 - weight), low + (high - low) * weight)
    return all(float(np.quantile(x, float(q))) == value for q, value in zip(points, expected, strict=True))


def _number(value: int) -> Scalar:
    return Scalar(str(value), _INT, True, value)


def _between(f: Function, first: str, count: str, point: str, dtype: Dtype) -> str:
    """The number at a point from 0 to 1 of so many sorted ones, as NumPy rounds it (``_get_indexes``, ``_lerp``)."""
    inside = f.emit(f"and i1 {f.emit(f'fcmp oge double {point}, 0.0')}, {f.emit(f'fcmp ole double {point}, 1.0')}")
    f.fail_if(f.emit(f"xor i1 {inside}, true"))
    last = f.emit(f"sub i64 {count}, 1")
    end = f.emit(f"sitofp i64 {last} to double")
    place = f.emit(f"fmul double {end}, {point}")
    behind, lower = f.emit(f"fcmp oge double {place}, {end}"), f.emit(f"fptosi double {place} to i64")
    upper = f.select(behind, "i64", last, f.emit(f"add i64 {lower}, 1"))
    # whose numbers are counted from the end there: that is where the weight begins, too
    start = f.select(behind, "double", "-1.0", f.emit(f"sitofp i64 {lower} to double"))
    weight = f.emit(f"fsub double {place}, {start}")
    size = dtype.itemsize
    low = f.load(dtype, element(f, first, f.select(behind, "i64", last, lower), size))
    high = f.load(dtype, element(f, first, upper, size))
    apart = f.cast(operate(f, "subtract", dtype, [high, low]), dtype, _FLOAT)
    low, high = (f.cast(each, dtype, _FLOAT) for each in (low, high))
    late = f.emit(f"fcmp oge double {weight}, 0.5")
    if dtype.kind == "f":
        finite = f.emit(f"fcmp ord double {f.emit(f'fsub double {apart}, {apart}')}, 0.0")
        numbers = f.emit(f"fcmp ord double {low}, {high}")
        f.fail_if(f.emit(f"and i1 {numbers}, {f.emit(f'xor i1 {finite}, true')}"))
        _certain(f, first, count, f.emit(f"and i1 {late}, {f.emit(f'fcmp oeq double {high}, 0.0')}"))
    from_low = f.emit(f"fadd double {low}, {f.emit(f'fmul double {apart}, {weight}')}")
    rest = f.emit(f"fsub double 1.0, {weight}")
    from_high = f.emit(f"fsub double {high}, {f.emit(f'fmul double {apart}, {rest}')}")
    found = f.select(late, "double", from_high, from_low)
    if dtype.kind == "f":
        greatest = f.load(dtype, element(f, first, last, size))
        found = f.select(f.emit(f"fcmp uno double {greatest}, {greatest}"), "double", greatest, found)
    return found


def _certain(f: Function, first: str, count: str, asks: str) -> None:
    """Fails where the sign of a zero matters, and one of them has a sign."""
    look, done, signs = f.label(), f.label(), f.variable("i64")
    f.store(_INT, "0", signs)
    f.branch(asks, look, done)
    f.place(look)
    with f.counted(count) as k:
        bits = f.load(_INT, element(f, first, k))
        signed = f.emit(f"zext i1 {f.emit(f'icmp eq i64 {bits}, {np.iinfo(np.int64).min}')} to i64")
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, signs)}, {signed}"), signs)
    f.jump(done)
    f.place(done)
    f.fail_if(f.emit(f"icmp ne i64 {f.load(_INT, signs)}, 0"))


# -- what is common --------------------------------------------------------------------------------------------------


def _in_a_row(e: Emitter, x: Array) -> tuple[Array, str, str]:
    """A copy of all elements, the address of its first one, and how many there are, of which there is one at least."""
    if not 0 < math.prod(x.capacity) <= (_FEW if x.static else _FEW << 4):  # of more NumPy sorts a part alone
        raise Unsupported("an order of many numbers")
    f, size = e.function, x.dtype.itemsize
    made, place = e.fresh((math.prod(x.capacity),), x.dtype), f.variable("i64")
    first = made.pointer(f)
    f.do(f"store i64 0, ptr {place}, align 8")
    with ExitStack() as stack:
        offset = x.offset
        for extent, stride in zip(x.shape, x.strides, strict=True):
            index = stack.enter_context(f.counted(text(extent)))
            offset = plus(f, offset, arrays.times(f, index, str(stride)))
        value = f.load(x.dtype, replace(x, shape=(), strides=(), offset=offset).pointer(f))
        position = f.emit(f"load i64, ptr {place}, align 8")
        f.store(x.dtype, value, element(f, first, position, size))
        f.do(f"store i64 {f.emit(f'add i64 {position}, 1')}, ptr {place}, align 8")
    count = f.emit(f"load i64, ptr {place}, align 8")
    if any(isinstance(extent, Extent) for extent in x.shape):
        f.fail_if(f.emit(f"icmp eq i64 {count}, 0"))
    return made, first, count


def _rows(e: Emitter, x: Array, axis: Sequence[int]) -> tuple[Array, int]:
    """A copy with the numbers of each row side by side, and how many rows there are."""
    if len(axis) != 1 or not 0 < e.known(x.shape)[axis[0]] <= _FEW:
        raise Unsupported("orders along several axes, or of many numbers")
    order = [*(k for k in range(len(x.shape)) if k != axis[0] % len(x.shape)), axis[0]]
    shape, strides = tuple(x.shape[k] for k in order), tuple(x.strides[k] for k in order)
    made = e.copied(replace(x, shape=shape, strides=strides, owned=False))
    return made, math.prod(made.capacity[:-1])


def _present(e: Emitter, first: str, count: str, dtype: Dtype) -> str:
    """How many of the sorted numbers are not NaN, of which there is one at least."""
    f, kind, present = e.function, register_type(dtype), e.function.variable("i64")
    f.store(_INT, "0", present)
    with f.counted(count) as k:
        value = f.load(dtype, element(f, first, k, dtype.itemsize))
        one = f.emit(f"zext i1 {f.emit(f'fcmp ord {kind} {value}, {value}')} to i64")
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, present)}, {one}"), present)
    found = f.load(_INT, present)
    f.fail_if(f.emit(f"icmp eq i64 {found}, 0"))
    return found


def _drop(e: Emitter, made: Array) -> None:
    e.memory.hold(made.place)
    e.memory.release(made.place)
