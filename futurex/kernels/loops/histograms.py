"""``np.histogram`` in compiled loops: bins of one width by NumPy's own steps, others by searches for their edges.

What NumPy refuses, and ranges whose ends are not exact in double precision, are failures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, dtypes, elementwise, quantiles
from futurex.kernels.loops.arrays import Array, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.searching import element, places, rises, succeed
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


class _Numpy:
    """Stands for NumPy in the text of a call whose arguments are asked for."""

    histogram = _Asked


def native(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """Calls of NumPy that have a form of their own: ``histogram``."""
    call = node.attrs["call"]
    if not call.startswith("np.histogram("):
        return quantiles.native(e, node, inputs)
    rest = call.rpartition(")")[2]
    if rest not in ("", "[0]"):
        raise Unsupported("a part of a histogram")
    asked = as_function(call.removesuffix(rest), len(inputs), _Numpy)(*inputs)
    counts, edges = _histogram(e, asked)
    return [counts, edges] if not rest else counts


def _histogram(e: Emitter, asked: _Asked) -> tuple[Array, Array]:
    x = asked.a
    if not isinstance(x, Array) or x.dtype.kind not in "iuf" or not x.shape or not 0 < math.prod(x.capacity) <= _MOST:
        raise Unsupported("a histogram of other numbers, or of many")
    if x.dtype in (np.float32, np.float16, np.uint64) or asked.density not in (None, False, True):
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
    elif isinstance(asked.bins, int | np.integer) and not isinstance(asked.bins, bool) and 0 < asked.bins <= _MOST:
        counts, edges = _of_one_width(e, x, int(asked.bins), asked.range, weights)
    else:
        raise Unsupported("a histogram by a rule")
    return (_density(e, counts, edges) if asked.density else counts), edges


def _between(e: Emitter, x: Array, edges: Array) -> tuple[Array, Array]:
    """Counts between edges, which may be the same: those at the last one belong to it."""
    f, count = e.function, text(x.shape[0])
    if len(edges.shape) != 1 or not edges.static or edges.capacity[0] < 2 or edges.dtype != _FLOAT:
        raise Unsupported("edges of another kind")
    rises(e, edges)
    made = e.copied(x)
    succeed(e, dtypes.sort(x.dtype, None), f"ptr {made.pointer(f)}, i64 {count}")
    bins, step = edges.capacity[0] - 1, edges.strides[0]
    first = replace(edges, shape=(bins,), owned=False)
    last = replace(edges, shape=(1,), offset=arrays.plus(f, edges.offset, str(bins * step)), owned=False)
    below, ends = places(e, (made, first), True), places(e, (made, last), False)
    starts, end, out = below.pointer(f), f.load(_INT, ends.pointer(f)), e.fresh((bins,), _INT)
    told = out.pointer(f)
    with f.counted(bins) as k:
        following = f.emit(f"add i64 {k}, 1")
        inner = f.emit(f"icmp slt i64 {following}, {bins}")
        behind = f.load(_INT, element(f, starts, f.select(inner, "i64", following, "0")))
        behind = f.select(inner, "i64", behind, end)
        f.store(_INT, f.emit(f"sub i64 {behind}, {f.load(_INT, element(f, starts, k))}"), element(f, told, k))
    return out, edges


def _of_one_width(e: Emitter, x: Array, bins: int, limits: Any, weights: Array | None) -> tuple[Array, Array]:
    f, count, whole = e.function, text(x.shape[0]), x.dtype.kind != "f"
    x = elementwise.operand(e, x, _FLOAT)
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
    number = _text(float(bins))
    width = f.emit(f"fdiv double {extent}, {number}")
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


def _density(e: Emitter, counts: Array, edges: Array) -> Array:
    """Counts by the widths of their bins, and by all of them."""
    f, bins, total = e.function, counts.capacity[0], e.function.variable("i64")
    out = e.fresh((bins,), _FLOAT)
    given, limits, step, told = counts.pointer(f), edges.pointer(f), edges.strides[0], out.pointer(f)
    f.store(_INT, "0", total)
    with f.counted(bins) as k:
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, total)}, {f.load(_INT, element(f, given, k))}"), total)
    f.fail_if(f.emit(f"icmp eq i64 {f.load(_INT, total)}, 0"))
    whole = f.cast(f.load(_INT, total), _INT, _FLOAT)
    with f.counted(bins) as k:
        here, following = (
            f.load(_FLOAT, element(f, limits, each, step)) for each in (k, f.emit(f"add i64 {k}, 1"))
        )  # fmt: skip
        number = f.cast(f.load(_INT, element(f, given, k)), _INT, _FLOAT)
        rate = f.emit(f"fdiv double {number}, {f.emit(f'fsub double {following}, {here}')}")
        f.store(_FLOAT, f.emit(f"fdiv double {rate}, {whole}"), element(f, told, k))
    return out


def _text(value: float) -> str:
    return constant(value, _FLOAT, True).register
