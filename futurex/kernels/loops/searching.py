"""Sorting and searching, and convolutions of vectors: NumPy's own functions for sorts and inner products, and loops
around them in NumPy's order."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, dtypes, elementwise
from futurex.kernels.loops.arrays import Array, Extent, Size, plus, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop
from futurex.kernels.loops.values import Scalar
from futurex.kernels.numba_.scalar import operate
from futurex.kernels.numba_.sliding import IN_ORDER, slides
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_INT, _FLOAT, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(bool)
_IN_ORDER = {("f", 4), ("f", 8), ("i", 4), ("i", 8), ("u", 4), ("u", 8)}
"""Numbers of which NumPy adds up the products of a few taps in their order."""
_SEARCHES = {
    "np.searchsorted(_0, _1)": "left",
    "np.searchsorted(_0, _1, side='left')": "left",
    "np.searchsorted(_0, _1, side='right')": "right",
    "np.searchsorted(_0, _1, 'left')": "left",
    "np.searchsorted(_0, _1, 'right')": "right",
}
_BINS = {
    "np.digitize(_0, _1)": False,
    "np.digitize(_0, _1, right=False)": False,
    "np.digitize(_0, _1, False)": False,
    "np.digitize(_0, _1, right=True)": True,
    "np.digitize(_0, _1, True)": True,
}
"""And whether those count that lie left of a bin's edge, or on it."""
_LEXSORT = re.compile(r"np\.lexsort\(\((_\d+, )*_\d+,?\)\)")


def native(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Calls of NumPy that have a form of their own: ``searchsorted``, ``digitize``, ``lexsort``."""
    if node.attrs["call"] in _BINS:
        keys, bins = inputs
        rises(e, vector(bins))
        return _places(e, (bins, keys), _BINS[node.attrs["call"]])
    if _LEXSORT.fullmatch(node.attrs["call"]):
        return _in_several_orders(e, list(map(vector, inputs)))
    side = _SEARCHES.get(node.attrs["call"])
    if side is None:
        raise Unsupported(node.attrs["call"])
    return _places(e, inputs, side == "left")


# -- sorting ---------------------------------------------------------------------------------------------------------


def sort(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """``sort`` along an axis: each of the vectors there, side by side in memory, by the function that NumPy calls."""
    (x,) = inputs
    if isinstance(x, Scalar) or not x.shape or node.attrs["axis"] is None:
        raise Unsupported("sorting numbers, or whatever axes there are")
    f, axis, last = e.function, node.attrs["axis"] % len(x.shape), len(x.shape) - 1
    function = dtypes.sort(x.dtype, node.attrs["kind"])
    made = e.copied(_exchanged(x, axis, last))
    rows = made if last < 2 else replace(made, shape=e.known(made.shape))
    count: Size = 1 if not last else rows.shape[0] if last == 1 else math.prod(rows.capacity[:-1])
    length, start = text(rows.shape[-1]), rows.pointer(f)
    with f.counted(text(count)) as k:  # rows are as far apart as the longest that they may be
        step = rows.strides[-2] if last else 0
        succeed(e, function, f"ptr {element(f, start, k, step)}, i64 {length}")
    return made if axis == last else e.copied(_exchanged(made, axis, last))


def _exchanged(x: Array, axis: int, other: int) -> Array:
    """A view with two axes in each other's place."""
    order = list(range(len(x.shape)))
    order[axis], order[other] = other, axis
    shape, strides = tuple(x.shape[k] for k in order), tuple(x.strides[k] for k in order)
    return replace(x, shape=shape, strides=strides, owned=False)


def argsort(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """``argsort`` along an axis, in the same way."""
    (x,) = inputs
    if isinstance(x, Scalar) or not x.shape or node.attrs["axis"] is None:
        raise Unsupported("sorting numbers, or whatever axes there are")
    axis, last = node.attrs["axis"] % len(x.shape), len(x.shape) - 1
    if not last:
        return _positions(e, vector(x), node.attrs["kind"])
    e.known(x.shape)
    found = _positions(e, _exchanged(x, axis, last), node.attrs["kind"])
    return found if axis == last else e.copied(_exchanged(found, axis, last))


def _positions(e: Emitter, x: Array, kind: str | None) -> Array:
    """Of each vector along the last axis; several are of known lengths."""
    f, function = e.function, dtypes.argsort(x.dtype, kind)
    order = e.fresh(x.shape, _INT)
    source = x if x.contiguous else e.copied(x)
    given, start, length = source.pointer(f), order.pointer(f), text(x.shape[-1])
    with f.counted(1 if len(x.shape) == 1 else math.prod(x.capacity[:-1])) as row:
        first = f.emit(f"mul i64 {row}, {length}")
        values, places = element(f, given, first, x.dtype.itemsize), element(f, start, first)
        with f.counted(length) as i:
            f.store(_INT, i, element(f, places, i))
        succeed(e, function, f"ptr {values}, ptr {places}, i64 {length}")
    return order


def _in_several_orders(e: Emitter, keys: Sequence[Array]) -> Array:
    """``lexsort``: by each key, in the order that those before it have left."""
    f, length = e.function, keys[0].shape[0]
    if any(each.shape[0] != length for each in keys):
        raise Unsupported("keys of which it is not known whether they are equally long")
    order = e.fresh((length,), _INT)
    start = order.pointer(f)
    with f.counted(text(length)) as i:
        f.store(_INT, i, element(f, start, i))
    for key in keys:
        source = key if key.contiguous else e.copied(key)
        function = dtypes.argsort(key.dtype, "stable")
        succeed(e, function, f"ptr {source.pointer(f)}, ptr {start}, i64 {text(length)}")
    return order


def unique(e: Emitter, node: Node, inputs: Sequence[Any]) -> list[Array]:
    """``unique`` of integers and bools, with all that it tells; equal floats may be different numbers."""
    (x,) = inputs
    if not isinstance(x, Array) or not x.shape or x.dtype.kind not in "biu" or node.attrs["axis"] is not None:
        raise Unsupported("distinct numbers of another kind")
    f, dtype, shape = e.function, x.dtype, x.shape
    x = x if x.contiguous else e.copied(x)
    x = x if len(shape) == 1 else arrays.reshaped(f, x, (x.nbytes // dtype.itemsize,))
    count, wanted = x.shape[0], node.attrs["extras"]
    order = _positions(e, x, "stable")
    most = arrays.most(count)
    made = e.fresh((most,), dtype)
    extras = {name: e.fresh(shape if name == "inverse" else (most,), _INT) for name in wanted}
    given, sorted_, values = (each.pointer(f) for each in (x, order, made))
    pointers = {name: each.pointer(f) for name, each in extras.items()}
    groups = f.variable("i64")
    f.do(f"store i64 0, ptr {groups}, align 8")
    with f.counted(text(count)) as i:
        first = f.emit(f"icmp eq i64 {i}, 0")
        place = f.load(_INT, element(f, sorted_, i))
        before = f.load(_INT, element(f, sorted_, f.select(first, "i64", "0", f.emit(f"sub i64 {i}, 1"))))
        value, last = (f.load(dtype, element(f, given, where, dtype.itemsize)) for where in (place, before))
        new = f.emit(f"or i1 {first}, {operate(f, 'not_equal', dtype, [value, last])}")
        number = f.emit(f"add i64 {f.load(_INT, groups)}, {f.emit(f'zext i1 {new} to i64')}")
        f.store(_INT, number, groups)
        group = f.emit(f"sub i64 {number}, 1")
        f.store(dtype, value, element(f, values, group, dtype.itemsize))
        if "inverse" in pointers:
            f.store(_INT, group, element(f, pointers["inverse"], place))
        if "index" in pointers:
            at = element(f, pointers["index"], group)
            f.store(_INT, f.select(new, "i64", place, f.load(_INT, at)), at)
        if "counts" in pointers:
            at = element(f, pointers["counts"], group)
            f.store(_INT, f.emit(f"add i64 {f.select(new, 'i64', '0', f.load(_INT, at))}, 1"), at)
    found = Extent(f.load(_INT, groups), most)
    return [
        array if name == "inverse" else replace(array, shape=(found,))
        for name, array in (("", made), *extras.items())
    ]  # fmt: skip


def _places(e: Emitter, inputs: Sequence[Any], left: bool) -> Any:
    """Binary searches, each in what the one before left open: that tells in arrays that are not sorted, too."""
    if not searches_alike():
        raise Unsupported("searches in an order that NumPy has not written down")
    sorted_, keys = inputs
    x = vector(sorted_)
    dtype = np.promote_types(x.dtype, keys.dtype)
    if dtype.kind not in "biuf":
        raise Unsupported("a search for complex numbers")
    x, wanted = (elementwise.operand(e, value, dtype) for value in (x, keys))
    wanted = wanted if wanted.contiguous else e.copied(wanted)
    out = e.fresh(wanted.shape, _INT)
    f, limit = e.function, text(x.shape[0])
    count: Size = 1
    if wanted.shape:
        count = wanted.shape[0] if len(wanted.shape) == 1 else wanted.nbytes // dtype.itemsize
    given, asked, told = x.pointer(f), wanted.pointer(f), out.pointer(f)
    low, high, previous = f.variable("i64"), f.variable("i64"), f.variable("i64")
    f.store(_INT, "0", low)
    f.store(_INT, limit, high)
    f.store(_INT, "0", previous)
    with f.counted(text(count)) as i:
        key = f.load(dtype, element(f, asked, i, dtype.itemsize))
        last = f.load(dtype, element(f, asked, f.load(_INT, previous), dtype.itemsize))
        f.store(_INT, i, previous)
        rising, end = _is_before(f, dtype, last, key, left), f.load(_INT, high)
        f.store(_INT, f.select(rising, "i64", f.load(_INT, low), "0"), low)
        inside = f.emit(f"icmp slt i64 {end}, {limit}")
        further = f.select(inside, "i64", f.emit(f"add i64 {end}, 1"), limit)
        f.store(_INT, f.select(rising, "i64", limit, further), high)
        head, body, done = f.label(), f.label(), f.label()
        f.jump(head)
        f.place(head)
        start, end = f.load(_INT, low), f.load(_INT, high)
        f.branch(f.emit(f"icmp slt i64 {start}, {end}"), body, done)
        f.place(body)
        half = f.emit(f"lshr i64 {f.emit(f'sub i64 {end}, {start}')}, 1")
        middle = f.emit(f"add i64 {start}, {half}")
        value = f.load(dtype, element(f, given, middle, x.strides[0]))
        before = _is_before(f, dtype, value, key, left)
        f.store(_INT, f.select(before, "i64", f.emit(f"add i64 {middle}, 1"), start), low)
        f.store(_INT, f.select(before, "i64", end, middle), high)
        f.jump(head)
        f.place(done)
        f.store(_INT, f.load(_INT, low), element(f, told, i))
    return e.unboxed(out)


def rises(e: Emitter, bins: Array) -> None:
    """Fails for edges that fall somewhere: of those that always fall NumPy searches from the other end."""
    f, falls = e.function, e.function.variable("i64")
    start, step = bins.pointer(f), bins.strides[0]
    f.store(_INT, "0", falls)
    with f.counted(f.emit(f"sub i64 {text(bins.shape[0])}, 1")) as i:
        here = f.load(bins.dtype, element(f, start, i, step))
        following = f.load(bins.dtype, element(f, start, f.emit(f"add i64 {i}, 1"), step))
        rises = operate(f, "less_equal", bins.dtype, [here, following])
        more = f.emit(f"zext i1 {f.emit(f'xor i1 {rises}, true')} to i64")
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, falls)}, {more}"), falls)
    f.fail_if(f.emit(f"icmp ne i64 {f.load(_INT, falls)}, 0"))


def behind(f: Function, start: str, count: int | str, number: str, strictly: bool = False) -> str:
    """How many of so many numbers that do not fall are not above a number, or below it; NaN, which is last, is not."""
    low, length = f.variable("i64"), f.variable("i64")
    f.store(_INT, "0", low)
    f.store(_INT, str(count), length)
    head, body, done = f.label(), f.label(), f.label()
    f.jump(head)
    f.place(head)
    left = f.load(_INT, length)
    f.branch(f.emit(f"icmp sgt i64 {left}, 0"), body, done)
    f.place(body)
    half, begun = f.emit(f"lshr i64 {left}, 1"), f.load(_INT, low)
    middle = f.emit(f"add i64 {begun}, {half}")
    value = f.load(_FLOAT, element(f, start, middle))
    beyond = f.emit(f"fcmp {'olt' if strictly else 'ole'} double {value}, {number}")
    f.store(_INT, f.select(beyond, "i64", f.emit(f"add i64 {middle}, 1"), begun), low)
    rest = f.emit(f"sub i64 {f.emit(f'sub i64 {left}, {half}')}, 1")
    f.store(_INT, f.select(beyond, "i64", rest, half), length)
    f.jump(head)
    f.place(done)
    return f.load(_INT, low)


@functools.cache
def searches_alike() -> bool:
    """Does this NumPy search as the code above? In arrays that are not sorted it shows, and 2.5 goes another way."""
    rng = np.random.default_rng(0)
    unsorted, keys = rng.permutation(100), rng.permutation(120)[:60]
    places, low, high, last = [], 0, unsorted.size, keys[0]
    for key in keys:
        low, high = (low, unsorted.size) if last < key else (0, min(high + 1, unsorted.size))
        last = key
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if unsorted[middle] < key else (low, middle)
        places.append(low)
    return places == np.searchsorted(unsorted, keys).tolist()


def _is_before(f: Function, dtype: Dtype, x: str, y: str, strictly: bool) -> str:
    """``x < y`` or ``x <= y`` in NumPy's order of sorting: NaN is the largest."""
    if dtype.kind != "f":
        return operate(f, "less" if strictly else "less_equal", dtype, [x, y])
    if strictly:
        is_number, is_nan = operate(f, "equal", dtype, [x, x]), operate(f, "not_equal", dtype, [y, y])
        last = f.emit(f"and i1 {is_number}, {is_nan}")
        return f.emit(f"or i1 {operate(f, 'less', dtype, [x, y])}, {last}")
    return f.emit(f"xor i1 {_is_before(f, dtype, y, x, strictly=True)}, true")


# -- convolution -----------------------------------------------------------------------------------------------------


def convolve(e: Emitter, node: Node, inputs: Sequence[Any]) -> Array:
    """``convolve`` and ``correlate`` by the inner products that NumPy takes, one for each element of the result; of few
    taps by the sums in their order that NumPy has where there is an element for each."""
    a, v = map(vector, inputs)
    n, m = a.shape[0], v.shape[0]
    if isinstance(n, Extent) or isinstance(m, Extent) or a.dtype != v.dtype or a.dtype.kind not in "iuf":
        raise Unsupported("a convolution of another kind")
    slid, exchanged = node.op == "convolve", m > n
    if exchanged:
        (a, n), (v, m) = (v, m), (a, n)
    in_order = m <= IN_ORDER and (a.dtype.kind, a.dtype.itemsize) in _IN_ORDER
    if (a.dtype.kind == "f" and not slides_alike()) or (slid and slides(node) and not in_order):
        raise Unsupported("a convolution that a kernel of its own is faster at")
    f, size, function = e.function, a.dtype.itemsize, dtypes.dot(a.dtype)
    before = {"full": m - 1, "same": m // 2, "valid": 0}[node.attrs["mode"]]
    after = {"full": m - 1, "same": m - m // 2 - 1, "valid": 0}[node.attrs["mode"]]
    taps = e.copied(_backwards(f, v, m) if slid else v)
    a = a if a.contiguous else e.copied(a)
    out = e.fresh((before + n - m + 1 + after,), a.dtype)
    signal, kernel, result = a.pointer(f), taps.pointer(f), out.pointer(f)

    def products(first: int, count: int, at: str, tap: str, length: str) -> None:
        """Elements of the result from ``first`` on; the rest may tell of ``%i``, their number."""
        with f.counted(count) as i:
            x, y, terms = (_linear(f, each, i) for each in (at, tap, length))
            place = f.emit(f"add i64 {i}, {first}")
            _call(
                e, function, "void",
                f"ptr {element(f, signal, x, size)}, i64 {size}, ptr {element(f, kernel, y, size)}, i64 {size}, "
                f"ptr {element(f, result, place, size)}, i64 {terms}",
            )  # fmt: skip

    middle = n - m + 1
    products(0, before, "0", f"{before}-", f"{m - before}+")
    if in_order:
        name = e.kernels.own("taps", "(ptr noalias %x, ptr noalias %v, ptr noalias %o, i64 %n)", _sums(a.dtype, m))
        target = element(f, result, str(before), size)
        f.do(f"call void @{name}(ptr {signal}, ptr {kernel}, ptr {target}, i64 {middle})")
    else:
        products(before, middle, "0+", "0", str(m))
    products(before + middle, after, f"{middle}+", "0", f"{m - 1}-")
    return e.copied(_backwards(f, out, out.capacity[0])) if exchanged and not slid else out


def _backwards(f: Function, x: Array, count: int) -> Array:
    stride = x.strides[0]
    return replace(x, strides=(-stride,), offset=plus(f, x.offset, str((count - 1) * stride)), owned=False)


def _sums(dtype: Dtype, taps: int) -> Function:
    """``%n`` sums of so many products, each in its order: neighbours lie in vectors."""
    f, size = Function(), dtype.itemsize
    weights = [f.load(dtype, element(f, "%v", str(k), size)) for k in range(taps)]
    nothing = "0.0" if dtype.kind == "f" else "0"
    with f.counted("%n") as i:
        total = nothing
        for k, weight in enumerate(weights):
            value = f.load(dtype, element(f, "%x", f.emit(f"add nsw i64 {i}, {k}"), size))
            total = operate(f, "add", dtype, [total, operate(f, "multiply", dtype, [value, weight])])
        f.store(dtype, total, element(f, "%o", i, size))
    return f


@functools.cache
def slides_alike() -> bool:
    """Has this NumPy sums in order of up to so many taps, rounded as those above, and inner products of more?"""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x, v = rng.normal(size=300).astype(dtype), rng.normal(size=IN_ORDER + 1).astype(dtype)
        for taps in range(1, IN_ORDER + 2):
            rows = np.lib.stride_tricks.sliding_window_view(x, taps)
            if taps <= IN_ORDER:
                expected: Any = np.zeros(len(rows), dtype)
                for k in range(taps):
                    expected += rows[:, k] * v[k]
            else:
                expected = np.array([np.dot(row, v[:taps]) for row in rows])
            if not np.array_equal(np.correlate(x, v[:taps]), expected):
                return False
    return True


def _linear(f: Function, term: str, i: str) -> str:
    """``"3+"`` is 3 + i, ``"3-"`` is 3 - i, ``"3"`` is 3."""
    if term[-1] not in "+-":
        return term
    return f.emit(f"{'add' if term[-1] == '+' else 'sub'} i64 {term[:-1]}, {i}")


# -- what is common --------------------------------------------------------------------------------------------------


def vector(value: Any) -> Array:
    """A vector of real numbers."""
    if isinstance(value, Scalar) or len(value.shape) != 1 or value.dtype.kind not in "biuf":
        raise Unsupported("not a vector of real numbers")
    return value


def element(f: Function, pointer: str, index: str, size: int = 8) -> str:
    """The address of an element."""
    return f.emit(f"getelementptr i8, ptr {pointer}, i64 {f.emit(f'mul i64 {index}, {size}')}")


def _call(e: Emitter, function: InnerLoop, kind: str, arguments: str) -> str:
    """A call of a dtype's function, whose last argument, the array, only dtypes of objects look at."""
    call = f"call {kind} %loop{e.memory.loop(function)}({arguments}, ptr null)"
    if kind == "void":
        e.function.do(call)
        return ""
    return e.function.emit(call)


def succeed(e: Emitter, function: InnerLoop, arguments: str) -> None:
    """A call of a function that gives a negative number where it fails."""
    e.function.fail_if(e.function.emit(f"icmp slt i32 {_call(e, function, 'i32', arguments)}, 0"))
