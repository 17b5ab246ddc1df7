"""Counts and sums of groups: ``np.bincount``, whose groups are numbers, and ``reduceat``, whose groups are neighbours.

Both take elements in NumPy's order. What a group of ``reduceat`` comes to is one call of NumPy's inner loop behind its
first element, which takes longer than a few elements do themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, elementwise, searching, values
from futurex.kernels.loops.arrays import Array, Extent, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.searching import element, vector
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop, inner_loop
from futurex.kernels.loops.values import Scalar
from futurex.kernels.numba_.scalar import register_type
from futurex.ops.fusion import SUPPORTED
from futurex.ops.special import ufunc_named
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_COUNTS = re.compile(r"np\.bincount\(_0(, (weights=)?(?P<weights>_1|None))?(, (minlength=)?(?P<least>\d+|_\d))?\)")
_ROOM, _LEAST = 4, 64  # times as many groups as positions, and some more: where they are not enough, the code gives up
_REDUCING = ("add", "multiply", "maximum", "minimum")
_FEW = 8  # elements of which a pairwise sum is one after the other


def native(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Calls of NumPy that have a form of their own."""
    found = _COUNTS.fullmatch(node.attrs["call"])
    if found is None:
        return searching.native(e, node, inputs)
    weights, least = inputs[1] if found["weights"] == "_1" else None, found["least"] or "0"
    return _bincount(e, inputs[0], weights, e.scalar(inputs[int(least[1:])]) if least[0] == "_" else int(least))


def _bincount(e: Emitter, x: Any, weights: Any, least: int | Scalar) -> Array:
    """Counts of positions that the run knows, or sums of the weights there; ``least``: so many at least."""
    x, f = vector(x), e.function
    if x.dtype == np.uint64:
        raise Unsupported("positions that NumPy refuses")
    places = elementwise.operand(e, x, _INT)
    weights = None if weights is None else elementwise.operand(e, vector(weights), _FLOAT)
    if weights is not None:
        f.fail_if(f.emit(f"icmp ne i64 {text(places.shape[0])}, {text(weights.shape[0])}"))
        f.fail_if(f.emit(f"icmp eq i64 {text(places.shape[0])}, 0"))  # these are counted as integers
    room = _ROOM * max(arrays.most(places.shape[0]), _LEAST)
    if isinstance(least, int):
        room, fewest = max(room, least), str(least)
    else:
        if least.dtype != _INT:
            raise Unsupported("a number of groups of another kind")
        fewest = least.register
        f.fail_if(f.emit(f"icmp ugt i64 {fewest}, {room}"))  # and NumPy refuses negative ones
    out = e.fresh((room,), _INT if weights is None else _FLOAT)
    told = out.pointer(f)
    most = _largest(e, places)
    f.fail_if(f.emit(f"icmp uge i64 {most}, {room}"))  # negative ones, too
    some = f.emit(f"icmp ne i64 {text(places.shape[0])}, 0")
    behind = f.select(some, "i64", f.emit(f"add i64 {most}, 1"), "0")
    count = f.select(f.emit(f"icmp sgt i64 {behind}, {fewest}"), "i64", behind, fewest)
    with f.counted(count) as i:
        f.store(_INT, "0", element(f, told, i))  # the bits of 0.0 are those of 0
    added = "null" if weights is None else weights.pointer(f)
    steps = places.strides[0], None if weights is None else weights.strides[0]
    name = e.kernels.own("counted", "(ptr noalias %x, i64 %n, ptr noalias %w, ptr noalias %out)", _counting(*steps))
    f.do(f"call void @{name}(ptr {places.pointer(f)}, i64 {text(places.shape[0])}, ptr {added}, ptr {told})")
    return replace(out, shape=(Extent(count, room),))


def _largest(e: Emitter, places: Array) -> str:
    """The largest of the positions as numbers without a sign; those that all rounds of a loop have are looked at once,
    before the first."""
    f, entrance = e.function, e.entrance_of(places) if places.static else None
    key = ("largest", places.place, places.offset, places.strides, places.shape)
    if entrance is not None and key in entrance.made:
        return f.load(_INT, entrance.made[key].pointer(f))
    inner = Function()
    held = inner.variable("i64")
    inner.store(_INT, "0", held)
    with inner.counted("%n") as i:  # without a way out of it LLVM makes vectors of this
        place, most = inner.load(_INT, element(inner, "%x", i, places.strides[0])), inner.load(_INT, held)
        larger = inner.emit(f"icmp ugt i64 {place}, {most}")
        inner.store(_INT, inner.select(larger, "i64", place, most), held)
    inner.store(_INT, inner.load(_INT, held), "%out")
    name = e.kernels.own("largest", "(ptr noalias %x, i64 %n, ptr noalias %out)", inner)
    with e.at(entrance):
        made = (e.fresh if entrance is None else e.lasting)((1,), _INT)
        f.do(f"call void @{name}(ptr {places.pointer(f)}, i64 {text(places.shape[0])}, ptr {made.pointer(f)})")
    if entrance is not None:
        entrance.made[key] = made
    return f.load(_INT, made.pointer(f))


def _counting(step: int, weights: int | None) -> Function:
    """Ones, or the weights, so many bytes apart, added up at positions."""
    f = Function()
    with f.counted("%n") as i:
        target = element(f, "%out", f.load(_INT, element(f, "%x", i, step)))
        if weights is None:
            f.store(_INT, f.emit(f"add i64 {f.load(_INT, target)}, 1"), target)
        else:
            more = f.load(_FLOAT, element(f, "%w", i, weights))
            f.store(_FLOAT, f.emit(f"fadd double {f.load(_FLOAT, target)}, {more}"), target)
    return f


def reduceat(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """``ufunc.reduceat`` of a vector."""
    x, f, name, dtype = vector(inputs[0]), e.function, node.attrs["ufunc"], node.dtype
    loop = inner_loop(ufunc_named(name), (dtype, dtype), dtype)
    if name not in _REDUCING or x.dtype != dtype or dtype not in SUPPORTED or dtype.kind not in "iuf" or loop is None:
        raise Unsupported(f"{name}.reduceat of dtype {x.dtype}")
    if node.attrs["out"] is not None:
        raise Unsupported("reduceat into an array")
    places = elementwise.operand(e, vector(inputs[1]), _INT)
    out = e.fresh(places.shape, dtype)
    limit, groups, step = text(x.shape[0]), text(places.shape[0]), x.strides[0]
    given, asked, told = x.pointer(f), places.pointer(f), out.pointer(f)
    last, of_many = f.emit(f"sub i64 {groups}, 1"), _of_many(e, loop, step)
    with f.counted(groups) as k:
        begin = f.load(_INT, element(f, asked, k, places.strides[0]))
        f.fail_if(f.emit(f"icmp uge i64 {begin}, {limit}"))
        is_last = f.emit(f"icmp eq i64 {k}, {last}")
        following = f.select(is_last, "i64", k, f.emit(f"add i64 {k}, 1"))
        end = f.load(_INT, element(f, asked, following, places.strides[0]))
        end = f.select(is_last, "i64", limit, end)
        first, target = element(f, given, begin, step), element(f, told, k, dtype.itemsize)
        f.store(dtype, f.load(dtype, first), target)
        rest = f.emit(f"sub i64 {f.emit(f'sub i64 {end}, {begin}')}, 1")
        few, many, done = f.label(), f.label(), f.label()
        f.branch(f.emit(f"icmp slt i64 {rest}, {_FEW}"), few, many)
        f.place(many)
        of_many(target, f.emit(f"getelementptr i8, ptr {first}, i64 {step}"), rest)
        f.jump(done)
        f.place(few)
        _one_by_one(f, name, dtype, target, (first, step), rest)
        f.jump(done)
        f.place(done)
    return out


def _one_by_one(f: Function, name: str, dtype: Dtype, target: str, row: tuple[str, int], rest: str) -> None:
    """So many elements behind the first one of a row, which the target holds: a sum of them is added to it, anything
    else is taken one after the other."""
    first, step = row

    def of_two(one: str, two: str) -> str:
        pair = [Scalar(each, dtype, False) for each in (one, two)]
        return values.in_loop(f, name, pair, (dtype, dtype), dtype)

    some, done = f.label(), f.label()
    f.branch(f.emit(f"icmp sgt i64 {rest}, 0"), some, done)
    f.place(some)
    taken = 2 if name == "add" else 1
    total = f.variable(register_type(dtype))
    f.store(dtype, f.load(dtype, element(f, first, str(taken - 1), step)), total)
    with f.counted(f.emit(f"sub i64 {rest}, {taken - 1}")) as i:
        at = element(f, first, f.emit(f"add i64 {i}, {taken}"), step)
        f.store(dtype, of_two(f.load(dtype, total), f.load(dtype, at)), total)
    found = f.load(dtype, total)
    f.store(dtype, of_two(f.load(dtype, first), found) if name == "add" else found, target)
    f.jump(done)
    f.place(done)


def _of_many(e: Emitter, loop: InnerLoop, step: int) -> Callable[[str, str, str], None]:
    """``run(total, first, count)``: NumPy's own loop adds so many elements, from the first one on, to a total."""
    f, word = e.function, e.memory.loop(loop)
    args, steps, count = f.variable("[3 x ptr]"), f.variable("[3 x i64]"), f.variable("i64")
    for k, each in enumerate((0, step, 0)):
        f.do(f"store i64 {each}, ptr {f.emit(f'getelementptr i64, ptr {steps}, i64 {k}')}, align 8")

    def run(total: str, first: str, many: str) -> None:
        for k, each in enumerate((total, first, total)):
            f.do(f"store ptr {each}, ptr {f.emit(f'getelementptr ptr, ptr {args}, i64 {k}')}, align 8")
        f.store(_INT, many, count)
        f.do(f"call void %loop{word}(ptr {args}, ptr {count}, ptr {steps}, ptr %loop{word + 1})")

    return run
