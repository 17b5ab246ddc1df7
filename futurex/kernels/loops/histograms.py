"""``np.histogram`` and ``histogram2d`` in compiled loops: bins of one width by NumPy's own steps, others by searches.

What NumPy refuses, and ranges whose ends are not exact in double precision, are failures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, dtypes, elementwise, quantiles
from futurex.kernels.loops.arrays import Array, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.searching import behind, element, rises, succeed
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, constant, converted
from futurex.kernels.numba_.scalar import operate
from futurex.ops.library import as_function
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_MOST = 1 << 16
"""Numbers that NumPy takes at once: the sums of weights in more are added up."""
_EXACT = float(1 << 53)


@dataclass(frozen=True)
class _Asked:
    """The arguments of a call."""

    a: Any
    bins: Any = 10
    range: Any = None
    density: Any = None
    weights: Any = None


@dataclass(frozen=True)
class _AskedOfPairs:
    """The arguments of a call for pairs of numbers."""

    x: Any
    y: Any
    bins: Any = 10
    range: Any = None
    density: Any = None
    weights: Any = None


class _Numpy:
    """Stands for NumPy in the text of a call whose arguments are asked for."""

    histogram, histogram2d = _Asked, _AskedOfPairs


def native(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Calls of NumPy that have a form of their own: ``histogram``, ``histogram2d``."""
    call = node.attrs["call"]
    if not call.startswith(("np.histogram(", "np.histogram2d(")):
        return quantiles.native(e, node, inputs)
    rest = call.rpartition(")")[2]
    if rest not in ("", "[0]") or not counts_alike():
        raise Unsupported("a part of a histogram, or steps of another NumPy")
    asked = as_function(call.removesuffix(rest), len(inputs), _Numpy)(*inputs)
    found = _histogram(e, asked) if isinstance(asked, _Asked) else _histogram_of_pairs(e, asked)
    return found if not rest else found[0]


def _numbers(x: Any) -> Array:
    if not isinstance(x, Array) or x.dtype.kind not in "iuf" or not x.shape or not 0 < math.prod(x.capacity) <= _MOST:
        raise Unsupported("a histogram of other numbers, or of many")
    if x.dtype in (np.float32, np.float16, np.uint64):
        raise Unsupported("a histogram in another precision")
    return x


@functools.cache
def counts_alike() -> bool:
    """Does this NumPy round edges as the code below, and put numbers at them where that does?"""
    x = np.concatenate([np.random.default_rng(0).normal(size=40), np.linspace(-2, 2, 14)])
    for bins, (first, last) in ((7, (-1.3, 1.9)), (13, (float(x.min()), float(x.max())))):
        edges = np.arange(bins + 1) * ((last - first) / bins) + first
        edges[-1] = last
        inside = x[(x >= first) & (x <= last)]
        places = np.minimum(np.searchsorted(edges, inside, side="right") - 1, bins - 1)
        expected = np.bincount(places, minlength=bins)
        counts, limits = np.histogram(x, bins, (first, last))
        pairs, one, two = np.histogram2d(x, x, bins, [(first, last)] * 2)
        if not all(np.array_equal(each, edges) for each in (limits, one, two)):
            return False
        if counts.tolist() != expected.tolist() or pairs.tolist() != np.diag(expected).tolist():
            return False
    return True


def _histogram(e: Emitter, asked: _Asked) -> list[Array]:
    x = _numbers(asked.a)
    if asked.density not in (None, False, True):
        raise Unsupported("a histogram of another kind")
    x = x if x.contiguous else e.copied(x)
    if len(x.shape) > 1:
        e.known(x.shape)
        x = arrays.reshaped(e.function, x, (x.nbytes // x.dtype.itemsize,))
    weights = asked.weights
    if weights is not None:
        if not isinstance(weights, Array) or weights.dtype != _FLOAT or asked.density or weights.shape != asked.a.shape:
            raise Unsupported("weights of another kind")
        weights = weights if weights.contiguous else e.copied(weights)
    if isinstance(asked.bins, Array):
        if asked.range is not None or weights is not None:
            raise Unsupported("edges that are given, with a range or weights")
        counts, edges = _between(e, x, asked.bins)
    else:
        counts, edges = _of_one_width(e, x, _number_of(asked.bins), asked.range, weights)
    return [_density(e, counts, [edges]) if asked.density else counts, edges]


def _number_of(bins: Any) -> int:
    if not isinstance(bins, int | np.integer) or isinstance(bins, bool) or not 0 < bins <= _MOST:
        raise Unsupported("a histogram by a rule")
    return int(bins)


def _histogram_of_pairs(e: Emitter, asked: _AskedOfPairs) -> list[Array]:
    """Each of two numbers is looked for among the edges of its own, those that are outside too."""
    f, both = e.function, [_numbers(each) for each in (asked.x, asked.y)]
    both = [x if x.contiguous else e.copied(x) for x in both]
    bins = asked.bins if isinstance(asked.bins, list | tuple) else (asked.bins,) * 2
    limits = (None, None) if asked.range is None else asked.range
    if any(len(x.shape) != 1 for x in both) or len(bins) != 2 or len(limits) != 2:
        raise Unsupported("a histogram of pairs of another kind")
    if asked.weights is not None or asked.density not in (None, False, True):
        raise Unsupported("a histogram of another kind")
    count = text(both[0].shape[0])
    if both[0].shape != both[1].shape:
        f.fail_if(f.emit(f"icmp ne i64 {count}, {text(both[1].shape[0])}"))
    edges = []
    for x, number, ends in zip(both, bins, limits, strict=True):
        known = elementwise.operand(e, x, _FLOAT)
        edges.append(_edges(e, known, _number_of(number), ends, x.dtype.kind != "f")[0])
    numbers = [elementwise.operand(e, x, _FLOAT) for x in both]
    m, n = (each.capacity[0] - 1 for each in edges)
    out = e.fresh((m, n), _INT)
    told, starts, ends = out.pointer(f), [x.pointer(f) for x in numbers], [each.pointer(f) for each in edges]
    with f.counted(m * n) as k:
        f.store(_INT, "0", element(f, told, k))
    with f.counted(count) as k:
        found, inside, done = [], f.label(), f.label()
        within = "true"
        for x, start, edge, many in zip(numbers, starts, ends, (m, n), strict=True):
            value = f.load(_FLOAT, element(f, start, k, x.strides[0]))
            last = f.emit(f"fcmp oeq double {value}, {f.load(_FLOAT, element(f, edge, str(many)))}")
            place = f.emit(f"sub i64 {behind(f, edge, many + 1, value)}, {f.emit(f'zext i1 {last} to i64')}")
            found.append(f.emit(f"sub i64 {place}, 1"))
            within = f.emit(f"and i1 {within}, {f.emit(f'icmp ult i64 {found[-1]}, {many}')}")
        f.branch(within, inside, done)
        f.place(inside)
        target = element(f, told, f.emit(f"add i64 {f.emit(f'mul i64 {found[0]}, {n}')}, {found[1]}"))
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, target)}, 1"), target)
        f.jump(done)
        f.place(done)
    return [_density(e, out, edges) if asked.density else elementwise.operand(e, out, _FLOAT), *edges]


def _between(e: Emitter, x: Array, edges: Array) -> tuple[Array, Array]:
    """Counts between edges, which may be the same: those at the last one belong to it."""
    f, count = e.function, text(x.shape[0])
    if len(edges.shape) != 1 or not edges.static or edges.capacity[0] < 2 or edges.dtype != _FLOAT:
        raise Unsupported("edges of another kind")
    rises(e, edges)
    made = e.copied(x)
    succeed(e, dtypes.sort(x.dtype, None), f"ptr {made.pointer(f)}, i64 {count}")
    sorted_ = elementwise.operand(e, made, _FLOAT)  # as NumPy looks for edges that are floats
    bins, start, limits = edges.capacity[0] - 1, sorted_.pointer(f), edges.pointer(f)
    out, before = e.fresh((bins,), _INT), f.variable("i64")
    told = out.pointer(f)
    f.store(_INT, behind(f, start, count, f.load(_FLOAT, limits), strictly=True), before)
    with f.counted(bins) as k:
        following = f.emit(f"add i64 {k}, 1")
        edge = f.load(_FLOAT, element(f, limits, following, edges.strides[0]))
        below, upto = behind(f, start, count, edge, strictly=True), behind(f, start, count, edge)
        end = f.select(f.emit(f"icmp eq i64 {following}, {bins}"), "i64", upto, below)
        f.store(_INT, f.emit(f"sub i64 {end}, {f.load(_INT, before)}"), element(f, told, k))
        f.store(_INT, end, before)
    return out, edges


def _edges(e: Emitter, x: Array, bins: int, limits: Any, whole: bool) -> tuple[Array, str, str, str]:
    """Of bins of one width: with the first and the last one, and how far they are apart. ``whole``: of integers."""
    f = e.function
    first, last, whole_limits = _limits(e, x, limits)
    if whole or whole_limits:
        for each in (first, last):
            f.fail_if(f.emit(f"fcmp ogt double {operate(f, 'absolute', _FLOAT, [each])}, {_text(_EXACT)}"))
    f.fail_if(f.emit(f"fcmp ugt double {first}, {last}"))
    same = f.emit(f"fcmp oeq double {first}, {last}")
    first, last = (
        f.select(same, "double", f.emit(f"{word} double {each}, 0.5"), each)
        for word, each in (("fsub", first), ("fadd", last))
    )
    extent = f.emit(f"fsub double {last}, {first}")
    f.fail_if(f.emit(f"fcmp uno double {f.emit(f'fsub double {extent}, {extent}')}, 0.0"))
    width = f.emit(f"fdiv double {extent}, {_text(float(bins))}")
    f.fail_if(f.emit(f"fcmp oeq double {width}, 0.0"))
    edges = e.fresh((bins + 1,), _FLOAT)
    limits_at, falls = edges.pointer(f), f.variable("i64")
    f.store(_INT, "0", falls)
    with f.counted(bins) as k:
        here = f.emit(f"fadd double {f.emit(f'fmul double {f.cast(k, _INT, _FLOAT)}, {width}')}, {first}")
        f.store(_FLOAT, here, element(f, limits_at, k))
    f.store(_FLOAT, last, element(f, limits_at, str(bins)))
    with f.counted(bins) as k:
        here, following = (f.load(_FLOAT, element(f, limits_at, each)) for each in (k, f.emit(f"add i64 {k}, 1")))
        fall = f.emit(f"zext i1 {f.emit(f'fcmp uge double {here}, {following}')} to i64")
        f.store(_INT, f.emit(f"or i64 {f.load(_INT, falls)}, {fall}"), falls)
    f.fail_if(f.emit(f"icmp ne i64 {f.load(_INT, falls)}, 0"))
    return edges, first, last, extent


def _of_one_width(e: Emitter, x: Array, bins: int, limits: Any, weights: Array | None) -> tuple[Array, Array]:
    f, count, whole = e.function, text(x.shape[0]), x.dtype.kind != "f"
    x = elementwise.operand(e, x, _FLOAT)
    edges, first, last, extent = _edges(e, x, bins, limits, whole)
    limits_at, number = edges.pointer(f), _text(float(bins))
    out = e.fresh((bins,), _INT if weights is None else _FLOAT)
    told, given = out.pointer(f), x.pointer(f)
    added = None if weights is None else weights.pointer(f)
    with f.counted(bins) as k:
        f.store(_INT, "0", element(f, told, k))  # the bits of 0.0 are those of 0
    with f.counted(count) as k:
        value = f.load(_FLOAT, element(f, given, k))
        inside, done = f.label(), f.label()
        above = f.emit(f"fcmp oge double {value}, {first}")
        f.branch(f.emit(f"and i1 {above}, {f.emit(f'fcmp ole double {value}, {last}')}"), inside, done)
        f.place(inside)
        part = f.emit(f"fdiv double {f.emit(f'fsub double {value}, {first}')}, {extent}")
        place = f.emit(f"fptosi double {f.emit(f'fmul double {part}, {number}')} to i64")
        target = element(f, told, _near(f, limits_at, value, place, bins))
        if added is None:
            f.store(_INT, f.emit(f"add i64 {f.load(_INT, target)}, 1"), target)
        else:
            weight = f.load(_FLOAT, element(f, added, k))
            f.store(_FLOAT, f.emit(f"fadd double {f.load(_FLOAT, target)}, {weight}"), target)
        f.jump(done)
        f.place(done)
    return out, edges


def _near(f: Function, edges: str, value: str, place: str, bins: int) -> str:
    """The bin of a number: what rounding has put into a bin beside its own goes there."""
    final = str(bins - 1)
    place = f.select(f.emit(f"icmp eq i64 {place}, {bins}"), "i64", final, place)
    low = f.emit(f"fcmp olt double {value}, {f.load(_FLOAT, element(f, edges, place))}")
    place = f.emit(f"sub i64 {place}, {f.emit(f'zext i1 {low} to i64')}")
    edge = f.load(_FLOAT, element(f, edges, f.emit(f"add i64 {place}, 1")))
    high, inner = f.emit(f"fcmp oge double {value}, {edge}"), f.emit(f"icmp ne i64 {place}, {final}")
    above = f.emit(f"and i1 {high}, {inner}")
    return f.emit(f"add i64 {place}, {f.emit(f'zext i1 {above} to i64')}")


def _limits(e: Emitter, x: Array, limits: Any) -> tuple[str, str, bool]:
    """Where the bins begin and end; and are that integers?"""
    f = e.function
    if limits is not None:
        ends = [each if isinstance(each, Scalar) else _known(each) for each in limits]
        if len(ends) != 2 or any(each.dtype not in (_INT, _FLOAT) for each in ends):
            raise Unsupported("a range of other numbers")
        low, high = (converted(f, each, _FLOAT) for each in ends)
        return low, high, any(each.dtype == _INT for each in ends)
    start, least, most, odd = x.pointer(f), f.variable("double"), f.variable("double"), f.variable("i64")
    f.fail_if(f.emit(f"icmp eq i64 {text(x.shape[0])}, 0"))
    f.store(_INT, "0", odd)
    for variable in (least, most):
        f.store(_FLOAT, f.load(_FLOAT, start), variable)
    with f.counted(text(x.shape[0])) as k:
        value = f.load(_FLOAT, element(f, start, k))
        for word, variable in (("olt", least), ("ogt", most)):
            known = f.load(_FLOAT, variable)
            f.store(_FLOAT, f.select(f.emit(f"fcmp {word} double {value}, {known}"), "double", value, known), variable)
        bits = f.emit(f"bitcast double {value} to i64")
        signed = f.emit(f"icmp eq i64 {bits}, {np.iinfo(np.int64).min}")
        strange = f.emit(f"or i1 {f.emit(f'fcmp uno double {value}, {value}')}, {signed}")
        f.store(_INT, f.emit(f"or i64 {f.load(_INT, odd)}, {f.emit(f'zext i1 {strange} to i64')}"), odd)
    f.fail_if(f.emit(f"icmp ne i64 {f.load(_INT, odd)}, 0"))  # no range, or an end with the sign of one of the zeros
    return f.load(_FLOAT, least), f.load(_FLOAT, most), False


def _known(value: Any) -> Scalar:
    if type(value) not in (int, float):
        raise Unsupported("a range of other numbers")
    return constant(value, _INT if type(value) is int else _FLOAT, True)


def _density(e: Emitter, counts: Array, edges: Sequence[Array]) -> Array:
    """Counts by the widths of their bins along each axis, and by all of them."""
    f, total = e.function, e.function.variable("i64")
    out = e.fresh(counts.shape, _FLOAT)
    given, told = counts.pointer(f), out.pointer(f)
    f.store(_INT, "0", total)
    with f.counted(math.prod(counts.capacity)) as k:
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, total)}, {f.load(_INT, element(f, given, k))}"), total)
    f.fail_if(f.emit(f"icmp eq i64 {f.load(_INT, total)}, 0"))
    whole = f.cast(f.load(_INT, total), _INT, _FLOAT)
    limits = [each.pointer(f) for each in edges]
    with f.counted(math.prod(counts.capacity)) as k:
        rate = f.cast(f.load(_INT, element(f, given, k)), _INT, _FLOAT)
        rest, places = k, list[str]()
        for extent in reversed(counts.capacity):
            places.insert(0, f.emit(f"urem i64 {rest}, {extent}"))
            rest = f.emit(f"udiv i64 {rest}, {extent}")
        for each, start, place in zip(edges, limits, places, strict=True):
            here, following = (
                f.load(_FLOAT, element(f, start, number, each.strides[0]))
                for number in (place, f.emit(f"add i64 {place}, 1"))
            )
            rate = f.emit(f"fdiv double {rate}, {f.emit(f'fsub double {following}, {here}')}")
        f.store(_FLOAT, f.emit(f"fdiv double {rate}, {whole}"), element(f, told, k))
    return out


def _text(value: float) -> str:
    return constant(value, _FLOAT, True).register
